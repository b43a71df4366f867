//! A lane whose table has lost rows gets them back from its peers.
//!
//! Damage on a disk takes rows. The rows that could still be read are in a new table ([`turnbuckle_store::salvage_table`]). It says that
//! some rows are missing, but not which keys. Everything else of the lane is there: its stream, with entries that no peer has yet, and the
//! positions that it has reached in the streams of its peers. So this is a restart, with these additions:
//!
//! - **Nothing is claimed.** The lane covers nothing, like one whose directory was lost, until a full copy of a peer is in place. That copy
//!   replaces what it covers. So it brings the missing rows, and removes rows whose delete is among the missing ones.
//! - **Nothing is asked of it.** Requests are refused, and the streams of its peers wait at their source.
//! - **The peer must first hold what only the missing rows may have held here.** That is, first, everything that was stamped here: the peer
//!   begins the copy when it has taken in this lane's stream up to its end at the time of asking. Second, as much of each other site's
//!   stream as this lane had received: the copy says how much the peer had. A site of which the peer has received less is asked for a copy,
//!   too.
//!
//! ```text
//!   opened      stream up to 99; waits: b up to 40, c up to 17
//!   asks b      b takes in the stream up to 99, and begins a copy
//!   placed      b's copy had heard c up to 15    c is asked for a copy as well; b's stream goes on
//!   placed      waits: nobody                    repaired: requests are served, streams go on
//! ```
//!
//! The first copy brings back what was stamped here. Later copies are asked for without the condition that the peer has taken in this
//! lane's stream. Such a peer may itself wait for a copy of this lane, which sends none before the repair is over, and would never receive
//! more of the stream.
//!
//! A peer may lack rows, too. Its copy is *partial*: it brings the rows that are left and proves nothing. Once all peers that are waited
//! for have sent such a copy, no peer has more, and that is logged as an error.
//!
//! A peer may need a copy of this lane, where the lane's log does not reach back far enough, or wait for versions that it has lost. If all
//! peers that could send a copy wait like that, the one that has most of this lane's stream goes first. It is sent the rows that are left
//! and all of the log that is left, and then sends its own copy.
//!
//! A version of a missing row is lost if no copy has it, and if its own site has lost it as well or never comes back. If the meta of the
//! last checkpoint is missing, nothing of the table is used: the lane then counts as one whose directory was lost, and every peer restores
//! what it has of it.
use super::Lane;
use std::sync::atomic::Ordering::Relaxed;
use turnbuckle_core::{Completeness, Protocol, ReplicaId, Replication, Versions};
use turnbuckle_replication::{CopyIn, Cursor, CursorState, Repair};
use turnbuckle_store::StoreError;

impl<P: Protocol> Lane<P> {
    /// Called when the log is replayed: from then on the positions in the streams of peers are known.
    pub(super) fn begin_repair(&mut self) {
        let incoming = &self.incoming;
        if let Some(repair) = &mut self.repair {
            repair.begin(|replica| incoming.stream(replica).map(|stream| stream.received()));
        }
    }

    /// Whether the lane covers nothing, because rows are missing and no copy is in place yet.
    pub fn is_blank(&self) -> bool {
        self.repair.as_ref().is_some_and(|repair| repair.is_blank)
    }

    /// Whether the stream of a peer waits until that peer has sent a copy.
    pub(super) fn waits_for_copy(&self, replica: ReplicaId) -> bool {
        let waits = |repair: &Repair| repair.holds_back(replica);
        self.repair.as_ref().is_some_and(waits)
    }

    /// Asks the next peer that may send a copy now.
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

    /// A copy is in place. Streams of other peers that waited for it go on, or the next peer is asked. The caller tells the copy's source
    /// where its stream goes on: if it were told twice, it would send what follows twice.
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
            // A peer that was asked before the first copy may itself wait for versions that were stamped here. It need not any more, so it
            // is asked again.
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

    /// Ends a repair of which the protocol says that it is over.
    pub(super) fn end_repair_by_protocol(&mut self) {
        if !self.repair.as_ref().is_some_and(|repair| repair.by_protocol) {
            return;
        }
        match self.replica.protocol().completeness() {
            Completeness::Incomplete => return,
            Completeness::Partial => self.end_repair(false),
            Completeness::Whole => self.end_repair(true),
        }
        self.wake_worker();
    }

    /// Ends the repair: everything is back, or no peer has more.
    fn end_repair(&mut self, is_whole: bool) {
        let (keyspace, partition) = (self.env.name(), self.me.partition);
        let is_empty = self.store.live_keys() == 0 && self.store.deleted_keys() == 0;
        match is_whole {
            true => {}
            false if is_empty => tracing::info!(
                keyspace,
                partition,
                "the partition is empty at every replica: it is served as a new one"
            ),
            false => tracing::error!(
                keyspace,
                partition,
                "no other replica has all rows that are missing here: rows that are missing at every replica are lost"
            ),
        }
        if is_whole && !is_empty {
            tracing::warn!(
                keyspace,
                partition,
                "other replicas have sent the rows that were missing on this node: the partition is served again"
            );
        }
        self.repair = None;
        // The checkpoint records that no rows are missing.
        self.checkpoints.is_wanted = true;
        self.env.shared().partitions_repaired.fetch_add(1, Relaxed);
    }

    /// Something in the table cannot be read. It is logged once.
    pub fn note_damage(&mut self, error: &StoreError) {
        if !error.is_damage() || self.damage.is_some() {
            return;
        }
        tracing::error!(
            keyspace = self.env.name(),
            partition = self.me.partition,
            "rows on this node's disk are damaged ({error}): they are not served. Once a peer at another site can be reached, the node is \
             opened again and takes them from that peer"
        );
        self.damage = Some(error.to_string());
        self.wake_worker();
    }

    /// The damage, as text, if a peer can be reached that has the rows.
    pub fn mendable_damage(&self) -> Option<&str> {
        let is_up = |(replica, cursor): (ReplicaId, &Cursor)| {
            cursor.state != CursorState::Silent && self.env.is_up(self.me.peer(replica))
        };
        // With consensus, a replica with damaged rows takes no part before all other voters have answered.
        let is_there = match P::DESCRIPTOR.replication {
            Replication::Consensus => {
                let group = self.replica.protocol().group().unwrap_or_default();
                let voters = group.voters.union(group.outgoing);
                let mut others = self
                    .outgoing
                    .cursors()
                    .filter(|(replica, _)| voters.contains(*replica));
                let has_others = !voters.without(self.me.replica()).is_empty();
                has_others && others.all(is_up)
            }
            Replication::Streams | Replication::Majority => self.outgoing.cursors().any(is_up),
        };
        self.damage.as_deref().filter(|_| is_there)
    }

    /// The reason, as text, why its keys are not listed: it takes no part in its group, and its rows are old.
    pub fn absence_refusal(&self) -> Option<String> {
        let group = self.replica.protocol().group()?;
        let partition = self.me.partition;
        let words = || {
            format!(
                "this node's replica of partition {partition} takes no part in its group: ask another node"
            )
        };
        (!group.is_member).then(words)
    }

    /// The reason, as text, why requests are refused while rows are missing.
    pub fn repair_refusal(&self) -> Option<String> {
        let partition = self.me.partition;
        let words = || match P::DESCRIPTOR.replication {
            Replication::Streams => format!(
                "rows of partition {partition} were damaged on this node's disk, and have not been restored from other sites yet"
            ),
            Replication::Consensus => format!(
                "this node has a new data directory, or lost rows: it serves partition {partition} once every other replica of it has answered, and it has \
                 what the others have"
            ),
            Replication::Majority => format!(
                "this node has a new data directory, or lost rows: it serves partition {partition} once every other site has sent a copy of it"
            ),
        };
        self.repair.as_ref().map(|_| words())
    }
}
