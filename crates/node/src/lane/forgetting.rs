//! When deletes and expired values are forgotten, and when their space on disk is taken back.
//!
//! A delete is written down by one checkpoint and forgotten by a later one. So is a value that expires. A forgotten delete still takes space in the table until the
//! table is merged again, which takes about as long as the forgetting did.
use turnbuckle_core::Hlc;

/// Up to this number of forgotten deletes, no table is merged again.
const FEW_FORGOTTEN: u64 = 1_000;

/// A table whose merge freed no disk space is merged again after at most this number of checkpoints.
const LONGEST_RECLAIM_WAIT: u32 = 64;

/// What a lane has forgotten, and when its table is merged again.
#[derive(Default)]
pub(crate) struct Forgetting {
    /// The clock when the last checkpoint began. The next checkpoint has deletes to forget once the settled time is later than this.
    behind: Hlc,
    /// When the first delete or expired value in the table's index may be forgotten, as of the end of the last checkpoint. `None`: there is none.
    first: Option<Hlc>,
    /// The number of deletes that were forgotten since the last merge of the table that freed space.
    forgotten: u64,
    /// The number of checkpoints until the table may be merged again. `reclaim_wait` is what it was after the last merge; 0 if that freed
    /// space.
    reclaim_after: u32,
    reclaim_wait: u32,
}

impl Forgetting {
    /// A checkpoint begins when the clock is `clock`. It writes down every delete before that.
    pub fn begin_checkpoint(&mut self, clock: Hlc) {
        self.behind = clock;
    }

    /// A checkpoint is over. `first` is when the first delete or expired value that is written down may be forgotten.
    pub fn end_checkpoint(&mut self, first: Option<Hlc>) {
        self.first = first;
    }

    /// Whether the next checkpoint can forget a delete, if everything up to `settled` may be forgotten.
    pub fn is_due(&self, settled: Hlc) -> bool {
        settled > self.behind
    }

    /// Whether the index of what was written down has a line that is due, if everything up to `settled` may be forgotten. The line may be stale.
    pub fn is_written(&self, settled: Hlc) -> bool {
        self.first.is_some_and(|first| first <= settled)
    }

    /// The number of deletes and expired values that were forgotten now.
    pub fn forgot(&mut self, deletes: u64) {
        self.forgotten += deletes;
    }

    /// Whether the table is to be merged again: more deletes were forgotten than keys are left. Called once for each checkpoint.
    pub fn is_reclaim_due(&mut self, live_keys: u64) -> bool {
        let is_due = self.forgotten > live_keys.max(FEW_FORGOTTEN);
        let is_now = is_due && self.reclaim_after == 0;
        self.reclaim_after -= u32::from(is_due && !is_now);
        is_now
    }

    /// The table was merged. If that freed no space yet, it is tried again, after twice as many checkpoints each time.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the checkpoint, counted from 1, in which the table is merged anew next.
    fn next_merge(forgetting: &mut Forgetting) -> usize {
        (1..)
            .find(|_| forgetting.is_reclaim_due(0))
            .expect("it is due some time")
    }

    #[test]
    fn a_table_is_merged_once_more_was_forgotten_than_is_left() {
        let mut forgetting = Forgetting::default();
        forgetting.forgot(FEW_FORGOTTEN + 1);
        assert!(!forgetting.is_reclaim_due(FEW_FORGOTTEN + 1) && forgetting.is_reclaim_due(0));
        forgetting.reclaimed(true);
        assert!(!forgetting.is_reclaim_due(0), "nothing is forgotten since");
    }

    #[test]
    fn a_merge_that_gives_nothing_back_is_tried_less_and_less_often() {
        let mut forgetting = Forgetting::default();
        forgetting.forgot(FEW_FORGOTTEN + 1);
        let mut merges = Vec::new();
        for _ in 0..9 {
            merges.push(next_merge(&mut forgetting));
            forgetting.reclaimed(false);
        }
        assert_eq!(merges, [1, 2, 3, 5, 9, 17, 33, 65, 65]);
        forgetting.reclaimed(true);
        forgetting.forgot(FEW_FORGOTTEN + 1);
        assert_eq!(next_merge(&mut forgetting), 1);
    }
}
