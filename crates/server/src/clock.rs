use crate::TestFaults;
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use turnbuckle_core::{Micros, Now, SteadyWall};

/// The machine's clocks, as everything below the server gets to see them.
///
/// Monotonic time counts while the machine is suspended (`CLOCK_BOOTTIME`): a promise of freshness that was made before a
/// laptop slept is old when it wakes. The wall clock comes as an interval, as wide as the configuration says that it may be
/// wrong, and does not jump ([`SteadyWall`]). That it did is counted and said: somebody has to set it right.
#[derive(Debug)]
pub struct Clock {
    bound: Micros,
    wall: Mutex<Wall>,
    faults: Option<Arc<TestFaults>>,
}

#[derive(Debug, Default)]
struct Wall {
    steady: SteadyWall,
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
        let mut wall = self.lock();
        let both = Both::read(|| self.monotonic(), || self.wall());
        let bound = self.bound + both.apart;
        let now = wall.steady.now(both.monotonic, both.wall, bound);
        if let Some(said) = wall.jumps.look(now, both.wall, bound) {
            drop(wall);
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

    /// What became of its wall clock.
    pub fn jumps(&self) -> Jumps {
        self.lock().jumps
    }

    fn lock(&self) -> MutexGuard<'_, Wall> {
        self.wall.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A clock before 1970 counts as 1970.
fn read(clock: ClockId) -> Micros {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Micros(seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000)
}

/// Both clocks, read together.
///
/// The thread may be stopped between the two reads, for longer than the wall clock may be wrong. That would look like a wall clock that was
/// set back. So the wall clock is read between two reads of the monotonic clock, again if they are far apart, and is believed
/// less by as much as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Both {
    monotonic: Micros,
    wall: Micros,
    /// The wall clock was read at most this long before the monotonic clock.
    apart: Micros,
}

impl Both {
    /// Reads that are no further apart than this are good.
    const GOOD: Micros = Micros(100);
    /// On a machine that stops the thread again and again, the best of so many.
    const TRIES: usize = 5;

    fn read(mut monotonic: impl FnMut() -> Micros, mut wall: impl FnMut() -> Micros) -> Both {
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
        for _ in 1..Self::TRIES {
            if best.apart <= Self::GOOD {
                break;
            }
            let next = once();
            if next.apart <= best.apart {
                best = next;
            }
        }
        best
    }
}

/// How often somebody has set the machine's wall clock by more than it may be wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Jumps {
    /// How many times.
    pub total: u64,
    /// How far the wall clock is from what the node goes by, now.
    pub away: Micros,
    has_jumped: bool,
    /// When the last one was said, and how many were not said since.
    said: Option<Micros>,
    unsaid: u64,
}

impl Jumps {
    /// A clock that jumps again and again is spoken of this often.
    const SAY_EVERY: Micros = Micros::from_millis(60_000);
    /// A difference as small as this is no jump, however exact the clock is said to be.
    const LEAST: Micros = Micros::from_millis(1);

    /// The wall clock shows `shown`. Returns what is to be said of it.
    fn look(&mut self, now: Now, shown: Micros, bound: Micros) -> Option<String> {
        let reading = now.wall.reading;
        self.away = shown.since(reading).max(reading.since(shown));
        let jumped = self.away > bound.max(Self::LEAST);
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
            before => format!(" ({before} times more since this was last said)"),
        };
        format!(
            "this machine's wall clock was set {to} by {away}{again}: the node goes on with its monotonic clock, and its receipts claim less until \
             the two agree; see docs/clocks.md"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Micros = Micros::from_millis(10);

    #[derive(Default)]
    struct World {
        wall: Wall,
    }

    impl World {
        /// What is said after so many milliseconds, when the wall clock is off by so many.
        fn at(&mut self, ms: u64, off_ms: i64) -> Option<String> {
            let passed = Micros::from_millis(ms);
            let shown = Micros((1 << 50) + passed.0)
                .0
                .saturating_add_signed(off_ms * 1_000);
            let now = self.wall.steady.now(passed, Micros(shown), BOUND);
            self.wall.jumps.look(now, Micros(shown), BOUND)
        }
    }

    /// A machine whose clocks are read while the thread is stopped for so long, in milliseconds, at each read in turn.
    fn read_with_stops(stops: &[u64]) -> Both {
        let at = std::cell::Cell::new(Micros::from_millis(1_000));
        let stops = std::cell::RefCell::new(stops.iter().copied());
        let stop = || at.set(at.get() + Micros::from_millis(stops.borrow_mut().next().unwrap_or(0)));
        let monotonic = || {
            let read = at.get();
            stop();
            read
        };
        let wall = || {
            let read = Micros((1 << 50) + at.get().0);
            stop();
            read
        };
        Both::read(monotonic, wall)
    }

    #[test]
    fn a_thread_that_is_stopped_between_two_clocks_reads_them_again() {
        let both = |at_ms: u64, late_ms: u64, apart_ms: u64| Both {
            monotonic: Micros::from_millis(at_ms),
            wall: Micros((1 << 50) + (at_ms - late_ms) * 1_000),
            apart: Micros::from_millis(apart_ms),
        };
        assert_eq!(read_with_stops(&[]), both(1_000, 0, 0));
        assert_eq!(read_with_stops(&[0, 40]), both(1_040, 0, 0), "read again");
        assert_eq!(read_with_stops(&[40, 0]), both(1_040, 0, 0), "read again");
        // Stopped at every read of the wall clock: the best of five, which may be as wrong as it says.
        let stops = [0, 40, 0, 30, 0, 20, 0, 30, 0, 40];
        assert_eq!(read_with_stops(&stops), both(1_090, 20, 20));
    }

    #[test]
    fn a_thread_that_is_stopped_between_two_clocks_is_no_jump() {
        for stopped in [5, 40, 3_000] {
            let mut wall = Wall::default();
            let both = read_with_stops(&[0, stopped].repeat(Both::TRIES));
            let now = wall
                .steady
                .now(Micros::from_millis(500), Micros((1 << 50) + 500_000), BOUND);
            assert_eq!(wall.jumps.look(now, now.wall.reading, BOUND), None);
            let bound = BOUND + both.apart;
            let now = wall.steady.now(both.monotonic, both.wall, bound);
            assert_eq!(wall.jumps.look(now, both.wall, bound), None, "{stopped} ms");
            let truth = Micros((1 << 50) + both.monotonic.0);
            assert!(now.wall.earliest <= truth && truth <= now.wall.latest);
        }
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
            said[1].contains(" times more since this was last said)"),
            "{said:?}"
        );
    }
}
