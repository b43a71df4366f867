//! Drawn worlds at each level. `LEVEL=linearizable SEEDS=1..1000` runs one level, and other seeds.
use std::ops::RangeInclusive;
use turnbuckle_consensus::{DacianConfig, DacianSession};
use turnbuckle_core::{Level, Promise, Protocol, Session};
use turnbuckle_sim::{Draw, FaultKind, Keep, Kind, Loss, Outcome, Scenario};

type Dacian = <DacianSession as Session>::Protocol;

const LEVELS: &[&str] = &[
    "linearizable",
    "partition-sequential",
    "bounded(20ms)",
    "bounded(200ms)",
    "bounded(2s)",
    "per-key-causal",
    "read-your-writes",
    "monotonic-reads",
    "eventual",
];

fn scenario(level: Level, seed: u64) -> Scenario {
    let mut scenario = Draw::new(seed).suited_to(Dacian::DESCRIPTOR).scenario();
    scenario.load.read = Some(level);
    scenario.load.write = level.is_among(DacianSession::LEVELS.writes).then_some(level);
    // Reads at other levels promise nothing of what the session has seen.
    if let Kind::Mixed(mixed) = &mut scenario.load.kind
        && !matches!(level.promise(), Promise::Bounded(_) | Promise::RealValues)
    {
        (mixed.careless, mixed.fresh) = (0, 0);
    }
    scenario.faults.retain(|fault| {
        let loss = match &fault.kind {
            FaultKind::Crash { loss, .. } | FaultKind::CrashAll { loss } => *loss,
            FaultKind::Damage { .. } => return false,
            _ => Loss::Process,
        };
        !matches!(loss, Loss::Old | Loss::Directory)
    });
    scenario
}

fn run(level: Level, seed: u64) -> (Scenario, DacianConfig, Outcome) {
    let scenario = scenario(level, seed);
    let config = scenario.parameters.config::<Dacian>();
    let outcome = scenario.run::<DacianSession>(config.clone(), Keep::JUDGE_AND_TRACE);
    (scenario, config, outcome)
}

/// What the checker says against the level, by name and number. Empty if nothing.
fn against(level: Level, outcome: &Outcome) -> Vec<(&'static str, u64)> {
    let report = outcome.check().expect("the trace is valid");
    let found = report
        .against(level)
        .into_iter()
        .chain([("broken promises", u64::from(report.has_broken_promises()))]);
    found.filter(|(_, count)| *count > 0).collect()
}

fn levels() -> Vec<Level> {
    let parse = |level: &str| level.parse().expect("a level");
    match std::env::var("LEVEL") {
        Ok(level) => vec![parse(&level)],
        Err(_) => LEVELS.iter().map(|level| parse(level)).collect(),
    }
}

fn seeds() -> RangeInclusive<u64> {
    let seeds = std::env::var("SEEDS").unwrap_or("1..15".into());
    let (first, last) = seeds.split_once("..").expect("SEEDS=first..last");
    first.parse().expect("a number")..=last.parse().expect("a number")
}

#[test]
fn every_drawn_world_keeps_its_promises_at_every_level() {
    for level in levels() {
        let (mut answered, mut failed, mut claims, mut unjudged) = (0, 0, 0, 0);
        for seed in seeds() {
            let (scenario, config, outcome) =
                std::panic::catch_unwind(|| run(level, seed)).unwrap_or_else(|panic| {
                    println!("seed {seed} panics at {level}");
                    std::panic::resume_unwind(panic)
                });
            answered += outcome.tally.answered();
            failed += outcome.tally.failed();
            claims += outcome.claims.judged;
            unjudged += outcome.claims.not_judged.values().sum::<u64>();
            let found = against(level, &outcome);
            assert!(
                outcome.violations.is_empty() && outcome.converged && found.is_empty(),
                "seed {seed} at {level}: {found:?}\n{}\nREPRODUCE WITH: LEVEL='{level}' SEEDS={seed}..{seed} cargo test -p turnbuckle-consensus swarm",
                scenario.explain::<DacianSession>(&config, &outcome),
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
