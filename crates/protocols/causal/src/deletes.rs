//! # When a delete may be forgotten
//!
//! A delete is a version without a value. It must stay while anybody could still show what it deleted:
//!
//! - a site to which the delete has not come yet shows the old value, and so would whoever moves there. Nobody could tell that this is
//!   wrong: "nothing" that was read without a version is no dependency;
//! - a site that loses its directory is given back what its peers hold. If one of them holds the old value alone, it comes back.
//!
//! So a delete is forgotten only when **every site shows it**, and has that on its disk.
//!
//! ```text
//!   site a                                   site b                         site c (cut off from b)
//!      | <~~~~~~~~~~~~~~~~~~~~~ x deleted @17 |                                  | shows b up to 10
//!      | <~~ heartbeat: shows 20 ~~~~~~~~~~~~ |                                  |
//!      | <~~ heartbeat: shows 10 ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~ |
//!      | min = 10: x's delete is remembered, and who reads x has seen version 17
//! ```
//!
//! - What a replica *shows* is written down and synced before it is said: a restart shows no less. It counts as said only on the link
//!   that there is now. While a site is away no delete is forgotten.
//! - What may be *forgotten* is written down, synced and then said, too, in heartbeats and first of all when a link comes up. A replica that
//!   is told of more than it has written down itself as shown has lost its directory since, or has been given an old copy of it. An old one
//!   refuses to serve: a delete of its own may be forgotten everywhere, and what it deleted is still there.
//! - A lost one is *filled* by its peers, and shows nothing until it has caught up. Nobody forgets a delete meanwhile. So it writes down when
//!   it began, and what was forgotten elsewhere as it hears of it: a restart that hears of no more goes on being filled, and one that hears
//!   of more is an old copy that was made before it had caught up.
use crate::Bugs;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use turnbuckle_core::{Context, Hlc, Protocol, Recovered, SiteId, Topology, Vitals};

/// The name under which it is written down.
const NAME: &str = "deletes";

/// What one replica knows of the deletes that may be forgotten.
pub(crate) struct Deletes {
    others: Vec<SiteId>,
    /// What each other site shows, as it has said on the link that there is now.
    theirs: BTreeMap<SiteId, Hlc>,
    /// The most that any of them has said to be forgotten.
    forgotten_elsewhere: Hlc,
    /// What is on disk here.
    kept: Said,
    /// What is written down and may not be on disk yet.
    written: Said,
    /// A promise whose mark goes out behind what is written down: when it is settled, that is on disk.
    pending: Option<(Option<Hlc>, Said)>,
    /// The directory is being filled. Of what others forget nothing above this concerns what it holds: it is when that began, or the most that
    /// they had forgotten meanwhile.
    filling: Option<Hlc>,
    /// This life began while the directory was being filled.
    was_empty: bool,
    /// Sites that have not said in this life what they have forgotten, if an earlier life began to fill the directory; and what it had
    /// written down.
    unchecked: (Vec<SiteId>, Hlc),
    is_outdated: bool,
    /// A planted bug.
    serves_old: bool,
}

/// What replicas tell each other about deletes, in their heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Said {
    /// Everything that any site stamped up to here is shown by the sender, now and after any restart.
    pub shown: Hlc,
    /// Deletes that were stamped up to here may be forgotten at the sender.
    pub forgotten: Hlc,
}

impl Deletes {
    /// What an earlier life has left.
    pub fn open(me: SiteId, topology: &Topology, recovered: &Recovered, bugs: Bugs) -> Deletes {
        // Written by this code; if it does not decode, nothing is known.
        let found = recovered.named.get(NAME).and_then(Found::recall);
        let kept = match found {
            Some(Found::Filled(said)) => said,
            _ => Said::default(),
        };
        let others: Vec<SiteId> = topology.sites().filter(|&site| site != me).collect();
        let (filling, unchecked) = match found {
            Some(Found::Filled(_)) => (None, Vec::new()),
            Some(Found::Filling(known)) => (Some(known), others.clone()),
            None => (Some(Hlc::ZERO), Vec::new()),
        };
        Deletes {
            others,
            theirs: BTreeMap::new(),
            forgotten_elsewhere: Hlc::ZERO,
            kept,
            written: kept,
            pending: None,
            filling,
            was_empty: filling.is_some(),
            unchecked: (unchecked, filling.unwrap_or_default()),
            is_outdated: false,
            serves_old: bugs.serves_an_old_directory,
        }
    }

    /// Writes down that there is a directory.
    pub fn start<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        if self.filling == Some(Hlc::ZERO) {
            self.keep_filling(cx, Hlc::from_wall(cx.now.wall.reading));
        }
    }

    /// Writes down what is shown here. Call it once a second or so.
    pub fn keep<P: Protocol>(&mut self, cx: &mut Context<'_, P>, shown: Hlc) {
        if !self.has_caught_up(shown) {
            return self.keep_filling(cx, self.forgotten_elsewhere);
        }
        self.filling = None;
        self.unchecked.0.clear();
        self.written.shown = self.written.shown.max(shown);
        let forgotten = self.shown_everywhere().max(self.forgotten_elsewhere.min(shown));
        self.written.forgotten = self.written.forgotten.max(forgotten);
        cx.put_named(NAME, Found::Filled(self.written).record());
        self.pending.get_or_insert((None, self.written));
    }

    /// Writes down up to where nothing that is forgotten concerns a directory that is being filled.
    fn keep_filling<P: Protocol>(&mut self, cx: &mut Context<'_, P>, until: Hlc) {
        if let Some(known) = &mut self.filling
            && *known < until
        {
            *known = until;
            cx.put_named(NAME, Found::Filling(until).record());
        }
    }

    /// Whether this is more than an empty directory that peers are still filling.
    fn has_caught_up(&self, shown: Hlc) -> bool {
        let has_heard_all = self.others.iter().all(|site| self.theirs.contains_key(site));
        self.filling.is_none() || (has_heard_all && shown > Hlc::ZERO && shown >= self.forgotten_elsewhere)
    }

    /// What every site shows.
    fn shown_everywhere(&self) -> Hlc {
        let theirs = |site| self.theirs.get(site).copied().unwrap_or(Hlc::ZERO);
        let theirs = self.others.iter().map(theirs).min();
        theirs.unwrap_or(Hlc::LATEST).min(self.kept.shown)
    }

    /// What a heartbeat says that carries this promise. `settled` is the last promise behind which everything is on disk.
    pub fn said(&mut self, promise: Hlc, settled: Hlc) -> Said {
        match &mut self.pending {
            Some((Some(behind), said)) if *behind <= settled => {
                self.kept = *said;
                self.pending = None;
            }
            Some((behind @ None, _)) => *behind = Some(promise),
            _ => {}
        }
        self.kept
    }

    /// What a site's heartbeat says. True if more was forgotten there than is shown here: this directory was lost, or is an old one.
    pub fn heard(&mut self, site: SiteId, said: Said) -> bool {
        self.theirs.insert(site, said.shown);
        self.hear_forgotten(site, said.forgotten)
    }

    fn hear_forgotten(&mut self, site: SiteId, forgotten: Hlc) -> bool {
        let (unchecked, known) = &mut self.unchecked;
        let is_unchecked = unchecked.extract_if(.., |other| *other == site).count() > 0;
        self.is_outdated |= is_unchecked && forgotten > *known && !self.serves_old;
        self.forgotten_elsewhere = self.forgotten_elsewhere.max(forgotten);
        let is_behind = forgotten > self.written.shown;
        self.is_outdated |= is_behind && !self.was_empty && !self.serves_old;
        is_behind
    }

    /// What a site says when the link to it comes up, before anything else: deletes up to here may be forgotten there. True as with
    /// [`Deletes::heard`]. It is written down at once, before that site fills an empty directory.
    pub fn resumed<P: Protocol>(&mut self, cx: &mut Context<'_, P>, site: SiteId, forgotten: Hlc) -> bool {
        let is_behind = self.hear_forgotten(site, forgotten);
        self.keep_filling(cx, self.forgotten_elsewhere);
        is_behind
    }

    /// The link to a site is down: what it shows when it is back is not known.
    pub fn left(&mut self, site: SiteId) {
        self.theirs.remove(&site);
    }

    /// Whether the directory was empty when this life began.
    pub fn was_empty(&self) -> bool {
        self.was_empty
    }

    /// What is shown here, as it may have been said: in a life that was lost with its directory anything.
    pub fn shown(&self) -> Hlc {
        match self.filling {
            None => self.written.shown,
            Some(_) => Hlc::LATEST,
        }
    }

    /// Deletes that were stamped up to here may be forgotten.
    pub fn forgotten(&self) -> Hlc {
        self.kept.forgotten
    }

    /// As it is told to peers when a link comes up. While a directory is being filled, that is what others have said.
    pub fn known_forgotten(&self) -> Option<Hlc> {
        match self.filling {
            None => Some(self.kept.forgotten),
            Some(_) => Some(self.forgotten_elsewhere).filter(|until| *until > Hlc::ZERO),
        }
    }

    /// What is told of it.
    pub fn vitals(&self, vitals: Vitals) -> Vitals {
        Vitals {
            deletes_until: Some(self.kept.forgotten).filter(|until| *until > Hlc::ZERO),
            is_outdated: self.is_outdated,
            ..vitals
        }
    }

    /// Why nothing is served, if nothing is.
    pub fn refusal(&self) -> Option<&'static str> {
        const WHY: &str = "the data directory of this node is an old copy: keys that were deleted since would come back. Stop the node, \
                           empty its data directory and start it again: its peers give it back everything";
        self.is_outdated.then_some(WHY)
    }
}

/// What an earlier life has written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// What it said.
    Filled(Said),
    /// It was being filled: see [`Deletes::filling`].
    Filling(Hlc),
}

impl Found {
    fn record(self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Found::Filled(said) => {
                out.put_u8(1);
                out.put_u64(said.shown.0);
                out.put_u64(said.forgotten.0);
            }
            Found::Filling(forgotten) => {
                out.put_u8(0);
                out.put_u64(forgotten.0);
            }
        }
        out.freeze()
    }

    fn recall(record: &Bytes) -> Option<Found> {
        let mut from = record.clone();
        let is_filled = from.try_get_u8().ok()? == 1;
        let first = Hlc(from.try_get_u64().ok()?);
        if !is_filled {
            return Some(Found::Filling(first));
        }
        Some(Found::Filled(Said {
            shown: first,
            forgotten: Hlc(from.try_get_u64().ok()?),
        }))
    }
}

impl Said {
    /// The newest time in it.
    pub fn newest(self) -> Hlc {
        self.shown.max(self.forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deletes(kept: Option<Said>) -> Deletes {
        open(kept.map(Found::Filled))
    }

    fn open(found: Option<Found>) -> Deletes {
        let topology = Topology::new(["a", "b", "c"], 1, 1);
        let mut recovered = Recovered::default();
        if let Some(found) = found {
            recovered.named.insert(NAME.into(), found.record());
        }
        Deletes::open(SiteId(0), &topology, &recovered, Bugs::default())
    }

    fn said(shown: u64, forgotten: u64) -> Said {
        let (shown, forgotten) = (Hlc(shown), Hlc(forgotten));
        Said { shown, forgotten }
    }

    #[test]
    fn what_every_site_shows_is_the_least_that_any_shows_and_nothing_while_one_is_away() {
        let mut deletes = deletes(Some(said(30, 5)));
        deletes.heard(SiteId(1), said(20, 0));
        assert_eq!(deletes.shown_everywhere(), Hlc::ZERO, "one was never heard");
        deletes.heard(SiteId(2), said(40, 0));
        assert_eq!(deletes.shown_everywhere(), Hlc(20));
        deletes.heard(SiteId(1), said(50, 0));
        assert_eq!(deletes.shown_everywhere(), Hlc(30), "this one shows no more");
        deletes.heard(SiteId(1), said(10, 0));
        assert_eq!(deletes.shown_everywhere(), Hlc(10), "it lost its directory");
        deletes.left(SiteId(2));
        assert_eq!(deletes.shown_everywhere(), Hlc::ZERO);
        assert_eq!(deletes.forgotten(), Hlc(5), "what is forgotten is forgotten");
    }

    #[test]
    fn nothing_is_said_before_it_is_on_disk() {
        let mut deletes = deletes(None);
        deletes.written = said(9, 4);
        deletes.pending = Some((None, deletes.written));
        assert_eq!(deletes.said(Hlc(20), Hlc(19)), Said::default());
        assert_eq!(deletes.said(Hlc(30), Hlc(19)), Said::default());
        assert_eq!(deletes.said(Hlc(40), Hlc(20)), said(9, 4));
    }

    #[test]
    fn an_old_directory_serves_nothing_and_an_empty_one_catches_up() {
        let mut old = deletes(Some(said(30, 5)));
        assert!(!old.heard(SiteId(1), said(90, 30)) && old.refusal().is_none());
        assert!(old.heard(SiteId(1), said(90, 31)) && old.refusal().is_some());
        let mut empty = deletes(None);
        assert!(empty.heard(SiteId(1), said(90, 31)) && empty.refusal().is_none());
        assert!(!empty.has_caught_up(Hlc(40)), "one site was never heard");
        empty.heard(SiteId(2), said(90, 33));
        assert!(!empty.has_caught_up(Hlc(32)) && empty.has_caught_up(Hlc(33)));
    }

    #[test]
    fn a_directory_that_is_being_filled_knows_since_when() {
        let mut filling = open(Some(Found::Filling(Hlc(20))));
        assert_eq!(filling.known_forgotten(), None);
        assert!(filling.heard(SiteId(1), said(90, 20)) && filling.refusal().is_none());
        assert!(
            filling.heard(SiteId(1), said(90, 21)) && filling.refusal().is_none(),
            "heard in this life"
        );
        let mut copy = open(Some(Found::Filling(Hlc(20))));
        assert!(
            copy.heard(SiteId(1), said(90, 21)) && copy.refusal().is_some(),
            "it was full since"
        );
    }
}
