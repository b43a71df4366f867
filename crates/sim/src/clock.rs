//! The clocks of a machine: they have an offset, run fast or slow, are set while they run, and are believed to be right within a bound.
use std::cell::Cell;
use turnbuckle_core::{Micros, Now, SteadyWall, WallInterval};

/// The clocks of one machine.
///
/// ```text
///   wall = true time + offset + drift since the last change      monotonic = what has passed here, at the same rate
///   told to the node: [wall - bound, wall + bound]               the clock lies while true time is not in there
/// ```
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// How far the wall clock was ahead of true time at `since`, in microseconds.
    offset_us: i64,
    /// The number of microseconds that it gains in each second from then on.
    drift_ppm: i64,
    since: Micros,
    /// The time that had passed on this machine at `since`.
    passed_us: u64,
    bound: Micros,
}

/// The clock of a process, made from its machine's clocks. It lives as long as the process, however often the process opens its node.
#[derive(Debug, Clone)]
pub(crate) struct ProcessClock {
    /// The time that had passed on the machine when the process began.
    booted: Micros,
    /// Keeps the wall clock from jumping. `None`: it jumps.
    steady: Option<Cell<SteadyWall>>,
}

impl ProcessClock {
    /// The clock of a process that begins now. `is_steady`: its wall clock does not jump.
    pub fn begin(clock: &Clock, time: Micros, is_steady: bool) -> ProcessClock {
        ProcessClock {
            booted: clock.passed(time),
            steady: is_steady.then(Cell::default),
        }
    }

    /// The time that the process is told.
    pub fn now(&self, clock: &Clock, time: Micros) -> Now {
        clock.told(time, self.booted, self.steady.as_ref())
    }
}

/// The fastest and the slowest that a clock may run: 10 % off.
const MAX_DRIFT_PPM: i64 = 100_000;

impl Clock {
    pub fn new(time: Micros, offset_us: i64, drift_ppm: i64, bound: Micros) -> Clock {
        Clock {
            offset_us,
            drift_ppm: drift_ppm.clamp(-MAX_DRIFT_PPM, MAX_DRIFT_PPM),
            since: time,
            passed_us: 0,
            bound,
        }
    }

    /// How far the wall clock is ahead of true time now.
    fn error_us(&self, time: Micros) -> i64 {
        self.offset_us.saturating_add(self.drifted_us(time))
    }

    fn drifted_us(&self, time: Micros) -> i64 {
        if self.drift_ppm == 0 {
            // Almost always so, and this is called for every event.
            return 0;
        }
        let passed = i128::from(time.since(self.since).0);
        (passed * i128::from(self.drift_ppm) / 1_000_000) as i64
    }

    /// The time that has passed on this machine.
    pub fn passed(&self, time: Micros) -> Micros {
        let passed = self.passed_us + time.since(self.since).0;
        Micros(passed.saturating_add_signed(self.drifted_us(time)))
    }

    /// The time that a process is told if it begins now.
    pub fn now(&self, time: Micros) -> Now {
        ProcessClock::begin(self, time, false).now(self, time)
    }

    /// The time that a process is told.
    fn told(&self, time: Micros, booted: Micros, steady: Option<&Cell<SteadyWall>>) -> Now {
        // A process rarely starts together with its machine: monotonic time does not begin at 0.
        let monotonic = Micros(1_000_000) + self.passed(time).since(booted);
        let wall = Micros(time.0.saturating_add_signed(self.error_us(time)));
        let Some(steady) = steady else {
            let wall = WallInterval::around(wall, self.bound);
            return Now { monotonic, wall };
        };
        let mut clock = steady.get();
        let now = clock.now(monotonic, wall, self.bound);
        steady.set(clock);
        now
    }

    /// Whether true time is within the clock's bound.
    pub fn is_honest(&self, time: Micros) -> bool {
        self.error_us(time).unsigned_abs() <= self.bound.0
    }

    /// The true time in which `span` passes on this machine; at least a microsecond.
    pub fn true_span(&self, span: Micros) -> Micros {
        if self.drift_ppm == 0 {
            return Micros(span.0.max(1));
        }
        let rate = (1_000_000 + self.drift_ppm) as u128;
        let exact = (u128::from(span.0) * 1_000_000).div_ceil(rate);
        Micros(u64::try_from(exact).unwrap_or(u64::MAX).max(1))
    }

    /// Sets the wall clock forward by this number of microseconds, or back.
    pub fn step(&mut self, by_us: i64) {
        self.offset_us = self.offset_us.saturating_add(by_us);
    }

    /// From now on the clock gains this number of microseconds per second.
    pub fn set_drift(&mut self, time: Micros, drift_ppm: i64) {
        let (offset_us, passed_us) = (self.error_us(time), self.passed(time).0);
        *self = Clock {
            offset_us,
            drift_ppm: drift_ppm.clamp(-MAX_DRIFT_PPM, MAX_DRIFT_PPM),
            since: time,
            passed_us,
            bound: self.bound,
        };
    }

    /// Sets the bound that the node is told from now on.
    pub fn set_bound(&mut self, bound: Micros) {
        self.bound = bound;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Micros = Micros(1_000_000_000);

    fn second(number: u64) -> Micros {
        BEGIN + Micros::from_millis(1_000 * number)
    }

    #[test]
    fn a_clock_that_drifts_leaves_its_bound_and_is_back_when_it_is_set() {
        let mut clock = Clock::new(BEGIN, 100, 500, Micros(1_000));
        assert!(clock.is_honest(BEGIN) && clock.is_honest(second(1)));
        assert!(!clock.is_honest(second(2)));
        clock.step(-1_000);
        assert!(clock.is_honest(second(2)));
        let reading = clock.now(second(2)).wall.reading;
        assert_eq!(reading, second(2) + Micros(100));
    }

    #[test]
    fn monotonic_time_drifts_and_is_never_set() {
        let mut clock = Clock::new(BEGIN, 0, 10_000, Micros(0));
        clock.step(-5_000_000);
        assert_eq!(clock.passed(second(1)), Micros(1_010_000));
        clock.set_drift(second(1), -10_000);
        assert_eq!(clock.passed(second(2)), Micros(2_000_000));
        let reading = clock.now(second(2)).wall.reading;
        assert_eq!(reading, second(2) - Micros(5_000_000));
    }

    #[test]
    fn a_deadline_is_over_after_its_true_span() {
        for drift in [-MAX_DRIFT_PPM, -7, 0, 7, MAX_DRIFT_PPM] {
            let clock = Clock::new(BEGIN, 0, drift, Micros(0));
            for span in [0, 1, 999, 1_000_000] {
                let after = BEGIN + clock.true_span(Micros(span));
                assert!(clock.passed(after) >= Micros(span), "{drift} ppm, {span} us");
            }
        }
    }
}
