//! How long peers take to answer.
//!
//! The time of an answer counts from its question, also if the read that asked is over by then. Otherwise a distant peer, for which another one is asked
//! each time, would never be known to be distant.
use std::collections::BTreeMap;
use turnbuckle_core::{Micros, ReplicaId, ReplicaSet};

/// The smoothed time to an answer, and its smoothed deviation, as TCP keeps them (RFC 6298, 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Smoothed {
    time: u64,
    deviation: u64,
    /// When the peer was asked last, and how many questions other peers had been asked by then.
    asked_at: Micros,
    question: u64,
    /// Whether the next answer counts alone, because the peer was passed over for long.
    is_old: bool,
}

/// How long each peer takes to answer.
#[derive(Debug)]
pub(crate) struct Latencies {
    /// A peer is measured again if it was not asked for this long, while others were asked [`REMEASURE_QUESTIONS`] times: it may answer sooner by now.
    remeasure: Micros,
    known: BTreeMap<ReplicaId, Smoothed>,
    /// When each question was asked that has no answer yet. At most [`MAX_OPEN`]: the oldest are dropped.
    open: BTreeMap<(u64, ReplicaId), Micros>,
    /// The number of questions so far.
    questions: u64,
}

/// The shortest time after which another replica is asked, and the time while nothing was measured.
const MIN_HEDGE: Micros = Micros(2_000);
const FIRST_HEDGE: Micros = Micros::from_millis(100);

const REMEASURE_QUESTIONS: u64 = 50;

const MAX_OPEN: usize = 10_000;

impl Latencies {
    pub fn new(remeasure: Micros) -> Latencies {
        Latencies {
            remeasure,
            known: BTreeMap::new(),
            open: BTreeMap::new(),
            questions: 0,
        }
    }

    /// A peer is asked. An operation asks each peer once.
    pub fn asked(&mut self, operation: u64, peer: ReplicaId, now: Micros) {
        if self.open.len() >= MAX_OPEN {
            self.open.pop_first();
        }
        self.open.insert((operation, peer), now);
        self.questions += 1;
        let question = self.questions;
        if let Some(known) = self.known.get_mut(&peer) {
            known.is_old |= known.is_outdated(self.remeasure, now, question);
            (known.asked_at, known.question) = (now, question);
        }
    }

    /// A peer has answered.
    pub fn answered(&mut self, operation: u64, peer: ReplicaId, now: Micros) {
        if let Some(asked_at) = self.open.remove(&(operation, peer)) {
            self.note(peer, asked_at, now.since(asked_at));
        }
    }

    /// A peer will not answer a question.
    pub fn declined(&mut self, operation: u64, peer: ReplicaId) {
        self.open.remove(&(operation, peer));
    }

    /// A peer will not answer what it was asked before.
    pub fn lose(&mut self, peer: ReplicaId) {
        self.open.retain(|(_, asked), _| *asked != peer);
    }

    fn note(&mut self, peer: ReplicaId, asked_at: Micros, took: Micros) {
        let first = Smoothed {
            time: took.0,
            deviation: took.0 / 2,
            asked_at,
            question: self.questions,
            is_old: false,
        };
        let known = self.known.entry(peer).or_insert(first);
        if known.is_old {
            *known = first;
        }
        known.deviation = known.deviation - known.deviation / 4 + known.time.abs_diff(took.0) / 4;
        known.time = known.time - known.time / 8 + took.0 / 8;
    }

    /// These peers, those that usually answer first in front. One that was never measured is tried early.
    pub fn nearest_first(&self, peers: ReplicaSet) -> Vec<ReplicaId> {
        let mut peers: Vec<ReplicaId> = peers.iter().collect();
        peers.sort_by_key(|peer| self.known.get(peer).map_or(0, |known| known.time));
        peers
    }

    /// One of these peers that should be measured again, because it was passed over for long. `None` if there is none.
    pub fn outdated(&self, peers: ReplicaSet, now: Micros) -> Option<ReplicaId> {
        let is_old = |peer: &ReplicaId| {
            self.known
                .get(peer)
                .is_some_and(|known| known.is_outdated(self.remeasure, now, self.questions))
        };
        peers.iter().find(is_old)
    }

    /// How long to wait for these peers before another one is asked: longer than almost every answer takes.
    pub fn hedge(&self, peers: ReplicaSet) -> Micros {
        let usual = |peer| match self.known.get(&peer) {
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

impl Smoothed {
    /// Whether the peer was passed over for long.
    fn is_outdated(&self, remeasure: Micros, now: Micros, questions: u64) -> bool {
        now.since(self.asked_at) > remeasure && questions - self.question > REMEASURE_QUESTIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMEASURE: Micros = Micros::from_millis(10_000);
    const B: ReplicaId = ReplicaId(1);
    const C: ReplicaId = ReplicaId(2);

    const ALL: [ReplicaId; 2] = [B, C];

    /// Each of some operations asks both peers.
    fn measured(operations: std::ops::Range<u64>, took: [u64; 2]) -> Latencies {
        let mut latencies = Latencies::new(REMEASURE);
        for operation in operations {
            for peer in ALL {
                latencies.asked(operation, peer, Micros(0));
            }
            for (peer, took) in ALL.into_iter().zip(took) {
                latencies.answered(operation, peer, Micros(took));
            }
        }
        latencies
    }

    #[test]
    fn the_peer_that_answers_first_is_asked_first_and_a_slow_one_is_given_its_usual_time() {
        let mut latencies = measured(0..100, [80_000, 20_000]);
        let both: ReplicaSet = ALL.into_iter().collect();
        assert_eq!(latencies.nearest_first(both), [C, B]);
        let hedge = latencies.hedge(ReplicaSet::one(B));
        assert!((80_000..90_000).contains(&hedge.0), "{hedge}");
        assert_eq!(latencies.hedge(ReplicaSet::one(ReplicaId(3))), FIRST_HEDGE);
        // An answer counts once, and not at all if the link was down meanwhile.
        latencies.asked(100, B, Micros(0));
        latencies.lose(B);
        latencies.answered(100, B, Micros(9_000_000));
        latencies.answered(99, C, Micros(9_000_000));
        assert_eq!(latencies.nearest_first(both), [C, B]);
    }

    #[test]
    fn a_peer_that_was_passed_over_for_long_is_measured_again_and_its_past_forgotten() {
        let mut latencies = measured(0..1, [20_000, 80_000]);
        let others: ReplicaSet = [B, C, ReplicaId(3)].into_iter().collect();
        let later = Micros(REMEASURE.0 + 1);
        for operation in 1..=REMEASURE_QUESTIONS + 1 {
            assert_eq!(latencies.outdated(others, later), None);
            latencies.asked(operation, B, later);
        }
        // One that was never asked is tried early anyway.
        assert_eq!(latencies.outdated(others, REMEASURE), None);
        assert_eq!(latencies.outdated(others, later), Some(C));
        latencies.asked(1_000, C, later);
        assert_eq!(latencies.outdated(others, later), None);
        latencies.answered(1_000, C, Micros(later.0 + 10_000));
        assert_eq!(latencies.nearest_first(ALL.into_iter().collect()), [C, B]);
    }

    /// A partition that is seldom read: no peer was asked for long, and none was passed over.
    #[test]
    fn what_is_known_of_a_peer_that_is_seldom_asked_is_kept() {
        let mut latencies = Latencies::new(REMEASURE);
        for operation in 0..200 {
            let now = Micros(operation * 2 * REMEASURE.0);
            assert_eq!(latencies.outdated(ReplicaSet::one(B), now), None);
            latencies.asked(operation, B, now);
            latencies.answered(operation, B, Micros(now.0 + 20_000));
        }
        let hedge = latencies.hedge(ReplicaSet::one(B));
        assert!((20_000..21_000).contains(&hedge.0), "{hedge}");
    }

    #[test]
    fn questions_without_answers_take_a_limited_amount_of_memory() {
        let mut latencies = Latencies::new(REMEASURE);
        for operation in 0..MAX_OPEN as u64 + 10 {
            latencies.asked(operation, B, Micros(0));
        }
        assert_eq!(latencies.open.len(), MAX_OPEN);
        assert_eq!(latencies.open.first_key_value(), Some((&(10, B), &Micros(0))));
    }
}
