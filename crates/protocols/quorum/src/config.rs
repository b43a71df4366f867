//! The configuration of a quorum keyspace, and the bugs that can be planted.
use turnbuckle_core::{Bug, Micros, Parameter, ReplicaSet, Setting};
use turnbuckle_streams::Planted;

/// The configuration of a quorum keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuorumConfig {
    /// How often a replica tells its peers how far it is.
    pub heartbeat: Micros,
    /// How long an operation may wait for other replicas.
    pub patience: Micros,
    /// How long a replica may take to acknowledge a write before it is asked about it.
    pub retry: Micros,
    /// A replica that reads have not asked for this long is asked once more, because it may answer sooner by now. Others must have been asked 50 times meanwhile.
    pub remeasure: Micros,
    /// The age from which on a version is sent to a replica that a read found without it.
    pub repair_after: Micros,
    /// How often a replica asks its peers how far they are, while somebody reads at `bounded(t)`.
    pub exchange: Micros,
    /// How often a replica sends its status to those that want it: the paper's dispatch interval.
    pub status: Micros,
    /// How old a status may be when a read at `per-key-sequential` begins: the paper's theta.
    pub status_age: Micros,
    /// Reads at `per-key-sequential` reflect writes that this number of replicas had stored, or the majority's number if that is smaller.
    pub status_covers: usize,
    /// How often what is here is written down, so that deletes can be forgotten.
    pub keep_every: Micros,
    /// The exchange goes on for this long after the last read that wanted it. Statuses come, and replaced versions are kept, for as long.
    pub idle: Micros,
    /// Where siblings are kept: the number of siblings of a key beside which no other one is written.
    pub max_siblings: usize,
    /// The planted bugs.
    pub bugs: Bugs,
}

impl Default for QuorumConfig {
    fn default() -> QuorumConfig {
        QuorumConfig {
            heartbeat: Micros::from_millis(50),
            patience: Micros::from_millis(4_000),
            retry: Micros::from_millis(500),
            remeasure: Micros::from_millis(10_000),
            repair_after: Micros::from_millis(1_000),
            exchange: Micros::from_millis(20),
            status: Micros::from_millis(10),
            status_age: Micros(0),
            status_covers: MAX_COVERS,
            keep_every: Micros::from_millis(1_000),
            idle: Micros::from_millis(30_000),
            max_siblings: 32,
            bugs: Bugs::default(),
        }
    }
}

/// The bugs that are planted. None outside tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bugs {
    /// Those of the streams.
    pub streams: Planted,
    /// An atomic read does not store at a majority what it returns.
    pub skips_write_back: bool,
    /// An atomic write is stamped by the coordinator's clock, and no other replica is asked.
    pub stamps_without_asking: bool,
    /// A write is acknowledged by one replica fewer than its level says.
    pub counts_one_too_many: bool,
    /// The exchange counts from when an answer arrives, and not from when the question left.
    pub stamps_at_arrival: bool,
    /// The exchange counts an answer although this replica does not have everything that the peer has.
    pub compares_nothing: bool,
    /// A read at `per-key-sequential` does not wait for what its session has seen.
    pub ignores_seen: bool,
    /// The times in statuses are compared as if all clocks were right.
    pub trusts_clocks: bool,
    /// A read at `sequential` shows the newest version, and not that of its cut.
    pub shows_newest: bool,
    /// The cut is the minimum over all replicas but one.
    pub leaves_one_out: bool,
    /// A version that comes late is taken for the one that the oldest known one has replaced.
    pub guesses_the_past: bool,
    /// A write with a context replaces what its coordinator has, too.
    pub replaces_unseen: bool,
    /// Of the siblings that another replica lacks, it is sent only the newest.
    pub answers_with_newest: bool,
    /// Clients are shown the newest sibling alone, with the context of all.
    pub shows_one_sibling: bool,
}

/// No partition has more replicas.
const MAX_COVERS: usize = ReplicaSet::MAX as usize;

const HEARTBEAT: Parameter<QuorumConfig> = Parameter::new(
    "heartbeat",
    "how often a replica tells the other replicas up to which timestamp it has sent everything",
    |config| Setting::Interval(&mut config.heartbeat),
);
const PATIENCE: Parameter<QuorumConfig> = Parameter::new(
    "patience",
    "how long an operation may wait for other replicas",
    |config| Setting::Interval(&mut config.patience),
);
const RETRY: Parameter<QuorumConfig> = Parameter::new(
    "retry",
    "how long a replica may take to acknowledge a write before it is asked about it",
    |config| Setting::Interval(&mut config.retry),
);
const REMEASURE: Parameter<QuorumConfig> = Parameter::new(
    "remeasure",
    "a replica that reads have not asked for this long is asked once more, because it may answer sooner by now",
    |config| Setting::Interval(&mut config.remeasure),
);
const REPAIR_AFTER: Parameter<QuorumConfig> = Parameter::new(
    "repair_after",
    "the age from which on a version is sent to a replica that a read found without it",
    |config| Setting::Interval(&mut config.repair_after),
);
const EXCHANGE: Parameter<QuorumConfig> = Parameter::new(
    "exchange",
    "how often a replica asks the others how far they are, while clients read at bounded(t)",
    |config| Setting::Interval(&mut config.exchange),
);
const STATUS: Parameter<QuorumConfig> = Parameter::new(
    "status",
    "how often a replica tells the others how far it is, while clients read at per-key-sequential or sequential",
    |config| Setting::Interval(&mut config.status),
);
const STATUS_AGE: Parameter<QuorumConfig> = Parameter::new(
    "status_age",
    "how old the statuses may be from which a read at per-key-sequential is answered, counted from when the read begins",
    |config| Setting::Allowance(&mut config.status_age),
);
const STATUS_COVERS: Parameter<QuorumConfig> = Parameter::new(
    "status_covers",
    "a read at per-key-sequential reflects the writes that this number of replicas had stored: 1 for all writes, and at most the number that a majority reflects",
    |config| Setting::Count(&mut config.status_covers, 1..=MAX_COVERS),
);
const MAX_SIBLINGS: Parameter<QuorumConfig> = Parameter::new(
    "max_siblings",
    "a write is refused if it leaves this number of versions of its key beside it",
    |config| Setting::Count(&mut config.max_siblings, 1..=100),
);

pub(crate) const PARAMETERS: &[Parameter<QuorumConfig>] = &[
    HEARTBEAT,
    PATIENCE,
    RETRY,
    REMEASURE,
    REPAIR_AFTER,
    EXCHANGE,
    STATUS,
    STATUS_AGE,
    STATUS_COVERS,
];

pub(crate) const SIBLINGS_PARAMETERS: &[Parameter<QuorumConfig>] = &[
    HEARTBEAT,
    PATIENCE,
    RETRY,
    REMEASURE,
    REPAIR_AFTER,
    EXCHANGE,
    MAX_SIBLINGS,
];

const FORGETS_DELETES_EARLY: Bug = Bug::new(
    "forgets_deletes_early",
    "a delete is forgotten before every replica shows it, and the deleted value comes back",
);
const COUNTS_ONE_TOO_MANY: Bug = Bug::new(
    "counts_one_too_many",
    "a write is acknowledged when one replica fewer has it than its level says",
);
const STAMPS_AT_ARRIVAL: Bug = Bug::new(
    "stamps_at_arrival",
    "a read at bounded(t) misses a write that was acknowledged while the answer that seems to prove the bound was under way",
);
const COMPARES_NOTHING: Bug = Bug::new(
    "compares_nothing",
    "a read at bounded(t) misses a write that another replica has acknowledged, and that has not arrived here",
);

pub(crate) const BUGS: &[Bug] = &[
    FORGETS_DELETES_EARLY,
    Bug::new(
        "skips_write_back",
        "an atomic read returns a value that a later read, from another majority, does not find",
    ),
    Bug::new(
        "stamps_without_asking",
        "an atomic write is stamped by a clock alone, below a write that was acknowledged before it began",
    ),
    COUNTS_ONE_TOO_MANY,
    STAMPS_AT_ARRIVAL,
    COMPARES_NOTHING,
    Bug::new(
        "ignores_seen",
        "a session that reads at per-key-sequential at another site is shown an older version than it had seen",
    ),
    Bug::new(
        "trusts_clocks",
        "a read at per-key-sequential counts a status as newer than it is, because the error of clocks is left out",
    ),
    Bug::new(
        "shows_newest",
        "two sessions that read at sequential see two writes of different keys in opposite orders",
    ),
    Bug::new(
        "leaves_one_out",
        "a read at sequential misses a write of a replica that has not said how far it is",
    ),
    Bug::new(
        "guesses_the_past",
        "a read at sequential shows a version that had been replaced, because what was there before the first such read is not known",
    ),
];

pub(crate) const SIBLINGS_BUGS: &[Bug] = &[
    FORGETS_DELETES_EARLY,
    COUNTS_ONE_TOO_MANY,
    STAMPS_AT_ARRIVAL,
    COMPARES_NOTHING,
    Bug::new(
        "replaces_unseen",
        "a write with a context replaces also what its client has not seen",
    ),
    Bug::new(
        "answers_with_newest",
        "a replica answers another one with the newest sibling alone, and the others are taken for replaced",
    ),
    Bug::new(
        "shows_one_sibling",
        "a client is shown one sibling with the context of all, and its next write replaces the others",
    ),
];

impl Bugs {
    /// The bug of this name, to be switched on. `None` if there is none.
    pub fn named(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "forgets_deletes_early" => &mut self.streams.forgets_deletes_early,
            "serves_an_old_directory" => &mut self.streams.serves_an_old_directory,
            "keeps_shown_while_taking_back" => &mut self.streams.keeps_shown_while_taking_back,
            "skips_write_back" => &mut self.skips_write_back,
            "stamps_without_asking" => &mut self.stamps_without_asking,
            "counts_one_too_many" => &mut self.counts_one_too_many,
            "stamps_at_arrival" => &mut self.stamps_at_arrival,
            "compares_nothing" => &mut self.compares_nothing,
            "ignores_seen" => &mut self.ignores_seen,
            "trusts_clocks" => &mut self.trusts_clocks,
            "shows_newest" => &mut self.shows_newest,
            "leaves_one_out" => &mut self.leaves_one_out,
            "guesses_the_past" => &mut self.guesses_the_past,
            "replaces_unseen" => &mut self.replaces_unseen,
            "answers_with_newest" => &mut self.answers_with_newest,
            "shows_one_sibling" => &mut self.shows_one_sibling,
            _ => return None,
        })
    }
}
