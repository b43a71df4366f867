//! What happens in the background: fetches, checkpoints, and full copies that are put in place.
//!
//! All of it works in small steps under a lane's lock, and reads and writes disks between them, without it. What somebody else may do
//! between two steps is said where it matters; [`crate::steps`] has the mechanism.
mod checkpoint;
pub(crate) use checkpoint::Retention;
mod fetch;
mod placing;

use turnbuckle_log::LogError;
use turnbuckle_store::{EngineError, StoreError};

/// How many bytes of rows are read at a time.
const PAGE_BYTES: usize = 1 << 20;

/// Background work that could not be done. It is tried again.
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
    /// Rows are damaged, and peers have them: the node is to be opened anew, and the engine salvaged before that.
    #[error(
        "rows of keyspace '{keyspace}', partition {partition}, are damaged on disk, and are to be taken from other sites: {why}"
    )]
    Damaged {
        /// The keyspace.
        keyspace: String,
        /// Which.
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
