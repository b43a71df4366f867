//! Shows on a terminal how far long work is.
use crate::failure::show;
use std::{
    io::IsTerminal,
    sync::atomic::{AtomicU64, Ordering},
};

/// A line on standard error that is written again and again, and removed at the end. If standard error is not a terminal, nothing is written.
pub struct Progress {
    what: String,
    count: u64,
    done: AtomicU64,
    is_watched: bool,
}

impl Progress {
    /// The progress of `count` runs of something. One run is over too soon to be shown.
    pub fn new(what: impl Into<String>, count: u64) -> Progress {
        Progress {
            what: what.into(),
            count,
            done: AtomicU64::new(0),
            is_watched: count > 1 && std::io::stderr().is_terminal(),
        }
    }

    /// Counts one more run as done.
    pub fn step(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is_watched {
            show(&format!("\r{}: {done} of {} runs", self.what, self.count));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_watched {
            show("\r\x1b[2K");
        }
    }
}
