use crate::{Micros, Now};
use std::fmt;

/// A hybrid logical clock's timestamp in 64 bits: 52 bits of microseconds since 1970 (enough until 2112) above
/// 12 bits of counter. Ordered as integers; a counter that overflows carries into the microseconds by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hlc(pub u64);

const COUNTER_BITS: u32 = 12;

impl Hlc {
    /// Before every timestamp ever given.
    pub const ZERO: Hlc = Hlc(0);

    /// The latest timestamp that is accepted from a disk or a peer. It is about three days before the last one, so that there is room for the
    /// timestamps that follow.
    pub const LATEST: Hlc = Hlc(u64::MAX - (1 << 50));

    /// The smallest timestamp of the microsecond `wall` (since 1970). Later than 2112 saturates.
    pub const fn from_wall(wall: Micros) -> Hlc {
        if wall.0 >> (64 - COUNTER_BITS) != 0 {
            Hlc(u64::MAX)
        } else {
            Hlc(wall.0 << COUNTER_BITS)
        }
    }

    /// The timestamp's microseconds since 1970: what the wall clock read when the timestamp was given or, if the hybrid clock was ahead of the wall
    /// clock, a later time.
    pub const fn wall(self) -> Micros {
        Micros(self.0 >> COUNTER_BITS)
    }

    /// The counter: the number of timestamps that were given before this one in the same microsecond.
    pub const fn counter(self) -> u64 {
        self.0 & ((1 << COUNTER_BITS) - 1)
    }

    /// Parses a timestamp as [`Display`](fmt::Display) writes it.
    pub fn parse(text: &str) -> Option<Hlc> {
        let (wall, counter) = text.split_once('.')?;
        let (wall, counter): (u64, u64) = (wall.parse().ok()?, counter.parse().ok()?);
        let fits = wall >> (64 - COUNTER_BITS) == 0 && counter >> COUNTER_BITS == 0;
        fits.then_some(Hlc(wall << COUNTER_BITS | counter))
    }

    /// A timestamp that is at least `span` later, and at most by another sixteenth of it. It is rounded up, so that nearby times coincide. `span` is
    /// the difference of two timestamps.
    #[must_use]
    pub fn about_after(self, span: u64) -> Hlc {
        let exact = self.0.saturating_add(span);
        Hlc(match (span / 16).checked_ilog2() {
            Some(bits) => exact.checked_next_multiple_of(1 << bits).unwrap_or(u64::MAX),
            None => exact,
        })
    }

    /// The next timestamp.
    ///
    /// # Panics
    /// At the last timestamp (in the year 2112). No peer can bring the clock there: timestamps far ahead are refused.
    pub const fn next(self) -> Hlc {
        assert!(
            self.0 < u64::MAX,
            "the hybrid logical clock reached its last timestamp"
        );
        Hlc(self.0 + 1)
    }
}

impl fmt::Debug for Hlc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Hlc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.wall().0, self.counter())
    }
}

/// One replica's hybrid logical clock (Kulkarni et al. 2014; the dissertation's Algorithm 2.1, with the counter in
/// the low bits, so that "take the maximum, else count" is one integer comparison).
///
/// It never goes back, not even across restarts: every timestamp that it gives is below a **bound** that is on disk. The clock asks for a higher
/// bound before it needs one ([`HybridClock::wanted_bound`]). After a restart it starts at the bound.
///
/// ```text
///   given so far <= now <= bound (synced, or staged in front of everything that could show the timestamp)
/// ```
#[derive(Debug, Clone, Copy)]
pub struct HybridClock {
    last: Hlc,
    bound: Hlc,
    /// How far ahead of the clock the bound was last set.
    lease: Micros,
}

impl HybridClock {
    /// The most that the bound is set ahead of the clock. A restart may move the clock ahead by this much. A busy replica writes and syncs one small
    /// record in every half of it.
    pub const LEASE: Micros = Micros::from_millis(3_000);

    /// How far ahead of the clock the first bound after a start is set. Each further bound is set twice as far ahead as the one before, up to
    /// [`HybridClock::LEASE`]. So each of many quick restarts moves the clock ahead by this span only. A whole lease for each of them would soon be
    /// more than peers accept.
    pub const FIRST_LEASE: Micros = Micros::from_millis(200);

    /// A clock that continues above all timestamps given before a restart, which are below `bound`.
    pub fn open(bound: Hlc) -> HybridClock {
        HybridClock {
            last: bound,
            bound,
            lease: Micros(Self::FIRST_LEASE.0 / 2),
        }
    }

    /// The last timestamp given or seen.
    pub fn last(&self) -> Hlc {
        self.last
    }

    /// The bound below which timestamps may be given.
    pub fn bound(&self) -> Hlc {
        self.bound
    }

    /// A timestamp above all given and seen (Algorithm 2.1, send or local event).
    pub fn stamp(&mut self, now: Now) -> Hlc {
        self.last = Hlc::from_wall(now.wall.reading).max(self.last.next());
        self.last
    }

    /// Takes note of a timestamp seen elsewhere, so that the next one given is above it (Algorithm 2.1, receive).
    pub fn observe(&mut self, seen: Hlc) {
        self.last = self.last.max(seen);
    }

    /// Moves the clock up to the wall clock without giving a timestamp. A heartbeat promises the time that this returns.
    pub fn tick(&mut self, now: Now) -> Hlc {
        self.last = self.last.max(Hlc::from_wall(now.wall.reading));
        self.last
    }

    /// The time at which a read looks at values that expire: the last timestamp or, if that is later, the wall clock's. The clock stays as it is.
    pub fn read_time(&self, now: Now) -> Hlc {
        self.last.max(Hlc::from_wall(now.wall.reading))
    }

    /// A higher bound to persist now, if the clock is within half a lease of the bound that it has. The clock uses the new bound from here on, so the
    /// caller must stage it before anything that shows a later timestamp.
    pub fn wanted_bound(&mut self) -> Option<Hlc> {
        let near = Hlc::from_wall(self.last.wall() + Micros(self.lease.0 / 2));
        if near < self.bound {
            return None;
        }
        self.lease = Micros(self.lease.0 * 2).min(Self::LEASE);
        self.bound = Hlc::from_wall(self.last.wall() + self.lease).max(self.last);
        Some(self.bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WallInterval;

    fn at(us: u64) -> Now {
        Now {
            monotonic: Micros(us),
            wall: WallInterval::around(Micros(us), Micros(0)),
        }
    }

    #[test]
    fn a_timestamp_reads_as_it_is_written_and_nothing_else_does() {
        for stamp in [
            Hlc::ZERO,
            Hlc(1),
            Hlc(4_095),
            Hlc(4_096),
            Hlc::LATEST,
            Hlc(u64::MAX),
        ] {
            assert_eq!(Hlc::parse(&stamp.to_string()), Some(stamp));
        }
        for text in [
            "",
            "7",
            "7.",
            ".7",
            "-7.0",
            "7.4096",
            "4503599627370496.0",
            "7.0.0",
            "7.x",
        ] {
            assert_eq!(Hlc::parse(text), None, "{text}");
        }
    }

    #[test]
    fn stamps_rise_when_the_wall_clock_stands_still_or_goes_back() {
        let mut clock = HybridClock::open(Hlc::ZERO);
        let first = clock.stamp(at(1_000_000));
        let second = clock.stamp(at(1_000_000));
        let third = clock.stamp(at(5));
        assert!(first < second && second < third);
        assert_eq!(third.wall(), Micros(1_000_000));
    }

    #[test]
    fn a_counter_that_overflows_carries_into_the_microseconds() {
        let mut clock = HybridClock::open(Hlc::ZERO);
        let first = clock.stamp(at(7));
        let last = (0..4096)
            .map(|_| clock.stamp(at(7)))
            .last()
            .expect("the range is not empty");
        assert_eq!((last.wall(), last.counter()), (Micros(first.wall().0 + 1), 0));
    }

    #[test]
    fn a_seen_timestamp_lifts_the_next_one() {
        let mut clock = HybridClock::open(Hlc::ZERO);
        clock.observe(Hlc::from_wall(Micros(99)));
        assert!(clock.stamp(at(3)) > Hlc::from_wall(Micros(99)));
    }

    #[test]
    fn the_bound_is_always_ahead_of_what_was_given() {
        let mut clock = HybridClock::open(Hlc::ZERO);
        let mut bounds = 0;
        for us in (0..10_000_000).step_by(1_000) {
            let stamp = clock.stamp(at(us));
            bounds += u32::from(clock.wanted_bound().is_some());
            assert!(stamp <= clock.bound());
        }
        assert!((8..=12).contains(&bounds), "{bounds} bounds in ten seconds");
    }

    /// By default, peers accept timestamps of a clock that is at most a minute ahead.
    #[test]
    fn a_hundred_restarts_do_not_lead_a_clock_by_half_a_minute() {
        let mut bound = Hlc::ZERO;
        for restart in 1..=100 {
            let mut clock = HybridClock::open(bound);
            for us in 0..1_000 {
                let stamp = clock.stamp(at(restart * 1_000 + us));
                bound = clock.wanted_bound().unwrap_or(bound);
                assert!(stamp <= bound);
            }
        }
        assert!(bound.wall() < Micros::from_millis(30_000), "{bound}");
    }
}
