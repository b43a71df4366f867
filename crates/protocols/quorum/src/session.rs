//! A client: the dials `cpq` and `delay`, over any store that reads and writes at `one`, `quorum` and `all`.
//!
//! **`cpq(p)`** (continuous partial quorums, II.A of the paper) throws a coin for each operation: with probability p it is carried out at `quorum`,
//! else at `one`. The receipt says which level was given. The coin's seed is the number of the session.
//!
//! **`delay(t)`** (artificial delays, II.A) carries every operation out at `one`. A read waits for t before it is sent, and a write waits for t after it
//! was acknowledged. Meanwhile the write reaches other replicas.
//!
//! **`per-key-sequential`** and **`sequential`** need to know what the session has seen: see `statuses.rs` and `sequential.rs`. The session notes the newest version of each replica in its answers, at
//! whatever level, and says so where it matters. Its token carries that to another site.
//!
//! The session does not know whose replicas it asks. Everything that it needs of a store is in [`Backend`].
use crate::{Conflicts, Floor, KeepSiblings, LastWriterWins, Quorum, Request, seen::Seen};
use bytes::{Bytes, BytesMut};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use std::collections::{BTreeMap, VecDeque};
use turnbuckle_core::{
    Answer, Answered, BadToken, Failure, Hlc, Key, Level, Levels, Micros, Operation, Outcome, PlainRequest,
    PlainResponse, Protocol, PutOptions, Receipt, ServerId, Session, SessionContext, SessionId, Siblings,
    SiteId, Topology, Vector, VersionId,
};

/// A store that keeps several copies of each key, as the dials need it.
pub trait Backend: Protocol {
    /// The levels that it gives by itself, and those of the dials.
    const LEVELS: Levels;

    /// A request to read a key at a level that the store gives by itself. The answer's receipt names the version. If the level promises anything about
    /// what the session has seen, `floor` says what that is.
    fn read(key: Key, level: Level, floor: Floor) -> Self::Request;

    /// A request to read all siblings of a key. Only for stores that keep them ([`turnbuckle_core::Descriptor::keeps_siblings`]).
    fn siblings(key: Key, level: Level) -> Self::Request;

    /// A request to write a key, or to delete it, at a level that the store gives by itself. The version must be newer than all that the session has seen.
    /// The store takes the options, or the gateway has refused the operation.
    fn write(
        key: Key,
        value: Option<Bytes>,
        level: Level,
        options: Option<Box<PutOptions>>,
        floor: Floor,
    ) -> Self::Request;

    /// What an answer of the store says.
    fn answer(response: Self::Response) -> Answer;
}

/// The levels where the last writer wins.
pub(crate) const ALL_READS: &[Level] = &[
    Level::Quorum,
    Level::One,
    Level::All,
    Level::Replicas(0),
    Level::Atomic,
    Level::Bounded(Micros(0)),
    Level::PerKeySequential,
    Level::Sequential,
    Level::Cpq(0),
    Level::Delay(Micros(0)),
];

pub(crate) const ALL_WRITES: &[Level] = &[
    Level::Quorum,
    Level::One,
    Level::All,
    Level::Replicas(0),
    Level::Atomic,
    Level::PerKeySequential,
    Level::Sequential,
    Level::Cpq(0),
    Level::Delay(Micros(0)),
];

/// The levels that do not need one order of a key's versions.
pub(crate) const READS_OF_ANY: &[Level] = &[
    Level::Quorum,
    Level::One,
    Level::All,
    Level::Replicas(0),
    Level::Bounded(Micros(0)),
    Level::Cpq(0),
    Level::Delay(Micros(0)),
];

pub(crate) const WRITES_OF_ANY: &[Level] = &[
    Level::Quorum,
    Level::One,
    Level::All,
    Level::Replicas(0),
    Level::Cpq(0),
    Level::Delay(Micros(0)),
];

impl<C: Conflicts> Backend for Quorum<C> {
    const LEVELS: Levels = C::LEVELS;

    fn read(key: Key, level: Level, floor: Floor) -> Request {
        let operation = PlainRequest::Get(key, level);
        Request { operation, floor }
    }

    fn siblings(key: Key, level: Level) -> Request {
        let (operation, floor) = (PlainRequest::Siblings(key, level), Floor::default());
        Request { operation, floor }
    }

    fn write(
        key: Key,
        value: Option<Bytes>,
        level: Level,
        options: Option<Box<PutOptions>>,
        floor: Floor,
    ) -> Request {
        let operation = PlainRequest::Put(key, value, level, options);
        Request { operation, floor }
    }

    fn answer(response: PlainResponse) -> Answer {
        response.into()
    }
}

/// A client of a quorum keyspace where the last writer wins.
pub type QuorumSession = Dials<Quorum<LastWriterWins>>;

/// A client of a quorum keyspace that keeps siblings.
pub type SiblingsSession = Dials<Quorum<KeepSiblings>>;

/// A session over such a store.
///
/// **Pipelines.** Operations that a client sends without waiting overlap, and take effect in the order in which they were sent. A replica may need several
/// steps for an operation, and operations of one key may overtake each other there. So an operation waits for the earlier ones on its key, with one
/// exception: reads of one key may overlap. If a later one is answered first, and the earlier one then shows a newer version, the later one shows that
/// version too. The replica had it in time: neither was answered to the client before. If the earlier one shows nothing, and no version, it is not known
/// whether that is newer. Then the later one is asked for again.
///
/// An operation at a level that promises an order across keys, such as `atomic`, is alone: it waits for all earlier operations, and all later ones wait
/// for it.
pub struct Dials<B: Backend> {
    topology: Topology,
    /// The number of replicas of a key.
    replicas: usize,
    id: SessionId,
    /// The source of the coin's throws, once one was thrown.
    coin: Option<Box<ChaCha8Rng>>,
    /// The only operation under way, if it is on one key. Most clients wait for each answer, and for them this is all.
    alone: Option<Alone>,
    /// Operations under way, by their tags.
    open: BTreeMap<u64, Open>,
    /// Operations that wait because they, or those before them, must be alone.
    queue: VecDeque<(u64, Operation, Level)>,
    /// What is under way on each key, and waits.
    keys: BTreeMap<Key, OnKey>,
    seen: Seen,
    of: std::marker::PhantomData<fn() -> B>,
}

/// An operation on one key, while no other one is under way.
struct Alone {
    tag: u64,
    level: Level,
    key: Key,
    is_read: bool,
    /// The level at which the store carries it out.
    given: Level,
}

/// An operation under way.
struct Open {
    /// The level that the client named.
    level: Level,
    /// Whether it is a read of several keys.
    is_many: bool,
    /// Its keys. The place of each is the number of a part.
    keys: Vec<Key>,
    values: Vec<Option<Bytes>>,
    /// The number of parts that are not over.
    missing: usize,
    has_failed: bool,
    /// What the answers so far prove together.
    receipt: Option<Box<Receipt>>,
    /// Answers that wait for those of the other keys: a read of several keys at `sequential` must show all of them as of one cut.
    first_round: Option<Vec<(u32, Answered)>>,
}

/// What is under way on one key, in the order in which it was asked for.
type OnKey = VecDeque<Part>;

/// A part of an operation: what it does with one key.
struct Part {
    tag: u64,
    part: u32,
    is_read: bool,
    /// The level at which the store carries it out.
    given: Level,
    state: State,
}

/// What a part asks the store for.
enum Work {
    /// To read its key.
    Read,
    /// To read its key as of this cut.
    ReadAt(Hlc),
    /// To read all siblings of its key.
    Siblings,
    /// To write this value, or to delete the key, with these options.
    Write(Option<Bytes>, Option<Box<PutOptions>>),
}

#[allow(
    clippy::large_enum_variant,
    reason = "few parts are under way, and a box for each receipt would cost more"
)]
enum State {
    /// It waits for earlier parts.
    Waits(Work),
    /// It waits for its delay to pass.
    Delays(Work),
    /// It was asked.
    Asked,
    /// It was answered. Earlier reads of the key are under way, or the delay of a write has not passed.
    Answered(Answer, Option<Box<Receipt>>),
}

/// When the delay of a part has passed: the operation's tag and the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timer(u64, u32);

impl<B: Backend> Dials<B> {
    /// The level at which the store carries out an operation, or a part of one.
    fn given(&mut self, asked: Level) -> Level {
        match asked {
            Level::Cpq(millionths) => {
                let seed = self.id.0;
                let coin = self
                    .coin
                    .get_or_insert_with(|| Box::new(ChaCha8Rng::seed_from_u64(seed)));
                match coin.next_u32() % 1_000_000 < millionths {
                    true => Level::Quorum,
                    false => Level::One,
                }
            }
            Level::Delay(_) => Level::One,
            level => level,
        }
    }

    /// Starts the operations that may start now.
    fn start_next(&mut self, cx: &mut SessionContext<'_, Self>) {
        let is_alone = |level: Level| level.promise().is_causal();
        while let Some(&(_, _, level)) = self.queue.front() {
            self.join_others();
            let must_wait = match self.open.last_key_value() {
                None => false,
                Some((_, open)) => is_alone(level) || is_alone(open.level),
            };
            if must_wait {
                return;
            }
            let (tag, operation, level) = self.queue.pop_front().expect("it was just there");
            self.start(cx, tag, operation, level);
        }
    }

    /// Another operation comes beside the only one.
    fn join_others(&mut self) {
        let Some(Alone {
            tag,
            level,
            key,
            is_read,
            given,
        }) = self.alone.take()
        else {
            return;
        };
        self.open.insert(tag, Open::new(level, vec![key.clone()], false));
        let part = Part {
            tag,
            part: 0,
            is_read,
            given,
            state: State::Asked,
        };
        self.keys.entry(key).or_default().push_back(part);
    }

    fn start(&mut self, cx: &mut SessionContext<'_, Self>, tag: u64, operation: Operation, level: Level) {
        if let Level::Replicas(count) = level
            && usize::from(count) > self.replicas
        {
            let why = format!(
                "{level} needs {count} replicas, and each key of this keyspace has {}",
                self.replicas
            );
            return cx.fail(tag, Failure::Unsupported(why));
        }
        match operation {
            Operation::Get { key, .. } => self.start_one(cx, tag, key, level, Work::Read),
            Operation::Siblings { key, .. } => self.start_one(cx, tag, key, level, Work::Siblings),
            Operation::Put {
                key, value, options, ..
            } => self.start_one(cx, tag, key, level, Work::Write(value, options)),
            Operation::ReadMany { keys, .. } if keys.is_empty() => {
                cx.answer(tag, Answer::Values(Vec::new()), None)
            }
            Operation::ReadMany { keys, .. } => {
                self.open.insert(tag, Open::new(level, keys.clone(), true));
                for (part, key) in keys.into_iter().enumerate() {
                    let given = self.given(level);
                    self.begin(cx, (tag, part as u32), key, given, Work::Read);
                }
            }
            Operation::Transact { .. }
            | Operation::Watch { .. }
            | Operation::Scan { .. }
            | Operation::Count
            | Operation::Wait { .. }
            | Operation::Publish { .. }
            | Operation::First(_) => {
                let why = "only the gateway carries this out";
                cx.fail(tag, Failure::Unsupported(why.into()));
            }
        }
    }

    /// Starts an operation on one key.
    fn start_one(&mut self, cx: &mut SessionContext<'_, Self>, tag: u64, key: Key, level: Level, work: Work) {
        let given = self.given(level);
        if self.open.is_empty() && !matches!(level, Level::Delay(_)) {
            let is_read = !matches!(work, Work::Write(..));
            self.ask(cx, (tag, 0), &key, given, work);
            self.alone = Some(Alone {
                tag,
                level,
                key,
                is_read,
                given,
            });
            return;
        }
        self.open.insert(tag, Open::new(level, vec![key.clone()], false));
        self.begin(cx, (tag, 0), key, given, work);
    }

    /// What a part must come after.
    fn floor(&self, key: &Key, given: Level, work: &Work) -> Floor {
        Floor {
            position: match (work, given) {
                (Work::ReadAt(cut), _) => *cut,
                (Work::Read, Level::Sequential) | (Work::Write(..), _) => self.seen.position(),
                (Work::Read | Work::Siblings, _) => Hlc::ZERO,
            },
            exactly: matches!(work, Work::ReadAt(_)),
            seen: match given {
                Level::PerKeySequential => self.seen.of(self.topology.partition_of_slot(key.slot())),
                _ => Vector::ZERO,
            },
        }
    }

    /// Asks the nearest replica of the key, or one of another site if that is away.
    fn ask(
        &self,
        cx: &mut SessionContext<'_, Self>,
        (tag, part): (u64, u32),
        key: &Key,
        given: Level,
        work: Work,
    ) {
        let floor = self.floor(key, given, &work);
        let request = match work {
            Work::Read | Work::ReadAt(_) => B::read(key.clone(), given, floor),
            Work::Siblings => B::siblings(key.clone(), given),
            Work::Write(value, options) => B::write(key.clone(), value, given, options, floor),
        };
        let mut server = cx.nearest(&self.topology, key);
        if !cx.reach.is_reached(server) {
            server = cx.reach.nearest_elsewhere(server.partition).unwrap_or(server);
        }
        cx.ask(tag, part, server, request);
    }

    /// Begins a part of an operation, behind the earlier ones on its key.
    fn begin(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        (tag, part): (u64, u32),
        key: Key,
        given: Level,
        work: Work,
    ) {
        let new = Part {
            tag,
            part,
            is_read: !matches!(work, Work::Write(..)),
            given,
            state: State::Waits(work),
        };
        self.keys.entry(key.clone()).or_default().push_back(new);
        self.go_on(cx, &key);
    }

    /// Asks what need not wait any more: the first part, and the reads behind it if it is a read.
    fn go_on(&mut self, cx: &mut SessionContext<'_, Self>, key: &Key) {
        let Some(on_key) = self.keys.get_mut(key) else {
            return;
        };
        let mut asks = Vec::new();
        let mut only_reads = true;
        for (place, part) in on_key.iter_mut().enumerate() {
            only_reads &= part.is_read;
            if place > 0 && !only_reads {
                break;
            }
            let State::Waits(_) = part.state else {
                continue;
            };
            let State::Waits(work) = std::mem::replace(&mut part.state, State::Asked) else {
                unreachable!("it was just that")
            };
            let delay = match self.open.get(&part.tag).map(|open| open.level) {
                Some(Level::Delay(delay)) if part.is_read => Some(delay),
                _ => None,
            };
            match delay {
                Some(delay) => {
                    part.state = State::Delays(work);
                    cx.set_timer(Timer(part.tag, part.part), delay);
                }
                None => asks.push(((part.tag, part.part), part.given, work)),
            }
        }
        for (part, given, work) in asks {
            self.ask(cx, part, key, given, work);
        }
    }

    /// A part was answered, and its delay has passed. It is over once the earlier ones on its key are.
    fn answered(&mut self, cx: &mut SessionContext<'_, Self>, key: &Key) {
        let mut over = Vec::new();
        if let Some(on_key) = self.keys.get_mut(key) {
            while on_key
                .front()
                .is_some_and(|part| matches!(part.state, State::Answered(..)))
            {
                let part = on_key.pop_front().expect("it was just there");
                let State::Answered(answer, receipt) = part.state else {
                    unreachable!("it was just that")
                };
                // Later reads show no less.
                if part.is_read {
                    on_key
                        .iter_mut()
                        .for_each(|later| later.raise(&answer, receipt.as_deref()));
                }
                over.push((part.tag, part.part, answer, receipt));
            }
            if on_key.is_empty() {
                self.keys.remove(key);
            }
        }
        for (tag, part, answer, receipt) in over {
            self.finish(cx, tag, part, answer, receipt);
        }
        self.go_on(cx, key);
        self.start_next(cx);
    }

    /// An answer to a part of a read of several keys at `sequential` waits for the answers to the others. Then those that were read as of an earlier cut than the
    /// last are read once more, as of the last. Returns whether it waits, or was the last.
    fn holds_back(&mut self, cx: &mut SessionContext<'_, Self>, tag: u64, part: u32) -> bool {
        let is_first = self.open.get(&tag).is_some_and(|open| open.first_round.is_some());
        let Some((_, found)) = self.part(tag, part).filter(|_| is_first) else {
            return false;
        };
        let State::Answered(answer, receipt) = std::mem::replace(&mut found.state, State::Asked) else {
            return false;
        };
        let Some(open) = self.open.get_mut(&tag) else {
            return false;
        };
        let all = open.keys.len();
        let Some(round) = &mut open.first_round else {
            return false;
        };
        round.push((part, (answer, receipt)));
        if round.len() < all {
            return true;
        }
        let round = open.first_round.take().unwrap_or_default();
        let cut_of = |receipt: &Option<Box<Receipt>>| receipt.as_deref().and_then(Receipt::cut);
        let last = round.iter().filter_map(|(_, (_, receipt))| cut_of(receipt)).max();
        let has_failed = round
            .iter()
            .any(|(_, (answer, _))| matches!(answer, Answer::Failed(_)));
        for (part, (answer, receipt)) in round {
            let is_done = has_failed || cut_of(&receipt) == last;
            let Some((key, found)) = self.part(tag, part) else {
                continue;
            };
            if let Some(cut) = last.filter(|_| !is_done) {
                self.ask(cx, (tag, part), &key, Level::Sequential, Work::ReadAt(cut));
                continue;
            }
            found.state = State::Answered(answer, receipt);
            self.answered(cx, &key);
        }
        true
    }

    /// A part of an operation is over.
    fn finish(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        part: u32,
        answer: Answer,
        receipt: Option<Box<Receipt>>,
    ) {
        let Some(open) = self.open.get_mut(&tag) else {
            return;
        };
        if let Some(mut receipt) = receipt {
            receipt.asked = open.level.into();
            open.receipt = Some(match open.receipt.take() {
                Some(so_far) => Box::new(so_far.merged(*receipt)),
                None => receipt,
            });
        }
        open.missing -= 1;
        match answer {
            Answer::Failed(failure) if !open.has_failed => {
                open.has_failed = true;
                cx.fail(tag, failure);
            }
            Answer::Failed(_) => {}
            Answer::Value(value) => open.values[part as usize] = value,
            written => cx.answer(tag, written, open.receipt.take()),
        }
        if open.missing == 0
            && let Some(mut done) = self.open.remove(&tag)
            && let (false, Some(receipt)) = (done.has_failed, done.receipt)
        {
            let answer = match done.is_many {
                true => Answer::Values(done.values),
                false => Answer::Value(done.values.pop().flatten()),
            };
            cx.answer(tag, answer, Some(receipt));
        }
    }

    /// An operation on this key was answered, and the answer shows this.
    fn note(&mut self, key: &Key, shown: Shown) {
        if let Some(version) = shown.version {
            self.seen
                .note(self.topology.partition_of_slot(key.slot()), version);
        }
        if let Some(cut) = shown.cut {
            self.seen.pass(cut);
        }
    }

    fn part(&mut self, tag: u64, part: u32) -> Option<(Key, &mut Part)> {
        let key = self.open.get(&tag)?.keys.get(part as usize)?.clone();
        let on_key = self.keys.get_mut(&key)?;
        let found = on_key
            .iter_mut()
            .find(|found| (found.tag, found.part) == (tag, part))?;
        Some((key, found))
    }
}

/// What an answer shows the session.
#[derive(Default)]
struct Shown {
    version: Option<VersionId>,
    cut: Option<Hlc>,
}

impl Shown {
    fn by(answer: &Answer, receipt: Option<&Receipt>) -> Shown {
        match (answer, receipt) {
            // A write that may not have happened is not in the session's order.
            (Answer::Failed(_), _) | (_, None) => Shown::default(),
            (_, Some(receipt)) => Shown {
                version: receipt.version,
                cut: receipt.cut(),
            },
        }
    }
}

impl Open {
    fn new(level: Level, keys: Vec<Key>, is_many: bool) -> Open {
        Open {
            level,
            is_many,
            values: vec![None; keys.len()],
            missing: keys.len(),
            has_failed: false,
            receipt: None,
            first_round: (is_many && level == Level::Sequential).then(Vec::new),
            keys,
        }
    }
}

impl Part {
    /// An earlier read of the key has shown this.
    fn raise(&mut self, earlier: &Answer, its_receipt: Option<&Receipt>) {
        let (State::Answered(answer, Some(receipt)), Some(earlier_receipt)) = (&mut self.state, its_receipt)
        else {
            return;
        };
        match (answer, earlier) {
            (Answer::Siblings(mine), Answer::Siblings(earlier)) => {
                mine.merge(earlier);
                receipt.version = mine.newest().map(|(id, _)| *id);
                receipt.siblings = mine.versions.len() > 1;
            }
            // It is not known what else there was.
            (Answer::Siblings(mine), Answer::Value(_)) => {
                let has = |version| mine.context.covers_id(version);
                if !earlier_receipt.version.map_or(mine.versions.is_empty(), has) {
                    self.state = State::Waits(Work::Siblings);
                }
            }
            (Answer::Value(_), Answer::Value(_) | Answer::Siblings(_))
                if earlier_receipt.version.is_none() && receipt.version.is_some() =>
            {
                // Nothing, without a version: maybe a newer delete that is forgotten. If so, no replica shows the older value any more.
                self.state = State::Waits(Work::Read);
            }
            (answer @ Answer::Value(_), Answer::Value(_) | Answer::Siblings(_))
                if receipt.rank() < earlier_receipt.rank() =>
            {
                *answer = match earlier {
                    Answer::Siblings(earlier) => Answer::Value(newest_of(earlier)),
                    value => value.clone(),
                };
                // What this answer had proven is true of a newer version, too.
                receipt.version = earlier_receipt.version;
                receipt.server = earlier_receipt.server;
                receipt.siblings |= earlier_receipt.siblings;
            }
            _ => {}
        }
    }
}

/// What a plain read shows of these siblings.
fn newest_of(siblings: &Siblings) -> Option<Bytes> {
    siblings.newest().and_then(|(_, value)| value.clone())
}

impl<B: Backend> Session for Dials<B> {
    type Protocol = B;
    type Shared = ();
    type Timer = Timer;

    const LEVELS: Levels = B::LEVELS;
    const OVERLAPS: bool = true;

    fn open(_: &B::Config, _: SiteId, topology: Topology, id: SessionId) -> Dials<B> {
        Dials {
            replicas: topology.replicas_of(0).len(),
            id,
            coin: None,
            alone: None,
            open: BTreeMap::new(),
            queue: VecDeque::new(),
            keys: BTreeMap::new(),
            seen: Seen::new(topology.replicas().len()),
            topology,
            of: std::marker::PhantomData,
        }
    }

    fn resume(&mut self, state: Bytes) -> Result<(), BadToken> {
        self.seen
            .merge(Seen::take(state, self.topology.replicas().len())?);
        Ok(())
    }

    fn on_operation(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        operation: Operation,
        level: Level,
    ) {
        match self.alone.is_none() && self.open.is_empty() {
            // Nothing is under way, so nothing waits.
            true => self.start(cx, tag, operation, level),
            false => {
                self.queue.push_back((tag, operation, level));
                self.start_next(cx);
            }
        }
    }

    fn on_response(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        part: u32,
        _: ServerId,
        outcome: Outcome<B::Response>,
    ) {
        let (answer, receipt) = match outcome {
            Outcome::Answered(response, receipt) => (B::answer(response), Some(receipt)),
            lost => (
                Answer::Failed(lost.into_failure().expect("it is not an answer")),
                None,
            ),
        };
        let shown = Shown::by(&answer, receipt.as_deref());
        if let Some(alone) = self.alone.take_if(|alone| alone.tag == tag) {
            self.note(&alone.key, shown);
            let mut receipt = receipt.filter(|_| !matches!(answer, Answer::Failed(_)));
            if let Some(receipt) = &mut receipt {
                receipt.asked = alone.level.into();
            }
            return cx.answer(tag, answer, receipt);
        }
        let Some(level) = self.open.get(&tag).map(|open| open.level) else {
            return;
        };
        let Some((key, found)) = self.part(tag, part) else {
            return;
        };
        let is_read = found.is_read;
        found.state = State::Answered(answer, receipt);
        self.note(&key, shown);
        if self.holds_back(cx, tag, part) {
            return;
        }
        match level {
            Level::Delay(delay) if !is_read => cx.set_timer(Timer(tag, part), delay),
            _ => self.answered(cx, &key),
        }
    }

    fn on_timer(&mut self, cx: &mut SessionContext<'_, Self>, Timer(tag, part): Timer) {
        let Some((key, found)) = self.part(tag, part) else {
            return;
        };
        let given = found.given;
        match std::mem::replace(&mut found.state, State::Asked) {
            State::Delays(work) => self.ask(cx, (tag, part), &key, given, work),
            state => {
                found.state = state;
                self.answered(cx, &key);
            }
        }
    }

    /// What waited for it goes on.
    fn give_up(&mut self, cx: &mut SessionContext<'_, Self>, tag: u64) {
        self.alone.take_if(|alone| alone.tag == tag);
        self.queue.retain(|&(waiting, ..)| waiting != tag);
        let Some(open) = self.open.remove(&tag) else {
            return self.start_next(cx);
        };
        for key in open.keys {
            if let Some(on_key) = self.keys.get_mut(&key) {
                on_key.retain(|part| part.tag != tag);
                if on_key.is_empty() {
                    self.keys.remove(&key);
                }
            }
            self.answered(cx, &key);
        }
    }

    fn token(&self, out: &mut BytesMut) {
        self.seen.put(out);
    }
}
