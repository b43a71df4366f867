use turnbuckle_core::BadFrame;
use turnbuckle_log::{LogError, OpenError as LogOpenError};
use turnbuckle_store::{EngineError, StoreError};

/// Why a node cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The commit log cannot be opened.
    #[error("the commit log cannot be opened: {0}")]
    Log(#[from] LogOpenError),
    /// The commit log cannot be written.
    #[error("the commit log cannot be written: {0}")]
    Write(#[from] LogError),
    /// The engine failed.
    #[error("the store cannot be opened: {0}")]
    Engine(#[from] EngineError),
    /// The store of a lane cannot be opened.
    #[error("the store of keyspace '{keyspace}', partition {partition}, cannot be opened: {why}")]
    Store {
        /// The keyspace's name.
        keyspace: String,
        /// The partition's number.
        partition: u16,
        /// The reason, as text.
        why: String,
    },
    /// Rows of a lane's store are damaged.
    #[error("the store of keyspace '{keyspace}', partition {partition}, is damaged: {why}")]
    Damaged {
        /// The keyspace's name.
        keyspace: String,
        /// The partition's number.
        partition: u16,
        /// What could not be read.
        why: String,
    },
    /// A record of the log could not be replayed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The first checkpoint of a keyspace failed.
    #[error("the first checkpoint of a keyspace that is new on this node failed: {0}")]
    Checkpoint(#[from] WorkError),
    /// Two keyspaces have names with the same tag.
    #[error(
        "the keyspaces '{0}' and '{1}' cannot be in one cluster: their names have the same checksum; rename one"
    )]
    SameTag(String, String),
}

impl OpenError {
    /// Whether rows on the disk are damaged. If so, salvage the engine and open the node again.
    pub fn is_damage(&self) -> bool {
        match self {
            OpenError::Engine(error) => error.is_damage(),
            OpenError::Damaged { .. } => true,
            OpenError::Replay(ReplayError::Store(error)) => error.is_damage(),
            OpenError::Checkpoint(error) => error.is_damage(),
            _ => false,
        }
    }
}

/// Why a record could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The record does not decode.
    #[error("a record of the log does not decode: {0}")]
    Record(#[from] BadFrame),
    /// A key that the record names cannot be read.
    #[error("a key named in the log cannot be read: {0}")]
    Store(#[from] StoreError),
    /// The journal of a partition has a gap.
    #[error(
        "the journal of keyspace '{keyspace}', partition {partition}, lacks entry {index}: move the data directory away and start the \
         node: its peers send it everything"
    )]
    Journal {
        /// The keyspace's name.
        keyspace: String,
        /// The partition's number.
        partition: u16,
        /// The index of the first entry that is missing.
        index: u64,
    },
}

/// Background work that failed. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The commit log failed.
    #[error("the commit log: {0}")]
    Log(#[from] LogError),
    /// The engine failed.
    #[error("the engine: {0}")]
    Engine(#[from] EngineError),
    /// A row could not be read.
    #[error("the store: {0}")]
    Store(#[from] StoreError),
    /// Rows are damaged, and peers have them. Salvage the engine and open the node again.
    #[error(
        "rows of keyspace '{keyspace}', partition {partition}, are damaged on disk, and will be taken from other sites: {why}"
    )]
    Damaged {
        /// The keyspace's name.
        keyspace: String,
        /// The partition's number.
        partition: u16,
        /// What could not be read.
        why: String,
    },
}

impl WorkError {
    /// Whether something on the disk is damaged.
    pub fn is_damage(&self) -> bool {
        match self {
            WorkError::Log(_) => false,
            WorkError::Engine(error) => error.is_damage(),
            WorkError::Store(error) => error.is_damage(),
            WorkError::Damaged { .. } => true,
        }
    }

    /// Whether trying again is of no use: the node has to be opened again.
    pub fn is_final(&self) -> bool {
        match self {
            WorkError::Log(error) => matches!(error, LogError::Poisoned(_)),
            WorkError::Engine(error) | WorkError::Store(StoreError::Engine(error)) => error.is_final(),
            WorkError::Store(StoreError::BadRow { .. }) => false,
            WorkError::Damaged { .. } => true,
        }
    }
}
