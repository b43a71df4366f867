use hdrhistogram::Histogram;
use serde::Serialize;

/// A histogram of latencies with three significant digits. It takes about 250 KiB, however many latencies it has.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

/// Latencies in a few numbers, all in microseconds. All are 0 if nothing was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Summary {
    /// The arithmetic mean.
    pub mean: f64,
    /// Half of the latencies were at most this.
    pub p50: f64,
    /// 95 of 100 latencies were at most this.
    pub p95: f64,
    /// 99 of 100 latencies were at most this.
    pub p99: f64,
    /// 999 of 1,000 latencies were at most this.
    pub p999: f64,
    /// The longest latency.
    pub max: f64,
}

impl Latencies {
    /// The longest latency that is recorded as it is: an hour. Longer ones count as one hour.
    pub const MAX_NS: u64 = 3_600_000_000_000;

    /// An empty histogram.
    pub fn new() -> Latencies {
        Latencies(
            Histogram::new_with_bounds(1, Latencies::MAX_NS, 3)
                .expect("constant bounds and digits are valid"),
        )
    }

    /// Records one more latency, in nanoseconds.
    pub fn record_ns(&mut self, latency_ns: u64) {
        self.0.saturating_record(latency_ns);
    }

    /// Adds the latencies of another recorder.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("two recorders have the same bounds");
    }

    /// The number of latencies.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The smallest latency, in microseconds, that this share of all latencies does not exceed; at most 0.1 % above it.
    /// `None` if nothing was recorded.
    pub fn quantile_us(&self, share: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| micros(self.0.value_at_quantile(share) as f64))
    }

    /// The latencies in a few numbers. Each number is at most 0.1 % above the true one.
    pub fn summary(&self) -> Summary {
        if self.0.is_empty() {
            return Summary::default();
        }
        let quantile = |quantile| micros(self.0.value_at_quantile(quantile) as f64);
        Summary {
            mean: micros(self.0.mean()),
            p50: quantile(0.5),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: micros(self.0.max() as f64),
        }
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

/// Nanoseconds as microseconds with three decimals: more do not exist.
fn micros(ns: f64) -> f64 {
    ns.round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    /// Typical latencies: most are short, some very long.
    fn sample(count: usize, seed: u64) -> Vec<u64> {
        let mut random = Random::new(seed, 0);
        (0..count)
            .map(|_| (20_000.0 / (1.0 - random.unit()).powf(1.3)) as u64)
            .collect()
    }

    fn record(latencies: &[u64]) -> Latencies {
        let mut recorder = Latencies::new();
        for &latency in latencies {
            recorder.record_ns(latency);
        }
        recorder
    }

    #[test]
    fn the_summary_is_that_of_the_sorted_latencies() {
        for count in [1, 2, 10, 999, 100_000] {
            let mut sorted = sample(count, 4);
            let recorder = record(&sorted);
            let summary = recorder.summary();
            assert_eq!(recorder.quantile_us(0.95), Some(summary.p95));
            sorted.sort_unstable();
            // The smallest latency that is not exceeded by this share of all.
            let quantile =
                |share: f64| sorted[((share * count as f64).ceil() as usize).max(1) - 1] as f64 / 1e3;
            let mean = sorted.iter().sum::<u64>() as f64 / count as f64 / 1e3;
            for (name, found, expected) in [
                ("mean", summary.mean, mean),
                ("p50", summary.p50, quantile(0.5)),
                ("p95", summary.p95, quantile(0.95)),
                ("p99", summary.p99, quantile(0.99)),
                ("p999", summary.p999, quantile(0.999)),
                ("max", summary.max, sorted[count - 1] as f64 / 1e3),
            ] {
                assert!(
                    (found - expected).abs() <= 0.001 * expected,
                    "{name} of {count}: {found}, expected {expected}"
                );
            }
        }
    }

    #[test]
    fn merged_recorders_are_one_that_saw_everything() {
        let (first, second) = (sample(1_000, 1), sample(500, 2));
        let mut merged = record(&first);
        merged.merge(&record(&second));
        let together = record(&[first, second].concat());
        assert_eq!(merged.count(), 1_500);
        assert_eq!(merged.summary(), together.summary());
    }

    #[test]
    fn nothing_recorded_is_all_zero_and_an_eternity_is_an_hour() {
        assert_eq!(Latencies::new().summary(), Summary::default());
        assert_eq!(Latencies::new().quantile_us(0.5), None);
        let summary = record(&[u64::MAX]).summary();
        assert!((summary.max - 3.6e9).abs() < 3.6e6, "{summary:?}");
    }
}
