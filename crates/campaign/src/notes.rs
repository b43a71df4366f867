//! Records of the faults, and what they excuse.
use crate::fault::Kind;
use serde::Serialize;

/// A fault that was carried out, or left out.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// When it began, in seconds since the campaign began.
    pub at_seconds: f64,
    /// When everything was right again, in seconds since the campaign began.
    pub until_seconds: f64,
    /// The kind of the fault.
    pub kind: Kind,
    /// What was done, as text.
    pub what: String,
    /// The reason why it was left out, if it was.
    pub left_out: Option<&'static str>,
}

/// A node lost what it had acknowledged and not handed on, in this span of the recorder's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The node.
    pub node: usize,
    /// Everything that it had acknowledged up to here was at another site, too.
    pub from_ns: i64,
    /// When the node was killed.
    pub to_ns: i64,
}

/// A clock was further off than its node believes, in this span of the recorder's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongClock {
    /// When that began.
    pub from_ns: i64,
    /// When every claim that was made under it is over.
    pub to_ns: i64,
}

/// The operator's notes.
#[derive(Debug, Default)]
pub struct Notes {
    /// All faults.
    pub events: Vec<Event>,
    /// Spans in which acknowledged writes may have been lost.
    pub losses: Vec<Loss>,
    /// Spans in which receipts need not be true.
    pub wrong_clocks: Vec<WrongClock>,
    /// Promises about starts that were broken.
    pub broken: Vec<String>,
}
