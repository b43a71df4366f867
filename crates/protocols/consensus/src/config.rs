//! The configuration of a consensus keyspace.
use turnbuckle_core::{Micros, Parameter, Setting};
use turnbuckle_raft::Timing;

/// The configuration of a consensus keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DacianConfig {
    /// How often a leader sends heartbeats.
    pub heartbeat: Micros,
    /// How long a replica waits for word of a leader, at least, before it wants to be elected.
    pub election: Micros,
    /// By how much the rates of two clocks may differ, in millionths.
    pub drift: usize,
    /// How long an operation may wait for a leader and a majority.
    pub patience: Micros,
    /// How long a replica that is behind what a read needs waits, before it says so.
    pub redirect: Micros,
}

impl Default for DacianConfig {
    fn default() -> DacianConfig {
        DacianConfig {
            heartbeat: Micros::from_millis(100),
            election: Micros::from_millis(1_000),
            drift: 10_000,
            patience: Micros::from_millis(4_000),
            redirect: Micros::from_millis(10),
        }
    }
}

impl DacianConfig {
    pub(crate) fn timing(&self) -> Timing {
        Timing {
            heartbeat: self.heartbeat,
            election: self.election,
            drift: self.drift,
        }
    }
}

pub(crate) const PARAMETERS: &[Parameter<DacianConfig>] = &[
    Parameter::new(
        "heartbeat",
        "how often a leader tells the other replicas that it leads",
        |config| Setting::Interval(&mut config.heartbeat),
    ),
    Parameter::new(
        "election",
        "how long a replica waits for word of a leader, at least, before it wants to be elected; at least three heartbeats",
        |config| Setting::Interval(&mut config.election),
    ),
    Parameter::new(
        "drift",
        "by how much the rates of two nodes' clocks may differ, in millionths: leaders' leases are shorter by that; at 1000000 no leader has a lease",
        |config| Setting::Count(&mut config.drift, 0..=1_000_000),
    ),
    Parameter::new(
        "patience",
        "how long an operation may wait for a leader and for a majority of the replicas",
        |config| Setting::Interval(&mut config.patience),
    ),
    Parameter::new(
        "redirect",
        "how long a replica that is behind what a read needs waits before the read goes to the leader",
        |config| Setting::Allowance(&mut config.redirect),
    ),
];
