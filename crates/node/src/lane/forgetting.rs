//! When deletes are forgotten, and when their room on disk is taken back.
//!
//! A delete is written down by one checkpoint and forgotten by a later one. What was forgotten still takes room in the table until that is merged
//! anew, which takes about as long as the forgetting did.
use turnbuckle_core::Hlc;

/// For so few deletes that were forgotten no table is merged anew.
const FEW_FORGOTTEN: u64 = 1_000;

/// A table whose merge gave no disk back is merged again after at most this number of checkpoints.
const LONGEST_RECLAIM_WAIT: u32 = 64;

/// How far a lane is with that.
#[derive(Default)]
pub(crate) struct Forgetting {
    /// The next checkpoint has deletes to forget once what is settled has come behind this.
    behind: Hlc,
    /// How many deletes were forgotten since the table was last merged anew.
    forgotten: u64,
    /// In how many checkpoints the table may be merged anew, and how many those were the last time, if that gave nothing back.
    reclaim_after: u32,
    reclaim_wait: u32,
}

impl Forgetting {
    /// A checkpoint begins, at this time of the clock: it writes down every delete before that.
    pub fn begin_checkpoint(&mut self, clock: Hlc) {
        self.behind = clock;
    }

    /// Whether the next checkpoint can forget something, if everything up to `settled` may be forgotten.
    pub fn is_due(&self, settled: Hlc) -> bool {
        settled > self.behind
    }

    /// Deletes were forgotten.
    pub fn forgot(&mut self, deletes: u64) {
        self.forgotten += deletes;
    }

    /// Whether more was forgotten than there is left: the table is merged anew then. Called once for each checkpoint.
    pub fn is_reclaim_due(&mut self, live_keys: u64) -> bool {
        let is_due = self.forgotten > live_keys.max(FEW_FORGOTTEN);
        let is_now = is_due && self.reclaim_after == 0;
        self.reclaim_after -= u32::from(is_due && !is_now);
        is_now
    }

    /// The table was merged anew. If that gave nothing back yet, it is tried again, after twice as many checkpoints each time.
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
