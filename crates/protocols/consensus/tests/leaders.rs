//! Leaders that are deposed and do not know it: worlds in which replicas are cut off, paused and restarted again and again, for about as long as an election takes, while clients at all
//! sites read and write two keys.
use std::ops::RangeInclusive;
use turnbuckle_consensus::{DacianConfig, DacianSession};
use turnbuckle_core::{Level, Micros, Protocol, Session};
use turnbuckle_node::NodeId;
use turnbuckle_sim::{
    Fault, FaultKind, Keep, Kind, Load, Loss, Mixed, Outcome, Random, Scenario, Span, WorldOptions,
};

type Dacian = <DacianSession as Session>::Protocol;

const ELECTION: Micros = Micros::from_millis(300);

/// The most that a clock's rate can be off in a simulated world, in millionths.
const DRIFT: i64 = 100_000;

/// Three sites, half a millisecond apart. `drift_ppm`: by how much the first site's clock is slow, and the others' are fast.
fn scenario(seed: u64, drift_ppm: i64) -> Scenario {
    let mut random = Random::new(seed);
    let mut world = WorldOptions::plain(["a", "b", "c"], Micros(500));
    world.seed = seed;
    world.clock_drifts_ppm = vec![-drift_ppm, drift_ppm, drift_ppm];
    let mut faults = Vec::new();
    let mut at = Micros::from_millis(1_000);
    while at < Micros::from_millis(12_000) {
        let node = NodeId(random.below(3) as u16);
        let other = NodeId((node.0 + 1 + random.below(2) as u16) % 3);
        let long = Micros(random.of(10_000..=3 * ELECTION.0));
        let (kind, span) = match random.below(6) {
            0 => (FaultKind::Isolate { node }, long),
            1 => (FaultKind::Pause { node }, long),
            2 | 3 => (FaultKind::Cut { a: node, b: other }, long),
            4 => {
                let loss = Loss::Process;
                (FaultKind::Crash { node, loss }, Micros(random.of(1_000..=10_000)))
            }
            _ => {
                let (from, to, percent) = (node, other, 10_000);
                (FaultKind::SlowLink { from, to, percent }, long)
            }
        };
        faults.push(Fault { at, span, kind });
        at = at + Micros(random.of(1_000..=ELECTION.0));
    }
    with(world, faults)
}

/// Here one replica hears nothing of another one for long. Then the third, which does, is restarted and cut off from that one, too: it may vote for the first.
fn restarts(seed: u64) -> Scenario {
    let mut random = Random::new(seed);
    let mut world = WorldOptions::plain(["a", "b", "c"], Micros(500));
    world.seed = seed;
    let mut faults = Vec::new();
    for episode in 0..6 {
        let node = NodeId(random.below(3) as u16);
        let other = NodeId((node.0 + 1 + random.below(2) as u16) % 3);
        let third = NodeId(3 - node.0 - other.0);
        let at = Micros::from_millis(1_500 + 2_000 * episode);
        let restarted = at + Micros(random.of(2 * ELECTION.0..=3 * ELECTION.0));
        let loss = Loss::Process;
        for (at, span, kind) in [
            (at, 5 * ELECTION.0, FaultKind::Cut { a: node, b: other }),
            (restarted, 2 * ELECTION.0, FaultKind::Cut { a: node, b: third }),
            (restarted, 2_000, FaultKind::Crash { node: third, loss }),
        ] {
            let span = Micros(span);
            faults.push(Fault { at, span, kind });
        }
    }
    with(world, faults)
}

fn with(world: WorldOptions, faults: Vec<Fault>) -> Scenario {
    Scenario {
        name: "leaders".into(),
        world,
        load: Load {
            clients_per_node: 3,
            at: Vec::new(),
            after: Micros::from_millis(800),
            think: Span::us(0, 3_000),
            kind: Kind::Mixed(Mixed {
                keys: 2,
                writes: 30,
                ..Mixed::default()
            }),
            read: Some(Level::Linearizable),
            write: None,
            roam_every: None,
            amplification: 1,
            pipeline: 1,
            visits: 0,
            requests: None,
        },
        safety: Micros::from_millis(13_000),
        faults,
        parameters: Default::default(),
    }
}

fn run(scenario: &Scenario, drift: usize, bug: Option<&str>) -> (DacianConfig, Outcome) {
    let mut config = DacianConfig {
        heartbeat: Micros::from_millis(10),
        election: ELECTION,
        patience: Micros::from_millis(1_000),
        drift,
        ..DacianConfig::default()
    };
    if let Some(bug) = bug {
        assert!(Dacian::plant(&mut config, bug), "no bug {bug}");
    }
    let outcome = scenario.run::<DacianSession>(config.clone(), Keep::JUDGE_AND_TRACE);
    (config, outcome)
}

fn is_wrong(outcome: &Outcome) -> bool {
    let report = outcome.check().expect("the trace is valid");
    !outcome.violations.is_empty() || !report.against(Level::Linearizable).is_empty()
}

#[test]
fn no_leader_shows_old_data() {
    let mut answered = 0;
    let worlds = (1..=12)
        .map(|seed| scenario(seed, 0))
        .chain((1..=12).map(restarts));
    for scenario in worlds {
        let (config, outcome) = run(&scenario, 10_000, None);
        answered += outcome.tally.answered();
        assert!(
            !is_wrong(&outcome) && outcome.converged,
            "seed {}:\n{}",
            scenario.world.seed,
            scenario.explain::<DacianSession>(&config, &outcome)
        );
    }
    assert!(answered > 20_000, "{answered} answers show little");
}

/// The world of each seed.
type Worlds = fn(u64) -> Scenario;

/// Some of these bugs are seldom found in worlds that are drawn for all protocols.
#[test]
fn every_bug_of_leaders_is_found() {
    let mixed = |seed| scenario(seed, 0);
    let bugs: [(&str, Worlds, RangeInclusive<u64>); 5] = [
        ("trusts_belief", mixed, 1..=10),
        ("leases_from_arrival", mixed, 75..=85),
        ("votes_at_once", restarts, 10..=20),
        ("keeps_no_votes", mixed, 1..=10),
        ("writes_twice", mixed, 1..=10),
    ];
    let mut missed = Vec::new();
    for (bug, world, seeds) in bugs {
        let found = seeds.into_iter().find(|&seed| {
            let run = std::panic::catch_unwind(|| run(&world(seed), 10_000, Some(bug)).1);
            run.map_or(true, |outcome| is_wrong(&outcome))
        });
        match found {
            Some(seed) => println!("{bug}: seed {seed}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// The assumption of leases is real: if a leader's clock runs slower than the others' by more than the bound, it shows old data.
#[test]
fn a_clock_that_drifts_beyond_the_bound_breaks_the_promise() {
    let broken = |drift, seeds: RangeInclusive<u64>| {
        seeds
            .into_iter()
            .find(|&seed| is_wrong(&run(&scenario(seed, DRIFT), drift, None).1))
    };
    assert_ne!(broken(0, 55..=60), None);
    // The slow clock runs at 0.9 of true time, and the fast ones at 1.1 of it.
    assert_eq!(broken(200_000, 55..=64), None);
}
