use crate::Position;
use std::io;
use thiserror::Error;
use turnbuckle_core::BadFrame;

/// Why a log cannot be opened. Nothing on the disk was changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The disk failed.
    #[error("the disk failed: {0}")]
    Disk(#[from] io::Error),
    /// A file is not what its name says: it belongs to another node, has a newer format, or is no segment at all.
    #[error("{file}: expected {expected}, found {found}")]
    Header {
        /// The file's name.
        file: String,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// Bytes that were safely on disk are damaged.
    #[error(
        "{file}, byte {offset}: expected {expected}, found damage; this was once safely on disk, so the disk is failing or \
         the file was changed. Start this node with an empty data directory: its peers hold its data. The node may refuse an older copy \
         of the directory"
    )]
    Damaged {
        /// The file's name.
        file: String,
        /// The place of the damage: an offset in the file, in bytes.
        offset: u64,
        /// What was expected.
        expected: &'static str,
    },
    /// A segment is missing, or the log begins too late or ends too early for the caller.
    #[error(
        "expected the commit log to have {expected}, found that it has {found}; so files are missing, or older than others. Start this \
         node with an empty data directory: its peers hold its data. The node may refuse an older copy of the directory"
    )]
    Missing {
        /// What is needed.
        expected: String,
        /// What there is.
        found: String,
    },
    /// An intact record does not decode.
    #[error("{file}, record {position}: {source}")]
    Record {
        /// The file's name.
        file: String,
        /// The position of the record.
        position: Position,
        /// The error of the decoder.
        source: BadFrame,
    },
}

/// Why a write or a sync failed.
#[derive(Debug, Clone, Error)]
pub enum LogError {
    /// The write failed and was undone. The records are still pending. The write may be tried again, for example when there is
    /// room.
    #[error("the commit log could not be written: {0}")]
    NotWritten(String),
    /// An earlier failure left the log in an unknown state. Only opening it again helps.
    #[error("the commit log failed and accepts no more records: {0}")]
    Poisoned(String),
}

/// Why records could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The position was purged. The log begins later.
    #[error("the commit log begins at {start}")]
    Purged {
        /// The beginning of the log.
        start: Position,
    },
    /// The disk failed, what it holds is damaged, or no record begins at the position.
    #[error("the commit log could not be read back at {position}: {why}")]
    Failed {
        /// The position that was read.
        position: Position,
        /// The reason, as text.
        why: String,
    },
}
