use crate::stable::{Line, Message, Pace, Request, Response, Slice, Snapshots, Stable, Timed, Timer, look};
use bytes::Bytes;
use turnbuckle_core::{
    Context, Hidden, Hlc, Key, Level, Micros, Now, Protocol, Recovered, RequestId, ServerId, SiteId,
    Topology, Vector, Version, VersionId, Vitals,
};

/// What a keyspace may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CausalSpartanXConfig {
    /// How often what happens.
    pub pace: Pace,
    /// Where it departs from the rules, to show what they are for.
    pub departures: Departures,
}

impl CausalSpartanXConfig {
    /// As it is by default, but for what is given.
    pub fn paced(heartbeat: Option<Micros>, theta: Option<Micros>) -> CausalSpartanXConfig {
        CausalSpartanXConfig {
            pace: Pace::paced(heartbeat, theta),
            departures: Departures::default(),
        }
    }

    /// The algorithms as they are printed.
    pub fn published(self) -> CausalSpartanXConfig {
        let departures = Departures::PUBLISHED;
        CausalSpartanXConfig { departures, ..self }
    }
}

/// Each of these breaks the protocol. Some are what is printed in the text, some are bugs that the checkers must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Departures {
    /// As printed (5.2, line 3): a remote version may be seen before its own timestamp is stable.
    pub own_time_ignored: bool,
    /// As printed (5.2, line 3, after a restart): a local version is returned without making what it depends on stable.
    pub local_dependencies_ignored: bool,
    /// As the text would have it: each server collects what its own DSV covers, whatever snapshots others have under way.
    pub collects_by_own_dsv: bool,
    /// A session that moves takes DSV_c along.
    pub token_has_stable: bool,
    /// Visibility ignores the entry of this site.
    pub ignored_entry: Option<SiteId>,
    /// Line 21 of Algorithm 5.4 is left out.
    pub slice_promises_nothing: bool,
    /// What was read does not become part of the client's past.
    pub past_not_merged: bool,
}

impl Departures {
    /// The algorithms as they are printed.
    pub const PUBLISHED: Departures = Departures {
        own_time_ignored: true,
        local_dependencies_ignored: true,
        collects_by_own_dsv: true,
        token_has_stable: true,
        ignored_entry: None,
        slice_promises_nothing: false,
        past_not_merged: false,
    };
}

/// A server `p_n^m`.
pub struct CausalSpartanX {
    me: ServerId,
    departures: Departures,
    /// VV, DSV and what belongs to them.
    stable: Stable,
    snapshots: Snapshots,
}

type Cx<'a> = Context<'a, CausalSpartanX>;

impl Protocol for CausalSpartanX {
    type Config = CausalSpartanXConfig;
    type Request = Request;
    type Response = Response;
    type Message = Message<Slice>;
    type Timer = Timer;
    /// `ds`
    type Meta = Vector;
    type Line = Line;

    const HISTORY: bool = true;

    fn open(
        config: &CausalSpartanXConfig,
        me: ServerId,
        topology: Topology,
        recovered: &Recovered,
        _seed: u64,
    ) -> CausalSpartanX {
        CausalSpartanX {
            me,
            departures: config.departures,
            stable: Stable::open(me, &topology, config.pace, false, recovered),
            snapshots: Snapshots::default(),
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
        if let Some((site, need)) = self.lacks(&request) {
            let deadline = cx.now.monotonic + self.stable.patience() - cx.waited;
            return cx.wait(Line::Stable(site), need.at(site).0, deadline, id, request);
        }
        match request {
            Request::Get {
                key,
                stable,
                eventual,
                ..
            } => self.on_get(cx, id, &key, &stable, eventual),
            Request::Put {
                key,
                value,
                past,
                eventual,
                ..
            } => self.on_put(cx, id, key, value, past, eventual),
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

    /// `<REPLICATE d>`: 5.2, lines 20-21. VV follows with the heartbeat.
    fn on_replicated(&mut self, cx: &mut Cx<'_>, from: ServerId, key: Key, version: Version<Vector>) {
        cx.observe(version.id.at);
        if from != cx.me {
            self.stable.arrived(cx.now, version.id, &version.meta);
        }
        match from == cx.me {
            true => cx.replicate(cx.other_sites(), key.clone(), version),
            false => cx.put(key.clone(), version),
        };
        cx.collect(&key, |version| self.covered(version));
    }

    fn on_mark(&mut self, cx: &mut Cx<'_>, from: ServerId, mark: Message<Slice>) {
        if let Message::Heartbeat(heartbeat) = mark {
            cx.observe(heartbeat.promise);
            self.stable.on_heartbeat(from.site, heartbeat);
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>, timer: Timer) {
        match timer {
            Timer::Heartbeat => {
                self.stable.promised(cx.promise());
                self.stable.heartbeat(cx);
            }
            Timer::Stabilise => {
                self.stable.promised(cx.promise());
                self.stable.stabilise(cx, self.snapshots.vectors());
                self.look_at_snapshots(cx);
            }
            Timer::Keep => self.stable.keep(cx),
            Timer::Clock => {}
        }
    }

    fn on_deadline(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        match self.lacks(&request) {
            None => cx.run_again(id, request),
            Some((site, need)) => {
                let name = cx.topology.site_name(site).to_string();
                let why = self.stable.excuse(cx.now, site, need.at(site), &name);
                self.refuse(cx, id, why);
            }
        }
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

    /// Whatever is asked is asked at `collected` or above, where this version is visible, and nothing older is looked at.
    fn covered(&self, version: &Version<Vector>) -> bool {
        let until = match self.departures.collects_by_own_dsv {
            true => self.stable.dsv(),
            false => self.stable.collected(),
        };
        until.covers_id(version.id) && until.covers(&version.meta)
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

impl Timed for CausalSpartanX {
    fn token_has_stable(config: &CausalSpartanXConfig) -> bool {
        config.departures.token_has_stable
    }
}

impl CausalSpartanX {
    /// What a request needs and this site does not have: what a session has seen elsewhere, or, for what is read, what may have
    /// been collected here.
    fn lacks(&self, request: &Request) -> Option<(SiteId, Vector)> {
        let (need, reads) = match request {
            Request::Get { eventual: true, .. } | Request::Rotx { eventual: true, .. } => return None,
            Request::Get { need, stable, .. } => (need.clone(), Some(stable)),
            Request::Put { past, moved, .. } => (if *moved { past.clone() } else { Vector::ZERO }, None),
            Request::Rotx {
                past, moved, stable, ..
            } => (if *moved { past.clone() } else { Vector::ZERO }, Some(stable)),
        };
        if let Some(site) = self.stable.missing(&need) {
            return Some((site, need));
        }
        let stable = reads?;
        let site = self.stable.missing(self.stable.collected())?;
        // The session may know that it is stable.
        (!stable.covers(self.stable.collected())).then(|| (site, self.stable.collected().clone()))
    }

    // ---- GET and PUT: Algorithm 5.2 -------------------------------------------------------------------------

    fn on_get(&mut self, cx: &mut Cx<'_>, id: RequestId, key: &Key, dsv: &Vector, eventual: bool) {
        self.stable.raise(cx, dsv); // line 2
        let (d, hidden) = look(cx.chain(key), |d| eventual || self.is_visible(d)); // line 3
        let version = d.map(|d| d.id);
        let value = d.and_then(|d| d.value.clone());
        let ds = past_of(d); // line 4
        let is_local = version.is_some_and(|d| d.site == self.me.site);
        if is_local && !eventual && !self.departures.local_dependencies_ignored {
            // It was written when all that it depends on was stable here: a restart may have forgotten that.
            self.stable.raise(cx, &ds);
        }
        let is_seen = !eventual && !self.departures.past_not_merged;
        let response = Response::Value {
            value,
            past: if is_seen { ds } else { Vector::ZERO },
            stable: self.stable.dsv().clone(),
        };
        self.reply(cx, id, response, eventual, version, hidden); // line 5
    }

    /// Line 3, and `<d.sr, d.ut>` as well, which the text leaves out: what is merged into a client's past, and with it into
    /// DSV, must be stable. Of this site's own versions all are here, whatever its entry of DSV says.
    fn is_visible(&self, d: &Version<Vector>) -> bool {
        let dsv = self.stable.dsv();
        if d.id.site == self.me.site {
            return true;
        }
        if let Some(ignored) = self.departures.ignored_entry {
            let mut entries = d.meta.entries().chain([(d.id.site, d.id.at)]);
            return entries.all(|(site, h)| site == ignored || h <= dsv.at(site));
        }
        let is_here = |(site, h)| site == self.me.site || h <= dsv.at(site);
        d.meta.entries().all(is_here) && (dsv.covers_id(d.id) || self.departures.own_time_ignored)
    }

    fn on_put(
        &mut self,
        cx: &mut Cx<'_>,
        id: RequestId,
        k: Key,
        v: Option<Bytes>,
        ds: Vector,
        eventual: bool,
    ) {
        self.stable.raise(cx, &ds); // line 7
        let (before, hidden) = look(cx.chain(&k), |d| self.is_visible(d));
        let existed = before.is_some_and(|d| d.value.is_some());
        // Who deletes is told whether there was something, and so has seen it.
        let mut past = if v.is_none() {
            past_of(before)
        } else {
            Vector::ZERO
        };
        if v.is_none() && !existed {
            let version = before.map(|d| d.id);
            return self.reply(
                cx,
                id,
                Response::Written { existed, past },
                eventual,
                version,
                hidden,
            );
        }
        cx.observe(ds.newest().max(self.stable.dsv().at(self.me.site))); // line 8
        let written = VersionId {
            at: cx.stamp(), // lines 9 and 13
            site: self.me.site,
        };
        let d = Version {
            id: written,
            value: v,
            meta: ds,
        };
        self.stable.promised(written.at);
        let kept = cx.replicate(cx.other_sites(), k.clone(), d); // lines 16, 18 and 19
        assert!(kept, "a new stamp names no version that is there");
        cx.collect(&k, |version| self.covered(version));
        past.merge(&Vector::of(written));
        let response = Response::Written { existed, past };
        self.reply(cx, id, response, eventual, Some(written), Hidden::default()); // line 17
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

    // ---- ROTX: Algorithm 5.4 --------------------------------------------------------------------------------

    fn on_rotx(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let Request::Rotx {
            stable: dsv,
            past: ds,
            eventual,
            ..
        } = &request
        else {
            unreachable!("only a ROTX comes here");
        };
        self.stable.raise(cx, dsv); // line 10
        self.stable.raise(cx, ds);
        let sv = self.stable.dsv().clone(); // line 12
        let given = if *eventual { Level::Eventual } else { Level::Causal };
        let receipt = self
            .stable
            .receipt(cx, given, None, Some(sv.clone()), Hidden::default());
        let patience = self.stable.patience() - cx.waited;
        let name = self.snapshots.begin(id, request, sv, receipt, cx.now, patience);
        self.ask_for_slices(cx, name);
    }

    /// Lines 13 and 14.
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
                sv,
                eventual,
            } => {
                let slice = self.read_slice(cx, snapshot, place, &key, &sv, eventual);
                cx.send(from, Message::Own(slice)); // line 24
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
                    cx.reply(id, response, receipt); // line 18
                }
            }
            Slice::TooOld { snapshot, need } => {
                // Only after a restart of one of us: what was collected was stable, and this server will hear of it.
                let Some(again) = self.snapshots.give_up(snapshot) else {
                    return;
                };
                match self.stable.dsv().first_below(&need) {
                    Some(site) => {
                        let point = need.at(site).0;
                        cx.wait(Line::Stable(site), point, again.deadline, again.id, again.request);
                    }
                    None => self.on_request(cx, again.id, again.request),
                }
            }
        }
    }

    fn read_slice(
        &mut self,
        cx: &mut Cx<'_>,
        snapshot: u64,
        place: u32,
        k: &Key,
        sv: &Vector,
        eventual: bool,
    ) -> Slice {
        let is_too_old =
            !eventual && !sv.covers(self.stable.collected()) && !self.departures.collects_by_own_dsv;
        if is_too_old {
            return Slice::TooOld {
                snapshot,
                need: self.stable.collected().clone(),
            };
        }
        if !self.departures.slice_promises_nothing {
            // Line 21: nothing is stamped here any more that belongs into this snapshot, in no later life either.
            cx.observe(sv.at(self.me.site));
            self.stable.promised(cx.promise());
        }
        let shown = |d: &Version<Vector>| eventual || sv.covers(&d.meta) && sv.covers_id(d.id);
        let (d, hidden) = look(cx.chain(k), shown); // line 22
        Slice::Reply {
            snapshot,
            place,
            value: d.and_then(|d| d.value.clone()),
            past: if eventual { Vector::ZERO } else { past_of(d) }, // line 23
            hidden,
        }
    }

    fn look_at_snapshots(&mut self, cx: &mut Cx<'_>) {
        let (again, late) = self.snapshots.look(cx.now.monotonic);
        for name in again {
            self.ask_for_slices(cx, name);
        }
        for late in late {
            let why = format!(
                "{} keys are of partitions of this site that do not answer",
                late.missing()
            );
            self.refuse(cx, late.id, why);
        }
    }
}

/// `maxDS(d.ds, {<d.sr, d.ut>})`
fn past_of(d: Option<&Version<Vector>>) -> Vector {
    d.map_or(Vector::ZERO, |d| Vector::of(d.id).merged(&d.meta))
}
