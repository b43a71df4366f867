//! Drawn worlds at each level. `LEVEL=linearizable SEEDS=1..1000` runs one level, and other seeds. With `KEYS=2` these worlds have two keys.
use std::{collections::BTreeMap, ops::RangeInclusive};
use turnbuckle_consensus::{DacianConfig, DacianSession};
use turnbuckle_core::{Level, Micros, Promise, Protocol, Session};
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

/// The number of keys in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// As many as are drawn.
    Drawn,
    /// Two: operations on the same key follow each other closely. Some bugs are seldom seen otherwise.
    Two,
}

fn scenario(level: Level, keys: Keys, seed: u64) -> Scenario {
    let mut scenario = Draw::new(seed).suited_to(Dacian::DESCRIPTOR).scenario();
    if let (Keys::Two, Kind::Mixed(mixed)) = (keys, &mut scenario.load.kind) {
        (mixed.keys, mixed.once) = (2, 0);
    }
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
            _ => Loss::Process,
        };
        loss != Loss::Old
    });
    scenario
}

fn run(level: Level, keys: Keys, seed: u64, bug: Option<&str>) -> (Scenario, DacianConfig, Outcome) {
    let scenario = scenario(level, keys, seed);
    let mut config = scenario.parameters.config::<Dacian>();
    if let Some(bug) = bug {
        assert!(Dacian::plant(&mut config, bug), "no bug {bug}");
    }
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

fn keys() -> Keys {
    match std::env::var("KEYS").as_deref() {
        Ok("2") => Keys::Two,
        _ => Keys::Drawn,
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
        let (mut answered, mut claims, mut unjudged) = (0, 0, 0);
        let mut failed: BTreeMap<&str, u64> = BTreeMap::new();
        for seed in seeds() {
            let (scenario, config, outcome) = std::panic::catch_unwind(|| run(level, keys(), seed, None))
                .unwrap_or_else(|panic| {
                    println!("seed {seed} panics at {level}");
                    std::panic::resume_unwind(panic)
                });
            answered += outcome.tally.answered();
            for (word, count) in &outcome.tally.failures {
                *failed.entry(word).or_default() += count;
            }
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
            "{level}: {answered} answers, failures: {failed:?}, {claims} claims judged, {unjudged} not judged"
        );
        assert!(
            answered > 0 && claims > 0,
            "the worlds were too empty to show anything"
        );
    }
}

/// Worlds that broke a promise once, at `linearizable`: a follower's questions were never answered, because each answer took longer than the pause between two questions.
const ONCE_BROKEN: &[u64] = &[1338];

#[test]
fn worlds_that_broke_a_promise_once_keep_it() {
    for &seed in ONCE_BROKEN {
        let (_, _, outcome) = run(Level::Linearizable, Keys::Drawn, seed, None);
        assert!(
            outcome.violations.is_empty() && outcome.converged,
            "seed {seed}: {:?}",
            outcome.violations
        );
    }
}

fn is_wrong(level: Level, keys: Keys, seed: u64, bug: &str) -> bool {
    // Two leaders in one term are an invariant of the library that is broken.
    let found = std::panic::catch_unwind(|| run(level, keys, seed, Some(bug)).2);
    found.map_or(true, |outcome| {
        !outcome.violations.is_empty() || !outcome.converged || !against(level, &outcome).is_empty()
    })
}

/// These bugs are found by drawn worlds, each in a range of seeds that has such a world. `BUG=.. LEVEL=.. SEEDS=..` looks for other worlds.
#[test]
fn every_planted_bug_is_found() {
    let asked = std::env::var("BUG").ok();
    let bounded = Level::Bounded(Micros::from_millis(200));
    let (linearizable, two) = (Level::Linearizable, Keys::Two);
    let known = [
        ("keeps_no_votes", linearizable, two, 1..=20),
        ("syncs_nothing", linearizable, two, 245..=252),
        ("copies_ahead", linearizable, two, 1..=20),
        ("forgets_that_it_lost", linearizable, two, 310..=320),
        ("changes_at_once", linearizable, Keys::Drawn, 4885..=4895),
        ("drops_entries", linearizable, two, 1..=20),
        ("writes_twice", linearizable, two, 1..=30),
        ("forgets_proposed", linearizable, Keys::Drawn, 1..=10),
        ("stamps_at_arrival", bounded, two, 1..=50),
        ("ignores_seen", Level::PerKeyCausal, two, 1..=50),
        (
            "expires_by_own_clocks",
            Level::PartitionSequential,
            two,
            205..=215,
        ),
    ];
    let worlds = match asked.as_deref() {
        Some(bug) => vec![(bug, levels()[0], keys(), seeds())],
        None => known.to_vec(),
    };
    let mut missed = Vec::new();
    for (bug, level, keys, seeds) in worlds {
        match seeds.clone().find(|&seed| is_wrong(level, keys, seed, bug)) {
            Some(seed) => println!("{bug}: seed {seed}"),
            None => missed.push((bug, seeds)),
        }
    }
    assert!(missed.is_empty(), "not found in these seeds: {missed:?}");
}
