//! The report of `turnbuckle check` as text: one line for each property that was judged.
use std::{
    cmp::Reverse,
    fmt::{Display, Write},
};
use turnbuckle_check::{History, Report, Verdicts, levels::normal};
use turnbuckle_core::Level;

/// How many of the worst keys are named.
const WORST_KEYS: usize = 3;

/// The whole report of the trace that is called `name`.
/// `required` is the level that all operations are held to, if there is one.
pub(super) fn summary(name: &str, history: &History, report: &Report, required: Option<Level>) -> String {
    let mut lines = Lines(format!(
        "{name}: {} on {} by {}\n",
        plural(report.counted_ops, "operation"),
        plural(history.keys.len() as u64, "key"),
        plural(history.named_clients() as u64, "client")
    ));
    if history.has_nothing_to_judge() {
        lines.add(
            "nothing was judged",
            "no read of the trace counts, and only reads can show that something is broken",
        );
        lines.left_out(report);
    } else {
        lines.one_copy(report);
        lines.left_out(report);
        lines.other_measures(report);
    }
    lines.promises(report);
    if let Some(level) = required.filter(|level| !report.audit.levels.contains_key(&level.to_string())) {
        lines.add("required", format!("{level}: {}", normal(level)));
    }
    lines.impossible(report);
    if !history.has_nothing_to_judge() {
        lines.ends(report);
    }
    lines.0.trim_end().to_owned()
}

/// The lines so far.
struct Lines(String);

impl Lines {
    /// Adds a line. Without a name, it continues the line before.
    fn add(&mut self, what: &str, says: impl Display) {
        writeln!(self.0, "  {what:<20}{says}").expect("writing to a string does not fail");
    }

    /// How far the trace is from one copy, and with clocks that are off.
    fn one_copy(&mut self, report: &Report) {
        if report.atomic {
            let yes = match is_all_judged(report) {
                true => "yes",
                false => "yes, as far as it can be judged: not all of it can be",
            };
            return self.add("atomic", yes);
        }
        self.add(
            "atomic",
            format!(
                "no: without {} of its {} it would be ({:.3} % ± {:.3} %)",
                report.removed_ops,
                plural(report.counted_ops, "operation"),
                100.0 * report.inconsistent_proportion.as_f64(),
                100.0 * report.inconsistent_standard_error,
            ),
        );
        for (skew, removed) in &report.removed_ops_with_skew_ns {
            let skew = skew.parse().map_or_else(|_| skew.clone(), ms);
            self.add("", format!("{removed} of them if clocks are off by {skew}"));
        }
    }

    /// What is not judged, and why.
    fn left_out(&mut self, report: &Report) {
        if let Some((key, why)) = report.not_auditable_keys.first_key_value() {
            let keys = report.not_auditable_keys.len() as u64;
            let (keys, which) = (plural(keys, "key"), if keys == 1 { "it" } else { "the first" });
            self.add(
                "not auditable",
                format!("{keys} left out; {which} is {key:?}: {why}"),
            );
        }
        if report.doubtful_reads > 0 {
            let reads = plural(report.doubtful_reads, "read");
            self.add(
                "left out",
                format!("{reads} of nothing without the version of the delete that was seen"),
            );
        }
    }

    fn other_measures(&mut self, report: &Report) {
        self.add(
            "Gamma",
            format!("{} (in all; half of it on either side)", ms(report.gamma_max_ns)),
        );
        self.add(
            "stale reads",
            match report.staleness_ns {
                None => "0".into(),
                Some(by) => format!(
                    "{}: half of them by {} or less, 99 % by {}, all by {}",
                    report.stale_reads,
                    ms(by.p50),
                    ms(by.p99),
                    ms(by.max)
                ),
            },
        );
        let sessions = report.session_violations;
        self.add(
            "sessions",
            format!(
                "violations of read your writes {}, monotonic reads {}, monotonic writes {}, writes follow reads {} (by {})",
                sessions.ryw,
                sessions.mr,
                sessions.mw,
                sessions.wfr,
                match report.session_order {
                    "mixed" => "versions; where they are not known, by real time",
                    order => order,
                }
            ),
        );
        let partly = match is_all_judged(report) {
            true => "",
            false => ", of what can be judged",
        };
        self.add("causal", causal(report) + partly);
        let sequential = answer(report.sequentially_consistent);
        let why = report.sequentially_consistent.map_or(UNDECIDED, |_| "");
        self.add("sequential", format!("{sequential}{why}{partly}"));
        self.add("k", k(report));
    }

    /// Levels and receipts, and records that contradict each other.
    fn promises(&mut self, report: &Report) {
        let audit = &report.audit;
        for (level, verdicts) in &audit.levels {
            self.add("promised", format!("{level}: {}", counts(verdicts)));
            if let Ok(known) = level.parse::<Level>() {
                self.add("", format!("{level}: {}", normal(known)));
            }
        }
        if audit.receipts.all() > 0 {
            self.add("receipts", counts(&audit.receipts));
            for (claim, verdicts) in &audit.claims {
                self.add("", format!("{claim}: {}", counts(verdicts)));
            }
            if audit
                .claims
                .get("staleness")
                .is_some_and(|claim| claim.broken > 0)
            {
                self.add(
                    "",
                    "claims of staleness rest on clocks: if a clock was outside its server's bound, the claims are false",
                );
            }
        }
        if audit.weaker > 0 {
            let receipts = plural(audit.weaker, "receipt");
            self.add(
                "",
                format!("{receipts} with another level given than was asked for"),
            );
        }
        let findings = &report.findings;
        if findings.all() > 0 {
            self.add(
                "contradictions",
                format!(
                    "{} of versions and values, {} torn snapshots, {} reads of writes that were not done",
                    findings.mixed_versions, findings.torn_snapshots, findings.failed_writes_seen
                ),
            );
        }
    }

    /// Reads of values that no record wrote, or wrote only later.
    fn impossible(&mut self, report: &Report) {
        if report.phantom_reads + report.future_reads > 0 {
            self.add(
                "impossible reads",
                format!(
                    "{} of values that no client wrote, {} before their write began",
                    report.phantom_reads, report.future_reads
                ),
            );
        }
        if report.reads_from_before > 0 {
            let [first, others @ ..] = from_before(report);
            self.add("before the trace", first);
            others.iter().for_each(|says| self.add("", says));
        }
    }

    /// Whether sites agreed in the end, and the worst keys.
    fn ends(&mut self, report: &Report) {
        let judged = report.converged_per_key.values().flatten();
        let (together, all) = (judged.clone().filter(|&&agree| agree).count(), judged.count());
        self.add(
            "converged",
            match all {
                0 => "cannot be said: no key was read by two clients long enough after its last write".into(),
                all => format!(
                    "{together} of the {} that can be judged",
                    plural(all as u64, "key")
                ),
            },
        );
        if report.propagation_ns > 0 {
            self.add(
                "",
                format!(
                    "last reads that differ count only from {} after the last write: twice the longest observed propagation",
                    ms(report.propagation_ns.saturating_mul(2))
                ),
            );
        }
        let gammas = report.gamma_per_key_ns.iter();
        let mut worst: Vec<(&String, i64)> = gammas
            .map(|(key, &gamma)| (key, gamma))
            .filter(|&(_, gamma)| gamma > 0)
            .collect();
        worst.sort_by_key(|&(key, gamma)| (Reverse(gamma), key));
        for (key, gamma) in worst.into_iter().take(WORST_KEYS) {
            let removed = report.removed_ops_per_key.get(key).copied().unwrap_or(0);
            self.add(
                "worst key",
                format!("{key:?}: Gamma {}, {}", ms(gamma), plural(removed, "operation")),
            );
        }
    }
}

/// `1 key`, `2 keys`.
pub(super) fn plural(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

fn ms(ns: i64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

/// Whether no operation was left out, and no read returned a value from before the trace.
fn is_all_judged(report: &Report) -> bool {
    report.not_auditable_keys.is_empty() && report.doubtful_reads == 0 && report.reads_from_before == 0
}

/// How reads of values from before the trace were judged.
fn from_before(report: &Report) -> [String; 5] {
    [
        format!(
            "{} returned {} that no record wrote: taken to be from before the trace",
            plural(report.reads_from_before, "read"),
            plural(report.values_from_before, "value")
        ),
        "atomic, Gamma, k, causal, sequential: the value may have taken effect at any time until its first read".into(),
        "stale reads, sessions: the value counts as older than a write only if versions, or an earlier read of it, show that".into(),
        "levels, receipts: level and staleness are not auditable, unless they are broken whenever the value was written".into(),
        "add --began-empty if the keyspace was empty when the trace began: these reads are violations then".into(),
    ]
}

/// Why something was not decided.
const UNDECIDED: &str = " (that would take too long, or too much memory)";

fn answer(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not decided",
    }
}

fn causal(report: &Report) -> String {
    let causal = &report.causal;
    let (cc, ccv, cm) = (answer(causal.cc), answer(causal.ccv), answer(causal.cm));
    let broken = match report.causal_violations {
        Some(1) => " (1 read breaks it)".into(),
        Some(reads) if reads > 0 => format!(" ({reads} reads break it)"),
        _ => String::new(),
    };
    let is_decided = [causal.cc, causal.ccv, causal.cm].iter().all(Option::is_some);
    let why = if is_decided { "" } else { UNDECIDED };
    format!("CC {cc}{broken}, CCv {ccv}, CM {cm}{why}")
}

/// How many versions back reads were, at most.
fn k(report: &Report) -> String {
    let bounds = report.k_lower_bound_per_key.iter();
    let known = bounds.filter_map(|(key, bound)| Some((report.k_atomicity_per_key[key], (*bound)?)));
    let known: Vec<(Option<u64>, u64)> = known.collect();
    let is_exact = known.iter().all(|(exact, _)| exact.is_some());
    let max = known.iter().map(|&(exact, bound)| exact.unwrap_or(bound)).max();
    let largest = max.map(|max| match is_exact {
        true if max == 1 => "1: each read returned the last write to its key".into(),
        true => format!("{max}: each read returned one of the last {max} writes to its key"),
        false => {
            format!("{max} or more: for some keys it was not decided how many writes back reads were at most")
        }
    });
    let none = report.k_lower_bound_per_key.len() - known.len();
    let none = (none > 0).then(|| format!("none for {} with impossible reads", plural(none as u64, "key")));
    let parts: Vec<String> = largest.into_iter().chain(none).collect();
    match parts.is_empty() {
        true => "none: there are no operations".into(),
        false => parts.join("; "),
    }
}

fn counts(verdicts: &Verdicts) -> String {
    format!(
        "{} false, {} not contradicted, {} not auditable",
        verdicts.broken, verdicts.not_contradicted, verdicts.not_auditable
    )
}
