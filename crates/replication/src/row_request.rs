//! Rows that peers have asked for: full copies, and versions that a peer has lost. Each request waits for a checkpoint that begins after it was asked
//! for.
use crate::{Incoming, Repair, StreamPosition};
use std::{cmp::Reverse, collections::BTreeMap, mem::discriminant};
use turnbuckle_core::{Hlc, ReplicaId};

/// What a take-back asks for: versions that the peer stamped after `since`, and lost.
#[derive(Debug, Clone, Copy)]
pub struct TakeBack {
    /// The time after which they were stamped.
    pub since: Hlc,
    /// Deletes up to this time may be forgotten at other replicas.
    pub forgettable: Hlc,
}

/// Why rows are sent.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// A full copy.
    Copy,
    /// Versions that the peer has lost.
    Return(TakeBack),
}

/// Rows that a peer has asked for and that wait for a checkpoint.
#[derive(Debug, Clone, Copy)]
pub struct RowRequest {
    /// Why the rows are sent.
    pub purpose: Purpose,
    /// Whether the checkpoint under way began after the rows were asked for, and so has them.
    in_checkpoint: bool,
    /// If the peer lacks rows itself: its stream must be received up to this position before such a checkpoint begins. As long as rows are missing
    /// here and can still come, no peer is sent rows: what comes with a copy is not streamed to peers any more.
    behind: Option<StreamPosition>,
    /// How many entries of this lane's stream the peer has received.
    has: u64,
}

impl RowRequest {
    /// Sends a peer, which lacks no other rows, what it has lost.
    pub fn give_back(since: Hlc) -> RowRequest {
        let forgettable = Hlc::ZERO;
        RowRequest::again(Purpose::Return(TakeBack { since, forgettable }))
    }

    /// A full copy for a peer.
    pub fn copy(behind: Option<StreamPosition>, has: u64) -> RowRequest {
        RowRequest {
            behind,
            has,
            ..RowRequest::again(Purpose::Copy)
        }
    }

    /// Begins a request once more, whose rows could not be read.
    pub fn again(purpose: Purpose) -> RowRequest {
        RowRequest {
            purpose,
            in_checkpoint: false,
            behind: None,
            has: 0,
        }
    }
}

/// What peers have asked for: at most one request of each kind for each peer.
#[derive(Default)]
pub struct RowRequests(BTreeMap<ReplicaId, Vec<RowRequest>>);

impl RowRequests {
    /// A peer needs rows, and for them a checkpoint that begins after now. A request of the same kind for the peer is replaced.
    pub fn want(&mut self, replica: ReplicaId, request: RowRequest) {
        let wanted = self.0.entry(replica).or_default();
        wanted.retain(|other| discriminant(&other.purpose) != discriminant(&request.purpose));
        wanted.push(RowRequest {
            in_checkpoint: false,
            ..request
        });
    }

    /// The link to a peer is down. Its requests are dropped: the peer asks again.
    pub fn silence(&mut self, replica: ReplicaId) {
        self.0.remove(&replica);
    }

    /// A peer has reported its position again: a copy that it waits for is of no use any more, and is dropped.
    pub fn drop_copies(&mut self, replica: ReplicaId) {
        if let Some(requests) = self.0.get_mut(&replica) {
            requests.retain(|request| matches!(request.purpose, Purpose::Return(_)));
        }
    }

    /// Drops all requests that send peers what they have lost. Returns the peers that wait for them.
    pub fn drop_returns(&mut self) -> Vec<ReplicaId> {
        let is_return = |request: &mut RowRequest| matches!(request.purpose, Purpose::Return(_));
        let mut waiting = Vec::new();
        for (&replica, requests) in &mut self.0 {
            waiting.extend(requests.extract_if(.., is_return).map(|_| replica));
        }
        waiting
    }

    /// Whether a checkpoint is to begin because a peer waits for it.
    pub fn wants_checkpoint<E, M>(&self, lacks: &Lacks<'_, E, M>) -> bool {
        let is_next =
            |replica, request: &RowRequest| !request.in_checkpoint && self.is_due(replica, request, lacks);
        let mut wanted = self.0.iter();
        wanted.any(|(&replica, requests)| requests.iter().any(|request| is_next(replica, request)))
    }

    /// A checkpoint begins: it will have what peers have asked for so far.
    pub fn begin_checkpoint<E, M>(&mut self, lacks: &Lacks<'_, E, M>) {
        let mut wanted = self.0.clone();
        for (&replica, requests) in &mut wanted {
            for request in requests {
                request.in_checkpoint |= self.is_due(replica, request, lacks);
            }
        }
        self.0 = wanted;
    }

    /// The checkpoint is over: takes out what peers asked for before it began. With `takes_all`, a planted bug, also what they asked for later.
    pub fn take_done(&mut self, takes_all: bool) -> Vec<(ReplicaId, RowRequest)> {
        let mut taken = Vec::new();
        for (&replica, requests) in &mut self.0 {
            let done = requests.extract_if(.., |request| takes_all || request.in_checkpoint);
            taken.extend(done.map(|request| (replica, request)));
        }
        taken
    }

    /// Whether a checkpoint may begin for a peer. If rows are missing both here and at the peer, this replica waits for nothing. If rows are missing
    /// only here, it sends the peer what the peer has lost, or a copy where its log does not reach back, only if no other peer can send a copy first.
    /// Otherwise the two would wait for each other, because the peer sends its copy afterwards.
    fn is_due<E, M>(&self, replica: ReplicaId, request: &RowRequest, lacks: &Lacks<'_, E, M>) -> bool {
        match (lacks.repair, request.behind) {
            (None, behind) => lacks.logged(replica) >= behind.unwrap_or_default(),
            (Some(repair), None) => self.is_first_to_be_served(repair, replica, request.has),
            (Some(_), Some(_)) => true,
        }
    }

    /// Whether every peer whose copy is needed here waits for rows of this lane itself, and none of them has received more of its stream than
    /// `replica`. The peer that has most goes first: its copy may bring what the next one lacks.
    fn is_first_to_be_served(&self, repair: &Repair, replica: ReplicaId, has: u64) -> bool {
        let is_behind = |other: ReplicaId| {
            let waits = self.0.get(&other);
            let is_less = |request: &RowRequest| (request.has, Reverse(other)) < (has, Reverse(replica));
            waits.is_some_and(|requests| !requests.is_empty() && requests.iter().all(is_less))
        };
        repair.open().filter(|&other| other != replica).all(is_behind)
    }
}

/// What is missing at a lane that is asked for rows.
pub struct Lacks<'a, E, M> {
    /// The repair of its missing rows, if rows are missing.
    pub repair: Option<&'a Repair>,
    /// How far it has received the streams of its peers.
    pub incoming: &'a Incoming<E, M>,
}

impl<E, M> Lacks<'_, E, M> {
    /// How far it has received the stream of a peer, according to the log.
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

    /// Streams that were received up to 9.
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
        let mut requests = RowRequests::default();
        requests.want(B, RowRequest::copy(None, 0));
        assert!(requests.wants_checkpoint(&whole));
        requests.begin_checkpoint(&whole);
        assert!(!requests.wants_checkpoint(&whole));
        requests.want(C, RowRequest::copy(None, 0));
        let done = requests.take_done(false);
        assert_eq!(done.iter().map(|(replica, _)| *replica).collect::<Vec<_>>(), [B]);
        assert!(requests.wants_checkpoint(&whole));
    }

    #[test]
    fn one_that_lacks_rows_waits_until_its_stream_is_taken_in() {
        let streams = streams();
        let whole = lacking(None, &streams);
        let mut requests = RowRequests::default();
        requests.want(B, RowRequest::copy(Some(at(10)), 0));
        assert!(!requests.wants_checkpoint(&whole));
        requests.want(B, RowRequest::copy(Some(at(9)), 0));
        assert!(requests.wants_checkpoint(&whole), "the newer one counts");
    }

    #[test]
    fn if_all_wait_for_each_other_the_one_that_has_most_goes_first() {
        let repair = Repair::of_all([B, C].into_iter(), true);
        let streams = streams();
        let lacks = lacking(Some(&repair), &streams);
        let mut requests = RowRequests::default();
        requests.want(B, RowRequest::copy(None, 3));
        assert!(!requests.wants_checkpoint(&lacks), "c may send a copy first");
        requests.want(C, RowRequest::copy(None, 5));
        requests.begin_checkpoint(&lacks);
        let done = requests.take_done(false);
        assert_eq!(done.iter().map(|(replica, _)| *replica).collect::<Vec<_>>(), [C]);
    }

    #[test]
    fn who_waits_for_what_is_not_given_back_is_named() {
        let mut requests = RowRequests::default();
        requests.want(B, RowRequest::give_back(Hlc(5)));
        requests.want(C, RowRequest::copy(None, 0));
        requests.drop_copies(B);
        assert_eq!(requests.drop_returns(), [B]);
        assert!(requests.drop_returns().is_empty());
    }
}
