use super::message::{Dependencies, Dependency, Heartbeat, Message, Request, Response};
use super::recovery::Recovery;
use super::waiting::{At, Questions, at_of};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use turnbuckle_core::{
    BadFrame, Chain, Context, Hidden, Hlc, Key, Level, Micros, Now, Protocol, Receipt, Recovered, RequestId,
    Route, ServerId, SiteId, Spans, Topology, Vector, Version, VersionId, Vitals, Wire,
};

/// What a keyspace may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopsConfig {
    /// How often a replica tells its peers how far it is.
    pub heartbeat: Micros,
    /// How long a request may wait for something to become visible.
    pub patience: Micros,
    /// How long an answer to a dependency check may take before it is asked for again.
    pub retry: Micros,
    /// How large a session's context may become, in bytes of a token.
    pub most_context: usize,
}

impl CopsConfig {
    /// As it is by default, but for what is given; theta means nothing here.
    pub fn paced(heartbeat: Option<Micros>, _theta: Option<Micros>) -> CopsConfig {
        let usual = CopsConfig::default();
        CopsConfig {
            heartbeat: heartbeat.unwrap_or(usual.heartbeat),
            ..usual
        }
    }
}

impl Default for CopsConfig {
    fn default() -> CopsConfig {
        CopsConfig {
            heartbeat: Micros::from_millis(10),
            patience: Micros::from_millis(2_000),
            retry: Micros::from_millis(100),
            most_context: 48 << 10,
        }
    }
}

/// How often what is visible is written down.
const KEEP_EVERY: Micros = Micros::from_millis(1_000);

/// The name under which it is written down.
const NAME: &str = "visible";

/// So many versions at most are looked after while they wait, with so many dependencies, and so many visible ones are remembered
/// beyond the watermark. What is more is looked at again when somebody asks for it.
const MOST: usize = 1 << 16;

/// So many checks at most are asked for again at a time.
const MOST_AGAIN: usize = 1 << 10;

/// One replica of one partition.
pub struct Cops {
    me: ServerId,
    sites: u16,
    partitions: u16,
    config: CopsConfig,
    /// For each site, everything that it stamped up to here is in this partition.
    vv: Vector,
    /// The watermarks: for each site, everything that it stamped up to here is visible in this partition.
    visible: Vector,
    /// For each other site, there may be versions up to here of which nobody remembers whether they are visible.
    unsure: Vector,
    /// Versions beyond the watermarks that are visible.
    above: BTreeSet<At>,
    /// Versions that are not visible yet, each with what it waits for.
    pending: BTreeMap<At, Pending>,
    /// How many dependencies they wait for in all.
    missing: usize,
    questions: Questions,
    /// What was last written down, and the oldest version that has become visible since.
    kept: Vector,
    fresh: Hlc,
    /// What the peers have said.
    peers: BTreeMap<SiteId, Peer>,
    /// Everything up to here is visible in this partition of every site.
    everywhere: Vector,
    own_settled: Hlc,
    recovery: Recovery,
    spans: Vec<Spans>,
    /// How often somebody who waited in a line was called.
    lines: Vec<u64>,
}

/// A version that is not visible yet.
struct Pending {
    /// How many of its dependencies are not known to be visible.
    missing: usize,
    /// It was here before anybody began to look after it: somebody may have seen it.
    lazy: bool,
}

/// What a peer's heartbeats have said.
#[derive(Default)]
struct Peer {
    visible: Vector,
    settled: Hlc,
    /// Everything that it had acknowledged by this wall time is visible here.
    wall: Micros,
    /// Its next promise to become so and the last one, each with its wall time.
    next: (Hlc, Micros),
    last: (Hlc, Micros),
}

impl Peer {
    /// One of which everything up to here is known to be settled.
    fn known(settled: Hlc) -> Peer {
        Peer {
            settled,
            ..Peer::default()
        }
    }

    /// Of what it promised, this is visible here.
    fn prove(&mut self, visible: Hlc) {
        for (promise, wall) in [self.next, self.last] {
            if promise <= visible {
                self.wall = self.wall.max(wall);
            }
        }
        if self.next.0 <= visible {
            self.next = self.last;
        }
    }
}

/// When to do what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// When to tell the other sites how far this replica is.
    Heartbeat,
    /// When to write down what is visible.
    Keep,
    /// When to ask again what was not answered.
    Retry,
}

/// What requests wait for: a version, and all others with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line(u8);

impl Line {
    fn of((site, at): At) -> Line {
        Line((at.0 ^ at.wall().0 ^ u64::from(site.0)) as u8)
    }
}

type Cx<'a> = Context<'a, Cops>;

impl Protocol for Cops {
    type Config = CopsConfig;
    type Request = Request;
    type Response = Response;
    type Message = Message;
    type Timer = Timer;
    /// `nearest`
    type Meta = Dependencies;
    type Line = Line;

    const HISTORY: bool = true;

    fn open(
        config: &CopsConfig,
        me: ServerId,
        topology: Topology,
        recovered: &Recovered,
        _seed: u64,
    ) -> Cops {
        // Written by this code; if it does not decode, what it says is found out again.
        let kept = recovered.named.get(NAME).map(Kept::decode);
        let Kept { vv, visible, above } = kept.and_then(Result::ok).unwrap_or_default();
        let cut: Vector = recovered.cut.iter().copied().collect();
        let sites = topology.site_count() as u16;
        let others = || (0..sites).map(SiteId).filter(|&site| site != me.site);
        Cops {
            me,
            sites,
            partitions: topology.partitions(),
            config: *config,
            vv: vv.merged(&cut),
            kept: visible.clone(),
            visible,
            // Until their next mark says how far that may be.
            unsure: others().map(|site| (site, Hlc::LATEST)).collect(),
            above,
            pending: BTreeMap::new(),
            missing: 0,
            questions: Questions::default(),
            fresh: Hlc::LATEST,
            peers: others().map(|site| (site, Peer::known(cut.at(site)))).collect(),
            everywhere: Vector::ZERO,
            own_settled: Hlc::ZERO,
            recovery: Recovery::new(topology.partitions()),
            spans: vec![Spans::default(); usize::from(sites)],
            lines: vec![0; 256],
        }
    }

    fn keys(request: &Request, each: &mut dyn FnMut(&Key)) {
        each(key_of(request));
    }

    fn message_keys(message: &Message, each: &mut dyn FnMut(&Key)) {
        if let Message::DepCheck(key, _) = message {
            each(key);
        }
    }

    fn is_write(request: &Request) -> bool {
        matches!(request, Request::Put { .. })
    }

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        cx.set_timer(Timer::Heartbeat, Micros(0));
        cx.set_timer(Timer::Keep, KEEP_EVERY);
        cx.set_timer(Timer::Retry, Micros(0));
    }

    fn on_request(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let Some(at) = self.lacks(cx, &request) else {
            return self.serve(cx, id, request);
        };
        if self.questions.len() < MOST {
            self.questions
                .await_request(self.me.partition, key_of(&request), at);
        }
        let line = Line::of(at);
        let point = self.lines[usize::from(line.0)] + 1;
        let deadline = cx.now.monotonic + self.config.patience - cx.waited;
        cx.wait(line, point, deadline, id, request);
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, from: ServerId, message: Message) {
        if from.site != self.me.site {
            return;
        }
        match message {
            Message::DepCheck(key, id) => self.on_dep_check(cx, from, &key, id),
            Message::Visible(id) => {
                let waiting = self.questions.answer(from.partition, at_of(id));
                self.go_on(cx, waiting.versions);
            }
            Message::HowFar(said) => {
                self.recovery.heard(said);
                self.raise_watermarks(cx);
                let reply = self.recovery.reply(self.has_all_until());
                cx.send(from, Message::Reached(reply));
            }
            Message::Reached(reply) => {
                self.recovery
                    .answered(from.partition, reply, self.has_all_until());
                self.raise_watermarks(cx);
            }
            Message::Heartbeat(_) => {}
        }
    }

    /// `put_after` at a remote site: it is stored, and visible when all that it depends on is.
    fn on_replicated(&mut self, cx: &mut Cx<'_>, from: ServerId, key: Key, version: Version<Dependencies>) {
        cx.observe(version.id.at);
        if from == cx.me {
            cx.replicate(cx.other_sites(), key, version);
            return;
        }
        let (id, nearest) = (version.id, version.meta.clone());
        cx.put(key.clone(), version);
        self.look_after(cx, id, &nearest, false);
        self.collect(cx, &key);
    }

    fn on_mark(&mut self, cx: &mut Cx<'_>, from: ServerId, mark: Message) {
        let Message::Heartbeat(beat) = mark else { return };
        let Some(peer) = self.peers.get_mut(&from.site) else {
            return;
        };
        cx.observe(beat.promise);
        peer.visible.merge(&beat.visible);
        peer.settled = peer.settled.max(beat.settled);
        peer.last = (beat.promise, beat.wall);
        self.vv.raise(from.site, beat.promise);
        if self.unsure.at(from.site) == Hlc::LATEST {
            // Whatever came before this life began was stamped before this mark.
            self.unsure.set(from.site, self.vv.at(from.site));
        }
        self.recovery.reached(self.has_all_until());
        self.raise_watermarks(cx);
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>, timer: Timer) {
        match timer {
            Timer::Heartbeat => self.heartbeat(cx),
            Timer::Keep => {
                cx.set_timer(Timer::Keep, KEEP_EVERY);
                self.write_down(cx);
            }
            Timer::Retry => self.ask_again(cx),
        }
    }

    /// The key need not be resident now: nothing is read.
    fn on_deadline(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let why = match &request {
            Request::Confirm {
                version: (key, id), ..
            } => format!(
                "this session has seen version {id} of {key} from site {}, which is not visible here yet, or something that \
                 it depends on is not",
                cx.topology.site_name(id.site)
            ),
            Request::Get { key, .. } | Request::Put { key, .. } => format!(
                "a restart has forgotten whether a version of {key} has been visible here, and not all that it depends on is yet"
            ),
        };
        let receipt = self.receipt(cx, Level::Causal, None, Hidden::default());
        cx.reply(id, Response::Refused(why), receipt);
    }

    fn on_link(&mut self, cx: &mut Cx<'_>, _: ServerId, up: bool) {
        if !up {
            self.write_down(cx);
        }
    }

    /// What came with it may not be visible.
    fn on_copied(&mut self, cx: &mut Cx<'_>, _: ServerId, copied: &Recovered) {
        for &(site, until) in &copied.cut {
            if let Some(peer) = self.peers.get_mut(&site) {
                self.vv.raise(site, until);
                peer.settled = peer.settled.max(until);
            }
        }
        for &site in self.peers.keys() {
            self.unsure.set(site, Hlc::LATEST);
        }
        self.write_down(cx);
    }

    fn cut(&self) -> Vec<(SiteId, Hlc)> {
        let settled = |site| self.peers.get(&site).map_or(Hlc::LATEST, |peer| peer.settled);
        let until = |site| (site, self.vv.at(site).min(settled(site)));
        self.all_sites().map(until).collect()
    }

    /// Nobody reads what is older than something visible. But what depends on a version must find out, after a restart too, that
    /// it was visible: it must be written down first.
    fn covered(&self, version: &Version<Dependencies>) -> bool {
        let mut sites = self.peers.keys();
        let is_sure =
            |site| self.unsure.at(site) <= self.kept.at(site) || version.id.at <= self.kept.at(site);
        self.is_visible(version.id) && version.id.at < self.fresh && sites.all(|&site| is_sure(site))
    }

    fn settled(&self) -> Hlc {
        let others = self.peers.iter();
        let others = others.map(|(&site, peer)| peer.settled.min(self.kept.at(site)));
        others.min().unwrap_or(Hlc::LATEST).min(self.own_settled)
    }

    fn vitals(&self, now: Now) -> Vitals {
        let others = || self.peers.keys().copied();
        let lag = |site| match self.visible.at(site) {
            Hlc::ZERO => None,
            at => Some(now.wall.reading().since(at.wall())),
        };
        Vitals {
            stable_until: Some(self.visible.oldest(usize::from(self.sites))),
            hidden: self.pending.len() as u64,
            lag: others().map(|site| (site, lag(site))).collect(),
            visibility: others()
                .map(|site| (site, self.spans[usize::from(site.0)].clone()))
                .collect(),
        }
    }

    fn validate(&self) {
        assert!(
            self.vv.covers(&self.visible),
            "visible up to {:?}, and here only up to {:?}",
            self.visible,
            self.vv
        );
        assert!(
            self.visible.covers(&self.kept),
            "written down as visible and is not: {:?} of {:?}",
            self.kept,
            self.visible
        );
        for (place, pending) in &self.pending {
            assert!(
                place.1 > self.visible.at(place.0) && !self.above.contains(place),
                "{place:?} is visible and waits"
            );
            assert!(pending.missing > 0, "{place:?} waits for nothing");
            assert!(place.0 != self.me.site, "{place:?} is of this site and waits");
        }
        let missing: usize = self.pending.values().map(|pending| pending.missing).sum();
        assert!(
            missing == self.missing,
            "{missing} dependencies, counted as {}",
            self.missing
        );
        assert!(
            missing <= MOST + self.config.most_context,
            "{missing} dependencies are looked after"
        );
        assert!(self.above.len() <= MOST, "{} are remembered", self.above.len());
        for &(site, at) in &self.above {
            assert!(
                at > self.visible.at(site),
                "{at} of site {} is below its watermark",
                site.0
            );
        }
    }
}

impl Cops {
    fn all_sites(&self) -> impl Iterator<Item = SiteId> + use<> {
        (0..self.sites).map(SiteId)
    }

    // ---- what is visible ------------------------------------------------------------------------------------

    fn is_visible(&self, id: VersionId) -> bool {
        id.site == self.me.site || self.visible.covers_id(id) || self.above.contains(&at_of(id))
    }

    /// What was newer here and is not shown, above the latest version of which `shown` is true.
    fn look(
        chain: Option<&Chain<Dependencies>>,
        shown: impl Fn(VersionId) -> bool,
    ) -> (Option<&Version<Dependencies>>, Hidden) {
        let mut hidden = Hidden::default();
        for version in chain.into_iter().flat_map(Chain::iter) {
            if shown(version.id) {
                return (Some(version), hidden);
            }
            hidden.versions += 1;
            hidden.newest = hidden.newest.max(Some(version.id));
        }
        (None, hidden)
    }

    /// A version of another site is here: it becomes visible when all that it depends on is.
    fn look_after(&mut self, cx: &mut Cx<'_>, id: VersionId, nearest: &Dependencies, lazy: bool) {
        let at = at_of(id);
        if self.is_visible(id) || self.pending.contains_key(&at) {
            return;
        }
        let has_room = self.pending.len() < MOST && self.missing < MOST && self.questions.len() < MOST;
        if !has_room && !nearest.0.is_empty() {
            // The watermark must not pass it.
            self.unsure.raise(at.0, at.1);
            return;
        }
        let mut missing = 0;
        for (key, needed) in &nearest.0 {
            let partition = cx.topology.partition_of_slot(key.slot());
            let is_here = partition == self.me.partition && self.is_visible(*needed);
            // What this site wrote has been visible here since.
            if needed.site == self.me.site || is_here {
                continue;
            }
            missing += usize::from(self.questions.await_version(partition, key, *needed, at));
            if self
                .questions
                .must_ask(partition, at_of(*needed), cx.now.monotonic, self.config.retry)
            {
                let server = ServerId { partition, ..self.me };
                cx.send(server, Message::DepCheck(key.clone(), *needed));
            }
        }
        self.missing += missing;
        self.pending.insert(at, Pending { missing, lazy });
        if missing == 0 {
            self.become_visible(cx, at);
        }
    }

    fn on_dep_check(&mut self, cx: &mut Cx<'_>, from: ServerId, key: &Key, id: VersionId) {
        if self.is_visible(id) {
            // To itself it is no news: who waits here is told when something becomes visible.
            if from != self.me {
                cx.send(from, Message::Visible(id));
            }
            return;
        }
        if from != self.me
            && (self.questions.len() < MOST || self.questions.is_open(self.me.partition, at_of(id)))
        {
            self.questions.await_server(self.me.partition, key, id, from);
        }
        self.touch(cx, key, id);
    }

    /// If a version is here and nobody looks after it, somebody does from now on.
    fn touch(&mut self, cx: &mut Cx<'_>, key: &Key, id: VersionId) {
        let found = cx
            .chain(key)
            .and_then(|chain| chain.latest(|version| version.id == id));
        if let Some(nearest) = found.map(|version| version.meta.clone()) {
            self.look_after(cx, id, &nearest, true);
        }
    }

    /// Of each of these one thing less is missing.
    fn go_on(&mut self, cx: &mut Cx<'_>, versions: Vec<At>) {
        for at in versions {
            let Some(pending) = self.pending.get_mut(&at) else {
                continue;
            };
            pending.missing -= 1;
            self.missing -= 1;
            if pending.missing == 0 {
                self.become_visible(cx, at);
            }
        }
    }

    /// And whatever waited for that alone.
    fn become_visible(&mut self, cx: &mut Cx<'_>, first: At) {
        let mut visible = vec![first];
        while let Some(at) = visible.pop() {
            if let Some(pending) = self.pending.remove(&at) {
                self.missing -= pending.missing;
                if !pending.lazy {
                    let took = cx.now.wall.reading().since(at.1.wall());
                    self.spans[usize::from(at.0.0)].add(took);
                }
            }
            if at.1 > self.visible.at(at.0) {
                self.above.insert(at);
                self.fresh = self.fresh.min(at.1);
                if self.above.len() > MOST {
                    self.above.pop_first();
                }
            }
            let waiting = self.questions.answer(self.me.partition, at);
            for server in waiting.servers {
                cx.send(server, Message::Visible(VersionId { at: at.1, site: at.0 }));
            }
            for version in waiting.versions {
                if let Some(pending) = self.pending.get_mut(&version) {
                    pending.missing -= 1;
                    self.missing -= 1;
                    if pending.missing == 0 {
                        visible.push(version);
                    }
                }
            }
            if waiting.requests {
                let line = Line::of(at);
                let called = &mut self.lines[usize::from(line.0)];
                *called += 1;
                cx.advance(line, *called);
            }
        }
    }

    // ---- watermarks -----------------------------------------------------------------------------------------

    /// Up to here this partition has everything of every site.
    fn has_all_until(&self) -> Hlc {
        let others = self.peers.keys().map(|&site| self.vv.at(site));
        others.min().unwrap_or(Hlc::LATEST)
    }

    /// Below the oldest version that waits, and up to the last mark. Where there may be versions that nobody looks after, only
    /// what the whole site has everything of is certainly visible.
    fn raise_watermarks(&mut self, cx: &mut Cx<'_>) {
        let me = self.me.site;
        for site in self.all_sites().filter(|&site| site != me) {
            let mut until = self.recovery.safe().min(self.vv.at(site));
            if self.unsure.at(site) <= self.visible.at(site).max(until) {
                let mut waiting = self.pending.range((site, until.next())..=(site, Hlc(u64::MAX)));
                let oldest = waiting.next().map(|((_, at), _)| Hlc(at.0 - 1));
                until = oldest.map_or(self.vv.at(site), |oldest| oldest.min(self.vv.at(site)));
            }
            if self.visible.raise(site, until) {
                self.watermark_rose(cx, site);
            }
            if let Some(peer) = self.peers.get_mut(&site) {
                peer.prove(self.visible.at(site));
            }
        }
        self.everywhere = self.visible.clone();
        for peer in self.peers.values() {
            self.everywhere.meet(&peer.visible);
        }
    }

    fn watermark_rose(&mut self, cx: &mut Cx<'_>, site: SiteId) {
        let until = self.visible.at(site);
        let below = (site, Hlc::ZERO)..=(site, until);
        let released: Vec<At> = self.pending.range(below.clone()).map(|(&at, _)| at).collect();
        released.into_iter().for_each(|at| self.become_visible(cx, at));
        for at in self.questions.below(self.me.partition, site, until) {
            self.become_visible(cx, at);
        }
        while let Some(&at) = self.above.range(below.clone()).next() {
            self.above.remove(&at);
        }
    }

    fn heartbeat(&mut self, cx: &mut Cx<'_>) {
        let promise = cx.promise();
        self.vv.raise(self.me.site, promise);
        self.visible.raise(self.me.site, promise);
        self.own_settled = self.own_settled.max(cx.settled_promise());
        let heartbeat = Heartbeat {
            promise,
            settled: self.own_settled,
            wall: cx.now.wall.earliest,
            visible: self.visible.clone(),
        };
        cx.mark(cx.other_sites(), Message::Heartbeat(heartbeat));
        cx.set_timer(Timer::Heartbeat, self.config.heartbeat);
    }

    /// Messages inside a site are lost with a connection.
    fn ask_again(&mut self, cx: &mut Cx<'_>) {
        cx.set_timer(Timer::Retry, self.config.retry);
        for (partition, (key, id)) in self
            .questions
            .old(cx.now.monotonic, self.config.retry, MOST_AGAIN)
        {
            let server = ServerId { partition, ..self.me };
            cx.send(server, Message::DepCheck(key, id));
        }
        let is_unsure = |&site: &SiteId| self.unsure.at(site) > self.visible.at(site);
        let is_unsure = self.peers.keys().any(is_unsure);
        let is_held = || self.pending.keys().any(|&(_, at)| self.recovery.holds(at));
        if is_unsure || is_held() {
            for partition in (0..self.partitions).filter(|&partition| partition != self.me.partition) {
                let server = ServerId { partition, ..self.me };
                cx.send(server, Message::HowFar(self.recovery.question()));
            }
        }
    }

    fn write_down(&mut self, cx: &mut Cx<'_>) {
        let kept = Kept::encode(&self.vv, &self.visible, &self.above);
        cx.put_named(NAME, kept);
        self.kept = self.visible.clone();
        self.fresh = Hlc::LATEST;
    }

    /// A hot key need not wait for a checkpoint: what is older than a visible version goes, if all of that is looked after.
    fn collect(&mut self, cx: &mut Cx<'_>, key: &Key) {
        const LONG: usize = 16;
        let Some(chain) = cx.chain(key).filter(|chain| chain.len() >= LONG) else {
            return;
        };
        let is_known = |id| self.is_visible(id) || self.pending.contains_key(&at_of(id));
        let unknown = chain.iter().filter(|version| !is_known(version.id)).last();
        let unknown = unknown.map(|version| (version.id, version.meta.clone()));
        let fresh = self.fresh;
        cx.collect(key, |version| {
            let is_above = unknown.as_ref().is_some_and(|(unknown, _)| version.id > *unknown);
            !is_above && version.id.at < fresh && self.is_visible(version.id)
        });
        if let Some((id, nearest)) = unknown {
            self.look_after(cx, id, &nearest, true);
        }
    }

    // ---- requests -------------------------------------------------------------------------------------------

    /// What a request must wait for.
    fn lacks(&mut self, cx: &mut Cx<'_>, request: &Request) -> Option<At> {
        match request {
            Request::Confirm { waits: false, .. } | Request::Get { eventual: true, .. } => None,
            Request::Confirm {
                version: (key, id), ..
            } => {
                if !self.is_visible(*id) {
                    self.touch(cx, key, *id);
                }
                (!self.is_visible(*id)).then(|| at_of(*id))
            }
            // Who deletes is told what was there.
            Request::Get { key, .. } | Request::Put { key, value: None, .. } => self.unsettled(cx, key),
            Request::Put { .. } => None,
        }
    }

    /// The newest hidden version of a key that somebody may have seen all the same, or something that depends on it: in an
    /// earlier life, or at a partition that knows already that all of that time may be shown.
    fn unsettled(&mut self, cx: &mut Cx<'_>, key: &Key) -> Option<At> {
        let newest = cx.chain(key)?.newest().id;
        if self.is_visible(newest) {
            return None;
        }
        let newer = cx.chain(key).into_iter().flat_map(Chain::iter);
        let hidden = newer.take_while(|version| !self.is_visible(version.id));
        let unknown = hidden.filter(|version| !self.pending.contains_key(&at_of(version.id)));
        let unknown: Vec<_> = unknown
            .map(|version| (version.id, version.meta.clone()))
            .collect();
        for (id, nearest) in unknown {
            self.look_after(cx, id, &nearest, true);
        }
        let mut newer = cx
            .chain(key)
            .into_iter()
            .flat_map(Chain::iter)
            .map(|version| version.id);
        let shown_later = |id: &VersionId| {
            let pending = self.pending.get(&at_of(*id));
            pending.is_none_or(|pending| pending.lazy) || self.recovery.holds(id.at)
        };
        let found = newer.find(|id| self.is_visible(*id) || shown_later(id));
        found.filter(|id| !self.is_visible(*id)).map(at_of)
    }

    fn serve(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        match request {
            Request::Get { key, eventual } => self.on_get(cx, id, &key, eventual),
            Request::Put {
                key,
                value,
                nearest,
                seen,
                eventual,
            } => {
                cx.observe(seen);
                self.on_put(cx, id, key, value, nearest, eventual);
            }
            Request::Confirm { version, .. } => {
                let everywhere = self.everywhere.covers_id(version.1);
                let receipt = self.receipt(cx, Level::Causal, Some(version.1), Hidden::default());
                cx.reply(id, Response::Confirmed { everywhere }, receipt);
            }
        }
    }

    fn on_get(&mut self, cx: &mut Cx<'_>, id: RequestId, key: &Key, eventual: bool) {
        let (found, hidden) = Cops::look(cx.chain(key), |id| eventual || self.is_visible(id));
        let version = found.map(|version| version.id);
        let response = Response::Value {
            value: found.and_then(|version| version.value.clone()),
            everywhere: version.is_some_and(|id| self.everywhere.covers_id(id)),
        };
        cx.reply(id, response, self.receipt(cx, level(eventual), version, hidden));
    }

    fn on_put(
        &mut self,
        cx: &mut Cx<'_>,
        id: RequestId,
        key: Key,
        value: Option<Bytes>,
        mut nearest: Dependencies,
        eventual: bool,
    ) {
        let chain = cx.chain(&key);
        let newest = chain.map_or(Hlc::ZERO, |chain| chain.newest().id.at);
        let (before, hidden) = Cops::look(chain, |id| self.is_visible(id));
        let existed = before.is_some_and(|version| version.value.is_some());
        let before = before.map(|version| version.id);
        if value.is_none() && !existed {
            let everywhere = before.is_some_and(|id| self.everywhere.covers_id(id));
            let receipt = self.receipt(cx, level(eventual), before, hidden);
            return cx.reply(id, Response::Nothing { everywhere }, receipt);
        }
        // Who deletes is told that there was something, and so has seen it.
        let seen = before.filter(|_| value.is_none() && !eventual);
        nearest.0.extend(seen.map(|before| (key.clone(), before)));
        nearest.0.retain(|needed| !self.is_everywhere(cx, needed));
        // Above what is there, also where a restart forgot that the clock had seen it.
        cx.observe(newest.max(nearest.newest()));
        let written = VersionId {
            at: cx.stamp(),
            site: self.me.site,
        };
        self.vv.raise(written.site, written.at);
        let version = Version {
            id: written,
            value,
            meta: nearest,
        };
        let kept = cx.replicate(cx.other_sites(), key.clone(), version);
        assert!(kept, "a new stamp is above every version of its key");
        self.collect(cx, &key);
        let receipt = self.receipt(cx, level(eventual), Some(written), Hidden::default());
        cx.reply(id, Response::Written { existed }, receipt);
    }

    /// Of its own partition a server knows what every site has visible.
    fn is_everywhere(&self, cx: &Cx<'_>, (key, id): &Dependency) -> bool {
        let partition = cx.topology.partition_of_slot(key.slot());
        partition == self.me.partition && self.everywhere.covers_id(*id)
    }

    /// What a peer had acknowledged by the wall time of its mark was stamped before that mark. When the watermark has passed the
    /// mark, all of that is visible in this partition: no other has to do with it.
    fn receipt(&self, cx: &Cx<'_>, given: Level, version: Option<VersionId>, hidden: Hidden) -> Receipt {
        let latest = cx.now.wall.latest;
        let walls = self.peers.values().map(|peer| peer.wall);
        let oldest = walls.min().unwrap_or(latest);
        // A wall of a time that cannot have come: somebody's clock is further off than is assumed.
        let is_proven = oldest != Micros(0) && self.peers.values().all(|peer| peer.wall <= latest);
        Receipt {
            asked: given,
            given,
            version,
            server: cx.me,
            route: Route::Local,
            waited: cx.waited,
            staleness: is_proven.then(|| latest.since(oldest)),
            clock_bound: Micros(latest.since(cx.now.wall.earliest).0 / 2),
            siblings: false,
            cut: Vector::ZERO,
            hidden,
        }
    }
}

fn key_of(request: &Request) -> &Key {
    match request {
        Request::Get { key, .. } | Request::Put { key, .. } => key,
        Request::Confirm { version, .. } => &version.0,
    }
}

fn level(eventual: bool) -> Level {
    match eventual {
        true => Level::Eventual,
        false => Level::Causal,
    }
}

/// What is written down.
#[derive(Default)]
struct Kept {
    vv: Vector,
    visible: Vector,
    above: BTreeSet<At>,
}

impl Kept {
    fn encode(vv: &Vector, visible: &Vector, above: &BTreeSet<At>) -> Bytes {
        let mut out = BytesMut::new();
        vv.put(&mut out);
        visible.put(&mut out);
        for (site, at) in above {
            out.put_u16(site.0);
            out.put_u64(at.0);
        }
        out.freeze()
    }

    fn decode(bytes: &Bytes) -> Result<Kept, BadFrame> {
        let mut from = bytes.clone();
        let (vv, visible) = (Vector::take(&mut from)?, Vector::take(&mut from)?);
        let mut above = BTreeSet::new();
        while let (Ok(site), Ok(at)) = (from.try_get_u16(), from.try_get_u64()) {
            above.insert((SiteId(site), Hlc(at)));
        }
        Ok(Kept { vv, visible, above })
    }
}
