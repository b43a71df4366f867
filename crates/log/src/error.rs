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
    /// A file is not what its name says: of another node, a newer format, or another file altogether.
    #[error("{file}: expected {expected}, found {found}")]
    Header {
        /// The file.
        file: String,
        /// What would have been understood.
        expected: String,
        /// What was there.
        found: String,
    },
    /// Something that was safely on disk is damaged.
    #[error(
        "{file}, byte {offset}: expected {expected}, found damage; this was once safely on disk, so the disk is failing or \
         the file was changed. Start this node with an empty data directory: its peers hold its data. A copy of it from before may be \
         refused"
    )]
    Damaged {
        /// The file.
        file: String,
        /// Where in it, in bytes.
        offset: u64,
        /// What was expected.
        expected: &'static str,
    },
    /// A segment is missing, or the log does not reach back or on to where it is needed.
    #[error(
        "expected the commit log to have {expected}, found that it has {found}; so files are missing, or older than others. Start this \
         node with an empty data directory: its peers hold its data. A copy of it from before may be refused"
    )]
    Missing {
        /// What is needed.
        expected: String,
        /// What there is.
        found: String,
    },
    /// An intact record means nothing to its reader.
    #[error("{file}, record {position}: {source}")]
    Record {
        /// The file.
        file: String,
        /// The record.
        position: Position,
        /// What its reader says.
        source: BadFrame,
    },
}

/// Why something could not be written or synced.
#[derive(Debug, Clone, Error)]
pub enum LogError {
    /// The write failed and was taken back; what was pending still is. It may be tried again, say when there is room.
    #[error("the commit log could not be written: {0}")]
    NotWritten(String),
    /// An earlier failure left the log in a state that cannot be known. Only opening it anew helps.
    #[error("the commit log failed and takes nothing more: {0}")]
    Poisoned(String),
}

/// Why something could not be read back.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It was purged; the log begins later.
    #[error("the commit log begins at {start}")]
    Purged {
        /// Where it begins.
        start: Position,
    },
    /// The disk failed, what it holds is damaged, or no record begins at the position.
    #[error("the commit log could not be read back at {position}: {why}")]
    Failed {
        /// Where.
        position: Position,
        /// Why.
        why: String,
    },
}
