//! Full copies: asked of peers, arriving from one of them, and put in place here.
use super::Lane;
use crate::entry;
use std::sync::atomic::Ordering;
use turnbuckle_core::{BadFrame, Chain, Hlc, Key, Now, Protocol, ReplicaId};
use turnbuckle_replication::{
    CopyBeginFrame, CopyIn, CopyRowsFrame, CopyState, ReceivedRecord, ResumeFrame, StreamBody,
    StreamPosition, add_named,
};
use turnbuckle_store::{EngineError, StoreError, clear_staged, stage};

impl<P: Protocol> Lane<P> {
    // ---- asked ----------------------------------------------------------------------------------------------

    /// Tells a peer where its stream goes on, or that it must send a copy first.
    pub(super) fn resume(&mut self, replica: ReplicaId) {
        let Some(word) = self.incoming.resume(replica) else {
            return;
        };
        if self.incoming.copy().is_none() {
            self.rows.arriving.clear();
        }
        let copy = self.wanted_copy(replica);
        let (clock, forgotten) = (self.replica.clock(), self.replica.protocol().forgotten());
        let mut frame = ResumeFrame::new(word.at, clock, &forgotten, copy);
        frame.held = word.held.map(Into::into);
        frame.word_number = word.number;
        self.say(self.me.peer(replica), StreamBody::Resume(frame));
    }

    /// No copy is under way any more. Peers whose copies were declined meanwhile are told again where their streams go on.
    pub(super) fn resume_declined(&mut self) {
        for replica in self.incoming.declined().iter() {
            self.resume(replica);
        }
    }

    /// The protocol wants a full copy of a peer. If one arrives from that peer now, or the link is down, it is asked for afterwards.
    pub(super) fn want_copy_of(&mut self, replica: ReplicaId) {
        self.incoming.want_copy(replica);
        let arrives = self.incoming.copy().is_some_and(|copy| copy.from == replica);
        if !arrives && self.env.is_up(self.me.peer(replica)) {
            self.resume(replica);
        }
    }

    /// Set if a peer is to send a copy before its stream goes on: the position in this lane's stream that it must have taken in first.
    fn wanted_copy(&self, replica: ReplicaId) -> Option<StreamPosition> {
        if !self.waits_for_copy(replica) && !self.incoming.wants_copy(replica) {
            return None;
        }
        // The first copy has brought back what was stamped here. So later copies have no such condition.
        let any_copy_will_do = self.env.shared().config.planted.repaired_by_any_copy;
        if !self.is_blank() || self.streams.is_none() || any_copy_will_do {
            return Some(StreamPosition::default());
        }
        let number = self.outgoing.ready();
        let incarnation = self.outgoing.incarnation_of(number);
        Some(StreamPosition { incarnation, number })
    }

    // ---- arriving -------------------------------------------------------------------------------------------

    pub(super) fn on_copy_begin(
        &mut self,
        now: Now,
        replica: ReplicaId,
        frame: &CopyBeginFrame,
    ) -> Result<(), BadFrame> {
        if !self.env.shared().has_room() {
            return Err(BadFrame::new("room for a full copy", "a disk that is full"));
        }
        let copy = CopyIn::parse(replica, frame, self.env.topology())?;
        not_beyond(self.horizon(now), copy.newest())?;
        if !self.incoming.stream_of(replica)?.is_answered_by(frame.answers) || !self.incoming.begin_copy(copy)
        {
            return Ok(());
        }
        self.rows.arriving.clear();
        tracing::info!(
            keyspace = self.env.name(),
            partition = self.me.partition,
            from = self.env.topology().replica_name(replica),
            "a full copy begins: the peer's log does not reach back to what this replica has, or its directory was empty"
        );
        let cleared = clear_staged(&*self.store.table());
        self.note_staged(replica, cleared)
    }

    /// Rows of a copy were staged or cleared, or could not be. If the node must be opened again for that, the copy is declined, and asked for again
    /// then: the rows that an earlier copy has left are damaged, or the engine takes no more writes.
    fn note_staged(&mut self, replica: ReplicaId, staged: Result<(), EngineError>) -> Result<(), BadFrame> {
        let Err(error) = staged else { return Ok(()) };
        if error.is_final() {
            self.env.shared().note_engine_failure(error);
            self.wake_worker();
        } else if error.is_damage() {
            self.note_damage(&StoreError::from(error));
        } else {
            return Err(BadFrame::new("room for a full copy", error.to_string()));
        }
        self.incoming.refuse_copy(replica);
        Ok(())
    }

    pub(super) fn on_copy_rows(
        &mut self,
        now: Now,
        replica: ReplicaId,
        frame: CopyRowsFrame,
    ) -> Result<(), BadFrame> {
        let horizon = self.horizon(now);
        self.incoming.stream_of(replica)?;
        let Some(copy) = self.incoming.arriving(replica) else {
            return Ok(());
        };
        add_named(&mut copy.copied.named, frame.named)?;
        let mut staged: Vec<(Key, Chain<P::Meta>)> = Vec::new();
        for entry in frame.entries {
            let bytes = entry.len();
            let received = &self.env.shared().copy_bytes_received;
            received.fetch_add(bytes as u64, Ordering::Relaxed);
            let (key, version) = entry::decode_whole(entry, self.env.topology())?;
            not_beyond(horizon, entry::newest(&version))?;
            staged.extend(self.rows.arriving.take(key, version, bytes)?);
        }
        if frame.end {
            staged.extend(self.rows.arriving.end());
        }
        let staged = stage(&*self.store.table(), &staged);
        if staged.is_ok() && frame.end {
            copy.state = CopyState::Whole;
            self.wake_worker();
        }
        self.note_staged(replica, staged)
    }

    // ---- in place -------------------------------------------------------------------------------------------

    /// A full copy that has arrived whole.
    pub fn whole_copy(&self) -> Option<CopyIn> {
        let copy = self.incoming.copy();
        copy.filter(|copy| copy.state >= CopyState::Whole).cloned()
    }

    /// The rows of a full copy are about to be put in place, and the process may stop in between. So a record is appended first that says
    /// how far they may go in the streams of the copy's source and of other sites.
    pub fn hold_copied(&mut self, copy: &CopyIn) {
        self.incoming.hold(copy.held());
        let mut record = self.empty_record();
        let held = copy.held();
        record.held = held
            .map(|(replica, place)| ReceivedRecord::new(replica, place))
            .collect();
        self.append_record(&record);
        self.moved = true;
    }

    /// A full copy is in place, and nothing of it is staged any more: its source is told that the stream goes on behind it.
    pub fn copied(&mut self, copy: &CopyIn) {
        self.incoming.copied(copy);
        self.moved = true;
        self.repair_with(copy);
        if self.env.is_up(self.me.peer(copy.from)) {
            self.resume(copy.from);
        }
        self.resume_declined();
        self.ask_for_copy();
    }
}

/// Every timestamp in a full copy must be up to `horizon`: a copy cannot wait in the middle.
fn not_beyond(horizon: Hlc, newest: Hlc) -> Result<(), BadFrame> {
    if newest > horizon {
        let found = format!("{newest}: check both clocks");
        return Err(BadFrame::new(
            "timestamps not too far ahead of this node's clock",
            found,
        ));
    }
    Ok(())
}
