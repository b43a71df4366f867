use super::{Counter, Histogram, LevelLabel, OperationKind, Outcome};
use std::sync::OnceLock;

const KINDS: usize = OperationKind::ALL.len();
const LEVELS: usize = LevelLabel::ALL.len();
const OUTCOMES: usize = Outcome::ALL.len();

/// The counts of one loop. Every possible series has its place from the start, so counting is arithmetic and a store. They take about 6 KiB per
/// keyspace, and a histogram for each kind and level that occurs.
#[derive(Debug)]
pub(super) struct LoopCounts {
    /// Counts by keyspace, kind, level and outcome.
    operations: Box<[Counter]>,
    /// Histograms by keyspace, kind and level.
    durations: Box<[OnceLock<Box<Histogram>>]>,
    pub(super) clients_accepted: Counter,
    pub(super) clients_left: Counter,
    pub(super) clients_refused: Counter,
    pub(super) commands: Counter,
    pub(super) received_bytes: Counter,
    pub(super) sent_bytes: Counter,
    /// Messages to channels that clients were sent, and those that were lost here.
    pub(super) messages: Counter,
    pub(super) lost_messages: Counter,
    /// Values that were read, and reads of keys without a value.
    pub(super) values_found: Counter,
    pub(super) values_missing: Counter,
    /// By the place of the command.
    pub(super) by_command: Box<[CommandCounts]>,
}

/// What is counted of one command.
#[derive(Debug, Default)]
pub(super) struct CommandCounts {
    pub(super) calls: Counter,
    pub(super) refused: Counter,
    pub(super) failed: Counter,
    pub(super) micros: Counter,
}

impl LoopCounts {
    pub(super) fn new(keyspaces: usize, commands: usize) -> LoopCounts {
        let series = keyspaces * KINDS * LEVELS;
        LoopCounts {
            operations: (0..series * OUTCOMES).map(|_| Counter::default()).collect(),
            durations: (0..series).map(|_| OnceLock::new()).collect(),
            clients_accepted: Counter::default(),
            clients_left: Counter::default(),
            clients_refused: Counter::default(),
            commands: Counter::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            messages: Counter::default(),
            lost_messages: Counter::default(),
            values_found: Counter::default(),
            values_missing: Counter::default(),
            by_command: (0..commands).map(|_| CommandCounts::default()).collect(),
        }
    }

    pub(super) fn operation(
        &self,
        keyspace: usize,
        kind: OperationKind,
        level: LevelLabel,
        outcome: Outcome,
    ) -> &Counter {
        &self.operations[series(keyspace, kind, level) * OUTCOMES + outcome as usize]
    }

    pub(super) fn duration(&self, keyspace: usize, kind: OperationKind, level: LevelLabel) -> &Histogram {
        self.durations[series(keyspace, kind, level)].get_or_init(Box::default)
    }

    /// The counts that are not zero: keyspace, kind, level, outcome, count.
    pub(super) fn operations(
        &self,
    ) -> impl Iterator<Item = (usize, OperationKind, LevelLabel, Outcome, u64)> {
        let counts = self.operations.iter().map(Counter::value).enumerate();
        counts.filter(|(_, count)| *count > 0).map(|(place, count)| {
            let (keyspace, kind, level) = from_series(place / OUTCOMES);
            (keyspace, kind, level, Outcome::ALL[place % OUTCOMES], count)
        })
    }

    /// The histograms of what occurred: keyspace, kind, level.
    pub(super) fn durations(&self) -> impl Iterator<Item = (usize, OperationKind, LevelLabel, &Histogram)> {
        self.durations
            .iter()
            .enumerate()
            .filter_map(|(place, histogram)| {
                let (keyspace, kind, level) = from_series(place);
                Some((keyspace, kind, level, &**histogram.get()?))
            })
    }

    /// The two counters are read one after the other, and a client may leave in between. So the difference is kept from falling below zero.
    pub(super) fn connected_clients(&self) -> u64 {
        let left = self.clients_left.value();
        self.clients_accepted.value().saturating_sub(left)
    }
}

fn series(keyspace: usize, kind: OperationKind, level: LevelLabel) -> usize {
    (keyspace * KINDS + kind as usize) * LEVELS + level as usize
}

fn from_series(place: usize) -> (usize, OperationKind, LevelLabel) {
    let (keyspace_and_kind, level) = (place / LEVELS, place % LEVELS);
    (
        keyspace_and_kind / KINDS,
        OperationKind::ALL[keyspace_and_kind % KINDS],
        LevelLabel::ALL[level],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_has_a_place_of_its_own() {
        let counts = LoopCounts::new(3, 0);
        let mut n = 0;
        for keyspace in 0..3 {
            for &kind in OperationKind::ALL {
                for &level in LevelLabel::ALL {
                    for &outcome in Outcome::ALL {
                        n += 1;
                        counts.operation(keyspace, kind, level, outcome).add(n);
                    }
                }
            }
        }
        let mut expected = 0;
        for (keyspace, kind, level, outcome, count) in counts.operations() {
            expected += 1;
            assert_eq!(count, expected, "two series share a place");
            assert_eq!(counts.operation(keyspace, kind, level, outcome).value(), count);
        }
        assert_eq!(expected, n);
    }
}
