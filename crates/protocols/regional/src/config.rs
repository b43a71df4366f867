//! The configuration of a regional keyspace.
use turnbuckle_core::{Bug, Micros, Parameter, Setting};
use turnbuckle_raft::{Planted, Timing};

/// The configuration of a regional keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NukvConfig {
    /// The times of the group.
    pub timing: Timing,
    /// How often a leader writes into its log how far all sites are.
    pub mark: Micros,
    /// How long an operation may wait for a leader, for a majority, and for what its session has seen elsewhere.
    pub patience: Micros,
    /// How long a replica that is behind what a read needs waits, before it says so.
    pub redirect: Micros,
    /// How many applied entries a replica keeps.
    pub log_entries: usize,
    /// 1: writes wait for what their session needs, as without hybrid clocks.
    pub wait: usize,
    /// The planted bugs.
    pub bugs: Bugs,
}

/// The bugs that are planted. None outside tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bugs {
    /// Those of the group.
    pub raft: Planted,
    /// A forwarder that begins goes on behind what is committed at its own site.
    pub forwards_only_new: bool,
    /// An entry that comes once more is applied once more.
    pub sets_back: bool,
    /// An entry is applied although the one before it is missing.
    pub skips_gaps: bool,
    /// Writes carry no dependency time.
    pub drops_dependency: bool,
    /// A replica answers although it lacks what the session needs.
    pub ignores_needs: bool,
    /// A write that is asked for again is carried out again.
    pub writes_twice: bool,
    /// What an answer proves rests on timestamps, and not on clocks.
    pub claims_by_stamps: bool,
    /// The answer to a write claims what came after the write was decided.
    pub claims_what_came_later: bool,
    /// Its site goes on in its epoch after replicas have lost their directories together.
    pub keeps_epoch: bool,
    /// Replicas go by their own clock alone, whatever the session has seen expired.
    pub forgets_what_expired: bool,
    /// A version that changes an expiry names no base.
    pub expiry_revives: bool,
}

impl Bugs {
    /// The bug of this name, to be switched on. `None` if there is none.
    pub fn named(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "forwards_only_new" => &mut self.forwards_only_new,
            "sets_back" => &mut self.sets_back,
            "skips_gaps" => &mut self.skips_gaps,
            "drops_dependency" => &mut self.drops_dependency,
            "ignores_needs" => &mut self.ignores_needs,
            "writes_twice" => &mut self.writes_twice,
            "claims_by_stamps" => &mut self.claims_by_stamps,
            "claims_what_came_later" => &mut self.claims_what_came_later,
            "keeps_epoch" => &mut self.keeps_epoch,
            "forgets_what_expired" => &mut self.forgets_what_expired,
            "expiry_revives" => &mut self.expiry_revives,
            "keeps_no_votes" => &mut self.raft.keeps_no_votes,
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
        "forwards_only_new",
        "a new leader's forwarder skips what its predecessor had not sent yet, and the sites differ for ever",
    ),
    Bug::new(
        "sets_back",
        "an entry that is sent again sets the stable vector back, and later entries do not fit any more",
    ),
    Bug::new(
        "skips_gaps",
        "a replica applies an entry without the one before it, and counts as further than it is",
    ),
    Bug::new(
        "drops_dependency",
        "a session's write gets a timestamp below what the session has read or written, and never wins",
    ),
    Bug::new(
        "ignores_needs",
        "a session that moves is shown less than it has seen",
    ),
    Bug::new(
        "claims_by_stamps",
        "a receipt takes a timestamp for the time of a clock, and claims writes that are missing",
    ),
    Bug::new(
        "claims_what_came_later",
        "a delete finds nothing, a full copy brings a value before the delete is applied, and the receipt claims that value, too",
    ),
    Bug::new(
        "keeps_epoch",
        "a majority of a site's directories is lost, and a session is not told that what it had seen is lost with them",
    ),
    Bug::new(
        "forgets_what_expired",
        "a session forgets what it has seen expired: at another replica, whose clock is behind, it sees the value again",
    ),
    Bug::new(
        "expiry_revives",
        "a change of an expiry counts as a new value, and wins over a value that it did not know",
    ),
    Bug::new(
        "writes_twice",
        "a write that a session asks for again is carried out twice, and overwrites a later one",
    ),
];

impl Default for NukvConfig {
    fn default() -> NukvConfig {
        NukvConfig {
            timing: Timing {
                heartbeat: Micros::from_millis(50),
                election: Micros::from_millis(500),
                // No leader has a lease: nothing here rests on that.
                drift: 1_000_000,
            },
            mark: Micros::from_millis(1_000),
            patience: Micros::from_millis(4_000),
            redirect: Micros::from_millis(5),
            log_entries: 10_000,
            wait: 0,
            bugs: Bugs::default(),
        }
    }
}

pub(crate) const PARAMETERS: &[Parameter<NukvConfig>] = &[
    Parameter::new(
        "heartbeat",
        "how often a leader tells the other replicas of its site that it leads",
        |config| Setting::Interval(&mut config.timing.heartbeat),
    ),
    Parameter::new(
        "election",
        "how long a replica waits for word of a leader, at least, before it wants to be elected; at least three heartbeats",
        |config| Setting::Interval(&mut config.timing.election),
    ),
    Parameter::new(
        "mark",
        "how often a leader notes in its log how far all sites are: for what it may drop, for deletes that may be forgotten, and so that other sites know how fresh they are",
        |config| Setting::Interval(&mut config.mark),
    ),
    Parameter::new(
        "patience",
        "how long an operation may wait for a leader, for a majority of its site's replicas, and for what its session has seen at other sites",
        |config| Setting::Interval(&mut config.patience),
    ),
    Parameter::new(
        "redirect",
        "how long a replica that is behind what a read needs waits before the read goes to the leader of its site",
        |config| Setting::Allowance(&mut config.redirect),
    ),
    Parameter::new(
        "log_entries",
        "how many applied entries of its log a replica keeps, for replicas and sites that lag; fewer, if they take more than 64 MiB",
        |config| Setting::Count(&mut config.log_entries, 1..=10_000_000),
    ),
    Parameter::new(
        "wait",
        "1: a write waits until its leader has what the session has seen, as in a store without hybrid clocks; 0: it waits for nothing",
        |config| Setting::Count(&mut config.wait, 0..=1),
    ),
];
