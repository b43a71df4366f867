//! What a client of a small world does, one operation after the other.
use bytes::Bytes;
use std::{fmt, str::FromStr};
use turnbuckle_core::{Key, Operation};

/// A client: the site where it begins, and what it does. Written as `a put x, get y, move b, get x`.
///
/// It does the next thing when its operation was answered, or when its node has ended. A value that it writes is its own number, a letter,
/// and the place of the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The site where it begins.
    pub site: String,
    /// What it does.
    pub actions: Vec<Action>,
}

/// One thing that a client does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Reads a key.
    Get(String),
    /// Writes a key.
    Put(String),
    /// Deletes a key.
    Del(String),
    /// Reads several keys.
    Mget(Vec<String>),
    /// Goes on at another site, with its session.
    Move(String),
}

/// The most actions of a client.
const MAX_ACTIONS: usize = 16;

const EXPECTED: &str = "expected a site and operations with commas between them, such as 'a put x, get y'";

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Program, String> {
        let bad = || format!("{EXPECTED}; found '{text}'");
        let (site, rest) = text.trim().split_once(char::is_whitespace).ok_or_else(bad)?;
        let actions: Vec<Action> = rest.split(',').map(Action::from_str).collect::<Result<_, _>>()?;
        match actions.len() > MAX_ACTIONS {
            true => Err(format!(
                "{} operations; expected at most {MAX_ACTIONS} of one client",
                actions.len()
            )),
            false => Ok(Program {
                site: site.into(),
                actions,
            }),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let actions: Vec<String> = self.actions.iter().map(Action::to_string).collect();
        write!(f, "{} {}", self.site, actions.join(", "))
    }
}

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Action, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(match words.as_slice() {
            ["get", key] => Action::Get((*key).into()),
            ["put", key] => Action::Put((*key).into()),
            ["del", key] => Action::Del((*key).into()),
            ["move", site] => Action::Move((*site).into()),
            ["mget", keys @ ..] if !keys.is_empty() => {
                Action::Mget(keys.iter().map(|&key| key.to_string()).collect())
            }
            _ => {
                return Err(format!(
                    "expected 'get KEY', 'put KEY', 'del KEY', 'mget KEY KEY ..' or 'move SITE'; found '{}'",
                    text.trim()
                ));
            }
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Get(key) => write!(f, "get {key}"),
            Action::Put(key) => write!(f, "put {key}"),
            Action::Del(key) => write!(f, "del {key}"),
            Action::Mget(keys) => write!(f, "mget {}", keys.join(" ")),
            Action::Move(site) => write!(f, "move {site}"),
        }
    }
}

impl Action {
    /// The operation that is asked for; `None` for a move.
    pub(super) fn operation(&self, client: usize, place: usize) -> Option<Operation> {
        let key = |key: &String| Key::from(key.as_str());
        Some(match self {
            Action::Get(name) => Operation::Get {
                key: key(name),
                level: None,
            },
            Action::Put(name) => Operation::put(key(name), Bytes::from(format!("{client}v{place}"))),
            Action::Del(name) => Operation::delete(key(name)),
            Action::Mget(names) => Operation::ReadMany {
                keys: names.iter().map(key).collect(),
                level: None,
            },
            Action::Move(_) => return None,
        })
    }
}
