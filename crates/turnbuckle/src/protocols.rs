//! The worlds of a protocol that has been named: what `sim` and `experiment` run.
use crate::failure::{Failure, usage};
use turnbuckle_core::{Protocol, Session};
use turnbuckle_server::protocols::{ForProtocol, KnownProtocol, Pace};
use turnbuckle_sim::{Failed, FaultKind, Keep, Outcome, Scenario};

/// The protocol of that name.
pub(crate) fn protocol_named(name: &str) -> Result<KnownProtocol, Failure> {
    let names: Vec<&str> = KnownProtocol::names().map(|(name, _)| name).collect();
    let unknown = || {
        usage(&format!(
            "there is no protocol '{name}'; expected {}",
            names.join(", ")
        ))
    };
    KnownProtocol::named(name).ok_or_else(unknown)
}

/// What a simulated world can do with a protocol.
pub(crate) trait Simulated {
    /// Runs a scenario.
    fn run(self, scenario: &Scenario, keep: Keep) -> Outcome;
    /// The least that goes wrong in the same way as a run did.
    fn explain(self, scenario: &Scenario, outcome: &Outcome) -> Failed;
    /// Whether the protocol claims to stand a fault. Of what is drawn the others are left out.
    fn allows(self, fault: &FaultKind) -> bool;
}

impl Simulated for KnownProtocol {
    fn run(self, scenario: &Scenario, keep: Keep) -> Outcome {
        self.apply(pace(scenario), Run { scenario, keep })
    }

    fn explain(self, scenario: &Scenario, outcome: &Outcome) -> Failed {
        self.apply(pace(scenario), Explain { scenario, outcome })
    }

    /// What is set ahead is set back in the end.
    fn allows(self, fault: &FaultKind) -> bool {
        self.stands_clock_steps() || !matches!(fault, FaultKind::ClockStep { .. })
    }
}

fn pace(scenario: &Scenario) -> Pace {
    Pace {
        heartbeat: scenario.heartbeat,
        theta: scenario.theta,
    }
}

struct Run<'a> {
    scenario: &'a Scenario,
    keep: Keep,
}

impl ForProtocol for Run<'_> {
    type Output = Outcome;

    fn with<S: Session>(self, config: <S::Protocol as Protocol>::Config) -> Outcome {
        self.scenario.run::<S>(config, self.keep)
    }
}

struct Explain<'a> {
    scenario: &'a Scenario,
    outcome: &'a Outcome,
}

impl ForProtocol for Explain<'_> {
    type Output = Failed;

    fn with<S: Session>(self, config: <S::Protocol as Protocol>::Config) -> Failed {
        self.scenario.explain::<S>(&config, self.outcome)
    }
}
