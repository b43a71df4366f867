//! A client: what it has seen of each partition, and whom it asks.
//!
//! A write goes to the leader, as far as the gateway knows it. A read goes there if it must be linearizable, and to the nearest replica else. A replica that does not lead, or is behind, says who
//! leads; all sessions of the gateway learn that.
//!
//! **Replicas that are behind.** The answer to a write names the replicas that hold its entry (the paper's figure 1). A replica that was behind what a read needed is not asked for anything newer, until an answer
//! names it, or for a tenth of a second: the leader is asked at once. The paper's session asks no replica of which it does not know that it holds what is needed. Here the nearest is asked first, although nothing is known of it:
//! entries are on their way to it at the same time as the leader's answer is, and it waits for them for a short time ([`DacianConfig::redirect`]).
//!
//! What all sessions over a group do if a replica does not answer, or does not lead, is in [`turnbuckle_raft::asking`].
use crate::config::DacianConfig;
use crate::replica::Dacian;
use crate::request::{Outcome, Request, Response, Work};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use turnbuckle_core::{
    Answer, BadFrame, BadToken, ConsensusProof, Failure, Hlc, Key, Level, Levels, Micros, Operation,
    PlainRequest, Proof, Receipt, ReplicaId, ServerId, Session, SessionContext, SessionId, SiteId, Step,
    Topology,
};
use turnbuckle_raft::asking::{self, Operations, Part, Timer, Wants};

const READS: &[Level] = &[
    Level::Linearizable,
    Level::PartitionSequential,
    Level::Bounded(Micros(0)),
    Level::PerKeyCausal,
    Level::ReadYourWrites,
    Level::MonotonicReads,
    Level::Eventual,
];

/// The keys of which a session remembers what it has read and written. Of further ones it remembers more than it must: everything that it has seen of their partitions.
const KEYS: usize = 1_000;

/// What all sessions of a gateway know together.
#[derive(Debug, Default)]
pub struct Shared {
    partitions: BTreeMap<u16, Known>,
}

/// What is known of a partition.
#[derive(Debug, Clone, Default)]
struct Known {
    group: asking::Known,
    /// The replicas that were behind what a read needed, until it is known that they have it.
    behind: BTreeMap<ReplicaId, Behind>,
}

/// A replica that was behind.
#[derive(Debug, Clone, Copy)]
struct Behind {
    /// How far it was.
    index: u64,
    /// When it said so.
    at: Micros,
}

impl Known {
    /// A replica has everything up to this index.
    fn note_held(&mut self, replica: ReplicaId, index: u64) {
        if self
            .behind
            .get(&replica)
            .is_some_and(|behind| behind.index < index)
        {
            self.behind.remove(&replica);
        }
    }

    /// Whether to ask a replica for something that needs this index would be in vain, as far as is known: it was behind that, and may still be.
    fn is_behind(&self, replica: ReplicaId, need: u64, now: Micros) -> bool {
        let behind = self.behind.get(&replica);
        behind.is_some_and(|behind| behind.index < need && now < behind.at + ASK_BEHIND_EVERY)
    }
}

/// A client of a consensus keyspace.
pub struct DacianSession {
    topology: Topology,
    /// The operations under way.
    open: Operations<Work>,
    seen: Seen,
}

/// What a session has seen, as indexes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Seen {
    /// The newest time that an answer has shown: see [`Request::above`] and [`Response::time`].
    time: Hlc,
    /// Of all keys of each partition.
    partitions: BTreeMap<u16, Indexes>,
    /// Of each key.
    keys: BTreeMap<Key, Indexes>,
    /// Of the keys that are not in `keys`, of each partition. It may be more than that of each of them.
    others: BTreeMap<u16, Indexes>,
}

/// The last index that was read, and the last one that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Indexes {
    read: u64,
    written: u64,
}

impl Indexes {
    fn both(self) -> u64 {
        self.read.max(self.written)
    }

    fn raise(&mut self, other: Indexes) {
        self.read = self.read.max(other.read);
        self.written = self.written.max(other.written);
    }
}

/// A replica that was behind is asked again after this time.
const ASK_BEHIND_EVERY: Micros = Micros::from_millis(100);

/// How long a session waits before it asks again, while there is no leader.
const PAUSE: Micros = Micros::from_millis(50);

impl Seen {
    fn need(&self, level: Level, partition: u16, key: &Key) -> u64 {
        let of_partition =
            |known: &BTreeMap<u16, Indexes>| known.get(&partition).copied().unwrap_or_default();
        let of_key = || {
            let known = self.keys.get(key).copied();
            known.unwrap_or_else(|| of_partition(&self.others))
        };
        match level {
            Level::PartitionSequential => of_partition(&self.partitions).both(),
            Level::PerKeyCausal => of_key().both(),
            Level::MonotonicReads => of_key().read,
            Level::ReadYourWrites => of_key().written,
            _ => 0,
        }
    }

    /// An operation on a key was carried out at an index.
    fn note(&mut self, partition: u16, key: &Key, index: u64, is_write: bool) {
        let seen = match is_write {
            true => Indexes {
                read: 0,
                written: index,
            },
            false => Indexes {
                read: index,
                written: 0,
            },
        };
        self.partitions.entry(partition).or_default().raise(seen);
        let others = self.others.get(&partition).copied().unwrap_or_default();
        self.keys.entry(key.clone()).or_insert(others).raise(seen);
    }

    /// A write or a transaction has its place at an index. It may have written nothing.
    fn note_write(&mut self, partition: u16, work: &Work, index: u64, is_carried_out: bool) {
        match work {
            Work::One(PlainRequest::Put(key, value, _, options)) => {
                if is_carried_out {
                    self.note(partition, key, index, true);
                }
                // The answer says something of what was there before: the session has read the key. That of a plain put does not.
                if value.is_none() || options.is_some() {
                    self.note(partition, key, index, false);
                }
            }
            Work::One(_) => {}
            Work::Many(transaction) => {
                for key in transaction.keys() {
                    self.note(partition, key, index, false);
                }
                let steps = transaction.steps.iter().filter(|_| is_carried_out);
                for step in steps.filter(|step| matches!(step, Step::Put(..))) {
                    self.note(partition, step.key(), index, true);
                }
            }
        }
    }

    /// Forgets keys, and remembers more than it must of their partitions.
    fn shrink(&mut self, topology: &Topology) {
        while self.keys.len() > KEYS {
            let Some((key, seen)) = self.keys.pop_first() else {
                return;
            };
            let partition = topology.partition_of_slot(key.slot());
            self.others.entry(partition).or_default().raise(seen);
        }
    }

    fn put(&self, out: &mut BytesMut) {
        out.put_u64(self.time.0);
        out.put_u16(self.partitions.len() as u16);
        for (&partition, seen) in &self.partitions {
            out.put_u16(partition);
            out.put_u64(seen.read);
            out.put_u64(seen.written);
        }
    }

    /// The time, and the indexes of all keys of each partition.
    fn take(mut from: Bytes) -> Result<(Hlc, BTreeMap<u16, Indexes>), BadFrame> {
        let bad = |found: &str| BadFrame::new("what a session of a consensus keyspace has seen", found);
        let mut partitions = BTreeMap::new();
        let time = Hlc(from.try_get_u64().map_err(|_| bad("a part of it"))?);
        if time > Hlc::LATEST {
            return Err(bad("a time that no clock has"));
        }
        for _ in 0..from.try_get_u16().map_err(|_| bad("a part of it"))? {
            let partition = from.try_get_u16().map_err(|_| bad("a part of it"))?;
            let mut index = || match from.try_get_u64() {
                Err(_) => Err(bad("a part of it")),
                Ok(index) if index > u64::MAX / 2 => Err(bad("an index that no log has")),
                Ok(index) => Ok(index),
            };
            let (read, written) = (index()?, index()?);
            partitions.insert(partition, Indexes { read, written });
        }
        match from.is_empty() {
            true => Ok((time, partitions)),
            false => Err(bad("more")),
        }
    }
}

impl DacianSession {
    /// Asks for a part of an operation.
    fn ask(&mut self, cx: &mut SessionContext<'_, Self>, tag: u64, number: u32) {
        let Some((by, level, part)) = self.open.part(tag, number) else {
            return;
        };
        if part.is_answered {
            return;
        }
        let partition = self.topology.partition_of_slot(part.key.slot());
        let known = cx.shared.partitions.entry(partition).or_default();
        let nearest = asking::nearest(cx.reach, partition);
        let need = match &part.write {
            None => self.seen.need(level, partition, &part.key),
            Some(_) => 0,
        };
        let wants_leader = part.write.is_some()
            || level == Level::Linearizable
            || part.is_redirected
            || known.is_behind(nearest.replica(), need, cx.now.monotonic);
        let replicas = self.topology.replicas_of(partition);
        let server = part.choose(cx.now.monotonic, &known.group, nearest, wants_leader, replicas);
        let (work, index) = match &part.write {
            None => (Work::One(PlainRequest::Get(part.key.clone(), level)), need),
            Some(work) => (work.clone(), part.since_index),
        };
        let request = Request {
            work,
            by,
            index,
            above: if level == Level::Eventual {
                Hlc::ZERO
            } else {
                self.seen.time
            },
            is_repeated: part.is_doubtful,
            patience_ends: None,
            confirmed: None,
        };
        cx.ask(tag, number, server, request);
        cx.set_timer(Timer::AskAnother(tag, number), self.open.election);
    }

    /// A replica has carried a part out, or refused it.
    fn on_answer(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        number: u32,
        answer: Answer,
        receipt: Box<Receipt>,
        index: u64,
    ) {
        if let Answer::Failed(failure) = answer {
            return self.open.fail(cx, tag, number, failure);
        }
        let Some((_, _, part)) = self.open.part(tag, number) else {
            return;
        };
        let partition = self.topology.partition_of_slot(part.key.slot());
        match (answer, &part.write) {
            (Answer::Value(value), None) => {
                self.seen.note(partition, &part.key, index, false);
                self.open.read(cx, tag, number, value, receipt);
                self.seen.shrink(&self.topology);
            }
            (answer, Some(work)) if fits(work, &answer) => {
                let is_carried_out = !matches!(
                    answer,
                    Answer::Unmet(_) | Answer::NotComputed(_) | Answer::Transacted(None)
                );
                self.seen.note_write(partition, work, index, is_carried_out);
                self.seen.shrink(&self.topology);
                self.open.remove(tag);
                cx.answer(tag, answer, Some(receipt));
            }
            _ => {
                let why = "the replica gives an answer to another question".to_string();
                self.open.ask_again(cx, tag, number, why, false);
            }
        }
    }
}

/// Whether a write or a transaction can have this answer.
fn fits(work: &Work, answer: &Answer) -> bool {
    match (work, answer) {
        (Work::Many(_), Answer::Transacted(None)) => true,
        (Work::Many(transaction), Answer::Transacted(Some(steps))) => steps.len() == transaction.steps.len(),
        (Work::One(_), answer) => matches!(
            answer,
            Answer::Written { .. }
                | Answer::Replaced(_)
                | Answer::Unmet(_)
                | Answer::Computed(_)
                | Answer::NotComputed(_)
        ),
        _ => false,
    }
}

fn redirected(proof: Proof, redirects: u32) -> Proof {
    match proof {
        Proof::Consensus(proof) => Proof::Consensus(ConsensusProof { redirects, ..proof }),
        proof => proof,
    }
}

impl Session for DacianSession {
    type Protocol = Dacian;
    type Shared = Shared;
    type Timer = Timer;

    const LEVELS: Levels = Levels {
        reads: READS,
        writes: &[Level::Linearizable],
    };
    /// The writes of a session are seen in their order, also those to different partitions, and a write that is asked for again does not come behind a later one.
    const OVERLAPS: bool = false;

    fn open(config: &DacianConfig, _: SiteId, topology: Topology, id: SessionId) -> DacianSession {
        DacianSession {
            topology,
            open: Operations::new(id, config.timing, config.patience, PAUSE),
            seen: Seen::default(),
        }
    }

    fn resume(&mut self, state: Bytes) -> Result<(), BadToken> {
        let (time, partitions) = Seen::take(state)?;
        self.seen.time = self.seen.time.max(time);
        for (partition, seen) in partitions {
            self.seen.partitions.entry(partition).or_default().raise(seen);
            // It is not known what the other session has seen of which key.
            self.seen.others.entry(partition).or_default().raise(seen);
        }
        for (key, of_key) in &mut self.seen.keys {
            let partition = self.topology.partition_of_slot(key.slot());
            of_key.raise(self.seen.others.get(&partition).copied().unwrap_or_default());
        }
        Ok(())
    }

    fn on_operation(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        operation: Operation,
        level: Level,
    ) {
        let (parts, wants) = match operation {
            Operation::Get { key, .. } => (vec![Part::new(key, None)], Wants::One),
            Operation::Put {
                key, value, options, ..
            } => {
                let work = Work::One(PlainRequest::Put(key.clone(), value, level, options));
                (vec![Part::new(key, Some(work))], Wants::One)
            }
            Operation::Transact { transaction, .. } => match transaction.key(&self.topology) {
                Ok(Some(key)) => {
                    let key = key.clone();
                    (vec![Part::new(key, Some(Work::Many(transaction)))], Wants::One)
                }
                Ok(None) => return cx.answer(tag, Answer::Transacted(Some(Vec::new())), None),
                Err(failure) => return cx.fail(tag, failure),
            },
            Operation::ReadMany { keys, .. } if keys.is_empty() => {
                return cx.answer(tag, Answer::Values(Vec::new()), None);
            }
            Operation::ReadMany { keys, .. } => {
                let parts = keys.into_iter().map(|key| Part::new(key, None));
                (parts.collect(), Wants::Values)
            }
            Operation::Watch { keys, .. } if keys.is_empty() => {
                return cx.answer(tag, Answer::Versions(Vec::new()), None);
            }
            Operation::Watch { keys, .. } => {
                let parts = keys.into_iter().map(|key| Part::new(key, None));
                (parts.collect(), Wants::Versions)
            }
            Operation::Siblings { .. }
            | Operation::Scan { .. }
            | Operation::Count
            | Operation::Wait { .. }
            | Operation::Publish { .. }
            | Operation::First(_) => {
                let why = "only the gateway carries this out";
                return cx.fail(tag, Failure::Unsupported(why.into()));
            }
        };
        for number in self.open.begin(cx.now.monotonic, tag, level, parts, wants) {
            self.ask(cx, tag, number);
        }
    }

    fn on_response(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        number: u32,
        from: ServerId,
        outcome: turnbuckle_core::Outcome<Response>,
    ) {
        let Some((_, level, part)) = self.open.part(tag, number) else {
            return;
        };
        // Two replicas may have been asked, and one has answered before.
        if part.is_answered {
            return;
        }
        let known = cx.shared.partitions.entry(from.partition).or_default();
        let (response, receipt) = match outcome {
            turnbuckle_core::Outcome::Answered(response, receipt) => (response, receipt),
            lost => {
                known.group.leads_not(from.replica());
                return self.open.lose(cx, tag, number, lost);
            }
        };
        self.seen.time = self.seen.time.max(response.time);
        known.group.index = known.group.index.max(response.index);
        known.note_held(from.replica(), response.index);
        if let Proof::Consensus(proof) = &receipt.proof {
            for replica in proof.held_by.iter() {
                known.note_held(replica, proof.index);
            }
        }
        let (why, at_once) = match response.outcome {
            outcome @ (Outcome::Answered(_) | Outcome::Transacted(_)) => {
                if part.write.is_some() {
                    known.group.leader = Some(from.replica());
                }
                let receipt = Receipt {
                    proof: redirected(receipt.proof, part.redirects),
                    waited: part.waited(cx.now.monotonic, receipt.waited),
                    asked: level.into(),
                    given: level,
                    ..*receipt
                };
                let answer = match outcome {
                    Outcome::Answered(answer) => answer.into(),
                    Outcome::Transacted(steps) => {
                        Answer::Transacted(steps.map(|steps| steps.into_iter().map(Answer::from).collect()))
                    }
                    _ => return,
                };
                return self.on_answer(cx, tag, number, answer, Box::new(receipt), response.index);
            }
            Outcome::TooLarge(why) => return self.open.fail(cx, tag, number, Failure::Unsupported(why)),
            Outcome::NotLeader(leader) => {
                known.group.leader = leader;
                ("no leader was found in time", leader.is_some())
            }
            Outcome::Late => {
                part.is_late(response.index);
                (asking::LATE, true)
            }
            Outcome::Behind(leader) => {
                part.is_redirected = true;
                let (index, at) = (response.index, cx.now.monotonic);
                known.behind.insert(from.replica(), Behind { index, at });
                known.group.is_behind(from.replica(), leader);
                // The nearest replica may take no part in the group any more. Then the others are asked without a pause.
                let has_others = (part.asked as usize) < self.topology.replicas_of(from.partition).len();
                let at_once = known.group.leader.is_some() || has_others;
                ("no replica that is fresh enough was found in time", at_once)
            }
        };
        if self.open.ask_again(cx, tag, number, why.to_string(), at_once) {
            self.ask(cx, tag, number);
        }
    }

    fn on_timer(&mut self, cx: &mut SessionContext<'_, Self>, timer: Timer) {
        let (Timer::AskAgain(tag, number) | Timer::AskAnother(tag, number)) = timer;
        if matches!(timer, Timer::AskAnother(..)) {
            let Some(server) = self.open.silent(cx.now.monotonic, tag, number) else {
                return;
            };
            let known = cx.shared.partitions.entry(server.partition).or_default();
            known.group.leads_not(server.replica());
        }
        self.ask(cx, tag, number);
    }

    fn give_up(&mut self, _: &mut SessionContext<'_, Self>, tag: u64) {
        self.open.remove(tag);
    }

    fn token(&self, out: &mut BytesMut) {
        self.seen.put(out);
    }
}
