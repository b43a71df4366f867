//! Everything that is said about a trace, under the names that `turnbuckle check --json` gives it.
use crate::{History, Zones, converged, session_violations, staleness};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a trace showed. Keys and values that are not UTF-8 are shown as well as they can be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Operations that count.
    pub counted_ops: u64,
    /// Reads of what nobody wrote.
    pub phantom_reads: u64,
    /// Reads that were over before their write began.
    pub future_reads: u64,
    /// Whether one copy of the data explains all that was read: whether it was linearizable.
    pub atomic: bool,
    /// The same for each key.
    pub atomic_per_key: BTreeMap<String, bool>,
    /// `removed_ops` of `counted_ops`, in lowest terms.
    pub inconsistent_proportion: Fraction,
    /// The least number of operations, whole values at a time, whose removal leaves the trace atomic.
    pub removed_ops: u64,
    /// The same for each key.
    pub removed_ops_per_key: BTreeMap<String, u64>,
    /// The least total stretch of each operation after which the trace is atomic; half of it at either side.
    pub gamma_max_ns: i64,
    /// The same for each key.
    pub gamma_per_key_ns: BTreeMap<String, i64>,
    /// The same for each value; `null` is the initial one.
    pub gamma_per_value_ns: BTreeMap<String, BTreeMap<String, i64>>,
    /// The least by which reads would have to have begun earlier; none if that does not help.
    pub delta_per_key_ns: BTreeMap<String, Option<i64>>,
    /// `removed_ops` if every clock may be off by so many nanoseconds.
    pub removed_ops_with_skew_ns: BTreeMap<String, u64>,
    /// How many reads broke each session guarantee.
    pub session_violations: crate::SessionViolations,
    /// Reads that missed a write that was over before they began.
    pub stale_reads: u64,
    /// For how long, at most, it had been over.
    pub max_staleness_ns: i64,
    /// Whether the last reads agree; none where that cannot be said.
    pub converged_per_key: BTreeMap<String, Option<bool>>,
}

/// An exact fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction {
    /// Above.
    pub numerator: u64,
    /// Below; at least 1.
    pub denominator: u64,
}

impl Fraction {
    /// In lowest terms; nothing of nothing is nothing.
    pub fn new(numerator: u64, denominator: u64) -> Fraction {
        let (mut common, mut rest) = (numerator, denominator);
        while rest > 0 {
            (common, rest) = (rest, common % rest);
        }
        match numerator {
            0 => Fraction {
                numerator: 0,
                denominator: 1,
            },
            _ => Fraction {
                numerator: numerator / common,
                denominator: denominator / common,
            },
        }
    }

    /// As well as a float can say it.
    pub fn as_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

impl Default for Fraction {
    fn default() -> Fraction {
        Fraction::new(0, 1)
    }
}

impl std::fmt::Display for Fraction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.denominator {
            1 => write!(f, "{}", self.numerator),
            denominator => write!(f, "{}/{denominator}", self.numerator),
        }
    }
}

impl Serialize for Fraction {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Report {
    /// Judges a trace, also for clocks that may be off by each of `skews` nanoseconds.
    pub fn of(history: &History, skews: &[i64]) -> Report {
        let zones = Zones::of(history);
        let names: Vec<String> = history.keys.iter().map(|key| lossy(&key.name)).collect();
        let removed_per_key: Vec<u64> = zones.iter().map(Zones::removed).collect();
        let removed = removed_per_key.iter().sum();
        let gammas: Vec<Vec<i64>> = zones.iter().map(Zones::gammas).collect();
        let gamma_per_key: Vec<i64> = gammas
            .iter()
            .map(|gammas| gammas.iter().copied().max().unwrap_or(0))
            .collect();
        let counted = zones.iter().map(Zones::operations).sum();
        let atomic = removed_per_key.iter().map(|&removed| removed == 0);
        let per_value = |key: usize| {
            let clusters = zones[key].clusters.iter().zip(&gammas[key]);
            clusters
                .filter(|(cluster, _)| cluster.weight > 0)
                .map(|(cluster, &gamma)| {
                    let value = &history.keys[key].values[cluster.value.index()];
                    (value.as_ref().map_or("null".into(), |value| lossy(value)), gamma)
                })
                .collect()
        };
        let with_skew = |&skew: &i64| {
            let removed = zones.iter().map(|zones| zones.removed_with_skew(skew)).sum();
            (skew.to_string(), removed)
        };
        let stale = staleness(history);
        Report {
            counted_ops: counted,
            phantom_reads: zones.iter().map(|zones| zones.phantom_reads).sum(),
            future_reads: zones.iter().map(|zones| zones.future_reads).sum(),
            atomic: removed == 0,
            atomic_per_key: by_key(&names, atomic),
            inconsistent_proportion: Fraction::new(removed, counted),
            removed_ops: removed,
            gamma_max_ns: gamma_per_key.iter().copied().max().unwrap_or(0),
            gamma_per_key_ns: by_key(&names, gamma_per_key.into_iter()),
            gamma_per_value_ns: by_key(&names, (0..names.len()).map(per_value)),
            delta_per_key_ns: by_key(&names, zones.iter().map(Zones::delta)),
            removed_ops_with_skew_ns: skews.iter().map(with_skew).collect(),
            removed_ops_per_key: by_key(&names, removed_per_key.into_iter()),
            session_violations: session_violations(history),
            stale_reads: stale.stale_reads,
            max_staleness_ns: stale.max_ns,
            converged_per_key: by_key(&names, converged(history).into_iter()),
        }
    }
}

fn by_key<T>(names: &[String], values: impl Iterator<Item = T>) -> BTreeMap<String, T> {
    names.iter().cloned().zip(values).collect()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
