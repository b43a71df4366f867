//! Rows that peers have asked for: full copies, and what is given back. Each waits for a checkpoint that begins after it was asked for.
use crate::{Incoming, Repair, StreamPosition};
use std::{cmp::Reverse, collections::BTreeMap, mem::discriminant};
use turnbuckle_core::{Hlc, ReplicaId};

/// What a take-back asks for: versions of the peer that were stamped after `since`.
#[derive(Debug, Clone, Copy)]
pub struct TakeBack {
    /// After this.
    pub since: Hlc,
    /// Deletes up to here may be forgotten elsewhere.
    pub forgettable: Hlc,
}

/// What rows are sent for.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// A full copy.
    Copy,
    /// Giving back what the peer lost.
    Return(TakeBack),
}

/// Rows that a peer has asked for and that wait for a checkpoint.
#[derive(Debug, Clone, Copy)]
pub struct Errand {
    /// What they are for.
    pub purpose: Purpose,
    /// The checkpoint under way began after they were asked for: it has them.
    in_checkpoint: bool,
    /// The peer lacks rows itself: its stream is to be taken in up to here before such a checkpoint begins. Others are given nothing while rows
    /// are missing here and can still come: what comes with a copy is not streamed to them any more.
    behind: Option<StreamPosition>,
    /// How many entries of this lane's stream the peer has taken in.
    has: u64,
}

impl Errand {
    /// A peer whose rows are all there gets back what it lost.
    pub fn give_back(since: Hlc) -> Errand {
        let forgettable = Hlc::ZERO;
        Errand::again(Purpose::Return(TakeBack { since, forgettable }))
    }

    /// A full copy for a peer.
    pub fn copy(behind: Option<StreamPosition>, has: u64) -> Errand {
        Errand {
            behind,
            has,
            ..Errand::again(Purpose::Copy)
        }
    }

    /// What was begun and could not be read is begun once more.
    pub fn again(purpose: Purpose) -> Errand {
        Errand {
            purpose,
            in_checkpoint: false,
            behind: None,
            has: 0,
        }
    }
}

/// What peers have asked for, at most one errand of each kind for each of them.
#[derive(Default)]
pub struct Errands(BTreeMap<ReplicaId, Vec<Errand>>);

impl Errands {
    /// A peer needs rows, and for them a checkpoint that begins after now.
    pub fn want(&mut self, replica: ReplicaId, errand: Errand) {
        let wanted = self.0.entry(replica).or_default();
        wanted.retain(|other| discriminant(&other.purpose) != discriminant(&errand.purpose));
        wanted.push(Errand {
            in_checkpoint: false,
            ..errand
        });
    }

    /// The link to a peer is down: it asks again.
    pub fn silence(&mut self, replica: ReplicaId) {
        self.0.remove(&replica);
    }

    /// A peer has said anew where it is: a copy that it waits for is of no use any more.
    pub fn drop_copies(&mut self, replica: ReplicaId) {
        if let Some(errands) = self.0.get_mut(&replica) {
            errands.retain(|errand| matches!(errand.purpose, Purpose::Return(_)));
        }
    }

    /// Nothing is given back to anybody. Returns who waits for that.
    pub fn drop_returns(&mut self) -> Vec<ReplicaId> {
        let is_return = |errand: &mut Errand| matches!(errand.purpose, Purpose::Return(_));
        let mut waiting = Vec::new();
        for (&replica, errands) in &mut self.0 {
            waiting.extend(errands.extract_if(.., is_return).map(|_| replica));
        }
        waiting
    }

    /// Whether a checkpoint is to begin for a peer.
    pub fn wants_checkpoint<E, M>(&self, lacks: &Lacks<'_, E, M>) -> bool {
        let is_next = |replica, errand: &Errand| !errand.in_checkpoint && self.is_due(replica, errand, lacks);
        let mut wanted = self.0.iter();
        wanted.any(|(&replica, errands)| errands.iter().any(|errand| is_next(replica, errand)))
    }

    /// A checkpoint begins: it will have what peers have asked for so far.
    pub fn begin_checkpoint<E, M>(&mut self, lacks: &Lacks<'_, E, M>) {
        let mut wanted = self.0.clone();
        for (&replica, errands) in &mut wanted {
            for errand in errands {
                errand.in_checkpoint |= self.is_due(replica, errand, lacks);
            }
        }
        self.0 = wanted;
    }

    /// The checkpoint is over: what peers asked for before it began. With `takes_all`, a planted bug, what they asked for later as well.
    pub fn take_done(&mut self, takes_all: bool) -> Vec<(ReplicaId, Errand)> {
        let mut taken = Vec::new();
        for (&replica, errands) in &mut self.0 {
            let done = errands.extract_if(.., |errand| takes_all || errand.in_checkpoint);
            taken.extend(done.map(|errand| (replica, errand)));
        }
        taken
    }

    /// Whether a checkpoint may begin for a peer. A replica that lacks rows itself waits for nothing of a peer that lacks rows, too. To another one it gives
    /// back what that has lost, or sends a copy where its log does not reach back, only if nobody else can send a copy first: the peer sends its
    /// copy afterwards, and each would wait for the other.
    fn is_due<E, M>(&self, replica: ReplicaId, errand: &Errand, lacks: &Lacks<'_, E, M>) -> bool {
        match (lacks.repair, errand.behind) {
            (None, behind) => lacks.logged(replica) >= behind.unwrap_or_default(),
            (Some(repair), None) => self.is_first_to_be_served(repair, replica, errand.has),
            (Some(_), Some(_)) => true,
        }
    }

    /// Every peer whose copy is needed waits for rows of this lane itself, and none of them has taken in more of it than this one. The one that has most goes
    /// first: its copy may bring what the next one lacks.
    fn is_first_to_be_served(&self, repair: &Repair, replica: ReplicaId, has: u64) -> bool {
        let is_behind = |other: ReplicaId| {
            let waits = self.0.get(&other);
            let is_less = |errand: &Errand| (errand.has, Reverse(other)) < (has, Reverse(replica));
            waits.is_some_and(|errands| !errands.is_empty() && errands.iter().all(is_less))
        };
        repair.open().filter(|&other| other != replica).all(is_behind)
    }
}

/// What a lane that is asked for rows lacks itself.
pub struct Lacks<'a, E, M> {
    /// Its rows that are missing.
    pub repair: Option<&'a Repair>,
    /// How far it has taken in the streams of its peers.
    pub incoming: &'a Incoming<E, M>,
}

impl<E, M> Lacks<'_, E, M> {
    /// How far it has taken in the stream of a peer, as far as the log knows.
    fn logged(&self, replica: ReplicaId) -> StreamPosition {
        let stream = self.incoming.stream(replica);
        stream.map(|stream| stream.logged()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const B: ReplicaId = ReplicaId(1);
    const C: ReplicaId = ReplicaId(2);

    fn at(number: u64) -> StreamPosition {
        StreamPosition {
            incarnation: 1,
            number,
        }
    }

    /// Streams that were taken in up to 9.
    fn streams() -> Incoming<(), ()> {
        let received = BTreeMap::from([(B, at(9)), (C, at(9))]);
        Incoming::new([B, C].into_iter(), &received, 1 << 20, &Arc::default())
    }

    fn lacking<'a>(repair: Option<&'a Repair>, incoming: &'a Incoming<(), ()>) -> Lacks<'a, (), ()> {
        Lacks { repair, incoming }
    }

    #[test]
    fn what_is_asked_for_while_a_checkpoint_goes_on_waits_for_the_next() {
        let streams = streams();
        let whole = lacking(None, &streams);
        let mut errands = Errands::default();
        errands.want(B, Errand::copy(None, 0));
        assert!(errands.wants_checkpoint(&whole));
        errands.begin_checkpoint(&whole);
        assert!(!errands.wants_checkpoint(&whole));
        errands.want(C, Errand::copy(None, 0));
        let done = errands.take_done(false);
        assert_eq!(done.iter().map(|(replica, _)| *replica).collect::<Vec<_>>(), [B]);
        assert!(errands.wants_checkpoint(&whole));
    }

    #[test]
    fn one_that_lacks_rows_waits_until_its_stream_is_taken_in() {
        let streams = streams();
        let whole = lacking(None, &streams);
        let mut errands = Errands::default();
        errands.want(B, Errand::copy(Some(at(10)), 0));
        assert!(!errands.wants_checkpoint(&whole));
        errands.want(B, Errand::copy(Some(at(9)), 0));
        assert!(errands.wants_checkpoint(&whole), "the newer one counts");
    }

    #[test]
    fn if_all_wait_for_each_other_the_one_that_has_most_goes_first() {
        let repair = Repair::of_all([B, C].into_iter(), true);
        let streams = streams();
        let lacks = lacking(Some(&repair), &streams);
        let mut errands = Errands::default();
        errands.want(B, Errand::copy(None, 3));
        assert!(!errands.wants_checkpoint(&lacks), "c may send a copy first");
        errands.want(C, Errand::copy(None, 5));
        errands.begin_checkpoint(&lacks);
        let done = errands.take_done(false);
        assert_eq!(done.iter().map(|(replica, _)| *replica).collect::<Vec<_>>(), [C]);
    }

    #[test]
    fn who_waits_for_what_is_not_given_back_is_named() {
        let mut errands = Errands::default();
        errands.want(B, Errand::give_back(Hlc(5)));
        errands.want(C, Errand::copy(None, 0));
        errands.drop_copies(B);
        assert_eq!(errands.drop_returns(), [B]);
        assert!(errands.drop_returns().is_empty());
    }
}
