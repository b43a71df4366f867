use crate::Hlc;

/// What every protocol says of a replica, for those who watch. What a protocol counts beyond that are its [`crate::Metric`]s.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Everything that was stamped up to here, anywhere, can be seen here. None where that is not what is waited for.
    pub stable_until: Option<Hlc>,
    /// Deletes that were stamped up to here may be forgotten: every site shows them. None before anything is known.
    pub deletes_until: Option<Hlc>,
    /// The data directory is an old copy: nothing is served.
    pub is_outdated: bool,
    /// The data directory was empty, and peers are still filling it.
    pub is_filling: bool,
}

impl Vitals {
    /// Those of another partition as well.
    pub fn merge(&mut self, other: Vitals) {
        let earlier = |one: Option<Hlc>, other: Option<Hlc>| one.into_iter().chain(other).min();
        self.stable_until = earlier(self.stable_until, other.stable_until);
        self.deletes_until = earlier(self.deletes_until, other.deletes_until);
        self.is_outdated |= other.is_outdated;
        self.is_filling |= other.is_filling;
    }
}
