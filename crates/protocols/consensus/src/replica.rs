//! A replica: its part in the group, the writes that it has proposed, and the reads that wait.
use crate::change::{Change, Index};
use crate::config::{BUGS, DacianConfig, PARAMETERS};
use crate::expiry::LastProposed;
use crate::message::{Body, Message};
use crate::reads::Fresh;
use crate::request::{Outcome, Request, Response, Work};
use crate::writes::{Ahead, note_ahead};
use bytes::Bytes;
use std::collections::BTreeMap;
use turnbuckle_core::{
    Applied, Basis, Bug, Completeness, ConsensusProof, Context, Descriptor, GroupStatus, Hlc, Key, Level,
    Metric, Micros, Misfit, Now, Parameter, PlainRequest, PlainResponse, Proof, Protocol, Reading, Recovered,
    ReplicaId, ReplicaSet, Replication, RequestId, ServerId, Topology, Transactions, Vitals, Wish,
};
use turnbuckle_raft::applying::{Fetching, Next};
use turnbuckle_raft::waiting::{self, Waiting};
use turnbuckle_raft::{Group, RaftMessage, Role, Sessions};

/// The name of [`Dacian::floor`] beside the journal.
const FLOOR: &str = "dacian.floor";

fn floor_of(recovered: &Recovered) -> u64 {
    let floor = recovered.named.get(FLOOR);
    floor
        .and_then(|bytes| bytes[..].try_into().ok())
        .map_or(0, u64::from_be_bytes)
}

/// One replica of one partition.
pub struct Dacian {
    pub(crate) config: DacianConfig,
    pub(crate) group: Group,
    /// Everything up to this index is applied here.
    pub(crate) applied: u64,
    /// The next committed entry, if it waits for its keys to be in memory.
    fetching: Fetching<Change>,
    /// Rows may have the effects of entries up to here, because a full copy brought them. Until they are applied, a read could show one key as of later than another.
    pub(crate) floor: u64,
    /// Whether [`Timer::Flush`] is set.
    is_flushing: bool,
    /// Whether this replica led when it last looked.
    leads: bool,
    /// The operations that clients wait for, by the index of their entries.
    pub(crate) waiting: Waiting,
    /// What entries that are not applied will put, as far as this replica has proposed them: the last one of each key.
    pub(crate) ahead: BTreeMap<Key, Ahead>,
    /// If it leads: the newest write of each session in its log.
    pub(crate) sessions: Sessions,
    /// If it leads: the last entry that it has proposed.
    pub(crate) last_proposed: Option<LastProposed>,
    /// Reads that want to know what is committed. The next question to the leader, or the next round, is for them.
    pub(crate) unconfirmed: Vec<Reader>,
    /// The question or the round under way, and the reads that it is for.
    pub(crate) asking: Option<Asking>,
    /// Whether a read was answered by the lease since the last tick.
    pub(crate) is_lease_used: bool,
    /// The number of the last question.
    pub(crate) questions: u64,
    /// What is known of the freshness of this replica.
    pub(crate) fresh: Option<Fresh>,
    /// What other replicas have sent and no sound replica would have.
    faults: u64,
    elections: u64,
    pub(crate) redirected: u64,
    pub(crate) given_up: u64,
}

/// Who wants to know what is committed.
pub(crate) enum Reader {
    /// A request to this replica, and when it came.
    Here(RequestId, Request, Micros),
    /// Another replica, with its number for the question.
    Elsewhere(ServerId, u64),
}

/// A question to the leader, or the leader's round.
pub(crate) struct Asking {
    pub number: u64,
    /// When it left first.
    pub departed: Micros,
    /// When it left last.
    pub repeated: Micros,
    /// The leader that was asked; `None` if this is the leader's own round.
    pub leader: Option<ReplicaId>,
    /// The term of the round.
    pub term: u64,
    pub readers: Vec<Reader>,
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

pub(crate) type Cx<'a> = Context<'a, Dacian>;

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
        takes_conditions: true,
        computes: true,
        transactions: Transactions::All,
        takes_expiry: true,
        ..Descriptor::of(Replication::Consensus)
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
        Metric::new("raft_groups_led", "Groups whose leader is here.", |replica, _| {
            Reading::Count(u64::from(replica.group.role() == Role::Leader))
        }),
        Metric::new(
            "raft_groups_without_leader",
            "Groups whose replica here takes part and knows no leader.",
            |replica, _| Reading::Count(u64::from(replica.group.lacks_leader())),
        ),
        Metric::new(
            "raft_entries_to_apply",
            "Entries that are committed and not applied here.",
            |replica, _| Reading::Count(replica.group.committed().saturating_sub(replica.applied)),
        ),
        Metric::new(
            "raft_proposals_under_way",
            "Operations that wait for their entries to be committed and applied.",
            |replica, _| Reading::Count(replica.waiting.count()),
        ),
        Metric::new(
            "raft_log_entries",
            "Entries that are kept in memory and on disk, applied or not.",
            |replica, _| Reading::Count(replica.group.last() + 1 - replica.group.first()),
        ),
        Metric::new(
            "raft_replicas_without_memory",
            "Replicas here that have lost their directory, and that do not know yet what they had promised.",
            |replica, _| Reading::Count(u64::from(!replica.group.knows_its_promises())),
        ),
        Metric::new(
            "raft_faulty_messages_total",
            "Messages that no sound replica would have sent. They were dropped.",
            |replica, _| Reading::Count(replica.faults),
        ),
        Metric::new(
            "raft_reads_redirected_total",
            "Reads that went to the leader because the replica here was behind what they needed.",
            |replica, _| Reading::Count(replica.redirected),
        ),
        Metric::new(
            "raft_given_up_total",
            "Operations that failed because no leader or no majority of the replicas was reached in time.",
            |replica, _| Reading::Count(replica.given_up),
        ),
    ];

    fn check(config: &DacianConfig) -> Result<(), Misfit> {
        config.timing.check()
    }

    fn shrink(config: &mut DacianConfig, by: u32) {
        config.log_entries = (config.log_entries / by as usize).max(1);
    }

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
            config.timing,
            config.bugs.raft,
            me.replica(),
            voters,
            me.partition.into(),
            recovered,
            seed,
        );
        Dacian {
            config: config.clone(),
            is_lease_used: false,
            applied: group.applied().index,
            group,
            fetching: Fetching::NONE,
            floor: floor_of(recovered),
            is_flushing: false,
            leads: false,
            waiting: Waiting::default(),
            ahead: BTreeMap::new(),
            sessions: Sessions::default(),
            last_proposed: None,
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
        request.work.keys().for_each(each);
    }

    fn is_write(request: &Request) -> bool {
        request.work.is_write()
    }

    fn on_start(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.monotonic;
        self.group.start(now);
        cx.advance(Line::Applied, self.applied);
        cx.set_timer(Timer::Tick, self.config.timing.until_tick(now));
    }

    fn on_request(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        if self.group.broken().is_some() || !self.group.is_member() {
            // Other replicas can carry it out.
            let outcome = match request.work.is_write() {
                true => Outcome::NotLeader(None),
                false => Outcome::Behind(None),
            };
            return self.reply(cx, id, request.work.level(), outcome);
        }
        match &request.work {
            Work::Many(_) | Work::One(PlainRequest::Put(..)) => self.write(cx, id, request),
            Work::One(PlainRequest::Get(..)) => self.read(cx, id, request),
            Work::One(PlainRequest::Siblings(_, level)) => {
                let why = "a consensus keyspace keeps no siblings".to_string();
                self.refuse(cx, id, *level, why);
            }
        }
    }

    fn on_deadline(&mut self, cx: &mut Cx<'_>, id: RequestId, request: Request) {
        self.is_behind(cx, id, request);
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, from: ServerId, message: Message) {
        if from.partition != cx.me.partition || !cx.others().contains(from.replica()) {
            self.faults += 1;
            return;
        }
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
            Some(Body::AskToLead(())) => {
                self.group.let_lead(cx.now.monotonic, from.replica());
                self.handle_ready(cx);
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
                self.renew_lease(cx);
                self.break_silence(cx);
                self.handle_ready(cx);
                self.ask_again(cx);
                let timing = self.config.timing;
                cx.set_timer(Timer::Tick, timing.until_tick(cx.now.monotonic));
            }
            Timer::Flush => {
                self.is_flushing = false;
                self.ask(cx);
                self.group.tell();
                self.handle_ready(cx);
            }
            Timer::Apply => {
                if let Some(change) = self.fetching.take(&self.group) {
                    self.apply(cx, Some(change));
                }
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

    // ---- full copies ------------------------------------------------------------------------------------------

    /// All leaders' stamps are in the order of the entries. So what is applied is everything up to the newest stamp in it.
    fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        let until = self.group.applied_until();
        self.group
            .replicas()
            .iter()
            .map(|replica| (replica, until))
            .collect()
    }

    fn applied(&self) -> Applied {
        self.group.applied()
    }

    fn on_copying(&mut self, cx: &mut Cx<'_>, _: ServerId, copied: &Recovered) {
        let until = copied.applied.map_or(0, |applied| applied.index);
        if until > self.floor {
            self.floor = until;
            cx.put_named(FLOOR, Bytes::copy_from_slice(&until.to_be_bytes()));
        }
    }

    fn on_copied(&mut self, cx: &mut Cx<'_>, _: ServerId, copied: &Recovered) {
        if self.group.restore(cx, copied) {
            self.applied = self.group.committed();
            for client in self.waiting.take_until(self.applied) {
                self.leave_open(cx, client, waiting::MISSED);
            }
            cx.advance(Line::Applied, self.applied);
        }
        self.handle_ready(cx);
    }

    /// What is applied, and kept as applied, is not applied again after a restart. So nothing can bring back what a delete among it has deleted. Entries up to a full copy may be applied again, and
    /// until then no session reads here (`floor`). All readers here are at or beyond this time.
    fn settled(&self) -> Hlc {
        self.group.kept_until()
    }

    fn on_wish(&mut self, cx: &mut Cx<'_>, wish: Wish) {
        if let Some(leader) = self.group.fulfil(cx.now.monotonic, wish) {
            cx.send(cx.me.peer(leader), Body::AskToLead(()).into());
        }
        self.handle_ready(cx);
    }

    fn group(&self) -> Option<GroupStatus> {
        Some(self.group.status())
    }

    fn is_sound_source(&self) -> bool {
        self.group.is_sound_source()
    }

    fn completeness(&self) -> Completeness {
        self.group.completeness()
    }

    fn vitals(&self, _: Now) -> Vitals {
        let reads = self.unconfirmed.len() + self.asking.as_ref().map_or(0, |asking| asking.readers.len());
        Vitals {
            under_way: self.waiting.count() + reads as u64 + u64::from(self.group.is_busy()),
            is_filling: self.group.is_incomplete(),
            is_outdated: self.group.broken().is_some(),
            ..Vitals::default()
        }
    }

    fn validate(&self) {
        self.group.validate();
        self.waiting.validate(self.applied);
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
        let heard = self.group.hear(cx.now.monotonic, from.replica(), message);
        self.faults += u64::from(heard.is_err());
        self.handle_ready(cx);
    }

    /// Hands on what the group wants, and applies what is committed.
    pub(crate) fn handle_ready(&mut self, cx: &mut Cx<'_>) {
        let ended = self.group.handle_ready(cx);
        for round in ended {
            let is_it = |asking: &mut Asking| asking.leader.is_none() && asking.number == round.number;
            if let Some(asking) = self.asking.take_if(is_it) {
                self.on_confirmed(cx, asking, round.index);
            }
        }
        self.follow_role(cx);
        self.apply_soon(cx);
        self.drop_floor(cx);
        self.group.look_whether_complete(true);
        if let Some(replica) = self.group.take_wanted_copy() {
            cx.want_copy(cx.me.peer(replica));
        }
        let has_readers = !self.unconfirmed.is_empty() && self.asking.is_none();
        if self.group.has_news() || self.group.has_more() || has_readers && self.may_ask(cx) {
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
        self.sessions.clear();
        self.last_proposed = None;
        if !leads {
            return;
        }
        self.elections += 1;
        // Whatever is in the log may be committed: new versions are above it.
        cx.observe(self.group.newest());
        let first = self.group.first();
        for entry in self.group.entries(first) {
            // A new leader's own entry has no change, nor has one that only tells the time.
            if let Ok(change) = Change::decode(entry.data) {
                self.sessions.note(change.by(), entry.at.index, first);
                if entry.at.index > self.applied {
                    note_ahead(&mut self.ahead, entry.at.index, change);
                }
            }
        }
    }

    /// Applies the next committed entries, up to the first that waits for its keys.
    fn apply_soon(&mut self, cx: &mut Cx<'_>) {
        let keys = |change: &Change| change.keys_put().collect();
        while let Some(next) = self.fetching.next(&mut self.group, Change::decode, keys) {
            match next {
                Next::Apply(change) => self.apply(cx, change),
                Next::Fetch(keys) => cx.when_resident(keys, Timer::Apply),
            }
        }
    }

    /// Applies the next committed entry, which has this change. Its keys are in memory.
    fn apply(&mut self, cx: &mut Cx<'_>, change: Option<Change>) {
        let Some(entry) = self.group.take_committed() else {
            return;
        };
        self.applied = entry.at.index;
        self.apply_one(cx, entry.at, change);
        self.group.note(cx, &entry);
        if !self.group.is_member() {
            self.leave_group(cx);
        }
        self.group.purge(cx, self.config.log_entries as u64);
        cx.advance(Line::Applied, entry.at.index);
    }

    /// This replica takes no part any more. Whoever waits for it has to ask another one.
    fn leave_group(&mut self, cx: &mut Cx<'_>) {
        for client in self.waiting.take_all() {
            self.leave_open(cx, client, waiting::NO_MEMBER);
        }
        let asking = self.asking.take().map(|asking| asking.readers);
        for reader in std::mem::take(&mut self.unconfirmed)
            .into_iter()
            .chain(asking.unwrap_or_default())
        {
            if let Reader::Here(id, request, _) = reader {
                self.reply(cx, id, request.work.level(), Outcome::Behind(None));
            }
        }
    }

    /// Rows are not newer than what is applied any more.
    fn drop_floor(&mut self, cx: &mut Cx<'_>) {
        // After a restart, entries behind the last one that was kept are applied once more.
        if self.floor > 0 && self.group.kept_up_to() >= self.floor {
            self.floor = 0;
            cx.drop_named(FLOOR);
        }
    }

    // ---- answers ----------------------------------------------------------------------------------------------

    pub(crate) fn proof(&self, index: u64, basis: Basis) -> Proof {
        Proof::Consensus(ConsensusProof {
            term: self.group.term(),
            index,
            basis,
            redirects: 0,
            held_by: match basis {
                Basis::Entry => self.group.holders(index),
                _ => ReplicaSet::default(),
            },
        })
    }

    pub(crate) fn reply(&self, cx: &mut Cx<'_>, id: RequestId, level: Level, outcome: Outcome) {
        let index = self.applied;
        let receipt = cx.receipt(level, None);
        let time = Hlc::ZERO;
        cx.reply(id, Response { outcome, index, time }, receipt);
    }

    pub(crate) fn refuse(&self, cx: &mut Cx<'_>, id: RequestId, level: Level, why: String) {
        self.reply(cx, id, level, Outcome::Answered(PlainResponse::Refused(why)));
    }

    /// Gives up what has waited for too long.
    fn give_up(&mut self, cx: &mut Cx<'_>) {
        let (now, patience) = (cx.now.monotonic, self.config.patience);
        for client in self.waiting.take_late(now, patience) {
            self.given_up += 1;
            self.leave_open(cx, client, "no majority of the replicas was reached in time");
        }
        let mut late = Vec::new();
        let mut is_late = |reader: &mut Reader| match reader {
            Reader::Here(id, request, since) if now >= *since + patience => {
                late.push((*id, request.work.level()));
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
    pub(crate) fn flush_soon(&mut self, cx: &mut Cx<'_>) {
        if !std::mem::replace(&mut self.is_flushing, true) {
            cx.set_timer(Timer::Flush, Micros(0));
        }
    }
}
