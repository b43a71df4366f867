//! Drawn worlds at each level. `LEVEL=atomic SEEDS=1..1000` runs one level, and other seeds. With `BUG=skips_write_back` they are the worlds in which that bug
//! is looked for, and with `KEYS=2` these worlds have two keys.
use std::ops::RangeInclusive;
use turnbuckle_core::{Bug, Level, Micros, Protocol, Session};
use turnbuckle_quorum::{QuorumConfig, QuorumSession, SiblingsSession};
use turnbuckle_sim::{Draw, FaultKind, Keep, Kind, Loss, Outcome, Scenario};

const LEVELS: &[&str] = &[
    "one",
    "quorum",
    "all",
    "replicas(2)",
    "atomic",
    "cpq(0.5)",
    "delay(20ms)",
    "bounded(20ms)",
    "bounded(200ms)",
    "bounded(2s)",
    "per-key-sequential",
    "sequential",
];

const LEVELS_WITH_SIBLINGS: &[&str] = &[
    "one",
    "quorum",
    "all",
    "replicas(2)",
    "cpq(0.5)",
    "delay(20ms)",
    "bounded(200ms)",
];

/// The sessions of one of the two kinds.
trait OfQuorum: Session<Protocol: Protocol<Config = QuorumConfig>> {}

impl OfQuorum for QuorumSession {}
impl OfQuorum for SiblingsSession {}

fn scenario<S: OfQuorum>(level: Level, seed: u64) -> Scenario {
    let mut scenario = Draw::new(seed).suited_to(S::Protocol::DESCRIPTOR).scenario();
    scenario.load.read = Some(level);
    scenario.load.write = level.is_among(S::LEVELS.writes).then_some(level);
    let is_old = |kind: &FaultKind| matches!(kind, FaultKind::Crash { loss: Loss::Old, .. });
    scenario.faults.retain(|fault| !is_old(&fault.kind));
    scenario
}

/// How many keys the worlds have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// As many as are drawn.
    Drawn,
    /// Two: operations on the same key follow each other closely. Some bugs are seldom seen otherwise.
    Two,
}

fn run<S: OfQuorum>(
    level: Level,
    seed: u64,
    keys: Keys,
    bug: Option<&str>,
) -> (Scenario, QuorumConfig, Outcome) {
    let mut scenario = scenario::<S>(level, seed);
    if let (Keys::Two, Kind::Mixed(mixed)) = (keys, &mut scenario.load.kind) {
        (mixed.keys, mixed.fresh, mixed.once) = (2, 0, 0);
    }
    let mut config = scenario.parameters.config::<S::Protocol>();
    if let Some(bug) = bug {
        assert!(S::Protocol::plant(&mut config, bug), "no bug {bug}");
    }
    let outcome = scenario.run::<S>(config, Keep::JUDGE_AND_TRACE);
    (scenario, config, outcome)
}

/// What the checker says against the level, by name and number. Empty if nothing.
fn against(level: Level, outcome: &Outcome) -> Vec<(&'static str, u64)> {
    // Some reads are at `bounded(t)` in any case, and promise no order.
    let report = match level.promise().is_causal() {
        true => outcome.check_careful(level),
        false => outcome.check(),
    };
    let report = report.expect("the trace is valid");
    let found = report
        .against(level)
        .into_iter()
        .chain([("broken promises", u64::from(report.has_broken_promises()))]);
    found.filter(|(_, count)| *count > 0).collect()
}

fn is_wrong(level: Level, outcome: &Outcome) -> bool {
    !outcome.violations.is_empty() || !outcome.converged || !against(level, outcome).is_empty()
}

fn levels(all: &[&str]) -> Vec<Level> {
    let parse = |level: &str| level.parse().expect("a level");
    match std::env::var("LEVEL") {
        Ok(level) => vec![parse(&level)],
        Err(_) => all.iter().map(|level| parse(level)).collect(),
    }
}

fn seeds() -> RangeInclusive<u64> {
    let seeds = std::env::var("SEEDS").unwrap_or("1..15".into());
    let (first, last) = seeds.split_once("..").expect("SEEDS=first..last");
    first.parse().expect("a number")..=last.parse().expect("a number")
}

fn keys() -> Keys {
    match std::env::var("KEYS").as_deref() {
        Ok("2") => Keys::Two,
        _ => Keys::Drawn,
    }
}

#[test]
fn every_drawn_world_keeps_its_promises_at_every_level() {
    keeps_its_promises::<QuorumSession>(LEVELS);
}

#[test]
fn every_drawn_world_with_siblings_keeps_its_promises_at_every_level() {
    keeps_its_promises::<SiblingsSession>(LEVELS_WITH_SIBLINGS);
}

fn keeps_its_promises<S: OfQuorum>(all: &[&str]) {
    for level in levels(all) {
        let (mut answered, mut failed, mut claims, mut unjudged) = (0, 0, 0, 0);
        for seed in seeds() {
            let (scenario, config, outcome) =
                std::panic::catch_unwind(|| run::<S>(level, seed, Keys::Drawn, None)).unwrap_or_else(
                    |panic| {
                        println!("seed {seed} panics at {level}");
                        std::panic::resume_unwind(panic)
                    },
                );
            answered += outcome.tally.answered();
            failed += outcome.tally.failed();
            claims += outcome.claims.judged;
            unjudged += outcome.claims.not_judged.values().sum::<u64>();
            assert!(
                !is_wrong(level, &outcome),
                "seed {seed} at {level}: {:?}\n{}\nREPRODUCE WITH: LEVEL='{level}' SEEDS={seed}..{seed} cargo test -p turnbuckle-quorum swarm",
                against(level, &outcome),
                scenario.explain::<S>(&config, &outcome),
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

/// Each bug that drawn worlds must find is found, in a range of seeds that has such a world.
#[test]
fn every_planted_bug_is_found() {
    finds_bugs::<QuorumSession>(&[
        ("counts_one_too_many", Level::Quorum, Keys::Drawn, 10..=20),
        ("forgets_deletes_early", Level::Quorum, Keys::Drawn, 165..=175),
        ("skips_write_back", Level::Atomic, Keys::Two, 490..=500),
        ("stamps_without_asking", Level::Atomic, Keys::Two, 665..=675),
        (
            "stamps_at_arrival",
            Level::Bounded(Micros::from_millis(200)),
            Keys::Two,
            20..=30,
        ),
        (
            "compares_nothing",
            Level::Bounded(Micros::from_millis(200)),
            Keys::Drawn,
            25..=110,
        ),
        ("ignores_seen", Level::PerKeySequential, Keys::Drawn, 35..=45),
        ("trusts_clocks", Level::PerKeySequential, Keys::Drawn, 30..=40),
        ("shows_newest", Level::Sequential, Keys::Drawn, 1..=300),
        ("leaves_one_out", Level::Sequential, Keys::Drawn, 1..=300),
        ("guesses_the_past", Level::Sequential, Keys::Two, 105..=115),
    ]);
}

#[test]
fn every_planted_bug_is_found_with_siblings() {
    finds_bugs::<SiblingsSession>(&[
        ("counts_one_too_many", Level::Quorum, Keys::Drawn, 30..=40),
        ("forgets_deletes_early", Level::Quorum, Keys::Drawn, 165..=175),
        (
            "stamps_at_arrival",
            Level::Bounded(Micros::from_millis(200)),
            Keys::Two,
            35..=45,
        ),
        (
            "compares_nothing",
            Level::Bounded(Micros::from_millis(200)),
            Keys::Drawn,
            35..=45,
        ),
        ("replaces_unseen", Level::Quorum, Keys::Drawn, 1..=100),
        ("answers_with_newest", Level::Quorum, Keys::Two, 155..=165),
        ("shows_one_sibling", Level::Quorum, Keys::Drawn, 1..=100),
    ]);
}

/// A bug, and the level, keys and seeds of worlds that must find it.
type Planted<'a> = (&'a str, Level, Keys, RangeInclusive<u64>);

fn finds_bugs<S: OfQuorum>(worlds: &[Planted<'_>]) {
    let known: &[Bug] = S::Protocol::BUGS;
    let mut planted: Vec<&str> = worlds.iter().map(|(bug, ..)| *bug).collect();
    let mut all: Vec<&str> = known.iter().map(|bug| bug.name).collect();
    planted.sort_unstable();
    all.sort_unstable();
    assert_eq!(planted, all);
    let asked = std::env::var("BUG").ok();
    let asked = asked
        .as_deref()
        .map(|bug| [(bug, levels(LEVELS)[0], keys(), seeds())]);
    let mut missed = Vec::new();
    for (bug, level, keys, seeds) in asked.as_ref().map_or(worlds, |asked| asked) {
        let is_found = |&seed: &u64| is_wrong(*level, &run::<S>(*level, seed, *keys, Some(bug)).2);
        match seeds.clone().find(is_found) {
            Some(seed) => {
                println!("{bug}: seed {seed}");
                let without = run::<S>(*level, seed, *keys, None).2;
                assert!(
                    !is_wrong(*level, &without),
                    "seed {seed} is wrong without {bug}, too"
                );
            }
            None => missed.push((bug, seeds)),
        }
    }
    assert!(missed.is_empty(), "not found in these seeds: {missed:?}");
}
