use crate::Hlc;

/// The numbers that every protocol reports of a replica, for monitoring. What a protocol counts beyond that are its [`crate::Metric`]s.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Everything that was stamped up to this time, at any site, can be seen here. `None` for a protocol that does not wait for that.
    pub stable_until: Option<Hlc>,
    /// Deletes that were stamped up to this time may be forgotten: every site shows them. `None` before any such time is known.
    pub deletes_until: Option<Hlc>,
    /// Whether the data directory is an old copy: nothing is served.
    pub is_outdated: bool,
    /// Whether the data directory was empty and peers are still filling it.
    pub is_filling: bool,
    /// How much the replica is carrying out with others: operations, whether their clients still wait or not, and 1 while peers send back what it must
    /// have before it serves.
    pub under_way: u64,
}

impl Vitals {
    /// Combines them with those of another partition: the earlier times, what is true of either, and all operations.
    pub fn merge(&mut self, other: Vitals) {
        let earlier = |one: Option<Hlc>, other: Option<Hlc>| one.into_iter().chain(other).min();
        self.stable_until = earlier(self.stable_until, other.stable_until);
        self.deletes_until = earlier(self.deletes_until, other.deletes_until);
        self.is_outdated |= other.is_outdated;
        self.is_filling |= other.is_filling;
        self.under_way += other.under_way;
    }
}
