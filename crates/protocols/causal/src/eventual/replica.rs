use super::message::Mark;
use crate::{
    Bugs, bugs,
    deletes::{Deletes, Said},
};
use bytes::Bytes;
use std::collections::BTreeMap;
use turnbuckle_core::{
    Bug, Context, Descriptor, Forgotten, Hlc, Key, Level, Micros, Now, Parameter, PlainRequest,
    PlainResponse, Protocol, Receipt, Recovered, ReplicaId, Replication, RequestId, ServerId, Setting,
    Topology, Version, VersionId, Vitals,
};

/// The configuration of an eventual keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventualConfig {
    /// How often a replica tells its peers how far it is. On average, half of it is added to proven staleness.
    pub heartbeat: Micros,
    /// How often what is here is written down, so that deletes can be forgotten.
    pub keep_every: Micros,
    /// The planted bugs.
    pub bugs: Bugs,
}

impl Default for EventualConfig {
    fn default() -> EventualConfig {
        EventualConfig {
            heartbeat: Micros::from_millis(50),
            keep_every: Micros::from_millis(1_000),
            bugs: Bugs::default(),
        }
    }
}

/// One replica of one partition.
pub struct Eventual {
    me: ReplicaId,
    heartbeat: Micros,
    keep_every: Micros,
    /// For each other replica, what its marks have promised. Everything that it stamped up to `promise` is in the store, or was superseded.
    vv: BTreeMap<ReplicaId, Mark>,
    /// Everything that was stamped here up to this time is in the store.
    own: Hlc,
    deletes: Deletes,
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

/// The lines of this protocol: none, because no request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {}

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
        ..Descriptor::of(Replication::Streams)
    };
    const PARAMETERS: &'static [Parameter<EventualConfig>] = &[Parameter::new(
        "heartbeat",
        "how often a replica tells the other sites up to which timestamp it has sent everything",
        |config| Setting::Interval(&mut config.heartbeat),
    )];

    const BUGS: &'static [Bug] = &[bugs::FORGETS_DELETES_EARLY, bugs::SERVES_AN_OLD_DIRECTORY];

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
        let until = |replica| {
            let mut cut = recovered.cut.iter();
            cut.find(|(of, _)| *of == replica)
                .map_or(Hlc::ZERO, |&(_, until)| until)
        };
        let others = topology.others_of(me).iter();
        Eventual {
            me: me.replica(),
            heartbeat: config.heartbeat,
            keep_every: config.keep_every,
            vv: others
                .map(|replica| {
                    (
                        replica,
                        Mark {
                            promise: until(replica),
                            settled: until(replica),
                            deletes: Said::default(),
                            wall: Micros(0),
                        },
                    )
                })
                .collect(),
            own: until(me.replica()),
            deletes: Deletes::open(me, &topology, recovered, config.bugs),
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
        self.deletes.start(cx);
        self.on_timer(cx, Timer::Keep);
        self.on_timer(cx, Timer::Heartbeat);
    }

    fn on_request(&mut self, cx: &mut Context<'_, Eventual>, id: RequestId, request: PlainRequest) {
        if let Some(why) = self.deletes.refusal() {
            return cx.reply(
                id,
                PlainResponse::Refused(why.to_string()),
                self.receipt(cx, None),
            );
        }
        match request {
            PlainRequest::Get(key, ..) => self.get(cx, id, &key),
            PlainRequest::Put(key, value, ..) => self.put(cx, id, key, value),
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
        if from == cx.me {
            cx.replicate(cx.others(), key, version);
        } else {
            cx.put(key, version);
        }
    }

    /// Everything that `from` stamped up to its promise has been handled.
    fn on_mark(&mut self, cx: &mut Context<'_, Eventual>, from: ServerId, mark: Mark) {
        cx.observe(mark.promise);
        if let Some(known) = self.vv.get_mut(&from.replica()) {
            known.promise = known.promise.max(mark.promise);
            known.settled = known.settled.max(mark.settled);
            known.wall = known.wall.max(mark.wall);
            self.deletes.heard(cx, from.replica(), mark.deletes);
        }
    }

    fn on_timer(&mut self, cx: &mut Context<'_, Eventual>, timer: Timer) {
        match timer {
            Timer::Heartbeat => {
                self.own = cx.promise();
                let settled = cx.settled_promise();
                cx.mark(
                    cx.others(),
                    Mark {
                        promise: self.own,
                        settled,
                        deletes: self.deletes.said(cx),
                        wall: cx.now.wall.earliest,
                    },
                );
                cx.set_timer(Timer::Heartbeat, self.heartbeat);
            }
            Timer::Keep => {
                // Everything that any site stamped up to this time was handled, and staged for the log, before this.
                let others = self.vv.values().map(|mark| mark.promise).min();
                self.deletes.keep(cx, others.unwrap_or(Hlc::LATEST).min(self.own));
                cx.set_timer(Timer::Keep, self.keep_every);
            }
        }
    }

    fn on_link(&mut self, _: &mut Context<'_, Eventual>, peer: ServerId, up: bool) {
        if !up {
            self.deletes.left(peer.replica());
        }
    }

    fn on_copied(&mut self, _: &mut Context<'_, Eventual>, _: ServerId, copied: &Recovered) {
        for &(replica, until) in &copied.cut {
            if let Some(known) = self.vv.get_mut(&replica) {
                known.promise = known.promise.max(until);
                known.settled = known.settled.max(until);
            }
        }
    }

    fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        let others = self
            .vv
            .iter()
            .map(|(&replica, mark)| (replica, mark.promise.min(mark.settled)));
        others.chain([(self.me, self.own)]).collect()
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

    fn on_resumed(&mut self, cx: &mut Context<'_, Eventual>, from: ServerId, forgotten: &Forgotten) {
        self.deletes.resumed(cx, from.replica(), forgotten);
    }

    fn settled(&self) -> Hlc {
        let stamped = || self.vv.values().map(|mark| mark.settled).min();
        match self.bugs.forgets_deletes_early {
            true => stamped().unwrap_or(Hlc::LATEST).min(self.own),
            false => self.deletes.forgotten().min(self.own),
        }
    }

    fn vitals(&self, _: Now) -> Vitals {
        self.deletes.vitals(None)
    }

    fn validate(&self) {
        for (replica, mark) in &self.vv {
            assert!(
                Hlc::from_wall(mark.wall) <= mark.promise,
                "site {} promised {} at {}: its promise is behind its own clock",
                replica.0,
                mark.promise,
                mark.wall
            );
            assert!(*replica != self.me, "a replica has no mark of its own site");
        }
    }
}

impl Eventual {
    fn get(&mut self, cx: &mut Context<'_, Eventual>, id: RequestId, key: &Key) {
        let newest = cx.chain(key).map(|chain| chain.newest());
        let (version, value) = (
            newest.map(|newest| newest.id),
            newest.and_then(|newest| newest.value.clone()),
        );
        cx.reply(id, PlainResponse::Value(value), self.receipt(cx, version));
    }

    fn put(&mut self, cx: &mut Context<'_, Eventual>, id: RequestId, key: Key, value: Option<Bytes>) {
        let newest = cx
            .chain(&key)
            .map(|chain| (chain.newest().id, chain.newest().value.is_some()));
        let existed = newest.is_some_and(|(_, alive)| alive);
        if value.is_none() && !existed {
            let version = newest.map(|(id, _)| id);
            cx.reply(id, PlainResponse::Written { existed }, self.receipt(cx, version));
            return;
        }
        // The stamp is above the version that is here, even if a restart forgot that the clock had seen it.
        if let Some((newest, _)) = newest {
            cx.observe(newest.at);
        }
        let version = VersionId {
            at: cx.stamp(),
            replica: self.me,
        };
        self.own = version.at;
        let kept = cx.replicate(
            cx.others(),
            key,
            Version {
                id: version,
                value,
                meta: (),
            },
        );
        assert!(kept, "a new stamp is above every version of its key");
        cx.reply(
            id,
            PlainResponse::Written { existed },
            self.receipt(cx, Some(version)),
        );
    }

    /// The last mark of every other site proves that everything which the site had acknowledged by the mark's wall time is here.
    fn receipt(&self, cx: &Context<'_, Eventual>, version: Option<VersionId>) -> Receipt {
        let marks = self.vv.values().map(|mark| mark.wall);
        Receipt {
            staleness: cx.now.wall.age_of_oldest(marks),
            ..cx.receipt(Level::Eventual, version)
        }
    }
}
