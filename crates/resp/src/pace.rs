//! How far reads may run ahead of what the client takes.
//!
//! What a read will bring is not known when it begins. So each is taken to bring what reads of this connection have brought lately, for each
//! of its keys, and begins only if that fits into the backlog beside what is already there and what others are expected to bring. A read
//! for which that is never so begins alone: when nothing is expected and the client has taken everything before it.
//!
//! A connection starts with a guess that lets some reads of one key begin at once, and those of several keys one by one. Large values raise it at once, small ones lower it by half
//! each time: a pipeline of small reads has its full depth after a few answers, and a pipeline of large ones never has two on their way.
use crate::Limits;

#[derive(Debug)]
pub(crate) struct Pace {
    /// The backlog that reads may fill.
    max: usize,
    /// No reply is longer, so no read is expected to bring more.
    max_per_call: usize,
    /// What each key is taken to bring.
    value_bytes: usize,
    /// What reads under way are expected to bring.
    expected: usize,
    /// Something was read.
    is_known: bool,
}

/// How many single reads begin at once on a connection of which nothing is known.
const FIRST_READS: usize = 128;

/// The least that a key is taken to bring: what its reply costs without a value.
const MIN_BYTES: usize = 16;

impl Pace {
    pub(crate) fn new(limits: &Limits) -> Pace {
        Pace {
            max: limits.max_output_bytes,
            max_per_call: limits.max_reply_bytes,
            value_bytes: (limits.max_output_bytes / FIRST_READS).max(1),
            expected: 0,
            is_known: false,
        }
    }

    /// What a read of so many keys is expected to bring.
    pub(crate) fn need(&self, keys: usize) -> usize {
        keys.saturating_mul(self.value_bytes).min(self.max_per_call)
    }

    /// Whether a read of so many keys may begin, while so much waits for the client.
    pub(crate) fn may_begin(&self, keys: usize, backlog: usize) -> bool {
        let ahead = backlog + self.expected;
        ahead == 0 || (ahead + self.need(keys) <= self.max && (self.is_known || keys == 1))
    }

    /// What reads under way are expected to bring.
    pub(crate) fn expected(&self) -> usize {
        self.expected
    }

    pub(crate) fn begin(&mut self, need: usize) {
        self.expected += need;
    }

    pub(crate) fn end(&mut self, need: usize) {
        self.expected -= need;
    }

    /// A read of so many keys has brought so many bytes.
    pub(crate) fn learn(&mut self, keys: usize, bytes: usize) {
        self.is_known = true;
        let found = bytes.div_ceil(keys.max(1));
        self.value_bytes = found
            .max(self.value_bytes / 2)
            .max(MIN_BYTES.min(self.value_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> Pace {
        Pace::new(&Limits::default())
    }

    #[test]
    fn a_large_read_begins_alone() {
        let mut pace = pace();
        pace.learn(60, 60 << 20);
        let need = pace.need(60);
        assert_eq!(need, 60 << 20);
        assert!(pace.may_begin(need, 0));
        assert!(
            !pace.may_begin(need, 1),
            "the client has not taken what was before"
        );
        pace.begin(need);
        assert!(!pace.may_begin(need, 0), "another is under way");
        assert!(!pace.may_begin(pace.need(1), 0));
        pace.end(need);
        assert!(pace.may_begin(need, 0));
    }

    #[test]
    fn nothing_begins_beside_a_read_of_several_keys_before_anything_is_known() {
        let mut pace = pace();
        pace.begin(pace.need(1));
        assert!(pace.may_begin(1, 0) && !pace.may_begin(2, 0));
        pace.learn(1, 100);
        assert!(pace.may_begin(2, 0));
    }

    #[test]
    fn small_reads_soon_have_their_full_depth() {
        let mut pace = pace();
        let depth = |pace: &Pace| pace.max / pace.need(1);
        assert_eq!(depth(&pace), FIRST_READS);
        (0..9).for_each(|_| pace.learn(1, 100));
        assert!(depth(&pace) > 10_000, "{}", depth(&pace));
        pace.learn(1, 2 << 20);
        assert_eq!(depth(&pace), 0, "one large value is enough");
    }

    #[test]
    fn no_read_needs_more_than_the_longest_reply() {
        assert_eq!(pace().need(1 << 40), Limits::default().max_reply_bytes);
    }
}
