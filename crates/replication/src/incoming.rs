//! The receiver's side: where a lane is in the streams of its peers, and what has arrived and waits for its turn.
//!
//! An entry is bytes here. Who drives it decodes them when they arrive, so that a bad one breaks the link at once, and takes them out again
//! when their turn has come ([`Incoming::pop`]).
mod peer_stream;
pub use peer_stream::PeerStream;

use crate::{
    CopyIn, CopyState, StreamPosition,
    pending::{Item, Pending},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicUsize},
};
use turnbuckle_core::{BadFrame, Hlc, ReplicaId, ReplicaSet};

/// Where a lane is in the streams of its peers, and the full copy that arrives from one of them.
pub struct Incoming<E, M> {
    streams: BTreeMap<ReplicaId, PeerStream<E, M>>,
    /// At most one: staged rows share a place.
    copy: Option<CopyIn>,
    /// Peers that offered a full copy while another one was under way: they are asked for it again afterwards.
    declined: ReplicaSet,
    /// Peers whose full copies the protocol has asked for, and that have not begun.
    wanted: ReplicaSet,
    /// Peers whose timestamps are too far ahead.
    ahead: ReplicaSet,
}

/// What the source of a stream is told when it is to go on.
#[derive(Debug, PartialEq, Eq)]
pub struct Word {
    /// It goes on behind this.
    pub at: StreamPosition,
    /// How far copies of third sites go in it, if that is further.
    pub held: Option<StreamPosition>,
    /// How often it was told, with this time.
    pub number: u64,
}

impl<E, M> Incoming<E, M> {
    /// Streams of these peers, with what the last checkpoint says of them. `returned_bytes` counts what peers give back to all lanes of the node.
    pub fn new(
        peers: impl Iterator<Item = ReplicaId>,
        received: &BTreeMap<ReplicaId, StreamPosition>,
        window_bytes: usize,
        returned_bytes: &Arc<AtomicUsize>,
    ) -> Incoming<E, M> {
        let stream = |replica| {
            let at = received.get(&replica).copied().unwrap_or_default();
            let pending = Pending::new(window_bytes, Arc::clone(returned_bytes));
            (replica, PeerStream::new(at, pending))
        };
        Incoming {
            streams: peers.map(stream).collect(),
            copy: None,
            declined: ReplicaSet::default(),
            wanted: ReplicaSet::default(),
            ahead: ReplicaSet::default(),
        }
    }

    // ---- recovery -------------------------------------------------------------------------------------------

    /// The log says that everything up to here was handed on.
    pub fn replay(&mut self, replica: ReplicaId, position: StreamPosition) {
        if let Some(stream) = self.streams.get_mut(&replica) {
            stream.replay(position);
        }
    }

    /// Rows that are here, or are about to be, may go so far in the streams of these peers.
    pub fn hold(&mut self, places: impl Iterator<Item = (ReplicaId, StreamPosition)>) {
        for (replica, place) in places {
            if let Some(stream) = self.streams.get_mut(&replica) {
                stream.held = stream.held.max(place);
            }
        }
    }

    /// The store holds what `cut` covers, whatever the streams bring.
    pub fn cover(&mut self, cut: &[(ReplicaId, Hlc)]) {
        for (replica, until) in cut {
            if let Some(stream) = self.streams.get_mut(replica) {
                stream.covered = stream.covered.max(*until);
            }
        }
    }

    // ---- what can be seen -----------------------------------------------------------------------------------

    /// The peers.
    pub fn peers(&self) -> ReplicaSet {
        self.streams.keys().copied().collect()
    }

    /// The stream of a peer.
    pub fn stream(&self, replica: ReplicaId) -> Option<&PeerStream<E, M>> {
        self.streams.get(&replica)
    }

    /// The stream of whom a frame comes from.
    ///
    /// # Errors
    /// If that is no peer.
    pub fn stream_of(&mut self, replica: ReplicaId) -> Result<&mut PeerStream<E, M>, BadFrame> {
        let unknown = || BadFrame::new("a peer at another site", replica.0.to_string());
        self.streams.get_mut(&replica).ok_or_else(unknown)
    }

    /// For a checkpoint: how far each stream was handed on, as far as the log knows.
    pub fn logged(&self) -> impl Iterator<Item = (ReplicaId, StreamPosition)> {
        self.streams
            .iter()
            .map(|(&replica, stream)| (replica, stream.logged))
    }

    /// For a checkpoint: how far in each stream rows may go that are here.
    pub fn held(&self) -> impl Iterator<Item = (ReplicaId, StreamPosition)> {
        let held = |stream: &PeerStream<E, M>| stream.held.max(stream.logged);
        self.streams
            .iter()
            .map(move |(&replica, stream)| (replica, held(stream)))
    }

    /// Whether the source of a stream has been told where to go on.
    pub fn is_resumed(&self, replica: ReplicaId) -> bool {
        self.streams.get(&replica).is_some_and(|stream| stream.is_resumed)
    }

    /// Whether entries and marks of a peer are expected now. Others are left over from before a resume and are passed over.
    pub fn is_streaming(&self, replica: ReplicaId) -> bool {
        let is_copied = self.copy.as_ref().is_some_and(|copy| copy.from == replica);
        self.is_resumed(replica) && !is_copied && !self.declined.contains(replica)
    }

    // ---- links ----------------------------------------------------------------------------------------------

    /// The link to a peer is up, or a copy is in place: from here on its stream continues from where the returned word says, which the source is told.
    pub fn resume(&mut self, replica: ReplicaId) -> Option<Word> {
        self.go_on(replica);
        let stream = self.streams.get_mut(&replica)?;
        stream.words += 1;
        Some(Word {
            at: stream.received,
            held: stream.held_beyond(),
            number: stream.words,
        })
    }

    /// The stream of a peer goes on from where it was taken in, as its source has said by itself.
    pub fn go_on(&mut self, replica: ReplicaId) {
        if let Some(stream) = self.streams.get_mut(&replica) {
            stream.resume();
        }
        self.drop_copy(replica);
        self.declined = self.declined.without(replica);
    }

    /// The link to a peer is down. A copy that has arrived whole is put in place all the same. Returns whether one was dropped that had not.
    pub fn silence(&mut self, replica: ReplicaId) -> bool {
        if let Some(stream) = self.streams.get_mut(&replica) {
            stream.silence();
        }
        let is_lost = |copy: &CopyIn| copy.from == replica && copy.state < CopyState::Whole;
        let is_dropped = self.copy.as_ref().is_some_and(is_lost);
        if is_dropped {
            self.drop_copy(replica);
        }
        is_dropped
    }

    // ---- entries --------------------------------------------------------------------------------------------

    /// The next item of a peer.
    pub fn front(&self, replica: ReplicaId) -> Option<&Item<E, M>> {
        self.streams.get(&replica)?.pending.front()
    }

    /// The entries among the next items of a peer.
    pub fn next_entries(&self, replica: ReplicaId, items: usize) -> impl DoubleEndedIterator<Item = &E> {
        let stream = self.streams.get(&replica);
        stream
            .into_iter()
            .flat_map(move |stream| stream.pending.next_entries(items))
    }

    /// Takes the next item of a peer out: its turn has come. The position in the stream goes with it.
    pub fn pop(&mut self, replica: ReplicaId) -> Option<Item<E, M>> {
        let stream = self.streams.get_mut(&replica)?;
        let item = stream.pending.pop()?;
        if let Item::Entry { at, .. } | Item::Reached(at) = &item {
            stream.received = *at;
        }
        Some(item)
    }

    /// A timestamp of a peer is too far ahead. Returns whether that is new.
    pub fn note_ahead(&mut self, replica: ReplicaId) -> bool {
        let is_new = !self.ahead.contains(replica);
        self.ahead = self.ahead.union(ReplicaSet::one(replica));
        is_new
    }

    /// A timestamp of a peer is not too far ahead.
    pub fn note_in_time(&mut self, replica: ReplicaId) {
        self.ahead = self.ahead.without(replica);
    }

    /// Whether a peer's timestamps are too far ahead: what comes from it waits.
    pub fn is_ahead(&self, replica: ReplicaId) -> bool {
        self.ahead.contains(replica)
    }

    /// How far streams have come since the log was last told. It is told now.
    pub fn take_moved(&mut self) -> Vec<(ReplicaId, StreamPosition)> {
        let moved = self
            .streams
            .iter_mut()
            .filter(|(_, stream)| stream.logged != stream.received);
        let tell = |(&replica, stream): (&ReplicaId, &mut PeerStream<E, M>)| {
            stream.logged = stream.received;
            (replica, stream.received)
        };
        moved.map(tell).collect()
    }

    // ---- full copies ----------------------------------------------------------------------------------------

    /// A full copy begins. Returns whether it is taken: it is not while another one is under way.
    pub fn begin_copy(&mut self, mut copy: CopyIn) -> bool {
        let is_in_the_way = |other: &CopyIn| other.from != copy.from || other.state != CopyState::Arriving;
        if self.copy.as_ref().is_some_and(is_in_the_way) {
            self.declined = self.declined.union(ReplicaSet::one(copy.from));
            return false;
        }
        if let Some(stream) = self.streams.get_mut(&copy.from) {
            stream.pending.drop_stream();
        }
        self.drop_copy(copy.from);
        copy.is_wanted = self.wanted.contains(copy.from);
        self.wanted = self.wanted.without(copy.from);
        self.copy = Some(copy);
        true
    }

    /// The rows of the copy that has just begun cannot be staged. What follows of it is passed over.
    pub fn refuse_copy(&mut self, replica: ReplicaId) {
        self.drop_copy(replica);
        self.declined = self.declined.union(ReplicaSet::one(replica));
    }

    /// The peers whose copies were declined.
    pub fn declined(&self) -> ReplicaSet {
        self.declined
    }

    /// The full copy that is under way.
    pub fn copy(&self) -> Option<&CopyIn> {
        self.copy.as_ref()
    }

    /// That of this peer, whose rows arrive.
    pub fn arriving(&mut self, replica: ReplicaId) -> Option<&mut CopyIn> {
        let arrives = |copy: &&mut CopyIn| copy.from == replica && copy.state == CopyState::Arriving;
        self.copy.as_mut().filter(arrives)
    }

    /// How far the copy of a peer is.
    pub fn set_copy_state(&mut self, replica: ReplicaId, state: CopyState) {
        if let Some(copy) = self.copy.as_mut().filter(|copy| copy.from == replica) {
            copy.state = state;
        }
    }

    /// What has come of a peer's copy is of no use. If the protocol has asked for it, it is asked for again.
    fn drop_copy(&mut self, replica: ReplicaId) {
        let dropped = self.copy.take_if(|copy| copy.from == replica);
        if dropped.is_some_and(|copy| copy.is_wanted) {
            self.want_copy(replica);
        }
    }

    /// The protocol asks for a copy of a peer, which is to begin after now.
    pub fn want_copy(&mut self, replica: ReplicaId) {
        self.wanted = self.wanted.union(ReplicaSet::one(replica));
    }

    /// Whether the protocol has asked for a copy of a peer that has not begun.
    pub fn wants_copy(&self, replica: ReplicaId) -> bool {
        self.wanted.contains(replica)
    }

    /// A full copy is in place, and nothing of it is staged any more: the stream goes on behind it. One that lacked rows is not what the protocol has
    /// asked for.
    pub fn copied(&mut self, copy: &CopyIn) {
        if let Some(stream) = self.streams.get_mut(&copy.from) {
            stream.received = copy.resume;
        }
        match copy.is_partial {
            true => self.drop_copy(copy.from),
            false => drop(self.copy.take_if(|placed| placed.from == copy.from)),
        }
    }

    /// Up to where the entries of a site wait: a full copy that covers them is being put in place.
    pub fn waits_until(&self, replica: ReplicaId) -> Hlc {
        let placing = self.copy.as_ref().filter(|copy| copy.state == CopyState::Placing);
        placing.map_or(Hlc::ZERO, |copy| copy.covers_of(replica))
    }
}

#[cfg(test)]
mod tests;
