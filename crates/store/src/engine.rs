use bytes::Bytes;
use std::{error::Error, sync::Arc};
use thiserror::Error;

/// A place that keeps tables of rows on a disk, or simulates one.
///
/// The store needs little of an engine: atomic batches, snapshots, ordered ranges, and a call that makes everything
/// survive. No acknowledgement waits for an engine, so its throughput matters much and its latency little.
/// [`crate::engine_suite`] says exactly what is expected.
pub trait Engine: Send + Sync {
    /// Opens a table, which is created if it does not exist. If it is opened twice, both are the same table.
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError>;

    /// Removes a table with all its rows. Nothing happens if there is none. Handles and snapshots of it must not be
    /// used any more: what they answer is not specified, except that they do not panic.
    fn remove_table(&self, name: &str) -> Result<(), EngineError>;

    /// The names of all tables, sorted.
    fn table_names(&self) -> Result<Vec<String>, EngineError>;

    /// Returns when everything that was applied so far, to all tables, survives a power loss. Without it a crash may
    /// lose the last batches, but never one in the middle: what is left is always a prefix.
    fn persist(&self) -> Result<(), EngineError>;

    /// Many rows were removed from a table: frees their space on disk if the engine can, and if merging the table fits
    /// into `free_bytes`. The content of the table does not change. It may take as long as reading and writing all of
    /// the table. Returns false if a later call may free more: the table is still being written, or a snapshot of it is
    /// still in use.
    fn reclaim(&self, _table: &str, _free_bytes: u64) -> Result<bool, EngineError> {
        Ok(true)
    }

    /// Something in the engine cannot be read: it is to be looked through before it is opened the next time.
    fn suspect(&self) -> Result<(), EngineError>;
}

/// One table of an [`Engine`]: an ordered map from bytes to bytes.
pub trait Table: Send + Sync {
    /// The row's value as of now.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// Applies all writes or none, in order: of two writes to one row the later wins. They are visible when this
    /// returns. After an error they may have been applied or not.
    fn apply(&self, batch: Vec<TableWrite>) -> Result<(), EngineError>;

    /// The caller applies no more batches for now. The engine may write rows that are only in memory and in its journal to files, and free that memory. The content of the table does not change.
    fn rest(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// The table at this instant. It does not change, however long it is read.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, EngineError>;
}

/// A table as it was at one instant. Old files and rows stay on disk until it is dropped: do not keep it.
pub trait Snapshot: Send + Sync {
    /// The row's value at that instant.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError>;

    /// The rows from `from` (inclusive) until `until` (exclusive) in the order of their keys, as many as fit into
    /// `max_rows` and `max_bytes` (of keys and values), but at least one if there is one. So an empty answer says that
    /// there are no more rows. A short answer does not.
    fn range(
        &self,
        from: &[u8],
        until: &[u8],
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, EngineError>;
}

/// One write to one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableWrite {
    /// The row's key; at most 65,535 bytes.
    pub key: Bytes,
    /// The new value (below 4 GiB), or `None` to remove the row.
    pub value: Option<Bytes>,
}

impl TableWrite {
    /// The longest key of a row that every engine takes, in bytes.
    pub const LONGEST_KEY_BYTES: usize = u16::MAX as usize;

    /// Writes a row.
    pub fn put(key: Bytes, value: Bytes) -> TableWrite {
        TableWrite {
            key,
            value: Some(value),
        }
    }

    /// Removes a row, if it is there.
    pub fn delete(key: Bytes) -> TableWrite {
        TableWrite { key, value: None }
    }

    /// Checks the limits that all engines share, so that no engine meets a row that makes it panic.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let value_bytes = self.value.as_ref().map_or(0, Bytes::len);
        let fits = !self.key.is_empty()
            && self.key.len() <= TableWrite::LONGEST_KEY_BYTES
            && value_bytes < u32::MAX as usize;
        if fits {
            return Ok(());
        }
        Err(EngineError::TooLarge {
            key_bytes: self.key.len(),
            value_bytes,
        })
    }
}

/// A failure below the store: of a disk, a file system or an engine.
#[derive(Debug, Error)]
pub enum EngineError {
    /// An operation failed. After a failed write, the write may have happened or not.
    #[error("the storage engine failed while it {during}: {source}")]
    Failed {
        /// The operation that failed, as in "the engine failed while it ...".
        during: &'static str,
        /// The error of the engine.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A write or a sync failed, and the engine takes no more writes until it is opened again: its memory may be ahead
    /// of its files. What was persisted before is safe.
    #[error(
        "the storage engine takes no more writes, since it failed while it {during} (a full disk, or a damaged table that it was to merge): {source}. \
         Start this node again: nothing acknowledged is lost, and damaged rows are taken from other sites"
    )]
    Broken {
        /// The operation that failed.
        during: &'static str,
        /// The error of the engine.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The disk does not hold what was written there. Reading it again does not help. What can still be read is
    /// correct.
    #[error("the storage engine found damage while it {during}: {source}")]
    Damaged {
        /// The operation that found it.
        during: &'static str,
        /// The error of the engine.
        source: Box<dyn Error + Send + Sync>,
    },
    /// No engine accepts this table name. Nothing happened.
    #[error("a table name has 1 to 255 bytes, this one has {found_bytes}")]
    BadName {
        /// The length of the name in bytes.
        found_bytes: usize,
    },
    /// A row beyond the limits of engines: an empty key, a key over 65,535 bytes, or a value of 4 GiB or more. Nothing
    /// happened.
    #[error(
        "a row has a key of 1 to 65535 bytes and a value below 4 GiB, this one has {key_bytes} and {value_bytes} bytes"
    )]
    TooLarge {
        /// The key's length in bytes.
        key_bytes: usize,
        /// The value's length in bytes.
        value_bytes: usize,
    },
}

impl EngineError {
    /// Whether only opening the engine again can help.
    pub fn is_final(&self) -> bool {
        matches!(self, EngineError::Broken { .. })
    }

    /// Whether what is on the disk is damaged.
    pub fn is_damage(&self) -> bool {
        matches!(self, EngineError::Damaged { .. })
    }

    pub(crate) fn damaged(
        during: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> EngineError {
        EngineError::Damaged {
            during,
            source: source.into(),
        }
    }

    pub(crate) fn broken(
        during: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> EngineError {
        EngineError::Broken {
            during,
            source: source.into(),
        }
    }

    pub(crate) fn failed(
        during: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> EngineError {
        EngineError::Failed {
            during,
            source: source.into(),
        }
    }
}

/// Checks a table's name against the limits that all engines share.
pub(crate) fn check_name(name: &str) -> Result<(), EngineError> {
    if (1..=255).contains(&name.len()) {
        Ok(())
    } else {
        Err(EngineError::BadName {
            found_bytes: name.len(),
        })
    }
}
