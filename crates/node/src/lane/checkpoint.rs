//! What a checkpoint says of a lane, and when one is of use.
use super::{Changes, Lane, forgetting::Forgetting};
use crate::record::CheckpointMeta;
use turnbuckle_core::{Hlc, Journal, Protocol, Recovered, ReplicaId};
use turnbuckle_log::Position;
use turnbuckle_replication::{EarlierLives, ReceivedRecord, Repair, cut_to_frames};
use turnbuckle_store::Chunk;

/// The checkpoints of a lane.
pub(crate) struct Checkpoints {
    /// The last one of the lane's earlier lives covers the log up to here.
    pub covered: Position,
    /// One is taken before anything else: the lane has not served yet since it was added to the configuration, or its last one says that rows are
    /// missing and none is.
    pub is_wanted: bool,
    /// What the last one of this life said.
    pub last: Option<CheckpointMeta>,
    pub forgetting: Forgetting,
}

impl Checkpoints {
    /// As the last one left it.
    pub fn restore(covered: Position) -> Checkpoints {
        Checkpoints {
            covered,
            is_wanted: false,
            last: None,
            forgetting: Forgetting::default(),
        }
    }

    /// One begins, at this time of the clock.
    pub fn begin(&mut self, clock: Hlc) {
        self.is_wanted = false;
        self.forgetting.begin_checkpoint(clock);
    }
}

impl<P: Protocol> Lane<P> {
    /// What this replica covers: the protocol's cut, but of what it stamped itself no more than it knows to have.
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

    /// Deletes up to here are forgotten: see [`Protocol::settled`], but never what may come back in no order.
    pub fn settled(&self) -> Hlc {
        self.known(self.replica.protocol().settled())
    }

    /// Whether deletes may have been forgotten here, in this life or an earlier one. After a start a protocol may not know yet what is settled.
    pub(super) fn has_forgotten(&self) -> bool {
        let protocol = self.replica.protocol();
        let until = protocol.forgotten().until.unwrap_or_default();
        protocol.settled().max(until) > Hlc::ZERO
    }

    /// Whether a checkpoint would bring deletes nearer to being forgotten. The first one writes them down, and the next one forgets them. In
    /// between, what is settled has to pass them; while a site is away it does not, and a checkpoint would be of no use.
    pub fn can_forget(&self) -> bool {
        self.store.deleted_keys() > 0 && self.checkpoints.forgetting.is_due(self.settled())
    }

    /// Whether the table is to be merged anew: more of it was forgotten than there is left.
    pub fn is_reclaim_due(&mut self) -> bool {
        let live_keys = self.live_keys();
        self.checkpoints.forgetting.is_reclaim_due(live_keys)
    }

    /// What a replica that is opened now finds, but for its journal.
    pub fn recovered(&self, cut: Vec<(ReplicaId, Hlc)>) -> Recovered {
        Recovered {
            cut,
            named: self.beside.named().clone(),
            journal: Journal::default(),
            lacks_rows: self.is_blank(),
        }
    }

    /// The next rows of the checkpoint under way. Versions that nobody will ask for any more are dropped on the way.
    pub fn next_chunk(&mut self, max_keys: usize) -> Option<Chunk<P::Meta>> {
        let Lane { store, replica, .. } = self;
        store.next_chunk(max_keys, |version| replica.covered(version))
    }

    /// What has changed beside versions, to be written by the checkpoint that begins now.
    pub fn take_changes(&mut self) -> Changes {
        self.beside.take_changes(self.replica.journal_mut())
    }

    /// Whether the engine has these changes now.
    pub fn end_changes(&mut self, changes: Changes, is_written: bool) {
        match is_written {
            true => self.beside.wrote(&changes),
            false => self.beside.give_back(changes, self.replica.journal_mut()),
        }
    }

    /// What a checkpoint taken now says about everything that is not a version.
    pub fn meta(&self, log_position: Position) -> CheckpointMeta {
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
            given_back: self.lives().is_some_and(EarlierLives::is_given_back),
            held: self.incoming.held().map(record).collect(),
            journal_first: self.replica.journal().first(),
        }
    }
}
