//! What a node reports of a group, and what operators want of it.
//!
//! The leader of a group fulfils a [`Wish`]. If a follower is to lead, [`Group::fulfil`] returns the leader, and the protocol asks it to hand its leadership over. If the leader cannot change the members as an operator
//! wants, its status says why.
use crate::group::{Group, Role};
use turnbuckle_core::{GroupStatus, Micros, ReplicaId, Wish};

impl Group {
    /// The group as this replica knows it.
    pub fn status(&self) -> GroupStatus {
        let (members, leads) = (self.members(), self.role() == Role::Leader);
        GroupStatus {
            replicas: self.replicas(),
            leader: self.leader(),
            term: self.term(),
            committed: self.committed(),
            applied: self.applied.index,
            is_member: self.is_member(),
            leads,
            is_handing_over: self.is_handing_over(),
            voters: members.voters,
            outgoing: members.outgoing,
            learners: members.learners,
            refusal: self.refusal.filter(|_| leads),
            awaits: None,
        }
    }

    /// Whether this replica takes part and knows no leader.
    pub fn lacks_leader(&self) -> bool {
        self.is_member() && self.leader().is_none()
    }

    /// Whether something is under way: this replica lacks rows or a leader, or has not applied a committed entry, or a follower lacks one.
    pub fn is_busy(&self) -> bool {
        self.is_incomplete()
            || self.lacks_leader()
            || self.has_followers_behind()
            || self.applied.index < self.committed()
    }

    /// An operator wants something. Returns the leader that is to be told that this replica wants to lead ([`Group::let_lead`]). Call [`Group::handle_ready`] after it.
    pub fn fulfil(&mut self, now: Micros, wish: Wish) -> Option<ReplicaId> {
        match wish {
            Wish::HandOver => self.hand_over(now, self.replicas()),
            Wish::Lead => {
                let leader = self.leader().filter(|_| self.knows_its_promises());
                return leader.filter(|&leader| leader != self.me());
            }
            Wish::Members(changes) if self.role() == Role::Leader => {
                self.refusal = self.change_members(now, &changes).err();
            }
            Wish::Members(_) => {}
        }
        None
    }
}
