use super::message::{step_decides, step_reads};
use super::{
    Get, Intervals, Line, Message, Put, Request, Response, Slice, Snapshot, Snapshots, Stable, Timer, Work,
};
use crate::{Bugs, metrics::of_hidden_versions};
use turnbuckle_core::{
    Bounded, Bug, Changed, Context, Descriptor, Forgotten, Hidden, Hlc, Key, Label, Level, Meta, Metric,
    Micros, NetEffect, NewContent, Now, Parameter, Protocol, Reading, Receipt, Recovered, ReplicaId,
    Replication, RequestId, ServerId, Shown, Topology, Transactions, Vector, Version, VersionId, Vitals,
};

/// How often a replica looks for snapshots whose slices do not come, while it has any.
const LOOK_EVERY: Micros = Micros::from_millis(5);

/// What differs between protocols that go by time: the clock, what a version carries, and what decides that a version may be seen.
pub trait Rules: Sized + Send + 'static {
    /// The configuration of a keyspace.
    type Config: Clone + Default + Send + Sync + 'static;
    /// What a version carries beside its name.
    type Meta: Meta;

    /// The parameters that a keyspace's configuration may set: its intervals.
    const PARAMETERS: [Parameter<Self::Config>; 4];
    /// The bugs that worlds drawn from seeds must find.
    const BUGS: &'static [Bug];
    /// Whether promises are kept when clocks are set.
    const TOLERATES_CLOCK_STEPS: bool;

    /// Whether one number is used for all sites. If so, what a write depends on does not tell what of it was stable. So the write says that, too, and
    /// a ROTX waits until everything that its client has seen is stable.
    const SCALAR: bool;

    /// The rules of a server.
    fn open(config: &Self::Config, me: ServerId) -> Self;

    /// How often the replicas do what they do regularly.
    fn pace(config: &Self::Config) -> Intervals;

    /// Divides by `by` the intervals of what the protocol does seldom ([`Protocol::shrink`]).
    fn shrink(config: &mut Self::Config, by: u32);

    /// The planted bugs.
    fn bugs(config: &Self::Config) -> Bugs;

    /// Plants the bug of this name. Returns false if there is none.
    fn plant(config: &mut Self::Config, bug: &str) -> bool;

    // ---- the clock ------------------------------------------------------------------------------------------

    /// Promises a time: everything that is stamped from now on is above it.
    fn promise(&mut self, cx: &mut Cx<'_, Self>) -> Hlc;

    /// Takes note of a stamp from elsewhere.
    fn observe(cx: &mut Cx<'_, Self>, at: Hlc);

    /// See [`Protocol::read_time`].
    fn read_time(hybrid: Hlc, _: Now) -> Hlc {
        hybrid
    }

    /// Returns a PUT for which nothing else is missing, to be carried out now. If the clock must come farther first, it lets the PUT wait and returns
    /// `None`.
    fn when_clock_is_there(
        &mut self,
        _: &mut Cx<'_, Self>,
        _: RequestId,
        put: Put,
        _: Micros,
    ) -> Option<Put> {
        Some(put)
    }

    /// [`Timer::Clock`] is due.
    fn on_clock(&mut self, _: &mut Cx<'_, Self>) {}

    /// What to tell the client of a PUT that has waited for the clock until its time was up.
    fn excuse(&self, _: Now, _: &Put) -> Option<String> {
        None
    }

    // ---- versions -------------------------------------------------------------------------------------------

    /// What the version depends on, as far as it carries that.
    fn dependencies(version: &Version<Self::Meta>) -> &Vector;

    /// The past that a client has which has seen the version: its own past is raised by this.
    fn past_of(version: &Version<Self::Meta>) -> Vector;

    /// Whether the version may be seen.
    fn is_visible(&self, stable: &Stable, version: &Version<Self::Meta>) -> bool;

    /// Whether a snapshot at `sv` shows the version, or something newer.
    fn is_in_snapshot(sv: &Vector, version: &Version<Self::Meta>) -> bool;

    /// A version of this site is returned that depends on this.
    fn on_local_read(&self, _: &mut Stable, _: &mut Cx<'_, Self>, _dependencies: &Vector) {}

    /// The first site of which something must be here, and is not, before a version of this site is returned that depends on this. And the time that
    /// is needed.
    fn absent_for_local_read(&self, _: &Stable, _dependencies: &Vector) -> Option<(ReplicaId, Hlc)> {
        None
    }

    // ---- what is done ---------------------------------------------------------------------------------------

    /// The part of a PUT that tells what was stable for its client.
    fn stable_for(put: &Put) -> &Vector;

    /// The name of what is written next: above `least`, and one of which `is_free` is true.
    fn stamp(
        &mut self,
        stable: &mut Stable,
        cx: &mut Cx<'_, Self>,
        past: &Vector,
        least: Hlc,
        is_free: &dyn Fn(&Cx<'_, Self>, VersionId) -> bool,
    ) -> VersionId;

    /// What a version carries that depends on this. It is about to be put.
    fn meta(&mut self, stable: &mut Stable, cx: &mut Cx<'_, Self>, past: Vector) -> Self::Meta;

    /// A slice of a snapshot at `sv` is about to be read: from now on nothing is stamped here that belongs to the snapshot.
    fn on_slice(&mut self, _: &mut Stable, _: &mut Cx<'_, Self>, _sv: &Vector) {}

    // ---- planted bugs ---------------------------------------------------------------------------------------

    /// Whether this server collects by its own DSV, instead of up to where its whole site may.
    fn collects_by_own_dsv(&self) -> bool {
        false
    }

    /// Whether what a client has read does not become part of its past.
    fn forgets_what_was_read(&self) -> bool {
        false
    }

    /// Whether the token of a session carries what was stable at its old site, too.
    fn token_has_stable(_: &Self::Config) -> bool {
        false
    }
}

/// A server `p_n^m` of a protocol that goes by time: everything but its [`Rules`].
///
/// ```text
///    GET, PUT   lacks?  wait until it is stable -> raise DSV by what the client knows -> the rules
///    ROTX       lacks?  the same -> sv = DSV -> a slice of each key from its partition -> answer
/// ```
pub struct TimedReplica<R> {
    me: ServerId,
    rules: R,
    /// VV, DSV (or GST), and what belongs to them.
    stable: Stable,
    snapshots: Snapshots,
    bugs: Bugs,
}

/// What the handlers of these protocols see, and how they act.
pub type Cx<'a, R> = Context<'a, TimedReplica<R>>;

impl<R: Rules> Protocol for TimedReplica<R> {
    type Config = R::Config;
    type Request = Request;
    type Response = Response;
    type Message = Message<Slice>;
    type Timer = Timer;
    type Meta = R::Meta;
    type Line = Line;

    const DESCRIPTOR: Descriptor = Descriptor {
        history: true,
        tolerates_clock_steps: R::TOLERATES_CLOCK_STEPS,
        tolerates_old_directories: true,
        takes_expiry: true,
        confirms_sites: true,
        counts: true,
        keeps_elements: true,
        transactions: Transactions::WithoutConditions,
        decides_at_site: true,
        ..Descriptor::of(Replication::Streams)
    };
    const PARAMETERS: &'static [Parameter<R::Config>] = &R::PARAMETERS;
    const BUGS: &'static [Bug] = R::BUGS;
    const METRICS: &'static [Metric<Self>] = &of_hidden_versions::<Self>(
        |replica, _| Reading::Count(replica.stable.hidden()),
        |replica, now| replica.stable.lags(now),
        |replica, _| replica.stable.spans(),
    );

    fn plant(config: &mut R::Config, bug: &str) -> bool {
        R::plant(config, bug)
    }

    fn shrink(config: &mut R::Config, by: u32) {
        R::shrink(config, by);
    }

    fn open(
        config: &R::Config,
        me: ServerId,
        topology: Topology,
        recovered: &Recovered,
        _seed: u64,
    ) -> TimedReplica<R> {
        TimedReplica {
            me,
            rules: R::open(config, me),
            stable: Stable::open(
                me,
                &topology,
                R::pace(config),
                R::SCALAR,
                R::bugs(config),
                recovered,
            ),
            bugs: R::bugs(config),
            snapshots: Snapshots::default(),
        }
    }

    fn keys(&self, request: &Request, each: &mut dyn FnMut(&Key)) {
        match request {
            Request::Get(Get { key, .. }) => each(key),
            Request::Put(put) => put.keys().for_each(each),
            // Its keys are read by messages, also those of this partition.
            Request::Rotx(_) => {}
        }
    }

    fn keys_elsewhere(request: &Request, each: &mut dyn FnMut(&Key)) {
        if let Request::Rotx(rotx) = request {
            rotx.keys.iter().for_each(each);
        }
    }

    fn message_keys(&self, _: ServerId, message: &Message<Slice>, each: &mut dyn FnMut(&Key)) {
        if let Message::Own(Slice::Request { key, .. }) = message {
            each(key);
        }
    }

    fn is_write(request: &Request) -> bool {
        matches!(request, Request::Put(_))
    }

    fn on_start(&mut self, cx: &mut Cx<'_, R>) {
        self.stable.start(cx);
    }

    fn on_request(&mut self, cx: &mut Cx<'_, R>, id: RequestId, request: Request) {
        if let Some(why) = self.stable.refusal() {
            return self.refuse(cx, id, why.to_string());
        }
        let deadline = cx.now.monotonic + self.stable.patience() - cx.waited;
        if let Some(lack) = self.lacks(&request) {
            return cx.wait(lack.line(), lack.need.0, deadline, id, request);
        }
        let Some(request) = self.when_fresh(cx, id, request) else {
            return;
        };
        match request {
            Request::Get(get) => self.on_get(cx, id, get, deadline),
            Request::Put(put) => {
                if let Some(put) = self.rules.when_clock_is_there(cx, id, put, deadline) {
                    self.on_put(cx, id, put, deadline);
                    self.send_news(cx);
                }
            }
            Request::Rotx(_) => self.on_rotx(cx, id, request, deadline),
        }
    }

    fn on_message(&mut self, cx: &mut Cx<'_, R>, from: ServerId, message: Message<Slice>) {
        if from.replica() != self.me.replica() {
            return;
        }
        match message {
            Message::Up(report, numbers) => {
                if self.stable.on_up(cx, from, report, numbers) {
                    self.stable.promised(self.rules.promise(cx));
                    self.stable.all_reported(cx, self.snapshots.vectors());
                }
            }
            Message::Down(report, numbers) => self.stable.on_down(cx, report, numbers),
            Message::Own(slice) => return self.on_slice(cx, from, slice),
            Message::Heartbeat(_) => return,
        }
        self.send_news(cx);
    }

    /// `<REPLICATE d>`. VV follows with the heartbeat.
    fn on_replicated(&mut self, cx: &mut Cx<'_, R>, from: ServerId, key: Key, version: Version<R::Meta>) {
        R::observe(cx, version.id.at);
        let here = cx.chain(&key);
        if self.stable.is_of_the_forgotten(here, &version) {
            return;
        }
        let version = version.with_floor(self.stable.floor(here));
        if from != cx.me {
            self.stable.arrived(cx.now, version.id, R::dependencies(&version));
        }
        cx.make_room(&key, |version| self.covered(version));
        match from == cx.me {
            true => cx.replicate(cx.others(), key, version),
            false => cx.put(key, version),
        };
        self.stable.has_put(cx);
    }

    fn on_mark(&mut self, cx: &mut Cx<'_, R>, from: ServerId, mark: Message<Slice>) {
        if let Message::Heartbeat(heartbeat) = mark {
            R::observe(cx, heartbeat.promise);
            self.stable.on_heartbeat(cx, from.replica(), heartbeat);
            self.send_news(cx);
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, R>, timer: Timer) {
        match timer {
            Timer::Heartbeat => {
                self.stable.promised(self.rules.promise(cx));
                self.stable.heartbeat(cx);
            }
            Timer::News => {
                self.stable.pause_is_over();
                self.send_news(cx);
            }
            Timer::Stabilise => {
                self.stable.promised(self.rules.promise(cx));
                self.stable.stabilise(cx, self.snapshots.vectors());
                self.send_news(cx);
            }
            Timer::Snapshots => self.look_at_snapshots(cx),
            Timer::Keep => self.stable.keep(cx),
            Timer::Clock => self.rules.on_clock(cx),
        }
    }

    fn on_deadline(&mut self, cx: &mut Cx<'_, R>, id: RequestId, request: Request) {
        let why = match (self.lacks(&request), &request) {
            (Some(lack), _) => Some(self.stable.excuse(cx, lack.replica, lack.need)),
            (None, Request::Put(put)) => self.rules.excuse(cx.now, put),
            (None, read) => match self.stable.bounded(cx, read) {
                Bounded::Never(why) => Some(self.stable.excuse_of_bound(cx, read, why)),
                Bounded::Proven | Bounded::Once { .. } => None,
            },
        };
        match why {
            Some(why) => self.refuse(cx, id, why),
            None => cx.run_again(id, request),
        }
    }

    fn on_link(&mut self, cx: &mut Cx<'_, R>, peer: ServerId, up: bool) {
        if !up {
            self.stable.left(peer.replica());
            self.stable.write_down(cx);
        }
    }

    fn on_returned(&mut self, cx: &mut Cx<'_, R>, _: ServerId, returned: &Recovered) {
        self.stable.on_returned(returned);
        self.stable.write_down(cx);
    }

    fn on_copying(&mut self, cx: &mut Cx<'_, R>, _: ServerId, copied: &Recovered) {
        self.stable.on_copying(copied);
        self.stable.write_down(cx);
    }

    fn on_copied(&mut self, cx: &mut Cx<'_, R>, _: ServerId, copied: &Recovered) {
        self.stable.on_copied(cx, copied);
        self.stable.write_down(cx);
    }

    fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        self.stable.cut()
    }

    /// Every read is at `collected` or above, where this version is visible, so nothing older is looked at.
    fn covered(&self, version: &Version<R::Meta>) -> bool {
        let until = match self.rules.collects_by_own_dsv() {
            true => self.stable.dsv(),
            false => self.stable.collected(),
        };
        R::is_in_snapshot(until, version)
    }

    fn read_time(&self, hybrid: Hlc, now: Now) -> Hlc {
        R::read_time(hybrid, now)
    }

    fn settled(&self) -> Hlc {
        self.stable.settled()
    }

    fn closed(&self) -> Hlc {
        self.stable.deletes.closed()
    }

    fn closed_everywhere(&self) -> Hlc {
        self.stable.closed_everywhere()
    }

    fn shown(&self) -> Hlc {
        self.stable.deletes.shown()
    }

    fn is_outdated(&self) -> bool {
        self.stable.refusal().is_some()
    }

    fn forgotten(&self) -> Forgotten {
        self.stable.deletes.word()
    }

    fn on_resumed(&mut self, cx: &mut Context<'_, Self>, from: ServerId, forgotten: &Forgotten) {
        self.stable.on_resumed(cx, from.replica(), forgotten);
    }

    fn vitals(&self, _: Now) -> Vitals {
        self.stable.vitals()
    }

    fn validate(&self) {
        self.stable.validate();
    }
}

impl<R: Rules> TimedReplica<R> {
    /// What a request needs and is not here. There are two cases. What its client knows to be stable at this site, this partition may have lost. And
    /// this site may not have what its client has seen at another site or, for a read, what may have been collected here, unless the client knows
    /// that it is stable here.
    fn lacks(&self, request: &Request) -> Option<Lack> {
        let (past, known, reads) = match request {
            Request::Get(get) if get.view.is_newest() => return None,
            Request::Rotx(rotx) if rotx.view.is_newest() => return None,
            Request::Get(get) => (Some(&get.need), &get.stable, true),
            Request::Put(put) => {
                let past = Some(&put.past).filter(|_| put.moved);
                (past, &put.stable, put.reads() || put.decides())
            }
            Request::Rotx(rotx) => (Some(&rotx.need), &rotx.stable, true),
        };
        // The vectors that DSV will be raised by.
        let raised = match request {
            Request::Get(get) => [Some(&get.stable), None],
            // If one number is used for all sites, a version does not tell what was stable for its writer. So the writer's server must know it.
            Request::Put(put) => {
                let carries = reads || R::SCALAR && !put.eventual;
                [Some(R::stable_for(put)).filter(|_| carries), None]
            }
            Request::Rotx(rotx) => [Some(&rotx.stable), Some(&rotx.past)],
        };
        let mut raised = raised.into_iter().flatten();
        if let Some((replica, need)) = raised.find_map(|stable| self.stable.absent(stable)) {
            return Some(Lack {
                replica,
                need,
                here: true,
            });
        }
        let collected = reads.then(|| self.stable.collected());
        [past, collected].into_iter().flatten().find_map(|need| {
            let replica = self.stable.missing(need, known)?;
            Some(Lack {
                replica,
                need: need.at(replica),
                here: false,
            })
        })
    }

    /// Returns a request for which nothing else is missing, to be carried out now. A read at `bounded(t)` waits until its bound is proven.
    fn when_fresh(&mut self, cx: &mut Cx<'_, R>, id: RequestId, request: Request) -> Option<Request> {
        match self.stable.bounded(cx, &request) {
            Bounded::Proven => return Some(request),
            Bounded::Once { wall, deadline } => {
                let (line, point) = self.stable.line_of_wall(cx.now, wall, request.is_snapshot());
                cx.wait(line, point.0, deadline, id, request);
            }
            Bounded::Never(why) => {
                let why = self.stable.excuse_of_bound(cx, &request, why);
                self.refuse(cx, id, why);
            }
        }
        None
    }

    // ---- GET and PUT ----------------------------------------------------------------------------------------

    fn on_get(&mut self, cx: &mut Cx<'_, R>, id: RequestId, get: Get, deadline: Micros) {
        self.stable.raise(cx, &get.stable);
        let now = self.read_time(cx, get.seen);
        let (d, hidden) = Shown::of(cx.chain(&get.key), |d| {
            get.view.is_newest() || self.rules.is_visible(&self.stable, d)
        });
        let (version, value) = (d.label(), d.whole(now));
        let expired = d.expired_at(now).unwrap_or(Hlc::ZERO);
        let past = match get.view.is_newest() {
            true => Vector::ZERO,
            false => past_of::<R>(&d),
        };
        if !get.view.is_newest() && self.is_own(&d) {
            if let Some(absent) = self.rules.absent_for_local_read(&self.stable, &past) {
                return self.wait_until_here(cx, id, Request::Get(get), absent, deadline);
            }
            self.rules.on_local_read(&mut self.stable, cx, &past);
        }
        let response = Response::Value {
            value,
            past: if self.rules.forgets_what_was_read() {
                Vector::ZERO
            } else {
                past
            },
            stable: self.stable.dsv().clone(),
            expired,
        };
        self.reply(cx, id, response, get.view.level(), version, hidden);
    }

    /// Whether some of it was written at this site.
    fn is_own(&self, d: &Shown<'_, R::Meta>) -> bool {
        d.versions().any(|d| d.id.replica == self.me.replica())
    }

    /// The time at which a request looks at values that expire: that of the clock or, if that is later, the newest one that its client has seen.
    fn read_time(&self, cx: &Cx<'_, R>, seen: Hlc) -> Hlc {
        let clock = R::read_time(cx.read_time(), cx.now);
        match self.bugs.forgets_what_expired {
            true => clock,
            false => clock.max(seen),
        }
    }

    /// Lets a request wait until what this partition has lost is here again. When its time is up, the request is refused.
    fn wait_until_here(
        &self,
        cx: &mut Cx<'_, R>,
        id: RequestId,
        request: Request,
        (replica, need): (ReplicaId, Hlc),
        deadline: Micros,
    ) {
        if deadline <= cx.now.monotonic {
            let why = self.stable.excuse(cx, replica, need);
            return self.refuse(cx, id, why);
        }
        let lack = Lack {
            replica,
            need,
            here: true,
        };
        cx.wait(lack.line(), need.0, deadline, id, request);
    }

    fn on_put(&mut self, cx: &mut Cx<'_, R>, id: RequestId, put: Put, deadline: Micros) {
        self.stable.raise(cx, R::stable_for(&put));
        let now = self.read_time(cx, put.seen);
        let Work::One(key, _) = &put.work else {
            return self.on_transaction(cx, id, put, now, deadline);
        };
        let reads = put.reads();
        let here = cx.chain(key);
        let (before, hidden) = Shown::of(here, |d| self.rules.is_visible(&self.stable, d));
        let floor = self.stable.floor(here);
        let is_local = reads && self.is_own(&before);
        // It may have to wait, and then it is carried out as a whole, later.
        let whole = is_local.then(|| put.clone());
        let Put {
            work: Work::One(key, change),
            mut past,
            seen: seen_by_client,
            eventual,
            ..
        } = put
        else {
            unreachable!("it is no transaction");
        };
        let decides = change.decides();
        let decided_on = self.bugs.decided_on(&change, &before);
        let new = change.of(&decided_on, now);
        let expired = before.expired_at(now).filter(|_| reads).unwrap_or(Hlc::ZERO);
        let seen = if reads {
            past_of::<R>(&before)
        } else {
            Vector::ZERO
        };
        let before = before.label();
        if let Some(whole) = whole {
            if let Some(absent) = self.rules.absent_for_local_read(&self.stable, &seen) {
                return self.wait_until_here(cx, id, Request::Put(whole), absent, deadline);
            }
            self.rules.on_local_read(&mut self.stable, cx, &seen);
        }
        let stable = self.stable_for_who_saw(&seen);
        let given = written_at(eventual);
        let written = new.and_then(|new| {
            past.merge(&seen);
            R::observe(cx, seen_by_client);
            self.write(cx, key, new, (past, floor))
        });
        let (written, changed) = match written {
            Ok(written) => written,
            Err(changed) => {
                let response = Response::Written {
                    changed,
                    past: seen,
                    stable,
                    expired,
                };
                return self.reply_decided(cx, id, response, decides, (given, before, hidden));
            }
        };
        let response = Response::Written {
            changed,
            past: seen.merged(&of_own::<R>(written.id)),
            stable,
            expired,
        };
        let of_it = (given, Some(written), Hidden::default());
        self.reply_decided(cx, id, response, decides, of_it);
    }

    /// Answers a write, which may have been decided by what is shown here.
    fn reply_decided(
        &self,
        cx: &mut Cx<'_, R>,
        id: RequestId,
        response: Response,
        decided_at_site: bool,
        (given, version, hidden): (Level, Option<Label>, Hidden),
    ) {
        let receipt = Receipt {
            decided_at_site,
            ..self.stable.receipt(cx, given, None, hidden)
        };
        cx.reply(id, response, receipt.of(version));
    }

    /// Stamps what is new and replicates it. Returns the version, and the answer.
    fn write(
        &mut self,
        cx: &mut Cx<'_, R>,
        key: Key,
        new: NewContent,
        (past, floor): (Vector, Hlc),
    ) -> Result<(Label, Changed), Changed> {
        let is_free = |cx: &Cx<'_, R>, id| cx.chain(&key).is_none_or(|chain| !chain.holds(id));
        let least = new.above(self.me.replica());
        let id = self.rules.stamp(&mut self.stable, cx, &past, least, &is_free);
        let (content, changed) = self.bugs.stamped(new, id, cx.topology)?;
        let meta = self.rules.meta(&mut self.stable, cx, past);
        let version = Version { id, content, meta }.with_floor(floor);
        let written = version.label();
        self.put(cx, key, version);
        Ok((written, changed))
    }

    /// Sends what other sites and the parent must hear soon, or sets the timer for it.
    fn send_news(&mut self, cx: &mut Cx<'_, R>) {
        let mut due = self.stable.due(cx);
        if due.report {
            self.stable.promised(self.rules.promise(cx));
            self.stable.report_news(cx, self.snapshots.vectors());
            // The root may have passed on what it has not promised itself.
            due.promise |= self.stable.due(cx).promise;
        }
        if due.promise {
            self.stable.promised(self.rules.promise(cx));
            self.stable.heartbeat(cx);
        }
    }

    /// Puts a version that was stamped here, and replicates it.
    fn put(&mut self, cx: &mut Cx<'_, R>, key: Key, version: Version<R::Meta>) {
        cx.make_room(&key, |version| self.covered(version));
        self.stable.has_written(version.id.at);
        let kept = cx.replicate(cx.others(), key, version);
        assert!(kept, "a new stamp names no version that is there");
        self.stable.has_put(cx);
    }

    /// A transaction without conditions. All that it writes has one timestamp. So at every site, whoever sees what is stable there sees all of it or nothing: a heartbeat
    /// with that time comes behind all of it.
    fn on_transaction(
        &mut self,
        cx: &mut Cx<'_, R>,
        id: RequestId,
        mut put: Put,
        now: Hlc,
        deadline: Micros,
    ) {
        let Work::Many(steps) = &put.work else {
            unreachable!("it is a transaction");
        };
        let visible = |d: &Version<R::Meta>| self.rules.is_visible(&self.stable, d);
        let (mut seen, mut expired, mut is_local) = (Vector::ZERO, Hlc::ZERO, false);
        let mut least = Hlc::ZERO;
        for step in steps {
            let (shown, _) = Shown::of(cx.chain(step.key()), visible);
            least = least.max(shown.newest_of(self.me.replica()));
            if step_reads(step, put.eventual) {
                seen.merge(&past_of::<R>(&shown));
                expired = expired.max(shown.expired_at(now).unwrap_or_default());
                is_local |= self.is_own(&shown);
            }
        }
        if is_local {
            if let Some(absent) = self.rules.absent_for_local_read(&self.stable, &seen) {
                return self.wait_until_here(cx, id, Request::Put(put), absent, deadline);
            }
            self.rules.on_local_read(&mut self.stable, cx, &seen);
        }
        let stable = self.stable_for_who_saw(&seen);
        put.past.merge(&seen);
        R::observe(cx, put.seen);
        let is_free = |cx: &Cx<'_, R>, id: VersionId| {
            let mut chains = steps.iter().filter_map(|step| cx.chain(step.key()));
            chains.all(|chain| !chain.holds(id))
        };
        let name = self.rules.stamp(&mut self.stable, cx, &put.past, least, &is_free);
        let mut effect = NetEffect::new(name);
        let mut told = Vec::with_capacity(steps.len());
        for step in steps {
            let visible = |d: &Version<R::Meta>| self.rules.is_visible(&self.stable, d);
            let (shown, _) = Shown::of(cx.chain(step.key()), visible);
            told.push(effect.carry_out(step, &shown));
        }
        let meta = self.rules.meta(&mut self.stable, cx, put.past.clone());
        let versions: Vec<_> = effect.into_versions(meta).collect();
        let written = versions.first().map(|(_, version)| version.label());
        let first = versions.first().map(|(key, _)| key.clone());
        let mut later = None;
        for (key, mut version) in versions {
            if self.bugs.splits_transactions && first.as_ref() != Some(&key) {
                version.id = *later.get_or_insert_with(|| self.stamp_apart(cx, &put.past));
            }
            let floor = self.stable.floor(cx.chain(&key));
            self.put(cx, key, version.with_floor(floor));
        }
        let own = written.map_or(Vector::ZERO, |written| of_own::<R>(written.id));
        let response = Response::Transacted {
            steps: told,
            past: seen.merged(&own),
            stable,
            expired,
        };
        let of_it = (written_at(put.eventual), written, Hidden::default());
        self.reply_decided(cx, id, response, steps.iter().any(step_decides), of_it);
    }

    /// A planted bug: a timestamp that a promise tells apart from those before it.
    fn stamp_apart(&mut self, cx: &mut Cx<'_, R>, past: &Vector) -> VersionId {
        self.stable.promised(self.rules.promise(cx));
        self.stable.stabilise(cx, self.snapshots.vectors());
        self.rules
            .stamp(&mut self.stable, cx, past, Hlc::ZERO, &|_, _| true)
    }

    /// What a client that has seen this must know to be stable, as a client that reads does. Nothing, if all of it is of this site.
    fn stable_for_who_saw(&self, seen: &Vector) -> Vector {
        let of_others = |(replica, _)| R::SCALAR || replica != self.me.replica();
        match seen.entries().any(of_others) && !self.bugs.deletes_tell_nothing_stable {
            true => self.stable.dsv().clone(),
            false => Vector::ZERO,
        }
    }

    fn reply(
        &self,
        cx: &mut Cx<'_, R>,
        id: RequestId,
        response: Response,
        given: Level,
        version: Option<Label>,
        hidden: Hidden,
    ) {
        let receipt = self.stable.receipt(cx, given, None, hidden).of(version);
        cx.reply(id, response, receipt);
    }

    fn refuse(&self, cx: &mut Cx<'_, R>, id: RequestId, why: String) {
        self.reply(
            cx,
            id,
            Response::Refused(why),
            Level::Causal,
            None,
            Hidden::default(),
        );
    }

    // ---- ROTX: Algorithm 5.4 --------------------------------------------------------------------------------

    fn on_rotx(&mut self, cx: &mut Cx<'_, R>, id: RequestId, request: Request, deadline: Micros) {
        let Request::Rotx(rotx) = request else {
            unreachable!("only a ROTX comes here");
        };
        self.stable.raise(cx, &rotx.stable); // line 10
        if !rotx.view.is_newest() {
            // What was seen at another site is here by now: the request has waited for it.
            self.stable.raise(cx, &rotx.past);
        }
        let sv = self.stable.dsv().clone(); // line 12
        let (cut, hidden) = (Some(sv.clone()), Hidden::default());
        let receipt = self.stable.receipt(cx, rotx.view.level(), cut, hidden);
        let now = self.read_time(cx, rotx.seen);
        let name = self
            .snapshots
            .begin(id, rotx, (sv, now), receipt, cx.now, deadline);
        if self.snapshots.len() == 1 {
            cx.set_timer(Timer::Snapshots, LOOK_EVERY);
        }
        self.ask_for_slices(cx, name);
    }

    /// Lines 13 and 14, for a share of the keys.
    fn ask_for_slices(&mut self, cx: &mut Cx<'_, R>, name: u64) {
        for (server, slice) in self.snapshots.next_questions(name, cx.topology, cx.me) {
            cx.send(server, Message::Own(slice));
        }
    }

    fn on_slice(&mut self, cx: &mut Cx<'_, R>, from: ServerId, slice: Slice) {
        match slice {
            Slice::Request {
                snapshot,
                place,
                key,
                sv,
                now,
                eventual,
            } => {
                // What is not here yet comes soon, and the slice is asked for again.
                if eventual || self.stable.absent(&sv).is_none() {
                    let slice = self.read_slice(cx, (snapshot, place), &key, &sv, now, eventual);
                    cx.send(from, Message::Own(slice)); // line 24
                }
            }
            Slice::Reply {
                snapshot,
                place,
                value,
                past,
                expired,
                hidden,
                proves,
            } => {
                let of = (value, hidden, proves);
                let seen = (&past, expired);
                match self.snapshots.take(cx.now.monotonic, snapshot, place, seen, of) {
                    Some(done) => {
                        let (id, response, receipt) = done.finish(self.stable.dsv().clone());
                        cx.reply(id, response, receipt); // line 18
                    }
                    None => self.ask_for_slices(cx, snapshot),
                }
            }
            Slice::TooOld { snapshot, need } => {
                if let Some(again) = self.snapshots.give_up(snapshot) {
                    self.take_another(cx, again, &need);
                }
            }
        }
    }

    fn read_slice(
        &mut self,
        cx: &mut Cx<'_, R>,
        (snapshot, place): (u64, u32),
        k: &Key,
        sv: &Vector,
        now: Hlc,
        eventual: bool,
    ) -> Slice {
        let now = match self.bugs.slices_expire_by_own_clocks {
            true => R::read_time(cx.read_time(), cx.now),
            false => now,
        };
        if !eventual && !sv.covers(self.stable.collected()) && !self.rules.collects_by_own_dsv() {
            let need = self.stable.collected().clone();
            return Slice::TooOld { snapshot, need };
        }
        self.rules.on_slice(&mut self.stable, cx, sv); // line 21
        let (d, hidden) = Shown::of(cx.chain(k), |d| eventual || R::is_in_snapshot(sv, d)); // line 22
        Slice::Reply {
            snapshot,
            place,
            value: d.value(now),
            past: if eventual { Vector::ZERO } else { past_of::<R>(&d) }, // line 23
            expired: d.expired_at(now).unwrap_or(Hlc::ZERO),
            hidden,
            proves: cx.proves(),
        }
    }

    /// Takes another snapshot. That is needed only after a restart of one of the servers, or a full copy. What was collected was stable, so this
    /// server will hear of it.
    fn take_another(&mut self, cx: &mut Cx<'_, R>, mut again: Snapshot, need: &Vector) {
        again.rotx.need.merge(need);
        let (id, deadline, request) = (again.id, again.deadline, Request::Rotx(again.rotx));
        match self.lacks(&request).or_else(|| self.own_lack(need)) {
            Some(lack) if deadline <= cx.now.monotonic => {
                let why = self.stable.excuse(cx, lack.replica, lack.need);
                self.refuse(cx, id, why);
            }
            Some(lack) => cx.wait(lack.line(), lack.need.0, deadline, id, request),
            None => self.on_rotx(cx, id, request, deadline),
        }
    }

    /// What was collected at another partition may be above this server's DSV in the entry of their own site. To ask again before DSV has risen would only
    /// find the same.
    fn own_lack(&self, need: &Vector) -> Option<Lack> {
        let replica = self.me.replica();
        let need = need.at(replica);
        (!R::SCALAR && need > self.stable.dsv().at(replica)).then_some(Lack {
            replica,
            need,
            here: false,
        })
    }

    fn look_at_snapshots(&mut self, cx: &mut Cx<'_, R>) {
        let (again, late) = self.snapshots.look(cx.now.monotonic);
        for name in again {
            for (server, slice) in self.snapshots.same_questions(name, cx.topology, cx.me) {
                cx.send(server, Message::Own(slice));
            }
        }
        for late in late {
            let missing = late.missing();
            let why = format!(
                "{missing} keys are in partitions of this site that do not answer, or that do not have yet what the answer must show"
            );
            self.refuse(cx, late.id, why);
        }
        if !self.snapshots.is_empty() {
            cx.set_timer(Timer::Snapshots, LOOK_EVERY);
        }
    }
}

/// What a request must wait for.
struct Lack {
    replica: ReplicaId,
    need: Hlc,
    /// Whether it must be at this partition. If not, it must be stable.
    here: bool,
}

impl Lack {
    fn line(&self) -> Line {
        match self.here {
            true => Line::Here(self.replica),
            false => Line::Stable(self.replica),
        }
    }
}

/// The past that a client has which has written this.
fn of_own<R: Rules>(id: VersionId) -> Vector {
    match R::SCALAR {
        true => Vector::filled(1, id.at),
        false => Vector::of(id),
    }
}

/// The past that a client has which has seen this.
fn past_of<R: Rules>(d: &Shown<'_, R::Meta>) -> Vector {
    d.versions()
        .map(R::past_of)
        .reduce(|one, other| one.merged(&other))
        .unwrap_or(Vector::ZERO)
}

/// The level that a write is given.
fn written_at(eventual: bool) -> Level {
    match eventual {
        true => Level::Eventual,
        false => Level::Causal,
    }
}
