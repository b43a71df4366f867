//! The one clock of all clients of a campaign, and of whoever torments the nodes: monotonic, in nanoseconds since 1970 as the machine
//! counted them when the campaign began.
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// See the module.
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

    /// What it shows, in nanoseconds.
    pub fn now_ns(&self) -> i64 {
        let since = i64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(i64::MAX);
        self.origin_ns.saturating_add(since)
    }

    /// For how long it has run, in seconds.
    pub fn seconds(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }
}
