//! What was done to the nodes, and what it excuses.
use crate::fault::Kind;
use serde::Serialize;

/// A fault that was carried out, or left out.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// When it began, in seconds since the campaign did.
    pub at_seconds: f64,
    /// When all was right again.
    pub until_seconds: f64,
    /// Of which kind.
    pub kind: Kind,
    /// What was done.
    pub what: String,
    /// Why it was left out, if it was.
    pub left_out: Option<&'static str>,
}

/// A node lost what it had acknowledged and not handed on, in this span of the recorder's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Which node.
    pub node: usize,
    /// Up to here everything was elsewhere too.
    pub from_ns: i64,
    /// When it was killed.
    pub to_ns: i64,
}

/// A clock was further off than its node believes, in this span of the recorder's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongClock {
    /// When it began.
    pub from_ns: i64,
    /// When all that was said under it is over.
    pub to_ns: i64,
}

/// What the operator noted.
#[derive(Debug, Default)]
pub struct Notes {
    /// All faults.
    pub events: Vec<Event>,
    /// What may be lost.
    pub losses: Vec<Loss>,
    /// When receipts need not be true.
    pub wrong_clocks: Vec<WrongClock>,
    /// Promises of starts that were broken.
    pub broken: Vec<String>,
}
