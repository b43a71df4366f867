//! The report about a trace, with the names that `turnbuckle check --json` gives it.
use crate::{
    Audit, Causal, Findings, History, Moment, Order, Orders, Part, Quantiles, SessionViolations, Visibility,
    Zones, breakdown, converged, each_session_violation, each_stale_read, k_atomicity, levels::LevelJudge,
    propagation, removed_singly, visibility,
};
use serde::Serialize;
use std::collections::BTreeMap;
use turnbuckle_core::{Level, Promise, PromisedOrder};

/// What a trace showed. Keys and values that are not UTF-8 are shown as well as they can be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Operations that count.
    pub counted_ops: u64,
    /// Reads among them. If there are none, nothing is judged, and the other fields say only that nothing was found.
    pub counted_reads: u64,
    /// Reads of values that no client wrote.
    pub phantom_reads: u64,
    /// Reads that were over before their write began.
    pub future_reads: u64,
    /// Reads of values from before the trace: no record wrote them.
    pub reads_from_before: u64,
    /// How many such values there are.
    pub values_from_before: u64,
    /// Reads of nothing that name no version, of keys of which a delete had begun. The other fields leave them out.
    pub doubtful_reads: u64,
    /// Keys that cannot be judged, and why. They are left out of everything else.
    pub not_auditable_keys: BTreeMap<String, &'static str>,
    /// Whether one copy of the data explains all that was read of the keys that can be judged: whether it was linearizable.
    pub atomic: bool,
    /// The same for each key.
    pub atomic_per_key: BTreeMap<String, bool>,
    /// `removed_ops` of `counted_ops`, in lowest terms.
    pub inconsistent_proportion: Fraction,
    /// The standard error of that proportion: sqrt(p (1 - p) / n).
    pub inconsistent_standard_error: f64,
    /// The least number of operations, whole values at a time, whose removal leaves the trace atomic.
    pub removed_ops: u64,
    /// The same for each key.
    pub removed_ops_per_key: BTreeMap<String, u64>,
    /// The same for single operations instead of whole values; none if a key is too large to try. For information only.
    pub removed_ops_op_level: Option<u64>,
    /// The least total stretch of each operation after which the trace is atomic; half of it at either side.
    pub gamma_max_ns: i64,
    /// The same for each key.
    pub gamma_per_key_ns: BTreeMap<String, i64>,
    /// The same for each value; `null` is the initial one.
    pub gamma_per_value_ns: BTreeMap<String, BTreeMap<String, i64>>,
    /// The least by which reads would have to have begun earlier; none if that does not help.
    pub delta_per_key_ns: BTreeMap<String, Option<i64>>,
    /// `removed_ops` if every clock may be off by this number of nanoseconds, for each number.
    pub removed_ops_with_skew_ns: BTreeMap<String, u64>,
    /// How many reads broke each session guarantee.
    pub session_violations: SessionViolations,
    /// The same for stores that promise them key by key.
    pub session_violations_within_key: WithinKey,
    /// What says which of two writes is the older one: `versions`, `real time`, or `mixed` if that differs between keys.
    pub session_order: &'static str,
    /// Reads that missed a write that was over before they began.
    pub stale_reads: u64,
    /// The longest time for which such a write had been over, in nanoseconds.
    pub max_staleness_ns: i64,
    /// How long it had been over, for the stale reads.
    pub staleness_ns: Option<Quantiles>,
    /// How many reads returned the last write, by the time since it was over.
    pub t_visibility: Vec<Visibility>,
    /// Operations by the time at which they began, and how many of them have to be removed.
    pub over_time: Vec<Moment>,
    /// The same by site.
    pub per_site: BTreeMap<String, Part>,
    /// The same by the level that was given, or asked for if no receipt says what was given.
    pub per_level: BTreeMap<String, Part>,
    /// Receipts and recorded levels.
    pub audit: Audit,
    /// Where records contradict each other.
    pub findings: Findings,
    /// The longest time for which a site missed a write that it showed later ([`propagation`]).
    pub propagation_ns: i64,
    /// Whether the last reads of each key agree; `None` where that cannot be judged.
    pub converged_per_key: BTreeMap<String, Option<bool>>,
    /// The least k such that each read returned one of the last k writes; none if no k does, or if it was not found.
    pub k_atomicity_per_key: BTreeMap<String, Option<u64>>,
    /// The least k is not less; none if no k does.
    pub k_lower_bound_per_key: BTreeMap<String, Option<u64>>,
    /// Whether the trace is causally consistent, in each of three meanings.
    pub causal: Causality,
    /// The weakest of them.
    pub causally_consistent: Option<bool>,
    /// Reads that break it; none if that was not decided.
    pub causal_violations: Option<u64>,
    /// Whether one order explains all that was read, sessions kept, time apart; none if that was not decided.
    pub sequentially_consistent: Option<bool>,
    /// Operations that are not where their receipts place them in the order of all operations.
    pub out_of_order: u64,
}

/// How many reads break the guarantees about other clients' writes within a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct WithinKey {
    /// Monotonic writes.
    pub mw: u64,
    /// Writes follow reads.
    pub wfr: u64,
}

/// The three meanings of causal consistency: see [`Causal`]. None of what was not decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Causality {
    /// Weak causal consistency.
    pub cc: Option<bool>,
    /// Causal convergence.
    pub ccv: Option<bool>,
    /// Causal memory.
    pub cm: Option<bool>,
}

impl Causality {
    fn of(causal: &Causal) -> Causality {
        Causality {
            cc: causal.cc.holds(),
            ccv: causal.ccv.holds(),
            cm: causal.cm.holds(),
        }
    }
}

/// An exact fraction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction {
    /// The number above the line.
    pub numerator: u64,
    /// The number below the line; at least 1.
    pub denominator: u64,
}

impl Fraction {
    /// The fraction in lowest terms. 0 of 0 is 0.
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

    /// The nearest floating-point number.
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
    /// What speaks against a level that all operations were promised: the names of what is broken, and how often. What receipts and single operations
    /// were promised is judged in the [`Audit`].
    pub fn against(&self, level: Level) -> Vec<(&'static str, u64)> {
        let (session, within) = (&self.session_violations, &self.session_violations_within_key);
        // By real time where versions are not known: the last writer is the one with the last stamp, which is another order.
        let known = u64::from(self.session_order == "versions");
        let causal = [
            ("read-your-writes", known * session.ryw),
            ("monotonic-reads", known * session.mr),
            ("monotonic-writes", known * session.mw),
            ("writes-follow-reads", known * session.wfr),
            ("causal", self.causal_violations.unwrap_or(0)),
            ("causal-convergence", u64::from(self.causal.ccv == Some(false))),
        ];
        let sequential = u64::from(self.sequentially_consistent == Some(false));
        let promised = |is_promised: bool| known * u64::from(is_promised);
        let found = match level.promise() {
            Promise::RealValues | Promise::Bounded(_) | Promise::Procedure => Vec::new(),
            Promise::Session { ryw, mr, mw, wfr } => vec![
                ("read-your-writes", promised(ryw) * session.ryw),
                ("monotonic-reads", promised(mr) * session.mr),
                ("monotonic-writes", promised(mw) * within.mw),
                ("writes-follow-reads", promised(wfr) * within.wfr),
            ],
            Promise::OneCopy => [("one-copy", self.removed_ops)]
                .into_iter()
                .chain(causal)
                .collect(),
            Promise::Order(PromisedOrder::Causal) => causal.to_vec(),
            Promise::Order(PromisedOrder::Sequential) => {
                let claimed = [("sequential", sequential), ("out-of-order", self.out_of_order)];
                claimed.into_iter().chain(causal).collect()
            }
            // Single operations are judged: see the audit.
            Promise::Order(PromisedOrder::PerKeySequential | PromisedOrder::PartitionSequential) => {
                Vec::new()
            }
        };
        found.into_iter().filter(|&(_, count)| count > 0).collect()
    }

    /// Whether [`Report::against`] decides the level completely.
    pub fn decides(&self, level: Level) -> bool {
        let is_decided = self.causal.ccv.is_some() && self.causal.cc.is_some();
        !level.promise().is_causal() || is_decided
    }

    /// Judges a trace, also for clocks that may be off by each of `skews` nanoseconds.
    pub fn of(history: &History, skews: &[i64]) -> Report {
        Report::with(history, skews, &Orders::of(history))
    }

    /// The same, where the orders of the trace were looked for already.
    pub fn with(history: &History, skews: &[i64], orders: &Orders) -> Report {
        let mut judge = LevelJudge::new(history, None);
        orders.teach(history, &mut judge);
        Report::judged(history, skews, &judge, orders)
    }

    /// Whether the trace breaks a promise that it records.
    pub fn has_broken_promises(&self) -> bool {
        self.audit.is_broken() || self.findings.all() > 0
    }

    /// The same, with a judge of promises that knows something about clocks and was told about orders.
    pub fn judged(history: &History, skews: &[i64], judge: &LevelJudge<'_>, orders: &Orders) -> Report {
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
        let (audit, verdicts) = Audit::of(history, judge);
        let mut parts = breakdown::Parts::of(history, &verdicts);
        let order = Order::of(history);
        let (mut sessions, mut within_key) = (SessionViolations::default(), WithinKey::default());
        let mut broken = |place, broken: crate::Broken| {
            sessions.add(broken);
            within_key.mw += u64::from(broken.mw_within_key);
            within_key.wfr += u64::from(broken.wfr_within_key);
            parts.each_of(history, place, |part| part.session_violations.add(broken));
        };
        match history.has_one_clock() {
            true => judge
                .broken()
                .iter()
                .for_each(|(&place, &what)| broken(place, what)),
            false => each_session_violation(history, &order, broken),
        }
        let mut stale = Vec::new();
        each_stale_read(history, &order, |place, ns| {
            stale.push(ns);
            parts.each_of(history, place, |part| part.is_stale(ns));
        });
        let (per_site, per_level) = parts.named(history);
        let proportion = Fraction::new(removed, counted);
        let is_read = |operation: &&crate::Operation| operation.kind == crate::Kind::Read;
        let counted_reads = history.operations.iter().filter(is_read).count();
        let is_from_before = |operation: &&crate::Operation| history.reads_from_before(operation);
        let reads_from_before = history.operations.iter().filter(is_from_before).count();
        let propagation = propagation(history);
        let k = k_atomicity(history);
        Report {
            not_auditable_keys: history
                .not_auditable
                .iter()
                .map(|key| (lossy(&key.key), key.reason))
                .collect(),
            doubtful_reads: history.doubtful_reads,
            inconsistent_standard_error: standard_error(proportion, counted),
            session_violations_within_key: within_key,
            session_order: order.name(),
            t_visibility: visibility(history, &order),
            over_time: breakdown::over_time(history, &zones),
            per_site,
            per_level,
            audit,
            findings: Findings::of(history),
            counted_ops: counted,
            counted_reads: counted_reads as u64,
            phantom_reads: zones.iter().map(|zones| zones.phantom_reads).sum(),
            future_reads: zones.iter().map(|zones| zones.future_reads).sum(),
            reads_from_before: reads_from_before as u64,
            values_from_before: (history.operations.len() - history.recorded()) as u64,
            atomic: removed == 0,
            atomic_per_key: by_key(&names, atomic),
            inconsistent_proportion: proportion,
            removed_ops: removed,
            gamma_max_ns: gamma_per_key.iter().copied().max().unwrap_or(0),
            gamma_per_key_ns: by_key(&names, gamma_per_key.into_iter()),
            gamma_per_value_ns: by_key(&names, (0..names.len()).map(per_value)),
            delta_per_key_ns: by_key(&names, zones.iter().map(Zones::delta)),
            removed_ops_with_skew_ns: skews.iter().map(with_skew).collect(),
            removed_ops_per_key: by_key(&names, removed_per_key.into_iter()),
            removed_ops_op_level: removed_singly(history, &zones),
            session_violations: sessions,
            stale_reads: stale.len() as u64,
            max_staleness_ns: stale.iter().copied().max().unwrap_or(0),
            staleness_ns: Quantiles::of(stale),
            propagation_ns: propagation,
            converged_per_key: by_key(&names, converged(history, propagation).into_iter()),
            k_atomicity_per_key: by_key(&names, k.iter().map(|k| k.and_then(|k| k.exact))),
            k_lower_bound_per_key: by_key(&names, k.iter().map(|k| k.map(|k| k.at_least))),
            causal: Causality::of(&orders.causal),
            causally_consistent: orders.causal.cc.holds(),
            causal_violations: orders.causal.violations,
            sequentially_consistent: orders.sequential.holds(),
            out_of_order: judge.out_of_order(),
        }
    }
}

fn standard_error(proportion: Fraction, of: u64) -> f64 {
    let proportion = proportion.as_f64();
    (proportion * (1.0 - proportion) / of.max(1) as f64).sqrt()
}

fn by_key<T>(names: &[String], values: impl Iterator<Item = T>) -> BTreeMap<String, T> {
    names.iter().cloned().zip(values).collect()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
