//! What the command line asks for.

use super::{errors, target::Address};
use crate::failure::{Failure, usage};
use clap::{Args, ValueEnum};
use std::{
    fs::File,
    io::Read,
    num::NonZeroU64,
    path::{Path, PathBuf},
    time::Duration,
};
use turnbuckle_core::Wanted;
use turnbuckle_workload::{Arrival, BadName, ClientId, Distribution, Rate, Spacing, ValueSize, Workload};

const EXAMPLES: &str = "\
Examples:
  turnbuckle bench --target 127.0.0.1:7001 --load --workload b --for 10s
  turnbuckle bench --target 127.0.0.1:7001,127.0.0.1:7002 --keyspace eventual --read eventual \\
      --load --rate 2000 --trace run.jsonl.zst";

const EXIT_CODES: &str = "Exit codes: 0 fine, 2 usage, 3 environment (no server, no file, a server that went away and did not come back).";

/// Measures a server that speaks RESP, Turnbuckle or another, with a YCSB workload.
#[derive(Debug, Clone, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}\n\n{EXIT_CODES}", errors::help()))]
pub(crate) struct Arguments {
    /// The servers; clients are spread over them in turn
    #[arg(long, required = true, value_delimiter = ',', value_name = "HOST:PORT,..")]
    pub(crate) target: Vec<Address>,
    /// YCSB's core workload a, b, c, d or f, or a TOML file with its properties
    #[arg(long, default_value = "a", value_name = "a|b|c|d|f|FILE")]
    pub(crate) workload: String,
    /// The keyspace to SELECT
    #[arg(long, value_name = "NAME")]
    pub(crate) keyspace: Option<String>,
    /// The servers speak TLS: the file with the certificate of the authority that has signed theirs
    #[arg(long, value_name = "FILE")]
    pub(crate) authority_file: Option<PathBuf>,
    /// The level of reads, such as causal or bounded(2s), or several as in "bounded(100ms) or causal"
    #[arg(long, value_name = "LEVEL")]
    pub(crate) read: Option<Wanted>,
    /// The level of writes
    #[arg(long, value_name = "LEVEL")]
    pub(crate) write: Option<Wanted>,
    /// How many clients, each with its own connection [default: the workload's, else 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(ClientId::MAX)))]
    pub(crate) clients: Option<u16>,
    /// Open loop: operations per second of all clients together, answered or not; latency counts from the intended
    /// start. Without it each client waits for its answer (closed loop)
    #[arg(long, value_name = "OPS", value_parser = parse_rate)]
    pub(crate) rate: Option<Rate>,
    /// How long the run takes, such as 30s or 500ms [default: the workload's, else 30s]
    #[arg(long = "for", value_name = "SPAN", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// How many keys there are [default: the workload's, else 1000]
    #[arg(long, value_name = "N")]
    pub(crate) keys: Option<NonZeroU64>,
    /// How long values are, in bytes [default: the workload's, else 128]
    #[arg(long, value_name = "BYTES", value_parser = parse_value_size)]
    pub(crate) value_size: Option<ValueSize>,
    /// How many operations a client may have under way at once; each is a session of its own in a trace
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) pipeline: u16,
    /// Write every operation to this file, as JSON lines; compressed if the name ends in .zst. Together with --load, unless the
    /// keyspace is empty
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// First write every key once; with --trace, go on when every target shows all of them
    #[arg(long)]
    pub(crate) load: bool,
    /// The seed of all random choices [default: another one each time]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Whether a client stays with its server, or takes its session to another one now and then
    #[arg(long, default_value = "sticky", value_name = "KIND")]
    pub(crate) session: SessionKind,
    /// Try an operation again that ended in TIMEOUT, UNAVAILABLE or without an answer, until this long after its first try; if the connection
    /// is lost, at the next target. Latency counts from the first try, and each try is an operation of its own in a trace
    /// [default: no second try]
    #[arg(long, value_name = "SPAN", value_parser = parse_duration)]
    pub(crate) retry: Option<Duration>,
    /// Print one JSON object with latencies in microseconds
    #[arg(long)]
    pub(crate) json: bool,
    /// Which keys are popular: uniform, zipfian or latest [default: the workload's]
    #[arg(long, value_name = "KIND")]
    pub(crate) distribution: Option<Distribution>,
    /// How long an answer may take before the connection is given up; also how long a target may show no further key of what is loaded
    #[arg(long, default_value = "10s", value_name = "SPAN", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
}

/// Where a client's session lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SessionKind {
    /// On one server.
    Sticky,
    /// On one server after the other, carried by its token.
    Roam,
}

impl Arguments {
    /// The largest workload file, in bytes.
    const MAX_FILE_BYTES: u64 = 1 << 20;

    /// The workload, with what the command line changes about it.
    pub(crate) fn resolve_workload(&self) -> Result<Workload, Failure> {
        let mut workload = self.read_workload()?;
        workload.records = self.keys.unwrap_or(workload.records);
        workload.value_size = self.value_size.unwrap_or(workload.value_size);
        workload.distribution = self.distribution.unwrap_or(workload.distribution);
        if let Some(rate) = self.rate {
            let spacing = match workload.arrival {
                Arrival::Open { spacing, .. } => spacing,
                Arrival::Closed { .. } => Spacing::Fixed,
            };
            workload.arrival = Arrival::Open { rate, spacing };
        }
        if self.session == SessionKind::Roam && self.target.len() < 2 {
            let message = "--session roam: one target; expected two or more to roam between";
            return Err(Failure::Usage(message.into()));
        }
        Ok(workload)
    }

    fn read_workload(&self) -> Result<Workload, Failure> {
        let name = &self.workload;
        let unknown = match Workload::core(name) {
            Ok(workload) => return Ok(workload),
            Err(BadName::Scans) => {
                return Err(Failure::Usage(format!("--workload: {}", BadName::Scans)));
            }
            Err(unknown) => unknown,
        };
        let mut text = String::new();
        let read = File::open(name)
            .and_then(|file| file.take(Arguments::MAX_FILE_BYTES + 1).read_to_string(&mut text));
        match read {
            Ok(_) if text.len() as u64 > Arguments::MAX_FILE_BYTES => Err(Failure::Usage(format!(
                "{name}: longer than 1 MiB; expected a workload in TOML"
            ))),
            Ok(_) => Workload::parse(Path::new(name), &text).map_err(|wrong| usage(&wrong)),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Err(Failure::Usage(format!(
                "{name}: not UTF-8; expected a workload in TOML"
            ))),
            Err(_) if name.len() == 1 => Err(Failure::Usage(format!("--workload: {unknown}, or a file"))),
            Err(error) => {
                let message =
                    format!("--workload: cannot read {name}: {error}; expected a, b, c, d, f or a file");
                Err(Failure::Environment(message))
            }
        }
    }
}

fn parse_rate(text: &str) -> Result<Rate, String> {
    let rate = text
        .parse()
        .map_err(|_| "expected operations per second, such as 2000".to_owned())?;
    Rate::new(rate).map_err(|bad| bad.to_string())
}

fn parse_value_size(text: &str) -> Result<ValueSize, String> {
    let bytes = text
        .parse()
        .map_err(|_| "expected a number of bytes, such as 128".to_owned())?;
    ValueSize::new(bytes).map_err(|bad| bad.to_string())
}

/// A whole or decimal number and a unit; more than nothing, and at most a year.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let expected = || {
        "expected a time with a unit, more than nothing and at most a year, such as 30s, 500ms, 5m or 1h"
            .to_owned()
    };
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or_else(expected)?;
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(expected()),
    } * number.parse::<f64>().map_err(|_| expected())?;
    if !(1e-6..=366.0 * 86_400.0).contains(&seconds) {
        return Err(expected());
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, String> {
        let words = ["bench"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words)
            .map(|line| line.arguments)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_changes_the_workload() {
        let line = "--target a:1,b:2 --workload b --keys 7 --value-size 64 --distribution uniform --rate 10 \
                    --for 1.5s --read bounded(2s) --session roam";
        let arguments = parse(line).expect("a good line");
        let workload = arguments.resolve_workload().expect("a good workload");
        assert_eq!(arguments.target.len(), 2);
        assert_eq!(arguments.duration, Some(Duration::from_millis(1_500)));
        assert_eq!(
            arguments.read.map(|level| level.to_string()).as_deref(),
            Some("bounded(2s)")
        );
        assert_eq!((workload.records.get(), workload.value_size.bytes()), (7, 64));
        assert_eq!(workload.distribution, Distribution::Uniform);
        assert!(matches!(workload.arrival, Arrival::Open { rate, .. } if rate.per_second() == 10.0));
    }

    #[test]
    fn a_wrong_line_says_what_was_expected() {
        for (line, expected) in [
            ("", "--target"),
            ("--target localhost", "expected HOST:PORT"),
            ("--target a:1 --read strong", "is no consistency level; expected"),
            ("--target a:1 --clients 0", "1..=10000"),
            ("--target a:1 --pipeline 0", "1..=1024"),
            (
                "--target a:1 --rate 0",
                "expected operations per second, more than 0",
            ),
            ("--target a:1 --rate fast", "expected operations per second"),
            ("--target a:1 --for 30", "such as 30s"),
            ("--target a:1 --for 0s", "more than nothing"),
            ("--target a:1 --value-size 5", "expected 24 to"),
            ("--target a:1 --keys 0", "--keys"),
            (
                "--target a:1 --distribution hot",
                "expected uniform, zipfian or latest",
            ),
            ("--target a:1 --session fly", "[possible values: sticky, roam]"),
            ("--target a:1 --sede 5", "--sede"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn a_workload_that_cannot_be_is_usage_and_a_file_that_is_not_there_is_environment() {
        let resolve = |line: &str| parse(line).expect(line).resolve_workload().expect_err(line);
        let usage = |line: &str, expected: &str| match resolve(line) {
            Failure::Usage(message) => assert!(message.contains(expected), "{message}"),
            other => panic!("{line}: {other:?}"),
        };
        usage("--target a:1 --workload e", "scans");
        usage("--target a:1 --workload z", "expected a, b, c, d or f, or a file");
        usage("--target a:1 --session roam", "expected two or more");
        assert!(matches!(
            resolve("--target a:1 --workload no/such.toml"),
            Failure::Environment(message) if message.contains("no/such.toml")
        ));
    }

    #[test]
    fn a_bad_workload_file_is_named_with_the_line() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("w.toml");
        std::fs::write(&path, "read_proportion = 1\nreed = 2\n").expect("a small file");
        let line = format!("--target a:1 --workload {}", path.display());
        let failure = parse(&line)
            .expect("a good line")
            .resolve_workload()
            .expect_err("a bad file");
        let Failure::Usage(message) = failure else {
            panic!("{failure:?}");
        };
        assert!(
            message.contains("w.toml:2: reed: found unknown field `reed`"),
            "{message}"
        );
    }
}
