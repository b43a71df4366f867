use crate::stable::{Line, Message, Pace, Request, Response, Slice, Snapshots, Stable, Timed, Timer, look};
use bytes::Bytes;
use std::collections::BTreeSet;
use turnbuckle_core::{
    Context, Hidden, Hlc, Key, Level, Micros, Now, Protocol, Recovered, RequestId, ServerId, SiteId,
    Topology, Vector, Version, VersionId, Vitals,
};

/// What a keyspace may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GentleRainConfig {
    /// How often what happens.
    pub pace: Pace,
}

impl GentleRainConfig {
    /// As it is by default, but for what is given.
    pub fn paced(heartbeat: Option<Micros>, theta: Option<Micros>) -> GentleRainConfig {
        GentleRainConfig {
            pace: Pace::paced(heartbeat, theta),
        }
    }
}

/// A server `p_n^m`.
pub struct GentleRain {
    me: ServerId,
    clock: PhysicalClock,
    /// VV, GST and what belongs to them.
    stable: Stable,
    snapshots: Snapshots,
    /// In monotonic time, when the clock will be where a write waits for it.
    due: BTreeSet<Micros>,
}

/// The wall clock as it is. Its readings of one microsecond are told apart by a counter, and by nothing else: set back, it goes back.
#[derive(Default)]
struct PhysicalClock {
    /// The first number of this microsecond, and the last.
    first: Hlc,
    last: Hlc,
}

impl PhysicalClock {
    /// What the next reading is.
    fn next(&self, now: Now) -> Hlc {
        let reading = Hlc::from_wall(now.wall.reading());
        match (self.first..=self.last).contains(&reading) {
            true => self.last.next(),
            false => reading,
        }
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

type Cx<'a> = Context<'a, GentleRain>;

impl Protocol for GentleRain {
    type Config = GentleRainConfig;
    type Request = Request;
    type Response = Response;
    type Message = Message<Slice>;
    type Timer = Timer;
    /// Nothing but `ut` and `sr`, which every version has.
    type Meta = ();
    type Line = Line;

    const HISTORY: bool = true;

    fn open(
        config: &GentleRainConfig,
        me: ServerId,
        topology: Topology,
        recovered: &Recovered,
        _seed: u64,
    ) -> GentleRain {
        GentleRain {
            me,
            clock: PhysicalClock::default(),
            stable: Stable::open(me, &topology, config.pace, true, recovered),
            snapshots: Snapshots::default(),
            due: BTreeSet::new(),
        }
    }

    fn keys(request: &Request, each: &mut dyn FnMut(&Key)) {
        match request {
            Request::Get { key, .. } | Request::Put { key, .. } => each(key),
            // They are read by messages, also those that are here.
            Request::Rotx { .. } => {}
        }
    }

    fn message_keys(message: &Message<Slice>, each: &mut dyn FnMut(&Key)) {
        if let Message::Own(Slice::Request { key, .. }) = message {
            each(key);
        }
    }

    fn is_write(request: &Request) -> bool {
        matches!(request, Request::Put { .. })
    }

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        self.stable.start(cx);
    }

    fn on_request(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let deadline = cx.now.monotonic + self.stable.patience() - cx.waited;
        if let Some(need) = self.lacks(&request) {
            return cx.wait(Line::Stable(GST), need.0, deadline, id, request);
        }
        if let Some(behind) = self.behind(cx.now, &request) {
            return self.wait_for_clock(cx, behind, deadline, id, request);
        }
        match request {
            Request::Get {
                key,
                stable: gst,
                eventual,
                ..
            } => self.on_get(cx, id, &key, &gst, eventual),
            Request::Put { .. } => self.on_put(cx, id, request),
            Request::Rotx { .. } => self.on_rotx(cx, id, request),
        }
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, from: ServerId, message: Message<Slice>) {
        match message {
            Message::Up(report) => self.stable.on_up(from, report),
            Message::Down(report) => self.stable.on_down(cx, report, self.snapshots.vectors()),
            Message::Own(slice) => self.on_slice(cx, from, slice),
            Message::Heartbeat(_) => {}
        }
    }

    /// `<REPLICATE d>`. VV follows with the heartbeat. The clock takes no note of anything.
    fn on_replicated(&mut self, cx: &mut Cx<'_>, from: ServerId, key: Key, version: Version<()>) {
        match from == cx.me {
            true => cx.replicate(cx.other_sites(), key.clone(), version),
            false => {
                self.stable.arrived(cx.now, version.id, &Vector::ZERO);
                cx.put(key.clone(), version)
            }
        };
        cx.collect(&key, |version| self.covered(version));
    }

    fn on_mark(&mut self, _: &mut Cx<'_>, from: ServerId, mark: Message<Slice>) {
        if let Message::Heartbeat(heartbeat) = mark {
            self.stable.on_heartbeat(from.site, heartbeat);
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>, timer: Timer) {
        match timer {
            Timer::Heartbeat => {
                let promise = self.clock.read(cx.now);
                cx.promised(promise);
                self.stable.promised(promise);
                self.stable.heartbeat(cx);
            }
            Timer::Stabilise => {
                self.stable.promised(self.clock.read(cx.now));
                self.stable.stabilise(cx, self.snapshots.vectors());
                self.look_at_snapshots(cx);
            }
            Timer::Keep => self.stable.keep(cx),
            Timer::Clock => {
                cx.advance(Line::Clock, cx.now.monotonic.0);
                self.due = self.due.split_off(&(cx.now.monotonic + Micros(1)));
                self.set_clock_timer(cx);
            }
        }
    }

    fn on_deadline(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let why = match (self.lacks(&request), self.behind(cx.now, &request)) {
            (Some(need), _) => self.stable.excuse(cx.now, GST, need, ""),
            (None, Some(by)) => {
                format!("this server's clock is {by} behind what this session has seen or written")
            }
            (None, None) => return cx.run_again(id, request),
        };
        self.refuse(cx, id, why);
    }

    fn on_link(&mut self, cx: &mut Cx<'_>, _: ServerId, up: bool) {
        if !up {
            self.stable.write_down(cx);
        }
    }

    fn on_copying(&mut self, _: &mut Cx<'_>, _: ServerId, copied: &Recovered) {
        self.stable.on_copying(copied);
    }

    fn on_copied(&mut self, cx: &mut Cx<'_>, _: ServerId, copied: &Recovered) {
        self.stable.on_copied(copied);
        self.stable.write_down(cx);
    }

    fn cut(&self) -> Vec<(SiteId, Hlc)> {
        self.stable.cut()
    }

    /// Whatever is asked is asked at `collected` or above, and nothing older is looked at.
    fn covered(&self, version: &Version<()>) -> bool {
        version.id.at <= self.stable.collected().newest()
    }

    fn settled(&self) -> Hlc {
        self.stable.settled()
    }

    fn vitals(&self, now: Now) -> Vitals {
        self.stable.vitals(now)
    }

    fn validate(&self) {
        self.stable.validate();
    }
}

impl Timed for GentleRain {
    const SCALAR: bool = true;
}

/// Where a vector that is one number has it.
const GST: SiteId = SiteId(0);

fn scalar(at: Hlc) -> Vector {
    Vector::filled(1, at)
}

impl GentleRain {
    fn gst(&self) -> Hlc {
        self.stable.dsv().at(GST)
    }

    /// `GST <- max(GST, gst)`
    fn raise(&mut self, cx: &mut Cx<'_>, gst: &Vector) {
        self.stable.raise(cx, &scalar(gst.newest()));
    }

    /// How far GST must come before the request can be looked at: as far as a session that came from elsewhere has seen, for a
    /// ROTX as far as any session has, and for whatever is read as far as this server may have collected.
    fn lacks(&self, request: &Request) -> Option<Hlc> {
        let collected = self.stable.collected().newest();
        let (need, gst) = match request {
            Request::Get { eventual: true, .. } | Request::Rotx { eventual: true, .. } => return None,
            Request::Get { need, stable, .. } => (need.newest().max(collected), stable),
            Request::Rotx { past, stable, .. } => (past.newest().max(collected), stable),
            Request::Put {
                past, moved, stable, ..
            } => (if *moved { past.newest() } else { Hlc::ZERO }, stable),
        };
        (need > self.gst().max(gst.newest())).then_some(need)
    }

    // ---- GET: Algorithm 8.1 ---------------------------------------------------------------------------------

    fn on_get(&mut self, cx: &mut Cx<'_>, id: RequestId, k: &Key, gst: &Vector, eventual: bool) {
        self.raise(cx, gst); // line 2
        let (d, hidden) = look(cx.chain(k), |d| eventual || self.is_visible(d)); // line 3
        let version = d.map(|d| d.id);
        let response = Response::Value {
            value: d.and_then(|d| d.value.clone()),
            past: if eventual { Vector::ZERO } else { dt_of(version) },
            stable: self.stable.dsv().clone(),
        };
        self.reply(cx, id, response, eventual, version, hidden); // line 4
    }

    fn is_visible(&self, d: &Version<()>) -> bool {
        d.id.site == self.me.site || d.id.at <= self.gst()
    }

    // ---- PUT: section 3.2.2 and Algorithm 8.2 ---------------------------------------------------------------

    /// How long until the clock shows more than the client's dt, if it does not.
    fn behind(&self, now: Now, request: &Request) -> Option<Micros> {
        let Request::Put { past, .. } = request else {
            return None;
        };
        let dt = past.newest();
        let behind = || dt.wall().since(now.wall.reading()) + Micros(1);
        (self.clock.next(now) <= dt).then(behind)
    }

    /// C1 needs a stamp above all that the client has seen, and there is none before the clock shows it. A timer goes by monotonic
    /// time: if the clock is set meanwhile, the request finds it behind again and waits again.
    fn wait_for_clock(
        &mut self,
        cx: &mut Cx<'_>,
        behind: Micros,
        deadline: Micros,
        id: RequestId,
        put: Request,
    ) {
        let due = cx.now.monotonic + behind;
        cx.wait(Line::Clock, due.0, deadline, id, put);
        if due < deadline {
            self.due.insert(due);
            self.set_clock_timer(cx);
        }
    }

    fn set_clock_timer(&self, cx: &mut Cx<'_>) {
        if let Some(first) = self.due.first() {
            cx.set_timer(Timer::Clock, first.since(cx.now.monotonic));
        }
    }

    fn on_put(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let Request::Put {
            key: k,
            value: v,
            stable: gst,
            eventual,
            ..
        } = request
        else {
            unreachable!("only a PUT comes here");
        };
        self.raise(cx, &gst);
        let (before, hidden) = look(cx.chain(&k), |d| self.is_visible(d));
        let existed = before.is_some_and(|d| d.value.is_some());
        let before = before.map(|d| d.id);
        // Who deletes is told whether there was something, and so has seen it.
        let past = if v.is_none() { dt_of(before) } else { Vector::ZERO };
        if v.is_none() && !existed {
            return self.reply(
                cx,
                id,
                Response::Written { existed, past },
                eventual,
                before,
                hidden,
            );
        }
        let ut = self.write(cx, &k, v);
        cx.collect(&k, |version| self.covered(version));
        // What it depends on was visible at this GST. A restart that had forgotten it would show it without that.
        self.stable.write_down_if_higher(cx);
        let past = past.merged(&dt_of(Some(ut)));
        let response = Response::Written { existed, past };
        self.reply(cx, id, response, eventual, Some(ut), Hidden::default());
    }

    /// A name that is there already was given before the clock went back.
    fn write(&mut self, cx: &mut Cx<'_>, k: &Key, value: Option<Bytes>) -> VersionId {
        let id = VersionId {
            at: self.clock.read(cx.now),
            site: self.me.site,
        };
        let mut d = Version { id, value, meta: () };
        while !cx.replicate(cx.other_sites(), k.clone(), d.clone()) {
            d.id.at = d.id.at.next();
        }
        cx.promised(d.id.at);
        self.stable.promised(d.id.at);
        d.id
    }

    fn reply(
        &self,
        cx: &mut Cx<'_>,
        id: RequestId,
        response: Response,
        eventual: bool,
        version: Option<VersionId>,
        hidden: Hidden,
    ) {
        let given = if eventual { Level::Eventual } else { Level::Causal };
        let receipt = self.stable.receipt(cx, given, version, None, hidden);
        cx.reply(id, response, receipt);
    }

    fn refuse(&self, cx: &mut Cx<'_>, id: RequestId, why: String) {
        self.reply(cx, id, Response::Refused(why), false, None, Hidden::default());
    }

    // ---- ROTX: section 5.5.5 --------------------------------------------------------------------------------

    /// GST has reached dt by now.
    fn on_rotx(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let Request::Rotx {
            stable: gst,
            eventual,
            ..
        } = &request
        else {
            unreachable!("only a ROTX comes here");
        };
        self.raise(cx, gst);
        let given = if *eventual { Level::Eventual } else { Level::Causal };
        let time = self.stable.dsv().clone();
        let (cut, hidden) = (Some(time.clone()), Hidden::default());
        let receipt = self.stable.receipt(cx, given, None, cut, hidden);
        let patience = self.stable.patience() - cx.waited;
        let name = self.snapshots.begin(id, request, time, receipt, cx.now, patience);
        self.ask_for_slices(cx, name);
    }

    fn ask_for_slices(&mut self, cx: &mut Cx<'_>, name: u64) {
        for (server, slice) in self.snapshots.questions(name, cx.topology, cx.me) {
            cx.send(server, Message::Own(slice));
        }
    }

    fn on_slice(&mut self, cx: &mut Cx<'_>, from: ServerId, slice: Slice) {
        match slice {
            Slice::Request {
                snapshot,
                place,
                key,
                sv: time,
                eventual,
            } => {
                let slice = self.read_slice(cx, snapshot, place, &key, time.newest(), eventual);
                cx.send(from, Message::Own(slice));
            }
            Slice::Reply {
                snapshot,
                place,
                value,
                past,
                hidden,
            } => {
                if let Some(done) = self.snapshots.take(snapshot, place, value, &past, hidden) {
                    let (id, response, receipt) = done.finish(self.stable.dsv().clone());
                    cx.reply(id, response, receipt);
                }
            }
            Slice::TooOld { snapshot, need } => {
                // Only after a restart of one of us: what was collected was stable, and this server will hear of it.
                let (point, gst) = (need.newest(), self.gst());
                match self.snapshots.give_up(snapshot) {
                    Some(again) if point > gst => {
                        cx.wait(
                            Line::Stable(GST),
                            point.0,
                            again.deadline,
                            again.id,
                            again.request,
                        );
                    }
                    Some(again) => self.on_request(cx, again.id, again.request),
                    None => {}
                }
            }
        }
    }

    /// Also of this site's own versions: everything up to the snapshot's time is here, and nothing is stamped below it any more.
    fn read_slice(
        &self,
        cx: &Cx<'_>,
        snapshot: u64,
        place: u32,
        k: &Key,
        time: Hlc,
        eventual: bool,
    ) -> Slice {
        if !eventual && time < self.stable.collected().newest() {
            let need = self.stable.collected().clone();
            return Slice::TooOld { snapshot, need };
        }
        let (d, hidden) = look(cx.chain(k), |d| eventual || d.id.at <= time);
        Slice::Reply {
            snapshot,
            place,
            value: d.and_then(|d| d.value.clone()),
            past: if eventual {
                Vector::ZERO
            } else {
                dt_of(d.map(|d| d.id))
            },
            hidden,
        }
    }

    fn look_at_snapshots(&mut self, cx: &mut Cx<'_>) {
        let (again, late) = self.snapshots.look(cx.now.monotonic);
        again.into_iter().for_each(|name| self.ask_for_slices(cx, name));
        for late in late {
            let missing = late.missing();
            let why = format!("{missing} keys are of partitions of this site that do not answer");
            self.refuse(cx, late.id, why);
        }
    }
}

/// What a client's dt is raised to that has seen this version.
fn dt_of(version: Option<VersionId>) -> Vector {
    version.map_or(Vector::ZERO, |d| scalar(d.at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::WallInterval;

    fn at(us: u64) -> Now {
        let wall = WallInterval {
            earliest: Micros(us),
            latest: Micros(us),
        };
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
}
