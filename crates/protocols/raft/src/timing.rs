//! The times of a group, which are parameters of its protocol.
//!
//! A leader sends heartbeats. A replica that hears none for an election timeout wants to be elected. So the election timeout must be several heartbeats long: with fewer than three, one lost heartbeat would cause
//! an election.
use turnbuckle_core::{Micros, Misfit};

/// The longest election timeout, in heartbeats.
const MAX_TICKS: u64 = 10_000;

/// The times of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How often a leader sends heartbeats. This is also the length of a tick.
    pub heartbeat: Micros,
    /// How long a replica waits for word of a leader, at least, before it wants to be elected. At most it waits for twice as long.
    pub election: Micros,
    /// By how much the rates of two clocks may differ, in millionths. A million: no leader has a lease.
    pub drift: usize,
}

impl Timing {
    /// Checks the parameters `heartbeat` and `election`.
    ///
    /// # Errors
    /// If the election timeout is shorter than three heartbeats, or longer than 10,000.
    pub fn check(&self) -> Result<(), Misfit> {
        let least = Micros(3 * self.heartbeat.0);
        let most = Micros(self.heartbeat.0 * MAX_TICKS);
        let (bound, time) = match self.election {
            election if election < least => ("least three", least),
            election if election > most => ("most 10,000", most),
            _ => return Ok(()),
        };
        Err(Misfit {
            parameter: "election",
            found: self.election.to_string(),
            expected: format!(
                "a time of at {bound} heartbeats: \"{time}\", because heartbeat is \"{}\"",
                self.heartbeat
            ),
        })
    }

    /// The election timeout in ticks: at least three.
    pub(crate) fn election_ticks(&self) -> usize {
        let ticks = self.election.0 / self.heartbeat.0.max(1);
        ticks.clamp(3, MAX_TICKS) as usize
    }

    /// The election timeout: a number of ticks.
    pub fn timeout(&self) -> Micros {
        Micros(self.heartbeat.0 * self.election_ticks() as u64)
    }

    /// How long a lease lasts.
    pub fn lease(&self) -> Micros {
        let whole = self.timeout();
        let lost = u128::from(whole.0) * self.drift.min(1_000_000) as u128 / 1_000_000;
        Micros(whole.0 - lost as u64)
    }

    /// How long until the next tick: ticks are at multiples of their length, so that those of all groups of a node come together.
    pub fn until_tick(&self, now: Micros) -> Micros {
        let tick = self.heartbeat.0.max(1);
        Micros(tick - now.0 % tick)
    }
}
