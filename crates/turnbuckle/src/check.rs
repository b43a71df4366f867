//! `turnbuckle check`: what a trace shows.
mod summary;

use crate::failure::{Failure, environment, say, usage};
use clap::Args;
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};
use summary::{plural, summary};
use turnbuckle_check::{
    BadTrace, Finding, History, HistoryBuilder, Orders, Report, Requirement, explain_keys, figures,
    levels::LevelJudge, require,
};
use turnbuckle_core::{Level, Micros};
use turnbuckle_workload::{BadTraceFile, TraceReader};

/// Says what a trace of operations shows, and which promises it breaks.
///
/// The report says whether the store looked like one copy of the data, and how far it was from that; whether it was causally and
/// sequentially consistent; and whether its receipts were true.
///
/// Exit codes: 0 no promise is broken, 1 the trace breaks a level or a receipt that it records, contradicts itself, or breaks the level
/// of --require, 2 the trace is malformed, or the level of --require cannot be judged from it, 3 a file cannot be read or written.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  turnbuckle bench --target 127.0.0.1:7000 --load --for 5s --trace run.jsonl.zst\n  \
                        turnbuckle check run.jsonl.zst\n  \
                        turnbuckle check run.jsonl.zst --require session\n  \
                        turnbuckle check run.jsonl.zst --explain --plots plots\n\n\
                        A trace is JSON lines as bench writes them. If the name ends in .edn, it is a Jepsen history of registers; \
                        if it ends in .csv, a table. A further .zst says that the file is compressed. Each file is judged by itself.\n\n\
                        docs/checking.md explains each line of the report."
)]
pub struct Check {
    /// The traces to judge
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Hold every operation to this level, such as read-your-writes, session, bounded(2s) or linearizable
    #[arg(long, value_name = "LEVEL")]
    require: Option<Level>,
    /// The keyspace was empty when the trace began, so a read of a value that no record wrote is a violation. Without this option, such a
    /// value counts as one from before the trace
    #[arg(long)]
    began_empty: bool,
    /// How far the clock of each recorder may be from true time. What such clocks explain breaks no promise
    #[arg(long, value_name = "SPAN")]
    skew: Option<Micros>,
    /// Print JSON, one object for each trace
    #[arg(long)]
    json: bool,
    /// Say why: for each broken promise show the few operations that prove it, for the 3 worst keys or for this number of keys
    #[arg(
        long,
        value_name = "KEYS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "3",
        conflicts_with = "json"
    )]
    explain: Option<usize>,
    /// Draw SVG plots into this directory: Gamma, staleness, t-visibility, and inconsistent operations over time
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
}

/// How wide explanations are, in characters.
const WIDTH: usize = 100;

pub fn run(options: &Check) -> Result<(), Failure> {
    let (mut broken, mut unknown) = (None, None);
    for (number, trace) in options.traces.iter().enumerate() {
        let (history, lines) = read(trace, options.began_empty)?;
        let skew = options
            .skew
            .map(|skew| i64::try_from(skew.0.saturating_mul(1_000)).unwrap_or(i64::MAX));
        let orders = Orders::of(&history);
        let mut judge = LevelJudge::new(&history, skew);
        orders.teach(&history, &mut judge);
        let skews = skew.map_or(vec![1_000_000, 5_000_000], |skew| vec![skew]);
        let report = Report::judged(&history, &skews, &judge, &orders);
        let required = options
            .require
            .map(|level| (level, require(&history, &judge, level)));
        if options.json {
            let answer = Answer {
                report: &report,
                required: required
                    .as_ref()
                    .map(|(level, found)| Required::of(*level, found, &lines)),
            };
            say(&serde_json::to_string(&answer).map_err(|error| environment(&error))?)?;
        } else {
            say(&summary(
                &trace.display().to_string(),
                &history,
                &report,
                options.require,
            ))?;
        }
        if let Some(keys) = options.explain {
            for explanation in explain_keys(&history, &orders, &report.audit, keys) {
                say(&format!("\n{}", explanation.text(&history, WIDTH)))?;
            }
        }
        if let Some(directory) = &options.plots {
            let several = options.traces.len() > 1;
            write_plots(directory, several.then_some(number + 1), &history, &report)?;
        }
        let required_is_broken = required
            .as_ref()
            .and_then(|(level, found)| why_broken(*level, found, &lines));
        broken = broken
            .or(required_is_broken)
            .or_else(|| first_broken(&history, &report, &lines));
        if let Some((level, Requirement::NotAuditable(why))) = required {
            let trace = trace.display();
            unknown = unknown.or(Some(format!(
                "{trace}: {level} cannot be judged from this trace: {why}"
            )));
        }
    }
    match (broken, unknown) {
        (Some(broken), _) if options.explain.is_none() => Err(Failure::Broken(format!(
            "{broken}\nSEE WHY WITH: turnbuckle check --explain {}",
            names(&options.traces)
        ))),
        (Some(broken), _) => Err(Failure::Broken(broken)),
        (None, Some(unknown)) => Err(Failure::Usage(unknown)),
        (None, None) => Ok(()),
    }
}

/// The names of traces, as arguments of a command.
fn names(traces: &[PathBuf]) -> String {
    let names: Vec<String> = traces.iter().map(|trace| trace.display().to_string()).collect();
    names.join(" ")
}

/// Writes each plot into its own file; if there are several traces, the name begins with the trace's number.
fn write_plots(
    directory: &Path,
    number: Option<usize>,
    history: &History,
    report: &Report,
) -> Result<(), Failure> {
    let failed = |path: &Path, error| environment(&format!("{}: {error}", path.display()));
    fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    for (name, plot) in figures(history, report) {
        let file = match number {
            Some(number) => format!("{number}-{name}.svg"),
            None => format!("{name}.svg"),
        };
        let path = directory.join(file);
        fs::write(&path, plot.svg()).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// The output of `--json`.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    required: Option<Required>,
}

/// The verdict on the level of `--require`.
#[derive(Serialize)]
struct Required {
    level: String,
    /// `kept`, `broken` or `not_auditable`.
    verdict: &'static str,
    /// How many operations break it.
    operations: u64,
    why: Option<&'static str>,
    /// The first that breaks it.
    first: Option<String>,
}

impl Required {
    fn of(level: Level, found: &Requirement, lines: &Lines) -> Required {
        let (verdict, operations, why, first) = match found {
            Requirement::Kept => ("kept", 0, None, None),
            Requirement::Broken { operations, first } => (
                "broken",
                *operations,
                Some(first.why),
                Some(lines.place(first.record)),
            ),
            Requirement::NotAuditable(why) => ("not_auditable", 0, Some(*why), None),
        };
        Required {
            level: level.to_string(),
            verdict,
            operations,
            why,
            first,
        }
    }
}

/// The error about a required level that does not hold: its first violation.
fn why_broken(level: Level, found: &Requirement, lines: &Lines) -> Option<String> {
    let Requirement::Broken { operations, first } = found else {
        return None;
    };
    let place = lines.place(first.record);
    Some(format!(
        "{place}: {level} is required and broken: {} ({} in all)",
        first.why,
        plural(*operations, "operation")
    ))
}

/// The error about the first promise of the trace that does not hold.
fn first_broken(history: &History, report: &Report, lines: &Lines) -> Option<String> {
    let promised = report.audit.broken.first().map(|broken| {
        let place = lines.place(broken.record);
        format!(
            "{place}: {} is promised and broken: {}",
            broken.promise, broken.why
        )
    });
    promised.or_else(|| history.findings.first().map(|finding| found(finding, lines)))
}

fn found(finding: &Finding, lines: &Lines) -> String {
    let both = |one: &u64, other: &u64| format!("{} and {}", lines.place(*one), lines.place(*other));
    match finding {
        Finding::TwoVersions { key, first, second } => {
            format!("{}: one value of {key:?} has two versions", both(first, second))
        }
        Finding::TwoValues { key, first, second } => {
            format!("{}: one version of {key:?} has two values", both(first, second))
        }
        Finding::TornSnapshot { key, record } => {
            format!(
                "{}: the snapshot shows {key:?} twice, and differently",
                lines.place(*record)
            )
        }
        Finding::FailedWriteSeen { key, write, read } => format!(
            "{}: a write to {key:?} was reported as not done, and read",
            both(write, read)
        ),
    }
}

/// The lines of a trace's records.
struct Lines {
    file: String,
    /// The records at which the difference between line and record number changes, and the new difference. Empty if the trace is one object.
    ahead: Vec<(u64, u64)>,
}

impl Lines {
    fn note(&mut self, record: u64, line: u64) {
        let ahead = line - record;
        if self.ahead.last().is_none_or(|&(_, known)| known != ahead) {
            self.ahead.push((record, ahead));
        }
    }

    /// File and line, as editors understand them.
    fn place(&self, record: u64) -> String {
        let run = self.ahead.partition_point(|&(from, _)| from <= record);
        match run.checked_sub(1) {
            Some(run) => format!("{}:{}", self.file, record + self.ahead[run].1),
            None => format!("{}: record {record}", self.file),
        }
    }
}

fn read(trace: &Path, began_empty: bool) -> Result<(History, Lines), Failure> {
    let bad_file = |error: BadTraceFile| match error {
        BadTraceFile::Unreadable { .. } => environment(&error),
        BadTraceFile::BadLine { .. } => usage(&error),
    };
    let bad_trace = |error: BadTrace, lines: &Lines| usage(&error.located(&|record| lines.place(record)));
    let mut builder = match began_empty {
        true => HistoryBuilder::new(),
        false => HistoryBuilder::new().on_existing_data(),
    };
    let mut number = 0;
    let mut lines = Lines {
        file: trace.display().to_string(),
        ahead: Vec::new(),
    };
    let mut reader = TraceReader::open(trace).map_err(bad_file)?;
    while let Some(record) = reader.next() {
        let record = record.map_err(bad_file)?;
        if let Some(line) = reader.line() {
            lines.note(number, line);
        }
        builder.add(&record).map_err(|error| bad_trace(error, &lines))?;
        number += 1;
    }
    let history = builder.finish().map_err(|error| bad_trace(error, &lines))?;
    Ok((history, lines))
}
