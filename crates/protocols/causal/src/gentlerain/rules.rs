use crate::stable::{Cx, Intervals, Line, Put, Request, Rules, Stable, Timer};
use crate::{Bugs, bugs};
use std::collections::BTreeSet;
use turnbuckle_core::{
    Bug, Hlc, Micros, Now, Parameter, ReplicaId, RequestId, ServerId, Setting, Vector, Version, VersionId,
};

/// The configuration of a GentleRain keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GentleRainConfig {
    /// How often the replicas do what they do regularly.
    pub pace: Intervals,
    /// The planted bugs.
    pub bugs: Bugs,
}

/// The dependencies of every version: a version does not tell what it depends on.
static NOTHING: Vector = Vector::ZERO;

/// The rules of GentleRain alone.
pub struct GentleRainRules {
    me: ReplicaId,
    clock: PhysicalClock,
    /// The times, in monotonic time, when the clock will have come as far as writes wait for.
    due: BTreeSet<Micros>,
}

/// The raw wall clock. A counter tells its readings of one microsecond apart. Nothing else is done to it: if it is set back, the readings go back.
#[derive(Default)]
struct PhysicalClock {
    /// The first reading of this microsecond, and the last one.
    first: Hlc,
    last: Hlc,
}

impl PhysicalClock {
    /// The next reading.
    fn next(&self, now: Now) -> Hlc {
        let reading = Hlc::from_wall(now.wall.reading);
        match (self.first..=self.last).contains(&reading) {
            true => self.last.next(),
            false => reading,
        }
    }

    /// If a time is a reading of this microsecond, the counter goes on behind it.
    fn pass(&mut self, now: Now, at: Hlc) {
        let reading = Hlc::from_wall(now.wall.reading);
        if at.wall() != now.wall.reading {
            return;
        }
        if !(self.first..=self.last).contains(&reading) {
            self.first = reading;
            self.last = at;
        }
        self.last = self.last.max(at);
    }

    fn read(&mut self, now: Now) -> Hlc {
        let next = self.next(now);
        if next != self.last.next() {
            self.first = next;
        }
        self.last = next;
        next
    }
}

impl Rules for GentleRainRules {
    type Config = GentleRainConfig;
    /// Nothing but `ut` and `sr`, which every version has.
    type Meta = ();

    const PARAMETERS: [Parameter<Self::Config>; 4] = Intervals::parameters([
        |config| Setting::Interval(&mut config.pace.heartbeat),
        |config| Setting::Interval(&mut config.pace.theta),
        |config| Setting::Interval(&mut config.pace.pause),
        |config| Setting::Interval(&mut config.pace.patience),
    ]);
    const BUGS: &'static [Bug] = &[
        bugs::FORGETS_DELETES_EARLY,
        bugs::SERVES_AN_OLD_DIRECTORY,
        bugs::ANSWERS_ABOVE_WHAT_IT_HAS,
        bugs::PROVES_BY_THE_LEAST_CLOCK,
        bugs::EXPIRY_REVIVES,
        bugs::CONDITIONS_IGNORE_THE_NEWEST,
        bugs::FORGETS_WHAT_EXPIRED,
        bugs::SLICES_EXPIRE_BY_OWN_CLOCKS,
        bugs::COUNTS_AS_SUMS,
        bugs::RESETS_NOTHING,
        bugs::REMOVES_UNSEEN,
        bugs::ADDS_NO_FLOORS,
        bugs::SPLITS_TRANSACTIONS,
    ];
    /// It stamps by raw clocks, and relies on their never going back.
    const TOLERATES_CLOCK_STEPS: bool = false;
    const SCALAR: bool = true;

    fn open(_: &GentleRainConfig, me: ServerId) -> GentleRainRules {
        GentleRainRules {
            me: me.replica(),
            clock: PhysicalClock::default(),
            due: BTreeSet::new(),
        }
    }

    fn pace(config: &GentleRainConfig) -> Intervals {
        config.pace
    }

    fn shrink(config: &mut Self::Config, by: u32) {
        config.pace.shrink(by);
    }

    fn bugs(config: &GentleRainConfig) -> Bugs {
        config.bugs
    }

    fn plant(config: &mut GentleRainConfig, bug: &str) -> bool {
        let found = config.bugs.named(bug);
        found.map(|planted| *planted = true).is_some()
    }

    // ---- the clock on the wall ------------------------------------------------------------------------------

    fn promise(&mut self, cx: &mut Cx<'_, Self>) -> Hlc {
        let promise = self.clock.read(cx.now);
        cx.promised(promise);
        promise
    }

    /// The raw clock takes no note of any timestamp.
    fn observe(_: &mut Cx<'_, Self>, _: Hlc) {}

    /// The raw clock: after a restart, the hybrid clock is ahead of the stamps from which spans are counted.
    fn read_time(_: Hlc, now: Now) -> Hlc {
        Hlc::from_wall(now.wall.reading)
    }

    /// C1 needs a stamp above everything that the client has seen. There is none before the clock shows it, so the request waits. It does not wait if the clock
    /// shows the same microsecond: a client that has just written at another partition of this node would often wait for the next one. A timer goes by
    /// monotonic time: if the clock is set meanwhile, the request finds it behind again and waits again.
    fn when_clock_is_there(
        &mut self,
        cx: &mut Cx<'_, Self>,
        id: RequestId,
        put: Put,
        deadline: Micros,
    ) -> Option<Put> {
        self.clock.pass(cx.now, dt_of(&put));
        let Some(behind) = self.behind(cx.now, &put) else {
            return Some(put);
        };
        let due = cx.now.monotonic + behind;
        cx.wait(Line::Clock, due.0, deadline, id, Request::Put(put));
        if due < deadline {
            self.due.insert(due);
            self.set_clock_timer(cx);
        }
        None
    }

    fn on_clock(&mut self, cx: &mut Cx<'_, Self>) {
        cx.advance(Line::Clock, cx.now.monotonic.0);
        self.due = self.due.split_off(&(cx.now.monotonic + Micros(1)));
        self.set_clock_timer(cx);
    }

    fn excuse(&self, now: Now, put: &Put) -> Option<String> {
        let by = self.behind(now, put)?;
        Some(format!(
            "this server's clock is {by} behind the newest time that this session has seen or written"
        ))
    }

    // ---- GET: Algorithm 8.1 ---------------------------------------------------------------------------------

    /// Line 3: `d.sr = m or d.ut <= GST`.
    fn is_visible(&self, gst: &Stable, d: &Version<()>) -> bool {
        d.id.replica == self.me || d.id.at <= gst.dsv().newest()
    }

    fn dependencies(_: &Version<()>) -> &Vector {
        &NOTHING
    }

    /// The time that DT_c is raised to.
    fn past_of(d: &Version<()>) -> Vector {
        Vector::filled(1, d.id.at)
    }

    // ---- PUT: section 3.2.2 and Algorithm 8.2 ---------------------------------------------------------------

    fn stable_for(put: &Put) -> &Vector {
        &put.stable
    }

    /// If a version of this name is there already, or a newer count of this replica, it was stamped before the clock went back. The next free name is taken.
    fn stamp(
        &mut self,
        stable: &mut Stable,
        cx: &mut Cx<'_, Self>,
        _dt: &Vector,
        least: Hlc,
        is_free: &dyn Fn(&Cx<'_, Self>, VersionId) -> bool,
    ) -> VersionId {
        let mut id = VersionId {
            at: self.clock.read(cx.now).max(least.next()),
            replica: self.me,
        };
        while !is_free(cx, id) {
            id.at = id.at.next();
        }
        cx.promised(id.at);
        stable.promised(id.at);
        id
    }

    /// What the version depends on was visible at this GST. If a restart had forgotten this GST, the version would be shown without that.
    fn meta(&mut self, stable: &mut Stable, cx: &mut Cx<'_, Self>, _dt: Vector) {
        stable.write_down_if_higher(cx);
    }

    // ---- ROTX: section 5.5.5 --------------------------------------------------------------------------------

    /// This holds for the site's own versions, too: everything up to the snapshot's time is here, and nothing is stamped below it any more.
    fn is_in_snapshot(time: &Vector, d: &Version<()>) -> bool {
        d.id.at <= time.newest()
    }
}

impl GentleRainRules {
    /// How long until the clock shows more than the client's dt. `None` if it does.
    fn behind(&self, now: Now, put: &Put) -> Option<Micros> {
        let dt = dt_of(put);
        let behind = || dt.wall().since(now.wall.reading) + Micros(1);
        (self.clock.next(now) <= dt).then(behind)
    }

    fn set_clock_timer(&self, cx: &mut Cx<'_, Self>) {
        if let Some(first) = self.due.first() {
            cx.set_timer(Timer::Clock, first.since(cx.now.monotonic));
        }
    }
}

/// The newest time that the client has seen or written.
fn dt_of(put: &Put) -> Hlc {
    put.past.newest().max(put.seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::WallInterval;

    fn at(us: u64) -> Now {
        let wall = WallInterval::around(Micros(us), Micros(0));
        Now {
            monotonic: Micros(0),
            wall,
        }
    }

    #[test]
    fn readings_of_one_microsecond_differ_and_a_clock_that_is_set_back_goes_back() {
        let mut clock = PhysicalClock::default();
        let numbers: BTreeSet<Hlc> = (0..10_000).map(|_| clock.read(at(7))).collect();
        assert_eq!(numbers.len(), 10_000, "also when the counter overflows");
        assert!(clock.read(at(8)) > numbers.last().copied().unwrap_or_default());
        assert_eq!(clock.read(at(1_000)), Hlc::from_wall(Micros(1_000)));
        assert_eq!(clock.read(at(3)), Hlc::from_wall(Micros(3)));
    }

    #[test]
    fn a_reading_of_this_microsecond_is_passed_and_one_of_the_next_is_waited_for() {
        let mut clock = PhysicalClock::default();
        let elsewhere = Hlc(Hlc::from_wall(Micros(7)).0 + 9);
        clock.pass(at(7), elsewhere);
        assert_eq!(clock.read(at(7)), elsewhere.next());
        clock.pass(at(7), elsewhere);
        assert_eq!(clock.read(at(7)), elsewhere.next().next(), "it does not go back");
        clock.pass(at(7), Hlc::from_wall(Micros(8)));
        assert!(clock.read(at(7)) < Hlc::from_wall(Micros(8)));
        clock.pass(at(5), Hlc::from_wall(Micros(5)));
        assert_eq!(clock.read(at(5)), Hlc::from_wall(Micros(5)).next());
    }
}
