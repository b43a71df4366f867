//! What is measured in a run.
use std::{fmt, str::FromStr};
use turnbuckle_sim::Tally;
use turnbuckle_workload::Latencies;

/// Some operations, and a number about them: `write mean`, `many p90`, `request per-second`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct What {
    of: Of,
    statistic: Statistic,
}

/// The operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Operation,
    Read,
    Write,
    Request,
    Many,
    ManyApart,
    Visibility,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Statistic {
    Mean,
    /// The least that such a share does not exceed.
    Quantile(f64),
    PerSecond,
    /// All quantiles: drawn as a figure of its own. It has no number.
    Distribution,
}

const OF: [(&str, Of); 7] = [
    ("operation", Of::Operation),
    ("read", Of::Read),
    ("write", Of::Write),
    ("request", Of::Request),
    ("many", Of::Many),
    ("many-apart", Of::ManyApart),
    ("visibility", Of::Visibility),
];

const STATISTICS: [(&str, Statistic); 8] = [
    ("mean", Statistic::Mean),
    ("p25", Statistic::Quantile(0.25)),
    ("p50", Statistic::Quantile(0.5)),
    ("p90", Statistic::Quantile(0.9)),
    ("p95", Statistic::Quantile(0.95)),
    ("p99", Statistic::Quantile(0.99)),
    ("per-second", Statistic::PerSecond),
    ("cdf", Statistic::Distribution),
];

impl What {
    /// The number for a run. Times are in milliseconds. `None` if there were no such operations, or if the measure has no number.
    pub fn of(self, tally: &Tally) -> Option<f64> {
        let seconds = tally.took.0 as f64 / 1e6;
        match (self.statistic, self.latencies(tally)) {
            (Statistic::PerSecond, _) if seconds <= 0.0 => None,
            (Statistic::PerSecond, Some(latencies)) => Some(latencies.count() as f64 / seconds),
            (Statistic::PerSecond, None) => Some(tally.answered() as f64 / seconds),
            (Statistic::Mean, Some(latencies)) if latencies.count() > 0 => {
                Some(latencies.summary().mean / 1e3)
            }
            (Statistic::Quantile(share), Some(latencies)) => latencies.quantile_us(share).map(|us| us / 1e3),
            _ => None,
        }
    }

    /// Whether it is drawn as a figure of its own.
    pub fn is_distribution(self) -> bool {
        self.statistic == Statistic::Distribution
    }

    /// Latencies in milliseconds, and the share of all that were no longer.
    pub fn distribution(self, tally: &Tally) -> Vec<(f64, f64)> {
        const POINTS: u32 = 200;
        let Some(latencies) = self.latencies(tally) else {
            return Vec::new();
        };
        let point = |place: u32| {
            let share = f64::from(place) / f64::from(POINTS);
            latencies.quantile_us(share).map(|us| (us / 1e3, share))
        };
        (0..=POINTS).filter_map(point).collect()
    }

    fn latencies(self, tally: &Tally) -> Option<&Latencies> {
        match self.of {
            Of::Operation => None,
            Of::Read => Some(&tally.reads),
            Of::Write => Some(&tally.writes),
            Of::Request => Some(&tally.requests),
            Of::Many => Some(&tally.many),
            Of::ManyApart => Some(&tally.many_apart),
            Of::Visibility => Some(&tally.visibility),
        }
    }
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<What, String> {
        let found = text.split_once(' ').and_then(|(of, statistic)| {
            let &(_, of) = OF.iter().find(|(name, _)| *name == of)?;
            let &(_, statistic) = STATISTICS.iter().find(|(name, _)| *name == statistic)?;
            Some(What { of, statistic })
        });
        let is_latency = |what: &What| what.of != Of::Operation || what.statistic == Statistic::PerSecond;
        found.filter(is_latency).ok_or_else(|| {
            format!(
                "expected one of {} and one of {}, such as 'write mean' or 'operation per-second'",
                OF.map(|(name, _)| name).join(", "),
                STATISTICS.map(|(name, _)| name).join(", ")
            )
        })
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = OF.iter().find(|(_, of)| *of == self.of);
        let statistic = STATISTICS
            .iter()
            .find(|(_, statistic)| *statistic == self.statistic);
        let name = of.map_or("", |(name, _)| name);
        write!(f, "{name} {}", statistic.map_or("", |(name, _)| name))?;
        match self.statistic {
            Statistic::PerSecond => Ok(()),
            _ => f.write_str(", ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::Micros;

    fn what(text: &str) -> What {
        text.parse().expect("it is a measure")
    }

    #[test]
    fn numbers_are_those_of_the_tally() {
        let mut tally = Tally {
            took: Micros::from_millis(2_000),
            ..Tally::default()
        };
        for ms in [1, 2, 3, 10] {
            tally.writes.record_ns(ms * 1_000_000);
        }
        tally.reads.record_ns(5_000_000);
        let of = |text: &str| what(text).of(&tally).unwrap_or(f64::NAN);
        assert!((of("write mean") - 4.0).abs() < 0.01 && (of("write p50") - 2.0).abs() < 0.01);
        assert_eq!((of("write per-second"), of("operation per-second")), (2.0, 2.5));
        assert_eq!(what("many mean").of(&tally), None);
        let cdf = what("write cdf").distribution(&tally);
        assert!(cdf.len() == 201 && cdf.is_sorted_by(|a, b| a.0 <= b.0), "{cdf:?}");
    }

    #[test]
    fn what_is_no_measure_is_refused_with_what_is() {
        for text in ["write", "wriet mean", "write p91", "operation mean"] {
            let error = text.parse::<What>().expect_err(text);
            assert!(error.contains("visibility") && error.contains("p90"), "{error}");
        }
        assert_eq!(what("many p90").to_string(), "many p90, ms");
    }
}
