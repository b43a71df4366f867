use hdrhistogram::Histogram;
use serde::Serialize;

/// How long operations took: a histogram of three significant digits, in about 250 KiB, however many they are.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

/// Latencies in a few numbers, all of them microseconds. All are 0 where nothing was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean: f64,
    /// Half of them were at most this.
    pub p50: f64,
    /// 95 of 100 were at most this.
    pub p95: f64,
    /// 99 of 100 were at most this.
    pub p99: f64,
    /// 999 of 1,000 were at most this.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
}

impl Latencies {
    /// The longest that is told apart: an hour. Longer ones count as one hour.
    pub const MAX_NS: u64 = 3_600_000_000_000;

    /// None yet.
    pub fn new() -> Latencies {
        Latencies(
            Histogram::new_with_bounds(1, Latencies::MAX_NS, 3)
                .expect("constant bounds and digits are valid"),
        )
    }

    /// One more operation took so many nanoseconds.
    pub fn record_ns(&mut self, latency_ns: u64) {
        self.0.saturating_record(latency_ns);
    }

    /// Adds those of another recorder.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("two recorders have the same bounds");
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The least latency, in microseconds, that such a share of all do not exceed; at most 0.1 % above it. None if nothing was
    /// recorded.
    pub fn quantile_us(&self, share: f64) -> Option<f64> {
        (!self.0.is_empty()).then(|| micros(self.0.value_at_quantile(share) as f64))
    }

    /// In a few numbers. Each is at most 0.1 % above the latency that it stands for.
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

/// Nanoseconds as microseconds with three decimals; there is nothing behind them.
fn micros(ns: f64) -> f64 {
    ns.round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    /// Latencies as they come: most short, some very long.
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
            // The least latency that so many are at most as long as.
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
