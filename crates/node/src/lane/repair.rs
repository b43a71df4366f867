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
use super::Lane;
use std::sync::atomic::Ordering::Relaxed;
use turnbuckle_core::{Protocol, ReplicaId, Replication, Versions};
use turnbuckle_replication::{CopyIn, CursorState, Repair};
use turnbuckle_store::StoreError;

impl<P: Protocol> Lane<P> {
    /// The log is replayed: how far other sites were taken in is known.
    pub(super) fn begin_repair(&mut self) {
        let incoming = &self.incoming;
        if let Some(repair) = &mut self.repair {
            repair.begin(|replica| incoming.stream(replica).map(|stream| stream.received()));
        }
    }

    /// Whether nothing is covered, because rows are missing.
    pub fn is_blank(&self) -> bool {
        self.repair.as_ref().is_some_and(|repair| repair.is_blank)
    }

    /// Whether the stream of a site waits for a copy.
    pub(super) fn waits_for_copy(&self, replica: ReplicaId) -> bool {
        let waits = |repair: &Repair| repair.holds_back(replica);
        self.repair.as_ref().is_some_and(waits)
    }

    /// Asks the next peer for a copy that may send one now.
    pub(super) fn ask_for_copy(&mut self) {
        let Lane {
            repair,
            incoming,
            env,
            me,
            ..
        } = self;
        let Some(repair) = repair.as_mut().filter(|_| incoming.copy().is_none()) else {
            return;
        };
        let (now, patience) = (self.time.monotonic, env.shared().config.patience);
        let is_asked = |replica| incoming.is_resumed(replica);
        let next = repair.next_to_ask(now, patience, is_asked, |replica| env.is_up(me.peer(replica)));
        if let Some(replica) = next {
            self.resume(replica);
        }
    }

    /// A copy is in place. The streams of other sites that waited for it go on, or the next peer is asked. Its source is told by who calls: told twice, it
    /// would send twice what follows.
    pub(super) fn repair_with(&mut self, copy: &CopyIn) {
        let was_blank = self.is_blank();
        let Some(repair) = &mut self.repair else { return };
        repair.copied(copy);
        if repair.is_over() || self.env.shared().config.planted.repaired_by_any_copy {
            let is_whole = repair.is_whole();
            self.end_repair(is_whole);
        }
        let is_filled = was_blank && !self.is_blank();
        for replica in self.incoming.peers().without(copy.from).iter() {
            let is_asked = self.incoming.is_resumed(replica);
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

    /// Everything is back, or nobody has more.
    fn end_repair(&mut self, is_whole: bool) {
        let (keyspace, partition) = (self.env.name(), self.me.partition);
        let is_empty = self.store.live_keys() == 0 && self.store.deleted_keys() == 0;
        match is_whole {
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
        // It says so.
        self.checkpoints.is_wanted = true;
        self.env.shared().partitions_repaired.fetch_add(1, Relaxed);
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
}
