//! What a lane has appended to the log, and what waits until that is durable.
//!
//! Three queues, each in the order of the log. A batch releases its outputs, entries and acknowledgements when it is written, or when it is
//! synced if it must be. A bound of the clock and a promise count only when they are synced.
use crate::shared::SyncWish;
use std::collections::VecDeque;
use turnbuckle_core::{Hlc, ReplicaId};
use turnbuckle_log::Position;
use turnbuckle_replication::{Entry, StreamPosition};

/// The most promises that may wait for a sync. Beyond it, every second one is dropped.
const MAX_PROMISES: usize = 64;

/// A batch in the log.
pub(super) struct Logged {
    pub number: Option<u64>,
    pub end: Position,
    pub sync: bool,
    pub entries: Vec<Entry>,
    /// The positions that other streams have reached with this batch. They are acknowledged when it is durable.
    pub received: Vec<(ReplicaId, StreamPosition)>,
    /// Peers that have restored everything, in this batch.
    pub givers: Vec<ReplicaId>,
}

/// What is in the log and not yet durable.
pub(super) struct InLog {
    batches: VecDeque<Logged>,
    /// Promises whose marks are sent. Each waits until everything that it covers is synced.
    promises: VecDeque<(Position, (Hlc, u64))>,
    /// Clock bounds that are in the log and not yet synced.
    bounds: VecDeque<(Position, Hlc)>,
    /// The highest clock bound in the log.
    bound: Hlc,
}

impl InLog {
    /// An empty queue. `bound` is the clock's bound in the last checkpoint.
    pub fn new(bound: Hlc) -> InLog {
        InLog {
            batches: VecDeque::new(),
            promises: VecDeque::new(),
            bounds: VecDeque::new(),
            bound,
        }
    }

    /// No timestamp that the log may have let out is above it.
    pub fn bound(&self) -> Hlc {
        self.bound
    }

    /// A replayed record has a bound, or a version that was stamped below one.
    pub fn replay_bound(&mut self, bound: Hlc) {
        self.bound = self.bound.max(bound);
    }

    /// A planted bug: the bound is forgotten.
    pub fn forget_bound(&mut self) {
        self.bound = Hlc::ZERO;
    }

    /// A batch is appended, with a higher bound if it has one.
    pub fn push(&mut self, batch: Logged, bound: Option<Hlc>) {
        if let Some(bound) = bound {
            self.bound = bound;
            self.bounds.push_back((batch.end, bound));
        }
        self.batches.push_back(batch);
    }

    /// A mark is sent whose promise covers everything in the log up to `behind`.
    pub fn push_promise(&mut self, behind: Position, promise: (Hlc, u64)) {
        if self.promises.len() >= MAX_PROMISES {
            let mut is_kept = false;
            self.promises.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
        self.promises.push_back((behind, promise));
    }

    /// Takes the next bound that is synced.
    pub fn take_bound(&mut self, synced: Position) -> Option<Hlc> {
        self.bounds.front().filter(|(end, _)| *end <= synced)?;
        self.bounds.pop_front().map(|(_, bound)| bound)
    }

    /// Takes the next batch that is durable.
    pub fn take_batch(&mut self, written: Position, synced: Position) -> Option<Logged> {
        let until = |batch: &Logged| if batch.sync { synced } else { written };
        self.batches.front().filter(|batch| batch.end <= until(batch))?;
        self.batches.pop_front()
    }

    /// Takes the promises that are synced.
    pub fn take_promises(&mut self, synced: Position) -> impl Iterator<Item = (Hlc, u64)> {
        let done = self.promises.partition_point(|&(behind, _)| behind <= synced);
        self.promises.drain(..done).map(|(_, promise)| promise)
    }

    /// What waits for a sync. `syncs_anyway`: the log is synced without any wish, soon enough for promises.
    pub fn sync_wish(&self, syncs_anyway: bool) -> SyncWish {
        if !self.bounds.is_empty() || self.batches.front().is_some_and(|batch| batch.sync) {
            SyncWish::Now
        } else if !self.promises.is_empty() && !syncs_anyway {
            SyncWish::Soon
        } else {
            SyncWish::None
        }
    }

    /// Whether a batch is appended and not yet durable.
    pub fn has_batches(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.bounds.is_empty() && self.promises.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(number: u64, end: u64, sync: bool) -> Logged {
        Logged {
            number: Some(number),
            end: Position(end),
            sync,
            entries: Vec::new(),
            received: Vec::new(),
            givers: Vec::new(),
        }
    }

    fn take(in_log: &mut InLog, written: u64, synced: u64) -> Option<u64> {
        in_log.take_batch(Position(written), Position(synced))?.number
    }

    #[test]
    fn a_batch_that_must_be_synced_holds_those_behind_it() {
        let mut in_log = InLog::new(Hlc(5));
        in_log.push(batch(1, 10, true), Some(Hlc(9)));
        in_log.push(batch(2, 20, false), None);
        assert_eq!(take(&mut in_log, 20, 9), None);
        assert_eq!(in_log.sync_wish(true), SyncWish::Now);
        assert_eq!(in_log.take_bound(Position(9)), None);
        assert_eq!(take(&mut in_log, 20, 10), Some(1));
        assert_eq!(in_log.take_bound(Position(10)), Some(Hlc(9)));
        assert_eq!(take(&mut in_log, 20, 10), Some(2), "it need only be written");
        assert!(in_log.is_empty() && in_log.sync_wish(false) == SyncWish::None);
        assert_eq!(in_log.bound(), Hlc(9));
    }

    #[test]
    fn promises_count_once_synced_and_some_of_too_many_stay() {
        let mut in_log = InLog::new(Hlc::ZERO);
        for number in 0..=MAX_PROMISES as u64 {
            in_log.push_promise(Position(number), (Hlc(number), number));
        }
        assert_eq!(in_log.sync_wish(false), SyncWish::Soon);
        assert_eq!(in_log.sync_wish(true), SyncWish::None);
        let (half, last) = (MAX_PROMISES as u64 / 2, MAX_PROMISES as u64);
        assert_eq!(in_log.take_promises(Position(half)).count(), MAX_PROMISES / 4 + 1);
        assert!(in_log.promises.len() <= MAX_PROMISES / 2 + 1);
        let newest = in_log.take_promises(Position(u64::MAX)).last();
        assert_eq!(newest, Some((Hlc(last), last)));
    }
}
