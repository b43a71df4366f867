use crate::Random;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// When clients begin their operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrival {
    /// Each client begins an operation when its last one has been answered and its think time has passed.
    ///
    /// A slow server slows its clients down, so its slowness shows in the throughput more than in the latencies.
    Closed {
        /// Time from an answer to the next operation, in nanoseconds.
        think_ns: u64,
    },
    /// Operations arrive on a schedule of their own, answered or not, as with independent users.
    ///
    /// Latency counts from the intended start, even if the client was still waiting for an earlier answer. If it counted
    /// from the actual start, one second of standstill would show as a single slow operation: *coordinated omission*.
    Open {
        /// The rate of all clients together.
        rate: Rate,
        /// How the operations follow each other.
        spacing: Spacing,
    },
}

/// Operations per second, more than 0.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Deserialize)]
#[serde(try_from = "f64")]
pub struct Rate(f64);

/// A rate at which nothing can arrive.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("a rate of {0}; expected operations per second, more than 0 and at most {max}", max = Rate::MAX)]
pub struct BadRate(f64);

impl Rate {
    /// One operation each nanosecond: clocks do not resolve more.
    pub const MAX: f64 = 1e9;

    /// A rate of `per_second` operations per second.
    ///
    /// # Errors
    /// If it is not more than 0 and at most [`Rate::MAX`].
    pub fn new(per_second: f64) -> Result<Rate, BadRate> {
        if !(per_second > 0.0 && per_second <= Rate::MAX) {
            return Err(BadRate(per_second));
        }
        Ok(Rate(per_second))
    }

    /// The number of operations per second.
    pub fn per_second(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Rate {
    type Error = BadRate;

    fn try_from(per_second: f64) -> Result<Rate, BadRate> {
        Rate::new(per_second)
    }
}

/// How the operations of an open loop follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    /// At equal intervals. The clients take turns.
    #[default]
    Fixed,
    /// At random, each independent of all others, as with many independent users.
    Poisson,
}

/// The intended starts of one client of an open loop, in nanoseconds since the run began. They never end and never decrease.
#[derive(Debug, Clone)]
pub struct Schedule {
    rate: Rate,
    spacing: Spacing,
    client: u64,
    clients: u64,
    begun: u64,
    /// The last start that was drawn.
    last_ns: f64,
}

impl Schedule {
    /// The schedule of client number `client` of `clients`.
    ///
    /// # Panics
    /// If there is no such client.
    pub fn new(rate: Rate, spacing: Spacing, client: u64, clients: u64) -> Schedule {
        assert!(client < clients, "client {client} of {clients}");
        Schedule {
            rate,
            spacing,
            client,
            clients,
            begun: 0,
            last_ns: 0.0,
        }
    }

    /// The next intended start.
    pub fn next_start_ns(&mut self, random: &mut Random) -> u64 {
        match self.spacing {
            // Computed from the count and not added up: so rounding errors do not accumulate, however long the run is.
            Spacing::Fixed => {
                let turn = self.client + self.begun * self.clients;
                self.begun += 1;
                (turn as f64 * (1e9 / self.rate.0)).round() as u64
            }
            // Poisson processes side by side are one process with the sum of their rates.
            Spacing::Poisson => {
                let mean_ns = 1e9 / self.rate.0 * self.clients as f64;
                self.last_ns -= (1.0 - random.unit()).ln() * mean_ns;
                self.last_ns as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(spacing: Spacing, rate: f64, clients: u64, each: usize) -> Vec<u64> {
        let rate = Rate::new(rate).expect("a rate for tests");
        let mut starts: Vec<u64> = (0..clients)
            .flat_map(|client| {
                let mut schedule = Schedule::new(rate, spacing, client, clients);
                let mut random = Random::new(9, client);
                let own: Vec<u64> = (0..each).map(|_| schedule.next_start_ns(&mut random)).collect();
                assert!(own.is_sorted(), "client {client}: {own:?}");
                own
            })
            .collect();
        starts.sort_unstable();
        starts
    }

    #[test]
    fn fixed_arrivals_of_all_clients_are_evenly_spaced() {
        let starts = starts(Spacing::Fixed, 1000.0, 4, 100);
        let expected: Vec<u64> = (0..400).map(|turn| turn * 1_000_000).collect();
        assert_eq!(starts, expected);
    }

    #[test]
    fn a_rate_that_does_not_divide_a_second_does_not_drift() {
        let starts = starts(Spacing::Fixed, 3.0, 1, 3_000_001);
        assert_eq!(starts[1], 333_333_333);
        assert_eq!(starts[3], 1_000_000_000);
        assert_eq!(starts[3_000_000], 1_000_000 * 1_000_000_000);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_gaps_of_a_poisson_process() {
        let starts = starts(Spacing::Poisson, 1000.0, 4, 20_000);
        // Only while every client still has arrivals.
        let starts: Vec<u64> = starts
            .into_iter()
            .take_while(|&start| start < 70_000_000_000)
            .collect();
        let rate = starts.len() as f64 / 70.0;
        assert!((rate - 1000.0).abs() < 15.0, "{rate}");
        // The gaps of such a process are exponential: the share of gaps longer than g is e^(-rate g).
        for gap_ns in [100_000u64, 500_000, 1_000_000, 3_000_000] {
            let longer = starts
                .windows(2)
                .filter(|pair| pair[1] - pair[0] > gap_ns)
                .count();
            let share = longer as f64 / (starts.len() - 1) as f64;
            let expected = (-(gap_ns as f64) / 1e6).exp();
            assert!(
                (share - expected).abs() < 0.01,
                "{gap_ns}: {share}, expected {expected}"
            );
        }
    }

    #[test]
    fn rates_at_which_nothing_arrives_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e10] {
            assert!(Rate::new(rate).is_err(), "{rate}");
        }
    }
}
