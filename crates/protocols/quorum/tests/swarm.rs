//! Drawn worlds at each level. `LEVEL=atomic SEEDS=1..1000` runs one level, and other seeds.
use turnbuckle_core::{Level, Protocol};
use turnbuckle_quorum::{Quorum, QuorumConfig, QuorumSession};
use turnbuckle_sim::{Draw, FaultKind, Keep, Loss, Outcome, Scenario};

const LEVELS: &[&str] = &[
    "one",
    "quorum",
    "all",
    "replicas(2)",
    "atomic",
    "cpq(0.5)",
    "delay(20ms)",
];

fn scenario(level: Level, seed: u64) -> Scenario {
    let mut scenario = Draw::new(seed).placed_for(Quorum::DESCRIPTOR).scenario();
    (scenario.load.read, scenario.load.write) = (Some(level), Some(level));
    let is_old = |kind: &FaultKind| matches!(kind, FaultKind::Crash { loss: Loss::Old, .. });
    scenario.faults.retain(|fault| !is_old(&fault.kind));
    scenario
}

fn config(scenario: &Scenario) -> QuorumConfig {
    let mut config = scenario.parameters.config::<Quorum>();
    for bug in std::env::var("PLANT").iter() {
        assert!(Quorum::plant(&mut config, bug), "no bug {bug}");
    }
    config
}

fn run(level: Level, seed: u64) -> (Scenario, Outcome) {
    let scenario = scenario(level, seed);
    let outcome = scenario.run::<QuorumSession>(config(&scenario), Keep::JUDGE_AND_TRACE);
    (scenario, outcome)
}

#[test]
fn every_drawn_world_keeps_its_promises_at_every_level() {
    let seeds = std::env::var("SEEDS").unwrap_or("1..15".into());
    let (first, last) = seeds.split_once("..").expect("SEEDS=first..last");
    let seeds: std::ops::RangeInclusive<u64> =
        first.parse().expect("a number")..=last.parse().expect("a number");
    let only = std::env::var("LEVEL").ok();
    for level in LEVELS
        .iter()
        .filter(|level| only.as_deref().is_none_or(|only| only == **level))
    {
        let level: Level = level.parse().expect("a level");
        let (mut answered, mut failed, mut claims, mut unjudged) = (0, 0, 0, 0);
        for seed in seeds.clone() {
            let (scenario, outcome) = std::panic::catch_unwind(|| run(level, seed)).unwrap_or_else(|panic| {
                println!("seed {seed} panics at {level}");
                std::panic::resume_unwind(panic)
            });
            answered += outcome.tally.answered();
            failed += outcome.tally.failed();
            claims += outcome.claims.judged;
            unjudged += outcome.claims.not_judged.values().sum::<u64>();
            let against = outcome.check().expect("a trace").against(level);
            assert!(
                outcome.violations.is_empty()
                    && outcome.converged
                    && against.iter().all(|(_, found)| *found == 0),
                "seed {seed} at {level}: {against:?}\n{}\nREPRODUCE WITH: turnbuckle sim --protocol quorum --level '{level}' --seed {seed}",
                scenario.explain::<QuorumSession>(&config(&scenario), &outcome),
            );
        }
        println!(
            "{level}: {answered} answers, {failed} failures, {claims} claims judged, {unjudged} not judged"
        );
        assert!(
            answered > 0 && claims > 0,
            "the worlds were too empty to show anything"
        );
    }
}
