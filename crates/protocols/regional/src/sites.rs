//! What a replica has of each site's writes: the paper's `sv`.
//!
//! The writes of a site form a chain: each names the one before it. A replica has a prefix of the chain. It takes an entry only if that continues the prefix, whatever order entries come in, and however
//! often.
//!
//! If a site has lost writes that others may have, its group begins a new chain, of a new *epoch*. Then the old chain has ended, and this replica keeps how far it had come.
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use turnbuckle_core::{BadFrame, Hlc, ReplicaId, SiteId};

/// A place in the chain of a site: everything up to a write. The places of an epoch are above those of earlier epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Place {
    /// When the chain began: the timestamp of its first entry. Zero: there is no chain yet.
    pub epoch: Hlc,
    /// The timestamp of the write.
    pub at: Hlc,
}

/// An entry's place, and the entry before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// Its own place.
    pub place: Place,
    /// The timestamp of the entry before it; zero for the first of an epoch.
    pub before: Hlc,
}

/// What an entry is to a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It is the next one.
    Next,
    /// The replica has it already.
    Here,
    /// Entries before it are missing.
    Gap,
}

/// Whether a replica has what is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Has {
    /// It has.
    Yes,
    /// Not yet.
    NotYet,
    /// It never will: the epoch has ended, and the site has lost it before it came here.
    Never,
}

/// How many epochs of a site are remembered that have ended.
pub(crate) const ENDED: usize = 8;

/// What a replica has of one site.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Site {
    /// How far it is.
    place: Place,
    /// How far it had come in epochs that have ended, oldest first.
    ended: Vec<Place>,
}

/// What a replica has of each site.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sites(BTreeMap<SiteId, Site>);

impl Sites {
    /// How far it is with a site.
    pub fn place(&self, site: SiteId) -> Place {
        self.0.get(&site).map_or(Place::default(), |site| site.place)
    }

    /// Whether an epoch of a site has ended.
    pub fn has_ended(&self, site: SiteId) -> bool {
        self.0.get(&site).is_some_and(|known| !known.ended.is_empty())
    }

    /// The sites of which it has something, and how far it is with each.
    pub fn places(&self) -> impl Iterator<Item = (SiteId, Place)> + '_ {
        self.0.iter().map(|(&site, known)| (site, known.place))
    }

    /// What an entry of a site is to it.
    pub fn fit(&self, site: SiteId, link: Link) -> Fit {
        let place = self.place(site);
        if link.place <= place {
            return Fit::Here;
        }
        // The first entry of a site's first epoch follows nothing. Nothing follows an epoch that has ended: a site that begins another one has lost what only it had, and has
        // what nobody else has. So whoever had something of it takes a full copy.
        let is_next = match link.place.epoch == place.epoch {
            true => link.before == place.at,
            false => link.before == Hlc::ZERO && place == Place::default(),
        };
        match is_next {
            true => Fit::Next,
            false => Fit::Gap,
        }
    }

    /// It has an entry of a site that fits.
    pub fn take(&mut self, site: SiteId, link: Link) {
        let known = self.0.entry(site).or_default();
        known.move_to(link.place);
    }

    /// Whether it has what is needed of a site. A need without an epoch is met by any epoch.
    pub fn has(&self, site: SiteId, need: Place) -> Has {
        let Some(known) = self.0.get(&site) else {
            return Has::NotYet;
        };
        if need.epoch == Hlc::ZERO {
            return match known.place.at >= need.at {
                true => Has::Yes,
                false => Has::NotYet,
            };
        }
        if need.epoch >= known.place.epoch {
            return match known.place >= need {
                true => Has::Yes,
                false => Has::NotYet,
            };
        }
        // An older epoch than those that are remembered.
        if known.ended.len() == ENDED && need.epoch < known.ended[0].epoch {
            return Has::Yes;
        }
        let ended = known.ended.iter().find(|ended| ended.epoch == need.epoch);
        match ended.is_some_and(|ended| ended.at >= need.at) {
            true => Has::Yes,
            false => Has::Never,
        }
    }

    /// Whether it has everything that another replica has.
    pub fn covers(&self, theirs: &Sites) -> bool {
        theirs.0.keys().all(|&site| self.covers_site(site, theirs))
    }

    /// Whether it has everything of a site that another replica has.
    pub fn covers_site(&self, site: SiteId, theirs: &Sites) -> bool {
        let Some(known) = theirs.0.get(&site) else {
            return true;
        };
        let mut places = known.ended.iter().chain([&known.place]);
        places.all(|&place| place.at == Hlc::ZERO || self.has(site, place) == Has::Yes)
    }

    /// It names a place of a site: it counts as having everything up to it.
    pub fn reach(&mut self, site: SiteId, place: Place) {
        let known = self.0.entry(site).or_default();
        if place > known.place {
            known.move_to(place);
        }
    }

    /// It counts as having what either has.
    pub fn join(&mut self, other: &Sites) {
        for (&site, known) in &other.0 {
            for &ended in &known.ended {
                self.0.entry(site).or_default().note_ended(ended);
            }
            self.reach(site, known.place);
        }
    }

    /// Some of the site's writes are lost here: it counts as having none of this epoch.
    pub fn lose(&mut self, site: SiteId) {
        if let Some(known) = self.0.get_mut(&site) {
            known.place.at = Hlc::ZERO;
        }
    }

    /// The epoch in which a site has stamped something that is here.
    pub fn epoch_of(&self, site: SiteId, at: Hlc) -> Hlc {
        let Some(known) = self.0.get(&site) else {
            return Hlc::ZERO;
        };
        let epochs = known.ended.iter().map(|ended| ended.epoch);
        let epochs = epochs.chain([known.place.epoch]);
        epochs.filter(|&epoch| epoch <= at).max().unwrap_or_default()
    }

    /// The cut that it covers: of each site, everything that was stamped up to this time.
    pub fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        let places = self.places();
        places.map(|(site, place)| (site.into(), place.at)).collect()
    }

    /// A full copy is in place that covers this cut. `theirs` is what its source had, then or later. Returns whether it has more of some site now.
    pub fn merge(&mut self, cut: &[(ReplicaId, Hlc)], theirs: &Sites) -> bool {
        let mut has_more = false;
        for &(replica, at) in cut {
            let site = replica.site();
            let Some(known) = theirs.0.get(&site) else {
                continue;
            };
            let mine = self.0.entry(site).or_default();
            // What the source has had of the epochs before the one of the cut.
            let epoch = theirs.epoch_of(site, at);
            for &ended in known.ended.iter().filter(|ended| ended.epoch < epoch) {
                mine.note_ended(ended);
            }
            let place = Place { epoch, at };
            if epoch > Hlc::ZERO && place > mine.place {
                mine.move_to(place);
                has_more = true;
            } else if epoch > Hlc::ZERO && epoch < mine.place.epoch {
                mine.note_ended(place);
            }
        }
        has_more
    }

    /// The earliest time up to which it has everything of each of these sites.
    pub fn until(&self, sites: impl Iterator<Item = SiteId>) -> Hlc {
        sites.map(|site| self.place(site).at).min().unwrap_or_default()
    }

    /// The newest timestamp in it.
    pub fn newest(&self) -> Hlc {
        let places = self.places().map(|(_, place)| place.at);
        places.max().unwrap_or_default()
    }

    /// Appends the encoding.
    pub fn put(&self, out: &mut BytesMut) {
        out.put_u16(self.0.len() as u16);
        for (site, known) in &self.0 {
            out.put_u16(site.0);
            out.put_u8(known.ended.len() as u8);
            for place in known.ended.iter().chain([&known.place]) {
                out.put_u64(place.epoch.0);
                out.put_u64(place.at.0);
            }
        }
    }

    /// Takes the encoding off the front of a frame.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode_from(from: &mut Bytes) -> Result<Sites, BadFrame> {
        let bad = |_| BadFrame::new("what a replica has of each site", "a part of it");
        let mut sites = Sites::default();
        for _ in 0..from.try_get_u16().map_err(bad)? {
            let site = from.try_get_u16().map_err(bad)?;
            let ended = from.try_get_u8().map_err(bad)?;
            let mut place = || -> Result<Place, BadFrame> {
                Ok(Place {
                    epoch: Hlc(from.try_get_u64().map_err(bad)?),
                    at: Hlc(from.try_get_u64().map_err(bad)?),
                })
            };
            let ended = (0..ended).map(|_| place()).collect::<Result<Vec<_>, _>>()?;
            let place = place()?;
            if site >= ReplicaId::MAX_SITES || ended.len() > ENDED {
                let found = format!("site {site} with {} epochs", ended.len());
                return Err(BadFrame::new("what a replica has of each site", found));
            }
            sites.0.insert(SiteId(site), Site { place, ended });
        }
        Ok(sites)
    }
}

impl Site {
    fn move_to(&mut self, place: Place) {
        if place.epoch != self.place.epoch && self.place.epoch > Hlc::ZERO {
            self.note_ended(self.place);
        }
        self.place = place;
    }

    fn note_ended(&mut self, place: Place) {
        match self.ended.binary_search_by_key(&place.epoch, |ended| ended.epoch) {
            Ok(there) => self.ended[there].at = self.ended[there].at.max(place.at),
            Err(there) => self.ended.insert(there, place),
        }
        if self.ended.len() > ENDED {
            self.ended.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SiteId = SiteId(0);

    fn link(epoch: u64, before: u64, at: u64) -> Link {
        Link {
            place: place(epoch, at),
            before: Hlc(before),
        }
    }

    fn place(epoch: u64, at: u64) -> Place {
        Place {
            epoch: Hlc(epoch),
            at: Hlc(at),
        }
    }

    /// Takes entries in the order given, as a replica does. Returns those that it has taken.
    fn take_all(sites: &mut Sites, links: &[Link]) -> Vec<u64> {
        let mut taken = Vec::new();
        for &link in links {
            if sites.fit(A, link) == Fit::Next {
                sites.take(A, link);
                taken.push(link.place.at.0);
            }
        }
        taken
    }

    #[test]
    fn an_entry_is_taken_once_and_only_behind_the_one_before_it() {
        let mut sites = Sites::default();
        let chain = [link(5, 0, 5), link(5, 5, 7), link(5, 7, 9), link(5, 9, 12)];
        assert_eq!(take_all(&mut sites, &[chain[1], chain[0], chain[2]]), [5]);
        // Sent again, one after it, and the first ones once more: none sets it back.
        assert_eq!(
            take_all(&mut sites, &[chain[1], chain[2], chain[1], chain[0]]),
            [7, 9]
        );
        assert_eq!(sites.place(A), place(5, 9));
        assert_eq!(sites.fit(A, link(5, 10, 12)), Fit::Gap);
        assert_eq!(take_all(&mut sites, &chain), [12]);
    }

    /// A replica that has something of an epoch, and takes a full copy behind the first entry of the next one.
    fn with_two_epochs() -> Sites {
        let mut first = Sites::default();
        take_all(&mut first, &[link(5, 0, 5), link(5, 5, 9)]);
        let mut second = Sites::default();
        take_all(&mut second, &[link(20, 0, 20)]);
        assert!(first.merge(&second.cut(), &second));
        first
    }

    #[test]
    fn a_new_epoch_needs_a_full_copy_and_what_was_lost_never_comes() {
        let mut sites = Sites::default();
        take_all(&mut sites, &[link(5, 0, 5), link(5, 5, 9)]);
        for new in [link(20, 22, 23), link(20, 0, 20)] {
            assert_eq!(sites.fit(A, new), Fit::Gap, "{new:?}");
        }
        let mut sites = with_two_epochs();
        assert_eq!(take_all(&mut sites, &[link(5, 9, 12), link(20, 20, 22)]), [22]);
        for (need, has) in [
            (place(5, 9), Has::Yes),
            (place(5, 12), Has::Never),
            (place(20, 22), Has::Yes),
            (place(20, 23), Has::NotYet),
            (place(30, 31), Has::NotYet),
            (place(3, 4), Has::Never),
        ] {
            assert_eq!(sites.has(A, need), has, "{need:?}");
        }
        assert_eq!(sites.epoch_of(A, Hlc(7)), Hlc(5));
        assert_eq!(sites.epoch_of(A, Hlc(20)), Hlc(20));
    }

    #[test]
    fn a_copy_brings_what_its_cut_covers_and_not_what_its_source_has_since() {
        let theirs = with_two_epochs();
        let mut mine = Sites::default();
        assert!(mine.merge(&[(A.into(), Hlc(7))], &theirs));
        assert_eq!(mine.place(A), place(5, 7));
        assert!(mine.merge(&[(A.into(), Hlc(20))], &theirs));
        assert_eq!(
            (mine.place(A), mine.has(A, place(5, 9))),
            (place(20, 20), Has::Yes)
        );
        // An older copy sets nothing back.
        assert!(!mine.merge(&[(A.into(), Hlc(7))], &theirs));
        assert_eq!(
            (mine.place(A), mine.has(A, place(5, 9))),
            (place(20, 20), Has::Yes)
        );
    }

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_else_panics() {
        let mut sites = with_two_epochs();
        take_all(&mut sites, &[link(20, 20, 24)]);
        sites.take(SiteId(2), link(3, 0, 3));
        let mut out = BytesMut::new();
        sites.put(&mut out);
        let out = out.freeze();
        assert_eq!(Sites::decode_from(&mut out.clone()), Ok(sites));
        for len in 0..out.len() {
            assert!(Sites::decode_from(&mut out.slice(..len)).is_err(), "{len}");
        }
    }
}
