//! The group itself: raft-rs, driven by a replica's inputs.
use crate::log::{Log, Noted};
use crate::members::Knowledge;
use crate::memory::Memory;
use crate::message::{Kind, RaftMessage};
use crate::reads::{Lease, Round};
use crate::timing::Timing;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use raft::eraftpb::{Entry, EntryType, HardState, Message, MessageType};
use raft::{CAMPAIGN_TRANSFER, Config, RawNode, ReadOnlyOption, StateRole};
use siphasher::sip::SipHasher13;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use turnbuckle_core::{
    Applied, Context, Hlc, Journal, MemberRefusal, Micros, Protocol, Recovered, ReplicaId, ReplicaSet,
};

/// The names under which a replica keeps the group's state beside the journal.
const VOTE: &str = "raft.vote";
const APPLIED: &str = "raft.applied";
/// For how long it takes no part in elections after it has heard a leader.
const PROMISE: &str = "raft.promise";
/// The last entry that was left when several replicas had lost their directories.
const LOST: &str = "raft.lost";
/// The entry before the first one of the journal.
pub(crate) const PURGED: &str = "raft.purged";

/// The most bytes of entries in one message, unless one entry alone has more.
const MESSAGE_BYTES: u64 = 1 << 20;
/// The most messages with entries that are under way to a replica.
const MESSAGES_UNDER_WAY: usize = 16;
/// The most bytes of entries that are proposed and not committed. Beyond it, proposals are refused.
const UNCOMMITTED_BYTES: u64 = 64 << 20;

/// While many entries are applied, every 256th index is noted.
const NOTE_EVERY: u64 = 256;

/// Bugs that are planted: each leaves out a rule. None outside tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Planted {
    /// A leader counts as the only one because it believes to lead.
    pub trusts_belief: bool,
    /// Terms and votes are not kept.
    pub keeps_no_votes: bool,
    /// A lease begins when a round is over, and not when its heartbeats left.
    pub leases_from_arrival: bool,
    /// A replica that was restarted votes at once.
    pub votes_at_once: bool,
    /// Entries are not synced, if the keyspace's durability does not want it.
    pub syncs_nothing: bool,
    /// A full copy counts as further than it is.
    pub copies_ahead: bool,
    /// A replica that has lost its directory takes part at once.
    pub forgets_that_it_lost: bool,
    /// A leader that hands its leadership over counts on its lease.
    pub keeps_lease: bool,
    /// A replica that is restarted drops the entries that it has not applied.
    pub drops_entries: bool,
    /// It is not kept that an entry is committed which changes the members.
    pub forgets_committed: bool,
    /// Voters change with one entry.
    pub changes_at_once: bool,
}

/// What a replica is in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It takes what the leader sends.
    Follower,
    /// It wants to be elected.
    Candidate,
    /// It was elected, and proposes entries. Another replica may have been elected since.
    Leader,
}

/// Where an entry was proposed. It is committed if the entry at this index has this term, and never will be if that entry has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proposed {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

/// A committed entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Where it was proposed.
    pub at: Proposed,
    /// What a protocol has proposed. Empty if it was a new leader's own entry, or a change of the members.
    pub data: Bytes,
    /// A change of the members.
    pub(crate) change: Option<Bytes>,
    /// The newest timestamp in it.
    pub newest: Hlc,
}

/// A round that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its number.
    pub number: u64,
    /// Everything that was acknowledged before the round began is at or below this index.
    pub index: u64,
}

/// One replica's part in a group.
pub struct Group {
    pub(crate) node: RawNode<Log>,
    pub(crate) timing: Timing,
    pub(crate) planted: Planted,
    /// The members.
    pub(crate) known: Knowledge,
    /// The group's number: in groups with different numbers, different replicas are the first that want to be elected.
    number: u64,
    seed: u64,
    /// The last term and vote that were kept.
    kept: (u64, u64),
    /// Committed entries that are not applied.
    pub(crate) committed: VecDeque<Committed>,
    /// The last entry that is applied.
    pub(crate) applied: Noted,
    /// What it knows of its own promises.
    pub(crate) memory: Memory,
    /// If its directory was lost: whether it still lacks what it had; and the index up to which it must have applied everything, once that is known.
    pub(crate) is_incomplete: bool,
    pub(crate) complete_at: Option<u64>,
    /// Whether another replica had lost its promises when this one asked for its own.
    pub(crate) lost_for_good: bool,
    /// If several replicas lost their directories together: the last entry that was left, as far as any replica has said. What was behind it may have been acknowledged.
    pub(crate) lost_behind: Option<u64>,
    /// That, as it was kept.
    kept_lost: Option<u64>,
    /// Whether the group may begin anew if nobody has what its only voter had.
    pub(crate) begins_anew: bool,
    /// When each of the others was heard last, by their names.
    pub(crate) heard: BTreeMap<u64, Micros>,
    /// Why this leader has not changed the members as an operator wanted.
    pub(crate) refusal: Option<MemberRefusal>,
    /// Messages to be sent behind everything that was staged so far.
    pub(crate) to_send: Vec<RaftMessage>,
    /// The replica of which a full copy is needed; and the one that was asked for it.
    pub(crate) wanted_copy: Option<ReplicaId>,
    pub(crate) copying: Option<ReplicaId>,
    /// The followers that take full copies, and the entries from which on they will need the log.
    pub(crate) fed: BTreeMap<u64, u64>,
    /// The number of ticks.
    ticks: u64,
    round: Option<Round>,
    rounds: u64,
    lease: Lease,
    /// The term in which it uses no lease, because it has let others vote against it.
    without_lease: u64,
    /// The index up to which this leader has told the others that entries are committed.
    told: u64,
    /// Until then it takes no part in elections: a leader that it has heard counts on that.
    pub(crate) votes_from: Micros,
    /// For how long it takes no part in elections after it has heard a leader, as it was kept: an earlier life may have promised that.
    promised: Micros,
    /// The longest that this life has promised.
    promises: Micros,
    /// Until then an earlier life may have promised to take no part.
    promised_until: Micros,
    /// Why it takes no part, if its log cannot be used.
    broken: Option<String>,
}

/// A replica's name in the group.
pub(crate) fn id_of(replica: ReplicaId) -> u64 {
    u64::from(replica.0) + 1
}

pub(crate) fn replica_of(id: u64) -> Option<ReplicaId> {
    let number = u16::try_from(id.checked_sub(1)?).ok()?;
    (number < ReplicaSet::MAX).then_some(ReplicaId(number))
}

impl Group {
    /// A replica of a new group, or as it was left before a restart.
    ///
    /// # Panics
    /// If `me` is not one of the replicas.
    pub fn open(
        timing: Timing,
        planted: Planted,
        me: ReplicaId,
        replicas: ReplicaSet,
        number: u64,
        recovered: &Recovered,
        seed: u64,
    ) -> Group {
        assert!(replicas.contains(me), "a replica belongs to its partition");
        let named = |name| recovered.named.get(name);
        let kept = named(VOTE).and_then(|bytes| take_pair(bytes)).unwrap_or_default();
        let noted = |name| {
            named(name)
                .and_then(|bytes| Noted::decode(bytes))
                .unwrap_or_default()
        };
        let kept_lost = named(LOST)
            .and_then(|bytes| bytes[..].try_into().ok())
            .map(u64::from_be_bytes);
        let (mut applied, before): (Noted, Noted) = (noted(APPLIED), noted(PURGED));
        let mut known = Knowledge::open(replicas, recovered);
        let members = known.members.in_raft();
        let journal = &recovered.journal;
        let committed = known.committed().min(journal.next() - 1).max(applied.index);
        let mut state = HardState::default();
        (state.term, state.vote, state.commit) = (kept.0, kept.1, committed);
        let (mut log, broken) = match Log::of(journal, before, applied, state.clone(), members.clone()) {
            Ok(log) => (log, None),
            Err(why) => {
                state.commit = 0;
                applied = Noted::default();
                let empty = Log::of(&Journal::default(), applied, applied, state, members);
                (empty.expect("there is nothing to decode"), Some(why))
            }
        };
        if planted.drops_entries {
            log.truncate(committed + 1);
        }
        let waiting = log.from(applied.index + 1).filter(|entry| is_change(entry));
        known.replaced(0, waiting.map(|entry| entry.index));
        let has_lost = recovered.lacks_rows && !planted.forgets_that_it_lost;
        let memory = match has_lost {
            false => Memory::Whole,
            true => Memory::Lost {
                // An answer to a question of an earlier life answers none of this one.
                number: seed >> 2,
                heard: BTreeMap::new(),
            },
        };
        let config = Config {
            id: id_of(me),
            election_tick: timing.election_ticks(),
            heartbeat_tick: 1,
            applied: applied.index,
            max_size_per_msg: MESSAGE_BYTES,
            max_inflight_msgs: MESSAGES_UNDER_WAY,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            skip_bcast_commit: true,
            batch_append: true,
            max_uncommitted_size: UNCOMMITTED_BYTES,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let mut group = Group {
            node: RawNode::new(&config, log, &logger).expect("the configuration is sound"),
            timing,
            planted,
            known,
            number,
            seed,
            kept,
            committed: VecDeque::new(),
            applied,
            memory,
            is_incomplete: recovered.lacks_rows,
            complete_at: None,
            lost_for_good: false,
            lost_behind: kept_lost,
            kept_lost,
            begins_anew: false,
            heard: BTreeMap::new(),
            refusal: None,
            to_send: Vec::new(),
            wanted_copy: None,
            copying: None,
            fed: BTreeMap::new(),
            ticks: 0,
            round: None,
            rounds: 0,
            lease: Lease::default(),
            without_lease: 0,
            told: 0,
            votes_from: Micros(0),
            promised: named(PROMISE)
                .and_then(|bytes| take_pair(bytes))
                .map_or(Micros(0), |pair| Micros(pair.0)),
            promises: Micros(0),
            promised_until: Micros(0),
            broken,
        };
        group.choose_timeout();
        group
    }

    /// What the group had is elsewhere, too: so a voter that was the only one, and has lost its directory, may begin a new log. Without that it waits for ever.
    #[must_use]
    pub fn beginning_anew(mut self) -> Group {
        self.begins_anew = true;
        self
    }

    /// The replica starts. It may have heard a leader just before it was stopped, and that leader may count on its vote.
    pub fn start(&mut self, now: Micros) {
        self.promised_until = now + self.promised;
        if !self.planted.votes_at_once {
            self.votes_from = self.promised_until;
        }
    }

    /// A leader is heard, which counts on it that this replica takes no part in elections for as long as the leader says. Parameters may differ from node to node.
    pub(crate) fn promise(&mut self, now: Micros, told: Micros) {
        let promise = self.timing.timeout().max(told);
        self.votes_from = self.votes_from.max(now + promise);
        self.promises = self.promises.max(promise);
    }

    /// Keeps for how long it has promised to take no part, before a leader is answered.
    fn keep_promise<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        let is_over = cx.now.monotonic >= self.promised_until;
        if self.promises > self.promised
            || is_over && self.promises < self.promised && self.promises > Micros(0)
        {
            self.promised = self.promises;
            cx.put_named(PROMISE, put_pair((self.promised.0, 0)));
            cx.sync();
        }
    }

    /// raft-rs draws a timeout by chance. This one is the same in each run. Each replica has a part of the time between one and two election timeouts for itself, another one in each
    /// term: so two replicas do not want to be elected at the same time.
    fn choose_timeout(&mut self) {
        let ticks = self.timing.election_ticks();
        let (term, me) = (self.node.raft.term, self.node.raft.id);
        // Of all replicas, whether they vote or not: while the members change, replicas differ in who votes.
        let all = self.known.replicas;
        let replicas = all.len();
        let rank = all.iter().filter(|&replica| id_of(replica) < me).count() as u64;
        let part = ((rank + self.number + term) % replicas as u64) as usize;
        let mut hasher = SipHasher13::new_with_keys(self.seed, me);
        term.hash(&mut hasher);
        // Half of the part, so that its neighbours are some ticks away.
        let within = hasher.finish() as usize % (ticks / (2 * replicas)).max(1);
        self.node
            .raft
            .set_randomized_election_timeout(ticks + part * ticks / replicas + within);
    }

    // ---- inputs ---------------------------------------------------------------------------------------------

    /// A tick has passed. Call [`Group::handle_ready`] after it.
    pub fn tick(&mut self, now: Micros) {
        self.ask_others();
        if self.known.replicas.len() == 1 {
            self.look_at_answers(now);
        }
        let raft = &self.node.raft;
        let would_campaign =
            self.role() != Role::Leader && raft.election_elapsed + 1 >= raft.randomized_election_timeout();
        if self.broken.is_some() || self.has_lost() {
            return;
        }
        let may_campaign = self.knows_its_promises() && self.is_voter();
        if would_campaign && (now < self.votes_from || !may_campaign) {
            if !may_campaign {
                // It has heard no leader for long, and must not be one. As long as it names a leader, raft-rs lets it vote for nobody else.
                self.follow_nobody();
            }
            if !self.is_voter() {
                self.ask_whether_member();
            }
            return;
        }
        self.node.tick();
        self.choose_timeout();
        self.ticks += 1;
        if self.ticks.is_multiple_of(self.timing.election_ticks() as u64) {
            self.offer_copies_again();
        }
    }

    /// A message of another replica arrives. Call [`Group::handle_ready`] after it.
    ///
    /// # Errors
    /// If a sound replica would not have sent it. Nothing changes.
    pub fn hear(&mut self, now: Micros, from: ReplicaId, message: RaftMessage) -> Result<(), String> {
        let is_replica = self.known.replicas.contains(from) && message.from == id_of(from);
        if !is_replica || message.to != self.node.raft.id || message.from == message.to {
            return Err(format!("a message from {} to {}", message.from, message.to));
        }
        if let Some(index) = message.lost_behind() {
            self.lose_behind(index);
        }
        match message.kind() {
            Kind::Question => {
                self.on_question(message.from, message.number());
                return Ok(());
            }
            Kind::Answer => {
                self.on_answer(now, message.from, message.number(), message.answered());
                return Ok(());
            }
            _ if self.has_lost() || self.broken.is_some() => return Ok(()),
            Kind::Members => {
                self.on_members(from, message.named());
                return Ok(());
            }
            Kind::RequestVote | Kind::RequestPreVote if !self.known.members.contains(from) => {
                self.tell_members(message.from);
            }
            _ => {}
        }
        self.heard.insert(message.from, now);
        let told = message.promise();
        let Some(message) = message.into_raft() else {
            return Ok(());
        };
        let kind = message.get_msg_type();
        let is_withheld = match kind {
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                let is_wanted = message.context[..] == *CAMPAIGN_TRANSFER;
                now < self.votes_from && !is_wanted || self.must_not_vote((message.log_term, message.index))
            }
            MessageType::MsgTimeoutNow => !self.knows_its_promises(),
            _ => false,
        };
        if is_withheld {
            return Ok(());
        }
        if kind == MessageType::MsgSnapshot {
            if message.term >= self.node.raft.term {
                self.is_led();
            }
            self.on_snapshot(now, message, told);
            self.choose_timeout();
            return Ok(());
        }
        self.check(&message)?;
        let is_of_leader = matches!(kind, MessageType::MsgHeartbeat | MessageType::MsgAppend);
        if is_of_leader && message.term >= self.node.raft.term {
            self.promise(now, told);
            self.is_led();
        }
        // An answer of a replica that is no member any more is no fault.
        let _ = self.node.step(message);
        self.choose_timeout();
        Ok(())
    }

    /// Checks what raft-rs takes for granted, and panics if it is not so.
    fn check(&self, message: &Message) -> Result<(), String> {
        let log = &self.node.raft.raft_log;
        let (committed, last) = (log.committed, log.last_index());
        match message.get_msg_type() {
            _ if message.term < self.node.raft.term => Ok(()),
            MessageType::MsgHeartbeat if message.commit > last => Err(format!(
                "entries up to {} are committed, and are said to be here; the last one here is {last}",
                message.commit
            )),
            MessageType::MsgAppend => {
                let term = log.term(committed).unwrap_or(0);
                if message.index >= committed && message.log_term < term {
                    return Err(format!(
                        "entry {} has term {}, behind a committed one of term {term}",
                        message.index, message.log_term
                    ));
                }
                let kept = log.first_index()..=committed;
                let committed = message.entries.iter().filter(|entry| kept.contains(&entry.index));
                for entry in committed {
                    if let Ok(term) = log.term(entry.index)
                        && term != entry.term
                    {
                        return Err(format!(
                            "entry {} is committed with term {term}, and comes with {}",
                            entry.index, entry.term
                        ));
                    }
                }
                Ok(())
            }
            MessageType::MsgAppendResponse if !message.reject && message.index > last => Err(format!(
                "an answer to entry {}; the last one here is {last}",
                message.index
            )),
            _ => Ok(()),
        }
    }

    /// This leader wants another voter to lead: one of these, the one that is furthest of those that it hears. From now on it takes no proposals, until the other one leads, or
    /// an election timeout is over. It gives its lease up, because the others may vote at once. Call [`Group::handle_ready`] after it.
    pub fn hand_over(&mut self, now: Micros, to: ReplicaSet) {
        let raft = &self.node.raft;
        let among = to.intersection(self.known.members.voters).without(self.me());
        let is_meant = |id: u64| {
            replica_of(id).is_some_and(|replica| among.contains(replica) && self.is_heard(now, replica))
        };
        let others = raft.prs().iter().filter(|&(&id, _)| is_meant(id));
        let furthest = others.max_by_key(|(_, other)| other.matched).map(|(&id, _)| id);
        let Some(to) = furthest.filter(|_| self.role() == Role::Leader) else {
            return;
        };
        if !self.planted.keeps_lease {
            self.without_lease = self.node.raft.term;
        }
        self.node.transfer_leader(to);
    }

    /// A replica wants to lead. If it lacks much, nobody would lead until it had everything: then nothing happens. Call [`Group::handle_ready`] after it.
    pub fn let_lead(&mut self, now: Micros, replica: ReplicaId) {
        if self.lacks(now, replica).is_none() {
            self.hand_over(now, ReplicaSet::one(replica));
        }
    }

    /// Whether another replica is about to lead in the place of this one.
    pub fn is_handing_over(&self) -> bool {
        self.role() == Role::Leader && self.node.raft.lead_transferee.is_some()
    }

    /// Proposes an entry. `newest` is the newest timestamp in it. Call [`Group::handle_ready`] after it; of several proposals, one call is enough. `None` if this replica
    /// does not lead, or if too much is proposed and not committed.
    pub fn propose(&mut self, newest: Hlc, data: Bytes) -> Option<Proposed> {
        if self.role() != Role::Leader {
            return None;
        }
        let entry = Entry {
            data,
            context: Bytes::copy_from_slice(&newest.0.to_be_bytes()),
            ..Entry::default()
        };
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.node.raft.id;
        message.entries = vec![entry].into();
        self.node.raft.step(message).ok()?;
        self.told = self.committed();
        Some(Proposed {
            index: self.node.raft.raft_log.last_index(),
            term: self.node.raft.term,
        })
    }

    /// Whether [`Group::handle_ready`] has to be called once more: entries that were applied have made that necessary.
    pub fn has_more(&self) -> bool {
        self.broken.is_none() && (self.node.has_ready() || !self.to_send.is_empty())
    }

    /// Whether the other replicas have to be told what is committed.
    pub fn has_news(&self) -> bool {
        self.role() == Role::Leader && self.told < self.committed()
    }

    /// Tells the other replicas what is committed, unless entries that were proposed since then say so. Call [`Group::handle_ready`] after it.
    pub fn tell(&mut self) {
        if self.has_news() {
            self.node.raft.bcast_append();
            self.told = self.committed();
        }
    }

    /// The replicas that have everything up to this index on disk, as far as this leader knows.
    pub fn holders(&self, index: u64) -> ReplicaSet {
        let raft = &self.node.raft;
        let is_leader = self.role() == Role::Leader;
        let others = raft
            .prs()
            .iter()
            .filter(|(_, other)| is_leader && other.matched >= index);
        others.filter_map(|(&id, _)| replica_of(id)).collect()
    }

    /// Begins a round, unless one is under way. Returns its number. `None` if this replica does not lead, or does not know yet what its predecessors have
    /// committed. Call [`Group::handle_ready`] after it.
    pub fn begin_round(&mut self, now: Micros) -> Option<u64> {
        if !self.knows_committed() || self.round.is_some() {
            return None;
        }
        self.rounds += 1;
        self.round = Some(Round {
            number: self.rounds,
            began: now,
            term: self.node.raft.term,
        });
        self.node.read_index(self.rounds.to_be_bytes().to_vec());
        Some(self.rounds)
    }

    // ---- outputs --------------------------------------------------------------------------------------------

    /// Does what the inputs since the last call have made necessary: stores entries, terms and votes, and sends messages. Returns the rounds that are over.
    pub fn handle_ready<P: Protocol>(&mut self, cx: &mut Context<'_, P>) -> Vec<Ended>
    where
        P::Message: From<RaftMessage>,
    {
        let mut ended = Vec::new();
        self.keep_promise(cx);
        self.keep_lost(cx);
        while self.broken.is_none() && self.node.has_ready() {
            let mut ready = self.node.ready();
            // A full copy is in place: see `restore`.
            let is_restored = !ready.snapshot().is_empty();
            if is_restored {
                self.node.mut_store().restore(self.applied);
            }
            // A leader's messages need not wait until its own entries are on disk: it is one of the majority like any other.
            for message in ready.take_messages() {
                self.send(cx, message);
            }
            let mut entries = ready.take_entries();
            if let Some(first) = entries.first().map(|entry| entry.index) {
                cx.truncate(first);
                for entry in &mut entries {
                    let encoded = Log::encode(entry);
                    // The data is at the end. So the journal and the log have it in common.
                    entry.data = encoded.slice(encoded.len() - entry.data.len()..);
                    cx.append(encoded);
                }
                let changes = entries.iter().filter(|entry| is_change(entry));
                self.known.replaced(first, changes.map(|entry| entry.index));
                self.node.mut_store().append(entries);
            }
            self.keep_committed(cx);
            if let Some(state) = ready.hs() {
                let vote = (state.term, state.vote);
                if vote != self.kept && !self.planted.keeps_no_votes {
                    cx.put_named(VOTE, put_pair(vote));
                    self.kept = vote;
                }
            }
            if ready.must_sync() && !self.planted.syncs_nothing {
                cx.sync();
            }
            for message in ready.take_persisted_messages() {
                self.send(cx, message);
            }
            for read in ready.take_read_states() {
                ended.extend(self.end_round(cx.now.monotonic, &read.request_ctx, read.index));
            }
            let committed = ready.take_committed_entries();
            // Everything that is emitted from now on waits until it is on disk.
            let mut light = self.node.advance_append(ready);
            if is_restored {
                self.node.advance_apply_to(self.applied.index);
            }
            for message in light.take_messages() {
                self.send(cx, message);
            }
            let committed = committed.into_iter().chain(light.take_committed_entries());
            self.committed.extend(committed.map(Committed::new));
            self.choose_timeout();
            self.remember();
        }
        for message in std::mem::take(&mut self.to_send) {
            self.send_message(cx, message);
        }
        if self.round.is_some_and(|round| round.term != self.node.raft.term) || self.role() != Role::Leader {
            self.round = None;
        }
        ended
    }

    /// Sends a message of raft-rs. A leader's says for how long the receiver is to take no part in elections.
    fn send<P: Protocol>(&mut self, cx: &mut Context<'_, P>, message: Message)
    where
        P::Message: From<RaftMessage>,
    {
        if message.get_msg_type() == MessageType::MsgSnapshot {
            self.feed(message.to, message.get_snapshot().get_metadata().index);
        }
        if let Some(message) = RaftMessage::new(message, self.timing.timeout()) {
            self.send_message(cx, message);
        }
    }

    fn send_message<P: Protocol>(&self, cx: &mut Context<'_, P>, message: RaftMessage)
    where
        P::Message: From<RaftMessage>,
    {
        let to = replica_of(message.to).filter(|to| cx.others().contains(*to));
        if let Some(to) = to {
            cx.send(cx.me.peer(to), message.with_lost(self.lost_behind).into());
        }
    }

    /// Keeps that entries were lost, before anybody is told.
    fn keep_lost<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        if self.kept_lost != self.lost_behind
            && let Some(index) = self.lost_behind
        {
            self.kept_lost = self.lost_behind;
            cx.put_named(LOST, Bytes::copy_from_slice(&index.to_be_bytes()));
        }
    }

    fn end_round(&mut self, now: Micros, context: &[u8], index: u64) -> Option<Ended> {
        let number = u64::from_be_bytes(context.try_into().ok()?);
        let round = self.round.take_if(|round| round.number == number)?;
        let from = match self.planted.leases_from_arrival {
            true => now,
            false => round.began,
        };
        self.lease.extend(round.term, from + self.timing.lease());
        Some(Ended { number, index })
    }

    /// The next committed entry that is not applied.
    pub fn next_committed(&self) -> Option<&Committed> {
        self.committed.front()
    }

    /// Takes the next committed entry. What it does is staged before [`Group::applied`] is called.
    pub fn take_committed(&mut self) -> Option<Committed> {
        self.committed.pop_front()
    }

    /// Everything up to this entry is applied, and staged. Returns whether that is kept now: after a restart, entries behind the last one that was kept are applied once more.
    /// A protocol that keeps a state of its own stages it whenever this is true: then the two fit each other.
    pub fn note<P: Protocol>(&mut self, cx: &mut Context<'_, P>, entry: &Committed) -> bool {
        self.applied = Noted {
            index: entry.at.index,
            term: entry.at.term,
            newest: entry.newest.max(self.applied.newest),
        };
        let changes_members = entry.change.is_some();
        if changes_members {
            self.apply_change(cx, entry);
        }
        let is_kept =
            changes_members || self.committed.is_empty() || entry.at.index.is_multiple_of(NOTE_EVERY);
        if is_kept {
            self.note_applied(cx);
        }
        self.node.advance_apply_to(entry.at.index);
        is_kept
    }

    pub(crate) fn note_applied<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        cx.put_named(APPLIED, self.applied.encode());
        self.node.mut_store().applied(self.applied);
    }

    // ---- what it knows --------------------------------------------------------------------------------------

    /// What this replica is.
    pub fn role(&self) -> Role {
        match self.node.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        }
    }

    /// The leader that this replica follows, or itself if it leads.
    pub fn leader(&self) -> Option<ReplicaId> {
        replica_of(self.node.raft.leader_id)
    }

    /// The term.
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// The last entry that is applied.
    pub fn applied(&self) -> Applied {
        let Noted { index, term, .. } = self.applied;
        Applied { index, term }
    }

    /// No entry that is applied has a newer timestamp.
    pub fn applied_until(&self) -> Hlc {
        self.applied.newest
    }

    /// Whether this replica leads, and some other one lacks an entry, or has not said that it knows what is committed.
    pub fn has_followers_behind(&self) -> bool {
        let committed = self.committed();
        let me = self.node.raft.id;
        let mut followers = self.node.raft.prs().iter().filter(|&(&id, _)| id != me);
        self.role() == Role::Leader
            && followers
                .any(|(_, follower)| follower.matched < self.last() || follower.committed_index < committed)
    }

    /// The index of the last entry that this replica knows to be committed.
    pub fn committed(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// The index of the first entry that is kept, or of the next one if none is.
    pub fn first(&self) -> u64 {
        self.node.store().first()
    }

    /// The index of the last entry.
    pub fn last(&self) -> u64 {
        self.node.raft.raft_log.last_index()
    }

    /// Whether this replica leads, and knows what its predecessors have committed: it has committed an entry of its own term.
    pub fn knows_committed(&self) -> bool {
        self.role() == Role::Leader && self.node.raft.commit_to_current_term()
    }

    /// Whether no other replica can have been elected: what is committed here is everything that was acknowledged.
    pub fn has_lease(&self, now: Micros) -> bool {
        let term = self.node.raft.term;
        if self.planted.trusts_belief {
            return self.knows_committed();
        }
        self.knows_committed() && self.without_lease != term && self.lease.lasts(term, now)
    }

    /// The entries from an index on, oldest first. Those that were proposed since the last [`Group::handle_ready`] are not among them.
    pub fn entries(&self, from: u64) -> impl DoubleEndedIterator<Item = Committed> {
        self.node.store().from(from).cloned().map(Committed::new)
    }

    /// The newest timestamp of all entries in the log.
    pub fn newest(&self) -> Hlc {
        let log = self.node.store();
        let stamps = log.from(0).map(stamp_of);
        stamps.max().unwrap_or_default().max(log.before().newest)
    }

    /// From now on this replica takes no part in the group, for this reason.
    pub fn give_up(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    /// Why this replica takes no part in the group, if it does not.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Checks what must be true of it, and panics with words.
    pub fn validate(&self) {
        let log = &self.node.raft.raft_log;
        assert!(
            log.applied <= log.committed,
            "applied {} of {}",
            log.applied,
            log.committed
        );
        assert!(
            log.committed <= log.last_index(),
            "committed {} of {}",
            log.committed,
            log.last_index()
        );
        for (next, entry) in (log.applied + 1..).zip(&self.committed) {
            assert!(
                entry.at.index == next,
                "entry {} where {next} is to be applied",
                entry.at.index
            );
        }
    }
}

impl Committed {
    fn new(entry: Entry) -> Committed {
        let changes_members = is_change(&entry);
        Committed {
            at: Proposed {
                index: entry.index,
                term: entry.term,
            },
            newest: stamp_of(&entry),
            change: changes_members.then(|| entry.data.clone()),
            data: if changes_members { Bytes::new() } else { entry.data },
        }
    }
}

/// Whether an entry changes the members.
fn is_change(entry: &Entry) -> bool {
    entry.get_entry_type() != EntryType::EntryNormal
}

/// The newest timestamp in an entry, or zero.
pub(crate) fn stamp_of(entry: &Entry) -> Hlc {
    Hlc(entry.context[..].try_into().map_or(0, u64::from_be_bytes))
}

fn put_pair((one, other): (u64, u64)) -> Bytes {
    let mut out = BytesMut::with_capacity(16);
    out.put_u64(one);
    out.put_u64(other);
    out.freeze()
}

fn take_pair(mut bytes: &[u8]) -> Option<(u64, u64)> {
    Some((bytes.try_get_u64().ok()?, bytes.try_get_u64().ok()?))
}
