use crate::{BadFrame, Hlc, ReplicaId, ReplicaSet, VersionId};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use smallvec::SmallVec;
use std::{cmp::Ordering, fmt, sync::Arc};

/// A timestamp for each replica: what the dissertation calls VV, DSV, sv and DS. A replica that is not named has [`Hlc::ZERO`].
///
/// A dependency set "has at most one entry for each data center" (5.2.2), so it is such a vector too, and its `maxDS`
/// (Algorithm 5.1, lines 11-18) is the entry-wise maximum.
///
/// Every version in memory has one, and every request and answer has several, so it takes 16 bytes. A write that depends on nothing, or on writes of one site,
/// has no more than these. A longer vector is shared by all that have it, and copied when one of them changes it.
#[derive(Clone, Default)]
pub struct Vector(Times);

#[derive(Clone, Default)]
enum Times {
    #[default]
    None,
    One(ReplicaId, Hlc),
    /// From the first replica on. Clusters of up to four replicas need one allocation for it.
    Many(Arc<Many>),
}

type Many = SmallVec<[Hlc; 4]>;

impl Vector {
    /// Zero for every replica.
    pub const ZERO: Vector = Vector(Times::None);

    /// The vector of one version: `{<sr, ut>}`.
    pub fn of(version: VersionId) -> Vector {
        let mut vector = Vector::ZERO;
        vector.set(version.replica, version.at);
        vector
    }

    /// The same time for each of the first `replicas` replicas.
    pub fn filled(replicas: usize, at: Hlc) -> Vector {
        Vector(match replicas {
            0 => Times::None,
            1 => Times::One(ReplicaId(0), at),
            _ => Times::Many(Arc::new(Many::from_elem(at, replicas))),
        })
    }

    /// The first replica that has a place here, and the times from that one on.
    #[inline]
    fn times(&self) -> (usize, &[Hlc]) {
        match &self.0 {
            Times::None => (0, &[]),
            Times::One(replica, at) => (usize::from(replica.0), std::slice::from_ref(at)),
            Times::Many(times) => (0, times),
        }
    }

    /// A replica's entry.
    #[inline]
    pub fn at(&self, replica: ReplicaId) -> Hlc {
        let (first, times) = self.times();
        let place = usize::from(replica.0).checked_sub(first);
        let at = place.and_then(|place| times.get(place));
        at.copied().unwrap_or(Hlc::ZERO)
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
        match &self.0 {
            Times::None => self.0 = Times::One(replica, at),
            Times::One(one, _) if *one == replica => self.0 = Times::One(replica, at),
            Times::One(one, time) => {
                let mut times = Many::from_elem(Hlc::ZERO, usize::from(replica.0.max(one.0)) + 1);
                times[usize::from(one.0)] = *time;
                times[usize::from(replica.0)] = at;
                self.0 = Times::Many(Arc::new(times));
            }
            Times::Many(_) => {
                let times = self.own(usize::from(replica.0) + 1);
                times[usize::from(replica.0)] = at;
            }
        }
    }

    /// Times for at least this number of replicas that no other vector shares.
    fn own(&mut self, replicas: usize) -> &mut Many {
        if !matches!(self.0, Times::Many(_)) {
            let (first, times) = self.times();
            let mut many = Many::from_elem(Hlc::ZERO, first);
            many.extend_from_slice(times);
            self.0 = Times::Many(Arc::new(many));
        }
        let Times::Many(times) = &mut self.0 else {
            unreachable!("it was just made one");
        };
        let times = Arc::make_mut(times);
        if times.len() < replicas {
            times.resize(replicas, Hlc::ZERO);
        }
        times
    }

    /// Raises this vector to the entry-wise maximum of both.
    pub fn merge(&mut self, other: &Vector) {
        if self.covers(other) {
            return;
        }
        if other.covers(self) {
            *self = other.clone();
            return;
        }
        let (first, theirs) = other.times();
        let times = self.own(first + theirs.len());
        for (mine, theirs) in times[first..].iter_mut().zip(theirs) {
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
        if other.covers(self) {
            return;
        }
        if self.covers(other) {
            *self = other.clone();
            return;
        }
        for (place, mine) in self.own(0).iter_mut().enumerate() {
            *mine = (*mine).min(other.at(ReplicaId(place as u16)));
        }
    }

    /// Whether every entry is at least the other's.
    pub fn covers(&self, other: &Vector) -> bool {
        if let (Times::Many(mine), Times::Many(theirs)) = (&self.0, &other.0)
            && Arc::ptr_eq(mine, theirs)
        {
            return true;
        }
        let ((begin, mine), (first, theirs)) = (self.times(), other.times());
        let mut theirs = theirs.iter().zip(first..);
        theirs.all(|(&at, place)| {
            let mine = place.checked_sub(begin).and_then(|place| mine.get(place));
            at <= mine.copied().unwrap_or(Hlc::ZERO)
        })
    }

    /// Whether the version's own timestamp is at most its replica's entry.
    pub fn covers_id(&self, id: VersionId) -> bool {
        id.at <= self.at(id.replica)
    }

    /// The entries that are not zero, by replica.
    pub fn entries(&self) -> impl Iterator<Item = (ReplicaId, Hlc)> + '_ {
        let (first, times) = self.times();
        let entries = times.iter().zip(first as u16..);
        let entries = entries.map(|(&at, replica)| (ReplicaId(replica), at));
        entries.filter(|(_, at)| *at != Hlc::ZERO)
    }

    /// The replicas whose entries are not zero.
    pub fn replicas(&self) -> ReplicaSet {
        self.entries().map(|(replica, _)| replica).collect()
    }

    /// The largest entry.
    pub fn newest(&self) -> Hlc {
        self.times().1.iter().copied().max().unwrap_or(Hlc::ZERO)
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

    /// The heap memory that it takes, in bytes. What it shares with other vectors counts for each of them.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Times::None | Times::One(..) => 0,
            Times::Many(times) if times.spilled() => SHARED_BYTES + times.capacity() * size_of::<Hlc>(),
            Times::Many(_) => SHARED_BYTES,
        }
    }
}

/// What the memory of a shared vector begins with: the two counts of the `Arc`, and the times or the place where they are.
const SHARED_BYTES: usize = 2 * size_of::<usize>() + size_of::<Many>();

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
    fn it_takes_16_bytes_and_a_change_is_its_own() {
        assert_eq!(size_of::<Vector>(), 16);
        let one = vector(&[(0, 5), (2, 1)]);
        let mut other = one.clone();
        other.raise(ReplicaId(2), Hlc(9));
        other.set(ReplicaId(5), Hlc(1));
        assert_eq!(one, vector(&[(0, 5), (2, 1)]));
        assert_eq!(other, vector(&[(0, 5), (2, 9), (5, 1)]));
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
            let long = Vector(Times::Many(Arc::new(entries.map(Hlc).into_iter().collect())));
            let mut short = Vector::ZERO;
            for (replica, at) in long.entries() {
                short.set(replica, at);
            }
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
            let of_both = |of: fn(Hlc, Hlc) -> Hlc| {
                let replicas = (0..4).map(ReplicaId);
                let of_both = replicas.map(|replica| of(one.at(replica), other.at(replica)));
                Vector(Times::Many(Arc::new(of_both.collect())))
            };
            let (before, mut met) = (other.clone(), one.clone());
            met.meet(other);
            assert_eq!(met, of_both(Hlc::min), "{one:?} and {other:?}");
            assert_eq!(
                one.clone().merged(other),
                of_both(Hlc::max),
                "{one:?} and {other:?}"
            );
            assert_eq!(*other, before, "what is shared does not change");
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
