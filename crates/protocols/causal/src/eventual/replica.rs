use crate::{Bugs, bugs};
use turnbuckle_core::{
    Bounded, Bug, Change, Content, Context, Descriptor, Forgotten, Hlc, Key, Label, Level, Micros, Now,
    Parameter, PlainRequest, PlainResponse, Protocol, Receipt, Recovered, ReplicaId, Replication, RequestId,
    ServerId, Setting, Shown, Topology, Version, VersionId, Vitals,
};
use turnbuckle_streams::{Mark, Marks, Replaced};

/// The configuration of an eventual keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventualConfig {
    /// How often a replica tells its peers how far it is. On average, half of it is added to proven staleness.
    pub heartbeat: Micros,
    /// How long a read at `bounded(t)` may wait for the marks that prove it.
    pub patience: Micros,
    /// How often what is here is written down, so that deletes can be forgotten.
    pub keep_every: Micros,
    /// The planted bugs.
    pub bugs: Bugs,
}

impl Default for EventualConfig {
    fn default() -> EventualConfig {
        EventualConfig {
            heartbeat: Micros::from_millis(50),
            patience: Micros::from_millis(2_000),
            keep_every: Micros::from_millis(1_000),
            bugs: Bugs::default(),
        }
    }
}

/// One replica of one partition.
pub struct Eventual {
    me: ReplicaId,
    heartbeat: Micros,
    patience: Micros,
    keep_every: Micros,
    /// How far it is with every site: VV.
    marks: Marks,
    bugs: Bugs,
}

/// When to wake up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// When to tell the other sites how far this replica is.
    Heartbeat,
    /// When to write down what is here of every site.
    Keep,
}

/// What requests wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// The oldest of the wall times in the other replicas' last marks.
    OldestMark,
}

impl Protocol for Eventual {
    type Config = EventualConfig;
    type Request = PlainRequest;
    type Response = PlainResponse;
    type Message = Mark;
    type Timer = Timer;
    type Meta = ();
    type Line = Line;

    const DESCRIPTOR: Descriptor = Descriptor {
        max_members: ReplicaId::MAX_MEMBERS,
        leaves_sites_out: true,
        tolerates_clock_steps: true,
        tolerates_old_directories: true,
        takes_expiry: true,
        counts: true,
        keeps_elements: true,
        decides_at_site: true,
        ..Descriptor::of(Replication::Streams)
    };
    const PARAMETERS: &'static [Parameter<EventualConfig>] = &[
        Parameter::new(
            "heartbeat",
            "how often a replica tells the other sites up to which timestamp it has sent everything",
            |config| Setting::Interval(&mut config.heartbeat),
        ),
        Parameter::new(
            "patience",
            "how long a read at bounded(t) may wait until its bound is proven",
            |config| Setting::Interval(&mut config.patience),
        ),
    ];

    const BUGS: &'static [Bug] = &[
        bugs::FORGETS_DELETES_EARLY,
        bugs::SERVES_AN_OLD_DIRECTORY,
        bugs::WAITS_FOR_ONE_SITE,
        bugs::EXPIRES_BY_ARRIVAL,
        bugs::SHOWS_EXPIRED_VALUES,
        bugs::EXPIRY_REVIVES,
        bugs::COUNTS_AS_SUMS,
        bugs::RESETS_NOTHING,
        bugs::REMOVES_UNSEEN,
        bugs::ADDS_NO_FLOORS,
        bugs::CONDITIONS_IGNORE_THE_NEWEST,
    ];

    fn plant(config: &mut EventualConfig, bug: &str) -> bool {
        config.bugs.named(bug).map(|planted| *planted = true).is_some()
    }

    fn shrink(config: &mut EventualConfig, by: u32) {
        config.keep_every = config.keep_every.shrunk(by);
    }

    fn open(
        config: &EventualConfig,
        me: ServerId,
        topology: Topology,
        recovered: &Recovered,
        _seed: u64,
    ) -> Eventual {
        Eventual {
            me: me.replica(),
            heartbeat: config.heartbeat,
            patience: config.patience,
            keep_every: config.keep_every,
            marks: Marks::open(me, &topology, recovered, config.bugs.in_streams()),
            bugs: config.bugs,
        }
    }

    fn keys(&self, request: &PlainRequest, each: &mut dyn FnMut(&Key)) {
        each(request.key());
    }

    fn is_write(request: &PlainRequest) -> bool {
        request.is_write()
    }

    fn on_start(&mut self, cx: &mut Context<'_, Eventual>) {
        self.marks.deletes.start(cx);
        self.on_timer(cx, Timer::Keep);
        self.on_timer(cx, Timer::Heartbeat);
    }

    fn on_request(&mut self, cx: &mut Context<'_, Eventual>, id: RequestId, request: PlainRequest) {
        if let Some(why) = self.marks.deletes.refusal() {
            return self.refuse(cx, id, why.to_string());
        }
        match request {
            PlainRequest::Get(key, Level::Bounded(bound)) => self.get_bounded(cx, id, key, bound),
            PlainRequest::Get(key, level) => self.get(cx, id, &key, level),
            PlainRequest::Put(key, value, _, options) => {
                let change = Change::new(value, options);
                // It does not wait: later commands of the client would not wait for it.
                match change.decides() && !self.marks.lets_decide() {
                    true => self.refuse(cx, id, Replaced::MISSING.to_string()),
                    false => self.put(cx, id, key, change),
                }
            }
            // The gateway refuses it before.
            PlainRequest::Siblings(..) => self.refuse(cx, id, "this keyspace keeps no siblings".to_string()),
        }
    }

    /// A read at `bounded(t)` has waited for too long.
    fn on_deadline(&mut self, cx: &mut Context<'_, Eventual>, id: RequestId, request: PlainRequest) {
        if let Level::Bounded(bound) = request.level() {
            self.refuse_bounded(cx, id, bound, Bounded::LATE);
        }
    }

    /// Never called: replicas tell each other everything through the stream.
    fn on_message(&mut self, _: &mut Context<'_, Eventual>, _: ServerId, _: Mark) {}

    /// A write of another site, or one of this site that the other one sends back. The store keeps the newer of what it has and this.
    fn on_replicated(
        &mut self,
        cx: &mut Context<'_, Eventual>,
        from: ServerId,
        key: Key,
        version: Version<()>,
    ) {
        cx.observe(version.id.at);
        let here = cx.chain(&key);
        if self.marks.deletes.is_of_the_forgotten(here, &version) {
            return;
        }
        let mut version = version.with_floor(self.marks.deletes.floor(here));
        if self.bugs.expires_by_arrival
            && let Some(until) = version.content.until()
        {
            let until = cx.now.wall.reading + until.since(version.id.at.wall());
            let value = version.content.stored().cloned().unwrap_or_default();
            version.content = Content::with_base(value, Some(until), version.content.base());
        }
        if from == cx.me {
            cx.replicate(cx.others(), key, version);
        } else {
            cx.put(key, version);
        }
    }

    /// Everything that `from` stamped up to its promise has been handled.
    fn on_mark(&mut self, cx: &mut Context<'_, Eventual>, from: ServerId, mark: Mark) {
        self.marks.heard(cx, from.replica(), mark);
        let oldest = self.marks.walls().min().unwrap_or_default();
        cx.advance(Line::OldestMark, oldest.0);
    }

    fn on_timer(&mut self, cx: &mut Context<'_, Eventual>, timer: Timer) {
        match timer {
            Timer::Heartbeat => {
                let mark = self.marks.next(cx);
                cx.mark(cx.others(), mark);
                cx.set_timer(Timer::Heartbeat, self.heartbeat);
            }
            Timer::Keep => {
                self.marks.keep(cx);
                cx.set_timer(Timer::Keep, self.keep_every);
            }
        }
    }

    fn on_link(&mut self, _: &mut Context<'_, Eventual>, peer: ServerId, up: bool) {
        if !up {
            self.marks.deletes.left(peer.replica());
        }
    }

    fn on_copied(&mut self, _: &mut Context<'_, Eventual>, _: ServerId, copied: &Recovered) {
        self.marks.copied(copied);
    }

    fn on_returned(&mut self, cx: &mut Context<'_, Eventual>, _: ServerId, returned: &Recovered) {
        self.marks.returned(cx, returned);
    }

    fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        self.marks.cut()
    }

    fn shown(&self) -> Hlc {
        self.marks.deletes.shown()
    }

    fn is_outdated(&self) -> bool {
        self.marks.deletes.refusal().is_some()
    }

    fn forgotten(&self) -> Forgotten {
        self.marks.deletes.word()
    }

    fn on_resumed(&mut self, cx: &mut Context<'_, Eventual>, from: ServerId, forgotten: &Forgotten) {
        self.marks.deletes.resumed(cx, from.replica(), forgotten);
    }

    fn settled(&self) -> Hlc {
        self.marks.settled()
    }

    fn closed(&self) -> Hlc {
        self.marks.deletes.closed()
    }

    fn closed_everywhere(&self) -> Hlc {
        self.marks.closed_everywhere()
    }

    fn vitals(&self, _: Now) -> Vitals {
        self.marks.deletes.vitals(None)
    }

    fn validate(&self) {
        self.marks.validate();
    }
}

impl Eventual {
    fn get(&mut self, cx: &mut Context<'_, Eventual>, id: RequestId, key: &Key, level: Level) {
        let now = match self.bugs.shows_expired_values {
            true => Hlc::ZERO,
            false => cx.read_time(),
        };
        let shown = Shown::all(cx.chain(key));
        let (value, label) = (shown.whole(now), shown.label());
        let receipt = self.receipt(cx, level, label);
        cx.reply(id, PlainResponse::from(value), receipt);
    }

    /// Answers when the marks of all other replicas prove the bound.
    fn get_bounded(&mut self, cx: &mut Context<'_, Eventual>, id: RequestId, key: Key, bound: Micros) {
        let level = Level::Bounded(bound);
        match self.marks.bounded(cx, bound, self.patience) {
            Bounded::Proven => self.get(cx, id, &key, level),
            Bounded::Once { wall, deadline } => {
                cx.wait(
                    Line::OldestMark,
                    wall.0,
                    deadline,
                    id,
                    PlainRequest::Get(key, level),
                );
            }
            Bounded::Never(why) => self.refuse_bounded(cx, id, bound, why),
        }
    }

    fn refuse_bounded(&self, cx: &mut Context<'_, Eventual>, id: RequestId, bound: Micros, why: &str) {
        let why = cx.unproven(bound, self.marks.walls(), why);
        self.refuse(cx, id, why);
    }

    fn refuse(&self, cx: &mut Context<'_, Eventual>, id: RequestId, why: String) {
        let receipt = self.receipt(cx, Level::Eventual, None);
        cx.reply(id, PlainResponse::Refused(why), receipt);
    }

    fn put(&mut self, cx: &mut Context<'_, Eventual>, id: RequestId, key: Key, change: Change) {
        let now = cx.read_time();
        let here = cx.chain(&key);
        let (before, floor) = (Shown::all(here), self.marks.deletes.floor(here));
        let (there, decided_at_site) = (before.label(), change.decides());
        let receipt = |replica: &Eventual, cx: &Context<'_, Eventual>, label| Receipt {
            decided_at_site,
            ..replica.receipt(cx, Level::Eventual, label)
        };
        let before = self.bugs.decided_on(&change, &before);
        let new = match change.of(&before, now) {
            Ok(new) => new,
            Err(changed) => {
                let receipt = receipt(self, cx, there);
                return cx.reply(id, changed.into(), receipt);
            }
        };
        // The stamp is above the version that is here, even if a restart forgot that the clock had seen it.
        if let Some(there) = there {
            cx.observe(there.id.at);
        }
        let version = VersionId {
            at: cx.stamp(),
            replica: self.me,
        };
        self.marks.stamped(version.at);
        let (content, changed) = match self.bugs.stamped(new, version, cx.topology) {
            Ok(stamped) => stamped,
            Err(changed) => {
                let receipt = receipt(self, cx, there);
                return cx.reply(id, changed.into(), receipt);
            }
        };
        let written = Version {
            id: version,
            content,
            meta: (),
        };
        let written = written.with_floor(floor);
        let receipt = receipt(self, cx, Some(written.label()));
        let kept = cx.replicate(cx.others(), key, written);
        assert!(kept, "a new stamp is above every version of its key");
        cx.reply(id, changed.into(), receipt);
    }

    fn receipt(&self, cx: &Context<'_, Eventual>, given: Level, version: Option<Label>) -> Receipt {
        let receipt = Receipt {
            staleness: self.marks.staleness(cx),
            ..cx.receipt(given, None)
        };
        receipt.of(version)
    }
}
