use bytes::Bytes;
use std::collections::BTreeSet;

/// The records that exist: those that were loaded, and those that the run has inserted. All clients of a run share one
/// population.
///
/// Readers choose only among the first [`Population::len`] records. A record that is being inserted is not one of them until
/// its insert, and every insert that was begun before it, is over. Otherwise `latest` would mostly read keys that are not
/// there.
#[derive(Debug, Clone)]
pub struct Population {
    loaded: u64,
    /// Every record below this number is finished.
    finished: u64,
    /// The number of the next record to insert.
    next: u64,
    /// Records that were finished out of order. At most as many as there are inserts under way.
    early: BTreeSet<u64>,
}

impl Population {
    /// `loaded` records, the first of which is number 0.
    ///
    /// # Panics
    /// If `loaded` is 0: nothing could be chosen.
    pub fn new(loaded: u64) -> Population {
        assert!(loaded > 0, "a workload needs at least one record");
        Population {
            loaded,
            finished: loaded,
            next: loaded,
            early: BTreeSet::new(),
        }
    }

    /// The number of records before the first insert.
    pub fn loaded(&self) -> u64 {
        self.loaded
    }

    /// The number of records that a client may choose from.
    #[allow(clippy::len_without_is_empty, reason = "a population is never empty")]
    pub fn len(&self) -> u64 {
        self.finished
    }

    /// Takes the number of the next record to insert.
    pub(crate) fn take(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The insert of a record is over, whether it succeeded or not: a failed insert must not hold up the others. A reader
    /// then finds nothing, which is correct.
    ///
    /// # Panics
    /// If that record was not being inserted.
    pub fn finish(&mut self, record: u64) {
        assert!(
            (self.finished..self.next).contains(&record) && self.early.insert(record),
            "record {record} is finished, but was not being inserted"
        );
        while self.early.remove(&self.finished) {
            self.finished += 1;
        }
    }

    /// The key of a record: `user` and its number. YCSB hashes the number, to scatter neighbours over ranges of keys. Here
    /// the hash slots scatter them, and a plain number is easier to read.
    pub fn key(record: u64) -> Bytes {
        Bytes::from(format!("user{record}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_can_be_chosen_once_all_before_it_are_finished() {
        let mut population = Population::new(10);
        let (first, second, third) = (population.take(), population.take(), population.take());
        assert_eq!((first, second, third), (10, 11, 12));
        population.finish(second);
        assert_eq!(population.len(), 10);
        population.finish(first);
        assert_eq!(population.len(), 12);
        population.finish(third);
        assert_eq!((population.len(), population.loaded()), (13, 10));
    }

    #[test]
    #[should_panic(expected = "was not being inserted")]
    fn a_record_is_finished_once() {
        let mut population = Population::new(1);
        let record = population.take();
        population.finish(record);
        population.finish(record);
    }
}
