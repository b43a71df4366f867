//! The report of a run, as JSON and as text.

use super::{errors::explained, receipts::ReceiptSummary, tally::Numbers};
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde::Serialize;
use std::{collections::BTreeMap, fmt};
use turnbuckle_workload::Summary;

/// `bench --json`: latencies in microseconds, throughput in operations per second.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    operations: u64,
    throughput: f64,
    read: Summary,
    write: Summary,
    errors: BTreeMap<String, u64>,
    retries: BTreeMap<String, u64>,
    receipts: ReceiptSummary,
    /// Traced reads of values that this run did not write.
    reads_from_before: u64,
    #[serde(skip)]
    reads: u64,
    #[serde(skip)]
    writes: u64,
    #[serde(skip)]
    seconds: f64,
}

impl Report {
    /// The report of a run that took this number of seconds.
    pub(crate) fn new(numbers: &Numbers, seconds: f64) -> Report {
        let per_second = |count: u64| {
            if seconds > 0.0 {
                (count as f64 / seconds * 10.0).round() / 10.0
            } else {
                0.0
            }
        };
        Report {
            operations: numbers.operations(),
            throughput: per_second(numbers.operations()),
            read: numbers.reads.summary(),
            write: numbers.writes.summary(),
            errors: numbers.errors.clone(),
            retries: numbers.retries.clone(),
            receipts: numbers.receipts.summary(),
            reads_from_before: numbers.reads_from_before,
            reads: numbers.reads.count(),
            writes: numbers.writes.count(),
            seconds,
        }
    }
}

/// A table, and a line each for errors and receipts.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_header(["", "operations", "mean", "p50", "p95", "p99", "p99.9", "max"]);
        for (name, count, summary) in [
            ("read", self.reads, &self.read),
            ("write", self.writes, &self.write),
        ] {
            let latencies = [
                summary.mean,
                summary.p50,
                summary.p95,
                summary.p99,
                summary.p999,
                summary.max,
            ];
            let mut row = vec![name.to_owned(), grouped(count)];
            row.extend(latencies.map(|us| if count == 0 { "-".into() } else { span(us) }));
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{}", table.trim_fmt())?;
        writeln!(
            f,
            "\n{} operations in {:.1} s: {} per second",
            grouped(self.operations),
            self.seconds,
            grouped(self.throughput.round() as u64)
        )?;
        if !self.errors.is_empty() {
            writeln!(f, "errors: {}", counts(&self.errors))?;
            write!(f, "{}", explained(self.errors.keys().map(String::as_str)))?;
        }
        if !self.retries.is_empty() {
            writeln!(f, "tried again after: {}", counts(&self.retries))?;
        }
        let receipts = &self.receipts;
        if receipts.recorded > 0 {
            write!(
                f,
                "receipts: {} ({})",
                grouped(receipts.recorded),
                counts(&receipts.given)
            )?;
            if receipts.weaker > 0 {
                write!(f, ", {} weaker than asked", grouped(receipts.weaker))?;
            }
            if receipts.bounded > 0 {
                write!(
                    f,
                    "; proven staleness: p50 {}, p99 {}, max {}",
                    span(receipts.staleness.p50),
                    span(receipts.staleness.p99),
                    span(receipts.staleness.max)
                )?;
            }
            writeln!(f)?;
        }
        if self.reads_from_before > 0 {
            writeln!(
                f,
                "\nThe keyspace had data before the trace began: {} of {} reads returned values that this run did not write.\n\
                 `turnbuckle check` calls them values from before the trace, and cannot judge all of them. To have every read\n\
                 judged, add --load, or begin with an empty keyspace.",
                grouped(self.reads_from_before),
                grouped(self.reads),
            )?;
        }
        Ok(())
    }
}

/// Names and their counts, as text.
pub(crate) fn counts(counts: &BTreeMap<String, u64>) -> String {
    let all: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("{name} {}", grouped(*count)))
        .collect();
    all.join(", ")
}

/// Microseconds in the unit that suits them.
pub(crate) fn span(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e5 => format!("{:.2} ms", us / 1e3),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> Numbers {
        let mut numbers = Numbers::default();
        for _ in 0..1_500 {
            numbers.reads.record_ns(120_000);
        }
        numbers.errors.insert("TIMEOUT".into(), 3);
        numbers
    }

    #[test]
    fn the_json_has_the_fields_that_were_promised_and_no_other() {
        let json = serde_json::to_value(Report::new(&numbers(), 2.0)).expect("a report is JSON");
        let names = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().expect("an object").keys().cloned().collect()
        };
        assert_eq!(
            names(&json),
            [
                "errors",
                "operations",
                "read",
                "reads_from_before",
                "receipts",
                "retries",
                "throughput",
                "write"
            ]
        );
        assert_eq!(names(&json["read"]), ["max", "mean", "p50", "p95", "p99", "p999"]);
        assert_eq!(json["operations"], 1_500);
        assert_eq!(json["throughput"], 750.0);
        assert_eq!(json["errors"]["TIMEOUT"], 3);
        assert_eq!(json["write"]["max"], 0.0);
    }

    #[test]
    fn people_get_units_and_no_numbers_about_nothing() {
        let text = Report::new(&numbers(), 2.0).to_string();
        assert!(
            text.contains("1,500 operations in 2.0 s: 750 per second"),
            "{text}"
        );
        assert!(
            text.contains("120 us")
                && text.contains("errors: TIMEOUT 3\n  TIMEOUT      the server had no answer in time; it may have happened\n"),
            "{text}"
        );
        let write = text
            .lines()
            .find(|line| line.contains("write"))
            .expect("a line about writes");
        assert_eq!(write.split_whitespace().skip(2).collect::<Vec<_>>(), ["-"; 6]);
        assert!(
            !text.contains("receipts") && !text.contains("before the trace"),
            "{text}"
        );
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [0.4, 999.0, 1_500.0, 250_000.0, 2e6].map(span),
            ["0 us", "999 us", "1.50 ms", "250 ms", "2.00 s"]
        );
    }
}
