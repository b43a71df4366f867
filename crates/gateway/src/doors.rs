//! The doors to one keyspace.
use crate::{
    attempts::{Attempts, Next, is_attempt},
    gateway::{Answers, GatewayOptions},
    messages::{Hears, Messages},
    probes::{Probe, Waiting, keys_of_partitions},
    shared_state::SharedState,
    slab::Slab,
};
use bytes::{Bytes, BytesMut};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};
use turnbuckle_core::{
    Answer, BadToken, Conditional, DoorId, Failure, Key, KeyspaceLevels, Message, Micros, Now, Operation,
    Outcome, Protocol, Receipt, Replication, RequestId, ServerId, Session, SessionId, SessionStep, SiteId,
    Timers, TokenHeader, Transactions, Vector, Wanted,
};
use turnbuckle_node::{Delivered, Delivery, Keyspace, Publication, Survey, Surveyed, first_cursor_of};

/// All doors of one loop to one keyspace, whatever its protocol.
pub(crate) trait AnyDoors {
    fn name(&self) -> &str;
    fn levels(&self) -> KeyspaceLevels;
    fn partitions(&self) -> u16;
    fn transactions(&self) -> Transactions;
    fn refusal(&self, operation: &Operation) -> Option<Failure>;
    fn look_ahead(&self, keys: &[&[u8]]);
    fn open(&mut self) -> u64;
    fn resume(&mut self, door: u64, token: &[u8]) -> Result<(), BadToken>;
    fn close(&mut self, door: u64);
    fn operate(&mut self, now: Now, door: u64, tag: u64, operation: Operation, answers: &mut Answers);
    fn collect(&mut self, now: Now, answers: &mut Answers);
    fn next_deadline(&self) -> Option<Micros>;
    fn tick(&mut self, now: Now, answers: &mut Answers);
    fn expire(&mut self, now: Now, answers: &mut Answers);
    fn token(&mut self, door: u64) -> Bytes;
    fn seal_context(&self, key: &Key, context: &Vector) -> Bytes;
    fn open_context(&self, key: &Key, sealed: &[u8]) -> Option<Vector>;
    fn open_asks(&self) -> usize;
    fn listen(&mut self, hears: Hears);
    fn take_heard(&mut self, into: &mut Vec<Arc<Publication>>);
    fn lost_messages(&self) -> u64;
}

pub(crate) struct Doors<S: Session> {
    pub(crate) keyspace: Arc<Keyspace<S::Protocol>>,
    levels: KeyspaceLevels,
    /// What the keyspace does with writes that its protocol cannot decide exactly.
    conditional: Conditional,
    /// The keyspace's index in the gateway.
    index: u32,
    pub(crate) options: GatewayOptions,
    header: TokenHeader,
    pub(crate) home: SiteId,
    pub(crate) doors: Slab<Door<S>>,
    asks: Slab<Ask<S>>,
    /// What the sessions of this keyspace share.
    pub(crate) shared_state: SharedState<S>,
    /// The timers of all sessions, by door. A timer of a closed door does nothing when it is due.
    timers: Timers<(u64, S::Timer)>,
    /// When to give up attempts, by door and by the session's tag.
    limits: Timers<(u64, u64)>,
    /// The doors at which the next level of a chain is to be tried.
    again: Vec<u64>,
    /// The operations that wait for sites, by door and tag, and when to answer them in any case.
    pub(crate) waits: BTreeMap<(u64, u64), Waiting>,
    pub(crate) wait_ends: Timers<(u64, u64)>,
    /// The doors of probes that were answered, and whether by their site.
    probed: Vec<(u64, bool)>,
    /// When to ask again for a probe, by its door.
    pub(crate) probe_again: Timers<u64>,
    /// For each partition, the key that probes read.
    pub(crate) probe_keys: Vec<Key>,
    pub(crate) messages: Messages,
    /// The source of the sessions' numbers.
    random: ChaCha8Rng,
    /// A buffer that is emptied and used again.
    pub(crate) steps: Vec<SessionStep<S>>,
    /// Buffers for the steps that sessions take ahead. They are emptied and used again.
    spare_steps: Vec<Vec<SessionStep<S>>>,
    /// Answers that servers of this node gave at once, until they are handed out.
    answered: Vec<Delivery<S::Protocol>>,
    /// Answers that are being handed out. The buffer is emptied and used again.
    taken: Vec<Delivery<S::Protocol>>,
}

pub(crate) struct Door<S> {
    id: SessionId,
    pub session: S,
    /// Set if no client uses the door: its session is a probe.
    pub probe: Option<Probe>,
    /// The operation that queued operations wait for. None if operations may overlap.
    busy: Option<Busy>,
    /// Operations that wait for the one before them.
    queue: VecDeque<(u64, Operation)>,
    /// The tags of open operations, oldest first, and whether each has been answered. The first has not.
    pub open: VecDeque<(u64, bool)>,
    attempts: Attempts,
    counts: BTreeMap<u64, Count>,
}

impl<S> Door<S> {
    pub fn of(id: SessionId, session: S, probe: Option<Probe>) -> Door<S> {
        Door {
            id,
            session,
            probe,
            busy: None,
            queue: VecDeque::new(),
            open: VecDeque::new(),
            attempts: Attempts::default(),
            counts: BTreeMap::new(),
        }
    }

    /// The only site of which its session sees servers. `None`: it sees all of them.
    pub fn seen_from(&self) -> Option<SiteId> {
        self.probe
            .as_ref()
            .and_then(|probe| probe.stays.then_some(probe.site))
    }

    /// Later operations wait for this one.
    pub fn await_answer(&mut self, tag: u64) {
        self.busy = Some(Busy { tag, ask: None });
    }

    /// Marks an operation as answered. Returns false if it was answered before, or never came in. Tags rise, so a binary search finds the place.
    fn finish(&mut self, tag: u64) -> bool {
        self.busy = self.busy.take().filter(|busy| busy.tag != tag);
        let Ok(place) = self.open.binary_search_by_key(&tag, |&(tag, _)| tag) else {
            return false;
        };
        let first = !std::mem::replace(&mut self.open[place].1, true);
        while self.open.front().is_some_and(|&(_, answered)| answered) {
            self.open.pop_front();
        }
        first
    }
}

/// The newest operation, until its session knows its outcome.
struct Busy {
    tag: u64,
    /// The number of its newest question.
    ask: Option<u64>,
}

/// A count under way: the number of partitions that have not answered, and of keys so far.
struct Count {
    missing: u16,
    keys: u64,
}

/// A question to a server that has not been answered.
struct Ask<S: Session> {
    door: u64,
    tag: u64,
    part: u32,
    server: ServerId,
    /// When it was asked, in monotonic time.
    since: Micros,
    /// Whether it is part of a scan or a count. The session knows nothing of those.
    is_survey: bool,
    /// If the session has heard the answer before it was durable: the steps that the session took, to be performed once the answer is durable.
    ahead: Option<Vec<SessionStep<S>>>,
}

impl<S: Session> Doors<S> {
    pub fn new(
        keyspace: Arc<Keyspace<S::Protocol>>,
        (levels, conditional): (KeyspaceLevels, Conditional),
        index: u32,
        home: SiteId,
        options: GatewayOptions,
    ) -> Doors<S> {
        let header = TokenHeader {
            cluster: options.cluster.clone(),
            keyspace: keyspace.name().to_string(),
        };
        let mut random = ChaCha8Rng::seed_from_u64(options.seed);
        random.set_stream(u64::from(index));
        let topology = keyspace.topology();
        let partition_of = |key: &Key| topology.partition_of_slot(key.slot());
        let probe_keys = keys_of_partitions(partition_of, topology.partitions());
        Doors {
            shared_state: SharedState::new(Arc::clone(&keyspace), options.deadline),
            keyspace,
            levels,
            conditional,
            index,
            options,
            header,
            home,
            doors: Slab::new(),
            asks: Slab::new(),
            timers: Timers::default(),
            limits: Timers::default(),
            again: Vec::new(),
            waits: BTreeMap::new(),
            wait_ends: Timers::default(),
            probed: Vec::new(),
            probe_again: Timers::default(),
            probe_keys,
            messages: Messages::default(),
            random,
            steps: Vec::new(),
            spare_steps: Vec::new(),
            answered: Vec::new(),
            taken: Vec::new(),
        }
    }

    fn begin(&mut self, now: Now, door_number: u64, tag: u64, operation: Operation, answers: &mut Answers) {
        let Some(door) = self.doors.find(door_number) else {
            return;
        };
        door.open.push_back((tag, false));
        // Each attempt of a chain comes to the session behind everything that was passed on before it.
        if !S::OVERLAPS || matches!(operation, Operation::First(_)) {
            door.await_answer(tag);
        }
        let has_all = S::Protocol::DESCRIPTOR.replication != Replication::Majority;
        match operation {
            Operation::Count if has_all => {
                door.counts.insert(
                    tag,
                    Count {
                        missing: self.keyspace.topology().partitions(),
                        keys: 0,
                    },
                );
                for partition in 0..self.keyspace.topology().partitions() {
                    self.survey(now, door_number, tag, partition, Survey::Count, answers);
                }
            }
            Operation::Scan { cursor, count } if has_all => {
                let slot = (cursor >> 48) as u16;
                if slot >= turnbuckle_core::HASH_SLOTS {
                    let failure = Failure::Unavailable(
                        "the cursor of a scan must be 0, or the cursor of the last answer".into(),
                    );
                    return self.answer(door_number, tag, Answer::Failed(failure), None, answers);
                }
                let partition = self.keyspace.topology().partition_of_slot(slot);
                self.survey(
                    now,
                    door_number,
                    tag,
                    partition,
                    Survey::Scan { cursor, count },
                    answers,
                );
            }
            Operation::First(first) => {
                let refused =
                    S::Protocol::DESCRIPTOR.refusal(self.keyspace.name(), self.conditional, &first.operation);
                let is_write = first.operation.is_write();
                let wanted = Wanted::First(first.chain.clone());
                match refused.map_or_else(|| self.levels.check(&wanted, is_write), Err) {
                    Ok(()) => {
                        door.attempts.begin(tag, first);
                        self.attempt(now, door_number, answers);
                    }
                    Err(failure) => {
                        self.answer(door_number, tag, Answer::Failed(failure), None, answers);
                    }
                }
            }
            Operation::Wait { sites, timeout } if S::Protocol::DESCRIPTOR.confirms_sites => {
                self.begin_wait(now, (door_number, tag), sites, timeout, answers);
            }
            Operation::Publish { message } => {
                let mut seen = BytesMut::new();
                door.session.token(&mut seen);
                // The texts share the memory that the command was read into.
                let message = Message {
                    channel: Bytes::copy_from_slice(&message.channel),
                    text: Bytes::copy_from_slice(&message.text),
                };
                let unreached = self.keyspace.publish(Publication {
                    publisher: door.id,
                    seen: seen.freeze(),
                    message,
                });
                self.messages.lost += unreached as u64;
                self.answer(door_number, tag, Answer::Published, None, answers);
            }
            operation => {
                // An operation that the keyspace does not take never reaches a session.
                let refused =
                    S::Protocol::DESCRIPTOR.refusal(self.keyspace.name(), self.conditional, &operation);
                let level = match refused.map_or_else(|| self.levels.resolve(&operation), Err) {
                    Ok(level) => level,
                    Err(failure) => {
                        return self.answer(door_number, tag, Answer::Failed(failure), None, answers);
                    }
                };
                if S::OVERLAPS && !S::overlaps_at(level) {
                    door.await_answer(tag);
                }
                let mut steps = std::mem::take(&mut self.steps);
                let mut cx = self.shared_state.context(now, None, &mut steps);
                door.session.on_operation(&mut cx, tag, operation, level);
                self.perform(now, door_number, &mut steps, answers);
                self.steps = steps;
            }
        }
    }

    /// Tries the operation of a chain at its next level.
    fn attempt(&mut self, now: Now, door_number: u64, answers: &mut Answers) {
        let Some(door) = self.doors.find(door_number) else {
            return;
        };
        let Some((tag, operation, choice)) = door.attempts.next() else {
            return;
        };
        if let Some(within) = choice.within {
            self.limits.set((door_number, tag), now.monotonic + within);
        }
        let mut steps = std::mem::take(&mut self.steps);
        let mut cx = self.shared_state.context(now, None, &mut steps);
        door.session.on_operation(&mut cx, tag, operation, choice.level);
        self.perform(now, door_number, &mut steps, answers);
        self.steps = steps;
    }

    /// The time of an attempt is over: its questions are forgotten, and the session is told.
    fn give_up(&mut self, now: Now, door_number: u64, tag: u64, answers: &mut Answers) {
        let Some(door) = self.doors.find(door_number) else {
            return;
        };
        let Some((asks, why)) = door.attempts.late(tag) else {
            return;
        };
        let mut steps = std::mem::take(&mut self.steps);
        door.session
            .give_up(&mut self.shared_state.context(now, None, &mut steps), tag);
        for ask in asks {
            self.asks.remove(ask);
        }
        self.perform(now, door_number, &mut steps, answers);
        self.steps = steps;
        let failure = Failure::Unavailable(why);
        self.answer(door_number, tag, Answer::Failed(failure), None, answers);
    }

    pub(crate) fn perform(
        &mut self,
        now: Now,
        door: u64,
        steps: &mut Vec<SessionStep<S>>,
        answers: &mut Answers,
    ) {
        for step in steps.drain(..) {
            match step {
                SessionStep::Answer { tag, answer, receipt } => {
                    self.answer(door, tag, answer, receipt, answers)
                }
                SessionStep::Ask {
                    tag,
                    part,
                    server,
                    request,
                } => match self.note(now, door, tag, part, server, false) {
                    Some(id) => {
                        let outcome = self.keyspace.ask(now, id, server, request);
                        self.answered.extend(outcome.map(|outcome| Delivery {
                            id,
                            answer: Delivered::Response(outcome),
                        }));
                    }
                    None => self.answer(door, tag, overfull(), None, answers),
                },
                SessionStep::SetTimer { timer, due } => self.timers.set((door, timer), due),
            }
        }
    }

    fn survey(
        &mut self,
        now: Now,
        door: u64,
        tag: u64,
        partition: u16,
        survey: Survey,
        answers: &mut Answers,
    ) {
        let server = self.keyspace.nearest(partition);
        match self.note(now, door, tag, u32::from(partition), server, true) {
            Some(id) => {
                let surveyed = self.keyspace.survey(id, server, survey, now);
                self.answered.extend(surveyed.map(|surveyed| Delivery {
                    id,
                    answer: Delivered::Surveyed(surveyed),
                }));
            }
            None => self.answer(door, tag, overfull(), None, answers),
        }
    }

    /// Records a question to a server, and returns its number. `None` if too many questions are open.
    fn note(
        &mut self,
        now: Now,
        door: u64,
        tag: u64,
        part: u32,
        server: ServerId,
        is_survey: bool,
    ) -> Option<RequestId> {
        let number = self.asks.insert(Ask {
            door,
            tag,
            part,
            server,
            since: now.monotonic,
            is_survey,
            ahead: None,
        })?;
        if is_attempt(tag) {
            if let Some(door) = self.doors.find(door) {
                door.attempts.asked(tag, number);
            }
        } else if !S::OVERLAPS
            && let Some(door) = self.doors.find(door)
            && let Some(busy) = &mut door.busy
            && busy.tag == tag
        {
            busy.ask = Some(number);
        }
        Some(RequestId::of_loop(self.options.loop_index, number))
    }

    pub(crate) fn answer(
        &mut self,
        door_number: u64,
        tag: u64,
        answer: Answer,
        mut receipt: Option<Box<Receipt>>,
        answers: &mut Answers,
    ) {
        let Some(door) = self.doors.find(door_number) else {
            return;
        };
        if let Some(probe) = &door.probe {
            let is_answered = !matches!(answer, Answer::Failed(_));
            let is_there = is_answered
                && receipt.is_some_and(|receipt| !probe.stays || receipt.server.site == probe.site);
            if door.finish(tag) {
                let is_there = is_there || self.keyspace.planted().counts_silent_sites;
                self.probed.push((door_number, is_there));
            }
            return;
        }
        let (tag, answer) = match is_attempt(tag) {
            false => (tag, answer),
            true => match door.attempts.answered(tag, answer) {
                Next::Answer(of, answer, first) => {
                    self.limits.cancel((door_number, tag));
                    if let Some(receipt) = &mut receipt {
                        receipt.asked = Wanted::First(first.chain);
                    }
                    (of, answer)
                }
                Next::TryAgain => {
                    self.limits.cancel((door_number, tag));
                    return self.again.push(door_number);
                }
                Next::Nothing => return,
            },
        };
        // Each operation is answered exactly once: answers that come after a failure are dropped.
        if door.finish(tag) {
            let answer = self.explained(answer);
            answers.push((
                DoorId {
                    keyspace: self.index,
                    number: door_number,
                },
                tag,
                (answer, receipt),
            ));
        }
    }

    /// Adds to a failure that some node does not have the keyspace, if that may be its reason.
    fn explained(&self, answer: Answer) -> Answer {
        let explain = |why: String| {
            let name = format!("'{}'", self.keyspace.name());
            match why.contains(&name) || !self.keyspace.is_lacked() {
                true => why,
                false => format!("{why}; not every node has the keyspace {name} in its configuration"),
            }
        };
        match answer {
            Answer::Failed(Failure::Unavailable(why)) => Answer::Failed(Failure::Unavailable(explain(why))),
            Answer::Failed(Failure::Timeout(why)) => Answer::Failed(Failure::Timeout(explain(why))),
            answer => answer,
        }
    }

    /// Begins operations that waited. What is answered at once waits for [`Doors::drain`]: so however many operations waited, none is begun inside
    /// another.
    pub(crate) fn advance(&mut self, now: Now, door_number: u64, answers: &mut Answers) {
        loop {
            let waits = |door: &mut Door<S>| !door.queue.is_empty();
            if !self.doors.find(door_number).is_some_and(waits) {
                return;
            }
            self.hear_ahead(now, door_number);
            let Some(door) = self.doors.find(door_number) else {
                return;
            };
            if door.busy.is_some() {
                return;
            }
            let Some((tag, operation)) = door.queue.pop_front() else {
                return;
            };
            self.keyspace.attend(self.options.loop_index);
            self.begin(now, door_number, tag, operation, answers);
        }
    }

    /// If operations wait for one that waits for the disk alone: lets the session go on, and keeps what the session would tell the client.
    fn hear_ahead(&mut self, now: Now, door_number: u64) {
        let Some(door) = self.doors.find(door_number) else {
            return;
        };
        let Some(Busy {
            tag,
            ask: Some(number),
        }) = door.busy
        else {
            return;
        };
        if door.queue.is_empty() {
            return;
        }
        let Some(ask) = self.asks.find(number).filter(|ask| ask.ahead.is_none()) else {
            return;
        };
        let id = RequestId::of_loop(self.options.loop_index, number);
        let may = |response: &_| door.session.may_hear_ahead(response);
        let Some((response, receipt)) = self.keyspace.hear_ahead(id, ask.server, may) else {
            return;
        };
        self.shared_state.learn(now.monotonic.since(ask.since), &receipt);
        let mut steps = self.spare_steps.pop().unwrap_or_default();
        let mut cx = self.shared_state.context(now, door.seen_from(), &mut steps);
        let outcome = Outcome::Answered(response, receipt);
        door.session
            .on_response(&mut cx, ask.tag, ask.part, ask.server, outcome);
        // If the session has more to ask for this operation, it goes on when the answer is durable.
        let answered =
            |step: &SessionStep<_>| matches!(step, SessionStep::Answer { tag: of, .. } if *of == tag);
        if steps.iter().any(answered) {
            door.busy = None;
        }
        ask.ahead = Some(steps);
    }

    /// Takes the messages to channels that have come. Whoever puts one in wakes the loop, so it is enough to look once in each of its turns, and not after each operation.
    fn take_publications(&mut self, now: Now, answers: &mut Answers) {
        let mut publications = Vec::new();
        self.keyspace
            .take_publications(self.options.loop_index, &mut publications);
        for publication in publications {
            self.on_publication(now, publication, answers);
        }
    }

    /// Hands delivered answers to the sessions.
    fn drain(&mut self, now: Now, answers: &mut Answers) {
        loop {
            // Answers in the mailbox belong to earlier questions than those that were answered at once.
            let mut taken = std::mem::take(&mut self.taken);
            self.keyspace.take_deliveries(self.options.loop_index, &mut taken);
            taken.append(&mut self.answered);
            let again = std::mem::take(&mut self.again);
            let probed = std::mem::take(&mut self.probed);
            let is_done = taken.is_empty() && again.is_empty() && probed.is_empty();
            for (probe, is_there) in probed {
                self.on_probed(now, probe, is_there, answers);
            }
            for door in again {
                self.attempt(now, door, answers);
                self.advance(now, door, answers);
            }
            for Delivery { id, answer } in taken.drain(..) {
                let Some(mut ask) = self.asks.remove(id.number()) else {
                    continue;
                };
                match answer {
                    Delivered::Response(outcome) => self.on_response(now, &mut ask, outcome, answers),
                    Delivered::Durable => self.on_durable(now, &mut ask, answers),
                    Delivered::Surveyed(surveyed) => self.on_surveyed(&ask, surveyed, answers),
                }
                self.advance(now, ask.door, answers);
            }
            self.taken = taken;
            if is_done {
                return;
            }
        }
    }

    fn on_response(
        &mut self,
        now: Now,
        ask: &mut Ask<S>,
        outcome: Outcome<<S::Protocol as Protocol>::Response>,
        answers: &mut Answers,
    ) {
        if let Outcome::Answered(_, receipt) = &outcome {
            self.shared_state.learn(now.monotonic.since(ask.since), receipt);
        }
        if ask.ahead.is_some() {
            // The session has the answer already, so this is a failure: it is not known whether the answer is durable.
            if let Some(failure) = outcome.into_failure() {
                self.answer(ask.door, ask.tag, Answer::Failed(failure), None, answers);
            }
            return;
        }
        let Some(door) = self.doors.find(ask.door) else {
            return;
        };
        let mut steps = std::mem::take(&mut self.steps);
        let mut cx = self.shared_state.context(now, door.seen_from(), &mut steps);
        door.session
            .on_response(&mut cx, ask.tag, ask.part, ask.server, outcome);
        self.perform(now, ask.door, &mut steps, answers);
        self.steps = steps;
    }

    /// The answer that a session has heard ahead is durable: what the session did then may be seen.
    fn on_durable(&mut self, now: Now, ask: &mut Ask<S>, answers: &mut Answers) {
        if let Some(mut steps) = ask.ahead.take() {
            self.perform(now, ask.door, &mut steps, answers);
            if self.spare_steps.len() < MAX_SPARE_STEPS {
                self.spare_steps.push(steps);
            }
        }
    }

    fn on_surveyed(&mut self, ask: &Ask<S>, surveyed: Result<Surveyed, String>, answers: &mut Answers) {
        let Some(door) = self.doors.find(ask.door) else {
            return;
        };
        let answer = match surveyed {
            Err(why) => Answer::Failed(Failure::Unavailable(why)),
            Ok(Surveyed::Count(keys)) => {
                let Some(count) = door.counts.get_mut(&ask.tag) else {
                    return;
                };
                count.keys += keys;
                count.missing -= 1;
                if count.missing > 0 {
                    return;
                }
                Answer::Count(count.keys)
            }
            Ok(Surveyed::Keys { cursor: 0, keys }) => {
                let next = self.keyspace.topology().slots_of(ask.server.partition).end;
                let cursor = if next < turnbuckle_core::HASH_SLOTS {
                    first_cursor_of(next)
                } else {
                    0
                };
                Answer::Keys { cursor, keys }
            }
            Ok(Surveyed::Keys { cursor, keys }) => Answer::Keys { cursor, keys },
        };
        door.counts.remove(&ask.tag);
        self.answer(ask.door, ask.tag, answer, None, answers);
    }
}

impl<S: Session> Doors<S> {
    /// A number that no other session has.
    pub(crate) fn random_session(&mut self) -> SessionId {
        SessionId(self.random.next_u64())
    }

    /// Removes a door that no client uses.
    pub(crate) fn forget(&mut self, door: u64) {
        self.doors.remove(door);
        self.probe_again.cancel(door);
        self.drop_asks(door);
    }

    /// Answers that are still on their way to a door will be dropped.
    fn drop_asks(&mut self, door: u64) {
        if self.asks.len() > 0 {
            for number in self.asks.numbers(|ask| ask.door == door) {
                self.asks.remove(number);
            }
        }
    }
}

/// The most buffers for steps that are kept to be used again.
const MAX_SPARE_STEPS: usize = 1_024;

fn overfull() -> Answer {
    Answer::Failed(Failure::Unavailable("too many operations are under way".into()))
}

impl<S: Session> AnyDoors for Doors<S> {
    fn name(&self) -> &str {
        self.keyspace.name()
    }

    fn levels(&self) -> KeyspaceLevels {
        self.levels
    }

    fn partitions(&self) -> u16 {
        self.keyspace.topology().partitions()
    }

    fn transactions(&self) -> Transactions {
        S::Protocol::DESCRIPTOR.transactions
    }

    fn look_ahead(&self, keys: &[&[u8]]) {
        self.keyspace.look_ahead(keys);
    }

    fn refusal(&self, operation: &Operation) -> Option<Failure> {
        S::Protocol::DESCRIPTOR.refusal(self.keyspace.name(), self.conditional, operation)
    }

    fn open(&mut self) -> u64 {
        let topology = self.keyspace.topology().clone();
        let number = self.random_session();
        let session = S::open(self.keyspace.protocol(), self.home, topology, number);
        self.doors
            .insert(Door::of(number, session, None))
            .expect("there are fewer connections than doors")
    }

    fn resume(&mut self, door: u64, token: &[u8]) -> Result<(), BadToken> {
        let state = self.header.open(&self.options.secret, token)?;
        self.doors
            .find(door)
            .map_or(Ok(()), |door| door.session.resume(state))
    }

    fn close(&mut self, door: u64) {
        let closed = self.doors.remove(door);
        if let Some(tag) = closed.and_then(|closed| closed.attempts.session_tag()) {
            self.limits.cancel((door, tag));
        }
        let waits = self.waits.range((door, 0)..=(door, u64::MAX));
        for asker in waits.map(|(&asker, _)| asker).collect::<Vec<_>>() {
            self.forget_wait(asker);
        }
        self.drop_asks(door);
    }

    fn operate(&mut self, now: Now, door_number: u64, tag: u64, operation: Operation, answers: &mut Answers) {
        let Some(door) = self.doors.find(door_number) else {
            return;
        };
        if door.busy.is_some() {
            // An operation behind waiting ones waits, too.
            let is_next = door.queue.is_empty();
            door.queue.push_back((tag, operation));
            if is_next {
                self.advance(now, door_number, answers);
            }
        } else {
            self.keyspace.attend(self.options.loop_index);
            self.begin(now, door_number, tag, operation, answers);
        }
        self.drain(now, answers);
    }

    fn collect(&mut self, now: Now, answers: &mut Answers) {
        self.take_publications(now, answers);
        self.drain(now, answers);
    }

    fn next_deadline(&self) -> Option<Micros> {
        let of_waits = [
            self.wait_ends.next(),
            self.probe_again.next(),
            self.messages.ends.next(),
        ];
        let next = [self.timers.next(), self.limits.next()]
            .into_iter()
            .chain(of_waits);
        next.flatten().min()
    }

    fn tick(&mut self, now: Now, answers: &mut Answers) {
        // Timers that are set while these fire are left for the next tick, even if they are due at once.
        let due = std::iter::from_fn(|| self.timers.take_due(now.monotonic));
        for (door_number, timer) in due.collect::<Vec<_>>() {
            let Some(door) = self.doors.find(door_number) else {
                continue;
            };
            self.keyspace.attend(self.options.loop_index);
            let mut steps = std::mem::take(&mut self.steps);
            let mut cx = self.shared_state.context(now, door.seen_from(), &mut steps);
            door.session.on_timer(&mut cx, timer);
            self.perform(now, door_number, &mut steps, answers);
            self.steps = steps;
            self.advance(now, door_number, answers);
        }
        while let Some((door_number, tag)) = self.limits.take_due(now.monotonic) {
            self.keyspace.attend(self.options.loop_index);
            self.give_up(now, door_number, tag, answers);
            self.advance(now, door_number, answers);
        }
        while let Some(asker) = self.wait_ends.take_due(now.monotonic) {
            self.keyspace.attend(self.options.loop_index);
            self.end_wait(now, asker, answers);
        }
        while let Some(message) = self.messages.ends.take_due(now.monotonic) {
            self.give_up_message(message);
        }
        while let Some(probe) = self.probe_again.take_due(now.monotonic) {
            self.keyspace.attend(self.options.loop_index);
            self.ask_probe(now, probe, answers);
        }
        self.drain(now, answers);
    }

    fn expire(&mut self, now: Now, answers: &mut Answers) {
        if self.asks.len() == 0 {
            return;
        }
        let late = self
            .asks
            .numbers(|ask| ask.since + self.options.deadline <= now.monotonic);
        if late.is_empty() {
            return;
        }
        for number in late {
            let Some(mut ask) = self.asks.remove(number) else {
                continue;
            };
            let why = format!(
                "no answer from server {} within {}",
                ask.server, self.options.deadline
            );
            match ask.is_survey {
                true => self.on_surveyed(&ask, Err(why), answers),
                false => self.on_response(now, &mut ask, Outcome::Lost(why), answers),
            }
            self.advance(now, ask.door, answers);
        }
        self.drain(now, answers);
    }

    fn token(&mut self, door: u64) -> Bytes {
        let mut state = BytesMut::new();
        if let Some(door) = self.doors.find(door) {
            door.session.token(&mut state);
        }
        self.header.seal(&self.options.secret, &state)
    }

    fn seal_context(&self, key: &Key, context: &Vector) -> Bytes {
        self.header.seal_context(&self.options.secret, key, context)
    }

    fn open_context(&self, key: &Key, sealed: &[u8]) -> Option<Vector> {
        self.header.open_context(&self.options.secret, key, sealed)
    }

    fn open_asks(&self) -> usize {
        self.asks.len()
    }

    fn listen(&mut self, hears: Hears) {
        self.messages.hears = Some(hears);
    }

    fn take_heard(&mut self, into: &mut Vec<Arc<Publication>>) {
        into.append(&mut self.messages.heard);
    }

    fn lost_messages(&self) -> u64 {
        self.messages.lost
    }
}
