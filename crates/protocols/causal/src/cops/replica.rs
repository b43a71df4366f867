mod catch_up;
mod kept;
mod requests;
mod visible;
mod watermarks;

use super::recovery::Recovery;
use crate::cops::message::{Dependencies, Message, Request, Response};
use crate::cops::waiting::{At, Questions, at_of};
use crate::{
    Bugs, View, bugs,
    metrics::{lag, of_hidden_versions},
};
use catch_up::CatchUp;
use kept::Kept;
use requests::{key_of, reads};
use std::collections::{BTreeMap, BTreeSet};
use turnbuckle_core::{
    Bounded, Bug, Context, Descriptor, Forgotten, Hlc, Key, Metric, Micros, Now, Parameter, Protocol,
    Reading, Recovered, ReplicaId, Replication, RequestId, ServerId, Setting, Spans, Topology, Vector,
    Version, Vitals,
};
use turnbuckle_streams::{Deletes, Replaced};

/// The configuration of a COPS keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopsConfig {
    /// How often a replica tells its peers how far it is.
    pub heartbeat: Micros,
    /// How long a request may wait for something to become visible. Also how long a partition that starts waits for a site without a link, before it
    /// answers readers.
    pub patience: Micros,
    /// How long an answer to a dependency check may take before it is asked for again.
    pub retry: Micros,
    /// How often what is visible is written down.
    pub keep_every: Micros,
    /// The most versions that are looked after while they wait, the most dependencies that those wait for together, and the most visible versions
    /// that are remembered above the watermarks. A version beyond that is looked at again when a request asks for it.
    pub max: usize,
    /// The most dependency checks that are asked for again at a time.
    pub max_again: usize,
    /// The largest size of a session's context, in bytes of a token.
    pub max_context_bytes: usize,
    /// The planted bugs.
    pub bugs: Bugs,
}

impl Default for CopsConfig {
    fn default() -> CopsConfig {
        CopsConfig {
            heartbeat: Micros::from_millis(10),
            patience: Micros::from_millis(2_000),
            retry: Micros::from_millis(100),
            keep_every: Micros::from_millis(1_000),
            max: 1 << 16,
            max_again: 1 << 10,
            max_context_bytes: 48 << 10,
            bugs: Bugs::default(),
        }
    }
}

/// The name under which the state of a replica is written down.
const NAME: &str = "visible";

/// One replica of one partition.
pub struct Cops {
    me: ServerId,
    sites: u16,
    partitions: u16,
    config: CopsConfig,
    /// For each site, everything that it stamped up to this time is in this partition.
    vv: Vector,
    /// The watermarks: for each site, everything that it stamped up to this time is visible in this partition.
    visible: Vector,
    /// For each other site, there may be versions up to this time of which this replica does not remember whether they are visible.
    unsure: Vector,
    /// Versions above the watermarks that are visible.
    above: BTreeSet<At>,
    /// Versions that are not visible yet, each with what it waits for.
    pending: BTreeMap<At, Pending>,
    /// The number of dependencies that they wait for together.
    missing: usize,
    questions: Questions,
    /// The watermarks that were last written down, and the time of the oldest version that has become visible since.
    kept: Vector,
    fresh: Hlc,
    /// What the peers have said.
    peers: BTreeMap<ReplicaId, Peer>,
    /// For each site, everything that it stamped up to this time is visible in this partition at every site.
    everywhere: Vector,
    own_settled: Hlc,
    deletes: Deletes,
    replaced: Replaced,
    caught_up: CatchUp,
    recovery: Recovery,
    /// Whether a full copy is being put in place.
    is_placing: bool,
    spans: Vec<Spans>,
    /// For each line of versions, how many times requests that wait in it were woken.
    lines: Vec<u64>,
}

/// A version that is not visible yet.
struct Pending {
    /// The number of its dependencies that are not known to be visible.
    missing: usize,
    /// Whether it was here before it was looked after, or came with a full copy: a client may have seen it.
    lazy: bool,
}

/// What a peer's heartbeats have said.
#[derive(Default)]
struct Peer {
    visible: Vector,
    settled: Hlc,
    /// Everything that it had acknowledged by this wall time is visible here.
    wall: Micros,
    /// Its next promise of which that is not known, and the last one, each with its wall time.
    next: (Hlc, Micros),
    last: (Hlc, Micros),
}

impl Peer {
    /// A peer of which everything up to this time is known to be settled.
    fn known(settled: Hlc) -> Peer {
        Peer {
            settled,
            ..Peer::default()
        }
    }

    /// Everything that the peer stamped up to this time is visible here.
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

/// When to wake up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// When to tell the other sites how far this replica is.
    Heartbeat,
    /// When to write down what is visible.
    Keep,
    /// When to ask again what was not answered.
    Retry,
}

/// What requests wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// A version becomes visible. Versions with the same number share a line.
    Version(u8),
    /// A partition that started has caught up.
    CaughtUp,
    /// The wall time by which everything that any other site had acknowledged is visible.
    OldestWall,
}

/// The number of the line that a version waits in.
fn line_of((replica, at): At) -> u8 {
    (at.0 ^ at.wall().0 ^ u64::from(replica.0)) as u8
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

    const DESCRIPTOR: Descriptor = Descriptor {
        history: true,
        tolerates_clock_steps: true,
        tolerates_old_directories: true,
        takes_expiry: true,
        confirms_sites: true,
        decides_at_site: true,
        ..Descriptor::of(Replication::Streams)
    };
    const PARAMETERS: &'static [Parameter<CopsConfig>] = &[
        Parameter::new(
            "heartbeat",
            "how often a replica tells the other sites up to which timestamp it has sent everything",
            |config| Setting::Interval(&mut config.heartbeat),
        ),
        Parameter::new(
            "patience",
            "how long a request may wait for something to become visible",
            |config| Setting::Interval(&mut config.patience),
        ),
        Parameter::new(
            "retry",
            "how long an answer to a dependency check may take before it is asked for again",
            |config| Setting::Interval(&mut config.retry),
        ),
        Parameter::new(
            "max_context_bytes",
            "the largest size of a session's dependencies, in bytes of its token",
            |config| Setting::Count(&mut config.max_context_bytes, 1 << 10..=48 << 10),
        ),
    ];

    const BUGS: &'static [Bug] = &[
        bugs::FORGETS_DELETES_EARLY,
        bugs::SERVES_AN_OLD_DIRECTORY,
        bugs::ANSWERS_ABOVE_WHAT_IT_HAS,
        bugs::EXPIRY_REVIVES,
        bugs::CONDITIONS_IGNORE_THE_NEWEST,
        bugs::FORGETS_WHAT_EXPIRED,
    ];
    const METRICS: &'static [Metric<Self>] = &of_hidden_versions::<Self>(
        |cops, _| Reading::Count(cops.pending.len() as u64),
        |cops, now| cops.of_peers(|replica| lag(cops.visible.at(replica), now)),
        |cops, _| {
            cops.of_peers(|replica| Reading::Spans(Box::new(cops.spans[usize::from(replica.0)].clone())))
        },
    );

    fn plant(config: &mut CopsConfig, bug: &str) -> bool {
        config.bugs.named(bug).map(|planted| *planted = true).is_some()
    }

    fn shrink(config: &mut CopsConfig, by: u32) {
        config.keep_every = config.keep_every.shrunk(by);
        config.max = (config.max / by as usize).max(8);
        config.max_again = (config.max_again / by as usize).max(1);
    }

    fn open(
        config: &CopsConfig,
        me: ServerId,
        topology: Topology,
        recovered: &Recovered,
        _seed: u64,
    ) -> Cops {
        // This code wrote it. If it does not decode, its content is found out again.
        let kept = recovered.kept(NAME).map(Kept::decode);
        let Kept { vv, visible, above } = kept.and_then(Result::ok).unwrap_or_default();
        let cut: Vector = recovered.cut.iter().copied().collect();
        let sites = topology.site_count() as u16;
        let others = || {
            (0..sites)
                .map(ReplicaId)
                .filter(|&replica| replica != me.replica())
        };
        let deletes = Deletes::open(me, &topology, recovered, config.bugs.in_streams());
        Cops {
            me,
            sites,
            partitions: topology.partitions(),
            config: *config,
            vv: vv.merged(&cut),
            kept: visible.clone(),
            visible,
            // Until the next mark of each site says how far that may be.
            unsure: others().map(|replica| (replica, Hlc::LATEST)).collect(),
            above,
            pending: BTreeMap::new(),
            missing: 0,
            questions: Questions::default(),
            fresh: Hlc::LATEST,
            peers: others()
                .map(|replica| (replica, Peer::known(cut.at(replica))))
                .collect(),
            everywhere: Vector::ZERO,
            own_settled: Hlc::ZERO,
            caught_up: CatchUp::new(!config.bugs.answers_above_what_it_has, others(), config.patience),
            deletes,
            replaced: Replaced::open(recovered),
            recovery: Recovery::new(topology.partitions()),
            is_placing: false,
            spans: vec![Spans::default(); usize::from(sites)],
            lines: vec![0; 256],
        }
    }

    fn keys(&self, request: &Request, each: &mut dyn FnMut(&Key)) {
        each(key_of(request));
    }

    fn message_keys(&self, _: ServerId, message: &Message, each: &mut dyn FnMut(&Key)) {
        if let Message::DepCheck(key, _) = message {
            each(key);
        }
    }

    fn is_write(request: &Request) -> bool {
        matches!(request, Request::Put { .. })
    }

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        cx.set_timer(Timer::Heartbeat, Micros(0));
        cx.set_timer(Timer::Retry, Micros(0));
        self.caught_up.begin(cx.now.monotonic);
        self.deletes.start(cx);
        self.keep(cx);
    }

    fn on_request(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        if let Some(why) = self.deletes.refusal() {
            return self.refuse(cx, id, why.to_string());
        }
        let deadline = cx.now.monotonic + self.config.patience - cx.waited;
        if reads(&request) && !self.caught_up.is_done() {
            return cx.wait(Line::CaughtUp, 1, deadline, id, request);
        }
        let Some(at) = self.lacks(cx, &request) else {
            return self.serve(cx, id, request);
        };
        if self.questions.len() < self.config.max {
            self.questions
                .await_request(self.me.partition, key_of(&request), at);
        }
        let line = line_of(at);
        let point = self.lines[usize::from(line)] + 1;
        cx.wait(Line::Version(line), point, deadline, id, request);
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, from: ServerId, message: Message) {
        if from.replica() != self.me.replica() {
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

    /// `put_after` at a remote site: the version is stored, and becomes visible when everything that it depends on is visible.
    fn on_replicated(&mut self, cx: &mut Cx<'_>, from: ServerId, key: Key, version: Version<Dependencies>) {
        cx.observe(version.id.at);
        if self.deletes.is_of_the_forgotten(cx.chain(&key), &version) {
            return;
        }
        if from == cx.me {
            cx.replicate(cx.others(), key, version);
            return;
        }
        let (id, nearest) = (version.id, version.meta.clone());
        // A version that came with a full copy may have been shown at the copy's source, where older versions were collected.
        self.make_room(cx, &key);
        let is_new = cx.put(key, version);
        self.look_after(cx, id, &nearest, !is_new);
    }

    fn on_mark(&mut self, cx: &mut Cx<'_>, from: ServerId, mark: Message) {
        let Message::Heartbeat(beat) = mark else { return };
        let Some(peer) = self.peers.get_mut(&from.replica()) else {
            return;
        };
        cx.observe(beat.promise);
        peer.visible.merge(&beat.visible);
        peer.settled = peer.settled.max(beat.settled);
        peer.last = (beat.promise, beat.wall);
        self.deletes.heard(cx, from.replica(), beat.deletes);
        self.replaced.heard(beat.replaced);
        self.caught_up.heard(from.replica(), &beat.visible);
        self.vv.raise(from.replica(), beat.promise);
        if self.unsure.at(from.replica()) == Hlc::LATEST {
            // Everything that came before this replica was opened was stamped before this mark.
            self.unsure.set(from.replica(), self.vv.at(from.replica()));
        }
        self.recovery.reached(self.has_all_until());
        self.raise_watermarks(cx);
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>, timer: Timer) {
        match timer {
            Timer::Heartbeat => self.heartbeat(cx),
            Timer::Keep => self.keep(cx),
            Timer::Retry => self.ask_again(cx),
        }
    }

    /// The key need not be resident now: nothing is read.
    fn on_deadline(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let is_fresh = |bound| cx.bounded(bound, self.config.patience, self.walls()) == Bounded::Proven;
        let why = match &request {
            request if reads(request) && !self.caught_up.is_done() => {
                "this node has just started, and does not have every version yet that other sites show"
                    .to_string()
            }
            Request::Confirm {
                version: (key, id), ..
            } => format!(
                "version {id} of {key} from site {}, which this session has seen, is not visible here yet, or a version on which it depends is not",
                cx.topology.replica_name(id.replica)
            ),
            Request::Get {
                view: View::Fresh(bound),
                ..
            } if !is_fresh(*bound) => cx.unproven(*bound, self.walls(), Bounded::LATE),
            Request::Get { key, .. } | Request::Put { key, .. } => format!(
                "after a restart or a full copy it is not known whether a version of {key} was visible here, and not every version on \
                 which it depends is visible yet"
            ),
        };
        self.refuse(cx, id, why);
    }

    fn on_link(&mut self, cx: &mut Cx<'_>, peer: ServerId, up: bool) {
        if !self.config.bugs.answers_before_a_copy {
            self.caught_up.link(peer.replica(), up, cx.now.monotonic);
        }
        if !up {
            self.deletes.left(peer.replica());
            self.write_down(cx);
        }
    }

    /// At the copy's source, visible versions have replaced older ones. Here they may not be visible for a while.
    fn on_copying(&mut self, _: &mut Cx<'_>, _: ServerId, _: &Recovered) {
        self.is_placing = true;
    }

    /// Versions that came with the copy may not be visible.
    fn on_copied(&mut self, cx: &mut Cx<'_>, _: ServerId, copied: &Recovered) {
        self.is_placing = false;
        self.pending.values_mut().for_each(|pending| pending.lazy = true);
        for &(replica, until) in &copied.cut {
            if let Some(peer) = self.peers.get_mut(&replica) {
                self.vv.raise(replica, until);
                peer.settled = peer.settled.max(until);
            }
        }
        for &replica in self.peers.keys() {
            self.unsure.set(replica, Hlc::LATEST);
        }
        self.write_down(cx);
    }

    fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        let settled = |replica| self.peers.get(&replica).map_or(Hlc::LATEST, |peer| peer.settled);
        let until = |replica| (replica, self.vv.at(replica).min(settled(replica)));
        self.replicas().map(until).collect()
    }

    /// No request reads a version that is older than a visible one. But other versions depend on this one, and must find out that it was visible,
    /// after a restart too: so that must be written down first.
    fn covered(&self, version: &Version<Dependencies>) -> bool {
        let mut sites = self.peers.keys();
        let is_sure = |replica| {
            self.unsure.at(replica) <= self.kept.at(replica) || version.id.at <= self.kept.at(replica)
        };
        self.is_visible(version.id) && version.id.at < self.fresh && sites.all(|&replica| is_sure(replica))
    }

    fn shown(&self) -> Hlc {
        self.deletes.shown()
    }

    fn is_outdated(&self) -> bool {
        self.deletes.refusal().is_some()
    }

    fn forgotten(&self) -> Forgotten {
        self.deletes.word()
    }

    fn on_resumed(&mut self, cx: &mut Cx<'_>, from: ServerId, forgotten: &Forgotten) {
        self.deletes.resumed(cx, from.replica(), forgotten);
    }

    fn on_returned(&mut self, cx: &mut Cx<'_>, _: ServerId, returned: &Recovered) {
        self.replaced.returned(cx, returned);
    }

    fn settled(&self) -> Hlc {
        let others = self.peers.iter();
        let others = others.map(|(&replica, peer)| match self.config.bugs.forgets_deletes_early {
            true => peer.settled.min(self.kept.at(replica)),
            false => self.kept.at(replica),
        });
        let here = others.min().unwrap_or(Hlc::LATEST).min(self.own_settled);
        match self.config.bugs.forgets_deletes_early {
            true => here,
            false => here.min(self.deletes.forgotten()),
        }
    }

    fn vitals(&self, _: Now) -> Vitals {
        let stable_until = self.visible.oldest(usize::from(self.sites));
        self.deletes.vitals(Some(stable_until))
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
            "recorded as visible and not visible: {:?}, where {:?} is visible",
            self.kept,
            self.visible
        );
        for (place, pending) in &self.pending {
            assert!(
                place.1 > self.visible.at(place.0) && !self.above.contains(place),
                "{place:?} is visible and waits"
            );
            assert!(pending.missing > 0, "{place:?} waits for nothing");
            assert!(
                place.0 != self.me.replica(),
                "{place:?} is of this site and waits"
            );
        }
        let missing: usize = self.pending.values().map(|pending| pending.missing).sum();
        assert!(
            missing == self.missing,
            "{missing} dependencies, counted as {}",
            self.missing
        );
        assert!(
            missing <= self.config.max + self.config.max_context_bytes,
            "{missing} missing dependencies, more than the limit"
        );
        assert!(
            self.above.len() <= self.config.max,
            "{} versions above the watermarks, more than the limit",
            self.above.len()
        );
        for &(replica, at) in &self.above {
            assert!(
                at > self.visible.at(replica),
                "{at} of site {} is below its watermark",
                replica.0
            );
        }
    }
}

impl Cops {
    fn replicas(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        (0..self.sites).map(ReplicaId)
    }

    fn of_peers(&self, read: impl Fn(ReplicaId) -> Reading) -> Vec<(ReplicaId, Reading)> {
        let peers = self.peers.keys();
        peers.map(|&replica| (replica, read(replica))).collect()
    }
}
