//! The simulated worlds of a protocol that is given by name: what `turnbuckle sim` and `turnbuckle experiment` run.
//!
//! Here the simulator meets every protocol: this crate has the machine code of a world, once for each of them. It is a crate of its own so that this
//! code is made once, and not again whenever a command or one of its tests is built. The code of the nodes in such a world is that of `turnbuckle-served`.
use turnbuckle_core::{Micros, Protocol, Session, Settings};
use turnbuckle_protocols::{ForProtocol, KnownProtocol};
use turnbuckle_served as _;
use turnbuckle_sim::{
    BadSchedule, Exhaust, Explored, Failed, FaultKind, Keep, Loss, Outcome, Replayed, Scenario, WorldOptions,
    plant,
};

/// The bugs of the nodes, which can be planted whatever the protocol is.
const BUGS_OF_NODES: &[&str] = &[
    "answers_early",
    "builds_on_any_share",
    "clock_goes_back",
    "collects_few_deletes",
    "copies_cleared_late",
    "copy_ignores_arrivals",
    "copy_merges",
    "counts_silent_sites",
    "drops_after_restart",
    "follows_clock_jumps",
    "forgets_what_did_not_fit",
    "keeps_truncated_entries",
    "marks_overtake",
    "messages_overtake",
    "meta_before_the_rest",
    "opens_with_a_new_clock",
    "outputs_swapped",
    "positions_reused",
    "purges_what_is_left_out",
    "receipts_claim_more",
    "refuses_reads_when_full",
    "repaired_by_any_copy",
    "replays_to_the_empty",
    "returns_deleted_versions",
    "revives_forgotten_rows",
    "rows_of_begun_checkpoint",
    "serves_what_damage_left",
    "stamps_unheard",
    "takes_again_what_it_had",
    "ties_by_arrival",
    "time_before_disk",
];

/// What a simulated world can do with a protocol.
pub trait Simulated {
    /// Runs a scenario, with these bugs planted.
    fn run(self, scenario: &Scenario, bugs: &[String], keep: Keep) -> Outcome;
    /// Leaves out faults, as long as the run still goes wrong in the same way as in `outcome`.
    fn explain(self, scenario: &Scenario, bugs: &[String], outcome: &Outcome) -> Failed;
    /// Goes through all orders of events of a small world.
    fn explore(self, small: &Exhaust, bugs: &[String]) -> Explored;
    /// Runs one of these orders again.
    fn replay(self, small: &Exhaust, bugs: &[String], schedule: &[usize]) -> Result<Replayed, BadSchedule>;
    /// Whether there is a bug of that name in the nodes or in the protocol, to be planted.
    fn has_bug(self, name: &str) -> bool;
    /// The names of bugs that can be planted: those that drawn worlds find in the protocol, and those of the nodes.
    fn bug_names(self) -> Vec<&'static str>;
    /// Whether the protocol claims to tolerate a fault. Drawn faults that it does not claim to tolerate are left out.
    fn allows(self, fault: &FaultKind) -> bool;
}

impl Simulated for KnownProtocol {
    fn run(self, scenario: &Scenario, bugs: &[String], keep: Keep) -> Outcome {
        self.apply(&scenario.parameters, Run { scenario, bugs, keep })
    }

    fn explain(self, scenario: &Scenario, bugs: &[String], outcome: &Outcome) -> Failed {
        let explain = Explain {
            scenario,
            bugs,
            outcome,
        };
        self.apply(&scenario.parameters, explain)
    }

    fn explore(self, small: &Exhaust, bugs: &[String]) -> Explored {
        self.apply(&small_steps(), Explore { small, bugs })
    }

    fn replay(self, small: &Exhaust, bugs: &[String], schedule: &[usize]) -> Result<Replayed, BadSchedule> {
        let replay = Replay {
            small,
            bugs,
            schedule,
        };
        self.apply(&small_steps(), replay)
    }

    fn has_bug(self, name: &str) -> bool {
        self.apply(&Settings::default(), HasBug(name))
    }

    fn bug_names(self) -> Vec<&'static str> {
        let own = self.bugs().iter().map(|bug| bug.name);
        own.chain(BUGS_OF_NODES.iter().copied()).collect()
    }

    /// Every clock step counts, also one ahead: a clock that is set ahead is set back at the end.
    fn allows(self, fault: &FaultKind) -> bool {
        let descriptor = self.descriptor();
        match fault {
            FaultKind::ClockStep { .. } => descriptor.tolerates_clock_steps,
            FaultKind::Crash { loss: Loss::Old, .. } => descriptor.tolerates_old_directories,
            _ => true,
        }
    }
}

/// How often replicas send heartbeats and compute what is stable, in a world in which time passes in steps.
fn small_steps() -> Settings {
    Settings::from([("heartbeat", Exhaust::STEP), ("theta", Exhaust::STEP)])
}

/// Plants bugs in a world and a configuration.
fn plant_all<S: Session>(
    world: &mut WorldOptions,
    config: &mut <S::Protocol as Protocol>::Config,
    bugs: &[String],
) {
    for bug in bugs {
        let known = plant::<S::Protocol>(world, config, bug);
        assert!(known, "the names of bugs are looked at before: {bug}");
    }
}

/// The scenario and the configuration, with bugs planted in them.
fn planted<S: Session>(
    scenario: &Scenario,
    mut config: <S::Protocol as Protocol>::Config,
    bugs: &[String],
) -> (Scenario, <S::Protocol as Protocol>::Config) {
    let mut scenario = scenario.clone();
    plant_all::<S>(&mut scenario.world, &mut config, bugs);
    (scenario, config)
}

struct HasBug<'a>(&'a str);

impl ForProtocol for HasBug<'_> {
    type Output = bool;

    fn with<S: Session>(self, mut config: <S::Protocol as Protocol>::Config) -> bool {
        let mut world = WorldOptions::plain(["a"], Micros(0));
        plant::<S::Protocol>(&mut world, &mut config, self.0)
    }
}

struct Run<'a> {
    scenario: &'a Scenario,
    bugs: &'a [String],
    keep: Keep,
}

impl ForProtocol for Run<'_> {
    type Output = Outcome;

    fn with<S: Session>(self, config: <S::Protocol as Protocol>::Config) -> Outcome {
        let (scenario, config) = planted::<S>(self.scenario, config, self.bugs);
        scenario.run::<S>(config, self.keep)
    }
}

struct Explain<'a> {
    scenario: &'a Scenario,
    bugs: &'a [String],
    outcome: &'a Outcome,
}

impl ForProtocol for Explain<'_> {
    type Output = Failed;

    fn with<S: Session>(self, config: <S::Protocol as Protocol>::Config) -> Failed {
        let (scenario, config) = planted::<S>(self.scenario, config, self.bugs);
        scenario.explain::<S>(&config, self.outcome)
    }
}

struct Explore<'a> {
    small: &'a Exhaust,
    bugs: &'a [String],
}

impl ForProtocol for Explore<'_> {
    type Output = Explored;

    fn with<S: Session>(self, mut config: <S::Protocol as Protocol>::Config) -> Explored {
        let mut small = self.small.clone();
        plant_all::<S>(&mut small.world, &mut config, self.bugs);
        small.explore::<S>(&config)
    }
}

struct Replay<'a> {
    small: &'a Exhaust,
    bugs: &'a [String],
    schedule: &'a [usize],
}

impl ForProtocol for Replay<'_> {
    type Output = Result<Replayed, BadSchedule>;

    fn with<S: Session>(self, mut config: <S::Protocol as Protocol>::Config) -> Self::Output {
        let mut small = self.small.clone();
        plant_all::<S>(&mut small.world, &mut config, self.bugs);
        small.replay::<S>(config, self.schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bug_that_is_named_can_be_planted_and_every_bug_of_the_nodes_is_named() {
        for protocol in KnownProtocol::ALL {
            for name in protocol.bug_names() {
                assert!(protocol.has_bug(name), "{name} in {protocol}");
            }
        }
        let planted = format!("{:?}", WorldOptions::plain(["a"], Micros(0)).planted);
        let fields = planted.split(['{', '}', ',', ' ']);
        let fields: Vec<&str> = fields.filter_map(|word| word.strip_suffix(':')).collect();
        assert!(fields.len() > 20, "{planted}");
        for field in fields {
            assert!(BUGS_OF_NODES.contains(&field), "{field}");
        }
    }
}
