//! A replica: its part in the group, the writes that it has proposed, and the reads that wait.
use crate::change::{Change, Index};
use crate::config::{BUGS, DacianConfig, PARAMETERS};
use crate::message::{self, Body, Message};
use crate::request::{Outcome, Request, Response};
use bytes::Bytes;
use std::collections::BTreeMap;
use turnbuckle_core::{
    Bug, Context, Descriptor, Key, Level, Metric, Micros, Now, Parameter, PlainRequest, PlainResponse,
    Protocol, Reading, Receipt, Recovered, ReplicaId, Replication, RequestId, ServerId, Topology, VersionId,
    Vitals,
};
use turnbuckle_raft::{Group, Proposed, RaftMessage, Role};

/// One replica of one partition.
pub struct Dacian {
    config: DacianConfig,
    group: Group,
    /// Everything up to this index is applied here.
    applied: u64,
    /// Whether the next committed entry waits for its key to be in memory.
    is_fetching: bool,
    /// Whether [`Timer::Flush`] is set.
    is_flushing: bool,
    /// Whether this replica led when it last looked.
    leads: bool,
    /// The operations that clients wait for, by the index of their entries.
    proposed: BTreeMap<u64, Waiting>,
    /// What entries that are not applied will put, as far as this replica has proposed them: the last one of each key.
    ahead: BTreeMap<Key, Ahead>,
    /// Reads that want to know what is committed. The next question to the leader, or the next round, is for them.
    unconfirmed: Vec<Reader>,
    /// The question or the round under way, and the reads that it is for.
    asking: Option<Asking>,
    /// The number of the last question.
    questions: u64,
    /// What is known of the freshness of this replica.
    fresh: Option<Fresh>,
    /// What other replicas have sent and no sound replica would have.
    faults: u64,
    elections: u64,
    redirected: u64,
    given_up: u64,
}

/// A client that waits for the operation that an entry stands for.
struct Waiting {
    id: RequestId,
    term: u64,
    since: Micros,
}

/// What a key will have when an entry is applied.
struct Ahead {
    index: u64,
    id: VersionId,
    has_value: bool,
}

/// Who wants to know what is committed.
enum Reader {
    /// A request to this replica, and when it came.
    Here(RequestId, Request, Micros),
    /// Another replica, with its number for the question.
    Elsewhere(ServerId, u64),
}

/// A question to the leader, or the leader's round.
struct Asking {
    number: u64,
    /// When it left.
    departed: Micros,
    /// The leader that was asked; `None` if this is the leader's own round.
    leader: Option<ReplicaId>,
    /// The term of the round.
    term: u64,
    readers: Vec<Reader>,
}

/// Everything that was acknowledged before a question left has at most this index.
#[derive(Debug, Clone, Copy)]
struct Fresh {
    departed: Micros,
    index: u64,
}

/// When to wake up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// When to count a tick of the group.
    Tick,
    /// When to send what the inputs of this turn have made necessary, together.
    Flush,
    /// When the key of the next committed entry is in memory.
    Apply,
}

/// What requests wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// The index up to which entries are applied.
    Applied,
}

type Cx<'a> = Context<'a, Dacian>;

impl Protocol for Dacian {
    type Config = DacianConfig;
    type Request = Request;
    type Response = Response;
    type Message = Message;
    type Timer = Timer;
    type Meta = Index;
    type Line = Line;

    const DESCRIPTOR: Descriptor = Descriptor {
        tolerates_clock_steps: true,
        ..Descriptor::of(Replication::Majority)
    };
    const PARAMETERS: &'static [Parameter<DacianConfig>] = PARAMETERS;

    const BUGS: &'static [Bug] = BUGS;

    const METRICS: &'static [Metric<Dacian>] = &[
        Metric::new("raft_term", "The highest term of a group.", |replica, _| {
            Reading::Highest(replica.group.term())
        }),
        Metric::new(
            "raft_elections_total",
            "How often a replica here was elected as the leader of its group.",
            |replica, _| Reading::Count(replica.elections),
        ),
        Metric::new(
            "raft_entries_to_apply",
            "Entries that are committed and not applied here.",
            |replica, _| Reading::Count(replica.group.committed().saturating_sub(replica.applied)),
        ),
        Metric::new(
            "raft_proposals_under_way",
            "Operations that wait for their entries to be committed and applied.",
            |replica, _| Reading::Count(replica.proposed.len() as u64),
        ),
        Metric::new(
            "raft_faulty_messages_total",
            "Messages that no sound replica would have sent. They were dropped.",
            |replica, _| Reading::Count(replica.faults),
        ),
        Metric::new(
            "reads_redirected_total",
            "Reads that went to the leader because the replica here was behind what they needed.",
            |replica, _| Reading::Count(replica.redirected),
        ),
        Metric::new(
            "operations_given_up_total",
            "Operations that failed because no leader or no majority of the replicas was reached in time.",
            |replica, _| Reading::Count(replica.given_up),
        ),
    ];

    fn plant(config: &mut DacianConfig, bug: &str) -> bool {
        config.bugs.named(bug).map(|planted| *planted = true).is_some()
    }

    fn open(
        config: &DacianConfig,
        me: ServerId,
        topology: Topology,
        recovered: &Recovered,
        seed: u64,
    ) -> Dacian {
        let voters = topology.replicas_of(me.partition);
        let group = Group::open(
            config.timing(),
            config.bugs.raft,
            me.replica(),
            voters,
            recovered,
            seed,
        );
        Dacian {
            config: config.clone(),
            applied: group.committed(),
            group,
            is_fetching: false,
            is_flushing: false,
            leads: false,
            proposed: BTreeMap::new(),
            ahead: BTreeMap::new(),
            unconfirmed: Vec::new(),
            asking: None,
            // An answer to a question of an earlier life answers none of this one.
            questions: seed >> 1,
            fresh: None,
            faults: 0,
            elections: 0,
            redirected: 0,
            given_up: 0,
        }
    }

    fn keys(&self, request: &Request, each: &mut dyn FnMut(&Key)) {
        each(request.operation.key());
    }

    fn is_write(request: &Request) -> bool {
        request.operation.is_write()
    }

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        self.group.start(now);
        cx.advance(Line::Applied, self.applied);
        cx.set_timer(Timer::Tick, self.config.timing().until_tick(now));
    }

    fn on_request(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        if self.group.broken().is_some() {
            // Other replicas can carry it out.
            let outcome = match request.operation.is_write() {
                true => Outcome::NotLeader(None),
                false => Outcome::Behind(None),
            };
            return self.reply(cx, id, request.operation.level(), outcome);
        }
        match &request.operation {
            PlainRequest::Put(..) => self.write(cx, id, request),
            PlainRequest::Get(_, level) => match *level {
                _ if request.is_confirmed => self.answer(cx, id, request, Some(Micros(0))),
                Level::Linearizable => self.confirm(cx, Reader::Here(id, request, cx.now.monotonic)),
                Level::Bounded(bound) => match self.staleness(cx.now.monotonic) {
                    Some(staleness) if staleness <= bound => self.answer(cx, id, request, Some(staleness)),
                    _ => self.confirm(cx, Reader::Here(id, request, cx.now.monotonic)),
                },
                _ if request.index <= self.applied || self.config.bugs.ignores_seen => {
                    let staleness = self.staleness(cx.now.monotonic);
                    self.answer(cx, id, request, staleness);
                }
                _ => {
                    let wait = match self.group.role() {
                        Role::Leader => self.config.patience,
                        Role::Follower | Role::Candidate => self.config.redirect,
                    };
                    let deadline = cx.now.monotonic + wait;
                    cx.wait(Line::Applied, request.index, deadline, id, request);
                }
            },
            PlainRequest::Siblings(_, level) => {
                let why = "a consensus keyspace keeps no siblings".to_string();
                self.refuse(cx, id, *level, why);
            }
        }
    }

    fn on_deadline(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let level = request.operation.level();
        if request.is_confirmed || self.group.role() == Role::Leader {
            let why = format!(
                "the replica has applied {} of {} entries that the read must reflect",
                self.applied, request.index
            );
            self.given_up += 1;
            return self.refuse(cx, id, level, why);
        }
        self.redirected += 1;
        self.reply(cx, id, level, Outcome::Behind(self.group.leader()));
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, from: ServerId, message: Message) {
        match message.body {
            Some(Body::Raft(message)) => self.on_raft(cx, from, message),
            Some(Body::AskIndex(number)) if self.group.role() == Role::Leader => {
                self.confirm(cx, Reader::Elsewhere(from, number));
            }
            Some(Body::Index(found)) => {
                let answers = |asking: &mut Asking| {
                    asking.number == found.number && asking.leader == Some(from.replica())
                };
                if let Some(asking) = self.asking.take_if(answers) {
                    self.on_confirmed(cx, asking, found.index);
                }
            }
            // Whoever does not lead does not know. The asker asks again.
            Some(Body::AskIndex(_)) | None => {}
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>, timer: Timer) {
        match timer {
            Timer::Tick => {
                self.group.tick(cx.now.monotonic);
                self.give_up(cx);
                self.handle_ready(cx);
                self.ask_again(cx);
                let timing = self.config.timing();
                cx.set_timer(Timer::Tick, timing.until_tick(cx.now.monotonic));
            }
            Timer::Flush => {
                self.is_flushing = false;
                self.ask(cx);
                self.group.tell();
                self.handle_ready(cx);
            }
            Timer::Apply => {
                self.is_fetching = false;
                self.apply(cx);
                self.handle_ready(cx);
            }
        }
    }

    fn on_link(&mut self, cx: &mut Cx<'_>, peer: ServerId, up: bool) {
        if !up && cx.others().contains(peer.replica()) {
            self.group.lose(peer.replica());
            // It asks again over a new link.
            let is_its = |reader: &Reader| matches!(reader, Reader::Elsewhere(from, _) if *from == peer);
            self.unconfirmed.retain(|reader| !is_its(reader));
            if let Some(asking) = &mut self.asking {
                asking.readers.retain(|reader| !is_its(reader));
            }
            self.handle_ready(cx);
        }
    }

    fn vitals(&self, _: Now) -> Vitals {
        let reads = self.unconfirmed.len() + self.asking.as_ref().map_or(0, |asking| asking.readers.len());
        Vitals {
            under_way: (self.proposed.len() + reads) as u64,
            is_outdated: self.group.broken().is_some(),
            ..Vitals::default()
        }
    }

    fn validate(&self) {
        self.group.validate();
        let waits_for_applied = self.proposed.range(..=self.applied).next();
        assert!(
            waits_for_applied.is_none(),
            "a client waits for entry {:?}, and {} are applied",
            waits_for_applied.map(|(index, _)| index),
            self.applied
        );
        for (key, ahead) in &self.ahead {
            let is_ahead = ahead.index > self.applied;
            assert!(is_ahead, "entry {} of {key} is applied", ahead.index);
        }
    }
}

impl Dacian {
    // ---- the group --------------------------------------------------------------------------------------------

    fn on_raft(&mut self, cx: &mut Cx<'_>, from: ServerId, message: RaftMessage) {
        // Without room nothing is stored. The leader sends it again.
        if message.has_entries() && !cx.has_room() {
            return;
        }
        if self
            .group
            .hear(cx.now.monotonic, from.replica(), message)
            .is_err()
        {
            self.faults += 1;
        }
        self.handle_ready(cx);
    }

    /// Hands on what the group wants, and applies what is committed.
    fn handle_ready(&mut self, cx: &mut Cx<'_>) {
        let ended = self.group.handle_ready(cx);
        for round in ended {
            let is_it = |asking: &mut Asking| asking.leader.is_none() && asking.number == round.number;
            if let Some(asking) = self.asking.take_if(is_it) {
                self.on_confirmed(cx, asking, round.index);
            }
        }
        self.follow_role(cx);
        self.apply_soon(cx);
        let has_readers = !self.unconfirmed.is_empty() && self.asking.is_none();
        if self.group.has_news() || has_readers && self.may_ask(cx) {
            self.flush_soon(cx);
        }
    }

    /// This replica may have been elected, or another one.
    fn follow_role(&mut self, cx: &mut Cx<'_>) {
        let leads = self.group.role() == Role::Leader;
        if leads == self.leads {
            return;
        }
        self.leads = leads;
        self.ahead.clear();
        if !leads {
            return;
        }
        self.elections += 1;
        // Whatever is in the log may be committed: new versions are above it.
        cx.observe(self.group.newest());
        for entry in self.group.entries(self.applied + 1) {
            if let Ok(change) = Change::decode(entry.data) {
                note_ahead(&mut self.ahead, entry.at.index, &change);
            }
        }
    }

    /// Applies the next committed entries: those that need no key at once, and the first that does as soon as its key is in memory. One key at a time, because there may
    /// be no room for more.
    fn apply_soon(&mut self, cx: &mut Cx<'_>) {
        while !self.is_fetching {
            let Some(entry) = self.group.next_committed() else {
                return;
            };
            let change = Change::decode(entry.data.clone()).ok();
            match change.filter(|change| change.puts) {
                Some(change) => {
                    self.is_fetching = true;
                    cx.when_resident(vec![change.key()], Timer::Apply);
                }
                None => self.apply(cx),
            }
        }
    }

    /// Applies the next committed entry. Its key is in memory.
    fn apply(&mut self, cx: &mut Cx<'_>) {
        let Some(entry) = self.group.take_committed() else {
            return;
        };
        self.applied = entry.at.index;
        self.apply_one(cx, entry.at, entry.data);
        self.group.applied(cx, entry.at);
        cx.advance(Line::Applied, entry.at.index);
    }

    fn apply_one(&mut self, cx: &mut Cx<'_>, at: Proposed, data: Bytes) {
        let waiting = self.proposed.remove(&at.index);
        let change = match Change::decode(data.clone()) {
            Ok(change) if !data.is_empty() => change,
            // A new leader's own entry.
            _ => {
                if let Some(waiting) = waiting {
                    self.lost_its_place(cx, waiting);
                }
                return;
            }
        };
        // The answer needs the entry on disk, and not its effect here: that can be applied again.
        match waiting {
            Some(waiting) if waiting.term == at.term => {
                self.reply_written(
                    cx,
                    waiting.id,
                    waiting.since,
                    at.index,
                    change.id(),
                    change.existed,
                );
            }
            Some(waiting) => self.lost_its_place(cx, waiting),
            None => {}
        }
        let key = change.key();
        if self.ahead.get(&key).is_some_and(|ahead| ahead.index <= at.index) {
            self.ahead.remove(&key);
        }
        if let Some(version) = change.into_version(at.index) {
            cx.put(key, version);
        }
    }

    /// Another leader's entry is where this replica has proposed one. So that one will never be committed.
    fn lost_its_place(&mut self, cx: &mut Cx<'_>, waiting: Waiting) {
        let outcome = Outcome::NotLeader(self.group.leader());
        self.reply(cx, waiting.id, Level::Linearizable, outcome);
    }

    // ---- writes -----------------------------------------------------------------------------------------------

    fn write(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        let level = request.operation.level();
        if request.is_repeated {
            // What was proposed in this turn is not in the log before.
            self.handle_ready(cx);
        }
        if self.group.role() != Role::Leader {
            let leader = self.group.leader().filter(|&leader| leader != cx.me.replica());
            return self.reply(cx, id, level, Outcome::NotLeader(leader));
        }
        if request.is_repeated
            && !self.config.bugs.writes_twice
            && let Some((at, change)) = self.find(&request)
        {
            return self.attach(cx, id, at, change);
        }
        let PlainRequest::Put(key, value, ..) = request.operation else {
            return;
        };
        let (found, existed) = match self.ahead.get(&key) {
            Some(ahead) => (Some(ahead.id), ahead.has_value),
            None => match cx.chain(&key).map(|chain| chain.newest()) {
                Some(newest) => (Some(newest.id), newest.value.is_some()),
                None => (None, false),
            },
        };
        // A delete that finds nothing puts nothing. It has a place in the order all the same.
        let change = match value.is_some() || existed {
            true => {
                let version = VersionId {
                    at: cx.stamp(),
                    replica: cx.me.replica(),
                };
                Change::put(request.by, &key, existed, version, value)
            }
            false => Change::nothing(request.by, &key, found),
        };
        let stamped = change.id().filter(|_| change.puts);
        let newest = stamped.map(|version| version.at).unwrap_or_default();
        let Some(at) = self.group.propose(newest, change.encode()) else {
            let why = "too many writes wait for a majority of the replicas".to_string();
            return self.refuse(cx, id, level, why);
        };
        note_ahead(&mut self.ahead, at.index, &change);
        self.wait_for(cx, at, id);
        self.flush_soon(cx);
    }

    /// A client waits for an entry.
    fn wait_for(&mut self, cx: &mut Cx<'_>, at: Proposed, id: RequestId) {
        let waiting = Waiting {
            id,
            term: at.term,
            since: cx.now.monotonic,
        };
        if let Some(before) = self.proposed.insert(at.index, waiting) {
            // Its session has asked again; or its entry was replaced here, and another replica may still have it.
            let why = "the replica waits for another entry at its place".to_string();
            let outcome = Outcome::Answered(PlainResponse::Unknown(why));
            self.reply(cx, before.id, Level::Linearizable, outcome);
        }
    }

    /// The entry of an operation that is asked for again.
    fn find(&self, request: &Request) -> Option<(Proposed, Change)> {
        let entries = self.group.entries(request.index + 1).rev();
        let mut changes = entries.filter_map(|entry| Some((entry.at, Change::decode(entry.data).ok()?)));
        changes.find(|(_, change)| change.by() == request.by)
    }

    /// The client waits for an entry that is there already.
    fn attach(&mut self, cx: &mut Cx<'_>, id: RequestId, at: Proposed, change: Change) {
        if at.index <= self.applied {
            let since = cx.now.monotonic;
            return self.reply_written(cx, id, since, at.index, change.id(), change.existed);
        }
        self.wait_for(cx, at, id);
    }

    // ---- reads ------------------------------------------------------------------------------------------------

    /// How stale this replica is, as far as it can prove that by itself.
    fn staleness(&self, now: Micros) -> Option<Micros> {
        if self.group.has_lease(now) && self.group.committed() <= self.applied {
            return Some(Micros(0));
        }
        let fresh = self.fresh.filter(|fresh| fresh.index <= self.applied)?;
        Some(now.since(fresh.departed))
    }

    /// A reader wants to know which index reflects everything that was acknowledged before now.
    fn confirm(&mut self, cx: &mut Cx<'_>, reader: Reader) {
        if self.group.has_lease(cx.now.monotonic) {
            let index = self.group.committed();
            return self.go_on_reading(cx, reader, index);
        }
        if let Reader::Elsewhere(from, _) = reader {
            // It waits for its last question only.
            let is_same = |other: &Reader| matches!(other, Reader::Elsewhere(other, _) if *other == from);
            self.unconfirmed.retain(|other| !is_same(other));
        }
        self.unconfirmed.push(reader);
        self.flush_soon(cx);
    }

    /// Begins a round, or asks the leader, for all readers that wait.
    fn ask(&mut self, cx: &mut Cx<'_>) {
        if self.unconfirmed.is_empty() || self.asking.is_some() {
            return;
        }
        let now = cx.now.monotonic;
        let (number, leader) = match (self.group.role(), self.group.leader()) {
            (Role::Leader, _) => match self.group.begin_round(now) {
                Some(round) => (round, None),
                // It begins once an entry of this term is committed.
                None => return,
            },
            (_, Some(leader)) if cx.others().contains(leader) => {
                self.questions += 1;
                cx.send(cx.me.peer(leader), Body::AskIndex(self.questions).into());
                (self.questions, Some(leader))
            }
            _ => return,
        };
        self.asking = Some(Asking {
            number,
            departed: now,
            leader,
            term: self.group.term(),
            readers: std::mem::take(&mut self.unconfirmed),
        });
    }

    /// Whether there is a leader that knows what is committed, or may know it.
    fn may_ask(&self, cx: &Cx<'_>) -> bool {
        match self.group.leader() {
            Some(leader) if leader == cx.me.replica() => self.group.knows_committed(),
            leader => leader.is_some(),
        }
    }

    /// Asks again for the readers of a question or round that will not be answered.
    fn ask_again(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        let (term, leader) = (self.group.term(), self.group.leader());
        let leads = self.group.role() == Role::Leader;
        // The question or the answer may be lost.
        let wait = self.config.election.min(Micros(self.config.patience.0 / 2));
        let is_over = |asking: &mut Asking| match asking.leader {
            None => !leads || asking.term != term,
            Some(asked) => leader != Some(asked) || now >= asking.departed + wait,
        };
        if let Some(asking) = self.asking.take_if(is_over) {
            self.unconfirmed.extend(asking.readers);
        }
        if !leads {
            // Another leader is asked for what these want to know.
            self.unconfirmed
                .retain(|reader| matches!(reader, Reader::Here(..)));
        }
        if !self.unconfirmed.is_empty() && self.asking.is_none() {
            self.flush_soon(cx);
        }
    }

    fn on_confirmed(&mut self, cx: &mut Cx<'_>, asking: Asking, index: u64) {
        if self.fresh.is_none_or(|fresh| fresh.departed < asking.departed) {
            let departed = match self.config.bugs.stamps_at_arrival {
                true => cx.now.monotonic,
                false => asking.departed,
            };
            self.fresh = Some(Fresh { departed, index });
        }
        for reader in asking.readers {
            self.go_on_reading(cx, reader, index);
        }
    }

    fn go_on_reading(&mut self, cx: &mut Cx<'_>, reader: Reader, index: u64) {
        match reader {
            Reader::Here(id, mut request, since) => {
                request.is_confirmed = true;
                request.index = index;
                let deadline = since + self.config.patience;
                match index <= self.applied {
                    true => cx.run_again(id, request),
                    false => cx.wait(Line::Applied, index, deadline, id, request),
                }
            }
            Reader::Elsewhere(from, number) => {
                cx.send(from, Body::Index(message::Index { number, index }).into());
            }
        }
    }

    // ---- answers ----------------------------------------------------------------------------------------------

    fn answer(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request, staleness: Option<Micros>) {
        let newest = cx.chain(request.operation.key()).map(|chain| chain.newest());
        let (version, value) = match newest {
            Some(newest) => (Some(newest.id), newest.value.clone()),
            None => (None, None),
        };
        // After a full copy a row may be newer than what is applied.
        let index = self.applied.max(newest.map_or(0, |newest| newest.meta.0));
        let receipt = Receipt {
            staleness,
            clock_bound: Micros(0),
            ..cx.receipt(request.operation.level(), version)
        };
        let outcome = Outcome::Answered(PlainResponse::Value(value));
        cx.reply(id, Response { outcome, index }, receipt);
    }

    fn reply_written(
        &self,
        cx: &mut Cx<'_>,
        id: RequestId,
        since: Micros,
        index: u64,
        version: Option<VersionId>,
        existed: bool,
    ) {
        let receipt = Receipt {
            staleness: Some(Micros(0)),
            clock_bound: Micros(0),
            waited: cx.now.monotonic.since(since),
            ..cx.receipt(Level::Linearizable, version)
        };
        let outcome = Outcome::Answered(PlainResponse::Written { existed });
        cx.reply(id, Response { outcome, index }, receipt);
    }

    fn reply(&self, cx: &mut Cx<'_>, id: RequestId, level: Level, outcome: Outcome) {
        let index = self.applied;
        let receipt = cx.receipt(level, None);
        cx.reply(id, Response { outcome, index }, receipt);
    }

    fn refuse(&self, cx: &mut Cx<'_>, id: RequestId, level: Level, why: String) {
        self.reply(cx, id, level, Outcome::Answered(PlainResponse::Refused(why)));
    }

    /// Gives up what has waited for too long.
    fn give_up(&mut self, cx: &mut Cx<'_>) {
        let (now, patience) = (cx.now.monotonic, self.config.patience);
        let late: Vec<u64> = self
            .proposed
            .iter()
            .filter(|(_, waiting)| now >= waiting.since + patience)
            .map(|(&index, _)| index)
            .collect();
        for index in late {
            let Some(waiting) = self.proposed.remove(&index) else {
                continue;
            };
            self.given_up += 1;
            let why = "no majority of the replicas was reached in time".to_string();
            let outcome = Outcome::Answered(PlainResponse::Unknown(why));
            self.reply(cx, waiting.id, Level::Linearizable, outcome);
        }
        let mut late = Vec::new();
        let mut is_late = |reader: &mut Reader| match reader {
            Reader::Here(id, request, since) if now >= *since + patience => {
                late.push((*id, request.operation.level()));
                true
            }
            _ => false,
        };
        self.unconfirmed.retain_mut(|reader| !is_late(reader));
        if let Some(asking) = &mut self.asking {
            asking.readers.retain_mut(|reader| !is_late(reader));
        }
        for (id, level) in late {
            self.given_up += 1;
            let why = match self.group.leader() {
                Some(_) => "the leader could not confirm in time what is committed",
                None => "the partition has no leader: no majority of its replicas reaches each other",
            };
            self.refuse(cx, id, level, why.to_string());
        }
    }

    /// What the inputs of this turn ask for is done together, once.
    fn flush_soon(&mut self, cx: &mut Cx<'_>) {
        if !std::mem::replace(&mut self.is_flushing, true) {
            cx.set_timer(Timer::Flush, Micros(0));
        }
    }
}

/// The leader takes note of what an entry will put.
fn note_ahead(ahead: &mut BTreeMap<Key, Ahead>, index: u64, change: &Change) {
    if let (true, Some(id)) = (change.puts, change.id()) {
        let has_value = change.leaves_value();
        ahead.insert(change.key(), Ahead { index, id, has_value });
    }
}
