use crate::BadFrame;
use std::{fmt, str::FromStr, sync::Arc};

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

/// How many members each partition has at each site.
///
/// As text it is one number, or one for each site: `2`, or `2,2,1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members(Arc<[u16]>);

impl Members {
    /// One number that is the same at all sites, or the number of each site. A site with 0 members has no replicas. `None`: there is no number, there are
    /// more numbers than there can be sites, one is above [`ReplicaId::MAX_MEMBERS`], or all are 0.
    pub fn of(numbers: &[u16]) -> Option<Members> {
        let is_one = numbers.windows(2).all(|pair| pair[0] == pair[1]);
        let numbers = if is_one { numbers.get(..1)? } else { numbers };
        let is_possible = numbers.len() <= usize::from(ReplicaId::MAX_SITES)
            && numbers.iter().all(|&number| number <= ReplicaId::MAX_MEMBERS)
            && numbers.iter().any(|&number| number > 0);
        is_possible.then(|| Members(numbers.into()))
    }

    /// The numbers: one that is the same at all sites, or one for each site.
    pub fn numbers(&self) -> &[u16] {
        &self.0
    }

    /// The number at a site.
    pub fn at(&self, site: SiteId) -> u16 {
        match &*self.0 {
            [same] => *same,
            by_site => by_site.get(usize::from(site.0)).copied().unwrap_or(0),
        }
    }

    /// The greatest number.
    pub fn max(&self) -> u16 {
        self.0.iter().copied().max().unwrap_or(0)
    }
}

impl From<u16> for Members {
    /// # Panics
    /// If the number is 0, or above [`ReplicaId::MAX_MEMBERS`]: the configuration is checked before.
    fn from(number: u16) -> Members {
        Members::of(&[number])
            .unwrap_or_else(|| panic!("1 to {} members, not {number}", ReplicaId::MAX_MEMBERS))
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u16::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

impl FromStr for Members {
    type Err = String;

    fn from_str(text: &str) -> Result<Members, String> {
        let numbers = text.split(',').map(|number| number.trim().parse().ok());
        let numbers: Option<Vec<u16>> = numbers.collect();
        numbers.and_then(|numbers| Members::of(&numbers)).ok_or_else(|| {
            format!(
                "expected a number of members from 1 to {}, or one for each site, such as 2,2,1",
                ReplicaId::MAX_MEMBERS
            )
        })
    }
}

/// Where the replicas of one keyspace are placed. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    sites: Arc<[String]>,
    partitions: u16,
    members: Members,
    replica_sites: u16,
    /// The replicas of each partition, by the site where the partition is placed first. One set, if each partition is at all sites.
    replicas: Arc<[ReplicaSet]>,
}

impl Topology {
    /// A keyspace of `partitions` partitions with `members` replicas of each at the `sites`.
    ///
    /// # Panics
    /// If there is no site or partition, or more than [`ReplicaId::MAX_SITES`] or hash slots, or if the numbers of members are those of other sites: the
    /// configuration is checked before.
    pub fn new(
        sites: impl IntoIterator<Item = impl Into<String>>,
        partitions: u16,
        members: impl Into<Members>,
    ) -> Topology {
        let members = members.into();
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
            [1, sites.len()].contains(&members.numbers().len()),
            "members of {} sites, not {members}",
            sites.len()
        );
        Topology {
            replica_sites: sites.len() as u16,
            sites,
            partitions,
            members,
            replicas: Arc::new([]),
        }
        .placed()
    }

    /// The same, with each partition at `replica_sites` of the sites only.
    ///
    /// # Panics
    /// If there are fewer sites, if `replica_sites` is 0, or if sites have different numbers of members: the configuration is checked before.
    pub fn at_some_sites(self, replica_sites: u16) -> Topology {
        let is_at_all = usize::from(replica_sites) == self.sites.len();
        assert!(
            is_at_all || self.members.numbers().len() == 1,
            "sites with the same number of members, not {}",
            self.members
        );
        assert!(
            (1..=self.sites.len()).contains(&usize::from(replica_sites)),
            "1 to {} sites of each partition, not {replica_sites}",
            self.sites.len()
        );
        Topology {
            replica_sites,
            ..self
        }
        .placed()
    }

    /// The same, with the replicas of each partition.
    fn placed(self) -> Topology {
        let firsts = self.some_sites().map_or(1, |_| self.sites.len() as u16);
        Topology {
            replicas: (0..firsts).map(|partition| self.place(partition)).collect(),
            ..self
        }
    }

    fn place(&self, partition: u16) -> ReplicaSet {
        let members = |site: SiteId| (0..self.members.at(site)).map(move |member| (site, member));
        let all = self.sites_of(partition).flat_map(members);
        all.map(|(site, member)| ReplicaId(member * ReplicaId::MAX_SITES + site.0))
            .collect()
    }

    /// All sites.
    pub fn sites(&self) -> impl Iterator<Item = SiteId> + use<> {
        (0..self.sites.len() as u16).map(SiteId)
    }

    /// The sites at which a partition is placed: those that have members. If it is at a number of them only, its first site is the partition's number modulo
    /// the number of sites, and the next sites follow, around the end.
    pub fn sites_of(&self, partition: u16) -> impl Iterator<Item = SiteId> + use<'_> {
        let (count, first) = (self.sites.len() as u16, self.first_site_of(partition));
        let sites = (0..self.replica_sites).map(move |place| SiteId((first + place) % count));
        sites.filter(|&site| self.members.at(site) > 0)
    }

    fn first_site_of(&self, partition: u16) -> u16 {
        match self.some_sites() {
            None => 0,
            Some(_) => partition % self.sites.len() as u16,
        }
    }

    /// Whether each partition is placed at all sites.
    pub fn is_everywhere(&self) -> bool {
        self.some_sites().is_none() && !self.members.numbers().contains(&0)
    }

    /// The number of sites at which each partition is placed; `None` if it is at all sites that have members.
    pub fn some_sites(&self) -> Option<u16> {
        (usize::from(self.replica_sites) < self.sites.len()).then_some(self.replica_sites)
    }

    /// The replicas of a partition.
    pub fn replicas_of(&self, partition: u16) -> ReplicaSet {
        self.replicas[usize::from(self.first_site_of(partition))]
    }

    /// The replicas of all partitions.
    pub fn replicas(&self) -> ReplicaSet {
        let all = self.replicas.iter().copied();
        all.fold(ReplicaSet::default(), ReplicaSet::union)
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

    /// How many replicas of a partition each site has.
    pub fn members(&self) -> &Members {
        &self.members
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
        let count = self.sites.len() as u16;
        server.site.0 < count
            && server.partition < self.partitions
            && server.member < self.members.at(server.site)
            && (server.site.0 + count - self.first_site_of(server.partition)) % count < self.replica_sites
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
    fn sites_may_have_different_numbers_of_members_or_none() {
        let members: Members = "2,0,1".parse().expect("they are numbers");
        let topology = Topology::new(["a", "b", "c"], 2, members);
        let sites: Vec<u16> = topology.sites_of(1).map(|site| site.0).collect();
        assert_eq!(sites, [0, 2]);
        let replicas: Vec<String> = topology
            .replicas_of(1)
            .iter()
            .map(|replica| topology.replica_name(replica))
            .collect();
        assert_eq!(replicas, ["a", "c", "a/1"]);
        assert!(!topology.is_everywhere() && topology.some_sites().is_none());
        let server = |site, member| ServerId {
            site: SiteId(site),
            partition: 0,
            member,
        };
        assert!(topology.contains(server(0, 1)) && topology.contains(server(2, 0)));
        assert!(!topology.contains(server(1, 0)) && !topology.contains(server(2, 1)));
    }

    #[test]
    fn a_server_exists_if_its_site_is_one_of_its_partition() {
        for topology in [
            Topology::new(["a", "b", "c", "d"], 9, 2).at_some_sites(3),
            Topology::new(["a", "b", "c", "d"], 9, 1).at_some_sites(1),
            Topology::new(["a", "b", "c", "d"], 9, 3),
            Topology::new(
                ["a", "b", "c"],
                9,
                "0,2,1".parse::<Members>().expect("they are numbers"),
            ),
        ] {
            for partition in 0..10 {
                for (site, member) in (0..6).flat_map(|site| (0..4).map(move |member| (SiteId(site), member)))
                {
                    let server = ServerId {
                        site,
                        partition,
                        member,
                    };
                    let is_one = partition < 9
                        && topology.replicas_of(partition).contains(server.replica())
                        && topology.sites_of(partition).any(|placed| placed == site);
                    assert_eq!(topology.contains(server), is_one, "{server} of {topology:?}");
                }
            }
        }
    }

    #[test]
    fn equal_numbers_of_members_are_one_number_and_impossible_ones_are_refused() {
        assert_eq!("3, 3, 3".parse(), Ok(Members::from(3)));
        assert_eq!(
            Members::of(&[2, 2, 1]).map(|members| members.to_string()),
            Some("2,2,1".into())
        );
        for text in ["", "0", "0,0", "9", "1,x", "1,,1", "-1"] {
            assert!(text.parse::<Members>().is_err(), "{text}");
        }
        assert_eq!(Members::of(&[]), None);
        assert_eq!(Members::of(&[1; 17]), Some(Members::from(1)));
        assert_eq!(Members::of(&[1, 2].repeat(9)), None);
    }

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
