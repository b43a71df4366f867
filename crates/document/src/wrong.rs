use std::{fmt, ops::Range, path::PathBuf};
use thiserror::Error;

/// An error in a file: where it is, what was found, and what was expected. Printed in one line:
///
/// ```text
/// cluster.toml:12: node[a1].resp: found "127.0.0.1"; expected host:port, such as "127.0.0.1:7001"
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct WrongFile {
    /// The file's path.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The path of the field, such as `node[a1].resp`. Elements of a list are named by their name, or otherwise by their place
    /// from 1. Empty if the file is not even TOML.
    pub field: String,
    /// What is there. Never a secret.
    pub found: String,
    /// What was expected there.
    pub expected: String,
}

impl fmt::Display for WrongFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file.display(), self.line)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "found {}; expected {}", self.found, self.expected)
    }
}

/// An error at a place of a text. The [`Document`](crate::Document) knows which line and which field that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misplaced {
    /// The place in bytes. Empty at the beginning: the whole file.
    pub(crate) place: Range<usize>,
    /// The path from the table at that place to a field that is there or should be. Empty: the error is about the place itself.
    pub(crate) below: Vec<String>,
    pub(crate) found: String,
    pub(crate) expected: String,
}

impl Misplaced {
    /// An error: what is at a place is not what was expected there.
    pub fn at(place: Range<usize>, found: impl Into<String>, expected: impl Into<String>) -> Misplaced {
        Misplaced {
            place,
            below: Vec::new(),
            found: found.into(),
            expected: expected.into(),
        }
    }

    /// An error about a field of the table at a place, whether the field is there or not.
    pub fn of_field(
        table: Range<usize>,
        way: &[&str],
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Misplaced {
        Misplaced {
            below: way.iter().copied().map(String::from).collect(),
            ..Misplaced::at(table, found, expected)
        }
    }

    /// The same, with what was found and what was expected taken from an error's text.
    pub fn because(table: Range<usize>, way: &[&str], error: impl fmt::Display) -> Misplaced {
        let (found, expected) = split(&error.to_string());
        Misplaced::of_field(table, way, found, expected)
    }

    /// An error: the table at a place lacks a field.
    pub fn missing(table: Range<usize>, field: &str, expected: impl Into<String>) -> Misplaced {
        Misplaced::of_field(table, &[field], "nothing", expected)
    }
}

/// Splits `found X; expected Y`, or similar texts of errors, into the two parts. A part that is not there is empty.
pub(crate) fn split(message: &str) -> (String, String) {
    let message = message.trim().replace('\n', " ");
    let parts = message
        .split_once("; expected ")
        .or_else(|| message.split_once(", expected "))
        .or_else(|| Some(("", message.strip_prefix("expected ")?)));
    let (found, expected) = parts.unwrap_or((&message, ""));
    let found = found.strip_prefix("found ").unwrap_or(found);
    (found.into(), expected.into())
}

/// Text as it is in the file, in quotes, and shortened for a message.
pub fn quote(text: &str) -> String {
    let start = shorten(text, 80);
    match start.len() < text.len() {
        true => format!("{start:?}.."),
        false => format!("{start:?}"),
    }
}

/// The first `max` characters of a text.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}
