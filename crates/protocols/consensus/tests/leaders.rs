//! Leaders that are deposed and do not know it: worlds in which replicas are cut off, paused and restarted again and again, for about as long as an election takes, while clients at all
//! sites read and write two keys.
use turnbuckle_consensus::{DacianConfig, DacianSession};
use turnbuckle_core::{Level, Micros, Protocol, Session};
use turnbuckle_node::NodeId;
use turnbuckle_raft::Timing;
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

/// Here one replica after the other is cut off for about two election timeouts. `slow_us` is the one-way delay, `drift_ppm` as above.
fn isolations(seed: u64, slow_us: u64, drift_ppm: i64) -> Scenario {
    let mut random = Random::new(seed);
    let mut world = WorldOptions::plain(["a", "b", "c"], Micros(slow_us));
    world.seed = seed;
    world.clock_drifts_ppm = vec![-drift_ppm, drift_ppm, drift_ppm];
    let mut isolated = |episode: u64| Fault {
        at: Micros(1_500_000 + 1_000_000 * episode + random.below(100_000)),
        span: Micros(2 * ELECTION.0),
        kind: FaultKind::Isolate {
            node: NodeId(random.below(3) as u16),
        },
    };
    let faults = (0..11).map(&mut isolated).collect();
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
            read_mix: None,
            write: None,
            roam_every: None,
            amplification: 1,
            pipeline: 1,
            visits: 0,
            away: 0,
            requests: None,
        },
        safety: Micros::from_millis(13_000),
        faults,
        parameters: Default::default(),
    }
}

fn run(scenario: &Scenario, drift: usize, bug: Option<&str>) -> (DacianConfig, Outcome) {
    let mut config = DacianConfig {
        timing: Timing {
            heartbeat: Micros::from_millis(50),
            election: ELECTION,
            drift,
        },
        patience: Micros::from_millis(1_000),
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

fn shows_nothing_old(worlds: impl Iterator<Item = Scenario>, drift: usize) {
    let mut answered = 0;
    for scenario in worlds {
        let (config, outcome) = run(&scenario, drift, None);
        answered += outcome.tally.answered();
        assert!(
            !is_wrong(&outcome) && outcome.converged,
            "seed {}:\n{}",
            scenario.world.seed,
            scenario.explain::<DacianSession>(&config, &outcome)
        );
    }
    assert!(answered > 10_000, "{answered} answers show little");
}

#[test]
fn no_leader_shows_old_data() {
    let far = (1..=8).map(|seed| isolations(seed, 45_000, 0));
    let worlds = (1..=8).map(|seed| scenario(seed, 0));
    shows_nothing_old(worlds.chain((1..=8).map(restarts)).chain(far), 10_000);
}

/// The slow clock runs at 0.9 of true time, and the fast ones at 1.1 of it.
#[test]
fn no_leader_shows_old_data_while_clocks_drift_within_the_bound() {
    shows_nothing_old((1..=10).map(|seed| isolations(seed, 500, DRIFT)), 200_000);
}

#[test]
fn bugs_of_leaders_are_found() {
    let mut missed = Vec::new();
    for bug in ["trusts_belief", "keeps_no_votes", "writes_twice"] {
        let found = (1..=15).find(|&seed| {
            let run = std::panic::catch_unwind(|| run(&scenario(seed, 0), 10_000, Some(bug)).1);
            run.map_or(true, |outcome| is_wrong(&outcome))
        });
        match found {
            Some(seed) => println!("{bug}: seed {seed}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
