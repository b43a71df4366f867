//! Reads that reflect every write acknowledged before they began.
//!
//! A leader that was deposed does not know it at once. If it answered reads because it believes to lead, it would show old data. So it answers in one of two
//! ways:
//!
//! **By a round** (ReadIndex, section 6.4 of the dissertation). The leader notes the index up to which entries are committed, and sends heartbeats. When a
//! majority has answered *these* heartbeats, no other leader had been elected when they were sent. Everything that was acknowledged before the round began is at
//! or below that index. A read waits until the entries up to there are applied. One round serves all reads that came before it began. A leader must have committed an entry of its own term first: until then it
//! does not know what its predecessors have committed.
//!
//! **By the lease** that a round gives. A replica that has heard from a leader takes no part in elections for a whole election timeout: it drops requests for its vote, and asks for none. So
//! from the *departure* of a round's heartbeats on, no other leader can be elected for that long: a majority has heard them later than they left. Meanwhile the leader reads what it has applied, and asks nobody.
//! The replica counts time, not ticks. raft-rs has a rule like this one, and it is not enough: it counts ticks, and it forgets the leader when any message of a higher term arrives.
//!
//! ```text
//!   leader     |- round leaves -- lease: election x (1 - drift) --------|
//!   follower         |- hears ------- no elections for `election` ----------------|
//! ```
//!
//! **What the lease rests on.**
//!
//! - Clocks run at rates that differ by at most [`Timing::drift`](crate::Timing::drift). Only rates count; clocks may be set at will, because both
//!   ends count monotonic time, which goes on while a machine sleeps.
//! - A replica that was restarted may have heard the leader just before. So it takes no part in elections for one election timeout after each start.
//! - **A leader that hands its leadership over gives up its lease first**, for the rest of its term. Then the others vote at once, because the candidate says that its leader
//!   wants it (section 3.10 of the dissertation).
use turnbuckle_core::Micros;

/// A round that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    pub number: u64,
    /// When its heartbeats left.
    pub began: Micros,
    pub term: u64,
}

/// The lease that the last round gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lease {
    term: u64,
    until: Micros,
}

impl Lease {
    /// A round of this term has ended.
    pub fn extend(&mut self, term: u64, until: Micros) {
        let before = if self.term == term { self.until } else { Micros(0) };
        *self = Lease {
            term,
            until: until.max(before),
        };
    }

    /// Whether it lasts, in this term.
    pub fn lasts(&self, term: u64, now: Micros) -> bool {
        self.term == term && now < self.until
    }
}
