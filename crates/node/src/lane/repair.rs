//! A lane whose table has lost rows gets them back from its peers.
//!
//! Damage on a disk takes rows. What could still be read is in a new table ([`turnbuckle_store::salvage_table`]), which says that
//! something is missing; nobody knows which keys. Everything else of the lane is there: its stream, with what no peer has yet, and how
//! far it has heard the others. So this is a restart, and beside it:
//!
//! - **Nothing is claimed.** The lane covers nothing, like one whose directory was lost, until a full copy of a peer is in place. That copy
//!   replaces what it covers, so it brings the missing rows, and takes away those whose delete is among them.
//! - **Nothing is asked of it.** Requests are refused, and the streams of others wait at their source.
//! - **First the peer must hold what only the missing rows may have held here**: all that was stamped here (it begins the copy when it has
//!   taken in this lane's stream up to where it was when it asked), and of each other site as much as this lane had heard (its copy says how
//!   far it had heard). A site of which it has heard less is asked for a copy, too.
//!
//! ```text
//!   opened      stream up to 99; waits: b up to 40, c up to 17
//!   asks b      b takes in the stream up to 99, and begins a copy
//!   placed      b's copy had heard c up to 15    c is asked for a copy as well; b's stream goes on
//!   placed      waits: nobody                    repaired: requests are served, streams go on
//! ```
//!
//! The first copy brings back what was stamped here. The others are asked for what they have, however far they have heard this lane: one that
//! waits for a copy of this lane itself, which is given none before the repair is over, would never hear more of it.
//!
//! A peer may lack rows itself. Its copy is *partial*: it brings what it has and proves nothing. Once all peers that are waited for
//! have sent such a copy, nobody has more, and that is said.
//!
//! A peer may need a copy of this lane itself, where the lane's log does not reach back, or wait for what it has lost. If all peers that could send a copy
//! do, the one that has most of this lane's stream goes first. It gets the rows that are left and all of the log that is left, and sends its own copy then.
//!
//! What is lost: what a missing row held of a site that has lost it as well, or never comes back, and that no copy has. If the meta of the
//! last checkpoint is among what is missing, nothing of the table is used: the lane is one whose directory was lost, and
//! every peer gives it what it has.
use super::{
    Lane,
    missing::{NEVER, Repair},
};
use crate::incoming::CopyIn;
use std::sync::atomic::Ordering::Relaxed;
use turnbuckle_core::{Hlc, Protocol, ReplicaId, Replication, Versions};
use turnbuckle_replication::{CursorState, ReceivedRecord, ResumeFrame, StreamBody, StreamPosition};
use turnbuckle_store::StoreError;

impl<P: Protocol> Lane<P> {
    /// The log is replayed: how far other sites were taken in is known.
    pub(super) fn begin_repair(&mut self) {
        let Some(repair) = self.repair.as_mut().filter(|repair| !repair.lost_stream) else {
            return;
        };
        for (replica, wait) in &mut repair.waits {
            if *wait == NEVER
                && let Some(incoming) = self.incoming.get(replica)
            {
                *wait = incoming.received;
            }
        }
    }

    /// Whether nothing is covered, because rows are missing.
    pub fn is_blank(&self) -> bool {
        self.repair.as_ref().is_some_and(|repair| repair.is_blank)
    }

    /// Whether the stream of a site waits for a copy.
    pub(crate) fn waits_for_copy(&self, replica: ReplicaId) -> bool {
        let waits = |repair: &Repair| repair.is_blank || repair.waits.contains_key(&replica);
        self.repair.as_ref().is_some_and(waits)
    }

    /// Asks the next peer for a copy that may send one now. One after the other, unless one takes its time.
    pub(crate) fn ask_for_copy(&mut self) {
        let Some(repair) = &self.repair else { return };
        let is_under_way = |incoming: &crate::incoming::Incoming<P>| incoming.copy.is_some();
        if self.incoming.values().any(is_under_way) {
            return;
        }
        let now = self.time.monotonic;
        let asked = |replica: &ReplicaId| {
            self.incoming
                .get(replica)
                .is_some_and(|incoming| incoming.is_resumed())
        };
        let is_patient = now < repair.asked_at + self.env.shared().config.patience;
        if is_patient && repair.waits.keys().any(asked) {
            return;
        }
        let may_send = |replica: &&ReplicaId| {
            self.env.is_up(self.me.peer(**replica)) && !asked(replica) && !repair.partial.contains(replica)
        };
        let Some(&replica) = repair.waits.keys().find(may_send) else {
            return;
        };
        if let Some(repair) = &mut self.repair {
            repair.asked_at = now;
        }
        self.resume(replica);
    }

    /// Tells a site where its stream goes on here, or that a copy is needed first.
    pub(crate) fn resume(&mut self, replica: ReplicaId) {
        let ready = self.outgoing.ready();
        // What was stamped here is back with the first copy.
        let streams = P::DESCRIPTOR.replication == Replication::Streams;
        let needs_own = self.is_blank() && streams && !self.env.shared().config.planted.repaired_by_any_copy;
        let copy = self.waits_for_copy(replica).then(|| match needs_own {
            true => StreamPosition {
                incarnation: self.outgoing.incarnation_of(ready),
                number: ready,
            },
            false => StreamPosition::default(),
        });
        let Some(incoming) = self.incoming.get_mut(&replica) else {
            return;
        };
        let (held, at, clock) = (incoming.held_beyond(), incoming.resume(), self.replica.clock());
        let word_number = incoming.next_word();
        let forgotten = self.replica.protocol().forgotten();
        let peer = self.me.peer(replica);
        let mut frame = ResumeFrame::new(at, clock, &forgotten, copy);
        frame.held = held.map(Into::into);
        frame.word_number = word_number;
        self.say(peer, StreamBody::Resume(frame));
    }

    /// A copy is in place. The streams of other sites that waited for it go on, or the next peer is asked. Its source is told by who calls: told twice, it
    /// would send twice what follows.
    pub(super) fn repair_with(&mut self, from: ReplicaId, copy: &CopyIn<P::Meta>) {
        let was_blank = self.is_blank();
        let Some(repair) = &mut self.repair else { return };
        repair.copied(from, copy);
        if repair.is_over() || self.env.shared().config.planted.repaired_by_any_copy {
            let (keyspace, partition) = (self.env.name(), self.me.partition);
            let is_empty = self.store.live_keys() == 0 && self.store.deleted_keys() == 0;
            match repair.waits.is_empty() {
                true => {}
                false if is_empty => tracing::info!(
                    keyspace,
                    partition,
                    "the partition is empty at every site: it is served as a new one"
                ),
                false => tracing::error!(
                    keyspace,
                    partition,
                    "rows are missing at every other site, too: what is missing everywhere is lost"
                ),
            }
            if !is_empty {
                tracing::warn!(
                    keyspace,
                    partition,
                    "rows that were missing on this node are back from other sites: the partition is served again"
                );
            }
            self.repair = None;
            // The next checkpoint says so.
            self.is_new = true;
            self.env.shared().partitions_repaired.fetch_add(1, Relaxed);
        }
        let is_filled = was_blank && !self.is_blank();
        let others = self.incoming.keys().copied().filter(|&replica| replica != from);
        for replica in others.collect::<Vec<_>>() {
            let is_asked = self.incoming[&replica].is_resumed();
            // One that was asked before may be waiting itself for what was stamped here, and need not any more.
            let asks = match self.waits_for_copy(replica) {
                true => is_asked && is_filled,
                false => !is_asked,
            };
            if asks && self.env.is_up(self.me.peer(replica)) {
                self.resume(replica);
            }
        }
        self.wake_worker();
    }

    /// How far other sites were heard, as far as nothing of it is missing.
    pub(crate) fn heard_in_full(&self, mut received: Vec<ReceivedRecord>) -> Vec<ReceivedRecord> {
        received.retain(|record| !self.waits_for_copy(record.parts().0));
        received
    }

    /// Something in the table cannot be read. It is said once.
    pub fn note_damage(&mut self, error: &StoreError) {
        if !error.is_damage() || self.damage.is_some() {
            return;
        }
        tracing::error!(
            keyspace = self.env.name(),
            partition = self.me.partition,
            "rows on this node's disk are damaged ({error}): they are not served. Once a peer at another site can be reached, the node is \
             opened anew and takes them from there"
        );
        self.damage = Some(error.to_string());
        self.wake_worker();
    }

    /// What is damaged, if the rows can be had from a peer.
    pub fn mendable_damage(&self) -> Option<&str> {
        let is_there = self.outgoing.cursors().any(|(replica, cursor)| {
            cursor.state != CursorState::Silent && self.env.is_up(self.me.peer(replica))
        });
        self.damage.as_deref().filter(|_| is_there)
    }

    /// Why no request is taken, if rows are missing.
    pub fn repair_refusal(&self) -> Option<String> {
        let (why, partition) = match P::DESCRIPTOR.replication {
            Replication::Streams => (
                "were damaged on this node's disk, and are not back",
                self.me.partition,
            ),
            Replication::Majority => (
                "were lost or damaged on this node, and are not back",
                self.me.partition,
            ),
        };
        let words = || format!("rows of partition {partition} {why} from other sites yet");
        self.repair.as_ref().map(|_| words())
    }

    /// What a blank lane covers.
    pub(super) fn blank_cut(cut: Vec<(ReplicaId, Hlc)>) -> Vec<(ReplicaId, Hlc)> {
        cut.into_iter().map(|(replica, _)| (replica, Hlc::ZERO)).collect()
    }
}
