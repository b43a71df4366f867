use crate::{Level, Micros, ServerId, VersionId};

/// How an answer came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The contacted node held the replica.
    Local,
    /// The contacted node passed the operation on to another node of the site.
    Forwarded,
}

/// What an answer proves about itself. A receipt is a claim that can be audited against a trace; in every simulated
/// run all receipts must be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The level that was asked for, or the connection's or keyspace's default.
    pub asked: Level,
    /// The level that was given. Weaker than `asked` only where the caller said so.
    pub given: Level,
    /// The version that was read or written; `None` if the key has none.
    pub version: Option<VersionId>,
    /// The replica that answered; the last one, for an answer put together from several.
    pub server: ServerId,
    /// How the operation reached it.
    pub route: Route,
    /// How long the operation was parked before it could be answered.
    pub waited: Micros,
    /// The answer reflects every write that had been acknowledged this long before the operation began, at any
    /// site, if every clock is within `clock_bound` of true time. `None`: nothing is proven.
    pub staleness: Option<Micros>,
    /// The clock assumption that `staleness` rests on: how far any clock may be from true time.
    pub clock_bound: Micros,
    /// Whether concurrent versions were found that last-writer-wins hides.
    pub siblings: bool,
}
