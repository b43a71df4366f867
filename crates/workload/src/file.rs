use serde::de::DeserializeOwned;
use std::ops::Range;
use thiserror::Error;

/// A TOML file that does not describe what it should.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{line}:{column}: {message}")]
pub struct BadFile {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    /// What was found, and what was expected.
    pub message: String,
}

/// A place in a text, in bytes, and what is wrong there.
pub type Misplaced = (Range<usize>, String);

impl BadFile {
    /// Reads a text as TOML.
    ///
    /// # Errors
    /// Where it is none, or not what is expected.
    pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, BadFile> {
        toml::from_str(text).map_err(|error| {
            let place = error.span().unwrap_or(0..0);
            BadFile::at(text, place, error.message())
        })
    }

    /// Something is wrong at a place of a text.
    pub fn at(text: &str, place: Range<usize>, message: &str) -> BadFile {
        let before = text.get(..place.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        BadFile {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.trim().replace('\n', "; "),
        }
    }
}
