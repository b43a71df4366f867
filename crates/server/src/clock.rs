use crate::TestFaults;
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, Mutex, PoisonError};
use turnbuckle_core::{Micros, Now, SteadyWall};

/// The machine's clocks, as everything below the server gets to see them.
///
/// Monotonic time counts while the machine is suspended (`CLOCK_BOOTTIME`): a promise of freshness that was made before a
/// laptop slept is old when it wakes. The wall clock comes as an interval, as wide as the configuration says that it may be
/// wrong, and does not jump ([`SteadyWall`]).
#[derive(Debug)]
pub struct Clock {
    bound: Micros,
    steady: Mutex<SteadyWall>,
    faults: Option<Arc<TestFaults>>,
}

impl Clock {
    /// A wall clock that is never further than `bound` from true time.
    pub fn new(bound: Micros) -> Clock {
        Clock {
            bound,
            steady: Mutex::default(),
            faults: None,
        }
    }

    /// The same, set wrong by a test.
    pub(crate) fn with_faults(self, faults: Option<Arc<TestFaults>>) -> Clock {
        Clock { faults, ..self }
    }

    /// Monotonic time alone.
    pub fn monotonic(&self) -> Micros {
        read(ClockId::Boottime)
    }

    /// The time.
    pub fn now(&self) -> Now {
        let wall = read(ClockId::Realtime);
        let wall = match &self.faults {
            Some(faults) => faults.wall(wall),
            None => wall,
        };
        let mut steady = self.steady.lock().unwrap_or_else(PoisonError::into_inner);
        steady.now(self.monotonic(), wall, self.bound)
    }
}

/// A clock before 1970 counts as 1970.
fn read(clock: ClockId) -> Micros {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Micros(seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000)
}
