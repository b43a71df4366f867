use super::message::{Response, Rotx, Slice};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use turnbuckle_core::{Hidden, Key, Micros, Now, Receipt, RequestId, ServerId, Topology, Vector};

/// The snapshots that a server coordinates (Algorithm 5.4, lines 9-18).
///
/// Messages inside a site are lost when a connection is. What is not answered is asked for again: a slice can be read twice.
#[derive(Default)]
pub struct Snapshots {
    running: BTreeMap<u64, Snapshot>,
    last: u64,
}

/// One that is under way.
pub struct Snapshot {
    /// Who wants it.
    pub id: RequestId,
    /// What is wanted, to begin anew.
    pub rotx: Rotx,
    /// What it shows.
    pub sv: Vector,
    /// The values so far.
    pub values: Vec<Option<Bytes>>,
    /// What the values depend on, and they themselves.
    pub past: Vector,
    /// What it proves: it is no fresher than when it began.
    pub receipt: Receipt,
    /// Of the values so far.
    bytes: usize,
    /// The keys that are still missing, by their first places: a key that stands there twice is asked for once.
    missing: BTreeSet<u32>,
    /// Further places of a key, by its first.
    again: BTreeMap<u32, Vec<u32>>,
    asked_at: Micros,
    /// Until when.
    pub deadline: Micros,
}

/// How much may be in one snapshot, in bytes.
const MOST_BYTES: usize = 256 << 20;

/// A slice that is not there by then is asked for again.
const AGAIN_AFTER: Micros = Micros::from_millis(250);

impl Snapshots {
    /// Begins one, which ends at the `deadline`; returns its name. `now` also keeps names apart from those of an earlier life.
    pub fn begin(
        &mut self,
        id: RequestId,
        rotx: Rotx,
        sv: Vector,
        receipt: Receipt,
        now: Now,
        deadline: Micros,
    ) -> u64 {
        self.last = (self.last + 1).max(now.wall.reading.0);
        let (missing, again) = places(&rotx.keys);
        let snapshot = Snapshot {
            id,
            sv,
            values: vec![None; rotx.keys.len()],
            past: Vector::ZERO,
            receipt,
            missing,
            again,
            rotx,
            bytes: 0,
            asked_at: now.monotonic,
            deadline,
        };
        self.running.insert(self.last, snapshot);
        self.last
    }

    /// What is to be asked of whom.
    pub fn questions(&self, name: u64, topology: &Topology, me: ServerId) -> Vec<(ServerId, Slice)> {
        let Some(snapshot) = self.running.get(&name) else {
            return Vec::new();
        };
        let ask = |&place: &u32| {
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
                eventual: snapshot.rotx.eventual,
            };
            (server, slice)
        };
        snapshot.missing.iter().map(ask).collect()
    }

    /// A slice is there (lines 15-17). Returns the snapshot if that was the last, or if it has become too large.
    pub fn take(
        &mut self,
        name: u64,
        place: u32,
        past: &Vector,
        (value, hidden, proves): (Option<Bytes>, Hidden, bool),
    ) -> Option<Snapshot> {
        let snapshot = self.running.get_mut(&name)?;
        if !snapshot.missing.remove(&place) {
            return None;
        }
        let again = snapshot.again.remove(&place).unwrap_or_default();
        snapshot.bytes += value.as_ref().map_or(0, Bytes::len) * (1 + again.len());
        for twin in again {
            snapshot.values[twin as usize] = value.clone();
        }
        snapshot.values[place as usize] = value;
        snapshot.past.merge(past);
        if !proves {
            snapshot.receipt.staleness = None;
        }
        let so_far = &mut snapshot.receipt.hidden;
        so_far.versions = so_far.versions.saturating_add(hidden.versions);
        so_far.newest = so_far.newest.max(hidden.newest);
        match snapshot.missing.is_empty() || snapshot.is_too_large() {
            true => self.running.remove(&name),
            false => None,
        }
    }

    /// It cannot be had like this.
    pub fn give_up(&mut self, name: u64) -> Option<Snapshot> {
        self.running.remove(&name)
    }

    /// The vectors of those under way.
    pub fn vectors(&self) -> impl Iterator<Item = &Vector> {
        self.running.values().map(|snapshot| &snapshot.sv)
    }

    /// Those whose slices are to be asked for again, and those whose time is up.
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

    /// How many are under way.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

/// The first place of each key, and the further ones of those that stand there more than once.
fn places(keys: &[Key]) -> (BTreeSet<u32>, BTreeMap<u32, Vec<u32>>) {
    let mut firsts: BTreeMap<&Key, u32> = BTreeMap::new();
    let mut again: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (place, key) in (0..).zip(keys) {
        let first = *firsts.entry(key).or_insert(place);
        if first != place {
            again.entry(first).or_default().push(place);
        }
    }
    (firsts.into_values().collect(), again)
}

impl Snapshot {
    /// The answer to who wanted it (lines 17 and 18), with what is stable by now: the values, unless they are too large.
    pub fn finish(self, stable: Vector) -> (RequestId, Response, Receipt) {
        let response = match self.is_too_large() {
            true => Response::Refused(
                "the keys' values are more than one answer can carry: read fewer keys at once".into(),
            ),
            false => Response::Values {
                values: self.values,
                past: self.past,
                stable,
            },
        };
        (self.id, response, self.receipt)
    }

    fn is_too_large(&self) -> bool {
        self.bytes > MOST_BYTES
    }

    /// How many slices are missing, for those who ask why.
    pub fn missing(&self) -> usize {
        self.missing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::Level;

    #[test]
    fn one_that_grows_too_large_is_refused_and_never_answered_in_part() {
        let receipt = Receipt {
            asked: Level::Causal,
            given: Level::Causal,
            version: None,
            server: ServerId::default(),
            route: turnbuckle_core::Route::Local,
            waited: Micros(0),
            staleness: None,
            clock_bound: Micros(0),
            siblings: false,
            cut: Vector::ZERO,
            hidden: Hidden::default(),
        };
        let rotx = Rotx {
            keys: ["x", "y", "z"].map(Key::from).into(),
            stable: Vector::ZERO,
            past: Vector::ZERO,
            need: Vector::ZERO,
            eventual: false,
        };
        let mut snapshots = Snapshots::default();
        let now = Now::default();
        let name = snapshots.begin(RequestId(1), rotx, Vector::ZERO, receipt, now, Micros(1));
        let half = Bytes::from(vec![0; MOST_BYTES / 2 + 1]);
        let none = Hidden::default();
        assert!(
            snapshots
                .take(name, 0, &Vector::ZERO, (Some(half.clone()), none, true))
                .is_none()
        );
        let done = snapshots.take(name, 1, &Vector::ZERO, (Some(half), none, true));
        let (_, response, _) = done.expect("it is over").finish(Vector::ZERO);
        assert!(matches!(response, Response::Refused(_)), "{response:?}");
        assert!(snapshots.is_empty());
    }
}
