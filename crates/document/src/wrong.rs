use std::{fmt, ops::Range, path::PathBuf};
use thiserror::Error;

/// What is wrong in a file, where, and what would have been right. Printed in one line:
///
/// ```text
/// cluster.toml:12: node[a1].resp: found "127.0.0.1"; expected host:port, such as "127.0.0.1:7001"
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct WrongFile {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The field from the top, such as `node[a1].resp`; elements of a list by their name, or else by their place
    /// from 1. Empty if the file is not even TOML.
    pub field: String,
    /// What stands there. Never a secret.
    pub found: String,
    /// What should have stood there.
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

/// Something is wrong at a place of a text. The [`Document`](crate::Document) knows which line and which field that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misplaced {
    /// In bytes. Empty at the beginning: the whole file.
    pub(crate) place: Range<usize>,
    /// The way from the table at that place to a field that is there or should be. Empty: it is about the place itself.
    pub(crate) below: Vec<String>,
    pub(crate) found: String,
    pub(crate) expected: String,
}

impl Misplaced {
    /// What stands at a place is not what was expected there.
    pub fn at(place: Range<usize>, found: impl Into<String>, expected: impl Into<String>) -> Misplaced {
        Misplaced {
            place,
            below: Vec::new(),
            found: found.into(),
            expected: expected.into(),
        }
    }

    /// The same of a field of the table at a place, whether it is there or not.
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

    /// The same, of which an error says what was found and what was expected.
    pub fn because(table: Range<usize>, way: &[&str], error: impl fmt::Display) -> Misplaced {
        let (found, expected) = split(&error.to_string());
        Misplaced::of_field(table, way, found, expected)
    }

    /// The table at a place lacks a field.
    pub fn missing(table: Range<usize>, field: &str, expected: impl Into<String>) -> Misplaced {
        Misplaced::of_field(table, &[field], "nothing", expected)
    }
}

/// Takes `found X; expected Y`, or what else errors make of it, apart. What they do not say is empty.
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

/// Text as it stood in the file, cut to a length that fits a message.
pub fn quote(text: &str) -> String {
    let start = shorten(text, 80);
    match start.len() < text.len() {
        true => format!("{start:?}.."),
        false => format!("{start:?}"),
    }
}

/// At most so many characters of it.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}
