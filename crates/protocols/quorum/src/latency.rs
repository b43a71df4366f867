//! How long peers take to answer.
use std::collections::BTreeMap;
use turnbuckle_core::{Micros, ReplicaId, ReplicaSet};

/// The smoothed time to an answer, and its smoothed deviation, as TCP keeps them (RFC 6298, 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Smoothed {
    time: u64,
    deviation: u64,
}

/// How long each peer takes to answer.
#[derive(Debug, Default)]
pub(crate) struct Latencies(BTreeMap<ReplicaId, Smoothed>);

/// The shortest time after which another replica is asked, and the time while nothing was measured.
const MIN_HEDGE: Micros = Micros(2_000);
const FIRST_HEDGE: Micros = Micros::from_millis(100);

impl Latencies {
    /// A peer took this long to answer.
    pub fn note(&mut self, peer: ReplicaId, took: Micros) {
        let known = self.0.entry(peer).or_insert(Smoothed {
            time: took.0,
            deviation: took.0 / 2,
        });
        known.deviation = known.deviation - known.deviation / 4 + known.time.abs_diff(took.0) / 4;
        known.time = known.time - known.time / 8 + took.0 / 8;
    }

    /// These peers, those that usually answer first in front. One that was never measured is tried early.
    pub fn nearest_first(&self, peers: ReplicaSet) -> Vec<ReplicaId> {
        let mut peers: Vec<ReplicaId> = peers.iter().collect();
        peers.sort_by_key(|peer| self.0.get(peer).map_or(0, |known| known.time));
        peers
    }

    /// How long to wait for these peers before another one is asked: longer than almost every answer takes.
    pub fn hedge(&self, peers: ReplicaSet) -> Micros {
        let usual = |peer| match self.0.get(&peer) {
            Some(known) => Micros(known.time + 4 * known.deviation),
            None => FIRST_HEDGE,
        };
        peers
            .iter()
            .map(usual)
            .max()
            .unwrap_or(FIRST_HEDGE)
            .max(MIN_HEDGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: ReplicaId = ReplicaId(1);
    const C: ReplicaId = ReplicaId(2);

    #[test]
    fn the_peer_that_answers_first_is_asked_first_and_a_slow_one_is_given_its_usual_time() {
        let mut latencies = Latencies::default();
        for _ in 0..100 {
            latencies.note(B, Micros(80_000));
            latencies.note(C, Micros(20_000));
        }
        let both = ReplicaSet::one(B).union(ReplicaSet::one(C));
        assert_eq!(latencies.nearest_first(both), [C, B]);
        let hedge = latencies.hedge(ReplicaSet::one(B));
        assert!((80_000..90_000).contains(&hedge.0), "{hedge}");
        assert_eq!(latencies.hedge(ReplicaSet::one(ReplicaId(3))), FIRST_HEDGE);
    }
}
