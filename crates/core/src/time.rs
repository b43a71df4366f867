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
    /// True time is not after this.
    pub latest: Micros,
}

impl WallInterval {
    /// The clock's own reading: the middle of the interval.
    pub fn reading(self) -> Micros {
        Micros(self.earliest.0 + (self.latest.0 - self.earliest.0) / 2)
    }

    /// How far the clock may be from true time.
    pub fn bound(self) -> Micros {
        Micros(self.latest.since(self.earliest).0 / 2)
    }

    /// How long ago the oldest of these readings was, at most; none, if one of them is 0, for never, or of a time that cannot have
    /// come: then somebody's clock is further off than is assumed.
    ///
    /// ```
    /// # use turnbuckle_core::{Micros, WallInterval};
    /// let wall = WallInterval { earliest: Micros(90), latest: Micros(110) };
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
