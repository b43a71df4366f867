use std::str::FromStr;
use thiserror::Error;

/// The longest name, in bytes.
const MAX_BYTES: usize = 64;

/// The form of the names that files define: of a cluster, a site, a node, a keyspace, a measure. A [`Word`](crate::Word) keeps
/// the text.
///
/// Names are used in session tokens, metrics, messages, file names and commands that people type. So they have only characters
/// that are harmless in all of these. They begin with a letter, so that a number in brackets is always a place in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name;

/// A text that is not a valid name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected a name: a letter, then letters, digits, '-' or '_', at most {MAX_BYTES} in all")]
pub struct BadName;

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Name, BadName> {
        let of_name = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        let is_name = text.len() <= MAX_BYTES
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(of_name);
        is_name.then_some(Name).ok_or(BadName)
    }
}
