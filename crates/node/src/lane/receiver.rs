//! What peers send of their streams, and versions that they restore: handled in order, as far as the keys are in memory.
use super::Lane;
use crate::entry::{self, Decoded, Made};
use bytes::Bytes;
use turnbuckle_core::{BadFrame, Hlc, Input, Key, Meta, Now, Protocol, ReplicaId, Topology, Versions, Wire};
use turnbuckle_replication::{EntriesFrame, Item, MarkFrame, PositionFrame, ReturnedFrame, cut_from_frames};

/// The number of waiting entries of a stream whose keys are looked at, to read them from disk ahead of time.
const AHEAD: usize = 16;

/// An entry of a stream that has arrived: a version with its key.
pub(crate) struct Arrived<M> {
    decoded: Decoded<M>,
    /// Key and version as they arrived, for the log.
    encoded: Bytes,
    /// A newer share of the peer is here: nobody needs this one.
    is_passed: bool,
}

impl<M: Meta> Arrived<M> {
    /// Decodes an entry from a peer. `origin` must have stamped it: a stream carries its source's own versions, including those that the
    /// source had lost and took back.
    fn decode(encoded: Bytes, origin: ReplicaId, topology: &Topology) -> Result<Arrived<M>, BadFrame> {
        let decoded = entry::decode_entry::<M>(encoded.clone(), topology)?;
        match decoded.version.id.replica == origin {
            true => Ok(Arrived {
                decoded,
                encoded,
                is_passed: false,
            }),
            false => Err(BadFrame::new(
                "versions of the site that stamped the stream",
                decoded.version.id.to_string(),
            )),
        }
    }

    /// Decodes a version that a peer restores: it is the receiver's own, and whole.
    fn restored(encoded: Bytes, me: ReplicaId, topology: &Topology) -> Result<Arrived<M>, BadFrame> {
        let arrived = Arrived::decode(encoded, me, topology)?;
        match arrived.decoded.difference {
            None => Ok(arrived),
            Some(_) => Err(BadFrame::new(
                "restored versions with all that they say",
                "a difference to an earlier one".to_string(),
            )),
        }
    }
}

impl<P: Protocol> Lane<P> {
    pub(super) fn on_entries(
        &mut self,
        now: Now,
        replica: ReplicaId,
        frame: EntriesFrame,
    ) -> Result<(), BadFrame> {
        let is_streaming = self.incoming.is_streaming(replica);
        let stream = self.incoming.stream_of(replica)?;
        if is_streaming {
            let topology = self.env.topology();
            stream.arrive(frame, |entry| Arrived::decode(entry, replica, topology))?;
            self.drain(now, replica);
        }
        Ok(())
    }

    pub(super) fn on_mark(&mut self, now: Now, replica: ReplicaId, frame: MarkFrame) -> Result<(), BadFrame> {
        let message = self.decode_message(frame.body.clone())?;
        let is_streaming = self.incoming.is_streaming(replica);
        let stream = self.incoming.stream_of(replica)?;
        if is_streaming {
            stream.arrive_mark(&frame, message)?;
            self.drain(now, replica);
        }
        Ok(())
    }

    pub(super) fn on_returned(
        &mut self,
        now: Now,
        replica: ReplicaId,
        frame: ReturnedFrame,
    ) -> Result<(), BadFrame> {
        let topology = self.env.topology();
        let stream = self.incoming.stream_of(replica)?;
        for entry in frame.entries {
            let bytes = entry.len();
            stream.arrive_returned(Arrived::restored(entry, self.id, topology)?, bytes)?;
        }
        stream.arrive_named(frame.named)?;
        if frame.end {
            let cut = cut_from_frames(&frame.withheld)?;
            topology.check_replicas(cut.iter().map(|&(replica, _)| replica).collect())?;
            stream.arrive_end(cut, Hlc(frame.clock))?;
        }
        self.drain(now, replica);
        Ok(())
    }

    /// The source has taken back what it had lost, and its stream goes on behind `place`.
    pub(super) fn on_taken_back(&mut self, replica: ReplicaId, place: PositionFrame) -> Result<(), BadFrame> {
        let waits = self.waits_for_copy(replica) || self.incoming.wants_copy(replica);
        if !self.env.shared().config.planted.takes_again_what_it_had {
            self.cover_what_was_here();
        }
        let is_held = self.incoming.stream_of(replica)?.rewind(place.into());
        self.moved = true;
        // If only copies of third sites had brought those versions here, the place where the stream goes on must still be agreed on.
        match waits || is_held {
            true => self.resume(replica),
            false => self.incoming.go_on(replica),
        }
        Ok(())
    }

    /// A peer that has taken back what it had lost may send its stream again from an earlier place. What was here before is passed over
    /// then, because a delete of it may be forgotten. After a restart the cut does not have all of that. So the settled time counts, too:
    /// what every site shows was here as well.
    pub(super) fn cover_what_was_here(&mut self) {
        if self.is_blank() {
            return;
        }
        let (mut cut, settled) = (self.cut(), self.settled());
        for (_, until) in &mut cut {
            *until = settled.max(*until);
        }
        self.incoming.cover(&cut);
    }

    // ---- in turn --------------------------------------------------------------------------------------------

    /// Handles what has arrived from a peer, in order, as far as its keys are in memory.
    pub(super) fn drain(&mut self, now: Now, replica: ReplicaId) {
        // While the disk is full, arrived entries wait. They are bounded: the source stops a window ahead of what is acknowledged.
        if !self.env.shared().has_room() {
            return;
        }
        let horizon = self.horizon(now);
        let waits_until = match self.env.shared().config.planted.copy_ignores_arrivals {
            true => Hlc::ZERO,
            false => self.incoming.waits_until(replica),
        };
        let mut looked_at = 0;
        while self.is_next_due(replica, horizon, waits_until) {
            if looked_at == 0 {
                let next = self.incoming.next_entries(replica, AHEAD);
                self.store
                    .look_ahead(next.map(|entry| entry.decoded.key.as_ref()));
                looked_at = AHEAD;
            }
            looked_at -= 1;
            let stream = self.incoming.stream(replica).expect("it has a next item");
            let covered = stream.covered();
            let item = self.incoming.pop(replica).expect("it was just seen");
            self.incoming.note_in_time(replica);
            self.moved = true;
            self.take_in(now, replica, item, covered);
        }
        self.finish_input(now);
    }

    /// Whether the next item of a peer can be handled now. If its key has to be read from disk, the key is asked for.
    fn is_next_due(&mut self, replica: ReplicaId, horizon: Hlc, waits_until: Hlc) -> bool {
        let Some(item) = self.incoming.front(replica) else {
            return false;
        };
        let newest = match item {
            Item::Entry { entry, .. } | Item::Returned(entry) => entry::newest(&entry.decoded.version),
            Item::Mark(message) => message.newest(),
            Item::ReturnedEnd(returned) => {
                let deletes = returned.cut.iter().map(|&(_, at)| at).max();
                deletes.unwrap_or_default().max(returned.replaced)
            }
            Item::Reached(_) => Hlc::ZERO,
        };
        if newest > horizon {
            self.hold(replica, newest);
            return false;
        }
        let (Item::Entry { entry, .. } | Item::Returned(entry)) = item else {
            return true;
        };
        let Decoded { key, version, .. } = &entry.decoded;
        // The copy that is being put in place covers the entry: see `placing`.
        if matches!(item, Item::Entry { .. }) && version.id.at <= waits_until {
            return false;
        }
        let is_difference = entry.decoded.difference.is_some();
        if !self.is_cold(key) {
            return !is_difference || self.has_room_to_make() && self.make_whole(replica);
        }
        let is_absent = |key: &&Key| !self.store.is_resident(key.as_ref());
        let next = self
            .incoming
            .next_entries(replica, AHEAD)
            .map(|entry| &entry.decoded.key);
        self.cold
            .want_first(next.filter(is_absent).collect::<Vec<_>>().into_iter());
        // It may wait behind an input that needs other keys, too. The keys of the oldest input come before those of streams, which would otherwise be asked for again and
        // again.
        let oldest = self.cold.first_keys().to_vec();
        self.cold.want_first(oldest.iter().filter(is_absent));
        self.wake_worker();
        false
    }

    /// Whether one more entry may be made whole before the lane's batch is written. Otherwise a small frame of a faulty peer could fill the memory. A sound peer counts what its entries become, and stays within the window.
    fn has_room_to_make(&self) -> bool {
        self.made_bytes < self.env.shared().config.stream.window_bytes
    }

    /// The batch with the entries that were made whole is written: those that had to wait for that are handled.
    pub(super) fn go_on_making(&mut self, now: Now) {
        let had_room = self.has_room_to_make();
        self.made_bytes = 0;
        if !had_room {
            self.retry_pending(now);
        }
    }

    /// Makes the next entry of a peer whole, which is a difference, or finds that it is not needed. If what it builds on is not here, rows were lost: then the peer is asked for a full copy, and its
    /// stream waits for that. Returns whether the entry can be handled.
    fn make_whole(&mut self, replica: ReplicaId) -> bool {
        let covered = self.incoming.stream(replica).map(|stream| stream.covered());
        let Some(Item::Entry { entry, .. }) = self.incoming.front_mut(replica) else {
            return true;
        };
        let Arrived {
            decoded, is_passed, ..
        } = entry;
        if Some(decoded.version.id.at) <= covered {
            return true;
        }
        let is_any = self.env.shared().config.planted.builds_on_any_share;
        match decoded.make_whole(self.store.chain(decoded.key.as_ref()), is_any) {
            Made::Whole => {
                self.made_bytes += decoded.version.content.heap_bytes().into_iter().sum::<usize>();
                return true;
            }
            Made::Passed => {
                *is_passed = true;
                return true;
            }
            Made::Nothing => {}
        }
        let arrives = self.incoming.copy().is_some_and(|copy| copy.from == replica);
        if !arrives && !self.incoming.wants_copy(replica) && !self.waits_for_copy(replica) {
            tracing::warn!(
                keyspace = self.env.name(),
                partition = self.me.partition,
                peer = self.env.topology().replica_name(replica),
                "the peer's next version builds on one that is not here: rows were lost. A full copy is asked for"
            );
            self.want_copy_of(replica);
        }
        false
    }

    /// Handles an item of a peer. Everything that the peer stamped up to `covered` was here already.
    fn take_in(
        &mut self,
        now: Now,
        replica: ReplicaId,
        item: Item<Arrived<P::Meta>, P::Message>,
        covered: Hlc,
    ) {
        let from = self.me.peer(replica);
        match item {
            Item::Entry { entry, .. } => {
                let Decoded { key, version, .. } = entry.decoded;
                // A covered entry was here before. It was superseded since, and may have been collected together with what superseded it.
                let is_needed = version.id.at > covered && !entry.is_passed;
                if !self.is_dropped(&key, &version) && is_needed {
                    let input = Input::Replicated {
                        from,
                        key,
                        version,
                        encoded: entry.encoded,
                    };
                    self.handle(now, input);
                }
            }
            Item::Returned(arrived) => {
                let Decoded { key, version, .. } = arrived.decoded;
                let input = Input::Replicated {
                    from: self.me,
                    key,
                    version,
                    encoded: Bytes::new(),
                };
                self.handle(now, input);
            }
            Item::Reached(_) => {}
            Item::Mark(message) => self.handle(now, Input::Mark { from, message }),
            Item::ReturnedEnd(returned) => {
                self.handle(now, Input::Returned { from, returned });
                if let Some(streams) = &mut self.streams {
                    streams.push_giver(replica);
                }
            }
        }
    }

    /// Tries again the items of peers whose timestamps were too far ahead, or whose keys could not be read.
    pub fn retry_pending(&mut self, now: Now) {
        for replica in self.incoming.peers().iter() {
            if self.incoming.front(replica).is_some() {
                self.drain(now, replica);
            }
        }
        self.ask_for_copy();
    }

    /// A timestamp too far ahead would move this clock ahead, too. So the peer's stream waits until time has caught up.
    pub(super) fn hold(&mut self, replica: ReplicaId, at: Hlc) {
        if self.incoming.note_ahead(replica) {
            tracing::error!(
                keyspace = self.env.name(),
                peer = self.env.topology().replica_name(replica),
                "the peer's timestamps are too far ahead of this node's clock (next {at}): its stream waits until this clock has caught \
                 up; check both clocks"
            );
        }
    }
}
