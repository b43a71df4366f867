//! Dumb ways to the same answers, straight from the definitions, on random small traces.
mod common;

use common::{trace, with_taken_away};
use turnbuckle_check::{
    Cluster, History, Kind, Operation, SessionViolations, Value, Zones, session_violations, staleness,
};

const TRACES: u64 = 100_000;

/// The lightest set of values whose removal leaves a trace that some order explains.
fn removed(zones: &Zones) -> u64 {
    let clusters: Vec<&Cluster> = zones
        .clusters
        .iter()
        .filter(|cluster| cluster.weight > 0)
        .collect();
    let is_right = |kept: u32| {
        let inside = |place: &usize| kept & 1 << place != 0;
        let places: Vec<usize> = (0..clusters.len()).filter(inside).collect();
        places.iter().all(|&a| {
            !clusters[a].is_future()
                && places
                    .iter()
                    .all(|&b| a == b || !clusters[a].conflicts(clusters[b]))
        })
    };
    let weight = |kept: u32| -> u64 {
        let gone = (0..clusters.len()).filter(|place| kept & 1 << place == 0);
        gone.map(|place| clusters[place].weight).sum()
    };
    let subsets = 0..1_u32 << clusters.len();
    let lightest = subsets.filter(|&kept| is_right(kept)).map(weight).min();
    zones.phantom_reads + lightest.expect("removing everything is right")
}

/// What is to be removed is as light as it is said to be, and leaves nothing in conflict.
fn assert_removal_is_right(zones: &Zones, skew: i64) {
    let gone = zones.removal(skew);
    let is_gone = |cluster: &&Cluster| gone.contains(&cluster.value);
    let weight: u64 = zones
        .clusters
        .iter()
        .filter(is_gone)
        .map(|cluster| cluster.weight)
        .sum();
    assert_eq!(
        zones.phantom_reads + weight,
        zones.removed_with_skew(skew),
        "{zones:?}"
    );
    let kept: Vec<&Cluster> = zones
        .clusters
        .iter()
        .filter(|cluster| !is_gone(cluster))
        .collect();
    let apart = |one: &Cluster, other: &Cluster| {
        one.s.saturating_sub(skew) <= other.f.saturating_add(skew)
            || other.s.saturating_sub(skew) <= one.f.saturating_add(skew)
    };
    for one in kept.iter().filter(|cluster| cluster.weight > 0) {
        let others = kept
            .iter()
            .filter(|other| other.weight > 0 && other.value != one.value);
        assert!(
            others.copied().all(|other| apart(one, other)),
            "{gone:?} of {zones:?}"
        );
    }
}

/// Whether some order of the operations that respects time explains all reads: tried one after the other.
fn is_linearizable(operations: &[&Operation], done: u32, value: Value) -> bool {
    let left = |place: &usize| done & 1 << place == 0;
    let mut open = (0..operations.len()).filter(left).peekable();
    if open.peek().is_none() {
        return true;
    }
    open.any(|place| {
        let operation = operations[place];
        let is_next = (0..operations.len())
            .filter(left)
            .all(|other| operations[other].finish >= operation.start);
        let fits = operation.kind != Kind::Read || operation.value == value;
        is_next && fits && is_linearizable(operations, done | 1 << place, operation.value)
    })
}

fn gamma(zones: &Zones, place: usize) -> i64 {
    let me = &zones.clusters[place];
    let others = zones
        .clusters
        .iter()
        .enumerate()
        .filter(|&(other, _)| other != place);
    let pairs = others.map(|(_, other)| {
        let one = me.s.saturating_sub(other.f);
        one.min(other.s.saturating_sub(me.f))
    });
    pairs.max().unwrap_or(0).max(0)
}

/// What is known of the order of writes: see the crate's words on session guarantees.
struct Order<'a>(&'a History);

impl Order<'_> {
    fn writer(&self, read: &Operation) -> Option<&Operation> {
        self.0.writer_of(read)
    }

    fn counts(&self, read: &Operation) -> bool {
        match self.writer(read) {
            Some(write) => read.finish >= write.start,
            None => read.value == Value::INITIAL,
        }
    }

    /// Whether the source of `read` is known older than `write`.
    fn is_older(&self, read: &Operation, write: &Operation) -> bool {
        if read.value == Value::INITIAL {
            return true;
        }
        let cluster = self.0.operations.iter().filter(|operation| {
            (operation.key, operation.value) == (read.key, read.value)
                && (operation.kind != Kind::Read || self.counts(operation))
        });
        cluster
            .map(|operation| operation.finish)
            .min()
            .is_some_and(|effect| effect < write.start)
    }

    fn sessions(&self) -> SessionViolations {
        let sessions = self.0.sessions();
        let all = |places: &[usize]| -> Vec<Operation> {
            places.iter().map(|&place| self.0.operations[place]).collect()
        };
        let mut violations = SessionViolations::default();
        for session in &sessions {
            let session = all(session);
            for (position, read) in session.iter().enumerate() {
                if read.kind != Kind::Read || !self.counts(read) {
                    continue;
                }
                let before = &session[..position];
                let read_before = || {
                    before
                        .iter()
                        .filter(|earlier| earlier.kind == Kind::Read && self.counts(earlier))
                };
                let ryw = before.iter().any(|write| {
                    write.kind == Kind::Write && write.key == read.key && self.is_older(read, write)
                });
                let mr = read_before().any(|earlier| {
                    let newer = self.writer(earlier).filter(|_| earlier.key == read.key);
                    newer.is_some_and(|write| self.is_older(read, write))
                });
                let (mut mw, mut wfr) = (false, false);
                let taken_away = self.0.taken_away.iter().filter(|(delete, _)| {
                    let delete = self.0.operations[*delete].record;
                    before.iter().any(|earlier| earlier.record == delete)
                });
                let taken_away = taken_away.map(|&(_, put)| &self.0.operations[put]);
                let seen_before = read_before().filter_map(|earlier| self.writer(earlier));
                for seen in seen_before.chain(taken_away) {
                    if seen.client == read.client {
                        continue;
                    }
                    let theirs = all(&sessions[seen.client as usize]);
                    let place = theirs
                        .iter()
                        .position(|operation| operation.record == seen.record);
                    let theirs = &theirs[..place.expect("a write is in its session")];
                    let is_source = |write: &Operation| {
                        seen.key == read.key
                            && self
                                .writer(read)
                                .is_some_and(|source| source.record == write.record)
                    };
                    for earlier in theirs.iter().filter(|earlier| earlier.key == read.key) {
                        match earlier.kind {
                            Kind::Write => mw |= self.is_older(read, earlier) || is_source(earlier),
                            Kind::UnknownWrite => {}
                            Kind::Read if !self.counts(earlier) => {}
                            Kind::Read => {
                                if let Some(write) = self.writer(earlier) {
                                    wfr |= self.is_older(read, write) || is_source(write);
                                }
                            }
                        }
                    }
                }
                violations.ryw += u64::from(ryw);
                violations.mr += u64::from(mr);
                violations.mw += u64::from(mw);
                violations.wfr += u64::from(wfr);
            }
        }
        violations
    }

    fn stale(&self) -> (u64, i64) {
        let reads = self
            .0
            .operations
            .iter()
            .filter(|read| read.kind == Kind::Read && self.counts(read));
        let (mut stale, mut max) = (0, 0);
        for read in reads {
            let missed = self.0.operations.iter().filter(|write| {
                write.kind != Kind::Read
                    && write.key == read.key
                    && write.finish < read.start
                    && self.is_older(read, write)
            });
            if let Some(finish) = missed.map(|write| write.finish).min() {
                stale += 1;
                max = max.max(read.start - finish);
            }
        }
        (stale, max)
    }
}

#[test]
fn dumb_and_clever_answers_agree() {
    let (mut judged, mut atomic, mut stale_reads) = (0, 0, 0);
    let mut violations = SessionViolations::default();
    for seed in 0..TRACES {
        let Some(history) = trace(seed) else {
            continue;
        };
        judged += 1;
        for (key, zones) in Zones::of(&history).iter().enumerate() {
            assert_eq!(zones.removed(), removed(zones), "seed {seed}: {history:?}");
            assert_removal_is_right(zones, 0);
            assert_removal_is_right(zones, 2);
            let operations: Vec<&Operation> = history
                .operations
                .iter()
                .filter(|it| it.key as usize == key)
                .collect();
            let expected = is_linearizable(&operations, 0, Value::INITIAL);
            assert_eq!(zones.is_atomic(), expected, "seed {seed}: {history:?}");
            atomic += u32::from(expected);
            for (place, found) in zones.gammas().into_iter().enumerate() {
                let own = i64::from(zones.clusters[place].is_future());
                let expected = gamma(zones, place);
                assert!(
                    if own == 0 {
                        found == expected
                    } else {
                        found >= expected.max(1)
                    },
                    "seed {seed}: cluster {place}: {found} and {expected} in {history:?}"
                );
            }
        }
        let history = match seed % 2 {
            0 => history,
            _ => with_taken_away(history, seed),
        };
        let order = Order(&history);
        let found = session_violations(&history);
        assert_eq!(found, order.sessions(), "seed {seed}: {history:?}");
        let stale = staleness(&history);
        assert_eq!(
            (stale.stale_reads, stale.max_ns),
            order.stale(),
            "seed {seed}: {history:?}"
        );
        stale_reads += stale.stale_reads;
        violations.ryw += found.ryw;
        violations.mr += found.mr;
        violations.mw += found.mw;
        violations.wfr += found.wfr;
    }
    println!("{judged} traces, {atomic} atomic keys, {stale_reads} stale reads, {violations:?}");
    assert!(judged > TRACES / 2 && atomic > 1_000 && stale_reads > 1_000);
    assert!(
        [violations.ryw, violations.mr, violations.mw, violations.wfr]
            .iter()
            .all(|&count| count > 100)
    );
}
