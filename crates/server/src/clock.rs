use crate::TestFaults;
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use turnbuckle_core::{Micros, Now, SteadyWall};

/// The machine's clocks, as the rest of the node sees them.
///
/// Monotonic time counts while the machine is suspended (`CLOCK_BOOTTIME`): a promise of freshness that was made before a laptop slept is old when
/// the laptop wakes. The wall clock is returned as an interval, as wide as the error that the configuration allows, and does not jump
/// ([`SteadyWall`]). A jump of the machine's wall clock is counted and logged: an operator has to set the clock right.
#[derive(Debug)]
pub struct Clock {
    bound: Micros,
    wall: Mutex<Wall>,
    faults: Option<Arc<TestFaults>>,
}

#[derive(Debug, Default)]
struct Wall {
    steady: SteadyWall,
    /// The time that was returned last.
    last: Option<Now>,
    jumps: Jumps,
}

impl Clock {
    /// A wall clock that is never further than `bound` from true time.
    pub fn new(bound: Micros) -> Clock {
        Clock {
            bound,
            wall: Mutex::default(),
            faults: None,
        }
    }

    /// The same clock, with the faults of a test.
    pub(crate) fn with_faults(self, faults: Option<Arc<TestFaults>>) -> Clock {
        Clock { faults, ..self }
    }

    /// Monotonic time only.
    pub fn monotonic(&self) -> Micros {
        read(ClockId::Boottime)
    }

    /// The current time. If the wall clock has jumped, this is logged.
    pub fn now(&self) -> Now {
        let (now, said) = self.lock().now(self.bound, || self.monotonic(), || self.wall());
        if let Some(said) = said {
            tracing::warn!("{said}");
        }
        now
    }

    /// What the wall clock shows.
    fn wall(&self) -> Micros {
        let shown = read(ClockId::Realtime);
        match &self.faults {
            Some(faults) => faults.wall(shown),
            None => shown,
        }
    }

    /// How often the wall clock has jumped, and how far off it is now.
    pub fn jumps(&self) -> Jumps {
        self.lock().jumps
    }

    fn lock(&self) -> MutexGuard<'_, Wall> {
        self.wall.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a clock, in microseconds. A clock before 1970 counts as 1970.
fn read(clock: ClockId) -> Micros {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Micros(seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000)
}

impl Wall {
    /// The time, and what to log about the wall clock.
    fn now(
        &mut self,
        bound: Micros,
        monotonic: impl FnMut() -> Micros,
        wall: impl FnMut() -> Micros,
    ) -> (Now, Option<String>) {
        let tries = if self.last.is_some() { TRIES } else { FIRST_TRIES };
        let both = Both::read(tries, monotonic, wall);
        let wall = both.wall_nearest_to(self.last);
        let now = self.steady.now(both.monotonic, wall, bound + both.apart);
        self.last = Some(now);
        // If the two clocks were not read close together, they prove no jump.
        let said = match both.is_good() {
            true => self.jumps.look(now, wall, bound),
            false => None,
        };
        (now, said)
    }
}

/// How often both clocks are read if the thread is stopped between the reads each time.
const TRIES: usize = 5;
/// The same for the first reading, which all later readings build on.
const FIRST_TRIES: usize = 100;

/// Both clocks, read together.
///
/// The thread may be stopped between the two reads, for longer than the wall clock may be wrong. That would look as if the wall clock had been set
/// back. So the wall clock is read between two reads of the monotonic clock. If these two are far apart, the clocks are read again. If they are far
/// apart each time, the bound of the wall clock is widened by the gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Both {
    monotonic: Micros,
    wall: Micros,
    /// The wall clock was read at most this long before the monotonic clock.
    apart: Micros,
}

impl Both {
    /// The clocks were read together if the two reads of the monotonic clock are no further apart than this.
    const GOOD: Micros = Micros(100);

    fn read(tries: usize, mut monotonic: impl FnMut() -> Micros, mut wall: impl FnMut() -> Micros) -> Both {
        let mut before = monotonic();
        let mut once = || {
            let (wall, after) = (wall(), monotonic());
            let apart = after.since(std::mem::replace(&mut before, after));
            Both {
                monotonic: after,
                wall,
                apart,
            }
        };
        let mut best = once();
        for _ in 1..tries {
            if best.is_good() {
                break;
            }
            let next = once();
            if next.apart <= best.apart {
                best = next;
            }
        }
        best
    }

    fn is_good(self) -> bool {
        self.apart <= Self::GOOD
    }

    /// What the wall clock may have shown when the monotonic clock was read. Of all possible values, this is the one that is nearest to the time that
    /// was returned last, plus the time since then.
    fn wall_nearest_to(self, last: Option<Now>) -> Micros {
        match last {
            Some(last) => {
                let expected = last.wall.reading + self.monotonic.since(last.monotonic);
                expected.clamp(self.wall, self.wall + self.apart)
            }
            None => self.wall,
        }
    }
}

/// How often the machine's wall clock was set by more than it may be wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Jumps {
    /// The number of jumps.
    pub total: u64,
    /// How far the wall clock is now from the time that the node goes by.
    pub away: Micros,
    has_jumped: bool,
    /// When the last jump was logged, and the number of jumps since then that were not logged.
    said: Option<Micros>,
    unsaid: u64,
}

impl Jumps {
    /// If the clock jumps again and again, this is logged at most once in this time.
    const SAY_EVERY: Micros = Micros::from_millis(60_000);
    /// A difference up to this is no jump, however exact the clock is said to be.
    const MIN: Micros = Micros::from_millis(1);

    /// Compares what the wall clock shows (`shown`) with the time that the node goes by. Returns what to log.
    fn look(&mut self, now: Now, shown: Micros, bound: Micros) -> Option<String> {
        let reading = now.wall.reading;
        self.away = shown.since(reading).max(reading.since(shown));
        let jumped = self.away > bound.max(Self::MIN);
        if !std::mem::replace(&mut self.has_jumped, jumped) && jumped {
            self.total += 1;
            self.unsaid += 1;
            let may_say = |said: Micros| now.monotonic.since(said) >= Self::SAY_EVERY;
            if self.said.is_none_or(may_say) {
                self.said = Some(now.monotonic);
                return Some(self.words(shown > reading));
            }
        }
        None
    }

    fn words(&mut self, ahead: bool) -> String {
        let (to, away) = (if ahead { "ahead" } else { "back" }, self.away);
        let before = std::mem::take(&mut self.unsaid) - 1;
        let again = match before {
            0 => String::new(),
            before => format!(" ({before} more times since the last such message)"),
        };
        format!(
            "this machine's wall clock was set {to} by {away}{again}: the node goes on with its monotonic clock, and its receipts claim \
             less freshness until \
             the two agree; see docs/clocks.md"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    const BOUND: Micros = Micros::from_millis(10);

    #[derive(Default)]
    struct World {
        wall: Wall,
    }

    impl World {
        /// What is logged at `ms` milliseconds if the wall clock is off by `off_ms` milliseconds.
        fn at(&mut self, ms: u64, off_ms: i64) -> Option<String> {
            let passed = Micros::from_millis(ms);
            let shown = Micros((1 << 50) + passed.0)
                .0
                .saturating_add_signed(off_ms * 1_000);
            let now = self.wall.steady.now(passed, Micros(shown), BOUND);
            self.wall.jumps.look(now, Micros(shown), BOUND)
        }
    }

    /// A machine on which a thread is stopped for some milliseconds at each read of a clock. `stops` has one entry for each read.
    struct Machine {
        at: Cell<Micros>,
        stops: RefCell<Vec<u64>>,
        /// How far the machine's wall clock is ahead.
        ahead: Micros,
        wall: Wall,
    }

    impl Machine {
        fn new() -> Machine {
            Machine {
                at: Cell::new(Micros::from_millis(1_000)),
                stops: RefCell::default(),
                ahead: Micros(0),
                wall: Wall::default(),
            }
        }

        fn read(&self, ahead: Micros) -> Micros {
            let read = self.at.get() + ahead;
            let mut stops = self.stops.borrow_mut();
            let stopped = if stops.is_empty() { 0 } else { stops.remove(0) };
            self.at.set(self.at.get() + Micros::from_millis(stopped));
            read
        }

        fn both(&self, stops: &[u64]) -> Both {
            self.stops.replace(stops.to_vec());
            Both::read(TRIES, || self.read(Micros(0)), || self.read(Micros(1 << 50)))
        }

        /// The time one second later, and what is logged.
        fn now(&mut self, stops: &[u64]) -> (Now, Option<String>) {
            self.at.set(self.at.get() + Micros::from_millis(1_000));
            self.stops.replace(stops.to_vec());
            let mut wall = std::mem::take(&mut self.wall);
            let ahead = Micros(1 << 50) + self.ahead;
            let told = wall.now(BOUND, || self.read(Micros(0)), || self.read(ahead));
            self.wall = wall;
            let truth = Micros(1 << 50) + told.0.monotonic;
            assert!(
                told.0.wall.earliest <= truth && truth <= told.0.wall.latest,
                "{told:?}"
            );
            told
        }
    }

    #[test]
    fn a_thread_that_is_stopped_between_two_clocks_reads_them_again() {
        let both = |at_ms: u64, late_ms: u64, apart_ms: u64| Both {
            monotonic: Micros::from_millis(at_ms),
            wall: Micros((1 << 50) + (at_ms - late_ms) * 1_000),
            apart: Micros::from_millis(apart_ms),
        };
        assert_eq!(Machine::new().both(&[]), both(1_000, 0, 0));
        assert_eq!(Machine::new().both(&[0, 40]), both(1_040, 0, 0), "read again");
        assert_eq!(Machine::new().both(&[40, 0]), both(1_040, 0, 0), "read again");
        // The thread is stopped at every read of the wall clock. The best of five readings is used, and states how wrong it may be.
        let stops = [0, 40, 0, 30, 0, 20, 0, 30, 0, 40];
        assert_eq!(Machine::new().both(&stops), both(1_090, 20, 20));
    }

    #[test]
    fn a_thread_that_is_stopped_between_two_clocks_is_no_jump() {
        let always = |stopped: u64| [0, stopped].repeat(FIRST_TRIES);
        for stopped in [5, 40, 3_000] {
            let mut machine = Machine::new();
            for stops in [
                [0, stopped].repeat(FIRST_TRIES - 2),
                vec![],
                always(stopped),
                vec![],
                always(stopped),
                vec![],
            ] {
                let (_, said) = machine.now(&stops);
                assert_eq!(said, None, "{stopped} ms");
                assert_eq!(machine.wall.jumps.total, 0, "{stopped} ms");
                assert!(machine.wall.jumps.away < BOUND, "{stopped} ms");
            }
        }
    }

    #[test]
    fn a_first_reading_that_is_late_claims_no_more_than_it_knows() {
        let mut machine = Machine::new();
        machine.now(&[0, 20].repeat(FIRST_TRIES));
        (0..3).for_each(|_| drop(machine.now(&[])));
    }

    #[test]
    fn a_jump_counts_once_however_the_thread_is_stopped_meanwhile() {
        let mut machine = Machine::new();
        assert_eq!(machine.now(&[]).1, None);
        machine.ahead = Micros::from_millis(30);
        assert!(machine.now(&[]).1.is_some());
        for stopped in [0, 25, 0, 40, 0, 3_000, 0] {
            machine.now(&[0, stopped].repeat(TRIES));
        }
        assert_eq!(machine.wall.jumps.total, 1);
    }

    #[test]
    fn a_jump_is_said_once_and_counted_until_the_clock_is_right_again() {
        let mut world = World::default();
        assert_eq!(world.at(0, 0), None);
        assert_eq!(world.at(1_000, 9), None, "that may be");
        let said = world.at(2_000, 3_600_000).expect("an hour may not be");
        assert!(said.contains("ahead by 3599"), "{said}");
        assert_eq!(world.at(2_001, 3_600_000), None);
        assert!(world.wall.jumps.away > Micros::from_millis(3_599_000));
        assert_eq!(world.at(2_500, 0), None);
        assert!(world.wall.jumps.total == 1 && world.wall.jumps.away < BOUND);
    }

    #[test]
    fn a_clock_that_jumps_again_and_again_is_spoken_of_once_a_minute() {
        let mut world = World::default();
        let said: Vec<String> = (0..1_300)
            .filter_map(|tenth| world.at(tenth * 100, if tenth % 2 == 1 { -5_000 } else { 0 }))
            .collect();
        assert_eq!(world.wall.jumps.total, 650);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].contains("set back by 4999"), "{said:?}");
        assert!(
            said[1].contains(" more times since the last such message)"),
            "{said:?}"
        );
    }
}
