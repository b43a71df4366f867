//! A replica: a coordinator for the clients of its site, and a copy for all coordinators.
use crate::{
    Body, Conflicts, LastWriterWins, Message, QuorumConfig, Request,
    exchange::Exchange,
    latency::Latencies,
    reads::Read,
    sequential::Order,
    statuses::Statuses,
    writes::{Acknowledgements, Writes},
};
use bytes::Bytes;
use std::collections::BTreeMap;
use turnbuckle_core::{
    Bug, Context, Descriptor, Forgotten, Hlc, Key, Level, Metric, Micros, Now, Parameter, PlainRequest,
    PlainResponse, Proof, Protocol, QuorumProof, Reading, Receipt, Recovered, ReplicaId, ReplicaSet,
    RequestId, ServerId, Topology, Version, VersionId, Vitals,
};
use turnbuckle_streams::Marks;

/// One replica of one partition. Its versions are in the driver's store; this has the operations that are under way.
pub struct Quorum<C: Conflicts = LastWriterWins> {
    pub(crate) config: QuorumConfig,
    /// The number of replicas of the partition: N.
    pub(crate) replicas: usize,
    pub(crate) all: ReplicaSet,
    /// How far it is with the streams of its peers.
    pub(crate) marks: Marks,
    /// The peers whose links are up.
    pub(crate) links: ReplicaSet,
    pub(crate) latencies: Latencies,
    /// The reads that it coordinates, by their numbers.
    pub(crate) reads: BTreeMap<u64, Read<C>>,
    /// The number of the last operation.
    last_operation: u64,
    /// When the next read asks another replica.
    pub(crate) hedges_at: Option<Micros>,
    pub(crate) writes: Writes,
    pub(crate) acknowledgements: Acknowledgements,
    pub(crate) exchange: Exchange,
    pub(crate) statuses: Statuses,
    pub(crate) order: Order,
    /// Whether the data directory was lost and peers have not yet sent back everything.
    was_lost: bool,
    pub(crate) given_up: u64,
    pub(crate) hedged: u64,
    /// The number of reads whose replicas had different versions.
    pub(crate) differing: u64,
    pub(crate) repairs: u64,
}

/// When to wake up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// When to tell the other replicas how far this one is.
    Heartbeat,
    /// When to write down what is here of every replica.
    Keep,
    /// When to tell peers how far their streams are stored here.
    Acknowledge,
    /// When to ask peers how far they are.
    Exchange,
    /// When to ask peers for statuses again.
    Subscribe,
    /// When to send statuses to the peers that want them.
    Status,
    /// When to ask another replica, because one that was asked is slow.
    Hedge,
    /// When to ask peers about writes that they have not acknowledged, and to give up operations that have waited too long.
    Retry,
}

/// The lines on which reads at `per-key-sequential` and `sequential` wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// How far a replica's stream has come: everything up to this timestamp.
    Stream(ReplicaId),
    /// The oldest of the statuses that count: their senders' wall time.
    Freshest,
    /// The cut: everything that any replica has stamped up to this timestamp is here.
    Cut,
}

pub(crate) type Cx<'a, C> = Context<'a, Quorum<C>>;

/// The name under which it is written down that the data directory was lost.
const LOST: &str = "lost";
/// The name that is written when everything before it is to be synced, and nothing else is written.
const SYNCED: &str = "synced";

impl<C: Conflicts> Protocol for Quorum<C> {
    type Config = QuorumConfig;
    type Request = Request;
    type Response = PlainResponse;
    type Message = Message;
    type Timer = Timer;
    type Meta = C::Meta;
    type Line = Line;

    const DESCRIPTOR: Descriptor = C::DESCRIPTOR;
    const PARAMETERS: &'static [Parameter<QuorumConfig>] = C::PARAMETERS;
    const BUGS: &'static [Bug] = C::BUGS;
    const METRICS: &'static [Metric<Quorum<C>>] = &[
        Metric::new(
            "quorum_reads_under_way",
            "Reads that wait for other replicas.",
            |quorum, _| Reading::Count(quorum.reads.len() as u64),
        ),
        Metric::new(
            "quorum_writes_under_way",
            "Writes that wait for acknowledgements of other replicas.",
            |quorum, _| Reading::Count(quorum.writes.len() as u64),
        ),
        Metric::new(
            "quorum_given_up_total",
            "Operations that failed because too few replicas answered in time.",
            |quorum, _| Reading::Count(quorum.given_up),
        ),
        Metric::new(
            "quorum_hedged_reads_total",
            "Reads that asked one more replica, because one that was asked was slow.",
            |quorum, _| Reading::Count(quorum.hedged),
        ),
        Metric::new(
            "quorum_reads_that_differ_total",
            "Reads whose replicas did not all have the same version of the key.",
            |quorum, _| Reading::Count(quorum.differing),
        ),
        Metric::new(
            "quorum_repairs_total",
            "Versions that were sent to replicas that a read found without them.",
            |quorum, _| Reading::Count(quorum.repairs),
        ),
        Metric::new(
            "quorum_bounded_here_total",
            "Reads at bounded(t) that one replica could answer by itself.",
            |quorum, _| Reading::Count(quorum.exchange.proven),
        ),
        Metric::new(
            "quorum_bounded_asked_total",
            "Reads at bounded(t) that had to ask a majority, because one replica could not prove the bound.",
            |quorum, _| Reading::Count(quorum.exchange.fell_back),
        ),
        Metric::new(
            "quorum_bounded_proven_seconds",
            "How old the answers to reads at bounded(t) were at most, as far as one replica could prove.",
            |quorum, _| Reading::Spans(Box::new(quorum.exchange.spans.clone())),
        ),
        Metric::new(
            "quorum_per_key_here_total",
            "Reads at per-key-sequential that one replica could answer by itself.",
            |quorum, _| Reading::Count(quorum.statuses.here),
        ),
        Metric::new(
            "quorum_per_key_asked_total",
            "Reads at per-key-sequential that had to ask a majority, because statuses were late.",
            |quorum, _| Reading::Count(quorum.statuses.asked),
        ),
        Metric::new(
            "quorum_sequential_total",
            "Reads at sequential that were answered.",
            |quorum, _| Reading::Count(quorum.order.answered),
        ),
        Metric::new(
            "quorum_sequential_late_total",
            "Reads at sequential that failed, because it was not known in time what every replica had stamped.",
            |quorum, _| Reading::Count(quorum.order.late),
        ),
        Metric::new(
            "quorum_replaced_bytes",
            "The bytes of replaced versions that are kept for reads at sequential.",
            |quorum, _| Reading::Count(quorum.order.kept_bytes()),
        ),
        Metric::new(
            "quorum_exchange_messages_total",
            "Questions, answers and statuses that were sent so that one replica can prove how fresh its answers are.",
            |quorum, _| Reading::Count(quorum.exchange.messages),
        ),
        Metric::new(
            "quorum_exchange_sent_bytes_total",
            "The bytes of these messages.",
            |quorum, _| Reading::Count(quorum.exchange.bytes),
        ),
    ];

    fn plant(config: &mut QuorumConfig, bug: &str) -> bool {
        config.bugs.named(bug).map(|planted| *planted = true).is_some()
    }

    fn doubt(config: &QuorumConfig, level: Level) -> Option<String> {
        match level {
            Level::Bounded(bound) if bound <= config.exchange => Some(format!(
                "reads at {level} often ask a majority, and always if it is a round trip of that length away: replicas ask each other every {} \
                 (exchange), and what one can prove by itself is up to that much older than a round trip",
                config.exchange
            )),
            _ => None,
        }
    }

    fn shrink(config: &mut QuorumConfig, by: u32) {
        config.keep_every = config.keep_every.shrunk(by);
        config.idle = config.idle.shrunk(by);
        config.remeasure = config.remeasure.shrunk(by);
    }

    fn open(
        config: &QuorumConfig,
        me: ServerId,
        topology: Topology,
        recovered: &Recovered,
        _seed: u64,
    ) -> Quorum<C> {
        let all = topology.replicas_of(me.partition);
        Quorum {
            config: *config,
            replicas: all.len(),
            all,
            marks: Marks::open(me, &topology, recovered, config.bugs.streams),
            links: ReplicaSet::default(),
            latencies: Latencies::new(config.remeasure),
            reads: BTreeMap::new(),
            last_operation: 0,
            hedges_at: None,
            writes: Writes::default(),
            acknowledgements: Acknowledgements::default(),
            exchange: Exchange::default(),
            statuses: Statuses::default(),
            order: Order::default(),
            was_lost: recovered.named.contains_key(LOST),
            given_up: 0,
            hedged: 0,
            differing: 0,
            repairs: 0,
        }
    }

    fn keys(&self, request: &Request, each: &mut dyn FnMut(&Key)) {
        each(request.operation.key());
    }

    /// An answer may complete a read. Then the key of the read is written.
    fn message_keys(&self, _: ServerId, message: &Message, each: &mut dyn FnMut(&Key)) {
        match &message.body {
            Some(Body::Read(read)) => each(&Key(read.key.clone())),
            Some(Body::Store(repair)) => each(&Key(repair.key.clone())),
            Some(Body::Newer(_) | Body::Older(_) | Body::Found(_) | Body::Stored(()) | Body::Declined(_)) => {
                if let Some(read) = self.reads.get(&message.operation) {
                    each(read.request.key());
                }
            }
            Some(
                Body::Mark(_)
                | Body::StoredUntil(_)
                | Body::Confirm(_)
                | Body::Round(_)
                | Body::Held(_)
                | Body::Subscribe(_),
            )
            | None => {}
        }
    }

    fn is_write(request: &Request) -> bool {
        request.operation.is_write()
    }

    fn on_start(&mut self, cx: &mut Cx<'_, C>) {
        self.last_operation = cx.stamp().0;
        self.begin_rounds(self.last_operation);
        self.marks.deletes.start(cx);
        self.on_timer(cx, Timer::Keep);
        self.on_timer(cx, Timer::Heartbeat);
        self.on_timer(cx, Timer::Retry);
    }

    fn on_request(&mut self, cx: &mut Cx<'_, C>, id: RequestId, request: Request) {
        let level = request.operation.level();
        if let Some(why) = self.refusal().or_else(|| unknown::<C>(&request.operation)) {
            let receipt = cx.receipt(level, None);
            return cx.reply(id, PlainResponse::Refused(why), receipt);
        }
        if request.operation.is_write() {
            // So it is stamped above what its session has seen.
            cx.observe(request.floor.position);
        }
        let request = match request.shows_seen() {
            true => match self.with_seen(cx, id, request) {
                Some(request) => request,
                None => return,
            },
            false => request,
        };
        match request.operation {
            PlainRequest::Get(_, Level::PerKeySequential) => return self.read_per_key(cx, id, request),
            PlainRequest::Get(_, Level::Sequential) => return self.read_in_order(cx, id, request),
            PlainRequest::Put(_, None, Level::Sequential, _) => return self.delete_in_order(cx, id, request),
            _ => {}
        }
        let request = request.operation;
        let needed = self.needed_by(level);
        let deletes_nothing = self.deletes_nothing(cx, &request);
        match &request {
            PlainRequest::Get(_, Level::Bounded(bound))
            | PlainRequest::Siblings(_, Level::Bounded(bound)) => {
                let bound = *bound;
                self.read_bounded(cx, id, request, bound);
            }
            PlainRequest::Get(..) | PlainRequest::Siblings(..) if needed == 1 => {
                self.read_here(cx, id, &request);
            }
            PlainRequest::Put(key, ..) if needed == 1 && deletes_nothing => {
                let key = key.clone();
                self.delete_nothing_here(cx, id, &key, level);
            }
            PlainRequest::Get(..) | PlainRequest::Siblings(..) => {
                self.begin_read(cx, id, request, needed, None)
            }
            // A delete writes nothing if there is nothing, and this replica alone does not know that.
            PlainRequest::Put(..) if deletes_nothing => self.begin_read(cx, id, request, needed, None),
            PlainRequest::Put(..) if level == Level::Atomic && !self.config.bugs.stamps_without_asking => {
                self.begin_read(cx, id, request, needed, None)
            }
            PlainRequest::Put(..) => {
                let since = cx.now.monotonic.since(cx.waited);
                self.begin_write(cx, id, request, since);
            }
        }
    }

    /// It has waited for statuses, or for what its session has seen, for as long as it may. Its key may not be in memory any more.
    fn on_deadline(&mut self, cx: &mut Cx<'_, C>, id: RequestId, request: Request) {
        cx.run_again(id, request);
    }

    fn on_message(&mut self, cx: &mut Cx<'_, C>, from: ServerId, message: Message) {
        let operation = message.operation;
        match message.body {
            Some(Body::Read(question)) => self.on_question(cx, from, operation, &question),
            Some(answer @ (Body::Newer(_) | Body::Older(_) | Body::Found(_))) => {
                if let Some((known, lacked)) = C::found(answer) {
                    self.on_answer(cx, from, operation, known, lacked);
                }
            }
            Some(Body::Declined(why)) => self.on_declined(cx, from, operation, why),
            Some(Body::StoredUntil(until)) => self.on_stored_until(cx, from, Hlc(until)),
            Some(Body::Confirm(until)) => self.on_confirm(cx, from, Hlc(until)),
            Some(Body::Store(repair)) => self.on_store(cx, from, operation, repair),
            Some(Body::Stored(())) => self.on_stored(cx, from, operation),
            Some(Body::Round(round)) => self.on_round(cx, from.replica(), round),
            Some(Body::Subscribe(time)) => self.on_subscribe(cx, from.replica(), Micros(time)),
            Some(Body::Mark(_) | Body::Held(_)) | None => {}
        }
    }

    /// A write of another replica, or one of this replica that the other one sends back. The store keeps the newer of what it has and this.
    fn on_replicated(&mut self, cx: &mut Cx<'_, C>, from: ServerId, key: Key, version: Version<C::Meta>) {
        cx.observe(version.id.at);
        if from == cx.me {
            self.keep_replaced(cx, &key, &version);
            cx.replicate(cx.others(), key, version);
        } else {
            let (id, copies) = (version.id, C::copies(&version.meta));
            self.keep_replaced(cx, &key, &version);
            let is_new = cx.put(key, version);
            self.received(cx, from, id, copies, is_new);
        }
    }

    /// Everything that `from` stamped up to its promise has been handled.
    fn on_mark(&mut self, cx: &mut Cx<'_, C>, from: ServerId, message: Message) {
        let (mark, held) = match message.body {
            Some(Body::Mark(mark)) => (mark.mark(), None),
            Some(Body::Held(held)) => (held.mark.mark(), Some(held)),
            _ => return,
        };
        self.on_any_mark(cx, from.replica(), mark);
        if let Some(held) = held {
            self.on_held(cx, from.replica(), &held);
        }
        if self.was_lost {
            self.keep(cx);
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, C>, timer: Timer) {
        match timer {
            Timer::Heartbeat => {
                self.heartbeat(cx);
                cx.set_timer(Timer::Heartbeat, self.config.heartbeat);
            }
            Timer::Keep => {
                self.keep(cx);
                cx.set_timer(Timer::Keep, self.config.keep_every);
            }
            Timer::Acknowledge => self.acknowledge(cx),
            Timer::Exchange => self.ask_round(cx),
            Timer::Subscribe => self.subscribe(cx),
            Timer::Status => self.send_statuses(cx),
            Timer::Hedge => self.hedge(cx),
            Timer::Retry => {
                self.retry_reads(cx);
                self.retry_writes(cx);
                cx.set_timer(Timer::Retry, self.config.retry);
            }
        }
    }

    fn on_link(&mut self, cx: &mut Cx<'_, C>, peer: ServerId, up: bool) {
        let replica = peer.replica();
        if up {
            self.links = self.links.union(ReplicaSet::one(replica));
            self.subscribe_to(cx, replica);
        } else {
            self.links = self.links.without(replica);
            self.marks.deletes.left(replica);
            self.lose_answers_of(cx, replica);
        }
    }

    fn on_copied(&mut self, _: &mut Cx<'_, C>, _: ServerId, copied: &Recovered) {
        self.marks.copied(copied);
        // It is not known what the rows of the copy have replaced.
        self.order.forget();
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

    fn on_resumed(&mut self, cx: &mut Cx<'_, C>, from: ServerId, forgotten: &Forgotten) {
        self.marks.deletes.resumed(cx, from.replica(), forgotten);
    }

    /// A peer knows an earlier life of this replica. If the directory is still being filled, it was lost, and what it acknowledged with it.
    fn on_returned(&mut self, cx: &mut Cx<'_, C>, _: ServerId, returned: &Recovered) {
        self.marks.returned(cx, returned);
        if self.marks.deletes.is_filling() && !self.was_lost {
            self.was_lost = true;
            cx.put_named(LOST, Bytes::new());
        }
    }

    fn settled(&self) -> Hlc {
        self.marks.settled()
    }

    fn covered(&self, version: &Version<C::Meta>) -> bool {
        C::DESCRIPTOR.keeps_siblings && version.id.at <= self.marks.settled()
    }

    fn vitals(&self, _: Now) -> Vitals {
        Vitals {
            under_way: (self.reads.len() + self.writes.len() + usize::from(self.was_lost)) as u64,
            ..self.marks.deletes.vitals(None)
        }
    }

    fn validate(&self) {
        self.marks.validate();
    }
}

impl<C: Conflicts> Quorum<C> {
    /// Writes down what is shown here. If all peers have sent back what they had, this replica counts again.
    fn keep(&mut self, cx: &mut Cx<'_, C>) {
        self.marks.keep(cx);
        if self.was_lost && !self.marks.deletes.is_filling() {
            self.was_lost = false;
            cx.drop_named(LOST);
        }
    }

    /// The number of replicas that must take part at a level, this one included.
    pub(crate) fn needed_by(&self, level: Level) -> usize {
        level.replicas_needed(self.replicas)
    }

    pub(crate) fn majority(&self) -> usize {
        self.replicas / 2 + 1
    }

    pub(crate) fn next_operation(&mut self) -> u64 {
        self.last_operation += 1;
        self.last_operation
    }

    /// Why this replica serves nothing, and does not count. `None` if it does.
    pub(crate) fn refusal(&self) -> Option<String> {
        if let Some(why) = self.marks.deletes.refusal() {
            return Some(why.to_string());
        }
        self.was_lost.then(|| {
            "the data directory of this node was lost, and its peers have not yet sent back everything that it had".to_string()
        })
    }

    /// Why too few replicas take part.
    pub(crate) fn too_few(&self, cx: &Cx<'_, C>, level: Level, needed: usize) -> String {
        let away = self.all.without(cx.me.replica()).minus(self.links);
        let away: Vec<String> = away.iter().map(|peer| cx.topology.replica_name(peer)).collect();
        let count = self.replicas;
        match needed > count {
            true => format!("{level} needs {needed} replicas, and each key has {count}"),
            false => {
                let away = match away.is_empty() {
                    true => String::new(),
                    false => format!("; not reached: {}", away.join(", ")),
                };
                format!("{level} needs {needed} of {count} replicas{away}")
            }
        }
    }

    fn read_here(&self, cx: &mut Cx<'_, C>, id: RequestId, request: &PlainRequest) {
        let shown = self.shown_here(cx, request);
        let receipt = Receipt {
            siblings: shown.has_siblings,
            ..self.receipt_here(cx, request.level(), shown.version)
        };
        cx.reply(id, shown.response, receipt);
    }

    /// Whether it is a delete, and finds nothing here to delete.
    pub(crate) fn deletes_nothing(&self, cx: &Cx<'_, C>, request: &PlainRequest) -> bool {
        match request {
            PlainRequest::Put(key, None, _, options) => {
                let shown = self.marks.deletes.shown_by_all();
                C::deletes_nothing(cx.chain(key), options.as_deref(), shown)
            }
            _ => false,
        }
    }

    /// What a read of a key shows here.
    pub(crate) fn shown_here(&self, cx: &Cx<'_, C>, request: &PlainRequest) -> Shown {
        let here = cx.chain(request.key());
        Shown {
            version: here.map(|chain| chain.newest().id),
            has_siblings: C::has_siblings(here),
            response: C::response(&self.config, here, request),
        }
    }

    fn delete_nothing_here(&self, cx: &mut Cx<'_, C>, id: RequestId, key: &Key, level: Level) {
        let receipt = self.receipt_here(cx, level, deleted_here(cx, key));
        cx.reply(id, PlainResponse::Written { existed: false }, receipt);
    }

    /// The receipt of an answer that this replica gives alone. The marks of the other replicas prove how old it may be.
    fn receipt_here(&self, cx: &Cx<'_, C>, level: Level, version: Option<VersionId>) -> Receipt {
        let me = ReplicaSet::one(cx.me.replica());
        let proof = QuorumProof {
            asked: me,
            answered: me,
            covers: 1,
            ..QuorumProof::default()
        };
        Receipt {
            staleness: self.marks.staleness(cx),
            ..self.receipt(cx, level, version, proof, cx.now.monotonic)
        }
    }

    pub(crate) fn receipt(
        &self,
        cx: &Cx<'_, C>,
        level: Level,
        version: Option<VersionId>,
        proof: QuorumProof,
        since: Micros,
    ) -> Receipt {
        Receipt {
            waited: cx.now.monotonic.since(since).max(cx.waited),
            proof: Proof::Quorum(proof),
            ..cx.receipt(level, version)
        }
    }
}

/// What a read shows.
pub(crate) struct Shown {
    /// The newest version.
    pub version: Option<VersionId>,
    pub has_siblings: bool,
    pub response: PlainResponse,
}

/// Why an operation is not one of this kind of keyspace. Gateways refuse it before, so it comes from a node that is at fault.
fn unknown<C: Conflicts>(operation: &PlainRequest) -> Option<String> {
    if !C::DESCRIPTOR.keeps_siblings {
        // Its replicas carry out all levels that there are in quorum keyspaces.
        return None;
    }
    let offered = match operation.is_write() {
        true => C::LEVELS.writes,
        false => C::LEVELS.reads,
    };
    let is_known = operation.level().is_among(offered);
    (!is_known).then(|| "this keyspace has no such operation".to_string())
}

/// The delete that is a key's newest version here. `None` if that is something else.
pub(crate) fn deleted_here<C: Conflicts>(cx: &Cx<'_, C>, key: &Key) -> Option<VersionId> {
    let newest = cx.chain(key).map(|chain| chain.newest());
    newest
        .filter(|newest| newest.content.is_delete())
        .map(|newest| newest.id)
}

/// The newest version of a key here, and its value.
pub(crate) fn newest_here<C: Conflicts>(cx: &Cx<'_, C>, key: &Key) -> (Option<VersionId>, Option<Bytes>) {
    let newest = cx.chain(key).map(|chain| chain.newest());
    let value = newest.and_then(|newest| newest.content.stored().cloned());
    (newest.map(|newest| newest.id), value)
}

/// Sends a message to another replica of the partition.
pub(crate) fn say<C: Conflicts>(cx: &mut Cx<'_, C>, to: ReplicaId, operation: u64, body: Body) {
    let body = Some(body);
    cx.send(cx.me.peer(to), Message { operation, body });
}

/// Makes sure that everything that was written so far is synced before anything that is sent from now on leaves.
pub(crate) fn sync_all<C: Conflicts>(cx: &mut Cx<'_, C>) {
    cx.put_named(SYNCED, Bytes::new());
    cx.sync();
}
