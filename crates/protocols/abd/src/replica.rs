//! A replica: a coordinator for the clients of its site, and a register for all coordinators.
use crate::message::{Body, Message};
use std::collections::BTreeMap;
use turnbuckle_core::{
    Bug, Context, Descriptor, Key, Level, Levels, Metric, Micros, Now, Parameter, PlainProtocol,
    PlainRequest, PlainResponse, Protocol, Rank, Reading, Receipt, Recovered, ReplicaSet, Replication,
    RequestId, ServerId, Setting, Topology, Version, VersionId, VersionRecord, Vitals,
};

/// The configuration of an ABD keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbdConfig {
    /// How long a replica may take to answer before it is asked again.
    pub retry: Micros,
    /// How long an operation may wait for a majority.
    pub patience: Micros,
    /// Planted bug: a read does not write back what it found.
    pub reads_without_write_back: bool,
    /// Planted bug: a write is stamped by the coordinator's clock, and no other replica is asked.
    pub stamps_without_asking: bool,
}

impl Default for AbdConfig {
    fn default() -> AbdConfig {
        AbdConfig {
            retry: Micros::from_millis(500),
            patience: Micros::from_millis(4_000),
            reads_without_write_back: false,
            stamps_without_asking: false,
        }
    }
}

/// One replica of one partition. Its versions are in the driver's store; this has the operations that are under way.
pub struct Abd {
    config: AbdConfig,
    replicas: usize,
    /// The operations that it coordinates, by their numbers.
    open: BTreeMap<u64, Open>,
    /// The number of operations that reached no majority in time.
    given_up: u64,
}

/// An operation under way.
struct Open {
    id: RequestId,
    request: PlainRequest,
    phase: Phase,
    /// The replicas that have answered in this phase.
    answered: ReplicaSet,
    /// In the first phase, the newest version that was found; in the second, the version that a majority is to store.
    version: Option<Version<()>>,
    /// Whether all replicas that have answered the query have that version.
    agreed: bool,
    /// Whether the key had a value before.
    existed: bool,
    since: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Query,
    Store,
}

/// When to wake up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// When to ask replicas again that have not answered, and to give up operations that have waited too long.
    Retry,
}

type Cx<'a> = Context<'a, Abd>;

impl Protocol for Abd {
    type Config = AbdConfig;
    type Request = PlainRequest;
    type Response = PlainResponse;
    type Message = Message;
    type Timer = Timer;
    type Meta = ();
    type Line = ();

    const DESCRIPTOR: Descriptor = Descriptor {
        tolerates_clock_steps: true,
        ..Descriptor::of(Replication::Majority)
    };
    const PARAMETERS: &'static [Parameter<AbdConfig>] = &[
        Parameter::new(
            "retry",
            "how long a replica may take to answer before it is asked again",
            |config| Setting::Interval(&mut config.retry),
        ),
        Parameter::new(
            "patience",
            "how long an operation may wait for a majority",
            |config| Setting::Interval(&mut config.patience),
        ),
    ];
    const BUGS: &'static [Bug] = &[
        Bug::new(
            "reads_without_write_back",
            "a read returns a value that a later read, from another majority, does not find",
        ),
        Bug::new(
            "stamps_without_asking",
            "a write is stamped by a clock alone, below a write that was acknowledged before it began",
        ),
    ];

    const METRICS: &'static [Metric<Abd>] = &[
        Metric::new(
            "operations_under_way",
            "Operations that wait for a majority of the sites.",
            |abd, _| Reading::Count(abd.open.len() as u64),
        ),
        Metric::new(
            "operations_given_up_total",
            "Operations that failed because no majority of the sites was reached in time.",
            |abd, _| Reading::Count(abd.given_up),
        ),
    ];

    fn plant(config: &mut AbdConfig, bug: &str) -> bool {
        match bug {
            "reads_without_write_back" => config.reads_without_write_back = true,
            "stamps_without_asking" => config.stamps_without_asking = true,
            _ => return false,
        }
        true
    }

    fn open(config: &AbdConfig, me: ServerId, topology: Topology, _: &Recovered, _: u64) -> Abd {
        Abd {
            config: config.clone(),
            replicas: topology.replicas_of(me.partition).len(),
            open: BTreeMap::new(),
            given_up: 0,
        }
    }

    fn keys(&self, request: &PlainRequest, each: &mut dyn FnMut(&Key)) {
        each(request.key());
    }

    /// An answer may complete a phase. In that case the key of its operation is written.
    fn message_keys(&self, _: ServerId, message: &Message, each: &mut dyn FnMut(&Key)) {
        match (&message.body, self.open.get(&message.operation)) {
            (Some(Body::Query(()) | Body::Store(_)), _) => each(&Key(message.key.clone())),
            (_, Some(open)) => each(open.request.key()),
            (_, None) => {}
        }
    }

    fn is_write(request: &PlainRequest) -> bool {
        request.is_write()
    }

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        cx.set_timer(Timer::Retry, self.config.retry);
    }

    fn on_request(&mut self, cx: &mut Cx<'_>, id: RequestId, request: PlainRequest) {
        // A stamp is never given twice, not even across restarts of this replica.
        let operation = cx.stamp().0;
        let asks = !(self.config.stamps_without_asking && request.is_write());
        let open = Open {
            id,
            version: cx.chain(request.key()).map(|chain| chain.newest().clone()),
            request,
            phase: Phase::Query,
            answered: ReplicaSet::one(cx.me.replica()),
            agreed: true,
            existed: false,
            since: cx.now.monotonic,
        };
        match asks {
            true => self.ask(cx, operation, open),
            false => self.store(cx, operation, open),
        }
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, from: ServerId, message: Message) {
        let (operation, key) = (message.operation, Key(message.key));
        match message.body {
            Some(Body::Query(())) => {
                let newest = cx.chain(&key).map(|chain| chain.newest());
                let found = Body::Found(VersionRecord::new(newest));
                say(cx, from, operation, Key::default(), found);
            }
            Some(Body::Store(version)) => {
                let is_stored = keep(cx, key, version.version());
                if is_stored {
                    say(cx, from, operation, Key::default(), Body::Stored(()));
                }
            }
            Some(Body::Found(found)) => self.on_answer(cx, from, operation, Some(found.version())),
            Some(Body::Stored(())) => self.on_answer(cx, from, operation, None),
            None => {}
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>, Timer::Retry: Timer) {
        let (now, patience) = (cx.now.monotonic, self.config.patience);
        for (_, open) in self.open.extract_if(.., |_, open| now >= open.since + patience) {
            self.given_up += 1;
            let why = "no majority of the sites was reached in time".to_string();
            // Some replica may have stored the write.
            let response = match open.phase == Phase::Store && open.request.is_write() {
                true => PlainResponse::Unknown(why),
                false => PlainResponse::Refused(why),
            };
            let receipt = cx.receipt(Level::Linearizable, None);
            cx.reply(open.id, response, receipt);
        }
        for (&operation, open) in &self.open {
            ask_silent(cx, operation, open);
        }
        cx.set_timer(Timer::Retry, self.config.retry);
    }

    fn vitals(&self, _: Now) -> Vitals {
        Vitals {
            under_way: self.open.len() as u64,
            ..Vitals::default()
        }
    }

    fn validate(&self) {
        for (number, open) in &self.open {
            let waits = !is_majority(open.answered, self.replicas);
            assert!(waits, "operation {number} waits although a majority has answered");
        }
    }
}

impl Abd {
    /// Begins a phase. If there is only one site, this replica is the majority.
    fn ask(&mut self, cx: &mut Cx<'_>, operation: u64, open: Open) {
        ask_silent(cx, operation, &open);
        match is_majority(open.answered, self.replicas) {
            true => self.next_phase(cx, operation, open),
            false => drop(self.open.insert(operation, open)),
        }
    }

    /// A replica has answered: with what it has found, or that it has stored.
    fn on_answer(
        &mut self,
        cx: &mut Cx<'_>,
        from: ServerId,
        operation: u64,
        found: Option<Option<Version<()>>>,
    ) {
        let Some(open) = self.open.get_mut(&operation) else {
            return;
        };
        match (found, open.phase) {
            (Some(found), Phase::Query) => {
                let (theirs, ours) = (rank_of(found.as_ref()), rank_of(open.version.as_ref()));
                open.agreed &= theirs == ours;
                if theirs > ours {
                    open.version = found;
                }
            }
            (None, Phase::Store) => {}
            // The answer is too late for its phase.
            _ => return,
        }
        open.answered = open.answered.union(ReplicaSet::one(from.replica()));
        if is_majority(open.answered, self.replicas) {
            let open = self.open.remove(&operation).expect("it was just there");
            self.next_phase(cx, operation, open);
        }
    }

    /// A majority has answered.
    fn next_phase(&mut self, cx: &mut Cx<'_>, operation: u64, open: Open) {
        let is_known = open.agreed || self.config.reads_without_write_back;
        match open.phase == Phase::Store || !open.stamps() && is_known {
            true => reply(cx, open),
            false => self.store(cx, operation, open),
        }
    }

    /// Sends what was found, or what the client writes, to a majority.
    fn store(&mut self, cx: &mut Cx<'_>, operation: u64, mut open: Open) {
        open.existed = open.is_there();
        if let (true, PlainRequest::Put(_, value, ..)) = (open.stamps(), &open.request) {
            // The stamp is above everything that was acknowledged when the operation began.
            cx.observe(rank_of(open.version.as_ref()).id.at);
            let id = VersionId {
                at: cx.stamp(),
                replica: cx.me.replica(),
            };
            let (content, meta) = (value.clone().into(), ());
            open.version = Some(Version { id, content, meta });
        }
        open.phase = Phase::Store;
        open.answered = match keep(cx, open.request.key().clone(), open.version.clone()) {
            true => ReplicaSet::one(cx.me.replica()),
            false => ReplicaSet::default(),
        };
        self.ask(cx, operation, open);
    }
}

impl Open {
    /// Whether the version that was found has a value.
    fn is_there(&self) -> bool {
        self.version
            .as_ref()
            .is_some_and(|version| !version.content.is_delete())
    }

    /// Whether the operation stamps a version of its own. A delete of a key without a value does not.
    fn stamps(&self) -> bool {
        match &self.request {
            PlainRequest::Get(..) | PlainRequest::Siblings(..) => false,
            PlainRequest::Put(_, value, ..) => value.is_some() || self.is_there(),
        }
    }
}

fn is_majority(answered: ReplicaSet, replicas: usize) -> bool {
    2 * answered.len() > replicas
}

/// Asks the replicas that have not answered.
fn ask_silent(cx: &mut Cx<'_>, operation: u64, open: &Open) {
    for peer in cx.peers().filter(|peer| !open.answered.contains(peer.replica())) {
        let body = match open.phase {
            Phase::Query => Body::Query(()),
            Phase::Store => Body::Store(VersionRecord::new(open.version.as_ref())),
        };
        say(cx, peer, operation, open.request.key().clone(), body);
    }
}

/// Stores a version, unless this replica has it or a newer one. It is on disk before any message about it leaves. Returns false if the disk has no
/// room.
fn keep(cx: &mut Cx<'_>, key: Key, version: Option<Version<()>>) -> bool {
    let newest = cx.chain(&key).map(|chain| chain.newest().rank());
    let Some(version) = version.filter(|version| newest < Some(version.rank())) else {
        return true;
    };
    if cx.has_room() {
        cx.observe(version.id.at);
        cx.put(key, version);
        cx.sync();
    }
    cx.has_room()
}

fn say(cx: &mut Cx<'_>, to: ServerId, operation: u64, key: Key, body: Body) {
    let (key, body) = (key.0, Some(body));
    cx.send(to, Message { operation, key, body });
}

/// Answers the client: a majority has the version.
fn reply(cx: &mut Cx<'_>, open: Open) {
    let receipt = Receipt {
        staleness: Some(Micros(0)),
        waited: cx.now.monotonic.since(open.since),
        ..cx.receipt(
            Level::Linearizable,
            open.version.as_ref().map(|version| version.id),
        )
    };
    let response = match open.request.is_write() {
        true => PlainResponse::Written {
            existed: open.existed,
        },
        false => PlainResponse::Value(open.version.and_then(|version| version.content.stored().cloned())),
    };
    cx.reply(open.id, response, receipt);
}

/// A version's place in the order of all versions. The place of no version is before all others.
fn rank_of(version: Option<&Version<()>>) -> Rank {
    version.map(Version::rank).unwrap_or_default()
}

impl PlainProtocol for Abd {
    const LEVELS: Levels = Levels::of_both(&[Level::Linearizable]);
    /// A replica may take two writes of one client to one key in any order, so the second waits for the first.
    const OVERLAPS: bool = false;
    const WRITES_ANYWHERE: bool = true;
}
