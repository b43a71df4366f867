//! What a checkpoint says of a lane, and when one is of use.
use super::{Changes, Lane, Repair};
use crate::record::CheckpointMeta;
use turnbuckle_core::{Hlc, Journal, Protocol, Recovered, ReplicaId, Versions};
use turnbuckle_log::Position;
use turnbuckle_replication::{ReceivedRecord, cut_to_frames};
use turnbuckle_store::Chunk;

/// For so few deletes that were forgotten no table is merged anew.
const FEW_FORGOTTEN: u64 = 1_000;

/// A table whose merge gave no disk back is merged again after at most this number of checkpoints.
const LONGEST_RECLAIM_WAIT: u32 = 64;

impl<P: Protocol> Lane<P> {
    /// What this replica covers: the protocol's cut, but of what it stamped itself no more than it knows to have.
    pub fn cut(&self) -> Vec<(ReplicaId, Hlc)> {
        let mut cut = self.replica.protocol().cut();
        if self.is_blank() {
            return Lane::<P>::blank_cut(cut);
        }
        if self.unsettled.0 != 0 {
            for (_, until) in cut.iter_mut().filter(|(replica, _)| *replica == self.id) {
                *until = self.recovered.min(*until);
            }
        }
        cut
    }

    /// Deletes up to here are forgotten: see [`Protocol::settled`], but never what may come back in no order.
    pub fn settled(&self) -> Hlc {
        let settled = self.replica.protocol().settled();
        match self.unsettled.0 {
            0 => settled,
            _ => settled.min(self.recovered),
        }
    }

    /// Whether deletes may have been forgotten here, in this life or an earlier one. After a start a protocol may not know yet what is settled.
    pub fn has_forgotten(&self) -> bool {
        let protocol = self.replica.protocol();
        protocol
            .settled()
            .max(protocol.forgotten().until.unwrap_or_default())
            > Hlc::ZERO
    }

    /// Whether a checkpoint would bring deletes nearer to being forgotten. The first one writes them down, and the next one forgets them. In
    /// between, what is settled has to pass them; while a site is away it does not, and a checkpoint would be of no use.
    pub fn can_forget(&self) -> bool {
        self.store.deleted_keys() > 0 && self.settled() > self.forgets_behind
    }

    /// Whether more was forgotten than there is left: the table is merged anew then, which takes about as long as that forgetting did.
    pub fn is_reclaim_due(&mut self) -> bool {
        let is_due = self.forgotten > self.store.live_keys().max(FEW_FORGOTTEN);
        let is_now = is_due && self.reclaim_after == 0;
        self.reclaim_after -= u32::from(is_due && !is_now);
        is_now
    }

    /// It was merged anew. If that gave nothing back yet, it is tried again, after twice as many checkpoints each time.
    pub fn reclaimed(&mut self, has_given: bool) {
        self.reclaim_wait = match has_given {
            true => 0,
            false => (2 * self.reclaim_wait).clamp(1, LONGEST_RECLAIM_WAIT),
        };
        self.reclaim_after = self.reclaim_wait;
        if has_given {
            self.forgotten = 0;
        }
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
    pub fn next_chunk(&mut self, most_keys: usize) -> Option<Chunk<P::Meta>> {
        let Lane { store, replica, .. } = self;
        store.next_chunk(most_keys, |version| replica.covered(version))
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
        let mut meta = CheckpointMeta {
            log_position: log_position.0,
            next_position: self.outgoing.next(),
            incarnations: self
                .outgoing
                .incarnations()
                .iter()
                .map(|&life| life.into())
                .collect(),
            received: self
                .incoming
                .iter()
                .map(|(&replica, incoming)| ReceivedRecord::new(replica, incoming.logged))
                .collect(),
            bound: self.bound.0,
            cut: cut_to_frames(&self.cut()),
            ..CheckpointMeta::default()
        };
        meta.repair = self.repair.as_ref().map(Repair::record);
        meta.given_back = self.given_back;
        let held = self.incoming.iter();
        meta.held = held
            .map(|(&replica, incoming)| ReceivedRecord::new(replica, incoming.held()))
            .collect();
        meta.journal_first = self.replica.journal().first();
        (meta.index_numbers, meta.index_positions) = self.outgoing.index().map(|(n, at)| (n, at.0)).unzip();
        meta
    }
}
