//! How far reads may run ahead of what the client takes.
//!
//! How much a read will return is not known when it begins. So each read is expected to return, for each of its keys, as much as reads of this
//! connection have returned lately. It begins only if that fits into the backlog, beside the replies that are already there and what other reads are
//! expected to return. A read that can never fit begins alone: when no other read is under way and the client has taken everything before it.
//!
//! A connection starts with a guess. With it, some reads of one key begin at once, and reads of several keys begin one by one. Large values raise the
//! guess at once, and small ones lower it by half each time. So a pipeline of small reads has its full depth after a few answers, and a pipeline of
//! large reads never has two under way.
use crate::Limits;

#[derive(Debug)]
pub(crate) struct Pace {
    /// How many bytes of the backlog reads may fill.
    max: usize,
    /// The longest reply, in bytes. No read is expected to return more.
    max_per_call: usize,
    /// How many bytes each key is expected to return.
    value_bytes: usize,
    /// How many bytes the reads under way are expected to return.
    expected: usize,
    /// Something was read on this connection.
    is_known: bool,
}

/// How many reads of one key begin at once on a connection of which nothing is known.
const FIRST_READS: usize = 128;

/// The fewest bytes that a key is expected to return: its reply without a value.
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

    /// How many bytes a read of this many keys is expected to return.
    pub(crate) fn need(&self, keys: usize) -> usize {
        keys.saturating_mul(self.value_bytes).min(self.max_per_call)
    }

    /// Whether a read of this many keys may begin while `backlog` bytes wait for the client.
    pub(crate) fn may_begin(&self, keys: usize, backlog: usize) -> bool {
        let ahead = backlog + self.expected;
        ahead == 0 || (ahead + self.need(keys) <= self.max && (self.is_known || keys == 1))
    }

    /// How many bytes the reads under way are expected to return.
    pub(crate) fn expected(&self) -> usize {
        self.expected
    }

    pub(crate) fn begin(&mut self, need: usize) {
        self.expected += need;
    }

    pub(crate) fn end(&mut self, need: usize) {
        self.expected -= need;
    }

    /// Learns from a read of `keys` keys that has returned `bytes` bytes.
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
