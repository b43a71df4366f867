//! Entries that are dropped, and replicas that have missed them.
//!
//! Applied entries are kept for two reasons only: a replica that lags needs them, and a write that is asked for again is looked for among them. So each replica keeps the
//! last of them ([`Group::purge`]). If a follower needs an entry that its leader has dropped, the leader says so (raft-rs sends a snapshot message; this one is
//! empty). The follower then asks the driver for a full copy of the leader. The copy is taken after that, so it is further than what the leader has dropped. It streams while both
//! serve. When it is in place, the log begins behind it ([`Group::restore`]).
//!
//! ```text
//!   leader   log 40..90, applied 88        follower   log 1..17
//!     |-- entries before 40 are dropped -->  |
//!     | <------------ wants a full copy ---  |
//!     |-- rows, as of 95 or later ---------> |  in place: applied 95, the log is empty, its next entry is 96
//!     | <------------ has everything to 95 - |
//!     |-- entries from 96 -----------------> |
//! ```
//!
//! Rows of a copy may be newer than what it says. That does no harm: entries are applied to newer rows, and change nothing there.
use crate::group::{Group, PURGED, Role, id_of, replica_of};
use crate::log::Noted;
use crate::message::RaftMessage;
use raft::eraftpb::{ConfState, Message, MessageType, Snapshot};
use raft::{INVALID_ID, ProgressState, SnapshotStatus, StateRole, Storage};
use turnbuckle_core::{Applied, Context, Hlc, Micros, Protocol, Recovered, ReplicaId};

/// The most bytes of applied entries that are kept.
const KEPT_BYTES: u64 = 64 << 20;
/// While a follower takes a full copy, its leader keeps this many times as much.
const FOR_COPIES: u64 = 8;

/// A snapshot with nothing in it but its place.
pub(crate) fn empty_snapshot(at: Applied, members: ConfState) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let metadata = snapshot.mut_metadata();
    metadata.index = at.index;
    metadata.term = at.term;
    metadata.set_conf_state(members);
    snapshot
}

impl Group {
    // ---- dropped ----------------------------------------------------------------------------------------------

    /// Drops applied entries, but the last `keep`, and fewer if they take more than 64 MiB. What followers that take full copies will need is kept longer, up to eight times as many bytes. Entries are
    /// dropped many at a time. Returns whether that was so: then it is kept how far entries are applied, as in [`Group::note`].
    pub fn purge<P: Protocol>(&mut self, cx: &mut Context<'_, P>, keep: u64) -> bool {
        let (journal, applied) = (cx.journal(), self.applied.index);
        let first = journal.first();
        if journal.bytes() > KEPT_BYTES * FOR_COPIES {
            // They begin once more.
            self.fed.clear();
        }
        let (max_bytes, fed) = match self.fed.values().min() {
            Some(&from) => (KEPT_BYTES * FOR_COPIES, from),
            None => (KEPT_BYTES, u64::MAX),
        };
        let is_many = (applied + 1).saturating_sub(first) > keep + keep / 8;
        let mut until = match is_many {
            true => applied + 1 - keep,
            false => first,
        };
        if journal.bytes() > max_bytes {
            // Half of them are dropped.
            let mut bytes = journal.bytes();
            for (index, entry) in journal.from(first).take_while(|(index, _)| *index <= applied) {
                if bytes <= max_bytes / 2 {
                    break;
                }
                bytes -= entry.len() as u64;
                until = until.max(index + 1);
            }
        }
        let until = until.min(fed);
        if until <= first {
            return false;
        }
        // After a restart the entries begin behind what is applied, or before.
        self.note_applied(cx);
        let before = self.node.mut_store().purge(until);
        cx.put_named(PURGED, before.encode());
        cx.purge(until);
        true
    }

    /// A follower is to take a full copy, which has the effects of everything up to this entry or a later one.
    pub(crate) fn feed(&mut self, id: u64, index: u64) {
        self.fed.insert(id, index + 1);
    }

    /// Forgets followers that have got what they needed.
    fn forget_fed(&mut self) {
        let is_leader = self.role() == Role::Leader;
        let followers = self.node.raft.prs();
        let needs = |id: &u64, from: &mut u64| {
            let matched = followers.get(*id).map(|follower| follower.matched);
            is_leader && matched.is_some_and(|matched| matched < *from)
        };
        self.fed.retain(needs);
    }

    /// Every entry up to this index is applied here, and that is kept: see [`Group::kept_until`].
    pub fn kept_up_to(&self) -> u64 {
        self.node.store().kept().index
    }

    /// Every entry up to the one of this timestamp is applied here, and that is kept: after a restart none of them is applied again. Entries up to a full copy may be.
    pub fn kept_until(&self) -> Hlc {
        self.node.store().kept().newest
    }

    // ---- missed -----------------------------------------------------------------------------------------------

    /// The leader has dropped entries that this replica needs.
    pub(crate) fn on_snapshot(&mut self, now: Micros, message: Message, told: Micros) {
        let (index, leader) = (message.get_snapshot().get_metadata().index, message.from);
        // The leader is heard.
        let mut heartbeat = Message::default();
        heartbeat.set_msg_type(MessageType::MsgHeartbeat);
        (heartbeat.from, heartbeat.to, heartbeat.term) = (message.from, message.to, message.term);
        if message.term < self.node.raft.term || self.node.step(heartbeat).is_err() {
            return;
        }
        self.promise(now, told);
        if index <= self.committed() {
            return self.tell_committed(leader);
        }
        let leader = replica_of(leader);
        if self.copying != leader {
            (self.wanted_copy, self.copying) = (leader, leader);
        }
    }

    /// Tells a leader that waits for a full copy to be in place how far this replica is.
    fn tell_committed(&mut self, leader: u64) {
        let raft = &self.node.raft;
        let told = RaftMessage::has_up_to(raft.id, leader, raft.term, raft.raft_log.committed);
        self.to_send.push(told);
    }

    /// The replica of which this one needs a full copy. It is returned once.
    pub fn take_wanted_copy(&mut self) -> Option<ReplicaId> {
        self.wanted_copy.take()
    }

    /// A full copy is in place. Returns whether this replica is further now: then nothing up to [`Group::applied`] is applied any more. Call [`Group::handle_ready`] after it.
    pub fn restore<P: Protocol>(&mut self, cx: &mut Context<'_, P>, copied: &Recovered) -> bool {
        let Some(at) = copied.applied else {
            return false;
        };
        self.copying = None;
        if self.broken().is_some() || self.has_lost() || self.role() == Role::Leader || at.index == 0 {
            return false;
        }
        let leader = self.node.raft.leader_id;
        let is_further = at.index > self.committed() && self.begin_behind(cx, copied, at);
        if leader != INVALID_ID && leader != self.node.raft.id {
            self.tell_committed(leader);
        }
        is_further
    }

    /// The log begins behind `at`. Returns false if it has that entry already, which is then committed: the entries up to it are applied like any others.
    fn begin_behind<P: Protocol>(
        &mut self,
        cx: &mut Context<'_, P>,
        copied: &Recovered,
        mut at: Applied,
    ) -> bool {
        let term = self.node.raft.term;
        if self.node.raft.state != StateRole::Follower || term < at.term {
            self.node.raft.become_follower(term.max(at.term), INVALID_ID);
        }
        if self.planted.copies_ahead {
            at.index += 2;
        }
        let members = self.members_after(copied);
        if !self.node.raft.restore(empty_snapshot(at, members.in_raft())) {
            return false;
        }
        self.restore_members(cx, members);
        self.committed.clear();
        let first = cx.journal().first();
        cx.truncate(first);
        cx.purge(at.index + 1);
        let Applied { index, term } = at;
        // The newest timestamp of the entries up to there.
        let newest = copied
            .cut
            .iter()
            .map(|&(_, until)| until)
            .max()
            .unwrap_or_default();
        self.applied = Noted { index, term, newest };
        self.note_applied(cx);
        cx.put_named(PURGED, self.applied.encode());
        true
    }

    /// A leader tells those again that are to take a full copy: it may not have been heard.
    pub(crate) fn offer_copies_again(&mut self) {
        self.forget_fed();
        let (me, term, promise) = (self.node.raft.id, self.node.raft.term, self.timing.timeout());
        let followers = self.node.raft.prs().iter();
        let offers = followers
            .filter(|(_, follower)| follower.state == ProgressState::Snapshot)
            .filter_map(|(&id, follower)| {
                let index = follower.pending_snapshot;
                let of = self.node.store().term(index).ok()?;
                let at = Applied { index, term: of };
                Some(RaftMessage::offer(me, id, term, at, promise))
            });
        let offers: Vec<RaftMessage> = offers.collect();
        self.to_send.extend(offers);
    }

    // ---- links ------------------------------------------------------------------------------------------------

    /// The link to a replica is down: what was sent to it may be lost.
    pub fn lose(&mut self, replica: ReplicaId) {
        let id = id_of(replica);
        self.fed.remove(&id);
        self.node.report_unreachable(id);
        // If it was to take a full copy, it is told again.
        self.node.report_snapshot(id, SnapshotStatus::Failure);
    }
}
