//! A protocol's own metrics, as it declares them ([`turnbuckle_core::Metric`]). Nothing here knows the name of one.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use turnbuckle_core::{Flow, Measured, Reading, ReplicaId};

/// The readings of one metric of a protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MetricStatus {
    /// What the metric is, for `/metrics`.
    #[serde(skip)]
    pub help: String,
    /// The values that were read.
    pub values: MetricValues,
}

/// The values of a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MetricValues {
    /// One value for the node.
    One(MetricValue),
    /// One value for each other site that something comes from.
    BySite(BTreeMap<String, MetricValue>),
    /// One value for each other site that something goes to. It reads like the other kind where it is read again.
    ToSite(BTreeMap<String, MetricValue>),
}

/// A value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MetricValue {
    /// A count or an amount.
    Count(u64),
    /// A time, in seconds.
    Seconds(f64),
    /// How long many things took, as a histogram.
    Durations {
        /// How many durations there were.
        count: u64,
        /// The sum of the durations, in seconds.
        sum: f64,
        /// For each bound in seconds, how many durations were at most that long.
        buckets: Vec<(f64, u64)>,
    },
}

impl MetricStatus {
    /// The values that were read, by the sites' names. `None` if nothing is known.
    pub(crate) fn new(measured: &Measured, site_of: impl Fn(ReplicaId) -> String) -> Option<MetricStatus> {
        let readings = measured.readings.iter();
        let by_site: BTreeMap<String, MetricValue> = readings
            .filter_map(|(peer, reading)| Some((site_of((*peer)?), value(reading)?)))
            .collect();
        let values = match measured.readings.get(&None) {
            Some(reading) => MetricValues::One(value(reading)?),
            None if by_site.is_empty() => return None,
            None if measured.flow == Flow::To => MetricValues::ToSite(by_site),
            None => MetricValues::BySite(by_site),
        };
        let help = measured.help.to_string();
        Some(MetricStatus { help, values })
    }

    /// Each value, with the other site, if any.
    pub(crate) fn values(&self) -> Vec<(Option<&str>, &MetricValue)> {
        match &self.values {
            MetricValues::One(value) => vec![(None, value)],
            MetricValues::BySite(values) | MetricValues::ToSite(values) => {
                let values = values.iter();
                values.map(|(site, value)| (Some(site.as_str()), value)).collect()
            }
        }
    }
}

fn value(reading: &Reading) -> Option<MetricValue> {
    let seconds = |us: u64| us as f64 / 1e6;
    Some(match reading {
        Reading::Count(count) | Reading::Highest(count) => MetricValue::Count(*count),
        Reading::Lag(lag) => MetricValue::Seconds(seconds((*lag)?.0)),
        Reading::Spans(spans) => MetricValue::Durations {
            count: spans.count(),
            sum: seconds(spans.sum().0),
            buckets: spans
                .cumulative()
                .map(|(ms, count)| (ms as f64 / 1e3, count))
                .collect(),
        },
    })
}

impl MetricValue {
    /// As `INFO` shows it under a metric's name.
    pub(crate) fn fields(&self, name: &str) -> String {
        match self {
            MetricValue::Count(count) => format!("{name}={count}"),
            MetricValue::Seconds(seconds) => format!("{name}={seconds:.3}"),
            MetricValue::Durations { count, sum, .. } => format!("{name}_count={count},{name}_sum={sum:.3}"),
        }
    }
}
