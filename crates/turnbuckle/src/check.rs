//! `turnbuckle check`: what a trace shows.
use crate::failure::{Failure, environment, say, usage};
use clap::Args;
use std::{
    cmp::Reverse,
    fmt::Write,
    path::{Path, PathBuf},
};
use turnbuckle_check::{BadTrace, History, HistoryBuilder, Report};
use turnbuckle_core::Micros;
use turnbuckle_workload::{BadTraceFile, TraceReader};

/// Says what a trace of operations shows: whether the store looked like one copy of the data, and how far from it.
///
/// Causal and sequential consistency, receipts, deletes and snapshots are not judged yet.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  turnbuckle bench --target 127.0.0.1:7000 --load --for 5s --trace run.jsonl.zst\n  \
                        turnbuckle check run.jsonl.zst\n\n\
                        A trace is JSON lines as bench writes them; a Jepsen history of registers if it ends in .edn; a table with \
                        the same fields if it ends in .csv. With .zst behind that it is packed. Each file is judged by itself."
)]
pub struct Check {
    /// The traces.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// How far each recorder's clock may be from true time; what is left is certain.
    #[arg(long, value_name = "SPAN")]
    skew: Option<Micros>,
    /// Print JSON, one object for each trace.
    #[arg(long)]
    json: bool,
}

/// How many of the worst keys are named.
const WORST_KEYS: usize = 3;

pub fn run(options: &Check) -> Result<(), Failure> {
    for trace in &options.traces {
        let history = read(trace)?;
        let skews: Vec<i64> = match options.skew {
            Some(skew) => vec![i64::try_from(skew.0.saturating_mul(1_000)).unwrap_or(i64::MAX)],
            None => vec![1_000_000, 5_000_000],
        };
        let report = Report::of(&history, &skews);
        if options.json {
            say(&serde_json::to_string(&report).map_err(|error| environment(&error))?)?;
        } else {
            say(&summary(&trace.display().to_string(), &history, &report))?;
        }
    }
    Ok(())
}

fn read(trace: &Path) -> Result<History, Failure> {
    let bad_file = |error: BadTraceFile| match error {
        BadTraceFile::Unreadable { .. } => environment(&error),
        BadTraceFile::BadLine { .. } => usage(&error),
    };
    let bad_trace = |error| usage(&format!("{}: {error}{}", trace.display(), lines(trace, &error)));
    let mut builder = HistoryBuilder::new();
    for record in TraceReader::open(trace).map_err(bad_file)? {
        builder.add(&record.map_err(bad_file)?).map_err(bad_trace)?;
    }
    builder.finish().map_err(bad_trace)
}

/// Where the records to blame are in the file.
fn lines(trace: &Path, error: &BadTrace) -> String {
    let records = match *error {
        BadTrace::WrittenTwice { first, second, .. } | BadTrace::Overlap { first, second, .. } => {
            vec![first, second]
        }
        BadTrace::BadRecord { record, .. } | BadTrace::Unsupported { record, .. } => vec![record],
    };
    let line = |&record: &u64| TraceReader::line_of(trace, record).map(|line| line.to_string());
    let lines: Vec<String> = records.iter().filter_map(line).collect();
    match &lines[..] {
        [] => String::new(),
        [line] => format!(" (line {line})"),
        lines => format!(" (lines {})", lines.join(" and ")),
    }
}

fn summary(name: &str, history: &History, report: &Report) -> String {
    let ms = |ns: i64| format!("{:.3} ms", ns as f64 / 1e6);
    let mut text = format!(
        "{name}: {} operations on {} keys by {} clients\n",
        report.counted_ops,
        history.keys.len(),
        history.clients.len()
    );
    let mut line = |what: &str, says: String| {
        writeln!(text, "  {what:<20}{says}").expect("writing to a string does not fail");
    };
    let proportion = report.inconsistent_proportion.as_f64();
    let error = (proportion * (1.0 - proportion) / (report.counted_ops.max(1)) as f64).sqrt();
    line(
        "atomic",
        match report.atomic {
            true => "yes".into(),
            false => format!(
                "no: without {} operations it would be ({:.3} % ± {:.3})",
                report.removed_ops,
                100.0 * proportion,
                100.0 * error
            ),
        },
    );
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
        format!(
            "{}, by at most {}",
            report.stale_reads,
            ms(report.max_staleness_ns)
        ),
    );
    let sessions = report.session_violations;
    line(
        "sessions",
        format!(
            "violations of read your writes {}, monotonic reads {}, monotonic writes {}, writes follow reads {}",
            sessions.ryw, sessions.mr, sessions.mw, sessions.wfr
        ),
    );
    if report.phantom_reads + report.future_reads > 0 {
        line(
            "impossible reads",
            format!(
                "{} of what nobody wrote, {} before their write began",
                report.phantom_reads, report.future_reads
            ),
        );
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
