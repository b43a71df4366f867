//! The protocols whose worlds `sim` and `experiment` run, by name.
use crate::failure::{Failure, usage};
use turnbuckle_causal::{
    CausalSpartanXConfig, CausalSpartanXSession, CopsConfig, CopsSession, EventualConfig, EventualSession,
    GentleRainConfig, GentleRainSession,
};
use turnbuckle_core::{Level, Protocol, Session};
use turnbuckle_sim::{Failed, FaultKind, Keep, Outcome, Scenario};

/// A protocol whose worlds can be run.
pub(crate) trait Simulated: Sync {
    /// Runs a scenario.
    fn run(&self, scenario: &Scenario, keep: Keep) -> Outcome;
    /// The least that goes wrong in the same way as a run did.
    fn explain(&self, scenario: &Scenario, outcome: &Outcome) -> Failed;
    /// The levels that it offers, its usual one first.
    fn levels(&self) -> &'static [Level];

    /// Whether the protocol claims to stand a fault. Of what is drawn the others are left out.
    fn allows(&self, _: &FaultKind) -> bool {
        true
    }
}

/// A protocol's sessions, and how its keyspace is configured for a scenario.
struct Of<S: Session>(fn(&Scenario) -> <S::Protocol as Protocol>::Config);

impl<S: Session> Simulated for Of<S> {
    fn run(&self, scenario: &Scenario, keep: Keep) -> Outcome {
        scenario.run::<S>(self.0(scenario), keep)
    }

    fn explain(&self, scenario: &Scenario, outcome: &Outcome) -> Failed {
        scenario.explain::<S>(&self.0(scenario), outcome)
    }

    fn levels(&self) -> &'static [Level] {
        S::LEVELS
    }
}

/// A protocol that rests on clocks that never go back.
struct ByTheClock<S: Session>(Of<S>);

impl<S: Session> Simulated for ByTheClock<S> {
    fn run(&self, scenario: &Scenario, keep: Keep) -> Outcome {
        self.0.run(scenario, keep)
    }

    fn explain(&self, scenario: &Scenario, outcome: &Outcome) -> Failed {
        self.0.explain(scenario, outcome)
    }

    fn levels(&self) -> &'static [Level] {
        self.0.levels()
    }

    /// What is set ahead is set back in the end.
    fn allows(&self, fault: &FaultKind) -> bool {
        !matches!(fault, FaultKind::ClockStep { .. })
    }
}

fn eventual(scenario: &Scenario) -> EventualConfig {
    EventualConfig::paced(scenario.heartbeat, scenario.theta)
}

fn causalspartanx(scenario: &Scenario) -> CausalSpartanXConfig {
    CausalSpartanXConfig::paced(scenario.heartbeat, scenario.theta)
}

fn gentlerain(scenario: &Scenario) -> GentleRainConfig {
    GentleRainConfig::paced(scenario.heartbeat, scenario.theta)
}

/// Every protocol by its name, and by that of the kind of keyspace whose usual one it is.
const PROTOCOLS: &[(&str, &dyn Simulated)] = &[
    ("eventual", &Of::<EventualSession>(eventual)),
    (
        "cops",
        &Of::<CopsSession>(|scenario| CopsConfig::paced(scenario.heartbeat, scenario.theta)),
    ),
    ("gentlerain", &ByTheClock(Of::<GentleRainSession>(gentlerain))),
    ("causal", &Of::<CausalSpartanXSession>(causalspartanx)),
    ("causalspartanx", &Of::<CausalSpartanXSession>(causalspartanx)),
    (
        "causalspartanx-published",
        &Of::<CausalSpartanXSession>(|scenario| causalspartanx(scenario).published()),
    ),
];

/// The protocol of that name.
pub(crate) fn protocol_named(name: &str) -> Result<&'static dyn Simulated, Failure> {
    let found = PROTOCOLS.iter().find(|(known, _)| *known == name);
    let names: Vec<&str> = PROTOCOLS.iter().map(|(name, _)| *name).collect();
    let unknown = || {
        usage(&format!(
            "there is no protocol '{name}'; expected {}",
            names.join(", ")
        ))
    };
    found.map(|&(_, protocol)| protocol).ok_or_else(unknown)
}
