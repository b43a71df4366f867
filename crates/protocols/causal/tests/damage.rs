//! Simulated worlds in which rows on disks are damaged while nodes crash and links are cut. They are bent so that tables are read again and again.
//! Every protocol keeps its promises in them. If a rule of the repair is left out, a protocol does not, and the tests notice it. `SEEDS=1..500` runs
//! other seeds.
use std::ops::RangeInclusive;
use turnbuckle_causal::{
    CausalSpartanX, CausalSpartanXConfig, CausalSpartanXSession, Cops, CopsConfig, CopsSession, Eventual,
    EventualConfig, EventualSession, GentleRain, GentleRainConfig, GentleRainSession,
};
use turnbuckle_core::{Micros, Protocol, Session, Settings};
use turnbuckle_node::NodeId;
use turnbuckle_sim::{
    Draw, Fault, FaultKind, Jitter, Keep, Kind, Loss, Mixed, Random, Scenario, Span, WorldOptions, plant,
};

type Config<S> = <<S as Session>::Protocol as Protocol>::Config;

fn seeds(usual: RangeInclusive<u64>) -> RangeInclusive<u64> {
    let Ok(seeds) = std::env::var("SEEDS") else {
        return usual;
    };
    let (from, until) = seeds.split_once("..").expect("SEEDS=first..last");
    from.parse().expect("a number")..=until.parse().expect("a number")
}

/// Little memory, many checkpoints, deletes, and damaged rows at one site; crashes and cuts beside that, in some worlds also clocks that jump.
fn world(seed: u64) -> Scenario {
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9));
    let mut draw = Draw::new(seed);
    draw.world.keyspaces = 1;
    draw.fault_every = None;
    draw.safety = Micros::from_millis(4_000);
    draw.load.clients_per_node = 2;
    draw.load.think = Span::us(1_000, *random.pick(&[10_000, 60_000]));
    draw.load.amplification = 1;
    draw.load.kind = Kind::Mixed(Mixed {
        keys: *random.pick(&[40, 300]),
        writes: 40,
        deletes: *random.pick(&[5, 40]),
        value_bytes: *random.pick(&[10, 100]),
        ..Mixed::default()
    });
    let mut scenario = draw.scenario();
    scenario.parameters = Settings::from([
        ("heartbeat", Micros::from_millis(20)),
        ("theta", Micros::from_millis(5)),
    ]);
    let sites = &["a", "b", "c"][..random.of(2..=3) as usize];
    let nodes_per_site = random.of(1..=2) as usize;
    let world = &mut scenario.world;
    *world = WorldOptions::plain(sites.iter().copied(), Micros::from_millis(random.of(1..=40)));
    world.seed = seed;
    world.jitter = Jitter::Uniform(Micros(random.of(100..=5_000)));
    (world.nodes_per_site, world.partitions) = (nodes_per_site, random.of(nodes_per_site as u64..=2) as u16);
    world.memory_limit_bytes = *random.pick(&[1 << 10, 8 << 10]);
    // A row that is damaged before any peer has it, and that is no longer in the log, is lost.
    world.retained_log_bytes = 8 << 20;
    world.checkpoint_interval = Micros::from_millis(*random.pick(&[50, 300]));
    world.segment_bytes = 1 << 10;
    world.disk = Span::us(0, *random.pick(&[0, 2_000, 20_000]));
    world.batch_keys = *random.pick(&[1, 5, 512]);
    world.patience = Micros::from_millis(*random.pick(&[100, 2_000]));
    let nodes = (sites.len() * nodes_per_site) as u64;
    let damaged_site = random.below(sites.len() as u64);
    let mut at = 500;
    while at < 3_700 {
        let node = NodeId(random.below(nodes) as u16);
        let other = NodeId(random.below(nodes) as u16);
        let kind = match random.below(6) {
            0 | 1 => FaultKind::Damage {
                node: NodeId(
                    (damaged_site * nodes_per_site as u64 + random.below(nodes_per_site as u64)) as u16,
                ),
                rows: *random.pick(&[1, 5, 1_000]),
            },
            2 => FaultKind::Crash {
                node,
                loss: *random.pick(&[Loss::Process, Loss::Power]),
            },
            3 if node != other => FaultKind::Cut { a: node, b: other },
            4 => FaultKind::Isolate { node },
            _ => FaultKind::Checkpoint { node },
        };
        scenario.faults.push(Fault {
            at: Micros::from_millis(at),
            span: Micros::from_millis(random.of(1..=600)),
            kind,
        });
        at += random.of(20..=400);
    }
    if random.percent(50) {
        let jumps: Vec<Fault> = scenario.faults.iter().filter_map(jump_beside).collect();
        scenario.faults.extend(jumps);
    }
    scenario
}

/// While rows of a node are damaged, its wall clock is an hour ahead.
fn jump_beside(fault: &Fault) -> Option<Fault> {
    let FaultKind::Damage { node, .. } = fault.kind else {
        return None;
    };
    let by_us = 3_600_000_000;
    Some(Fault {
        kind: FaultKind::ClockJump { node, by_us },
        ..fault.clone()
    })
}

fn wrong<S: Session>(scenario: &Scenario, config: Config<S>) -> Vec<String> {
    let outcome = scenario.run::<S>(config, Keep::JUDGE_AND_TRACE);
    let judged = outcome.violations.iter().map(|violation| violation.words.clone());
    let report = outcome
        .check_careful(turnbuckle_core::Level::Causal)
        .expect("the trace is one");
    let is_causal = S::LEVELS.reads[0].promise().is_causal();
    let violations = report.causal_violations.filter(|_| is_causal).unwrap_or(0);
    let checked = (violations > 0).then(|| format!("{violations} against causal consistency"));
    judged.chain(checked).collect()
}

fn keeps_its_promises<S: Session>(config: impl Fn(&Scenario) -> Config<S>) {
    for seed in seeds(1..=5) {
        let scenario = world(seed);
        let wrong = wrong::<S>(&scenario, config(&scenario));
        let faults = scenario.faults.iter();
        let faults: Vec<_> = faults
            .map(|fault| format!("at {} for {}: {:?}", fault.at, fault.span, fault.kind))
            .collect();
        let count = wrong.len();
        assert!(
            wrong.is_empty(),
            "seed {seed}: {:#?} of {count}\n{faults:#?}\n{:?}",
            &wrong[..count.min(5)],
            scenario.world
        );
    }
}

/// Runs worlds until one shows that something is wrong.
fn is_caught<S: Session>(bug: &str, config: impl Fn(&Scenario) -> Config<S>) {
    for seed in seeds(1..=60) {
        let mut scenario = world(seed);
        let mut bugged = config(&scenario);
        assert!(
            plant::<S::Protocol>(&mut scenario.world, &mut bugged, bug),
            "there is a bug '{bug}'"
        );
        if let Some(first) = wrong::<S>(&scenario, bugged).first() {
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
fn eventual_keeps_its_promises() {
    keeps_its_promises::<EventualSession>(eventual);
}

#[test]
fn causalspartanx_keeps_its_promises() {
    keeps_its_promises::<CausalSpartanXSession>(causalspartanx);
}

#[test]
fn gentlerain_keeps_its_promises() {
    keeps_its_promises::<GentleRainSession>(gentlerain);
}

#[test]
fn cops_keeps_its_promises() {
    keeps_its_promises::<CopsSession>(cops);
}

/// A world drawn from a seed. The first copy is in place, so a peer that was asked before is asked again, while its copy is under way. If that copy
/// were taken as well as the one that answers the second word, the peer would be told twice where its stream continues: "expected a mark after
/// entries that have arrived".
#[test]
fn a_peer_that_is_asked_again_while_its_copy_is_under_way_is_taken_at_the_last_word() {
    let scenario = Draw::new(17_679).scenario();
    let wrong = wrong::<CausalSpartanXSession>(&scenario, causalspartanx(&scenario));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_damage_left_is_not_everything() {
    is_caught::<EventualSession>("serves_what_damage_left", eventual);
    is_caught::<CausalSpartanXSession>("serves_what_damage_left", causalspartanx);
}

/// A peer that has not received what this side had cannot restore it.
#[test]
fn a_copy_of_who_has_heard_less_is_not_enough() {
    is_caught::<EventualSession>("repaired_by_any_copy", eventual);
}

/// The clock is an hour ahead while the node is opened again, and right again a moment later.
#[test]
fn a_node_that_is_opened_anew_keeps_its_clock() {
    is_caught::<EventualSession>("opens_with_a_new_clock", eventual);
}
