use crate::BadFrame;
use std::{fmt, sync::Arc};

/// A site by its place in the configuration. People see its name ([`Topology::site_name`]), never this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SiteId(pub u16);

/// One replica of one partition of a keyspace: a server in the papers' sense. Placement maps it to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServerId {
    /// The site it stands in.
    pub site: SiteId,
    /// The partition whose keys it holds.
    pub partition: u16,
    /// Which of the partition's members inside the site.
    pub member: u16,
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.site.0, self.partition, self.member)
    }
}

/// A set of sites, at most 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SiteSet(pub u64);

impl SiteSet {
    /// How many sites a cluster can have.
    pub const MOST_SITES: u16 = 64;

    /// The set of `site` alone.
    pub fn one(site: SiteId) -> SiteSet {
        SiteSet(1 << site.0)
    }

    /// Whether `site` is in it.
    pub fn contains(self, site: SiteId) -> bool {
        self.0 >> site.0 & 1 == 1
    }

    /// The same set without `site`.
    pub fn without(self, site: SiteId) -> SiteSet {
        SiteSet(self.0 & !(1 << site.0))
    }

    /// The sites in either.
    #[must_use]
    pub fn union(self, other: SiteSet) -> SiteSet {
        SiteSet(self.0 | other.0)
    }

    /// The sites in it, in order.
    pub fn iter(self) -> impl Iterator<Item = SiteId> {
        (0..Self::MOST_SITES)
            .map(SiteId)
            .filter(move |&site| self.contains(site))
    }
}

impl FromIterator<SiteId> for SiteSet {
    fn from_iter<I: IntoIterator<Item = SiteId>>(sites: I) -> SiteSet {
        sites
            .into_iter()
            .map(SiteSet::one)
            .fold(SiteSet::default(), SiteSet::union)
    }
}

/// Where the replicas of one keyspace stand. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    sites: Arc<[String]>,
    partitions: u16,
    members: u16,
}

impl Topology {
    /// A keyspace of `partitions` partitions with `members` replicas of each in every one of `sites`.
    ///
    /// # Panics
    /// If there is no site, partition or member, or more sites than [`SiteSet::MOST_SITES`], or more partitions than
    /// hash slots: the configuration is checked before.
    pub fn new(
        sites: impl IntoIterator<Item = impl Into<String>>,
        partitions: u16,
        members: u16,
    ) -> Topology {
        let sites: Arc<[String]> = sites.into_iter().map(Into::into).collect();
        assert!(
            (1..=usize::from(SiteSet::MOST_SITES)).contains(&sites.len()),
            "1 to 64 sites, not {}",
            sites.len()
        );
        assert!(
            (1..=crate::HASH_SLOTS).contains(&partitions),
            "1 to 16384 partitions, not {partitions}"
        );
        assert!(members >= 1, "at least one member");
        Topology {
            sites,
            partitions,
            members,
        }
    }

    /// All sites.
    pub fn sites(&self) -> impl Iterator<Item = SiteId> + use<> {
        (0..self.sites.len() as u16).map(SiteId)
    }

    /// All sites as a set.
    pub fn all_sites(&self) -> SiteSet {
        SiteSet(u64::MAX >> (64 - self.sites.len()))
    }

    /// How many sites there are.
    pub fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// The name people know a site by.
    pub fn site_name(&self, site: SiteId) -> &str {
        &self.sites[usize::from(site.0)]
    }

    /// The site of that name.
    pub fn site_named(&self, name: &str) -> Option<SiteId> {
        self.sites
            .iter()
            .position(|site| site == name)
            .map(|place| SiteId(place as u16))
    }

    /// How many partitions the keyspace has.
    pub fn partitions(&self) -> u16 {
        self.partitions
    }

    /// How many replicas of a partition each site has.
    pub fn members(&self) -> u16 {
        self.members
    }

    /// That all these are sites of the cluster: what comes from outside may name others.
    ///
    /// # Errors
    /// If one is not; it says which.
    pub fn check_sites(&self, named: SiteSet) -> Result<(), BadFrame> {
        let strangers = SiteSet(named.0 & !self.all_sites().0);
        match strangers.iter().next() {
            None => Ok(()),
            Some(site) => {
                let found = format!("site {} of {}", site.0, self.site_count());
                Err(BadFrame::new("sites of the cluster, counted from 0", found))
            }
        }
    }

    /// Whether such a server exists.
    pub fn contains(&self, server: ServerId) -> bool {
        usize::from(server.site.0) < self.sites.len()
            && server.partition < self.partitions
            && server.member < self.members
    }

    /// The partition that holds a hash slot. Partitions are contiguous ranges of slots, as even as can be.
    pub fn partition_of_slot(&self, slot: u16) -> u16 {
        (u32::from(slot) * u32::from(self.partitions) / u32::from(crate::HASH_SLOTS)) as u16
    }

    /// The slots of a partition.
    pub fn slots_of(&self, partition: u16) -> std::ops::Range<u16> {
        let first = |p: u16| {
            (u32::from(p) * u32::from(crate::HASH_SLOTS)).div_ceil(u32::from(self.partitions)) as u16
        };
        first(partition)..first(partition + 1)
    }

    /// The server of the same partition and member at another site.
    pub fn peer_at(&self, server: ServerId, site: SiteId) -> ServerId {
        ServerId { site, ..server }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_in_the_range_of_its_partition() {
        for partitions in [1, 2, 3, 5, 7, 16, 100, 16_384] {
            let topology = Topology::new(["a"], partitions, 1);
            let mut slots = 0;
            for partition in 0..partitions {
                for slot in topology.slots_of(partition) {
                    assert_eq!(topology.partition_of_slot(slot), partition);
                    slots += 1;
                }
            }
            assert_eq!(slots, crate::HASH_SLOTS);
        }
    }
}
