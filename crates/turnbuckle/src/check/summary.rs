//! What `turnbuckle check` says of a trace, for people: a line for each thing that was judged.
use std::{cmp::Reverse, fmt::Write};
use turnbuckle_check::{History, Report, Verdicts};

/// How many of the worst keys are named.
const WORST_KEYS: usize = 3;

/// The whole report of the trace that is called `name`.
pub(super) fn summary(name: &str, history: &History, report: &Report) -> String {
    let ms = |ns: i64| format!("{:.3} ms", ns as f64 / 1e6);
    let mut text = format!(
        "{name}: {} operations on {} keys by {} clients\n",
        report.counted_ops,
        history.keys.len(),
        history.named_clients()
    );
    let mut line = |what: &str, says: String| {
        writeln!(text, "  {what:<20}{says}").expect("writing to a string does not fail");
    };
    let proportion = report.inconsistent_proportion.as_f64();
    let error = report.inconsistent_standard_error;
    line(
        "atomic",
        match report.atomic {
            true if is_all_judged(report) => "yes".into(),
            true => "yes, as far as it can be judged: not all of it can be".into(),
            false => format!(
                "no: without {} operations it would be ({:.3} % ± {:.3}, {} of all)",
                report.removed_ops,
                100.0 * proportion,
                100.0 * error,
                report.inconsistent_proportion
            ),
        },
    );
    if let Some((key, why)) = report.not_auditable_keys.first_key_value() {
        let keys = report.not_auditable_keys.len();
        line(
            "not auditable",
            format!("{keys} keys, which are left out: {key:?}, because {why}"),
        );
    }
    if report.doubtful_reads > 0 {
        let reads = report.doubtful_reads;
        line(
            "left out",
            format!("{reads} reads of nothing that do not say which delete they saw"),
        );
    }
    for (skew, removed) in &report.removed_ops_with_skew_ns {
        let skew = skew.parse().map_or_else(|_| skew.clone(), ms);
        line("", format!("{removed} of them if clocks are off by {skew}"));
    }
    line(
        "Gamma",
        format!("{} (in all; half of it on either side)", ms(report.gamma_max_ns)),
    );
    line(
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
    line(
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
    line("causal", causal(report));
    line("sequential", answer(report.sequentially_consistent).into());
    line("k", k(report));
    let audit = &report.audit;
    for (level, verdicts) in &audit.levels {
        line("promised", format!("{level}: {}", counts(verdicts)));
    }
    if audit.receipts.all() > 0 {
        line("receipts", counts(&audit.receipts));
        for (claim, verdicts) in &audit.claims {
            line("", format!("{claim}: {}", counts(verdicts)));
        }
        if audit
            .claims
            .get("staleness")
            .is_some_and(|claim| claim.broken > 0)
        {
            line(
                "",
                "how stale an answer may be follows from clocks: where one was outside its server's bound, it is false".into(),
            );
        }
    }
    if audit.weaker > 0 {
        line(
            "",
            format!(
                "{} say that they give another level than was asked for",
                audit.weaker
            ),
        );
    }
    let findings = &report.findings;
    if findings.all() > 0 {
        line(
            "contradictions",
            format!(
                "{} of versions and values, {} torn snapshots, {} reads of writes that were not done",
                findings.mixed_versions, findings.torn_snapshots, findings.failed_writes_seen
            ),
        );
    }
    if report.phantom_reads + report.future_reads > 0 {
        line(
            "impossible reads",
            format!(
                "{} of what nobody wrote, {} before their write began",
                report.phantom_reads, report.future_reads
            ),
        );
    }
    if report.reads_from_before > 0 {
        let [first, others @ ..] = &from_before(report);
        line("before the trace", first.clone());
        others.iter().for_each(|says| line("", says.clone()));
    }
    let judged = report.converged_per_key.values().flatten();
    let (together, all) = (judged.clone().filter(|&&agree| agree).count(), judged.count());
    line(
        "converged",
        match all {
            0 => "cannot be said: no key was read by two clients after its last write".into(),
            all => format!("{together} of {all} keys that can be judged"),
        },
    );
    let mut worst: Vec<(&String, i64)> = report
        .gamma_per_key_ns
        .iter()
        .map(|(key, &gamma)| (key, gamma))
        .filter(|&(_, gamma)| gamma > 0)
        .collect();
    worst.sort_by_key(|&(key, gamma)| (Reverse(gamma), key));
    for (key, gamma) in worst.into_iter().take(WORST_KEYS) {
        let removed = report.removed_ops_per_key.get(key).copied().unwrap_or(0);
        line(
            "worst key",
            format!("{key:?}: Gamma {}, {removed} operations", ms(gamma)),
        );
    }
    text.trim_end().to_owned()
}

/// Whether nothing had to be left out, or is judged by what may have been before the trace.
fn is_all_judged(report: &Report) -> bool {
    report.not_auditable_keys.is_empty() && report.doubtful_reads == 0 && report.reads_from_before == 0
}

/// What became of reads of values from before the trace.
fn from_before(report: &Report) -> [String; 5] {
    [
        format!(
            "{} reads returned {} values that no record wrote: they are taken to be from before the trace",
            report.reads_from_before, report.values_from_before
        ),
        "atomic, Gamma, k, causal, sequential: the value may have taken effect at any time until its first read".into(),
        "stale reads, sessions: it is older than a write only if versions or an earlier read of it show that".into(),
        "levels, receipts: not auditable as to level and staleness, unless they are broken all the same".into(),
        "add --began-empty if the keyspace was empty when the trace began: these reads are violations then".into(),
    ]
}

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
        Some(reads) if reads > 0 => format!(" ({reads} reads break it)"),
        _ => String::new(),
    };
    format!("CC {cc}{broken}, CCv {ccv}, CM {cm}")
}

/// How many versions back reads were, at most.
fn k(report: &Report) -> String {
    let bounds = report.k_lower_bound_per_key.iter();
    let known = bounds.filter_map(|(key, bound)| Some((report.k_atomicity_per_key[key], (*bound)?)));
    let known: Vec<(Option<u64>, u64)> = known.collect();
    let is_exact = known.iter().all(|(exact, _)| exact.is_some());
    let max = known.iter().map(|&(exact, bound)| exact.unwrap_or(bound)).max();
    let largest = max.map(|max| match is_exact {
        true => format!("{max}: each read returned one of the last {max} writes to its key"),
        false => {
            format!("{max} or more: how many writes back reads were at most was not found out for all keys")
        }
    });
    let none = report.k_lower_bound_per_key.len() - known.len();
    let none = (none > 0).then(|| format!("none for {none} keys, where impossible reads are"));
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
