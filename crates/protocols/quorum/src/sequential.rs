//! # The cut: reads at `sequential`, in one order of all operations on all keys
//!
//! MeteorShower promises sequential consistency, and does not keep it across keys (see the golden script `meteorshower_is_sequential_for_each_key_alone`):
//! each read shows the newest version here, and two readers may see two writes in opposite orders. Here a read shows the *past*, and everybody the same past.
//!
//! ```text
//!   stamps of a  ----o-----------o--------|  a has said: I stamp nothing more up to here
//!   stamps of b  ------o--------------|      b has said so up to here
//!   stamps of c  ------------o------------|
//!                                     |
//!                                    the cut: everything that was stamped up to it, anywhere, is here
//! ```
//!
//! **The order.** A write has its place by its timestamp, and a read by the cut at which it shows the data. A read at the cut c shows, of each key, the newest version
//! stamped up to c. A session's operations must come in the order in which they were sent. So a session has a *position*: the highest timestamp that it has
//! read, written, or read at. Its next read waits until the cut has reached the position, and its next write is stamped above it. Nothing else is needed. The order of versions
//! and cuts is one order of all operations, of all partitions and sites.
//!
//! **The rules**, each of which was needed when the argument was tried out:
//!
//! - Stamps are unique, above the session's position, and above every promise that was given, also after a restart.
//! - A replica's versions and its promises come in one stream. A promise is behind everything that it speaks of.
//! - Only promises of what is on its sender's disk count: a power loss takes nothing that was shown.
//! - The cut is the minimum over *all* replicas of the partition, this one among them. It has the same time for each of them, so it is one timestamp.
//! - The position is in the token.
//! - Versions that have been replaced are kept until no cut that is in use can need them.
//!
//! **If a replica is away** the cut stays where it is. Reads that fit before it are answered, older and older. A session that has just written waits, and
//! fails after `patience`. No replica is ever left out by itself: it might have stamped something that nobody else has.
//!
//! **Old versions** are kept in memory, beside the store, and only while somebody reads at this level. When the first one does, it is not known what came before the
//! newest version of a key. So a read of a key that was just written waits until the cut has reached that version. Reads of several keys are all at one cut.
//!
//! **Caveat.** If a replica loses what it stamped (a whole data directory, or writes at `one` in a power loss), its peers send it back, except for versions that
//! newer ones have replaced there. A third replica that lacks such a version, because it has not come yet, will never get it. Then the third replica may answer as of a cut between
//! the two, without the version. It is right again from the newer version on.
//!
//! **The receipt** has the cut. With it, and the versions in other receipts, a checker verifies the order without searching one.
//!
//! **Sources.** Ours; the timestamps and the read below the minimum of all promises are those of GentleRain's GST, here for all operations and with sessions that
//! wait for their own writes.
use crate::{
    Conflicts, Request,
    replica::{Cx, Line, Quorum, newest_here},
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use turnbuckle_core::{
    Content, Freshness, Hlc, Key, Level, Micros, PlainResponse, QuorumProof, Receipt, ReplicaId, ReplicaSet,
    RequestId, Version, VersionId,
};
use turnbuckle_streams::Mark;

/// Cuts of this long ago can still be read at: a read of several keys takes no longer.
const KEEP: Micros = Micros::from_millis(1_000);

/// What replaced versions may take in memory, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// What a version takes besides its key and value.
const VERSION_BYTES: usize = 96;

/// The most promises of a replica that are remembered with their times.
const MAX_PROMISES: usize = 4_096;

/// What a replica needs for reads at a cut.
#[derive(Default)]
pub(crate) struct Order {
    /// Whether replaced versions are kept.
    is_on: bool,
    /// Everything that was stamped up to this time, at any replica, is here and on its replica's disk.
    cut: Hlc,
    /// The oldest cut that can be read at, and what it becomes next.
    horizon: Hlc,
    next_horizon: Hlc,
    horizon_at: Micros,
    /// What each replica has promised, each promise with the wall time at which it was given. All that it had acknowledged by then was stamped up to the promise.
    promises: BTreeMap<ReplicaId, VecDeque<(Hlc, Micros)>>,
    /// The keys that were written since the horizon.
    keys: BTreeMap<Key, Replaced>,
    /// The same keys, by the timestamp of their newest version.
    by_newest: BTreeSet<(Hlc, Key)>,
    bytes: usize,
    /// A planted bug.
    guesses_the_past: bool,
    /// Reads that were answered, and that failed because the cut did not come far enough.
    pub answered: u64,
    pub late: u64,
}

/// The versions of a key that were replaced.
struct Replaced {
    /// The oldest first.
    older: Vec<Version<()>>,
    /// The version that replaced the last of them. It is in the store.
    newest: VersionId,
    /// Whether nothing was there before the first of them.
    is_complete: bool,
    /// What all of them take in memory, with the key.
    bytes: usize,
}

/// What a version takes in memory.
fn bytes_of(version: &Version<()>) -> usize {
    VERSION_BYTES + version.content.stored().map_or(0, Bytes::len)
}

impl Replaced {
    /// The version as of a cut, if it is not the newest one. `Err`: that is known only for cuts from this one on.
    fn at(&self, cut: Hlc) -> Result<Option<&Version<()>>, Hlc> {
        let count = self.older.partition_point(|version| version.id.at <= cut);
        match count.checked_sub(1) {
            Some(place) => Ok(Some(&self.older[place])),
            None if self.is_complete => Ok(None),
            None => Err(self.older.first().map_or(self.newest.at, |first| first.id.at)),
        }
    }

    fn insert(&mut self, place: usize, version: Version<()>) {
        self.bytes += bytes_of(&version);
        self.older.insert(place, version);
    }

    /// Drops the versions that no cut from the horizon on needs.
    fn drop_before(&mut self, horizon: Hlc) {
        let until = self.older.partition_point(|older| older.id.at <= horizon);
        for dropped in self.older.drain(..until.saturating_sub(1)) {
            self.bytes -= bytes_of(&dropped);
        }
    }
}

impl Order {
    /// The bytes of the versions that are kept.
    pub fn kept_bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// What is kept is of no use any more, or is too much.
    pub fn forget(&mut self) {
        self.keys.clear();
        self.by_newest.clear();
        self.bytes = 0;
    }

    /// Nobody reads at `sequential` any more.
    pub fn end(&mut self) {
        self.forget();
        self.promises.clear();
        self.is_on = false;
    }

    /// A version is about to be put into the store, where `here` is the newest one.
    fn note<M>(&mut self, key: &Key, here: Option<&Version<M>>, version: &Version<M>) {
        let known = self.keys.remove(key).inspect(|kept| {
            self.by_newest.remove(&(kept.newest.at, key.clone()));
            self.bytes -= kept.bytes;
        });
        // If the newest version is not the one that was noted, it is not known what it replaced. If it is not there any more, it was a delete, which is
        // forgotten.
        let known = known.filter(|kept| here.is_none_or(|here| here.id == kept.newest));
        let mut kept = known.unwrap_or_else(|| Replaced {
            older: Vec::new(),
            newest: here.map_or(version.id, |here| here.id),
            is_complete: here.is_none(),
            bytes: key.0.len() + VERSION_BYTES,
        });
        if version.id.stamp() > kept.newest.stamp() {
            let replaced = Version {
                id: here.map_or(kept.newest, |here| here.id),
                content: here.map_or(Content::DELETE, |here| here.content.clone()),
                meta: (),
            };
            kept.insert(kept.older.len(), replaced);
            kept.newest = version.id;
        } else if version.id.stamp() < kept.newest.stamp()
            && let Err(place) = kept.older.binary_search_by_key(&version.rank(), Version::rank)
            // Between it and the oldest that is known there may be others, which were replaced before anything was noted.
            && (place > 0 || kept.is_complete || self.guesses_the_past)
        {
            // The buffer that it came in is not kept.
            let (id, content, meta) = (version.id, version.content.compact(), ());
            kept.insert(place, Version { id, content, meta });
        }
        kept.drop_before(self.horizon);
        let key = Key(Bytes::copy_from_slice(key.as_ref()));
        self.bytes += kept.bytes;
        self.by_newest.insert((kept.newest.at, key.clone()));
        self.keys.insert(key, kept);
        if self.bytes > MAX_BYTES {
            self.forget();
        }
    }

    /// The cut has come this far.
    fn advance(&mut self, now: Micros, cut: Hlc) {
        self.cut = self.cut.max(cut);
        if now >= self.horizon_at + KEEP {
            (self.horizon, self.next_horizon, self.horizon_at) = (self.next_horizon, self.cut, now);
        }
        while let Some((at, key)) = self.by_newest.first().cloned()
            && at <= self.horizon
        {
            self.by_newest.pop_first();
            if let Some(kept) = self.keys.remove(&key) {
                self.bytes -= kept.bytes;
            }
        }
        for promises in self.promises.values_mut() {
            while promises
                .get(1)
                .is_some_and(|&(promise, _)| promise <= self.horizon)
            {
                promises.pop_front();
            }
        }
    }

    fn promised(&mut self, replica: ReplicaId, promise: Hlc, wall: Micros) {
        let promises = self.promises.entry(replica).or_default();
        let is_new = promises.back().is_none_or(|&(last, _)| last < promise);
        if is_new && promises.len() < MAX_PROMISES {
            promises.push_back((promise, wall));
        }
    }

    /// Of each replica, the wall time by which everything that it had acknowledged is in what is shown at a cut. 0 if that is not known.
    fn walls(&self, all: ReplicaSet, cut: Hlc) -> impl Iterator<Item = Micros> {
        let wall = move |replica| {
            let promises = self.promises.get(&replica)?;
            let count = promises.partition_point(|&(promise, _)| promise <= cut);
            promises.get(count.checked_sub(1)?).map(|&(_, wall)| wall)
        };
        let walls: Vec<Micros> = all
            .iter()
            .map(|replica| wall(replica).unwrap_or_default())
            .collect();
        walls.into_iter()
    }
}

impl<C: Conflicts> Quorum<C> {
    /// A read at `sequential`, or a delete that finds nothing here.
    pub(crate) fn read_in_order(&mut self, cx: &mut Cx<'_, C>, id: RequestId, request: Request) {
        self.want_order(cx);
        if !cx.proves() {
            let why = "this replica does not have everything again that it had lost";
            return self.refuse_in_order(cx, id, why.to_string());
        }
        let forgotten = self.marks.deletes.shown_by_all();
        let cut = match request.floor.exactly {
            true => request.floor.position,
            false => self.order.cut,
        };
        if request.floor.exactly && (cut < self.order.horizon || cut < forgotten) {
            let why = format!("the keys were to be read as of a moment that is more than {KEEP} ago");
            return self.refuse_in_order(cx, id, why);
        }
        let needed = request.floor.position.max(forgotten);
        let shown = match needed <= self.order.cut {
            true => self.as_of(cx, request.operation.key(), cut),
            false => Err(needed),
        };
        match shown {
            Ok((version, value)) => {
                self.order.answered += 1;
                let me = ReplicaSet::one(cx.me.replica());
                let proof = QuorumProof {
                    asked: me,
                    answered: me,
                    covers: 1,
                    freshness: Some(Box::new(Freshness::Cut(cut))),
                };
                let receipt = Receipt {
                    staleness: cx.staleness(self.order.walls(self.all, cut)),
                    ..self.receipt(cx, Level::Sequential, version, proof, cx.now.monotonic)
                };
                let response = match request.operation.is_write() {
                    // There is nothing to delete.
                    true => PlainResponse::Written { existed: false },
                    false => PlainResponse::Value(value),
                };
                cx.reply(id, response, receipt);
            }
            Err(needed) => self.wait_for_cut(cx, id, request, needed),
        }
    }

    fn want_order(&mut self, cx: &mut Cx<'_, C>) {
        self.want_statuses(cx);
        if !self.order.is_on {
            self.order.is_on = true;
            self.order.guesses_the_past = self.config.bugs.guesses_the_past;
            self.order.horizon_at = cx.now.monotonic;
        }
        self.raise_cut(cx);
    }

    /// A delete at `sequential`. It waits until what its session has seen is here, because it says whether there was a value. If there is nothing here, it is a read
    /// at a cut as of which there is nothing.
    pub(crate) fn delete_in_order(&mut self, cx: &mut Cx<'_, C>, id: RequestId, mut request: Request) {
        self.want_order(cx);
        if self.order.cut < request.floor.position {
            let position = request.floor.position;
            return self.wait_for_cut(cx, id, request, position);
        }
        let newest = cx.chain(request.operation.key()).map(|chain| chain.newest());
        if newest.is_some_and(|newest| !newest.content.is_delete()) {
            let since = cx.now.monotonic.since(cx.waited);
            return self.begin_write(cx, id, request.operation, since);
        }
        let gone_at = newest.map(|newest| newest.id.at).unwrap_or_default();
        request.floor.position = request.floor.position.max(gone_at);
        self.read_in_order(cx, id, request);
    }

    fn wait_for_cut(&mut self, cx: &mut Cx<'_, C>, id: RequestId, request: Request, needed: Hlc) {
        let deadline = cx.now.monotonic.since(cx.waited) + self.config.patience;
        if request.floor.exactly && needed > request.floor.position {
            let why = "it is not known what a key had at the moment as of which it was to be read";
            return self.refuse_in_order(cx, id, why.to_string());
        }
        if cx.now.monotonic < deadline {
            self.want_statuses_until(deadline);
            return cx.wait(Line::Cut, needed.0, deadline, id, request);
        }
        self.order.late += 1;
        let slowest = self.cut_entries(cx).min_by_key(|&(_, until)| until);
        let slowest = slowest.map_or(cx.me.replica(), |(replica, _)| replica);
        let why = format!(
            "what {} has stamped up to the session's place in the order is not all known here within {}",
            cx.topology.replica_name(slowest),
            self.config.patience
        );
        self.refuse_in_order(cx, id, why);
    }

    fn refuse_in_order(&self, cx: &mut Cx<'_, C>, id: RequestId, why: String) {
        let receipt = cx.receipt(Level::Sequential, None);
        let why = format!("{} cannot be given: {why}", Level::Sequential);
        cx.reply(id, PlainResponse::Refused(why), receipt);
    }

    /// A key as of a cut, which this one has reached. `Err`: that is known only for cuts from this one on.
    fn as_of(&self, cx: &Cx<'_, C>, key: &Key, cut: Hlc) -> Result<(Option<VersionId>, Option<Bytes>), Hlc> {
        let (newest, value) = newest_here(cx, key);
        let kept = self.order.keys.get(key);
        match (newest, kept) {
            _ if self.config.bugs.shows_newest => Ok((newest, value)),
            // What is not there any more was a delete, which is forgotten.
            (None, Some(kept)) if kept.newest.at > cut => self.replaced(kept, cut),
            (None, _) => Ok((None, None)),
            (Some(newest), _) if newest.at <= cut => Ok((Some(newest), value)),
            (Some(newest), Some(kept)) if newest == kept.newest => self.replaced(kept, cut),
            // It was not noted what this version has replaced.
            (Some(newest), _) => Err(newest.at),
        }
    }

    fn replaced(&self, kept: &Replaced, cut: Hlc) -> Result<(Option<VersionId>, Option<Bytes>), Hlc> {
        let version = kept.at(cut)?;
        let id = version.map(|version| version.id);
        Ok((id, version.and_then(|version| version.content.stored().cloned())))
    }

    /// A version is about to be put into the store.
    pub(crate) fn keep_replaced(&mut self, cx: &Cx<'_, C>, key: &Key, version: &Version<C::Meta>) {
        if self.order.is_on {
            let here = cx.chain(key).map(|chain| chain.newest());
            self.order.note(key, here, version);
        }
    }

    /// A peer has promised that it stamps nothing more up to a time.
    pub(crate) fn note_promise(&mut self, from: ReplicaId, mark: Mark) {
        if self.order.is_on {
            self.order.promised(from, mark.promise, mark.wall);
        }
    }

    /// More may be here than before: the cut rises.
    pub(crate) fn raise_cut(&mut self, cx: &mut Cx<'_, C>) {
        if !self.order.is_on {
            return;
        }
        let own = self.marks.next(cx);
        self.order.promised(cx.me.replica(), own.promise, own.wall);
        let cut = self.cut_entries(cx).map(|(_, until)| until).min();
        self.order
            .advance(cx.now.monotonic, cut.unwrap_or(self.order.cut));
        cx.advance(Line::Cut, self.order.cut.0);
    }

    /// Of each replica, the time up to which everything that it stamped is here, and on its disk.
    fn cut_entries(&self, cx: &Cx<'_, C>) -> impl Iterator<Item = (ReplicaId, Hlc)> + use<C> {
        let me = cx.me.replica();
        // Nobody is sent the promises of a replica that is alone, so none is ever settled.
        let own = match self.replicas {
            1 => Hlc::LATEST,
            _ => cx.settled_promise(),
        };
        let entries = self.marks.cut().into_iter();
        let leaves_one_out = self.config.bugs.leaves_one_out;
        let last = self.all.iter().last();
        entries
            .map(move |(replica, until)| (replica, if replica == me { until.min(own) } else { until }))
            .filter(move |&(replica, _)| !(leaves_one_out && Some(replica) == last && replica != me))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(at: u64, value: Option<&'static str>) -> Version<()> {
        Version {
            id: VersionId {
                at: Hlc(at),
                replica: ReplicaId(0),
            },
            content: value.map(|value| Bytes::from_static(value.as_bytes())).into(),
            meta: (),
        }
    }

    /// A dumb oracle beside it: all versions in one list.
    #[test]
    fn versions_are_known_as_of_every_cut_in_whatever_order_they_come() {
        let key = Key::from("k");
        for shuffle in 0..120_u64 {
            let mut order = Order {
                is_on: true,
                ..Order::default()
            };
            let mut left: Vec<u64> = (1..=5).map(|at| at * 10).collect();
            let mut here: Option<Version<()>> = None;
            let mut known: Vec<u64> = Vec::new();
            let mut rest = shuffle;
            while !left.is_empty() {
                let at = left.remove((rest % left.len() as u64) as usize);
                rest /= left.len() as u64 + 1;
                let incoming = version(at, (at != 30).then_some("v"));
                order.note(&key, here.as_ref(), &incoming);
                if here.as_ref().is_none_or(|here| here.rank() < incoming.rank()) {
                    here = Some(incoming);
                }
                known.push(at);
                let newest = here.as_ref().map(|here| here.id.at.0).unwrap_or_default();
                let kept = &order.keys[&key];
                for cut in (0..newest).step_by(5) {
                    let expected = known.iter().copied().filter(|&at| at <= cut).max();
                    let found = kept.at(Hlc(cut)).expect("everything is noted");
                    assert_eq!(found.map(|version| version.id.at.0), expected, "as of {cut}");
                }
            }
        }
    }

    #[test]
    fn what_was_there_before_is_not_known() {
        let key = Key::from("k");
        let mut order = Order::default();
        order.note(&key, Some(&version(10, Some("1"))), &version(20, Some("2")));
        let kept = &order.keys[&key];
        assert_eq!(kept.at(Hlc(9)).err(), Some(Hlc(10)));
        assert_eq!(
            kept.at(Hlc(15)).expect("it is kept").map(|version| version.id.at),
            Some(Hlc(10))
        );
    }

    /// A version that comes late may be older than others that were replaced before anything was noted.
    #[test]
    fn below_what_is_known_nothing_is_known() {
        let key = Key::from("k");
        let mut order = Order::default();
        let newest = version(100, Some("z"));
        order.note(&key, Some(&newest), &version(60, Some("v")));
        assert_eq!(order.keys[&key].at(Hlc(90)).err(), Some(Hlc(100)));
        order.note(&key, Some(&newest), &version(120, Some("w")));
        order.note(&key, Some(&version(120, Some("w"))), &version(110, Some("u")));
        order.note(&key, Some(&version(120, Some("w"))), &version(80, Some("y")));
        let at = |cut| {
            order.keys[&key]
                .at(Hlc(cut))
                .map(|version| version.map(|version| version.id.at.0))
        };
        assert_eq!(at(90), Err(Hlc(100)));
        assert_eq!((at(105), at(115)), (Ok(Some(100)), Ok(Some(110))));
    }

    /// The newest version came in a way that was not noted.
    #[test]
    fn a_newest_version_that_was_not_noted_has_replaced_something_unknown() {
        let key = Key::from("k");
        let mut order = Order::default();
        order.note(&key, Some(&version(50, Some("x"))), &version(90, Some("n")));
        order.note(&key, Some(&version(95, Some("v"))), &version(200, Some("w")));
        let at = |cut| {
            order.keys[&key]
                .at(Hlc(cut))
                .map(|version| version.map(|version| version.id.at.0))
        };
        assert_eq!((at(94), at(100)), (Err(Hlc(95)), Ok(Some(95))));
    }

    #[test]
    fn what_no_cut_needs_is_dropped_and_the_rest_is_bounded() {
        let (key, other) = (Key::from("k"), Key::from("other"));
        let mut order = Order::default();
        for at in 1..=100 {
            let here = version(at - 1, Some("v"));
            order.note(&key, (at > 1).then_some(&here), &version(at, Some("v")));
        }
        order.note(&other, None, &version(200, None));
        assert_eq!(order.keys[&key].older.len(), 99);
        let (now, later) = (KEEP, KEEP + KEEP);
        order.advance(now, Hlc(150));
        assert_eq!(order.keys.len(), 2, "cuts of a second ago can be read at");
        order.advance(later, Hlc(160));
        assert_eq!(order.keys.len(), 1);
        order.advance(later + KEEP + KEEP, Hlc(300));
        order.advance(later + KEEP + KEEP + KEEP, Hlc(300));
        assert_eq!((order.keys.len(), order.by_newest.len(), order.bytes), (0, 0, 0));
        let large = Version {
            content: Bytes::from(vec![0; 1 << 20]).into(),
            ..version(400, None)
        };
        let mut here = None;
        for at in 400..600 {
            let next = Version {
                id: version(at, None).id,
                ..large.clone()
            };
            order.note(&key, here.as_ref(), &next);
            here = Some(next);
            assert!(order.bytes <= MAX_BYTES);
        }
    }
}
