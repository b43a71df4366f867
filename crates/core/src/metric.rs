//! The numbers that a protocol counts in addition to those that every protocol reports ([`crate::Vitals`]).
//!
//! A protocol lists its [`Metric`]s. The lines of `/metrics`, the fields of `/status` and the answer to `INFO replication` are made from that list:
//! no other crate knows the names.
use crate::{Micros, Now, Protocol, ReplicaId, Spans};
use std::collections::BTreeMap;

/// A number that a protocol counts, or one such number for each of a replica's peers, and how it is read.
pub struct Metric<P> {
    /// Its name, with the unit last: `_seconds`, `_bytes`. The name of a number that only rises while a node runs ends in `_total`. `/metrics` adds
    /// the prefix `turnbuckle_`.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub help: &'static str,
    read: Read<P>,
}

enum Read<P> {
    Whole(fn(&P, Now) -> Reading),
    ByPeer(Flow, fn(&P, Now) -> Vec<(ReplicaId, Reading)>),
}

/// Which way what is counted by peers goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// From the peer.
    From,
    /// To the peer.
    To,
}

/// What a metric reads. A node has one replica of each partition, so each kind says how the readings of several replicas are combined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// A count or an amount. Readings are added.
    Count(u64),
    /// A number of which only the highest matters, such as a term. The highest reading is kept.
    Highest(u64),
    /// How far something is behind. The longest reading is kept. If one is `None`, because the lag is not known of some partition, nothing is shown.
    Lag(Option<Micros>),
    /// How long things took. The histograms are added.
    Spans(Box<Spans>),
}

/// The readings of one metric from all replicas of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// What the metric is, in one sentence.
    pub help: &'static str,
    /// If it is counted by peers: which way.
    pub flow: Flow,
    /// The reading for each peer. A metric without peers has one reading, under `None`.
    pub readings: BTreeMap<Option<ReplicaId>, Reading>,
}

impl<P: Protocol> Metric<P> {
    /// A metric with one number for each replica.
    pub const fn new(name: &'static str, help: &'static str, read: fn(&P, Now) -> Reading) -> Metric<P> {
        let read = Read::Whole(read);
        Metric { name, help, read }
    }

    /// A metric with a number for each peer of a replica, of what comes from there.
    pub const fn from_peers(
        name: &'static str,
        help: &'static str,
        read: fn(&P, Now) -> Vec<(ReplicaId, Reading)>,
    ) -> Metric<P> {
        let read = Read::ByPeer(Flow::From, read);
        Metric { name, help, read }
    }

    /// A metric with a number for each peer of a replica, of what goes there.
    pub const fn to_peers(
        name: &'static str,
        help: &'static str,
        read: fn(&P, Now) -> Vec<(ReplicaId, Reading)>,
    ) -> Metric<P> {
        let read = Read::ByPeer(Flow::To, read);
        Metric { name, help, read }
    }

    /// Adds the readings of all metrics of one replica to `measured`.
    ///
    /// # Panics
    /// If a metric's name does not end in its unit, or if it does not always read the same kind.
    pub fn measure(replica: &P, now: Now, measured: &mut BTreeMap<&'static str, Measured>) {
        for metric in P::METRICS {
            let known = measured.entry(metric.name).or_insert_with(|| Measured {
                help: metric.help,
                flow: match metric.read {
                    Read::ByPeer(flow, _) => flow,
                    Read::Whole(_) => Flow::From,
                },
                readings: BTreeMap::new(),
            });
            for (peer, reading) in metric.readings(replica, now) {
                reading.check_name(metric.name);
                match known.readings.remove(&peer) {
                    None => known.readings.insert(peer, reading),
                    Some(other) => known.readings.insert(peer, other.and(reading)),
                };
            }
        }
    }

    fn readings(&self, replica: &P, now: Now) -> Vec<(Option<ReplicaId>, Reading)> {
        match self.read {
            Read::Whole(read) => vec![(None, read(replica, now))],
            Read::ByPeer(_, read) => {
                let readings = read(replica, now).into_iter();
                readings.map(|(peer, reading)| (Some(peer), reading)).collect()
            }
        }
    }
}

impl Reading {
    /// This reading combined with that of another partition.
    fn and(self, other: Reading) -> Reading {
        match (self, other) {
            (Reading::Count(one), Reading::Count(other)) => Reading::Count(one + other),
            (Reading::Highest(one), Reading::Highest(other)) => Reading::Highest(one.max(other)),
            (Reading::Lag(one), Reading::Lag(other)) => {
                Reading::Lag(one.zip(other).map(|(one, other)| one.max(other)))
            }
            (Reading::Spans(mut one), Reading::Spans(other)) => {
                one.merge(&other);
                Reading::Spans(one)
            }
            (one, other) => panic!("a metric has read {one:?} and {other:?}; expected readings of one kind"),
        }
    }

    fn check_name(&self, name: &str) {
        let unit_is_told = match self {
            Reading::Count(_) => !name.ends_with("_seconds"),
            Reading::Highest(_) => !name.ends_with("_seconds") && !name.ends_with("_total"),
            Reading::Lag(_) | Reading::Spans(_) => name.ends_with("_seconds"),
        };
        assert!(
            unit_is_told,
            "the metric {name} reads {self:?}: the name of a time must end in _seconds and no other name may; only a number that never \
             falls may end in _total"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_several_partitions_become_one() {
        let lag = |ms| Reading::Lag(Some(Micros::from_millis(ms)));
        let mut spans = Spans::default();
        spans.add(Micros(1));
        let twice = Reading::Spans(Box::new(spans.clone())).and(Reading::Spans(Box::new(spans)));
        assert!(matches!(twice, Reading::Spans(spans) if spans.count() == 2));
        assert_eq!(Reading::Count(3).and(Reading::Count(4)), Reading::Count(7));
        assert_eq!(Reading::Highest(3).and(Reading::Highest(4)), Reading::Highest(4));
        assert_eq!(lag(3).and(lag(4)), lag(4));
        assert_eq!(lag(3).and(Reading::Lag(None)), Reading::Lag(None));
    }

    #[test]
    #[should_panic(expected = "must end in _seconds")]
    fn a_time_says_its_unit() {
        Reading::Lag(None).check_name("lag");
    }
}
