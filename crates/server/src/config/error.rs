use std::{fmt, io, path::PathBuf};
use thiserror::Error;

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file could not be read: the world failed.
    #[error("{}: cannot be read: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file says something wrong: whoever wrote it did.
    #[error(transparent)]
    Wrong(#[from] WrongConfig),
}

/// What is wrong in a configuration file, where, and what would have been right. Printed in one line:
///
/// ```text
/// cluster.toml:12: node[a1].resp: found "127.0.0.1"; expected host:port, such as "127.0.0.1:7001"
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct WrongConfig {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The field from the top, such as `node[a1].resp`; elements of a list by their name, or else by their place
    /// from 1. Empty if the file is not even TOML.
    pub field: String,
    /// What stands there. Never the secret.
    pub found: String,
    /// What should have stood there.
    pub expected: String,
}

impl fmt::Display for WrongConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file.display(), self.line)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "found {}; expected {}", self.found, self.expected)
    }
}
