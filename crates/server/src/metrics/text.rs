use super::{BOUNDS_US, Snapshot};
use std::{collections::HashSet, fmt::Write};

/// A text in the format of Prometheus, version 0.0.4, while it is being written: one family of samples after the other.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    families: HashSet<String>,
}

/// The kind of numbers in a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// They only rise, until the process ends. The name ends in `_total`.
    Counter,
    /// They rise and fall.
    Gauge,
    /// They count things by size.
    Histogram,
}

impl Exposition {
    /// The media type of the text.
    pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// An empty text.
    pub fn new() -> Exposition {
        Exposition::default()
    }

    /// Begins a family. All samples of a name must be written together.
    ///
    /// # Panics
    /// If the name is not valid, if it was begun before, if a counter does not end in `_total`, or if another kind does.
    pub fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &str) -> Family<'a> {
        assert!(is_name(name, true), "{name:?} is no metric name");
        assert_eq!(
            kind == Kind::Counter,
            name.ends_with("_total"),
            "{name}: counters end in _total, others do not"
        );
        assert!(
            self.families.insert(name.to_string()),
            "the family {name} is written twice"
        );
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.text.push_str("# HELP ");
        self.text.push_str(name);
        self.text.push(' ');
        escape(&mut self.text, help, false);
        self.text.push_str("\n# TYPE ");
        self.text.push_str(name);
        self.text.push(' ');
        self.text.push_str(kind);
        self.text.push('\n');
        Family {
            text: &mut self.text,
            name,
        }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }
}

/// A family of samples that differ in their labels.
#[derive(Debug)]
pub struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl Family<'_> {
    /// Writes one number, with the labels that distinguish it from other samples of the family.
    ///
    /// # Panics
    /// If a label's name is not valid.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        self.line("", labels, None, value);
        self
    }

    /// The cumulative buckets, sum and count of a histogram of durations.
    pub(super) fn histogram(&mut self, labels: &[(&str, &str)], snapshot: &Snapshot) {
        let mut count = 0;
        for (place, bucket) in snapshot.buckets.iter().enumerate() {
            count += bucket;
            let bound = BOUNDS_US.get(place).map_or(f64::INFINITY, |&us| seconds(us));
            self.line("_bucket", labels, Some(bound), count as f64);
        }
        self.line("_sum", labels, None, seconds(snapshot.sum_us));
        self.line("_count", labels, None, count as f64);
    }

    /// The same, from buckets that are cumulative already, with bounds in seconds.
    pub(super) fn cumulative(
        &mut self,
        labels: &[(&str, &str)],
        buckets: &[(f64, u64)],
        sum: f64,
        count: u64,
    ) {
        for &(bound, count) in buckets.iter().chain([&(f64::INFINITY, count)]) {
            self.line("_bucket", labels, Some(bound), count as f64);
        }
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count as f64);
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], bound: Option<f64>, value: f64) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        let mut separator = '{';
        for (name, value) in labels {
            assert!(is_name(name, false), "{name:?} is no label name");
            self.text.push(separator);
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(self.text, value, true);
            self.text.push('"');
            separator = ',';
        }
        if let Some(bound) = bound {
            self.text.push(separator);
            self.text.push_str("le=\"");
            number(self.text, bound);
            self.text.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        self.text.push(' ');
        number(self.text, value);
        self.text.push('\n');
    }
}

/// Microseconds as seconds, the base unit.
pub(super) fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Whether the name is made of letters, digits and `_`, and does not begin with a digit. Names of metrics may also have `:`.
fn is_name(name: &str, metric: bool) -> bool {
    let of_name = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || metric && c == b':';
    name.bytes().all(of_name) && !name.is_empty() && !name.as_bytes()[0].is_ascii_digit()
}

fn escape(text: &mut String, value: &str, quotes: bool) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes => text.push_str("\\\""),
            c => text.push(c),
        }
    }
}

fn number(text: &mut String, value: f64) {
    match value {
        f64::INFINITY => text.push_str("+Inf"),
        f64::NEG_INFINITY => text.push_str("-Inf"),
        value => write!(text, "{value}").expect("writing to a string does not fail"),
    }
}
