use crate::{BadFrame, Hlc, ReplicaId, ReplicaSet, VersionId};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use smallvec::SmallVec;
use std::{cmp::Ordering, fmt};

/// A timestamp for each replica: what the dissertation calls VV, DSV, sv and DS. A replica that is not named has [`Hlc::ZERO`].
///
/// A dependency set "has at most one entry for each data center" (5.2.2), so it is such a vector too, and its `maxDS`
/// (Algorithm 5.1, lines 11-18) is the entry-wise maximum. Clusters of up to four replicas need no heap for it.
#[derive(Default)]
pub struct Vector(SmallVec<[Hlc; 4]>);

impl Clone for Vector {
    /// Copies the memory at once, where the derived function would copy entry by entry: every answer has two vectors.
    fn clone(&self) -> Vector {
        Vector(SmallVec::from_slice(&self.0))
    }
}

impl Vector {
    /// Zero for every replica.
    pub const ZERO: Vector = Vector(SmallVec::new_const());

    /// The vector of one version: `{<sr, ut>}`.
    pub fn of(version: VersionId) -> Vector {
        let mut vector = Vector::ZERO;
        vector.set(version.replica, version.at);
        vector
    }

    /// The same time for each of the first `replicas` replicas.
    pub fn filled(replicas: usize, at: Hlc) -> Vector {
        Vector(SmallVec::from_elem(at, replicas))
    }

    /// A replica's entry.
    pub fn at(&self, replica: ReplicaId) -> Hlc {
        self.0.get(usize::from(replica.0)).copied().unwrap_or(Hlc::ZERO)
    }

    /// Raises a replica's entry to `at`, if it is lower. Returns whether it was.
    pub fn raise(&mut self, replica: ReplicaId, at: Hlc) -> bool {
        if self.at(replica) >= at {
            return false;
        }
        self.set(replica, at);
        true
    }

    /// Sets a replica's entry, whatever it was.
    ///
    /// # Panics
    /// If there cannot be such a replica: replicas from outside are checked before.
    pub fn set(&mut self, replica: ReplicaId, at: Hlc) {
        assert!(
            replica.0 < ReplicaSet::MAX,
            "replica {}, where the highest is {}",
            replica.0,
            ReplicaSet::MAX - 1
        );
        let place = usize::from(replica.0);
        if place >= self.0.len() {
            self.0.resize(place + 1, Hlc::ZERO);
        }
        self.0[place] = at;
    }

    /// Raises this vector to the entry-wise maximum of both.
    pub fn merge(&mut self, other: &Vector) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), Hlc::ZERO);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// This vector, raised to the entry-wise maximum of both.
    #[must_use]
    pub fn merged(mut self, other: &Vector) -> Vector {
        self.merge(other);
        self
    }

    /// Lowers this vector to the entry-wise minimum of both.
    pub fn meet(&mut self, other: &Vector) {
        self.0.truncate(other.0.len());
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).min(*theirs);
        }
    }

    /// Whether every entry is at least the other's.
    pub fn covers(&self, other: &Vector) -> bool {
        let (mine, more) = other.0.split_at(self.0.len().min(other.0.len()));
        let is_covered = mine.iter().zip(&self.0).all(|(theirs, mine)| theirs <= mine);
        is_covered && more.iter().all(|&theirs| theirs == Hlc::ZERO)
    }

    /// Whether the version's own timestamp is at most its replica's entry.
    pub fn covers_id(&self, id: VersionId) -> bool {
        id.at <= self.at(id.replica)
    }

    /// The entries that are not zero, by replica.
    pub fn entries(&self) -> impl Iterator<Item = (ReplicaId, Hlc)> + '_ {
        let named = self.0.iter().enumerate().filter(|(_, at)| **at != Hlc::ZERO);
        named.map(|(place, &at)| (ReplicaId(place as u16), at))
    }

    /// The replicas whose entries are not zero.
    pub fn replicas(&self) -> ReplicaSet {
        self.entries().map(|(replica, _)| replica).collect()
    }

    /// The largest entry.
    pub fn newest(&self) -> Hlc {
        self.0.iter().copied().max().unwrap_or(Hlc::ZERO)
    }

    /// The smallest entry of the first `replicas` replicas: what GentleRain calls GST.
    pub fn oldest(&self, replicas: usize) -> Hlc {
        let entries = (0..replicas as u16).map(|replica| self.at(ReplicaId(replica)));
        entries.min().unwrap_or(Hlc::ZERO)
    }

    /// Appends the entries that are not zero: their number (one byte), then for each its replica (two bytes) and its time (eight bytes).
    pub fn put(&self, out: &mut BytesMut) {
        out.put_u8(self.entries().count() as u8);
        for (replica, at) in self.entries() {
            out.put_u16(replica.0);
            out.put_u64(at.0);
        }
    }

    /// Takes a vector off the front of `from`.
    pub fn take(from: &mut Bytes) -> Result<Vector, BadFrame> {
        let cut_short = || BadFrame::new("a vector of timestamps", "a part of one");
        let mut vector = Vector::ZERO;
        for _ in 0..from.try_get_u8().map_err(|_| cut_short())? {
            let replica = from.try_get_u16().map_err(|_| cut_short())?;
            let at = from.try_get_u64().map_err(|_| cut_short())?;
            if replica >= ReplicaSet::MAX {
                return Err(BadFrame::replica(replica.into()));
            }
            if at > Hlc::LATEST.0 {
                return Err(BadFrame::new("a timestamp before 2112", at.to_string()));
            }
            vector.set(ReplicaId(replica), Hlc(at));
        }
        Ok(vector)
    }

    /// The heap memory that it takes, in bytes.
    pub fn heap_bytes(&self) -> usize {
        match self.0.spilled() {
            true => self.0.capacity() * size_of::<Hlc>(),
            false => 0,
        }
    }
}

/// Entry by entry: a missing one is zero.
impl PartialEq for Vector {
    fn eq(&self, other: &Vector) -> bool {
        self.covers(other) && other.covers(self)
    }
}

impl Eq for Vector {}

impl PartialOrd for Vector {
    fn partial_cmp(&self, other: &Vector) -> Option<Ordering> {
        match (self.covers(other), other.covers(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Greater),
            (false, true) => Some(Ordering::Less),
            (false, false) => None,
        }
    }
}

impl FromIterator<(ReplicaId, Hlc)> for Vector {
    fn from_iter<I: IntoIterator<Item = (ReplicaId, Hlc)>>(entries: I) -> Vector {
        let mut vector = Vector::ZERO;
        for (replica, at) in entries {
            vector.raise(replica, at);
        }
        vector
    }
}

impl fmt::Debug for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.entries().map(|(replica, at)| (replica.0, at)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(entries: &[(u16, u64)]) -> Vector {
        entries
            .iter()
            .map(|&(replica, at)| (ReplicaId(replica), Hlc(at)))
            .collect()
    }

    #[test]
    fn a_missing_entry_is_zero() {
        let (short, long) = (vector(&[(0, 5)]), vector(&[(0, 5), (2, 1)]));
        assert!(long.covers(&short) && !short.covers(&long));
        let mut met = long.clone();
        met.meet(&short);
        assert_eq!(met, short);
        assert_eq!(short.clone().merged(&long), long);
        assert_eq!(vector(&[(1, 7)]).oldest(2), Hlc::ZERO);
        assert_eq!(vector(&[(0, 9), (1, 7)]).oldest(2), Hlc(7));
        assert_eq!(short.partial_cmp(&vector(&[(1, 1)])), None);
    }

    #[test]
    fn one_covers_another_if_it_does_entry_by_entry() {
        let few = |number: u64| {
            let entries = [number % 3, number / 3 % 3, number / 9];
            let long = Vector(entries.map(Hlc).into_iter().collect());
            let short = entries.iter().rposition(|&at| at != 0).map_or(0, |last| last + 1);
            let short = Vector(entries[..short].iter().map(|&at| Hlc(at)).collect());
            [long, short]
        };
        let all: Vec<Vector> = (0..27).flat_map(few).collect();
        for (one, other) in all
            .iter()
            .flat_map(|one| all.iter().map(move |other| (one, other)))
        {
            let expected = (0..4)
                .map(ReplicaId)
                .all(|replica| one.at(replica) >= other.at(replica));
            assert_eq!(one.covers(other), expected, "{one:?} and {other:?}");
        }
    }

    #[test]
    fn it_comes_back_as_it_went_and_nonsense_is_refused() {
        for vector in [Vector::ZERO, vector(&[(0, 1), (127, Hlc::LATEST.0)])] {
            let mut out = BytesMut::new();
            vector.put(&mut out);
            let mut bytes = out.freeze();
            assert_eq!(Vector::take(&mut bytes.clone()).as_ref(), Ok(&vector));
            for len in 0..bytes.len() {
                assert!(Vector::take(&mut bytes.slice(..len)).is_err());
            }
            bytes.advance(bytes.len());
            assert!(Vector::take(&mut bytes).is_err());
        }
        let far = [1, 0, 128, 0, 0, 0, 0, 0, 0, 0, 1];
        assert!(
            Vector::take(&mut Bytes::copy_from_slice(&far)).is_err(),
            "replica 128"
        );
        let late = [1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];
        assert!(
            Vector::take(&mut Bytes::copy_from_slice(&late)).is_err(),
            "beyond 2112"
        );
    }
}
