//! One replica with everything around it: its store, its stream, and those of its peers.
mod arrivals;
mod beside;
mod checkpoint;
mod cold;
mod commit;
mod copies;
mod effects;
mod missing;
mod peer;
mod recovery;
mod repair;
mod rows;
mod unheard;
mod waiting;
pub(crate) use beside::{Beside, Changes};
pub(crate) use effects::Effect;
pub(crate) use missing::Repair;
pub(crate) use waiting::Question;

use crate::{
    entry::Written,
    environment::Environment,
    incoming::{Errand, Incoming, RowsOut},
    record::{CheckpointMeta, Record},
};
use bytes::BytesMut;
use cold::Cold;
use missing::Unheard;
use std::collections::{BTreeMap, VecDeque};
use turnbuckle_core::{
    Hlc, Input, Key, Micros, Now, Outcome, Output, Protocol, Recovered, Replica, ReplicaId, ReplicaSet,
    RequestId, ServerId, Versions, Wire,
};
use turnbuckle_log::Position;
use turnbuckle_replication::{Entry, MarkFrame, Outgoing, StreamBody, StreamPosition};
use turnbuckle_store::Store;
use waiting::Waiting;

/// How much memory is taken at a time for encoded versions.
const ARENA_BYTES: usize = 64 << 10;

/// How many promises may wait for a sync; beyond that the newest replaces the one before.
const MOST_PROMISES: usize = 64;

/// Once so many inputs wait for keys from disk, messages that would wait, too, are lost: their senders are prepared for that and ask again, and
/// a disk that is slower than they ask would never be done.
const MOST_COLD: usize = 1024;

/// A lane. Everything here happens under its lock, in the order in which the lock was taken; what it emits is handed on
/// under the lock too.
pub(crate) struct Lane<P: Protocol> {
    pub me: ServerId,
    /// Which of its partition's replicas it is.
    pub id: ReplicaId,
    pub env: Environment,
    /// What is to be done, in order.
    pub effects: Vec<Effect<P>>,
    pub replica: Replica<P>,
    pub store: Store<P::Meta>,
    pub outgoing: Outgoing,
    pub incoming: BTreeMap<ReplicaId, Incoming<P>>,
    pub cold: Cold<Waiting<P>>,
    /// What peers are sent row by row: a copy, or what they lost, or one after the other.
    pub rows_out: BTreeMap<ReplicaId, VecDeque<RowsOut<P::Meta>>>,
    /// Peers that wait for rows until a checkpoint has been made.
    pub rows_wanted: BTreeMap<ReplicaId, Vec<Errand>>,
    /// Everything this replica stamped in its earlier lives up to here is in the last checkpoint. The log behind it may hold more, but
    /// with gaps: what peers give back comes in no order, and a crash may end that in the middle.
    recovered: Hlc,
    /// Peers that may hold something this replica stamped later in an earlier life, and lost. Until all of them have said
    /// where they are, and given back what they had, it promises nothing: what comes back has an old stamp. Nothing that no power
    /// loss could have taken is among that, so it does not wait for ever for a site that is away.
    unsettled: ReplicaSet,
    patient_until: Micros,
    /// Every peer has given back what it held of this lane when its directory was empty: that is in the log or the last checkpoint.
    given_back: bool,
    /// A peer has spoken of an earlier life, of which nothing is on this disk.
    had_earlier_life: bool,
    /// A peer has shown that the directory was lost, or is an old copy: stamps may have been given of which nobody here knows. It promises nothing until
    /// all have given back.
    has_lost_directory: bool,
    /// Sites that have not said in this life where they are.
    unheard_of: ReplicaSet,
    /// From then on others are given rows although some site was not heard.
    gives_from: Micros,
    /// Timers whose keys could not be read.
    unread: Vec<(Vec<Key>, P::Timer)>,
    /// What requests wait for after a start.
    unheard: Option<Unheard<P>>,
    /// The latest time that any input has come with.
    time: Now,
    /// A planted bug: inputs may come with an earlier time than those before.
    time_goes_back: bool,
    /// A planted bug has lost its entry.
    has_dropped: bool,
    /// Peers that have given everything back, in the open batch.
    taken: Vec<ReplicaId>,
    /// Appended to the log, and not yet durable.
    logged: VecDeque<Logged>,
    /// Promises whose marks are sent, until everything they speak of is synced.
    promises: VecDeque<(Position, (Hlc, u64))>,
    /// Clock bounds in the log, and not yet synced.
    bounds: VecDeque<(Position, Hlc)>,
    bound: Hlc,
    /// The last checkpoint covers the log up to here.
    covered: Position,
    /// The next checkpoint has deletes to forget once what is settled has come behind this.
    forgets_behind: Hlc,
    /// How many deletes were forgotten since the table was last merged anew.
    pub forgotten: u64,
    /// In how many checkpoints the table may be merged anew, and how many those were the last time, if that gave nothing back.
    reclaim_after: u32,
    reclaim_wait: u32,
    /// It has not served yet since it was added to the configuration, or its last checkpoint says that rows are missing and none is.
    is_new: bool,
    /// Rows are missing, and come from peers.
    pub repair: Option<Repair>,
    /// Something in its table cannot be read.
    pub damage: Option<String>,
    /// What is kept beside versions.
    pub beside: Beside,
    /// A peer whose timestamps are too far ahead.
    pub held_peers: BTreeMap<ReplicaId, Hlc>,
    /// It was said that the directory is an old copy.
    pub said_outdated: bool,
    /// Versions are encoded into it.
    arena: BytesMut,
    /// What was stamped here in this life.
    pub written: Written,
    /// The last record, to be overwritten by the next.
    encoded: Vec<u8>,
    /// What the last finished checkpoint said.
    pub checkpointed: Option<CheckpointMeta>,
    /// Something may be staged, or is appended to the log.
    pub moved: bool,
    /// Entries of the last batch, if their order is a planted bug.
    swapped: Vec<Entry>,
}

/// A batch in the log.
struct Logged {
    number: Option<u64>,
    end: Position,
    sync: bool,
    entries: Vec<Entry>,
    /// How far other streams have come with it: to be acknowledged.
    received: Vec<(ReplicaId, StreamPosition)>,
    /// Peers that have given everything back with it.
    taken: Vec<ReplicaId>,
}

impl<P: Protocol> Lane<P> {
    /// A lane over its store, as the last checkpoint left it.
    pub fn open(
        env: Environment,
        me: ServerId,
        store: Store<P::Meta>,
        beside: Beside,
        meta: &CheckpointMeta,
        repair: Option<Repair>,
        protocol: &P::Config,
    ) -> Lane<P> {
        let seed = env.shared().config.seed;
        let id = me.replica();
        let others: Vec<ReplicaId> = env.topology().others_of(me).iter().collect();
        let mut outgoing = Outgoing::new(env.shared().config.stream, others.iter().copied());
        outgoing.restore(
            meta.next_position,
            meta.incarnations.iter().map(|&record| record.into()).collect(),
        );
        outgoing.restore_index(meta.index());
        let received: BTreeMap<_, _> = meta.received.iter().map(|record| record.parts()).collect();
        let mut incoming: BTreeMap<_, _> = others
            .into_iter()
            .map(|replica| {
                (
                    replica,
                    Incoming::new(
                        received.get(&replica).copied().unwrap_or_default(),
                        env.shared().pending(),
                    ),
                )
            })
            .collect();
        hold(&mut incoming, meta.held.iter().map(|record| record.parts()));
        let (bound, mut recovered) = (Hlc(meta.bound), Recovered::default());
        recovered.cut = meta.cut();
        recovered.named.clone_from(beside.named());
        let own = recovered.cut.iter().find(|(replica, _)| *replica == id);
        let own = own.map_or(Hlc::ZERO, |&(_, until)| until);
        if repair.as_ref().is_some_and(|repair| repair.is_blank) {
            recovered.cut.clear();
            recovered.lacks_rows = true;
        }
        Lane {
            me,
            id,
            effects: Vec::new(),
            replica: Replica::open(protocol, me, env.topology().clone(), bound, &recovered, seed),
            store,
            outgoing,
            incoming,
            cold: Cold::new(),
            rows_out: BTreeMap::new(),
            rows_wanted: BTreeMap::new(),
            recovered: own,
            unsettled: ReplicaSet::default(),
            patient_until: Micros(0),
            given_back: meta.given_back,
            had_earlier_life: false,
            has_lost_directory: false,
            unheard_of: ReplicaSet::default(),
            gives_from: Micros(0),
            unread: Vec::new(),
            unheard: None,
            time: Now::default(),
            time_goes_back: env.shared().config.planted.time_before_disk,
            has_dropped: false,
            taken: Vec::new(),
            logged: VecDeque::new(),
            promises: VecDeque::new(),
            bounds: VecDeque::new(),
            bound,
            covered: Position(meta.log_position),
            forgets_behind: Hlc::ZERO,
            forgotten: 0,
            reclaim_after: 0,
            reclaim_wait: 0,
            is_new: false,
            repair,
            damage: None,
            beside,
            held_peers: BTreeMap::new(),
            said_outdated: false,
            arena: BytesMut::with_capacity(ARENA_BYTES),
            written: Written::default(),
            encoded: Vec::new(),
            checkpointed: None,
            moved: false,
            swapped: Vec::new(),
            env,
        }
    }

    // ---- inputs ---------------------------------------------------------------------------------------------

    /// A session's or another node's request. It waits if its keys are not in memory.
    pub fn ask(&mut self, now: Now, question: Question<P>) {
        if self.unheard.is_some() {
            self.end_unheard(now);
        }
        self.run_or_park(now, question);
        self.finish_input(now);
    }

    /// When it wants to be stepped next, in monotonic time: for a timer of its replica, or for requests that wait for others' word. A protocol without
    /// timers of its own has nothing else that ends their waiting.
    pub fn next_deadline(&self) -> Option<Micros> {
        let unheard = self.unheard.as_ref().map(|unheard| unheard.until);
        // Once that has passed, each request is answered as it comes.
        let unheard = unheard.filter(|&until| until > self.time.monotonic);
        [self.replica.next_deadline(), unheard]
            .into_iter()
            .flatten()
            .min()
    }

    /// An input that names no keys.
    pub fn step(&mut self, now: Now, input: Input<P>) {
        self.handle(now, input);
        self.finish_input(now);
    }

    /// Threads read the clock, then wait for a lock or a disk, and come here. A request that they let run may have been asked after they read
    /// it. So in a lane time never goes back: what an answer proves, it proves as of the latest time that any input came with.
    fn handle(&mut self, now: Now, input: Input<P>) {
        if now.monotonic >= self.time.monotonic || self.time_goes_back {
            self.time = now;
        }
        self.replica.set_taking_back(self.takes_back());
        self.replica.handle_input(self.time, input, &mut self.store);
        self.moved = true;
    }

    /// Whether peers may hold what this replica has lost, and are waited for: for as long as it takes, if its directory was lost or is an old copy.
    fn takes_back(&self) -> bool {
        let is_patient = self.time.monotonic < self.patient_until;
        self.unsettled.0 != 0 && (is_patient || self.has_lost_directory)
    }

    fn run_or_park(&mut self, now: Now, question: Question<P>) {
        if self.unheard.is_some() {
            return self.hold_question(now, question);
        }
        let mut all_resident = true;
        self.replica.protocol().keys(&question.request, &mut |key| {
            all_resident &= self.store.is_resident(key.as_ref()) && !self.cold.blocks(key);
        });
        if all_resident {
            let Question { id, request, since } = question;
            self.handle(now, Input::Request { id, request, since });
            return;
        }
        let mut keys = Vec::new();
        self.replica
            .protocol()
            .keys(&question.request, &mut |key| keys.push(key.clone()));
        self.park(keys, Waiting::Question(question));
    }

    fn fire_or_park(&mut self, now: Now, keys: Vec<Key>, timer: P::Timer) {
        let is_here = |key: &Key| self.store.is_resident(key.as_ref()) && !self.cold.blocks(key);
        match keys.iter().all(is_here) {
            true => self.handle(now, Input::Resident { timer }),
            false => self.park(keys.clone(), Waiting::Timer { keys, timer }),
        }
    }

    /// Keys that could not be read are tried again.
    pub fn retry_unread(&mut self, now: Now) {
        for (keys, timer) in std::mem::take(&mut self.unread) {
            self.fire_or_park(now, keys, timer);
        }
    }

    fn park(&mut self, keys: Vec<Key>, waiting: Waiting<P>) {
        let store = &self.store;
        self.cold
            .park(keys, waiting, |key| store.is_resident(key.as_ref()));
        self.wake_worker();
    }

    /// A message of another replica. It waits, too, if its keys are not in memory.
    pub fn hear(&mut self, now: Now, from: ServerId, message: P::Message) {
        self.hear_or_park(now, from, message);
        self.finish_input(now);
    }

    fn hear_or_park(&mut self, now: Now, from: ServerId, message: P::Message) {
        let (mut all_resident, mut names_keys) = (true, false);
        self.replica.protocol().message_keys(from, &message, &mut |key| {
            names_keys = true;
            all_resident &= self.store.is_resident(key.as_ref()) && !self.cold.blocks(key);
        });
        // Its sender is prepared for a message that is lost.
        if names_keys && (self.repair.is_some() || self.is_outdated()) {
            return;
        }
        if names_keys && self.unheard.is_some() {
            self.hold_message(now, Waiting::Message { from, message });
        } else if all_resident {
            self.handle(now, Input::Message { from, message });
        } else if self.cold.len() < MOST_COLD {
            let mut keys = Vec::new();
            self.replica
                .protocol()
                .message_keys(from, &message, &mut |key| keys.push(key.clone()));
            self.park(keys, Waiting::Message { from, message });
        }
    }

    /// No timestamp beyond this is believed. What this replica's own clock has already shown drags it nowhere, also after its wall clock
    /// was set back.
    pub fn horizon(&self, now: Now) -> Hlc {
        self.env.shared().config.horizon(now).max(self.replica.clock())
    }

    /// Everything that the last input made possible: parked requests, then outputs.
    fn finish_input(&mut self, now: Now) {
        loop {
            if let Some(ready) = self.replica.take_ready() {
                self.run_or_park(
                    now,
                    Question {
                        id: ready.id,
                        request: ready.request,
                        since: Some(ready.since),
                    },
                );
            } else if let Some((keys, timer)) = self.replica.take_wanted() {
                self.fire_or_park(now, keys, timer);
            } else {
                break;
            }
        }
        self.route();
    }

    /// Hands on the outputs that need not wait, in order.
    fn route(&mut self) {
        while let Some(output) = self.replica.poll_output() {
            match output {
                Output::Reply {
                    id,
                    response,
                    mut receipt,
                } => {
                    if self.env.shared().config.planted.receipts_claim_more {
                        receipt.staleness = receipt.staleness.map(|proven| Micros(proven.0 / 2));
                    }
                    self.deliver(id, Outcome::Answered(response, receipt));
                }
                Output::Send { to, message } => self.send(to, message),
                Output::Mark {
                    to,
                    message,
                    promise,
                    number,
                } => self.mark(to, &message, (promise, number)),
            }
        }
    }

    fn mark(&mut self, to: ReplicaSet, message: &P::Message, promise: (Hlc, u64)) {
        // A newer one comes when everything is back.
        if self.takes_back() {
            return;
        }
        let mut body = BytesMut::new();
        message.encode(&mut body);
        let body = body.freeze();
        if self.env.shared().config.planted.marks_overtake {
            for replica in to.iter() {
                let incarnation = self.outgoing.incarnation();
                let mark = MarkFrame {
                    incarnation,
                    after: 0,
                    body: body.clone(),
                };
                self.say(self.me.peer(replica), StreamBody::Mark(mark));
            }
            return;
        }
        self.outgoing.set_mark(to, &body);
        self.wake_links(to);
        if self.promises.len() >= MOST_PROMISES {
            self.promises.pop_back();
        }
        self.promises
            .push_back((self.env.shared().log().written(), promise));
        self.settle_promises();
    }

    /// What is synced no power loss takes any more: the replica may say so in its next mark.
    fn settle_promises(&mut self) {
        let synced = self.env.shared().log().synced();
        let done = self.promises.partition_point(|&(behind, _)| behind <= synced);
        let is_settled = self.unsettled.0 == 0;
        for (_, (promise, number)) in self.promises.drain(..done).filter(|_| is_settled) {
            self.replica.handle_mark_synced(promise, number);
        }
    }

    // ---- effects --------------------------------------------------------------------------------------------

    pub(crate) fn deliver(&mut self, id: RequestId, outcome: Outcome<P::Response>) {
        self.effects.push(Effect::Deliver { id, outcome });
    }

    /// The answer to a request, if it is there. The others are delivered.
    pub(crate) fn take_answer(&mut self, asked: RequestId) -> Option<Outcome<P::Response>> {
        let is_asked = |effect: &Effect<P>| matches!(effect, Effect::Deliver { id, .. } if *id == asked);
        let place = self.effects.iter().rposition(is_asked)?;
        match self.effects.remove(place) {
            Effect::Deliver { outcome, .. } => Some(outcome),
            _ => unreachable!("it was just seen to be an answer"),
        }
    }

    fn send(&mut self, to: ServerId, message: P::Message) {
        self.effects.push(Effect::Send { to, message });
    }

    pub(crate) fn say(&mut self, to: ServerId, body: StreamBody) {
        self.effects.push(Effect::Say { to, body });
    }

    pub(crate) fn wake_links(&mut self, to: ReplicaSet) {
        self.effects.push(Effect::WakeLinks(to));
    }

    pub(crate) fn wake_worker(&mut self) {
        self.effects.push(Effect::WakeWorker);
    }

    fn want_sync(&mut self) {
        self.effects.push(Effect::Sync);
    }

    pub fn live_keys(&self) -> u64 {
        self.store.live_keys()
    }
}

/// Rows that are here may go so far in the streams of these sites.
fn hold<P: Protocol>(
    incoming: &mut BTreeMap<ReplicaId, Incoming<P>>,
    held: impl Iterator<Item = (ReplicaId, StreamPosition)>,
) {
    for (replica, place) in held {
        if let Some(incoming) = incoming.get_mut(&replica) {
            incoming.hold(place);
        }
    }
}

/// The stream entries of a lane's record, numbered.
pub(crate) fn entries_of(record: &Record) -> impl Iterator<Item = Entry> + '_ {
    let streamed = record.writes.iter().filter(|write| !write.to().is_empty());
    streamed
        .zip(record.first_position..)
        .map(|(write, number)| Entry {
            number,
            to: write.to(),
            bytes: write.entry.clone().unwrap_or_default(),
        })
}
