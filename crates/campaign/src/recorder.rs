//! The one clock of all clients of a campaign and of its operator: monotonic, in nanoseconds since 1970, counted from the machine's time
//! when the campaign began.
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The clock: see the module.
#[derive(Debug, Clone, Copy)]
pub struct Recorder {
    origin: Instant,
    origin_ns: i64,
}

impl Recorder {
    /// A clock that begins now.
    pub fn start() -> Recorder {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Recorder {
            origin: Instant::now(),
            origin_ns: i64::try_from(since.as_nanos()).unwrap_or(0),
        }
    }

    /// The time, in nanoseconds.
    pub fn now_ns(&self) -> i64 {
        let since = i64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(i64::MAX);
        self.origin_ns.saturating_add(since)
    }

    /// How long the clock has run, in seconds.
    pub fn seconds(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }
}
