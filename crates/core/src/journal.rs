use bytes::Bytes;
use std::collections::VecDeque;

/// A protocol's own log: entries with consecutive indexes. The protocol appends behind the last entry, truncates at the end and purges at the
/// beginning.
///
/// ```text
///            first                 next
///    purged  |  7   8   9   10  11 |          append: at `next`
///   <--------+---------------------+          truncate(10): 10 and 11 go, `next` is 10
///            purge(9): 7 and 8 go, `first` is 9
/// ```
///
/// Every change is staged like a version ([`crate::Context::append`]): it is in one record of the commit log with everything else of its batch. What
/// is emitted afterwards is held until that record is durable. A checkpoint writes what has changed since the last checkpoint.
///
/// **It is in memory**, so that any entry can be read at once. The protocol must keep it short: it looks at [`Journal::bytes`], and purges the
/// entries that it can replace in another way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    first: u64,
    entries: VecDeque<Bytes>,
    bytes: u64,
    /// Entries below this index have not changed since a checkpoint last took the changes.
    changed_from: u64,
}

impl Default for Journal {
    fn default() -> Journal {
        Journal::empty(Journal::FIRST)
    }
}

impl Journal {
    /// The index of the first entry of a new journal.
    pub const FIRST: u64 = 1;

    /// A journal whose next entry is `next`.
    pub fn empty(next: u64) -> Journal {
        Journal {
            first: next,
            entries: VecDeque::new(),
            bytes: 0,
            changed_from: next,
        }
    }

    /// The index of the earliest entry, or of the next one if there is none.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The index of the entry that is appended next.
    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// The length of all its entries together, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The entry at an index: `None` if it was purged or truncated, or was never appended.
    pub fn get(&self, index: u64) -> Option<&Bytes> {
        let place = index.checked_sub(self.first)?;
        self.entries.get(usize::try_from(place).ok()?)
    }

    /// The entries from `index`, or from the first one if that is later, with their indexes.
    pub fn from(&self, index: u64) -> impl Iterator<Item = (u64, &Bytes)> {
        let from = index.clamp(self.first, self.next());
        (from..).zip(self.entries.range((from - self.first) as usize..))
    }

    /// Appends an entry, and returns its index.
    pub fn append(&mut self, entry: Bytes) -> u64 {
        let index = self.next();
        self.bytes += entry.len() as u64;
        self.entries.push_back(entry);
        index
    }

    /// Drops the entries from `from` on. Returns false if there are none.
    pub fn truncate(&mut self, from: u64) -> bool {
        if from >= self.next() {
            return false;
        }
        let kept = from.saturating_sub(self.first) as usize;
        self.bytes -= self
            .entries
            .drain(kept..)
            .map(|entry| entry.len() as u64)
            .sum::<u64>();
        self.changed_from = self.changed_from.min(from.max(self.first));
        true
    }

    /// Drops the entries before `until`. If `until` is behind the last entry, none is left, and the next entry gets the index `until`. Returns false
    /// if nothing changes.
    pub fn purge(&mut self, until: u64) -> bool {
        if until <= self.first {
            return false;
        }
        let purged = (until - self.first).min(self.entries.len() as u64) as usize;
        self.bytes -= self
            .entries
            .drain(..purged)
            .map(|entry| entry.len() as u64)
            .sum::<u64>();
        self.first = until;
        self.changed_from = self.changed_from.max(until);
        true
    }

    /// The index from which on entries have changed since this was last called.
    pub fn take_changes(&mut self) -> u64 {
        let next = self.next();
        std::mem::replace(&mut self.changed_from, next)
    }

    /// Counts the entries from `from` on as changed again: a checkpoint took these changes and did not write them.
    pub fn give_changes_back(&mut self, from: u64) {
        self.changed_from = self.changed_from.min(from.max(self.first));
    }
}

/// How far the versions of a replica have the effects of its journal's entries: the last such entry. Before the first one, both numbers are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Applied {
    /// The entry's index.
    pub index: u64,
    /// The term in which it was proposed.
    pub term: u64,
}

impl Applied {
    /// No entry has a higher index or term, so that indexes can be counted on from.
    pub const MAX: u64 = u64::MAX / 2;
}

/// A journal that is rebuilt from what a checkpoint wrote of it, and from the records of the commit log behind that. The checkpoint may have been
/// interrupted: entries may be missing, or may be newer than the first of those records. When all records are replayed, the entries are consecutive
/// again.
#[derive(Debug, Clone, Default)]
pub struct JournalReplay {
    first: u64,
    entries: std::collections::BTreeMap<u64, Bytes>,
}

impl JournalReplay {
    /// The journal as a checkpoint left it: its entries, and the index of its first entry.
    pub fn new(first: u64, entries: impl IntoIterator<Item = (u64, Bytes)>) -> JournalReplay {
        JournalReplay {
            first: first.max(Journal::FIRST),
            entries: entries.into_iter().collect(),
        }
    }

    /// Replays an append at `index`. Entries that are there already, at `index` or behind it, were appended earlier or later than this one, and are
    /// dropped.
    pub fn append(&mut self, index: u64, entry: Bytes) {
        self.truncate(index);
        self.entries.insert(index, entry);
    }

    /// Replays a truncation: the entries from `from` on are dropped.
    pub fn truncate(&mut self, from: u64) {
        drop(self.entries.split_off(&from));
    }

    /// Replays a purge: the entries before `until` are dropped.
    pub fn purge(&mut self, until: u64) {
        self.first = self.first.max(until);
        self.entries = self.entries.split_off(&self.first);
    }

    /// The rebuilt journal.
    ///
    /// # Errors
    /// If an entry is missing: its index.
    pub fn finish(self) -> Result<Journal, u64> {
        let mut journal = Journal::empty(self.first);
        for (index, entry) in self
            .entries
            .into_iter()
            .skip_while(|(index, _)| *index < self.first)
        {
            if index != journal.next() {
                return Err(journal.next());
            }
            journal.append(entry);
        }
        Ok(journal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn entry(number: u64) -> Bytes {
        Bytes::from(vec![number as u8; (number % 7) as usize])
    }

    #[derive(Debug, Clone)]
    enum Step {
        Append(u64),
        Truncate(u64),
        Purge(u64),
        Checkpoint,
        CutOff(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => any::<u64>().prop_map(Step::Append),
            1 => (0..60_u64).prop_map(Step::Truncate),
            1 => (0..60_u64).prop_map(Step::Purge),
            1 => Just(Step::Checkpoint),
            1 => any::<u8>().prop_map(Step::CutOff),
        ]
    }

    proptest! {
        /// Compares the journal with a plain map: both have the same entries after every step. From any mixture of an old checkpoint's rows with a
        /// newer one's, the records behind the old checkpoint restore all entries.
        #[test]
        fn it_is_what_a_map_would_be_and_comes_back_from_a_torn_checkpoint(steps in prop::collection::vec(step(), 0..200)) {
            let mut journal = Journal::default();
            let mut oracle: (u64, u64, BTreeMap<u64, Bytes>) = (1, 1, BTreeMap::new());
            let mut checkpoint = (1, BTreeMap::new());
            let mut records: Vec<(u64, Step)> = Vec::new();
            for step in steps {
                let index = journal.next();
                match &step {
                    Step::Append(number) => {
                        prop_assert_eq!(journal.append(entry(*number)), oracle.1);
                        oracle.2.insert(oracle.1, entry(*number));
                        oracle.1 += 1;
                    }
                    Step::Truncate(from) => {
                        journal.truncate(*from);
                        if *from < oracle.1 {
                            oracle.2.retain(|index, _| index < from);
                            oracle.1 = oracle.0.max(*from);
                        }
                    }
                    Step::Purge(until) => {
                        journal.purge(*until);
                        oracle.2.retain(|index, _| index >= until);
                        oracle.0 = oracle.0.max(*until);
                        oracle.1 = oracle.1.max(*until);
                    }
                    Step::Checkpoint => {
                        // Only the entries that are reported as changed are written.
                        let changed = journal.take_changes();
                        checkpoint.0 = journal.first();
                        checkpoint.1.retain(|&index, _| index >= journal.first() && index < journal.next());
                        checkpoint.1.extend(journal.from(changed).map(|(index, bytes)| (index, bytes.clone())));
                        prop_assert_eq!(&checkpoint.1, &oracle.2);
                        records.clear();
                        continue;
                    }
                    Step::CutOff(mask) => {
                        // The next checkpoint is interrupted: only some of the rows that it would write or remove are done.
                        let done = |index: &u64| mask >> (index % 8) & 1 == 1;
                        let mut rows = checkpoint.1.clone();
                        rows.retain(|index, _| oracle.2.contains_key(index) || !done(index));
                        for (index, bytes) in oracle.2.iter().filter(|(index, _)| done(index)) {
                            rows.insert(*index, bytes.clone());
                        }
                        let mut replay = JournalReplay::new(checkpoint.0, rows);
                        for (index, record) in &records {
                            match record {
                                Step::Append(number) => replay.append(*index, entry(*number)),
                                Step::Truncate(from) => replay.truncate(*from),
                                Step::Purge(until) => replay.purge(*until),
                                Step::Checkpoint | Step::CutOff(_) => {}
                            }
                        }
                        let back = replay.finish();
                        prop_assert!(back.is_ok(), "{:?} is missing", back);
                        let back = back.expect("just seen");
                        prop_assert_eq!(back.first(), oracle.0);
                        prop_assert_eq!(back.from(0).map(|(index, bytes)| (index, bytes.clone())).collect::<BTreeMap<_, _>>(), oracle.2.clone());
                        continue;
                    }
                }
                records.push((index, step));
                prop_assert_eq!((journal.first(), journal.next()), (oracle.0, oracle.1));
                prop_assert_eq!(journal.bytes(), oracle.2.values().map(|entry| entry.len() as u64).sum::<u64>());
                for index in 0..70 {
                    prop_assert_eq!(journal.get(index), oracle.2.get(&index));
                }
            }
        }
    }
}
