//! Rows that peers need of this lane, and the checkpoints that they wait for.
use super::{Lane, Repair};
use crate::incoming::Errand;
use std::cmp::Reverse;
use turnbuckle_core::{Protocol, ReplicaId};

impl<P: Protocol> Lane<P> {
    /// A peer needs rows, and for them a checkpoint that begins after now.
    pub fn want_rows(&mut self, replica: ReplicaId, errand: Errand) {
        let wanted = self.rows_wanted.entry(replica).or_default();
        wanted.retain(|other| {
            std::mem::discriminant(&other.purpose) != std::mem::discriminant(&errand.purpose)
        });
        wanted.push(Errand {
            in_checkpoint: false,
            ..errand
        });
        self.wake_worker();
    }

    /// Whether peers wait for rows and no checkpoint has begun since they asked, or the lane has none of its own yet.
    pub fn wants_row_checkpoint(&self) -> bool {
        let waits =
            |replica: &ReplicaId, errand: &Errand| !errand.in_checkpoint && self.is_due(*replica, errand);
        let mut wanted = self.rows_wanted.iter();
        self.is_new || wanted.any(|(replica, errands)| errands.iter().any(|errand| waits(replica, errand)))
    }

    /// Whether a checkpoint may begin for a peer. A replica that lacks rows itself waits for nothing of a peer that lacks rows, too. To another one it gives
    /// back what that has lost, or sends a copy where its log does not reach back, only if nobody else can send a copy first: the peer sends its
    /// copy afterwards, and each would wait for the other.
    fn is_due(&self, replica: ReplicaId, errand: &Errand) -> bool {
        let logged = self.incoming.get(&replica).map(|incoming| incoming.logged);
        let has_all = match (&self.repair, errand.behind) {
            (None, behind) => logged.unwrap_or_default() >= behind.unwrap_or_default(),
            (Some(repair), None) => self.is_first_to_be_served(repair, replica, errand.has),
            (Some(_), Some(_)) => true,
        };
        self.may_give() && has_all
    }

    /// Every peer whose copy is needed waits for rows of this lane itself, and none of them has taken in more of it than this one. The one that has most goes
    /// first: its copy may bring what the next one lacks.
    fn is_first_to_be_served(&self, repair: &Repair, replica: ReplicaId, has: u64) -> bool {
        let is_behind = |other: ReplicaId| {
            let waits = self.rows_wanted.get(&other);
            let is_less = |errand: &Errand| (errand.has, Reverse(other)) < (has, Reverse(replica));
            waits.is_some_and(|errands| !errands.is_empty() && errands.iter().all(is_less))
        };
        repair.open().filter(|&other| other != replica).all(is_behind)
    }

    /// A checkpoint begins: it will have what peers have asked for so far.
    pub fn begin_row_checkpoint(&mut self) {
        self.is_new = false;
        self.forgets_behind = self.replica.clock();
        let mut wanted = self.rows_wanted.clone();
        for (&replica, errands) in &mut wanted {
            for errand in errands {
                errand.in_checkpoint |= self.is_due(replica, errand);
            }
        }
        self.rows_wanted = wanted;
    }

    /// The checkpoint is over: what peers asked for before it began. Those whose link has broken meanwhile ask again.
    pub fn take_errands(&mut self) -> Vec<(ReplicaId, Errand)> {
        let takes_all = self.env.shared().config.planted.rows_of_begun_checkpoint;
        let mut taken = Vec::new();
        for (&replica, errands) in &mut self.rows_wanted {
            let done = errands.extract_if(.., |errand| takes_all || errand.in_checkpoint);
            taken.extend(done.map(|errand| (replica, errand)));
        }
        taken
    }
}
