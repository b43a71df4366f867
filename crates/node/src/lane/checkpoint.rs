//! What a checkpoint records of a lane, and when a checkpoint is useful.
use super::{Changes, Lane, forgetting::Forgetting};
use crate::record::CheckpointMeta;
use turnbuckle_core::{Hlc, Journal, Protocol, Recovered, ReplicaId};
use turnbuckle_log::Position;
use turnbuckle_replication::{EarlierIncarnations, ReceivedRecord, Repair, cut_to_frames};
use turnbuckle_store::Chunk;

/// The checkpoints of a lane.
pub(crate) struct Checkpoints {
    /// The last checkpoint of the lane's earlier lives covers the log up to here.
    pub covered: Position,
    /// Whether a checkpoint is taken before anything else: the lane has not served yet since it was added to the configuration, its table
    /// was salvaged, or a repair has ended and the last checkpoint still says that rows are missing.
    pub is_wanted: bool,
    /// The meta of the last checkpoint of this life.
    pub last: Option<CheckpointMeta>,
    pub forgetting: Forgetting,
}

impl Checkpoints {
    /// The state after a start: `covered` comes from the last checkpoint.
    pub fn restore(covered: Position) -> Checkpoints {
        Checkpoints {
            covered,
            is_wanted: false,
            last: None,
            forgetting: Forgetting::default(),
        }
    }

    /// A checkpoint begins when the replica's clock is `clock`.
    pub fn begin(&mut self, clock: Hlc) {
        self.is_wanted = false;
        self.forgetting.begin_checkpoint(clock);
    }
}

impl<P: Protocol> Lane<P> {
    /// What this replica covers: the protocol's cut. Of this replica's own versions it covers no more than it knows to have.
    pub fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        let mut cut = self.replica.protocol().cut();
        for (replica, until) in &mut cut {
            if self.is_blank() {
                *until = Hlc::ZERO;
            } else if *replica == self.id {
                *until = self.known(*until);
            }
        }
        cut
    }

    /// Deletes up to here may be forgotten: see [`Protocol::settled`]. It never goes beyond what this replica knows to have of its own
    /// versions, because those that it lost may come back in any order.
    pub fn settled(&self) -> Hlc {
        self.known(self.replica.protocol().settled())
    }

    /// Keys with shares that were over up to here may be forgotten: see [`Protocol::closed_everywhere`].
    pub fn closed_everywhere(&self) -> Hlc {
        self.known(self.replica.protocol().closed_everywhere())
    }

    /// A checkpoint may forget everything that was over by this time, also keys with shares.
    pub fn forgettable(&self) -> Hlc {
        self.settled().min(self.closed_everywhere())
    }

    /// Whether deletes may have been forgotten here, in this life or an earlier one. Right after a start a protocol may not know yet what
    /// is settled.
    pub(super) fn has_forgotten(&self) -> bool {
        let protocol = self.replica.protocol();
        let until = protocol.forgotten().until.unwrap_or_default();
        protocol.settled().max(until) > Hlc::ZERO
    }

    /// Whether a checkpoint would bring deletes nearer to being forgotten, or forget values that have expired. The first checkpoint writes a delete down, and the next one
    /// forgets it. In between, the settled time must have passed the delete. While a site is away it does not, and a checkpoint would be of
    /// no use.
    pub fn can_forget(&self) -> bool {
        let may_have = self.store.deleted_keys() > 0 || self.has_expired();
        may_have && self.checkpoints.forgetting.is_due(self.forgettable())
    }

    /// Whether some value has expired and is written down, and may be forgotten by now.
    pub fn has_expired(&self) -> bool {
        self.store.expiring_keys() > 0 && self.checkpoints.forgetting.is_written(self.forgettable())
    }

    /// Whether the table is to be merged again: more of its deletes were forgotten than keys are left.
    pub fn is_reclaim_due(&mut self) -> bool {
        let live_keys = self.live_keys();
        self.checkpoints.forgetting.is_reclaim_due(live_keys)
    }

    /// What a replica that is opened now finds, without its journal.
    pub fn recovered(&self, cut: Vec<(ReplicaId, Hlc)>) -> Recovered {
        Recovered {
            cut,
            named: self.beside.named().clone(),
            journal: Journal::default(),
            applied: None,
            replaced: Hlc::ZERO,
            lacks_rows: self.is_blank(),
        }
    }

    /// The next rows of the checkpoint under way. Versions that no request can ask for any more are dropped on the way.
    pub fn next_chunk(&mut self, max_keys: usize) -> Option<Chunk<P::Meta>> {
        let Lane { store, replica, .. } = self;
        store.next_chunk(max_keys, |version| replica.covered(version))
    }

    /// Takes what has changed beside versions, to be written by the checkpoint that begins now.
    pub fn take_changes(&mut self) -> Changes {
        self.beside.take_changes(self.replica.journal_mut())
    }

    /// Ends the writing of `changes`. `is_written`: whether the engine has them now.
    pub fn end_changes(&mut self, changes: Changes, is_written: bool) {
        match is_written {
            true => self.beside.wrote(&changes),
            false => self.beside.give_back(changes, self.replica.journal_mut()),
        }
    }

    /// What a checkpoint taken now records of the lane, beside its rows.
    pub fn meta(&self, log_position: Position) -> CheckpointMeta {
        let applied = self.replica.protocol().applied();
        let record = |(replica, place)| ReceivedRecord::new(replica, place);
        let lives = self.outgoing.incarnations().iter();
        let (index_numbers, index_positions) = self.outgoing.index().map(|(n, at)| (n, at.0)).unzip();
        CheckpointMeta {
            log_position: log_position.0,
            next_position: self.outgoing.next(),
            incarnations: lives.map(|&life| life.into()).collect(),
            received: self.incoming.logged().map(record).collect(),
            bound: self.in_log.bound().0,
            cut: cut_to_frames(&self.cut()),
            index_numbers,
            index_positions,
            repair: self.repair.as_ref().map(Repair::record),
            given_back: self.lives().is_some_and(EarlierIncarnations::is_given_back),
            held: self.incoming.held().map(record).collect(),
            journal_first: self.replica.journal().first(),
            applied_index: applied.index,
            applied_term: applied.term,
        }
    }
}
