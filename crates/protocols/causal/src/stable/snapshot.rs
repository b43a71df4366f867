use super::message::{Response, Rotx, Slice};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use turnbuckle_core::{Hidden, Hlc, Micros, Now, Receipt, RequestId, ServerId, Topology, Vector};

/// The snapshots that a server coordinates (Algorithm 5.4, lines 9-18).
///
/// The keys are asked for in shares, so that other requests have their turn in between. They are read at one vector, however long that takes.
///
/// Messages inside a site are lost when a connection breaks. What is not answered is asked for again: a slice can be read twice.
#[derive(Default)]
pub struct Snapshots {
    running: BTreeMap<u64, Snapshot>,
    last: u64,
}

/// A snapshot that is under way.
pub struct Snapshot {
    /// The request that it answers.
    pub id: RequestId,
    /// What is asked for, to begin the snapshot again.
    pub rotx: Rotx,
    /// The snapshot's vector: it shows what this covers.
    pub sv: Vector,
    /// The time at which it looks at values that expire: one for all partitions.
    pub now: Hlc,
    /// The values so far.
    pub values: Vec<Option<Bytes>>,
    /// What the values depend on, and they themselves.
    pub past: Vector,
    /// The latest time at which one of the versions expired.
    expired: Hlc,
    /// What it proves: it is no fresher than when it began.
    pub receipt: Receipt,
    /// The length of the values so far, in bytes.
    bytes: usize,
    /// The indexes of the keys that are asked for and have not been answered.
    open: BTreeSet<u32>,
    /// The keys from this index on are not asked for yet.
    next: u32,
    /// When a slice was last asked for, or arrived, in monotonic time.
    asked_at: Micros,
    /// When the snapshot is given up, in monotonic time.
    pub deadline: Micros,
}

/// The most keys of one snapshot that are asked for and not answered.
const MAX_OPEN: usize = 256;

/// The most bytes that the values of one snapshot may have.
const MAX_BYTES: usize = 256 << 20;

/// A slice that has not arrived after this time is asked for again.
const AGAIN_AFTER: Micros = Micros::from_millis(250);

impl Snapshots {
    /// Begins a snapshot, which is given up at the `deadline`. Returns its number. `now` also keeps numbers apart from those before a restart.
    pub fn begin(
        &mut self,
        id: RequestId,
        rotx: Rotx,
        (sv, at): (Vector, Hlc),
        receipt: Receipt,
        now: Now,
        deadline: Micros,
    ) -> u64 {
        self.last = (self.last + 1).max(now.wall.reading.0);
        let snapshot = Snapshot {
            id,
            sv,
            now: at,
            values: vec![None; rotx.keys.len()],
            past: Vector::ZERO,
            expired: Hlc::ZERO,
            receipt,
            open: BTreeSet::new(),
            next: 0,
            rotx,
            bytes: 0,
            asked_at: now.monotonic,
            deadline,
        };
        self.running.insert(self.last, snapshot);
        self.last
    }

    /// The questions for the next keys that may be asked for now, each with the server to ask.
    pub fn next_questions(&mut self, name: u64, topology: &Topology, me: ServerId) -> Vec<(ServerId, Slice)> {
        let Some(snapshot) = self.running.get_mut(&name) else {
            return Vec::new();
        };
        let places = snapshot.open_more();
        Snapshots::questions(name, snapshot, places, topology, me)
    }

    /// The questions for keys that were asked for already and have not been answered.
    pub fn same_questions(&self, name: u64, topology: &Topology, me: ServerId) -> Vec<(ServerId, Slice)> {
        let Some(snapshot) = self.running.get(&name) else {
            return Vec::new();
        };
        Snapshots::questions(name, snapshot, snapshot.open.iter().copied(), topology, me)
    }

    fn questions(
        name: u64,
        snapshot: &Snapshot,
        places: impl Iterator<Item = u32>,
        topology: &Topology,
        me: ServerId,
    ) -> Vec<(ServerId, Slice)> {
        let ask = |place: u32| {
            let key = snapshot.rotx.keys[place as usize].clone();
            let server = ServerId {
                partition: topology.partition_of_slot(key.slot()),
                ..me
            };
            let slice = Slice::Request {
                snapshot: name,
                place,
                key,
                sv: snapshot.sv.clone(),
                now: snapshot.now,
                eventual: snapshot.rotx.view.is_newest(),
            };
            (server, slice)
        };
        places.map(ask).collect()
    }

    /// A slice has arrived (lines 15-17). Returns the snapshot if that was the last one, or if it has become too large. Otherwise there may be more
    /// to ask for.
    pub fn take(
        &mut self,
        now: Micros,
        name: u64,
        place: u32,
        (past, expired): (&Vector, Hlc),
        (value, hidden, proves): (Option<Bytes>, Hidden, bool),
    ) -> Option<Snapshot> {
        let snapshot = self.running.get_mut(&name)?;
        if !snapshot.open.remove(&place) {
            return None;
        }
        snapshot.asked_at = now;
        snapshot.bytes += value.as_ref().map_or(0, Bytes::len);
        snapshot.values[place as usize] = value;
        snapshot.past.merge(past);
        snapshot.expired = snapshot.expired.max(expired);
        if !proves {
            snapshot.receipt.staleness = None;
        }
        snapshot.receipt.proof.hide(hidden);
        match snapshot.is_complete() || snapshot.is_too_large() {
            true => self.running.remove(&name),
            false => None,
        }
    }

    /// Removes a snapshot that cannot be completed with its vector.
    pub fn give_up(&mut self, name: u64) -> Option<Snapshot> {
        self.running.remove(&name)
    }

    /// The vectors of the snapshots under way.
    pub fn vectors(&self) -> impl Iterator<Item = &Vector> {
        self.running.values().map(|snapshot| &snapshot.sv)
    }

    /// The snapshots whose slices are to be asked for again, and those whose time is up.
    pub fn look(&mut self, now: Micros) -> (Vec<u64>, Vec<Snapshot>) {
        let late: Vec<u64> = self.names(|snapshot| snapshot.deadline <= now);
        let late = late.iter().filter_map(|name| self.running.remove(name)).collect();
        let again = self.names(|snapshot| now.since(snapshot.asked_at) >= AGAIN_AFTER);
        for name in &again {
            if let Some(snapshot) = self.running.get_mut(name) {
                snapshot.asked_at = now;
            }
        }
        (again, late)
    }

    fn names(&self, which: impl Fn(&Snapshot) -> bool) -> Vec<u64> {
        let found = self.running.iter().filter(|(_, snapshot)| which(snapshot));
        found.map(|(&name, _)| name).collect()
    }

    /// The number of snapshots under way.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether no snapshot is under way.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

impl Snapshot {
    /// Adds keys to those that are asked for, and returns their indexes.
    fn open_more(&mut self) -> Range<u32> {
        let room = MAX_OPEN - self.open.len();
        let left = self.rotx.keys.len() - self.next as usize;
        let places = self.next..self.next + room.min(left) as u32;
        self.open.extend(places.clone());
        self.next = places.end;
        places
    }

    fn is_complete(&self) -> bool {
        self.open.is_empty() && self.next as usize == self.rotx.keys.len()
    }

    /// The answer to the request (lines 17 and 18), with what is stable by now: the values, unless they are too large.
    pub fn finish(self, stable: Vector) -> (RequestId, Response, Receipt) {
        let is_proven = |bound| self.receipt.staleness.is_some_and(|staleness| staleness <= bound);
        let response = if self.is_too_large() {
            let why = "the keys' values are more than one answer can carry: read fewer keys at once";
            Response::Refused(why.into())
        } else if let Some(bound) = self.rotx.view.bound().filter(|&bound| !is_proven(bound)) {
            let why = "a partition does not have everything again that it had lost, or another snapshot had to be taken";
            Response::Refused(format!("bounded({bound}) cannot be given: {why}"))
        } else {
            Response::Values {
                values: self.values,
                past: self.past,
                stable,
                expired: self.expired,
            }
        };
        (self.id, response, self.receipt)
    }

    fn is_too_large(&self) -> bool {
        self.bytes > MAX_BYTES
    }

    /// The number of slices that are missing, for an error message.
    pub fn missing(&self) -> usize {
        self.open.len() + self.rotx.keys.len() - self.next as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::View;
    use turnbuckle_core::{Key, Level};

    const ME: ServerId = ServerId {
        site: turnbuckle_core::SiteId(0),
        partition: 0,
        member: 0,
    };

    fn begin(snapshots: &mut Snapshots, keys: Vec<Key>) -> u64 {
        let receipt = Receipt {
            asked: Level::Causal.into(),
            given: Level::Causal,
            version: None,
            base: None,
            server: ServerId::default(),
            route: turnbuckle_core::Route::Local,
            waited: Micros(0),
            staleness: None,
            clock_bound: Micros(0),
            siblings: false,
            until: None,
            decided_at_site: false,
            proof: turnbuckle_core::Proof::Plain,
        };
        let rotx = Rotx {
            keys,
            stable: Vector::ZERO,
            past: Vector::ZERO,
            need: Vector::ZERO,
            seen: Hlc::ZERO,
            view: View::Visible,
        };
        snapshots.begin(
            RequestId(1),
            rotx,
            (Vector::ZERO, Hlc::ZERO),
            receipt,
            Now::default(),
            Micros(1),
        )
    }

    fn places_asked(snapshots: &mut Snapshots, name: u64) -> Vec<u32> {
        let topology = Topology::new(["a"], 2, 1);
        let questions = snapshots.next_questions(name, &topology, ME);
        let place = |(_, slice)| match slice {
            Slice::Request { place, .. } => place,
            other => panic!("{other:?}"),
        };
        questions.into_iter().map(place).collect()
    }

    fn take(snapshots: &mut Snapshots, name: u64, place: u32, value: Bytes) -> Option<Snapshot> {
        let of = (Some(value), Hidden::default(), true);
        snapshots.take(Micros(0), name, place, (&Vector::ZERO, Hlc::ZERO), of)
    }

    #[test]
    fn one_that_grows_too_large_is_refused_and_never_answered_in_part() {
        let mut snapshots = Snapshots::default();
        let name = begin(&mut snapshots, ["x", "y", "z"].map(Key::from).into());
        assert_eq!(places_asked(&mut snapshots, name), [0, 1, 2]);
        let half = Bytes::from(vec![0; MAX_BYTES / 2 + 1]);
        assert!(take(&mut snapshots, name, 0, half.clone()).is_none());
        let done = take(&mut snapshots, name, 1, half);
        let (_, response, _) = done.expect("it is over").finish(Vector::ZERO);
        assert!(matches!(response, Response::Refused(_)), "{response:?}");
        assert!(snapshots.is_empty());
    }

    /// The answers come in any order.
    #[test]
    fn many_keys_are_asked_for_a_share_at_a_time() {
        let keys: Vec<Key> = (0..2_000)
            .map(|place| Key::from(&*format!("k{}", place % 700)))
            .collect();
        let mut snapshots = Snapshots::default();
        let name = begin(&mut snapshots, keys.clone());
        let (mut open, mut asked) = (places_asked(&mut snapshots, name), 0);
        assert_eq!(open.len(), MAX_OPEN);
        let done = loop {
            asked += 1;
            let place = open.swap_remove(asked * 7 % open.len());
            let value = keys[place as usize].0.clone();
            if let Some(done) = take(&mut snapshots, name, place, value) {
                break done;
            }
            open.extend(places_asked(&mut snapshots, name));
            assert!(open.len() <= MAX_OPEN);
        };
        assert_eq!((asked, done.missing()), (keys.len(), 0));
        assert!(
            done.values
                .into_iter()
                .eq(keys.into_iter().map(|key| Some(key.0)))
        );
    }
}
