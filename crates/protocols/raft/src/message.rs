//! The messages of a group, as they travel between replicas, and the entries of its log, as they are kept in the journal.
//!
//! raft-rs has encodings of its own, of an old library. They stay inside it.
use crate::copies::empty_snapshot;
use crate::group::replica_of;
use crate::members::Electorate;
use crate::memory::Place;
use bytes::Bytes;
use raft::eraftpb::{self, ConfState};
use turnbuckle_core::{Applied, Hlc, Micros, Record, ReplicaSet};

/// A message between two replicas of a group.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RaftMessage {
    /// What it is.
    #[prost(enumeration = "Kind", tag = "1")]
    kind: i32,
    /// The group's names of sender and receiver.
    #[prost(uint64, tag = "2")]
    pub(crate) from: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) to: u64,
    #[prost(uint64, tag = "4")]
    term: u64,
    #[prost(uint64, tag = "5")]
    log_term: u64,
    #[prost(uint64, tag = "6")]
    index: u64,
    #[prost(message, repeated, tag = "7")]
    entries: Vec<LogEntry>,
    #[prost(uint64, tag = "8")]
    commit: u64,
    #[prost(uint64, tag = "9")]
    commit_term: u64,
    #[prost(bool, tag = "10")]
    reject: bool,
    #[prost(uint64, tag = "11")]
    reject_hint: u64,
    #[prost(bytes = "bytes", tag = "12")]
    context: Bytes,
    /// Of a leader: for how long, in microseconds, the receiver is to take no part in elections.
    #[prost(uint64, tag = "13")]
    promise_us: u64,
    /// Members of the group, a set of replicas by its bits; and the entry that has made them so.
    #[prost(bytes = "bytes", tag = "14")]
    members: Bytes,
    #[prost(uint64, tag = "15")]
    members_index: u64,
    /// Of an answer: what else the sender knows.
    #[prost(message, optional, boxed, tag = "16")]
    known: Option<Box<Known>>,
    /// One more than the index behind which entries may be lost; 0 if none are, as far as the sender knows.
    #[prost(uint64, tag = "17")]
    lost: u64,
}

/// What the sender of an answer knows.
#[derive(Clone, PartialEq, prost::Message)]
struct Known {
    /// While the voters change, those before.
    #[prost(bytes = "bytes", tag = "1")]
    outgoing: Bytes,
    /// The last entry that it knows to be committed.
    #[prost(uint64, tag = "2")]
    term: u64,
    #[prost(uint64, tag = "3")]
    index: u64,
    /// Whether it cannot lead: it does not vote, as far as it knows.
    #[prost(bool, tag = "4")]
    cannot_lead: bool,
}

/// The kinds of messages, by their names in raft-rs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Kind {
    None = 0,
    Append = 1,
    AppendResponse = 2,
    RequestVote = 3,
    RequestVoteResponse = 4,
    Heartbeat = 5,
    HeartbeatResponse = 6,
    TimeoutNow = 7,
    RequestPreVote = 8,
    RequestPreVoteResponse = 9,
    Snapshot = 10,
    /// raft-rs does not know these: see [`crate::memory`] and [`crate::members`].
    Question = 11,
    Answer = 12,
    Members = 13,
}

/// What a replica has, as it answers one that has lost what it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Answer {
    pub term: u64,
    /// The end of its log.
    pub last: Place,
    /// The last entry that it knows to be committed.
    pub committed: Place,
    /// The end that its log must reach before it may be elected, if that is later.
    pub place: Place,
    /// Whether it has lost what it had, too.
    pub has_lost: bool,
    /// Whether it votes, as far as it knows: then it can be elected.
    pub can_lead: bool,
    /// Whose votes may be needed.
    pub electorate: Electorate,
}

/// An entry of the log.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LogEntry {
    /// The term in which it was proposed.
    #[prost(uint64, tag = "1")]
    pub(crate) term: u64,
    /// 0: what a protocol has proposed, or nothing, by a new leader. 1: a change of the group's members.
    #[prost(uint32, tag = "2")]
    kind: u32,
    /// The newest timestamp in it, or 0.
    #[prost(fixed64, tag = "3")]
    pub(crate) newest: u64,
    /// What a protocol has proposed, or a [`MembersChange`].
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) data: Bytes,
}

/// A change of a group's members, as raft-rs encodes it. Without single changes it ends a joint state.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MembersChange {
    /// 1: the group becomes joint.
    #[prost(uint32, tag = "1")]
    transition: u32,
    #[prost(message, repeated, tag = "2")]
    changes: Vec<SingleChange>,
    #[prost(bytes = "bytes", tag = "3")]
    context: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SingleChange {
    /// 0: a voter, 1: no member, 2: a learner.
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(uint64, tag = "2")]
    id: u64,
}

impl MembersChange {
    /// # Errors
    /// If it is something else. The error is what was found.
    pub fn decode(data: &Bytes) -> Result<MembersChange, String> {
        let change = <MembersChange as prost::Message>::decode(data.clone());
        let change = change.map_err(|error| format!("a change of members that does not decode: {error}"))?;
        let is_sound = |single: &SingleChange| single.kind <= 2 && replica_of(single.id).is_some();
        match change.changes.iter().all(is_sound) && change.transition <= 1 && change.context.is_empty() {
            true => Ok(change),
            false => Err("a change of members that no leader proposes".into()),
        }
    }

    /// The replicas that it makes voters.
    pub fn voters(&self) -> ReplicaSet {
        let voters = self.changes.iter().filter(|single| single.kind == 0);
        voters.filter_map(|single| replica_of(single.id)).collect()
    }

    pub fn into_raft(self) -> eraftpb::ConfChangeV2 {
        use eraftpb::ConfChangeType::*;
        let changes = self.changes.into_iter().map(|single| {
            let mut one = eraftpb::ConfChangeSingle::default();
            one.set_change_type(match single.kind {
                0 => AddNode,
                1 => RemoveNode,
                _ => AddLearnerNode,
            });
            one.node_id = single.id;
            one
        });
        let mut change = eraftpb::ConfChangeV2::default();
        change.mut_changes().extend(changes);
        if self.transition == 1 {
            change.set_transition(eraftpb::ConfChangeTransition::Implicit);
        }
        change
    }
}

impl Kind {
    fn of(kind: eraftpb::MessageType) -> Option<Kind> {
        use eraftpb::MessageType::*;
        Some(match kind {
            MsgAppend => Kind::Append,
            MsgAppendResponse => Kind::AppendResponse,
            MsgRequestVote => Kind::RequestVote,
            MsgRequestVoteResponse => Kind::RequestVoteResponse,
            MsgHeartbeat => Kind::Heartbeat,
            MsgHeartbeatResponse => Kind::HeartbeatResponse,
            MsgTimeoutNow => Kind::TimeoutNow,
            MsgRequestPreVote => Kind::RequestPreVote,
            MsgRequestPreVoteResponse => Kind::RequestPreVoteResponse,
            MsgSnapshot => Kind::Snapshot,
            // Sessions ask the leader themselves.
            MsgPropose | MsgReadIndex | MsgReadIndexResp | MsgTransferLeader => return None,
            // They never leave a replica.
            MsgHup | MsgBeat | MsgUnreachable | MsgSnapStatus | MsgCheckQuorum => return None,
        })
    }

    fn in_raft(self) -> Option<eraftpb::MessageType> {
        use eraftpb::MessageType::*;
        Some(match self {
            Kind::None | Kind::Question | Kind::Answer | Kind::Members => return None,
            Kind::Snapshot => MsgSnapshot,
            Kind::Append => MsgAppend,
            Kind::AppendResponse => MsgAppendResponse,
            Kind::RequestVote => MsgRequestVote,
            Kind::RequestVoteResponse => MsgRequestVoteResponse,
            Kind::Heartbeat => MsgHeartbeat,
            Kind::HeartbeatResponse => MsgHeartbeatResponse,
            Kind::TimeoutNow => MsgTimeoutNow,
            Kind::RequestPreVote => MsgRequestPreVote,
            Kind::RequestPreVoteResponse => MsgRequestPreVoteResponse,
        })
    }
}

impl RaftMessage {
    /// The message that raft-rs wants sent. `None` if replicas do not send each other such messages.
    pub(crate) fn new(message: eraftpb::Message, promise: Micros) -> Option<RaftMessage> {
        let kind = Kind::of(message.get_msg_type())?;
        if kind == Kind::Snapshot {
            let metadata = message.get_snapshot().get_metadata();
            let (index, term) = (metadata.index, metadata.term);
            let at = Applied { index, term };
            let (from, to) = (message.from, message.to);
            return Some(RaftMessage::offer(from, to, message.term, at, promise));
        }
        let promise = match kind {
            Kind::Heartbeat | Kind::Append => promise,
            _ => Micros(0),
        };
        Some(RaftMessage {
            kind: kind.into(),
            from: message.from,
            to: message.to,
            term: message.term,
            log_term: message.log_term,
            index: message.index,
            entries: message.entries.iter().map(LogEntry::new).collect(),
            commit: message.commit,
            commit_term: message.commit_term,
            reject: message.reject,
            reject_hint: message.reject_hint,
            context: message.context,
            promise_us: promise.0,
            ..RaftMessage::default()
        })
    }

    /// A leader has dropped the entries up to `at`, which a follower needs: the follower is to take a full copy.
    pub(crate) fn offer(from: u64, to: u64, term: u64, at: Applied, promise: Micros) -> RaftMessage {
        RaftMessage {
            kind: Kind::Snapshot.into(),
            from,
            to,
            term,
            index: at.index,
            log_term: at.term,
            promise_us: promise.0,
            ..RaftMessage::default()
        }
    }

    /// For how long the receiver is to take no part in elections.
    pub(crate) fn promise(&self) -> Micros {
        Micros(self.promise_us.min(MAX_PROMISE.0))
    }

    /// The message as raft-rs takes it.
    pub(crate) fn into_raft(self) -> Option<eraftpb::Message> {
        let mut message = eraftpb::Message::default();
        message.set_msg_type(self.kind().in_raft()?);
        if self.kind() == Kind::Snapshot {
            let (index, term) = (self.index, self.log_term);
            message.set_snapshot(empty_snapshot(Applied { index, term }, ConfState::default()));
        }
        message.from = self.from;
        message.to = self.to;
        message.term = self.term;
        message.log_term = self.log_term;
        let entries = (self.index + 1..).zip(self.entries);
        message.index = self.index;
        message.entries = entries.map(|(index, entry)| entry.into_raft(index)).collect();
        message.commit = self.commit;
        message.commit_term = self.commit_term;
        message.reject = self.reject;
        message.reject_hint = self.reject_hint;
        message.context = self.context;
        Some(message)
    }

    /// A follower tells its leader that it has everything up to an index.
    pub(crate) fn has_up_to(from: u64, to: u64, term: u64, index: u64) -> RaftMessage {
        RaftMessage {
            kind: Kind::AppendResponse.into(),
            from,
            to,
            term,
            index,
            commit: index,
            ..RaftMessage::default()
        }
    }

    /// A replica that has lost what it had asks another one. The number is the question's.
    pub(crate) fn question(from: u64, to: u64, number: u64) -> RaftMessage {
        RaftMessage {
            kind: Kind::Question.into(),
            from,
            to,
            commit: number,
            ..RaftMessage::default()
        }
    }

    /// The answer to the question of this number.
    pub(crate) fn answer(from: u64, to: u64, number: u64, answer: Answer) -> RaftMessage {
        RaftMessage {
            kind: Kind::Answer.into(),
            from,
            to,
            term: answer.term,
            log_term: answer.last.0,
            index: answer.last.1,
            commit_term: answer.place.0,
            reject_hint: answer.place.1,
            reject: answer.has_lost,
            commit: number,
            members_index: answer.electorate.index,
            members: put_set(answer.electorate.voters),
            known: Some(Box::new(Known {
                outgoing: put_set(answer.electorate.outgoing),
                term: answer.committed.0,
                index: answer.committed.1,
                cannot_lead: !answer.can_lead,
            })),
            ..RaftMessage::default()
        }
    }

    /// Says who takes part in the group, since an entry.
    pub(crate) fn members(from: u64, to: u64, term: u64, index: u64, everyone: ReplicaSet) -> RaftMessage {
        RaftMessage {
            kind: Kind::Members.into(),
            from,
            to,
            term,
            members_index: index,
            members: put_set(everyone),
            ..RaftMessage::default()
        }
    }

    /// The members that it names, and the entry that has made them so.
    pub(crate) fn named(&self) -> (u64, ReplicaSet) {
        (self.members_index, take_set(&self.members).unwrap_or_default())
    }

    /// The number of a question, or of the question that this answers.
    pub(crate) fn number(&self) -> u64 {
        self.commit
    }

    /// The sender says behind which entry others may be lost.
    pub(crate) fn with_lost(mut self, index: Option<u64>) -> RaftMessage {
        self.lost = index.map_or(0, |index| index + 1);
        self
    }

    /// That entry, if there is one.
    pub(crate) fn lost_behind(&self) -> Option<u64> {
        self.lost.checked_sub(1)
    }

    /// What an answer says.
    pub(crate) fn answered(&self) -> Answer {
        let known = self.known.as_deref().cloned().unwrap_or_default();
        Answer {
            term: self.term,
            last: (self.log_term, self.index),
            committed: (known.term, known.index),
            place: (self.commit_term, self.reject_hint),
            has_lost: self.reject,
            can_lead: !known.cannot_lead,
            electorate: Electorate {
                index: self.members_index,
                voters: self.named().1,
                outgoing: take_set(&known.outgoing).unwrap_or_default(),
            },
        }
    }

    /// Whether a replica that takes it may have to store something.
    pub fn has_entries(&self) -> bool {
        !self.entries.is_empty()
    }
}

/// No configuration has a longer election timeout.
const MAX_PROMISE: Micros = Micros::from_millis(120_000);

impl Record for RaftMessage {
    const WHAT: &'static str = "a message of a Raft group";

    fn check(&self) -> Result<(), String> {
        let kind = self.kind();
        let is_of_raft = kind.in_raft().is_some();
        if !is_of_raft && !matches!(kind, Kind::Question | Kind::Answer | Kind::Members) {
            return Err(format!("a message of kind {}", self.kind));
        }
        let nothing = Known::default();
        let known = self.known.as_deref().unwrap_or(&nothing);
        let numbers = [
            self.index,
            self.commit,
            self.term,
            self.log_term,
            self.reject_hint,
            self.commit_term,
            self.members_index,
            known.index,
            known.term,
            self.lost,
        ];
        if let Some(number) = numbers.iter().find(|&&number| number > Applied::MAX) {
            return Err(format!("the number {number}"));
        }
        let names_members = matches!(kind, Kind::Answer | Kind::Members);
        let named = take_set(&self.members);
        if named.is_none_or(|named| named.is_empty() == names_members) {
            return Err(format!("{kind:?} with the members {named:?}"));
        }
        if self.known.is_some() != (kind == Kind::Answer) {
            return Err(format!(
                "{kind:?} with what only an answer says, or an answer without it"
            ));
        }
        if take_set(&known.outgoing).is_none() {
            return Err("voters of before that are no set of replicas".into());
        }
        if self.term == 0 && is_of_raft {
            return Err("a message without a term".into());
        }
        if kind != Kind::Append && self.has_entries() {
            return Err(format!("{kind:?} with entries"));
        }
        if kind == Kind::Snapshot && (self.index == 0 || self.log_term == 0 || self.log_term > self.term) {
            return Err(format!(
                "a full copy up to entry {} of term {}",
                self.index, self.log_term
            ));
        }
        let last_term = self.log_term.max(self.commit_term).max(known.term);
        if kind == Kind::Answer && last_term > self.term {
            return Err(format!("a log up to term {last_term} in term {}", self.term));
        }
        // raft-rs takes every entry that it does not have for one of term 0.
        if kind == Kind::Append && (self.index == 0) != (self.log_term == 0) {
            return Err(format!(
                "entries behind entry {} of term {}",
                self.index, self.log_term
            ));
        }
        let mut term = self.log_term;
        for entry in &self.entries {
            if entry.term == 0 || entry.term < term || entry.term > self.term {
                return Err(format!(
                    "an entry of term {} behind one of term {term}, in term {}",
                    entry.term, self.term
                ));
            }
            term = entry.term;
            entry.check()?;
        }
        Ok(())
    }

    fn newest(&self) -> Hlc {
        let newest = self.entries.iter().map(|entry| entry.newest);
        Hlc(newest.max().unwrap_or(0))
    }
}

impl LogEntry {
    const CHANGE: u32 = 1;

    pub(crate) fn new(entry: &eraftpb::Entry) -> LogEntry {
        let newest = entry.context[..].try_into().map_or(0, u64::from_be_bytes);
        LogEntry {
            term: entry.term,
            kind: match entry.get_entry_type() {
                eraftpb::EntryType::EntryNormal => 0,
                eraftpb::EntryType::EntryConfChange | eraftpb::EntryType::EntryConfChangeV2 => {
                    LogEntry::CHANGE
                }
            },
            newest,
            data: entry.data.clone(),
        }
    }

    pub(crate) fn into_raft(self, index: u64) -> eraftpb::Entry {
        let mut entry = eraftpb::Entry::default();
        if self.kind == LogEntry::CHANGE {
            entry.set_entry_type(eraftpb::EntryType::EntryConfChangeV2);
        }
        entry.term = self.term;
        entry.index = index;
        entry.data = self.data;
        if self.newest > 0 {
            entry.context = Bytes::copy_from_slice(&self.newest.to_be_bytes());
        }
        entry
    }

    fn check(&self) -> Result<(), String> {
        match self.kind {
            0 => Ok(()),
            LogEntry::CHANGE => MembersChange::decode(&self.data).map(|_| ()),
            other => Err(format!("an entry of kind {other}")),
        }
    }
}

/// A set of replicas by its bits. An empty one takes no bytes.
fn put_set(set: ReplicaSet) -> Bytes {
    match set.is_empty() {
        true => Bytes::new(),
        false => Bytes::copy_from_slice(&{ set.0 }.to_be_bytes()),
    }
}

fn take_set(bytes: &[u8]) -> Option<ReplicaSet> {
    match bytes.is_empty() {
        true => Some(ReplicaSet::default()),
        false => Some(ReplicaSet(u128::from_be_bytes(bytes.try_into().ok()?))),
    }
}
