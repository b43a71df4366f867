use crate::{BadFrame, Hlc, SiteId, SiteSet, VersionId};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use smallvec::SmallVec;
use std::{cmp::Ordering, fmt};

/// A timestamp for each site: what the dissertation calls VV, DSV, sv and DS. A site that is not named has [`Hlc::ZERO`].
///
/// A dependency set "has at most one entry for each data center" (5.2.2), so it is such a vector too, and its `maxDS`
/// (Algorithm 5.1, lines 11-18) is the entry-wise maximum. Clusters of up to four sites need no heap for it.
#[derive(Default)]
pub struct Vector(SmallVec<[Hlc; 4]>);

impl Clone for Vector {
    /// One copy of memory, where the derived one would go entry by entry: every answer has two.
    fn clone(&self) -> Vector {
        Vector(SmallVec::from_slice(&self.0))
    }
}

impl Vector {
    /// Nothing of any site.
    pub const ZERO: Vector = Vector(SmallVec::new_const());

    /// The vector of one version: `{<sr, ut>}`.
    pub fn of(version: VersionId) -> Vector {
        let mut vector = Vector::ZERO;
        vector.set(version.site, version.at);
        vector
    }

    /// The same time for so many sites.
    pub fn filled(sites: usize, at: Hlc) -> Vector {
        Vector(SmallVec::from_elem(at, sites))
    }

    /// A site's entry.
    pub fn at(&self, site: SiteId) -> Hlc {
        self.0.get(usize::from(site.0)).copied().unwrap_or(Hlc::ZERO)
    }

    /// Raises a site's entry to `at`, if it is below. Says whether it was.
    pub fn raise(&mut self, site: SiteId, at: Hlc) -> bool {
        if self.at(site) >= at {
            return false;
        }
        self.set(site, at);
        true
    }

    /// Sets a site's entry, whatever it was.
    ///
    /// # Panics
    /// If there cannot be such a site: those from outside are checked before.
    pub fn set(&mut self, site: SiteId, at: Hlc) {
        assert!(site.0 < SiteSet::MOST_SITES, "site {} of at most 64", site.0);
        let place = usize::from(site.0);
        if place >= self.0.len() {
            self.0.resize(place + 1, Hlc::ZERO);
        }
        self.0[place] = at;
    }

    /// The entry-wise maximum, into this one.
    pub fn merge(&mut self, other: &Vector) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), Hlc::ZERO);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// The entry-wise maximum.
    #[must_use]
    pub fn merged(mut self, other: &Vector) -> Vector {
        self.merge(other);
        self
    }

    /// The entry-wise minimum, into this one.
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

    /// Whether the version's own timestamp is at most its site's entry.
    pub fn covers_id(&self, id: VersionId) -> bool {
        id.at <= self.at(id.site)
    }

    /// The entries that say something, by site.
    pub fn entries(&self) -> impl Iterator<Item = (SiteId, Hlc)> + '_ {
        let named = self.0.iter().enumerate().filter(|(_, at)| **at != Hlc::ZERO);
        named.map(|(place, &at)| (SiteId(place as u16), at))
    }

    /// The sites whose entries say something.
    pub fn sites(&self) -> SiteSet {
        self.entries().map(|(site, _)| site).collect()
    }

    /// The largest entry.
    pub fn newest(&self) -> Hlc {
        self.0.iter().copied().max().unwrap_or(Hlc::ZERO)
    }

    /// The smallest entry of so many sites: what GentleRain calls GST.
    pub fn oldest(&self, sites: usize) -> Hlc {
        let entries = (0..sites as u16).map(|site| self.at(SiteId(site)));
        entries.min().unwrap_or(Hlc::ZERO)
    }

    /// Appends the entries that say something: how many (a byte), then for each its site (two bytes) and time (eight).
    pub fn put(&self, out: &mut BytesMut) {
        out.put_u8(self.entries().count() as u8);
        for (site, at) in self.entries() {
            out.put_u16(site.0);
            out.put_u64(at.0);
        }
    }

    /// Takes a vector off the front of `from`.
    pub fn take(from: &mut Bytes) -> Result<Vector, BadFrame> {
        let cut_short = || BadFrame::new("a vector of timestamps", "its end is missing");
        let mut vector = Vector::ZERO;
        for _ in 0..from.try_get_u8().map_err(|_| cut_short())? {
            let site = from.try_get_u16().map_err(|_| cut_short())?;
            let at = from.try_get_u64().map_err(|_| cut_short())?;
            if site >= SiteSet::MOST_SITES {
                return Err(BadFrame::new("a site below 64", site.to_string()));
            }
            if at > Hlc::LATEST.0 {
                return Err(BadFrame::new("a timestamp before 2112", at.to_string()));
            }
            vector.set(SiteId(site), Hlc(at));
        }
        Ok(vector)
    }

    /// Bytes that it takes on the heap.
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

impl FromIterator<(SiteId, Hlc)> for Vector {
    fn from_iter<I: IntoIterator<Item = (SiteId, Hlc)>>(entries: I) -> Vector {
        let mut vector = Vector::ZERO;
        for (site, at) in entries {
            vector.raise(site, at);
        }
        vector
    }
}

impl fmt::Debug for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.entries().map(|(site, at)| (site.0, at)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(entries: &[(u16, u64)]) -> Vector {
        entries
            .iter()
            .map(|&(site, at)| (SiteId(site), Hlc(at)))
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
            let expected = (0..4).map(SiteId).all(|site| one.at(site) >= other.at(site));
            assert_eq!(one.covers(other), expected, "{one:?} and {other:?}");
        }
    }

    #[test]
    fn it_comes_back_as_it_went_and_nonsense_is_refused() {
        for vector in [Vector::ZERO, vector(&[(0, 1), (63, Hlc::LATEST.0)])] {
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
        let far = [1, 0, 64, 0, 0, 0, 0, 0, 0, 0, 1];
        assert!(
            Vector::take(&mut Bytes::copy_from_slice(&far)).is_err(),
            "site 64"
        );
        let late = [1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];
        assert!(
            Vector::take(&mut Bytes::copy_from_slice(&late)).is_err(),
            "beyond 2112"
        );
    }
}
