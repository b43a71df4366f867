//! What is measured in a run.
use std::{fmt, str::FromStr};
use turnbuckle_check::{BadTrace, HistoryBuilder, Zones};
use turnbuckle_sim::{Outcome, Tally};
use turnbuckle_workload::Latencies;

/// What was counted in a run.
pub struct Counted {
    /// The operations.
    pub tally: Tally,
    /// The sites' names, in the order of the tally.
    pub sites: Vec<String>,
    /// How far the trace is from one copy of the data, if some measure wants that.
    pub anomalies: Option<Anomalies>,
}

/// How far a trace is from one copy of the data.
pub struct Anomalies {
    /// The number of operations that count, the writing of the records among them.
    operations: u64,
    /// The least number of them whose removal, whole values at a time, leaves an atomic trace.
    inconsistent: u64,
    /// The Gamma of each value that has one above 0.
    gamma: Latencies,
}

impl Counted {
    /// From the outcome of a run in a world with these sites. Its trace is looked at if it was kept.
    ///
    /// # Errors
    /// If the trace is not valid: a mistake of the simulator.
    pub fn of(outcome: Outcome, sites: Vec<String>) -> Result<Counted, BadTrace> {
        let has_trace = !outcome.trace.is_empty();
        Ok(Counted {
            anomalies: has_trace.then(|| Anomalies::of(&outcome)).transpose()?,
            tally: outcome.tally,
            sites,
        })
    }
}

impl Anomalies {
    fn of(outcome: &Outcome) -> Result<Anomalies, BadTrace> {
        let mut history = HistoryBuilder::new();
        for record in &outcome.trace {
            history.add(record)?;
        }
        let mut anomalies = Anomalies {
            operations: 0,
            inconsistent: 0,
            gamma: Latencies::new(),
        };
        for zones in Zones::of(&history.finish()?) {
            anomalies.operations += zones.operations();
            anomalies.inconsistent += zones.removed();
            let gammas = zones.gammas().into_iter();
            for gamma in gammas.filter_map(|gamma| u64::try_from(gamma).ok().filter(|&gamma| gamma > 0)) {
                anomalies.gamma.record_ns(gamma);
            }
        }
        Ok(anomalies)
    }
}

/// Some operations, and a number about them: `write mean`, `many p90`, `request per-second`, `inconsistent share`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct What {
    of: Of,
    statistic: Statistic,
}

/// The operations, or what is said of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Operation,
    Read,
    Write,
    Request,
    Many,
    ManyApart,
    Visibility,
    /// The operations that have to be removed until the trace is atomic.
    Inconsistent,
    /// The Gamma of the values that have one above 0.
    Gamma,
    /// The reads that one replica answered alone.
    Alone,
    /// The reads for which another replica was asked before.
    Redirected,
    /// The staleness that receipts prove.
    Staleness,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Statistic {
    Mean,
    /// The least that such a share does not exceed.
    Quantile(f64),
    PerSecond,
    /// Of all operations, or of all reads.
    Share,
    /// All quantiles: drawn as a figure of its own. It has no number.
    Distribution,
}

const OF: [(&str, Of); 12] = [
    ("operation", Of::Operation),
    ("read", Of::Read),
    ("write", Of::Write),
    ("request", Of::Request),
    ("many", Of::Many),
    ("many-apart", Of::ManyApart),
    ("visibility", Of::Visibility),
    ("inconsistent", Of::Inconsistent),
    ("gamma", Of::Gamma),
    ("alone", Of::Alone),
    ("redirected", Of::Redirected),
    ("staleness", Of::Staleness),
];

const STATISTICS: [(&str, Statistic); 11] = [
    ("mean", Statistic::Mean),
    ("p25", Statistic::Quantile(0.25)),
    ("p50", Statistic::Quantile(0.5)),
    ("p75", Statistic::Quantile(0.75)),
    ("p90", Statistic::Quantile(0.9)),
    ("p95", Statistic::Quantile(0.95)),
    ("p99", Statistic::Quantile(0.99)),
    ("max", Statistic::Quantile(1.0)),
    ("per-second", Statistic::PerSecond),
    ("share", Statistic::Share),
    ("cdf", Statistic::Distribution),
];

impl What {
    /// The number for a run, at all sites or at one. Times are in milliseconds. `None` if there were no such operations, if there is no such site, or
    /// if the measure has no number.
    pub fn of(self, run: &Counted, site: Option<&str>) -> Option<f64> {
        let seconds = run.tally.took.0 as f64 / 1e6;
        let share = |part: u64, all: u64| (all > 0).then(|| part as f64 / all as f64);
        match (self.statistic, self.of) {
            (Statistic::PerSecond, _) if seconds <= 0.0 => None,
            (Statistic::PerSecond, Of::Operation) => Some(run.tally.answered() as f64 / seconds),
            (Statistic::PerSecond, _) => Some(self.latencies(run, site)?.count() as f64 / seconds),
            (Statistic::Mean, _) => {
                let latencies = self.latencies(run, site)?;
                (latencies.count() > 0).then(|| latencies.summary().mean / 1e3)
            }
            (Statistic::Quantile(share), _) => {
                let us = self.latencies(run, site)?.quantile_us(share)?;
                Some(us / 1e3)
            }
            (Statistic::Share, Of::Inconsistent) => {
                let anomalies = run.anomalies.as_ref()?;
                share(anomalies.inconsistent, anomalies.operations)
            }
            (Statistic::Share, Of::Alone) => share(run.tally.alone, run.tally.reads.count()),
            (Statistic::Share, Of::Redirected) => share(run.tally.redirected, run.tally.reads.count()),
            (Statistic::Share | Statistic::Distribution, _) => None,
        }
    }

    /// Whether it is drawn as a figure of its own.
    pub fn is_distribution(self) -> bool {
        self.statistic == Statistic::Distribution
    }

    /// Whether it needs the trace of the run.
    pub fn needs_trace(self) -> bool {
        matches!(self.of, Of::Inconsistent | Of::Gamma)
    }

    /// Whether there is a number for each site.
    pub fn has_sites(self) -> bool {
        matches!(self.of, Of::Read | Of::Write)
    }

    /// Latencies in milliseconds, and the share of all that were no longer.
    pub fn distribution(self, run: &Counted, site: Option<&str>) -> Vec<(f64, f64)> {
        const POINTS: u32 = 200;
        let Some(latencies) = self.latencies(run, site) else {
            return Vec::new();
        };
        let point = |place: u32| {
            let share = f64::from(place) / f64::from(POINTS);
            latencies.quantile_us(share).map(|us| (us / 1e3, share))
        };
        (0..=POINTS).filter_map(point).collect()
    }

    fn latencies<'a>(self, run: &'a Counted, site: Option<&str>) -> Option<&'a Latencies> {
        let tally = &run.tally;
        if let Some(site) = site {
            let place = run.sites.iter().position(|name| name == site)?;
            let of_site = tally.sites.get(place)?;
            return match self.of {
                Of::Read => Some(&of_site.reads),
                Of::Write => Some(&of_site.writes),
                _ => None,
            };
        }
        match self.of {
            Of::Operation | Of::Inconsistent | Of::Alone | Of::Redirected => None,
            Of::Read => Some(&tally.reads),
            Of::Write => Some(&tally.writes),
            Of::Request => Some(&tally.requests),
            Of::Many => Some(&tally.many),
            Of::ManyApart => Some(&tally.many_apart),
            Of::Visibility => Some(&tally.visibility),
            Of::Gamma => Some(&run.anomalies.as_ref()?.gamma),
            Of::Staleness => Some(&tally.staleness),
        }
    }

    /// Whether there is such a number.
    fn is_possible(&self) -> bool {
        match self.of {
            Of::Operation => self.statistic == Statistic::PerSecond,
            Of::Inconsistent | Of::Alone | Of::Redirected => self.statistic == Statistic::Share,
            _ => self.statistic != Statistic::Share,
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
        found.filter(What::is_possible).ok_or_else(|| {
            format!(
                "expected one of {} and one of {}, such as 'write mean', 'operation per-second' or 'inconsistent share'",
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
            Statistic::PerSecond | Statistic::Share => Ok(()),
            _ => f.write_str(", ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::Micros;
    use turnbuckle_sim::OfSite;

    fn what(text: &str) -> What {
        text.parse().expect("it is a measure")
    }

    /// A run with these operations, without a trace.
    fn counted(tally: Tally) -> Counted {
        Counted {
            tally,
            sites: vec!["a".into(), "b".into()],
            anomalies: None,
        }
    }

    #[test]
    fn numbers_are_those_of_the_tally() {
        let mut tally = Tally {
            took: Micros::from_millis(2_000),
            sites: vec![OfSite::default(); 2],
            alone: 3,
            ..Tally::default()
        };
        for ms in [1, 2, 3, 10] {
            tally.writes.record_ns(ms * 1_000_000);
            tally.sites[1].writes.record_ns(ms * 1_000_000);
        }
        for _ in 0..4 {
            tally.reads.record_ns(5_000_000);
        }
        let run = counted(tally);
        let number = |text: &str, site| what(text).of(&run, site);
        let of = |text: &str| number(text, None).unwrap_or(f64::NAN);
        assert!((of("write mean") - 4.0).abs() < 0.01 && (of("write p50") - 2.0).abs() < 0.01);
        assert!((of("write max") - 10.0).abs() < 0.1);
        assert_eq!((of("write per-second"), of("operation per-second")), (2.0, 4.0));
        assert_eq!(of("alone share"), 0.75);
        assert_eq!(
            (number("many mean", None), number("inconsistent share", None)),
            (None, None)
        );
        let at = |site| number("write per-second", Some(site));
        assert_eq!((at("a"), at("b"), at("c")), (Some(0.0), Some(2.0), None));
        let cdf = what("write cdf").distribution(&run, None);
        assert!(cdf.len() == 201 && cdf.is_sorted_by(|a, b| a.0 <= b.0), "{cdf:?}");
    }

    #[test]
    fn what_is_no_measure_is_refused_with_what_is() {
        for text in [
            "write",
            "wriet mean",
            "write p91",
            "operation mean",
            "read share",
            "alone p50",
        ] {
            let error = text.parse::<What>().expect_err(text);
            assert!(error.contains("visibility") && error.contains("p90"), "{error}");
        }
        assert_eq!(what("many p90").to_string(), "many p90, ms");
    }
}
