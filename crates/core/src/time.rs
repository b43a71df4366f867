use std::{
    fmt,
    ops::{Add, Sub},
};

/// Microseconds: a span, or a point on one node's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// The longest span: a deadline that never comes.
    pub const MAX: Micros = Micros(u64::MAX);

    /// `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Micros {
        Micros(ms * 1_000)
    }

    /// The span divided by `by`, but at least ten milliseconds: see [`Protocol::shrink`](crate::Protocol::shrink).
    pub const fn shrunk(self, by: u32) -> Micros {
        let part = self.0 / by as u64;
        Micros(if part < 10_000 { 10_000 } else { part })
    }

    /// `self - earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Micros {
    type Output = Micros;

    fn add(self, other: Micros) -> Micros {
        Micros(self.0.saturating_add(other.0))
    }
}

impl Sub for Micros {
    type Output = Micros;

    fn sub(self, other: Micros) -> Micros {
        self.since(other)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us if us % 1_000_000 == 0 => write!(f, "{}s", us / 1_000_000),
            us if us % 1_000 == 0 => write!(f, "{}ms", us / 1_000),
            us => write!(f, "{us}us"),
        }
    }
}

/// What the wall clock says, as an interval that contains true time if the clock keeps its bound.
/// Both ends are microseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WallInterval {
    /// True time is not before this.
    pub earliest: Micros,
    /// What the clock says: timestamps are taken from it.
    pub reading: Micros,
    /// True time is not after this.
    pub latest: Micros,
}

impl WallInterval {
    /// The interval of a clock that is never further than `bound` from true time.
    pub fn around(reading: Micros, bound: Micros) -> WallInterval {
        WallInterval {
            earliest: reading.since(bound),
            reading,
            latest: reading + bound,
        }
    }

    /// How far the reading may be from true time.
    pub fn bound(self) -> Micros {
        self.latest
            .since(self.reading)
            .max(self.reading.since(self.earliest))
    }

    /// How long ago the oldest of these readings was, at most. `None` if one of them is 0, which stands for never, or is later than the time can be:
    /// then some clock is further from true time than is assumed.
    ///
    /// ```
    /// # use turnbuckle_core::{Micros, WallInterval};
    /// let wall = WallInterval::around(Micros(100), Micros(10));
    /// let age = |readings: &[u64]| wall.age_of_oldest(readings.iter().map(|&us| Micros(us)));
    /// assert_eq!(age(&[100, 60, 110]), Some(Micros(50)));
    /// assert_eq!(age(&[]), Some(Micros(0)));
    /// assert_eq!(age(&[100, 0]), None);
    /// assert_eq!(age(&[60, 111]), None);
    /// ```
    pub fn age_of_oldest(self, readings: impl Iterator<Item = Micros>) -> Option<Micros> {
        let mut oldest = self.latest;
        for reading in readings {
            if reading == Micros(0) || reading > self.latest {
                return None;
            }
            oldest = oldest.min(reading);
        }
        Some(self.latest.since(oldest))
    }
}

/// The time that comes in with every input. Nothing below the driver reads a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// This node's monotonic clock, counting suspended time. It starts anew with the process.
    pub monotonic: Micros,
    /// The wall clock, with its bound.
    pub wall: WallInterval,
}

/// A wall clock that never jumps.
///
/// A machine's wall clock may be set an hour ahead, by mistake and for half a second. A node that stamps by it meanwhile stamps an hour ahead, and
/// everything that it writes in the next hour is held back at all other nodes. So the reading goes on with the monotonic clock, and follows the wall
/// clock by at most [`SteadyWall::MAX_SLEW_PPM`]. Time services correct more slowly than that; a faster change means that the clock was set.
///
/// ```text
///   wall clock     ____________|‾‾‾‾‾‾‾‾‾|___________________
///   reading        _________________________________________      (0.1 % of the jump's duration ahead)
///   interval       bound       an hour and bound    bound
/// ```
///
/// As long as the two differ, it is not known which of them is right. So the interval contains both: claims that rest on it prove less, and stay
/// true.
///
/// If a clock was wrong when the process started and is set right later, the reading follows it just as slowly. To take over what the clock says at
/// once, restart the process.
#[derive(Debug, Clone, Copy, Default)]
pub struct SteadyWall {
    /// A time of the monotonic clock, and the reading at that time. When the reading was last asked for, that was at most
    /// [`SteadyWall::ANCHOR_EVERY`] ago.
    anchor: Option<(Micros, Micros)>,
    /// How far the reading has followed the wall clock since the two last agreed. If the wall clock is wrong, the reading is wrong by this much.
    followed: Micros,
}

impl SteadyWall {
    /// The most microseconds by which the reading follows the wall clock in each second.
    pub const MAX_SLEW_PPM: u64 = 1_000;

    /// In less time than this the reading does not follow the wall clock: the smallest correction is one microsecond.
    const ANCHOR_EVERY: Micros = Micros(1_000_000 / Self::MAX_SLEW_PPM);

    /// The time, from what both clocks say now. True time is assumed to be at most `bound` from `wall`.
    pub fn now(&mut self, monotonic: Micros, wall: Micros, bound: Micros) -> Now {
        let (then, before) = *self.anchor.get_or_insert((monotonic, wall));
        // Clocks that were read before the anchor give a time before it.
        let passed = monotonic.since(then);
        let expected = (before + passed).since(then.since(monotonic));
        let slew = Micros(passed.0 / Self::ANCHOR_EVERY.0);
        let reading = wall.clamp(expected.since(slew), expected + slew);
        let agrees = wall == reading;
        if agrees {
            self.followed = Micros(0);
        }
        let followed = self.followed + if agrees { Micros(0) } else { slew };
        if passed >= Self::ANCHOR_EVERY {
            (self.anchor, self.followed) = (Some((monotonic, reading)), followed);
        }
        Now {
            monotonic,
            wall: WallInterval {
                earliest: reading.since(followed).min(wall).since(bound),
                reading,
                latest: (reading + followed).max(wall) + bound,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Micros = Micros(10);
    const HOUR: Micros = Micros::from_millis(3_600_000);

    /// The interval after `ms` milliseconds, if the wall clock is ahead by `ahead`.
    fn at(clock: &mut SteadyWall, ms: u64, ahead: Micros) -> WallInterval {
        let passed = Micros::from_millis(ms);
        clock.now(passed, Micros(1 << 50) + passed + ahead, BOUND).wall
    }

    fn true_time(ms: u64) -> Micros {
        Micros(1 << 50) + Micros::from_millis(ms)
    }

    #[test]
    fn a_clock_that_is_an_hour_ahead_for_half_a_second_moves_the_reading_by_half_a_millisecond() {
        let mut clock = SteadyWall::default();
        assert_eq!(
            at(&mut clock, 1_000, Micros(0)),
            WallInterval::around(true_time(1_000), BOUND)
        );
        let mut worst = Micros(0);
        for ms in 1_001..=1_500 {
            let wall = at(&mut clock, ms, HOUR);
            worst = worst.max(wall.reading.since(true_time(ms)));
            assert!(wall.earliest <= true_time(ms) && true_time(ms) + HOUR <= wall.latest);
        }
        assert_eq!(worst, Micros(500));
        assert_eq!(
            at(&mut clock, 3_000, Micros(0)),
            WallInterval::around(true_time(3_000), BOUND)
        );
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_take_the_reading_back() {
        let mut clock = SteadyWall::default();
        let before = at(&mut clock, 1_000, HOUR).reading;
        let after = at(&mut clock, 1_010, Micros(0));
        assert_eq!(after.reading, before + Micros(10_000 - 10));
        assert!(after.earliest <= true_time(1_010));
    }

    #[test]
    fn a_clock_that_is_corrected_slowly_is_followed_at_once() {
        let mut clock = SteadyWall::default();
        at(&mut clock, 0, Micros(0));
        for ms in 1..=1_000 {
            let wall = at(&mut clock, ms, Micros(ms / 2));
            assert_eq!(wall, WallInterval::around(true_time(ms) + Micros(ms / 2), BOUND));
        }
    }
}
