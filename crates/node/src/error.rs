use crate::{background::WorkError, lane::ReplayError};
use turnbuckle_log::{LogError, OpenError as LogOpenError};
use turnbuckle_store::EngineError;

/// Why a node cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The commit log.
    #[error("the commit log cannot be opened: {0}")]
    Log(#[from] LogOpenError),
    /// The commit log cannot be written.
    #[error("the commit log cannot be written: {0}")]
    Write(#[from] LogError),
    /// The engine.
    #[error("the store cannot be opened: {0}")]
    Engine(#[from] EngineError),
    /// A store.
    #[error("the store of keyspace '{keyspace}', partition {partition}, cannot be opened: {why}")]
    Store {
        /// The keyspace.
        keyspace: String,
        /// Which.
        partition: u16,
        /// Why.
        why: String,
    },
    /// Something in a store is damaged.
    #[error("the store of keyspace '{keyspace}', partition {partition}, is damaged: {why}")]
    Damaged {
        /// The keyspace.
        keyspace: String,
        /// Which.
        partition: u16,
        /// What could not be read.
        why: String,
    },
    /// A record.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The first checkpoint of a keyspace.
    #[error("a keyspace that is new here cannot be written: {0}")]
    Checkpoint(#[from] WorkError),
    /// Two names with the same tag.
    #[error(
        "the keyspaces '{0}' and '{1}' cannot stand in one cluster: their names have the same checksum; rename one"
    )]
    SameTag(String, String),
}

impl OpenError {
    /// Whether rows on the disk are damaged: the engine is to be salvaged, and the node opened again.
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
