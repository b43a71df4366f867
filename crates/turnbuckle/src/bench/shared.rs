//! The state that all clients of a run share. They are tasks of one thread, so cells suffice.

use super::{
    clock::Clock,
    tally::Tally,
    target::{Greeting, Target},
};
use std::cell::{Cell, RefCell};
use tokio::sync::watch;
use turnbuckle_workload::{Arrival, Population};

/// The shared state: see the module.
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) targets: Vec<Target>,
    pub(crate) greeting: Greeting,
    pub(crate) clients: u16,
    /// How many operations a client may have under way at once.
    pub(crate) pipeline: usize,
    /// How long an answer may take.
    pub(crate) timeout_ns: u64,
    /// For how long, from its first try, an operation that failed is tried again. 0: not at all.
    pub(crate) retry_ns: u64,
    pub(crate) roams: bool,
    pub(crate) arrival: Arrival,
    /// A tag that distinguishes the sessions of this run from those of other runs that are checked together with it.
    pub(crate) run: String,
    pub(crate) tally: RefCell<Tally>,
    pub(crate) population: RefCell<Population>,
    /// When the phase began, by the clock.
    pub(crate) begin_ns: Cell<u64>,
    /// When it ends, if it ends by time.
    pub(crate) end_ns: Cell<Option<u64>>,
    /// How many more steps may begin, if it ends by count.
    pub(crate) steps_left: Cell<Option<u64>>,
    /// Becomes true when all clients should end before that.
    pub(crate) stop: watch::Sender<bool>,
}

impl Shared {
    /// Whether no new operation may begin.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        *self.stop.borrow() || self.end_ns.get().is_some_and(|end_ns| now_ns >= end_ns)
    }

    /// Takes one of the steps that are left. False if there is none.
    pub(crate) fn take_step(&self) -> bool {
        match self.steps_left.get() {
            None => true,
            Some(0) => false,
            Some(left) => {
                self.steps_left.set(Some(left - 1));
                true
            }
        }
    }

    /// Ends the phase.
    pub(crate) fn stop_all(&self) {
        self.stop.send_replace(true);
    }
}
