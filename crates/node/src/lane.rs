//! One replica with everything around it: its store, its stream, and those of its peers.
mod arrivals;
mod cold;
mod effects;
mod missing;
mod peer;
mod recovery;
mod repair;
mod unheard;
mod waiting;
pub(crate) use effects::Effect;
pub(crate) use missing::Repair;
pub(crate) use waiting::Question;

use crate::{
    durability::Durability,
    entry::Written,
    environment::Environment,
    incoming::{CopyIn, CopyState, Errand, Incoming, RowsOut},
    record::{CheckpointMeta, Record, WriteRecord},
};
use bytes::{Bytes, BytesMut};
use cold::Cold;
use missing::Unheard;
use prost::Message;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use turnbuckle_core::{
    Batch, Hlc, Input, Key, Micros, Now, Outcome, Output, Protocol, Recovered, Replica, RequestId, ServerId,
    SiteId, SiteSet, Versions, Wire, Write,
};
use turnbuckle_log::Position;
use turnbuckle_replication::{
    Entry, MarkFrame, Outgoing, ReceivedRecord, StreamBody, StreamPosition, cut_to_frames,
};
use turnbuckle_store::{Chunk, Store};
use waiting::Waiting;

/// How much memory is taken at a time for encoded versions.
const ARENA_BYTES: usize = 64 << 10;

/// How many promises may wait for a sync; beyond that the newest replaces the one before.
const MOST_PROMISES: usize = 64;

/// Once so many inputs wait for keys from disk, messages that would wait, too, are lost: their senders are prepared for that and ask again, and
/// a disk that is slower than they ask would never be done.
const MOST_COLD: usize = 1024;

/// For so few deletes that were forgotten no table is merged anew.
const FEW_FORGOTTEN: u64 = 1_000;

/// A table whose merge gave no disk back is merged again after at most this number of checkpoints.
const LONGEST_RECLAIM_WAIT: u32 = 64;

/// How much of a large record's memory is kept for the next one.
const KEPT_BYTES: usize = 1 << 20;

/// A lane. Everything here happens under its lock, in the order in which the lock was taken; what it emits is handed on
/// under the lock too.
pub(crate) struct Lane<P: Protocol> {
    pub me: ServerId,
    pub env: Environment,
    /// What is to be done, in order.
    pub effects: Vec<Effect<P>>,
    pub replica: Replica<P>,
    pub store: Store<P::Meta>,
    pub outgoing: Outgoing,
    pub incoming: BTreeMap<SiteId, Incoming<P>>,
    pub cold: Cold<Waiting<P>>,
    /// What peers are sent row by row: a copy, or what they lost, or one after the other.
    pub rows_out: BTreeMap<SiteId, VecDeque<RowsOut<P::Meta>>>,
    /// Peers that wait for rows until a checkpoint has been made.
    pub rows_wanted: BTreeMap<SiteId, Vec<Errand>>,
    /// Everything this replica stamped in its earlier lives up to here is in the last checkpoint. The log behind it may hold more, but
    /// with gaps: what peers give back comes in no order, and a crash may end that in the middle.
    recovered: Hlc,
    /// Peers that may hold something this replica stamped later in an earlier life, and lost. Until all of them have said
    /// where they are, and given back what they had, it promises nothing: what comes back has an old stamp. Nothing that no power
    /// loss could have taken is among that, so it does not wait for ever for a site that is away.
    unsettled: SiteSet,
    patient_until: Micros,
    /// Every peer has given back what it held of this lane when its directory was empty: that is in the log or the last checkpoint.
    given_back: bool,
    /// A peer has spoken of an earlier life, of which nothing is on this disk.
    had_earlier_life: bool,
    /// A peer has shown that the directory was lost, or is an old copy: stamps may have been given of which nobody here knows. It promises nothing until
    /// all have given back.
    has_lost_directory: bool,
    /// Sites that have not said in this life where they are.
    unheard_of: SiteSet,
    /// From then on others are given rows although some site was not heard.
    gives_from: Micros,
    /// What requests wait for after a start.
    unheard: Option<Unheard<P>>,
    /// The latest time that any input has come with.
    time: Now,
    /// A planted bug: inputs may come with an earlier time than those before.
    time_goes_back: bool,
    /// A planted bug has lost its entry.
    has_dropped: bool,
    /// Peers that have given everything back, in the open batch.
    taken: Vec<SiteId>,
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
    pub(crate) named: BTreeMap<String, Bytes>,
    /// A peer whose timestamps are too far ahead.
    pub held_peers: BTreeMap<SiteId, Hlc>,
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
    received: Vec<(SiteId, StreamPosition)>,
    /// Peers that have given everything back with it.
    taken: Vec<SiteId>,
}

impl<P: Protocol> Lane<P> {
    /// A lane over its store, as the last checkpoint left it.
    pub fn open(
        env: Environment,
        me: ServerId,
        store: Store<P::Meta>,
        meta: &CheckpointMeta,
        repair: Option<Repair>,
        protocol: &P::Config,
        seed: u64,
    ) -> Lane<P> {
        let others: Vec<SiteId> = env.topology().sites().filter(|&site| site != me.site).collect();
        let mut outgoing = Outgoing::new(env.shared().config.stream, others.iter().copied());
        outgoing.restore(
            meta.next_position,
            meta.incarnations.iter().map(|&record| record.into()).collect(),
        );
        outgoing.restore_index(meta.index());
        let received: BTreeMap<_, _> = meta.received.iter().map(|record| record.parts()).collect();
        let mut incoming: BTreeMap<_, _> = others
            .into_iter()
            .map(|site| {
                (
                    site,
                    Incoming::new(
                        received.get(&site).copied().unwrap_or_default(),
                        env.shared().pending(),
                    ),
                )
            })
            .collect();
        hold(&mut incoming, meta.held.iter().map(|record| record.parts()));
        let (bound, mut recovered) = (Hlc(meta.bound), meta.recovered());
        let own = recovered.cut.iter().find(|(site, _)| *site == me.site);
        let own = own.map_or(Hlc::ZERO, |&(_, until)| until);
        if repair.as_ref().is_some_and(|repair| repair.is_blank) {
            recovered.cut.clear();
            recovered.lacks_rows = true;
        }
        Lane {
            me,
            effects: Vec::new(),
            replica: Replica::open(protocol, me, env.topology().clone(), bound, &recovered, seed),
            store,
            outgoing,
            incoming,
            cold: Cold::new(),
            rows_out: BTreeMap::new(),
            rows_wanted: BTreeMap::new(),
            recovered: own,
            unsettled: SiteSet::default(),
            patient_until: Micros(0),
            given_back: meta.given_back,
            had_earlier_life: false,
            has_lost_directory: false,
            unheard_of: SiteSet::default(),
            gives_from: Micros(0),
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
            named: recovered.named,
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
        self.settle(now);
    }

    /// An input that names no keys.
    pub fn step(&mut self, now: Now, input: Input<P>) {
        self.handle(now, input);
        self.settle(now);
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
        P::keys(&question.request, &mut |key| {
            all_resident &= self.store.is_resident(key.as_ref()) && !self.cold.blocks(key);
        });
        if all_resident {
            let Question { id, request, since } = question;
            self.handle(now, Input::Request { id, request, since });
            return;
        }
        let mut keys = Vec::new();
        P::keys(&question.request, &mut |key| keys.push(key.clone()));
        self.park(keys, Waiting::Question(question));
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
        self.settle(now);
    }

    fn hear_or_park(&mut self, now: Now, from: ServerId, message: P::Message) {
        let (mut all_resident, mut names_keys) = (true, false);
        P::message_keys(&message, &mut |key| {
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
            P::message_keys(&message, &mut |key| keys.push(key.clone()));
            self.park(keys, Waiting::Message { from, message });
        }
    }

    /// No timestamp beyond this is believed. What this replica's own clock has already shown drags it nowhere, also after its wall clock
    /// was set back.
    pub fn horizon(&self, now: Now) -> Hlc {
        self.env.shared().config.horizon(now).max(self.replica.clock())
    }

    /// Everything that the last input made possible: parked requests, then outputs.
    fn settle(&mut self, now: Now) {
        while let Some(ready) = self.replica.take_ready() {
            self.run_or_park(
                now,
                Question {
                    id: ready.id,
                    request: ready.request,
                    since: Some(ready.since),
                },
            );
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

    fn mark(&mut self, to: SiteSet, message: &P::Message, promise: (Hlc, u64)) {
        // A newer one comes when everything is back.
        if self.takes_back() {
            return;
        }
        let mut body = BytesMut::new();
        message.encode(&mut body);
        let body = body.freeze();
        if self.env.shared().config.planted.marks_overtake {
            for site in to.iter() {
                let incarnation = self.outgoing.incarnation();
                let mark = MarkFrame {
                    incarnation,
                    after: 0,
                    body: body.clone(),
                };
                self.say(self.env.topology().peer_at(self.me, site), StreamBody::Mark(mark));
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

    pub(crate) fn wake_links(&mut self, to: SiteSet) {
        self.effects.push(Effect::WakeLinks(to));
    }

    pub(crate) fn wake_worker(&mut self) {
        self.effects.push(Effect::WakeWorker);
    }

    fn want_sync(&mut self) {
        self.effects.push(Effect::Sync);
    }

    // ---- the barrier ----------------------------------------------------------------------------------------

    /// Appends what is staged to the log, as one record.
    pub fn append(&mut self) {
        let batch = self.replica.take_batch();
        let received = self.take_received();
        let taken = std::mem::take(&mut self.taken);
        if batch.is_none() && received.is_empty() && taken.is_empty() {
            return;
        }
        let from = self.env.shared().log().end();
        let (record, entries, bound) =
            self.record(batch.as_ref().map_or(&[], |batch| &batch.writes), &received);
        self.encoded.clear();
        record.encode(&mut self.encoded).expect("a Vec grows");
        let end = self.env.shared().log().append(&[&self.encoded]);
        self.encoded.shrink_to(KEPT_BYTES);
        if let Some(first) = entries.first() {
            self.outgoing.note_position(first.number, from);
        }
        let must_sync = batch.as_ref().is_some_and(|batch| batch.must_sync);
        // What was given back is not to be lost once more: the peer forgets that it was ahead.
        let sync = must_sync || !taken.is_empty() || matches!(self.env.durability(), Durability::Fsync);
        if let Some(bound) = bound {
            self.bound = bound;
            self.bounds.push_back((end, bound));
        }
        let number = batch.as_ref().map(|batch| batch.number);
        self.logged.push_back(Logged {
            number,
            end,
            sync,
            entries,
            received,
            taken,
        });
        if let Some(Batch { writes, .. }) = batch {
            self.replica.recycle(writes);
        }
        if self.env.shared().config.planted.answers_early
            && let Some(number) = number
        {
            self.replica.handle_durable(number);
            self.route();
        }
    }

    fn take_received(&mut self) -> Vec<(SiteId, StreamPosition)> {
        let moved = self
            .incoming
            .iter_mut()
            .filter(|(_, incoming)| incoming.logged != incoming.received);
        moved
            .map(|(&site, incoming)| {
                incoming.logged = incoming.received;
                (site, incoming.received)
            })
            .collect()
    }

    fn record(
        &mut self,
        writes: &[Write<P::Meta>],
        received: &[(SiteId, StreamPosition)],
    ) -> (Record, Vec<Entry>, Option<Hlc>) {
        let mut record = Record::new(self.env.tag(), self.me);
        record.first_position = self.outgoing.next();
        record.incarnation = self.outgoing.incarnation();
        record.received = received
            .iter()
            .map(|&(site, position)| ReceivedRecord::new(site, position))
            .collect();
        record.writes.reserve(writes.len());
        let (mut entries, mut bound) = (Vec::new(), None);
        for write in writes {
            let mut encoded = Written::default();
            let written = WriteRecord::new(write, &mut self.arena, &mut encoded);
            // Not those of a full copy.
            if matches!(write, Write::Put { version, .. } if version.id.site == self.me.site) {
                self.written.add(encoded);
            }
            match write {
                Write::Put { to, .. } if to.0 != 0 => {
                    let bytes = written.entry.clone().expect("a put has an entry");
                    entries.push(Entry {
                        number: self.outgoing.assign(),
                        to: *to,
                        bytes,
                    });
                }
                Write::Named { name, bytes } => drop(self.named.insert((*name).to_string(), bytes.clone())),
                Write::Bound(higher) => bound = Some(*higher),
                Write::Put { .. } | Write::Drop { .. } => {}
            }
            record.writes.push(written);
        }
        (record, entries, bound)
    }

    /// The log has everything up to `written` and on disk up to `synced`: what was held behind it goes out. Returns whether more waits.
    pub fn release(&mut self, now: Now, written: Position, synced: Position) -> bool {
        while self.bounds.front().is_some_and(|&(end, _)| end <= synced) {
            let (_, bound) = self.bounds.pop_front().expect("just seen");
            self.replica.handle_bound_synced(bound);
        }
        let mut acks: BTreeMap<SiteId, StreamPosition> = BTreeMap::new();
        while self
            .logged
            .front()
            .is_some_and(|batch| batch.end <= if batch.sync { synced } else { written })
        {
            let batch = self.logged.pop_front().expect("just seen");
            if let Some(number) = batch.number {
                self.replica.handle_durable(number);
            }
            let mut entries = batch.entries;
            if self.env.shared().config.planted.outputs_swapped {
                std::mem::swap(&mut entries, &mut self.swapped);
                self.route();
            }
            if !entries.is_empty() && self.outgoing.make_ready(now.monotonic, entries) {
                self.wake_links(self.env.topology().all_sites());
            }
            acks.extend(batch.received);
            for site in batch.taken {
                self.taken_back(site);
            }
        }
        for (site, position) in acks {
            self.say(
                self.env.topology().peer_at(self.me, site),
                StreamBody::Ack(position.into()),
            );
        }
        self.settle_promises();
        self.settle(now);
        // Only now that it is written: a sync that was asked for earlier might have been over before.
        if self.waits_for_sync() {
            self.want_sync();
        }
        !self.logged.is_empty() || !self.bounds.is_empty() || !self.promises.is_empty()
    }

    /// Whether something is held until the log has been synced, and no interval brings that about.
    fn waits_for_sync(&self) -> bool {
        let promises = !self.promises.is_empty() && self.env.durability() == Durability::None;
        promises || !self.bounds.is_empty() || self.logged.front().is_some_and(|batch| batch.sync)
    }

    /// Whether anything was done since the last call that may have staged something.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// What waits of a peer that was too far ahead, or for a key that could not be read, gets another chance.
    pub fn retry_pending(&mut self, now: Now) {
        let waiting = self
            .incoming
            .iter()
            .filter(|(_, incoming)| incoming.pending.front().is_some());
        for site in waiting.map(|(&site, _)| site).collect::<Vec<_>>() {
            self.drain(now, site);
        }
        self.ask_for_copy();
    }

    /// Whether something is appended and not yet durable.
    pub fn is_waiting(&self) -> bool {
        !self.logged.is_empty()
    }

    // ---- checkpoints ----------------------------------------------------------------------------------------

    /// What this replica covers: the protocol's cut, but of what it stamped itself no more than it knows to have.
    pub fn cut(&self) -> Vec<(SiteId, Hlc)> {
        let mut cut = self.replica.protocol().cut();
        if self.is_blank() {
            return Lane::<P>::blank_cut(cut);
        }
        if self.unsettled.0 != 0 {
            for (_, until) in cut.iter_mut().filter(|(site, _)| *site == self.me.site) {
                *until = self.recovered.min(*until);
            }
        }
        cut
    }

    /// Deletes up to here are forgotten: see [`Protocol::settled`], but never what may come back in no order.
    pub fn settled(&self) -> Hlc {
        let settled = self.replica.protocol().settled();
        match self.unsettled.0 {
            0 => settled,
            _ => settled.min(self.recovered),
        }
    }

    /// Whether deletes may have been forgotten here, in this life or an earlier one. After a start a protocol may not know yet what is settled.
    pub fn has_forgotten(&self) -> bool {
        let protocol = self.replica.protocol();
        protocol
            .settled()
            .max(protocol.forgotten().until.unwrap_or_default())
            > Hlc::ZERO
    }

    /// Whether a checkpoint would bring deletes nearer to being forgotten. The first one writes them down, and the next one forgets them. In
    /// between, what is settled has to pass them; while a site is away it does not, and a checkpoint would be of no use.
    pub fn can_forget(&self) -> bool {
        self.store.deleted_keys() > 0 && self.settled() > self.forgets_behind
    }

    /// Whether more was forgotten than there is left: the table is merged anew then, which takes about as long as that forgetting did.
    pub fn is_reclaim_due(&mut self) -> bool {
        let is_due = self.forgotten > self.store.live_keys().max(FEW_FORGOTTEN);
        let is_now = is_due && self.reclaim_after == 0;
        self.reclaim_after -= u32::from(is_due && !is_now);
        is_now
    }

    /// It was merged anew. If that gave nothing back yet, it is tried again, after twice as many checkpoints each time.
    pub fn reclaimed(&mut self, has_given: bool) {
        self.reclaim_wait = match has_given {
            true => 0,
            false => (2 * self.reclaim_wait).clamp(1, LONGEST_RECLAIM_WAIT),
        };
        self.reclaim_after = self.reclaim_wait;
        if has_given {
            self.forgotten = 0;
        }
    }

    /// What is kept of it beside its versions, as of now.
    pub fn beside(&self, cut: Vec<(SiteId, Hlc)>) -> Recovered {
        let named = self.named.clone();
        Recovered {
            cut,
            named,
            lacks_rows: self.is_blank(),
        }
    }

    /// The next rows of the checkpoint under way. Versions that nobody will ask for any more are dropped on the way.
    pub fn next_chunk(&mut self, most_keys: usize) -> Option<Chunk<P::Meta>> {
        let Lane { store, replica, .. } = self;
        store.next_chunk(most_keys, |version| replica.covered(version))
    }

    /// The store holds what `cut` covers, whatever the streams bring.
    pub fn cover(&mut self, cut: &[(SiteId, Hlc)]) {
        for (site, until) in cut {
            if let Some(incoming) = self.incoming.get_mut(site) {
                incoming.covered = incoming.covered.max(*until);
            }
        }
    }

    /// A peer may send its stream from an earlier place, when it has taken back what it had lost. What was here stays as it is: a delete of it may be
    /// forgotten. The cut does not have all of that after a restart, and what every site shows was here, too.
    pub fn cover_what_was_here(&mut self) {
        if self.is_blank() {
            return;
        }
        let (mut cut, settled) = (self.cut(), self.settled());
        for (_, until) in &mut cut {
            *until = settled.max(*until);
        }
        self.cover(&cut);
    }

    /// A full copy that has arrived whole, and whose.
    pub fn whole_copy(&self) -> Option<(SiteId, CopyIn<P::Meta>)> {
        let mut copies = self
            .incoming
            .iter()
            .filter_map(|(&site, incoming)| Some((site, incoming.copy.as_ref()?)));
        let (site, copy) = copies.find(|(_, copy)| copy.state >= CopyState::Whole)?;
        Some((site, copy.clone()))
    }

    /// How far a full copy is.
    pub fn set_copy_state(&mut self, site: SiteId, state: CopyState) {
        let incoming = self.incoming.get_mut(&site);
        if let Some(copy) = incoming.and_then(|incoming| incoming.copy.as_mut()) {
            copy.state = state;
        }
    }

    /// Up to where the entries of a site wait: a full copy that covers them is being put in place.
    pub fn covered_by_placing(&self, site: SiteId) -> Hlc {
        let copies = self
            .incoming
            .values()
            .filter_map(|incoming| incoming.copy.as_ref());
        let mut placing = copies.filter(|copy| copy.state == CopyState::Placing);
        let cut = placing.next().map_or(&[][..], |copy| &copy.copied.cut);
        cut.iter()
            .find(|(origin, _)| *origin == site)
            .map_or(Hlc::ZERO, |&(_, until)| until)
    }

    /// The rows of a full copy are about to come in, and may never come in whole. That some may be here, of its source and of others, is written
    /// down in front of them.
    pub fn hold_copied(&mut self, from: SiteId, copy: &CopyIn<P::Meta>) {
        let of_others = || copy.held.iter().map(|(&site, &place)| (site, place));
        let held = || of_others().chain([(from, copy.resume)]);
        hold(&mut self.incoming, held());
        let mut record = Record::new(self.env.tag(), self.me);
        record.held = held()
            .map(|(site, place)| ReceivedRecord::new(site, place))
            .collect();
        self.env.shared().log().append(&[&record.encode_to_vec()]);
        self.moved = true;
    }

    /// A full copy is in place, and nothing of it is staged any more: the stream goes on behind `resume`, and its source is told.
    pub fn copied(&mut self, site: SiteId, copy: &CopyIn<P::Meta>) {
        let Some(incoming) = self.incoming.get_mut(&site) else {
            return;
        };
        incoming.received = copy.resume;
        incoming.copy = None;
        self.moved = true;
        self.repair_with(site, copy);
        if self.env.is_up(self.env.topology().peer_at(self.me, site)) {
            self.resume(site);
        }
        self.resume_declined();
        self.ask_for_copy();
    }

    /// No copy is under way any more. Whose copy came at the wrong time is told again where its stream goes on.
    pub fn resume_declined(&mut self) {
        let declined = self.incoming.iter().filter(|(_, incoming)| incoming.declined);
        for site in declined.map(|(&site, _)| site).collect::<Vec<_>>() {
            self.resume(site);
        }
    }

    /// What a checkpoint taken now says about everything that is not a version.
    pub fn meta(&self, log_position: Position) -> CheckpointMeta {
        let mut meta = CheckpointMeta {
            log_position: log_position.0,
            next_position: self.outgoing.next(),
            incarnations: self
                .outgoing
                .incarnations()
                .iter()
                .map(|&life| life.into())
                .collect(),
            received: self
                .incoming
                .iter()
                .map(|(&site, incoming)| ReceivedRecord::new(site, incoming.logged))
                .collect(),
            bound: self.bound.0,
            cut: cut_to_frames(&self.cut()),
            ..CheckpointMeta::default()
        };
        meta.repair = self.repair.as_ref().map(Repair::record);
        meta.given_back = self.given_back;
        let held = self.incoming.iter();
        meta.held = held
            .map(|(&site, incoming)| ReceivedRecord::new(site, incoming.held()))
            .collect();
        meta.set_named(&self.named);
        (meta.index_numbers, meta.index_positions) = self.outgoing.index().map(|(n, at)| (n, at.0)).unzip();
        meta
    }

    /// A peer needs rows, and for them a checkpoint that begins after now.
    pub fn want_rows(&mut self, site: SiteId, errand: Errand) {
        let wanted = self.rows_wanted.entry(site).or_default();
        wanted.retain(|other| {
            std::mem::discriminant(&other.purpose) != std::mem::discriminant(&errand.purpose)
        });
        wanted.push(Errand {
            in_checkpoint: false,
            ..errand
        });
        self.wake_worker();
    }

    /// Whether peers wait for rows and no checkpoint has begun since they asked, or the lane has none of its own yet.
    pub fn wants_row_checkpoint(&self) -> bool {
        let waits = |site: &SiteId, errand: &Errand| !errand.in_checkpoint && self.is_due(*site, errand);
        let mut wanted = self.rows_wanted.iter();
        self.is_new || wanted.any(|(site, errands)| errands.iter().any(|errand| waits(site, errand)))
    }

    /// Whether a checkpoint may begin for a peer. A replica that lacks rows itself waits for nothing of a peer that lacks rows, too. To another one it gives
    /// back what that has lost, or sends a copy where its log does not reach back, only if nobody else can send a copy first: the peer sends its
    /// copy afterwards, and each would wait for the other.
    fn is_due(&self, site: SiteId, errand: &Errand) -> bool {
        let logged = self.incoming.get(&site).map(|incoming| incoming.logged);
        let has_all = match (&self.repair, errand.behind) {
            (None, behind) => logged.unwrap_or_default() >= behind.unwrap_or_default(),
            (Some(repair), None) => self.is_first_to_be_served(repair, site, errand.has),
            (Some(_), Some(_)) => true,
        };
        self.may_give() && has_all
    }

    /// Every peer whose copy is needed waits for rows of this lane itself, and none of them has taken in more of it than this one. The one that has most goes
    /// first: its copy may bring what the next one lacks.
    fn is_first_to_be_served(&self, repair: &Repair, site: SiteId, has: u64) -> bool {
        let is_behind = |other: SiteId| {
            let waits = self.rows_wanted.get(&other);
            let is_less = |errand: &Errand| (errand.has, Reverse(other)) < (has, Reverse(site));
            waits.is_some_and(|errands| !errands.is_empty() && errands.iter().all(is_less))
        };
        repair.open().filter(|&other| other != site).all(is_behind)
    }

    /// A checkpoint begins: it will have what peers have asked for so far.
    pub fn begin_row_checkpoint(&mut self) {
        self.is_new = false;
        self.forgets_behind = self.replica.clock();
        let mut wanted = self.rows_wanted.clone();
        for (&site, errands) in &mut wanted {
            for errand in errands {
                errand.in_checkpoint |= self.is_due(site, errand);
            }
        }
        self.rows_wanted = wanted;
    }

    /// The checkpoint is over: what peers asked for before it began. Those whose link has broken meanwhile ask again.
    pub fn take_errands(&mut self) -> Vec<(SiteId, Errand)> {
        let takes_all = self.env.shared().config.planted.rows_of_begun_checkpoint;
        let mut taken = Vec::new();
        for (&site, errands) in &mut self.rows_wanted {
            let done = errands.extract_if(.., |errand| takes_all || errand.in_checkpoint);
            taken.extend(done.map(|errand| (site, errand)));
        }
        taken
    }

    pub fn live_keys(&self) -> u64 {
        self.store.live_keys()
    }
}

/// Rows that are here may go so far in the streams of these sites.
fn hold<P: Protocol>(
    incoming: &mut BTreeMap<SiteId, Incoming<P>>,
    held: impl Iterator<Item = (SiteId, StreamPosition)>,
) {
    for (site, place) in held {
        if let Some(incoming) = incoming.get_mut(&site) {
            incoming.hold(place);
        }
    }
}

/// The stream entries of a lane's record, numbered.
pub(crate) fn entries_of(record: &Record) -> impl Iterator<Item = Entry> + '_ {
    let streamed = record.writes.iter().filter(|write| write.to != 0);
    streamed
        .zip(record.first_position..)
        .map(|(write, number)| Entry {
            number,
            to: SiteSet(write.to),
            bytes: write.entry.clone().unwrap_or_default(),
        })
}
