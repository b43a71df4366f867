//! The members of a group, and how they change while it serves.
//!
//! A group begins with all replicas of its partition as *voters*. A *learner* takes all entries and votes for nothing: it serves reads like any other replica, and
//! no write waits for it. A replica that is neither takes no part. Its rows are as old as its last entry, so it answers nothing, and its clients ask another one.
//!
//! **Source.** Ongaro's dissertation, chapter 4, and section 4.2.1 on learners. The changes themselves are those of raft-rs.
//!
//! **A change is an entry of the log**, and a replica changes its mind when it applies the entry. One change is under way at a time.
//!
//! - *If voters change*, the first entry makes the group *joint*: from then on a majority of the voters before and a majority of those after are both needed. When that entry is applied, the leader
//!   proposes a second one, which ends this. So no change, however large, allows two leaders. And before the new voters decide alone, a majority of them has everything that was committed. With one entry that
//!   would not be so, since raft-rs commits a change by the voters before: a group of a, b, c, in which only a and c have an entry, would go on without a. Then only c has it.
//! - *A learner comes or goes* with one entry.
//! - *A replica that is to vote is a learner first*, until it has nearly everything. Else the group could wait for a full copy before it commits anything.
//! - *A change that would leave the group without a majority that is heard is refused*, and so is one that would leave no voter.
//! - *A leader that is to vote no more* hands its leadership over first, and the next one makes the change.
//!
//! ```text
//!   voters  a b c     -- learner d -->    a b c, learner d     -- c goes, d votes -->    a b c and a b d    -- end -->    a b d
//! ```
//!
//! **A restart forgets which entries are committed**, since only the applied ones are noted. With members that change, that would be wrong. Entry 7 makes a, b, d the voters, in the place of
//! a, b, c. A replica that has entry 7, and does not know that it is committed, still counts the votes of a, b, c. So if a committed entry changes members, that it is committed is
//! noted before the leader is answered, and nobody wants to be elected before such an entry is applied.
//!
//! **A replica that was removed while it could not be reached** has not heard of it. It wants to be elected. Whoever it asks for a vote tells it the members. From then on it answers no clients. It goes on asking for
//! votes: it may be the only one besides the old leader that has the entry which has removed it, and be needed if that leader's directory is lost. As long as the others hear a leader they do not answer.
//!
//! **Leases** hold across changes. Before another leader is elected, each majority that can elect it has heard this leader after the round began, or has a replica in common with the majority that answered
//! the round.
use crate::group::{Committed, Group, Role, id_of, replica_of};
use crate::message::{MembersChange, RaftMessage};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState};
use raft::{INVALID_ID, ProgressState};
use std::collections::BTreeSet;
use turnbuckle_core::{
    Context, MemberChange, MemberRefusal, Membership, Micros, Protocol, Recovered, ReplicaId, ReplicaSet,
};

/// The names under which a replica keeps its group's members, and an index up to which entries are committed.
const MEMBERS: &str = "raft.members";
const COMMITTED: &str = "raft.committed";

/// A learner that lacks no more entries than this may become a voter.
const NEARLY: u64 = 1_000;

/// The members of a group, as an entry of its log has made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Members {
    /// The entry. 0: the group began so.
    pub(crate) index: u64,
    /// The replicas that vote.
    pub voters: ReplicaSet,
    /// While the group is joint: the replicas that voted before. A majority of them is needed as well.
    pub outgoing: ReplicaSet,
    /// The replicas that take all entries and do not vote.
    pub learners: ReplicaSet,
    /// While the group is joint: voters of before that will be learners.
    learners_next: ReplicaSet,
}

impl Members {
    /// The members of a group that begins.
    fn all(voters: ReplicaSet) -> Members {
        Members {
            voters,
            ..Members::default()
        }
    }

    /// Whether a replica takes part.
    pub fn contains(&self, replica: ReplicaId) -> bool {
        self.everyone().contains(replica)
    }

    /// Everyone who takes part.
    pub fn everyone(&self) -> ReplicaSet {
        self.all_voters().union(self.learners)
    }

    /// Everyone whose vote may be needed.
    pub(crate) fn all_voters(&self) -> ReplicaSet {
        self.voters.union(self.outgoing)
    }

    /// Whether majorities of two sets of voters are needed.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// What a replica is.
    pub fn of(&self, replica: ReplicaId) -> Membership {
        match () {
            () if self.voters.contains(replica) => Membership::Voter,
            () if self.learners.contains(replica) => Membership::Learner,
            () => Membership::None,
        }
    }

    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(8 + 4 * 16);
        out.put_u64(self.index);
        for set in [self.voters, self.outgoing, self.learners, self.learners_next] {
            out.put_u128(set.0);
        }
        out.freeze()
    }

    /// `None` if no group of these replicas can have such members.
    fn decode(mut bytes: &[u8], replicas: ReplicaSet) -> Option<Members> {
        let index = bytes.try_get_u64().ok()?;
        let mut set = || bytes.try_get_u128().ok().map(ReplicaSet);
        let members = Members {
            index,
            voters: set()?,
            outgoing: set()?,
            learners: set()?,
            learners_next: set()?,
        };
        let (voters, outgoing, learners) = (members.voters, members.outgoing, members.learners);
        let (next, everyone) = (members.learners_next, members.everyone());
        let is_sound = !voters.is_empty()
            && everyone.minus(replicas).is_empty()
            && learners.intersection(members.all_voters()).is_empty()
            && next.minus(outgoing).is_empty()
            && next.intersection(voters).is_empty();
        is_sound.then_some(members)
    }

    /// As raft-rs has it.
    pub(crate) fn in_raft(&self) -> ConfState {
        let ids = |set: ReplicaSet| set.iter().map(id_of).collect::<Vec<_>>();
        let mut state = ConfState::from((ids(self.voters), ids(self.learners)));
        state.mut_voters_outgoing().extend(ids(self.outgoing));
        state.mut_learners_next().extend(ids(self.learners_next));
        state.set_auto_leave(self.is_joint());
        state
    }

    fn of_raft(index: u64, state: &ConfState) -> Members {
        let set = |ids: &[u64]| ids.iter().filter_map(|&id| replica_of(id)).collect();
        Members {
            index,
            voters: set(state.get_voters()),
            outgoing: set(state.get_voters_outgoing()),
            learners: set(state.get_learners()),
            learners_next: set(state.get_learners_next()),
        }
    }
}

/// Whose votes may be needed, also once the entries of a replica's log are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Electorate {
    /// The entry that has changed it last.
    pub index: u64,
    pub voters: ReplicaSet,
    /// While the group is joint: the voters before.
    pub outgoing: ReplicaSet,
}

/// What a replica knows of the members of its group.
#[derive(Debug)]
pub(crate) struct Knowledge {
    /// The members, as it has applied them.
    pub members: Members,
    /// All replicas of the partition.
    pub replicas: ReplicaSet,
    /// The entries of the log that change members and are not applied.
    changes: BTreeSet<u64>,
    /// It is kept that everything up to this index is committed.
    kept: u64,
    /// What another replica has told it, if that is newer: the index of the entry, and everyone who takes part.
    told: Option<(u64, ReplicaSet)>,
}

impl Knowledge {
    /// As it was left before a restart, or at a group's beginning.
    pub fn open(replicas: ReplicaSet, recovered: &Recovered) -> Knowledge {
        let kept = recovered.named.get(COMMITTED);
        Knowledge {
            members: Knowledge::kept(replicas, recovered).unwrap_or(Members::all(replicas)),
            replicas,
            changes: BTreeSet::new(),
            kept: kept
                .and_then(|bytes| bytes[..].try_into().ok())
                .map_or(0, u64::from_be_bytes),
            told: None,
        }
    }

    /// The members that a replica keeps.
    pub fn kept(replicas: ReplicaSet, recovered: &Recovered) -> Option<Members> {
        let kept = recovered.named.get(MEMBERS)?;
        Members::decode(kept, replicas)
    }

    /// Everything up to here is known to be committed, as far as it was kept.
    pub fn committed(&self) -> u64 {
        self.kept
    }

    /// Entries are replaced from `first` on; these change members.
    pub fn replaced(&mut self, first: u64, changes: impl Iterator<Item = u64>) {
        self.changes.split_off(&first);
        self.changes.extend(changes);
    }

    /// Whether a replica takes part, as far as this one knows.
    fn takes_part(&self, replica: ReplicaId) -> bool {
        let is_gone = self.told.is_some_and(|(_, everyone)| !everyone.contains(replica));
        self.members.contains(replica) && !is_gone
    }
}

impl Group {
    /// The members, as far as this replica knows.
    pub fn members(&self) -> &Members {
        &self.known.members
    }

    /// All replicas that may be members.
    pub fn replicas(&self) -> ReplicaSet {
        self.known.replicas
    }

    /// Whether this replica takes part, as far as it knows.
    pub fn is_member(&self) -> bool {
        self.role() == Role::Leader || self.known.takes_part(self.me())
    }

    /// Whether this replica can be elected.
    pub(crate) fn is_voter(&self) -> bool {
        self.known.members.all_voters().contains(self.me())
    }

    pub(crate) fn me(&self) -> ReplicaId {
        replica_of(self.node.raft.id).expect("it is named after a replica")
    }

    // ---- changes ----------------------------------------------------------------------------------------------

    /// This leader is to change what replicas are, as an operator wants. Nothing happens if they are that already. A change may take several calls: a replica that is to vote is a learner first. Call
    /// [`Group::handle_ready`] after it.
    ///
    /// # Errors
    /// Why nothing is changed now.
    pub fn change_members(&mut self, now: Micros, wanted: &[MemberChange]) -> Result<(), MemberRefusal> {
        let members = self.known.members;
        let (mut voters, mut learners) = (members.voters, members.learners);
        let (mut begins, mut behind) = (Vec::new(), Vec::new());
        for &MemberChange { replica, wanted } in wanted {
            if !self.known.replicas.contains(replica) {
                return Err(MemberRefusal::Unknown(replica));
            }
            if wanted == Membership::Voter && !members.voters.contains(replica) {
                match members.contains(replica) {
                    false => begins.push(MemberChange {
                        replica,
                        wanted: Membership::Learner,
                    }),
                    true => behind.extend(self.lacks(now, replica)),
                }
            }
            let one = ReplicaSet::one(replica);
            (voters, learners) = (voters.minus(one), learners.minus(one));
            match wanted {
                Membership::Voter => voters = voters.union(one),
                Membership::Learner => learners = learners.union(one),
                Membership::None => {}
            }
        }
        if voters.is_empty() {
            return Err(MemberRefusal::NoVoters);
        }
        if (voters, learners) == (members.voters, members.learners) && !members.is_joint() {
            return Ok(());
        }
        let is_busy =
            members.is_joint() || !self.known.changes.is_empty() || self.node.raft.has_pending_conf();
        if is_busy || !self.knows_committed() || self.is_handing_over() {
            return Err(MemberRefusal::Busy);
        }
        if let Some(why) = behind.pop() {
            return Err(why);
        }
        if !begins.is_empty() {
            return self.propose_change(&begins);
        }
        let heard = voters.iter().filter(|&voter| self.is_heard(now, voter)).count();
        if 2 * heard <= voters.len() {
            let voters = voters.len();
            return Err(MemberRefusal::NoMajority { voters, heard });
        }
        let next = voters.intersection(members.voters);
        if !voters.contains(self.me()) && !next.is_empty() {
            // The next leader changes it. If this one did, the others would only notice that they have no leader.
            self.hand_over(now, next);
            return Err(MemberRefusal::Busy);
        }
        let is_new = |change: &&MemberChange| members.of(change.replica) != change.wanted;
        let changes: Vec<MemberChange> = wanted.iter().filter(is_new).copied().collect();
        self.propose_change(&changes)
    }

    /// Whether this leader has heard a replica lately.
    pub(crate) fn is_heard(&self, now: Micros, replica: ReplicaId) -> bool {
        // raft-rs has a mark for this, and takes it away from all at each election timeout.
        let heard = self.heard.get(&id_of(replica));
        replica == self.me() || heard.is_some_and(|&at| now.since(at) <= self.timing.timeout())
    }

    /// What a learner lacks before it may vote.
    pub(crate) fn lacks(&self, now: Micros, learner: ReplicaId) -> Option<MemberRefusal> {
        let progress = self.node.raft.prs().get(id_of(learner))?;
        if !self.is_heard(now, learner) {
            return Some(MemberRefusal::Silent(learner));
        }
        let lag = self.last().saturating_sub(progress.matched);
        match progress.state {
            ProgressState::Snapshot => Some(MemberRefusal::TakesCopy(learner)),
            _ if progress.matched == 0 || lag > NEARLY => Some(MemberRefusal::Lags(learner, lag)),
            _ => None,
        }
    }

    fn propose_change(&mut self, changes: &[MemberChange]) -> Result<(), MemberRefusal> {
        let voters = self.known.members.voters;
        let is_of_voter =
            |change: &MemberChange| change.wanted == Membership::Voter || voters.contains(change.replica);
        let changes_voters = changes.iter().any(is_of_voter);
        let changes = changes.iter().map(|change| {
            let mut one = ConfChangeSingle::default();
            one.set_change_type(match change.wanted {
                Membership::Voter => ConfChangeType::AddNode,
                Membership::Learner => ConfChangeType::AddLearnerNode,
                Membership::None => ConfChangeType::RemoveNode,
            });
            one.node_id = id_of(change.replica);
            one
        });
        let mut change = ConfChangeV2::default();
        change.mut_changes().extend(changes);
        if changes_voters && !self.planted.changes_at_once {
            change.set_transition(ConfChangeTransition::Implicit);
        }
        let proposed = self.node.propose_conf_change(Vec::new(), change);
        proposed.map_err(|_| MemberRefusal::Busy)
    }

    // ---- entries ----------------------------------------------------------------------------------------------

    /// Keeps that an entry is committed which changes members, before anybody is answered.
    pub(crate) fn keep_committed<P: Protocol>(&mut self, cx: &mut Context<'_, P>) {
        let committed = self.committed();
        let from = self.known.kept + 1;
        if from > committed
            || self.planted.forgets_committed
            || self.known.changes.range(from..=committed).next().is_none()
        {
            return;
        }
        self.known.kept = committed;
        cx.put_named(COMMITTED, Bytes::copy_from_slice(&committed.to_be_bytes()));
        cx.sync();
    }

    /// An entry that changes members is applied.
    pub(crate) fn apply_change<P: Protocol>(&mut self, cx: &mut Context<'_, P>, entry: &Committed) {
        let index = entry.at.index;
        self.known.changes.remove(&index);
        let before = self.known.members;
        // A full copy may have brought it.
        let change = entry.change.as_ref().filter(|_| index > before.index);
        let change = change.and_then(|change| MembersChange::decode(change).ok());
        let Some(state) = change.and_then(|change| self.node.apply_conf_change(&change.into_raft()).ok())
        else {
            return;
        };
        let members = Members::of_raft(index, &state);
        self.set_members(members);
        cx.put_named(MEMBERS, members.encode());
        if self.role() != Role::Leader {
            return;
        }
        for gone in before
            .everyone()
            .minus(members.everyone())
            .without(self.me())
            .iter()
        {
            self.tell_members(id_of(gone));
        }
        if !members.all_voters().contains(self.me()) {
            self.hand_over(cx.now.monotonic, members.voters);
            self.follow_nobody();
        }
    }

    fn set_members(&mut self, members: Members) {
        self.known.members = members;
        self.node.mut_store().set_members(members.in_raft());
        if self.known.told.is_some_and(|(index, _)| index <= members.index) {
            self.known.told = None;
        }
        if !members.contains(self.me()) && self.role() != Role::Leader {
            self.follow_nobody();
        }
    }

    /// It has no leader that it knows of.
    pub(crate) fn follow_nobody(&mut self) {
        let term = self.term();
        self.node.raft.become_follower(term, INVALID_ID);
    }

    /// A full copy is in place: its members count, if they are newer. They are those of an entry that its source had applied.
    pub(crate) fn members_after(&self, copied: &Recovered) -> Members {
        let copied = Knowledge::kept(self.known.replicas, copied);
        let newer = copied.filter(|copied| copied.index > self.known.members.index);
        newer.unwrap_or(self.known.members)
    }

    /// The log begins behind a full copy.
    pub(crate) fn restore_members<P: Protocol>(&mut self, cx: &mut Context<'_, P>, members: Members) {
        self.known.changes.clear();
        if members != self.known.members {
            self.set_members(members);
            cx.put_named(MEMBERS, members.encode());
        }
    }

    // ---- replicas that do not know that they are no members -----------------------------------------------------

    /// Tells a replica that takes no part who does.
    pub(crate) fn tell_members(&mut self, to: u64) {
        let (index, everyone) = (self.known.members.index, self.known.members.everyone());
        let told = RaftMessage::members(self.node.raft.id, to, self.term(), index, everyone);
        self.to_send.push(told);
    }

    /// Another replica says who takes part.
    pub(crate) fn on_members(&mut self, from: ReplicaId, told: (u64, ReplicaSet)) {
        let newest = self
            .known
            .told
            .map_or(self.known.members.index, |(index, _)| index);
        if told.0 < self.known.members.index && !self.known.members.contains(from) {
            return self.tell_members(id_of(from));
        }
        if told.0 <= newest || self.role() == Role::Leader {
            return;
        }
        self.known.told = Some(told);
        if !self.is_member() {
            self.follow_nobody();
        }
    }

    /// A leader is heard: it counts this replica among the members.
    pub(crate) fn is_led(&mut self) {
        self.known.told = None;
    }

    /// A replica that does not vote has heard no leader for long. It asks for no votes, so it has to ask whether it still takes part: it says what it knows.
    pub(crate) fn ask_whether_member(&mut self) {
        let others: Vec<u64> = self.known.replicas.without(self.me()).iter().map(id_of).collect();
        others.into_iter().for_each(|other| self.tell_members(other));
    }

    /// Whose votes may be needed, as far as this replica knows.
    pub(crate) fn electorate(&self) -> Electorate {
        let members = &self.known.members;
        Electorate {
            index: members.index,
            voters: members.voters.union(self.added()),
            outgoing: members.outgoing,
        }
    }

    /// The replicas that entries of the log may make voters.
    fn added(&self) -> ReplicaSet {
        let entries = self
            .known
            .changes
            .iter()
            .filter_map(|&index| self.node.store().get(index));
        let changes = entries.filter_map(|entry| MembersChange::decode(&entry.data).ok());
        changes
            .map(|change| change.voters())
            .fold(ReplicaSet::default(), ReplicaSet::union)
    }
}
