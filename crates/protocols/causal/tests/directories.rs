//! Simulated worlds in which nodes lose their data directories, get old copies of them or lose power alone in their site. They are bent so that
//! deletes are forgotten and lost versions sent back. Every protocol keeps its promises in them. If one of its rules is left out, it does not, and
//! the tests notice it. `SEEDS=1..500` runs other seeds.
use std::ops::RangeInclusive;
use turnbuckle_causal::{
    CausalSpartanX, CausalSpartanXConfig, CausalSpartanXSession, Cops, CopsConfig, CopsSession, Eventual,
    EventualConfig, EventualSession, GentleRain, GentleRainConfig, GentleRainSession,
};
use turnbuckle_core::{Micros, Protocol, Session, Settings};
use turnbuckle_node::{Durability, NodeId};
use turnbuckle_sim::{
    Draw, Fault, FaultKind, Jitter, Keep, Kind, Loss, Mixed, Outcome, Random, Scenario, Span, WorldOptions,
    plant,
};

type Config<S> = <<S as Session>::Protocol as Protocol>::Config;

fn run<S: Session>(scenario: &Scenario, config: Config<S>) -> Vec<String> {
    let is_causal = S::LEVELS.reads[0].promise().is_causal();
    found(&scenario.run::<S>(config, Keep::JUDGE_AND_TRACE), is_causal)
}

fn found(outcome: &Outcome, is_causal: bool) -> Vec<String> {
    let judged = outcome.violations.iter().map(|violation| violation.words.clone());
    let report = outcome
        .check_careful(turnbuckle_core::Level::Causal)
        .expect("the trace is one");
    let violations = report.causal_violations.filter(|_| is_causal).unwrap_or(0);
    let checked = (violations > 0).then(|| format!("{violations} against causal consistency"));
    judged.chain(checked).collect()
}

fn seeds(usual: RangeInclusive<u64>) -> RangeInclusive<u64> {
    let Ok(seeds) = std::env::var("SEEDS") else {
        return usual;
    };
    let (from, until) = seeds.split_once("..").expect("SEEDS=first..last");
    from.parse().expect("a number")..=until.parse().expect("a number")
}

fn fault(at_ms: u64, span_ms: u64, kind: FaultKind) -> Fault {
    Fault {
        at: Micros::from_millis(at_ms),
        span: Micros::from_millis(span_ms),
        kind,
    }
}

/// Few keys, many deletes, and frequent checkpoints.
fn base(seed: u64, sites: &[&str], delay_ms: u64, nodes_per_site: usize) -> (Scenario, Random) {
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9));
    let mut draw = Draw::new(seed);
    draw.world.keyspaces = 1;
    draw.fault_every = None;
    draw.safety = Micros::from_millis(8_000);
    draw.load.clients_per_node = 2;
    draw.load.think = Span::us(1_000, 60_000);
    draw.load.amplification = 1;
    draw.load.roam_every = random.percent(30).then_some(5);
    draw.load.kind = Kind::Mixed(Mixed {
        keys: 40,
        writes: 40,
        deletes: 40,
        value_bytes: 10,
        ..Mixed::default()
    });
    let mut scenario = draw.scenario();
    scenario.parameters = Settings::from([
        ("heartbeat", Micros::from_millis(20)),
        ("theta", Micros::from_millis(5)),
    ]);
    scenario.world = WorldOptions::plain(sites.iter().copied(), Micros::from_millis(delay_ms));
    scenario.world.seed = seed;
    scenario.world.jitter = Jitter::Uniform(Micros(random.of(100..=5_000)));
    (scenario.world.nodes_per_site, scenario.world.partitions) = (nodes_per_site, nodes_per_site as u16);
    let nodes = (sites.len() * nodes_per_site) as u16;
    for at in (500..8_000).step_by(300) {
        let node = NodeId(random.below(nodes.into()) as u16);
        scenario.faults.push(fault(at, 0, FaultKind::Checkpoint { node }));
    }
    (scenario, random)
}

/// b and c do not hear each other for seconds, and b loses its directory.
fn cut_and_lost(seed: u64) -> Scenario {
    let (mut scenario, mut random) = base(seed, &["a", "b", "c"], 10, 1);
    let (b, c) = (NodeId(1), NodeId(2));
    let lost_at = random.of(4_000..=6_500);
    let loss = Loss::Directory;
    scenario.faults.push(fault(
        random.of(200..=1_500),
        6_000,
        FaultKind::Cut { a: b, b: c },
    ));
    scenario.faults.push(fault(
        lost_at,
        random.of(1..=500),
        FaultKind::Crash { node: b, loss },
    ));
    scenario
}

/// One of the two nodes of a site loses its directory or, in a power loss, what is not on its disk.
fn one_of_two(seed: u64) -> Scenario {
    let (mut scenario, mut random) = base(seed, &["a", "b"], 40, 2);
    scenario.world.durability = *random.pick(&[
        Durability::Fsync,
        Durability::Interval(Micros::from_millis(500)),
        Durability::Interval(Micros::from_millis(5_000)),
    ]);
    for at in [1_500, 3_500, 5_500] {
        let node = NodeId(random.below(4) as u16);
        let loss = *random.pick(&[Loss::Directory, Loss::Power]);
        let at = at + random.below(1_000);
        scenario
            .faults
            .push(fault(at, random.of(1..=100), FaultKind::Crash { node, loss }));
    }
    scenario
}

/// One of the two nodes of a site loses its directory. Its disk is slow: it takes longer to put the restored data in place than a request may wait.
fn slow_disk(seed: u64) -> Scenario {
    let (mut scenario, mut random) = base(seed, &["a", "b", "c"], 10, 2);
    let node = random.below(6) as u16;
    scenario.load.roam_every = Some(5);
    scenario.world.disk = Span::fixed(Micros::from_millis(1));
    scenario.world.disk_percents = vec![100; 6];
    scenario.world.disk_percents[usize::from(node)] = random.of(5_000..=20_000);
    let (node, loss) = (NodeId(node), Loss::Directory);
    scenario.faults.push(fault(
        random.of(2_000..=4_000),
        random.of(1..=100),
        FaultKind::Crash { node, loss },
    ));
    scenario
}

/// A node is started with a copy of its directory from seconds ago.
fn old(seed: u64) -> Scenario {
    let (mut scenario, mut random) = base(seed, &["a", "b", "c"], 10, 1);
    let node = NodeId(random.below(3) as u16);
    scenario
        .faults
        .push(fault(random.of(1_200..=2_000), 0, FaultKind::Backup { node }));
    let loss = Loss::Old;
    scenario.faults.push(fault(
        random.of(5_500..=7_000),
        random.of(1..=500),
        FaultKind::Crash { node, loss },
    ));
    scenario
}

/// Reports from the root of a site's tree are lost: the site's partitions do not know the same to be stable.
fn deaf(seed: u64) -> Scenario {
    let (mut scenario, mut random) = base(seed, &["a", "b"], 20, 2);
    scenario.load.think = Span::us(500, 10_000);
    for (from, to) in [(0, 1), (2, 3)] {
        let (from, to) = (NodeId(from), NodeId(to));
        let at = random.of(300..=1_000);
        let kind = FaultKind::Loss {
            from,
            to,
            ppm: 1_000_000,
        };
        scenario.faults.push(fault(at, random.of(2_000..=5_000), kind));
    }
    scenario
}

/// A scenario as the swarm draws it, with only those faults that are `allowed`.
fn drawn(seed: u64, allowed: fn(&FaultKind) -> bool) -> Scenario {
    let mut scenario = Draw::new(seed).scenario();
    scenario.faults.retain(|fault| allowed(&fault.kind));
    scenario
}

fn keeps_its_promises<S: Session>(config: impl Fn(&Scenario) -> Config<S>, allowed: fn(&FaultKind) -> bool) {
    for seed in seeds(1..=2) {
        let bends = [cut_and_lost, one_of_two, slow_disk, old, deaf].map(|bend| bend(seed));
        for scenario in bends.into_iter().chain([drawn(seed, allowed)]) {
            let outcome = scenario.run::<S>(config(&scenario), Keep::JUDGE_AND_TRACE);
            let wrong: Vec<_> = outcome
                .violations
                .iter()
                .map(|violation| violation.words.clone())
                .collect();
            let faults = scenario.faults.iter();
            let faults = faults.filter(|fault| !matches!(fault.kind, FaultKind::Checkpoint { .. }));
            let faults: Vec<_> = faults
                .map(|fault| format!("at {} for {}: {:?}", fault.at, fault.span, fault.kind))
                .collect();
            assert!(
                wrong.is_empty(),
                "seed {seed}: {wrong:#?}\n{faults:#?}\n{:?}",
                scenario.world
            );
        }
    }
}

/// Runs worlds until one shows that something is wrong, and then the same world without the bug.
fn is_caught<S: Session>(bug: &str, bend: impl Fn(u64) -> Scenario, config: impl Fn(&Scenario) -> Config<S>) {
    for seed in seeds(1..=40) {
        let right = bend(seed);
        let mut wrong = right.clone();
        let mut bugged = config(&wrong);
        assert!(
            plant::<S::Protocol>(&mut wrong.world, &mut bugged, bug),
            "there is a bug '{bug}'"
        );
        if let Some(first) = run::<S>(&wrong, bugged).first() {
            // The finding must be due to the bug.
            let without = run::<S>(&right, config(&right));
            assert!(without.is_empty(), "seed {seed}, without the bug: {without:#?}");
            println!("{bug} is caught by seed {seed}: {first}");
            return;
        }
    }
    panic!("{bug} was not noticed");
}

fn causalspartanx(scenario: &Scenario) -> CausalSpartanXConfig {
    scenario.parameters.config::<CausalSpartanX>()
}

fn gentlerain(scenario: &Scenario) -> GentleRainConfig {
    scenario.parameters.config::<GentleRain>()
}

fn cops(scenario: &Scenario) -> CopsConfig {
    scenario.parameters.config::<Cops>()
}

fn eventual(scenario: &Scenario) -> EventualConfig {
    scenario.parameters.config::<Eventual>()
}

#[test]
fn causalspartanx_keeps_its_promises() {
    keeps_its_promises::<CausalSpartanXSession>(causalspartanx, |_| true);
}

#[test]
fn gentlerain_keeps_its_promises() {
    // GentleRain goes by raw clocks, and does not claim to tolerate that they are set.
    let allowed = |kind: &FaultKind| !matches!(kind, FaultKind::ClockStep { .. });
    keeps_its_promises::<GentleRainSession>(gentlerain, allowed);
}

#[test]
fn cops_keeps_its_promises() {
    keeps_its_promises::<CopsSession>(cops, |_| true);
}

#[test]
fn eventual_keeps_its_promises() {
    keeps_its_promises::<EventualSession>(eventual, |_| true);
}

#[test]
fn deletes_that_are_forgotten_early_are_caught() {
    const BUG: &str = "forgets_deletes_early";
    is_caught::<CausalSpartanXSession>(BUG, cut_and_lost, causalspartanx);
    is_caught::<GentleRainSession>(BUG, cut_and_lost, gentlerain);
    is_caught::<CopsSession>(BUG, cut_and_lost, cops);
    is_caught::<EventualSession>(BUG, cut_and_lost, eventual);
}

/// The log of another site still holds a version that the node itself had deleted.
#[test]
fn a_log_replayed_to_the_empty_is_caught() {
    const BUG: &str = "replays_to_the_empty";
    is_caught::<EventualSession>(BUG, old, eventual);
}

#[test]
fn answers_above_what_a_partition_has_are_caught() {
    // With two sites, everything that was lost comes before the first mark of the other one: a replica that waits for that mark does not need the
    // rule.
    const BUG: &str = "answers_above_what_it_has,stamps_unheard";
    is_caught::<CausalSpartanXSession>(BUG, one_of_two, causalspartanx);
    is_caught::<GentleRainSession>(BUG, one_of_two, gentlerain);
    is_caught::<CopsSession>(BUG, one_of_two, cops);
}

#[test]
fn answers_before_a_slow_copy_is_in_place_are_caught() {
    is_caught::<CopsSession>("answers_before_a_copy", slow_disk, cops);
}

#[test]
fn an_old_directory_that_is_served_is_caught() {
    const BUG: &str = "serves_an_old_directory";
    is_caught::<CausalSpartanXSession>(BUG, old, causalspartanx);
    is_caught::<GentleRainSession>(BUG, old, gentlerain);
    is_caught::<CopsSession>(BUG, old, cops);
    is_caught::<EventualSession>(BUG, old, eventual);
}

/// A site that had lost its directory was filled by sites where a counted key was over, without the shares of that key. Its own copy then took a part of them from a site that still had them all, and the rest came
/// back. This drawn world showed it.
#[test]
fn a_copy_takes_no_part_of_what_is_over() {
    let scenario = Draw::new(333).suited_to(Eventual::DESCRIPTOR).scenario();
    let wrong = run::<EventualSession>(&scenario, eventual(&scenario));
    assert!(wrong.is_empty(), "{wrong:#?}");
}
