//! The configuration of a consensus keyspace.
use turnbuckle_core::{Bug, Micros, Parameter, Setting};
use turnbuckle_raft::{Planted, Timing};

/// The configuration of a consensus keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DacianConfig {
    /// The times of the group.
    pub timing: Timing,
    /// How long an operation may wait for a leader and a majority.
    pub patience: Micros,
    /// How long a replica that is behind what a read needs waits, before it says so.
    pub redirect: Micros,
    /// How many applied entries a replica keeps.
    pub log_entries: usize,
    /// The planted bugs.
    pub bugs: Bugs,
}

/// The bugs that are planted. None outside tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bugs {
    /// Those of the group.
    pub raft: Planted,
    /// A write that is asked for again is carried out again.
    pub writes_twice: bool,
    /// A leader does not look up a write that does not say that it is repeated.
    pub believes_first_requests: bool,
    /// A leader does not look at what it has proposed.
    pub forgets_proposed: bool,
    /// What a replica has applied counts as fresh from when the leader's answer arrives.
    pub stamps_at_arrival: bool,
    /// A replica answers although it is behind what the session has seen.
    pub ignores_seen: bool,
    /// Replicas go by their own clocks to see whether a value has expired.
    pub expires_by_own_clocks: bool,
}

impl Bugs {
    /// The bug of this name, to be switched on. `None` if there is none.
    pub fn named(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "trusts_belief" => &mut self.raft.trusts_belief,
            "keeps_no_votes" => &mut self.raft.keeps_no_votes,
            "leases_from_arrival" => &mut self.raft.leases_from_arrival,
            "votes_at_once" => &mut self.raft.votes_at_once,
            "syncs_nothing" => &mut self.raft.syncs_nothing,
            "copies_ahead" => &mut self.raft.copies_ahead,
            "forgets_that_it_lost" => &mut self.raft.forgets_that_it_lost,
            "keeps_lease" => &mut self.raft.keeps_lease,
            "forgets_committed" => &mut self.raft.forgets_committed,
            "changes_at_once" => &mut self.raft.changes_at_once,
            "drops_entries" => &mut self.raft.drops_entries,
            "writes_twice" => &mut self.writes_twice,
            "believes_first_requests" => &mut self.believes_first_requests,
            "forgets_proposed" => &mut self.forgets_proposed,
            "stamps_at_arrival" => &mut self.stamps_at_arrival,
            "ignores_seen" => &mut self.ignores_seen,
            "expires_by_own_clocks" => &mut self.expires_by_own_clocks,
            _ => return None,
        })
    }
}

pub(crate) const BUGS: &[Bug] = &[
    Bug::new(
        "keeps_no_votes",
        "a replica that was restarted votes once more in the same term, and the term has two leaders",
    ),
    Bug::new(
        "syncs_nothing",
        "a power loss takes an entry from a replica that counted for the majority, and an acknowledged write is lost",
    ),
    Bug::new(
        "copies_ahead",
        "a full copy counts as further than it is, and entries behind it are never applied",
    ),
    Bug::new(
        "forgets_that_it_lost",
        "a replica that has lost its directory votes for a leader without an entry that it had acknowledged",
    ),
    Bug::new(
        "drops_entries",
        "a replica that is restarted drops entries that it had acknowledged, and an acknowledged write is lost",
    ),
    Bug::new(
        "changes_at_once",
        "a group goes on with new voters of which only one has what is committed, and what that one loses with its directory is lost",
    ),
    Bug::new(
        "writes_twice",
        "a write that a session asks for again is carried out twice, and overwrites a later one",
    ),
    Bug::new(
        "forgets_proposed",
        "a leader computes a write from what is applied, and not from what it has proposed since: an increment is lost",
    ),
    Bug::new(
        "stamps_at_arrival",
        "a read at bounded(t) misses a write that was acknowledged while the leader's answer was under way",
    ),
    Bug::new(
        "ignores_seen",
        "a session is shown an older version than it has seen",
    ),
    Bug::new(
        "expires_by_own_clocks",
        "a value expires at one replica before it does at another one, and no order of the operations explains what clients see",
    ),
];

impl Default for DacianConfig {
    fn default() -> DacianConfig {
        DacianConfig {
            timing: Timing {
                heartbeat: Micros::from_millis(100),
                election: Micros::from_millis(1_000),
                drift: 10_000,
            },
            patience: Micros::from_millis(4_000),
            redirect: Micros::from_millis(10),
            log_entries: 10_000,
            bugs: Bugs::default(),
        }
    }
}

pub(crate) const PARAMETERS: &[Parameter<DacianConfig>] = &[
    Parameter::new(
        "heartbeat",
        "how often a leader tells the other replicas that it leads",
        |config| Setting::Interval(&mut config.timing.heartbeat),
    ),
    Parameter::new(
        "election",
        "how long a replica waits for word of a leader, at least, before it wants to be elected; at least three heartbeats",
        |config| Setting::Interval(&mut config.timing.election),
    ),
    Parameter::new(
        "drift",
        "by how much the rates of two nodes' clocks may differ, in millionths: leaders' leases are shorter by that; at 1000000 no leader has a lease",
        |config| Setting::Count(&mut config.timing.drift, 0..=1_000_000),
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
    Parameter::new(
        "log_entries",
        "how many applied entries of its log a replica keeps, for replicas that lag and for writes that are asked for again; fewer, if they take more than 64 MiB",
        |config| Setting::Count(&mut config.log_entries, 1..=10_000_000),
    ),
];
