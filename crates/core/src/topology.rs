use crate::BadFrame;
use std::{fmt, sync::Arc};

/// A site by its place in the configuration. People see its name ([`Topology::site_name`]), never this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SiteId(pub u16);

/// One replica of one partition of a keyspace: a server in the papers' sense. Placement maps it to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServerId {
    /// The site where it is placed.
    pub site: SiteId,
    /// The partition whose keys it holds.
    pub partition: u16,
    /// Its number among the partition's members in the site, from 0.
    pub member: u16,
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.site.0, self.partition, self.member)
    }
}

/// A replica within its partition: its site, and its number among the members there. If each site has one member, the replica's number is the site's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ReplicaId(pub u16);

impl ReplicaId {
    /// The most sites that a cluster can have.
    pub const MAX_SITES: u16 = 16;
    /// The most members that a partition can have inside a site.
    pub const MAX_MEMBERS: u16 = 8;

    /// The replica of a member at a site; `None` if no site or member can have that number.
    pub fn of(site: SiteId, member: u16) -> Option<ReplicaId> {
        let is_one = site.0 < Self::MAX_SITES && member < Self::MAX_MEMBERS;
        is_one.then_some(ReplicaId(member * Self::MAX_SITES + site.0))
    }

    /// Its site.
    pub fn site(self) -> SiteId {
        SiteId(self.0 % Self::MAX_SITES)
    }

    /// Its number among the members there, from 0.
    pub fn member(self) -> u16 {
        self.0 / Self::MAX_SITES
    }

    /// The name that people know it by. `site` is the name of its site.
    pub fn name(self, site: &str) -> String {
        match self.member() {
            0 => site.to_string(),
            member => format!("{site}/{member}"),
        }
    }
}

/// The first member at a site: the only one, where each site has one.
impl From<SiteId> for ReplicaId {
    fn from(site: SiteId) -> ReplicaId {
        ReplicaId(site.0)
    }
}

impl ServerId {
    /// A replica of a partition.
    pub fn of(partition: u16, replica: ReplicaId) -> ServerId {
        ServerId {
            site: replica.site(),
            partition,
            member: replica.member(),
        }
    }

    /// Its identifier within its partition.
    pub fn replica(self) -> ReplicaId {
        ReplicaId(self.member * ReplicaId::MAX_SITES + self.site.0)
    }

    /// Another replica of its partition.
    pub fn peer(self, replica: ReplicaId) -> ServerId {
        ServerId {
            site: replica.site(),
            member: replica.member(),
            ..self
        }
    }
}

/// A set of a partition's replicas. Aligned like a word, so that a receipt with such sets is no larger than others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(Rust, packed(8))]
pub struct ReplicaSet(pub u128);

impl ReplicaSet {
    /// The most replicas that a partition can have.
    pub const MAX: u16 = ReplicaId::MAX_SITES * ReplicaId::MAX_MEMBERS;

    /// The set of `replica` alone.
    pub fn one(replica: ReplicaId) -> ReplicaSet {
        ReplicaSet(1 << replica.0)
    }

    /// Whether `replica` is in it.
    pub fn contains(self, replica: ReplicaId) -> bool {
        self.0 >> replica.0 & 1 == 1
    }

    /// The same set without `replica`.
    #[must_use]
    pub fn without(self, replica: ReplicaId) -> ReplicaSet {
        ReplicaSet(self.0 & !(1 << replica.0))
    }

    /// The replicas in either.
    #[must_use]
    pub fn union(self, other: ReplicaSet) -> ReplicaSet {
        ReplicaSet(self.0 | other.0)
    }

    /// The replicas that are not in `other`.
    #[must_use]
    pub fn minus(self, other: ReplicaSet) -> ReplicaSet {
        ReplicaSet(self.0 & !other.0)
    }

    /// The replicas that are in both.
    pub fn intersection(self, other: ReplicaSet) -> ReplicaSet {
        ReplicaSet(self.0 & other.0)
    }

    /// The number of replicas in it.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether it has no replicas.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The replicas in it, in order.
    pub fn iter(self) -> impl Iterator<Item = ReplicaId> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| ReplicaId(left.trailing_zeros() as u16));
            left &= left.wrapping_sub(1);
            next
        })
    }
}

impl FromIterator<ReplicaId> for ReplicaSet {
    fn from_iter<I: IntoIterator<Item = ReplicaId>>(replicas: I) -> ReplicaSet {
        replicas
            .into_iter()
            .map(ReplicaSet::one)
            .fold(ReplicaSet::default(), ReplicaSet::union)
    }
}

/// Where the replicas of one keyspace are placed. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    sites: Arc<[String]>,
    partitions: u16,
    members: u16,
    replica_sites: u16,
}

impl Topology {
    /// A keyspace of `partitions` partitions with `members` replicas of each in every one of `sites`.
    ///
    /// # Panics
    /// If there is no site, partition or member, or more than [`ReplicaId::MAX_SITES`], [`ReplicaId::MAX_MEMBERS`] or
    /// hash slots: the configuration is checked before.
    pub fn new(
        sites: impl IntoIterator<Item = impl Into<String>>,
        partitions: u16,
        members: u16,
    ) -> Topology {
        let sites: Arc<[String]> = sites.into_iter().map(Into::into).collect();
        assert!(
            (1..=usize::from(ReplicaId::MAX_SITES)).contains(&sites.len()),
            "1 to 16 sites, not {}",
            sites.len()
        );
        assert!(
            (1..=crate::HASH_SLOTS).contains(&partitions),
            "1 to 16384 partitions, not {partitions}"
        );
        assert!(
            (1..=ReplicaId::MAX_MEMBERS).contains(&members),
            "1 to 8 members, not {members}"
        );
        Topology {
            replica_sites: sites.len() as u16,
            sites,
            partitions,
            members,
        }
    }

    /// The same, with each partition at `replica_sites` of the sites only.
    ///
    /// # Panics
    /// If there are fewer sites, or if `replica_sites` is 0: the configuration is checked before.
    pub fn at_some_sites(self, replica_sites: u16) -> Topology {
        assert!(
            (1..=self.sites.len()).contains(&usize::from(replica_sites)),
            "1 to {} sites of each partition, not {replica_sites}",
            self.sites.len()
        );
        Topology {
            replica_sites,
            ..self
        }
    }

    /// All sites.
    pub fn sites(&self) -> impl Iterator<Item = SiteId> + use<> {
        (0..self.sites.len() as u16).map(SiteId)
    }

    /// The sites at which a partition is placed. If it is not at all sites, its first site is the partition's number modulo the number of sites, and
    /// the next sites follow, around the end.
    pub fn sites_of(&self, partition: u16) -> impl Iterator<Item = SiteId> + use<> {
        let (count, first) = (self.sites.len() as u16, partition);
        let first = match self.replica_sites == count {
            true => 0,
            false => first,
        };
        (0..self.replica_sites).map(move |place| SiteId((first % count + place) % count))
    }

    /// Whether each partition is placed at all sites.
    pub fn is_everywhere(&self) -> bool {
        usize::from(self.replica_sites) == self.sites.len()
    }

    /// The number of sites at which each partition is placed; `None` if it is at all of them.
    pub fn some_sites(&self) -> Option<u16> {
        (!self.is_everywhere()).then_some(self.replica_sites)
    }

    /// The replicas of a partition.
    pub fn replicas_of(&self, partition: u16) -> ReplicaSet {
        let members = |site: SiteId| (0..self.members).map(move |member| (site, member));
        let all = self.sites_of(partition).flat_map(members);
        all.map(|(site, member)| ReplicaId(member * ReplicaId::MAX_SITES + site.0))
            .collect()
    }

    /// The replicas of all partitions.
    pub fn replicas(&self) -> ReplicaSet {
        let whole = Topology {
            replica_sites: self.sites.len() as u16,
            ..self.clone()
        };
        whole.replicas_of(0)
    }

    /// The name that people know a replica by: its site's, with its number there if it is not the first.
    pub fn replica_name(&self, replica: ReplicaId) -> String {
        replica.name(self.site_name(replica.site()))
    }

    /// The number of sites.
    pub fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// The name that people know a site by.
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

    /// The number of partitions of the keyspace.
    pub fn partitions(&self) -> u16 {
        self.partitions
    }

    /// The number of replicas of a partition that each site has.
    pub fn members(&self) -> u16 {
        self.members
    }

    /// Checks that all these can be replicas of a partition: input from outside may name others.
    ///
    /// # Errors
    /// If one cannot; the error names it.
    pub fn check_replicas(&self, named: ReplicaSet) -> Result<(), BadFrame> {
        let strangers = named.minus(self.replicas());
        match strangers.iter().next() {
            None => Ok(()),
            Some(replica) => {
                let found = format!("replica {} of site {}", replica.member(), replica.site().0);
                Err(BadFrame::new("a replica of the partition", found))
            }
        }
    }

    /// Whether such a server exists.
    pub fn contains(&self, server: ServerId) -> bool {
        usize::from(server.site.0) < self.sites.len()
            && server.partition < self.partitions
            && server.member < self.members
            && self.sites_of(server.partition).any(|site| site == server.site)
    }

    /// The partition that holds a hash slot. Partitions are contiguous ranges of slots, of sizes as equal as possible.
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

    /// The other replicas of a server's partition.
    pub fn others_of(&self, server: ServerId) -> ReplicaSet {
        self.replicas_of(server.partition).without(server.replica())
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
