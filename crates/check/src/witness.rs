//! Operations that together show that a promise was broken.
//!
//! Every analysis that says *no* can say why: it names the few operations that suffice, and how one leads to the next. They
//! are drawn by code that has the names.

/// A small set of operations that cannot be explained, and the argument.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Witness {
    /// Places in [`crate::History::operations`], in the order of the argument.
    pub operations: Vec<usize>,
    /// What leads from one of them to another; a cycle, where order is what is broken.
    pub edges: Vec<Edge>,
}

/// One operation comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The earlier: a place in [`crate::History::operations`].
    pub from: usize,
    /// The later.
    pub to: usize,
    /// The reason.
    pub because: Because,
}

/// Why one operation comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Because {
    /// The same client did it before.
    Session,
    /// It wrote what the other read.
    ReadsFrom,
    /// It was over before the other began.
    RealTime,
    /// Its value's version is the older one.
    Version,
    /// A write that must be older than another one of its key: a client that could have seen it read the other.
    Conflict,
    /// It read what was there before the other's write.
    Overwritten,
}
