use std::str::FromStr;
use thiserror::Error;

/// The longest name, in bytes.
const MAX_BYTES: usize = 64;

/// The form of names of what files define: a cluster, a site, a node, a keyspace, a measure. The text is kept by its [`Word`](crate::Word).
///
/// Names end up in session tokens, metrics, messages, file names and commands typed by people, so only what is
/// harmless in all of them. They begin with a letter so that a number in brackets is always a place in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name;

/// A text that is no name.
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
