//! The benchmark's clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// One monotonic clock for all clients of a run, in nanoseconds since it was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
    /// What the wall clock showed at the origin, in nanoseconds since 1970.
    wall_origin_ns: i64,
}

impl Clock {
    /// A clock that begins now.
    pub(crate) fn new() -> Clock {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock {
            origin: Instant::now(),
            wall_origin_ns: i64::try_from(since_epoch.as_nanos()).unwrap_or(0),
        }
    }

    /// The time that it shows.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A time of this clock as a trace has it: still monotonic, but counted from 1970, so that traces of several recorders
    /// can be compared as precisely as their wall clocks agreed when they began, and with the stamps of versions.
    pub(crate) fn trace_ns(&self, at_ns: u64) -> i64 {
        self.wall_origin_ns
            .saturating_add(i64::try_from(at_ns).unwrap_or(i64::MAX))
    }
}
