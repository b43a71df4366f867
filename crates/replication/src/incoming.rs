//! The receiver's side: where a lane is in the streams of its peers, and the items that have arrived and wait for their turn.
//!
//! This module does not look into entries. The driver decodes them when they arrive, so that a bad one breaks the link at once, and takes them out
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
    /// At most one copy at a time, because staged rows share one place.
    copy: Option<CopyIn>,
    /// Peers that offered a full copy while another one was under way: they are asked for it again afterwards.
    declined: ReplicaSet,
    /// Peers that the protocol has asked for a full copy, and whose copy has not begun.
    wanted: ReplicaSet,
    /// Peers whose timestamps are too far ahead.
    ahead: ReplicaSet,
}

/// The word that the source of a stream is sent when the stream is to continue.
#[derive(Debug, PartialEq, Eq)]
pub struct Word {
    /// The stream continues behind this position.
    pub at: StreamPosition,
    /// How far in this stream full copies from third sites reach, if that is further.
    pub held: Option<StreamPosition>,
    /// How many words the source has been sent, with this one.
    pub number: u64,
}

impl<E, M> Incoming<E, M> {
    /// Streams of these peers, with what the last checkpoint says of them. `returned_bytes` counts the bytes that wait of what peers send back to all
    /// lanes of the node.
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

    /// The log says that everything up to this position was handed to the protocol.
    pub fn replay(&mut self, replica: ReplicaId, position: StreamPosition) {
        if let Some(stream) = self.streams.get_mut(&replica) {
            stream.replay(position);
        }
    }

    /// Notes that rows here, or rows that are about to be here, may reach up to these positions in the streams of these peers.
    pub fn hold(&mut self, places: impl Iterator<Item = (ReplicaId, StreamPosition)>) {
        for (replica, place) in places {
            if let Some(stream) = self.streams.get_mut(&replica) {
                stream.held = stream.held.max(place);
            }
        }
    }

    /// Notes that the store has everything that `cut` covers, whatever the streams still bring.
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

    /// The stream of the replica that a frame comes from.
    ///
    /// # Errors
    /// If it is not a peer.
    pub fn stream_of(&mut self, replica: ReplicaId) -> Result<&mut PeerStream<E, M>, BadFrame> {
        let unknown = || BadFrame::new("a peer at another site", replica.0.to_string());
        self.streams.get_mut(&replica).ok_or_else(unknown)
    }

    /// For a checkpoint: how far each stream was handed to the protocol, according to the log.
    pub fn logged(&self) -> impl Iterator<Item = (ReplicaId, StreamPosition)> {
        self.streams
            .iter()
            .map(|(&replica, stream)| (replica, stream.logged))
    }

    /// For a checkpoint: how far in each stream the rows here may reach.
    pub fn held(&self) -> impl Iterator<Item = (ReplicaId, StreamPosition)> {
        let held = |stream: &PeerStream<E, M>| stream.held.max(stream.logged);
        self.streams
            .iter()
            .map(move |(&replica, stream)| (replica, held(stream)))
    }

    /// Whether the source of a stream has been told where to continue.
    pub fn is_resumed(&self, replica: ReplicaId) -> bool {
        self.streams.get(&replica).is_some_and(|stream| stream.is_resumed)
    }

    /// Whether entries and marks of a peer are expected now. If not, those that arrive are left over from before a resume, and are skipped.
    pub fn is_streaming(&self, replica: ReplicaId) -> bool {
        let is_copied = self.copy.as_ref().is_some_and(|copy| copy.from == replica);
        self.is_resumed(replica) && !is_copied && !self.declined.contains(replica)
    }

    // ---- links ----------------------------------------------------------------------------------------------

    /// The link to a peer is up, or a copy is in place. From here on its stream continues from the position in the returned word, which the source
    /// must be sent.
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

    /// The stream of a peer continues from the position that was received, as its source has announced by itself.
    pub fn go_on(&mut self, replica: ReplicaId) {
        if let Some(stream) = self.streams.get_mut(&replica) {
            stream.resume();
        }
        self.drop_copy(replica);
        self.declined = self.declined.without(replica);
    }

    /// The link to a peer is down. A copy that has arrived completely is put in place all the same. Returns whether an incomplete one was dropped.
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

    /// The same, to be looked at once and for all before it is handled.
    pub fn front_mut(&mut self, replica: ReplicaId) -> Option<&mut Item<E, M>> {
        self.streams.get_mut(&replica)?.pending.front_mut()
    }

    /// The entries among the next items of a peer.
    pub fn next_entries(&self, replica: ReplicaId, items: usize) -> impl DoubleEndedIterator<Item = &E> {
        let stream = self.streams.get(&replica);
        stream
            .into_iter()
            .flat_map(move |stream| stream.pending.next_entries(items))
    }

    /// Takes out the next item of a peer, whose turn has come. The position in the stream advances with it.
    pub fn pop(&mut self, replica: ReplicaId) -> Option<Item<E, M>> {
        let stream = self.streams.get_mut(&replica)?;
        let item = stream.pending.pop()?;
        if let Item::Entry { at, .. } | Item::Reached(at) = &item {
            stream.received = *at;
        }
        Some(item)
    }

    /// Notes that a timestamp of a peer is too far ahead. Returns whether that is new.
    pub fn note_ahead(&mut self, replica: ReplicaId) -> bool {
        let is_new = !self.ahead.contains(replica);
        self.ahead = self.ahead.union(ReplicaSet::one(replica));
        is_new
    }

    /// Notes that a timestamp of a peer is not too far ahead.
    pub fn note_in_time(&mut self, replica: ReplicaId) {
        self.ahead = self.ahead.without(replica);
    }

    /// Whether a peer's timestamps are too far ahead: what comes from it waits.
    pub fn is_ahead(&self, replica: ReplicaId) -> bool {
        self.ahead.contains(replica)
    }

    /// The streams that have advanced since the log was last told, and their positions. They count as told from now on.
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

    /// A full copy begins. Returns whether it is accepted. It is declined while another copy is under way, unless that is of the same peer and still
    /// arriving: then the new copy replaces it.
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

    /// The rows of the copy that has just begun cannot be staged. It is declined: what follows of it is skipped.
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

    /// The copy of this peer, if its rows are arriving.
    pub fn arriving(&mut self, replica: ReplicaId) -> Option<&mut CopyIn> {
        let arrives = |copy: &&mut CopyIn| copy.from == replica && copy.state == CopyState::Arriving;
        self.copy.as_mut().filter(arrives)
    }

    /// Sets how far the copy of a peer is.
    pub fn set_copy_state(&mut self, replica: ReplicaId, state: CopyState) {
        if let Some(copy) = self.copy.as_mut().filter(|copy| copy.from == replica) {
            copy.state = state;
        }
    }

    /// Drops what has arrived of a peer's copy. If the protocol has asked for the copy, it is asked for again.
    fn drop_copy(&mut self, replica: ReplicaId) {
        let dropped = self.copy.take_if(|copy| copy.from == replica);
        if dropped.is_some_and(|copy| copy.is_wanted) {
            self.want_copy(replica);
        }
    }

    /// The protocol asks for a full copy of a peer, which must begin after now.
    pub fn want_copy(&mut self, replica: ReplicaId) {
        self.wanted = self.wanted.union(ReplicaSet::one(replica));
    }

    /// Whether the protocol has asked for a full copy of a peer, and it has not begun.
    pub fn wants_copy(&self, replica: ReplicaId) -> bool {
        self.wanted.contains(replica)
    }

    /// A full copy is in place, and none of its rows is staged any more: the stream continues behind it. If rows were missing at its source, it is
    /// not what the protocol has asked for, and is asked for again.
    pub fn copied(&mut self, copy: &CopyIn) {
        if let Some(stream) = self.streams.get_mut(&copy.from) {
            stream.received = copy.resume;
        }
        match copy.is_partial {
            true => self.drop_copy(copy.from),
            false => drop(self.copy.take_if(|placed| placed.from == copy.from)),
        }
    }

    /// The time up to which a replica's entries wait because a full copy that covers them is being put in place. Zero if none wait.
    pub fn waits_until(&self, replica: ReplicaId) -> Hlc {
        let placing = self.copy.as_ref().filter(|copy| copy.state == CopyState::Placing);
        placing.map_or(Hlc::ZERO, |copy| copy.covers_of(replica))
    }
}

#[cfg(test)]
mod tests;
