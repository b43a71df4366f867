//! What each rule of CausalSpartanX is for. Without the rule, worlds drawn from seeds show what it prevents; with it, the same worlds do not. Each
//! test searches for a seed that shows it, so that another order of events does not make the test blind. For two rules such worlds hardly ever show
//! anything: a version's own time, and line 21 of Algorithm 5.4. These have golden scripts: `goldens/causalspartanx-published` and
//! `goldens/causalspartanx-without-line-21`.
use std::ops::RangeInclusive;
use turnbuckle_causal::{
    CausalSpartanX, CausalSpartanXConfig, CausalSpartanXSession, CopsSession, EventualSession,
    GentleRainSession, causalspartanx::Departures,
};
use turnbuckle_core::{Micros, Protocol, ReplicaId, Session};
use turnbuckle_node::{Durability, Planted};
use turnbuckle_sim::{Draw, Keep, Kind, Mixed, Outcome, Rule, Scenario, Span, plant};

/// Worlds with many dependencies: several partitions and nodes, and clients that read before they write.
fn bent(seed: u64) -> Scenario {
    let mut draw = Draw::new(seed);
    draw.world.keyspaces = 1;
    let world = &mut draw.world;
    (world.nodes_per_site, world.partitions) = (2, 2);
    world.clock_offsets_us.resize(2 * world.sites.len(), 0);
    world.durability = Durability::Fsync;
    draw.safety = Micros::from_millis(2_000);
    draw.load.clients_per_node = 2;
    draw.load.think = Span::us(0, 5_000);
    draw.load.amplification = 1;
    draw.load.kind = Kind::Mixed(Mixed {
        keys: 12,
        writes: 40,
        deletes: 0,
        value_bytes: 10,
        careless: 0,
        ..Mixed::default()
    });
    draw.scenario()
}

fn run(scenario: &Scenario, departures: Departures) -> Outcome {
    let config = CausalSpartanXConfig {
        departures,
        ..scenario.parameters.config::<CausalSpartanX>()
    };
    scenario.run::<CausalSpartanXSession>(config, Keep::JUDGE_AND_TRACE)
}

/// What the checker and the judge found. The checker's session guarantees say little here: where the checker does not know all versions it goes by
/// real time, while the last writer is the one with the last stamp. The judge holds each session to what the session was shown.
fn found(outcome: &Outcome) -> Vec<String> {
    let report = outcome.check().expect("the trace is one");
    let counts = [
        ("causal", report.causal_violations.unwrap_or(0)),
        ("causal convergence", u64::from(report.causal.ccv == Some(false))),
    ];
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    let words = counts.map(|(promise, count)| format!("{count} against {promise}"));
    let judged = outcome.violations.iter().map(|violation| violation.words.clone());
    words.chain(judged).collect()
}

const MAX_SEEDS: u64 = 200;

/// Runs worlds until one shows that something is wrong, and then the same world with the rule.
fn is_caught(rule: &str, departures: Departures, bend: impl Fn(&mut Scenario)) {
    for seed in 1..=MAX_SEEDS {
        let mut scenario = bent(seed);
        bend(&mut scenario);
        let wrong = found(&run(&scenario, departures));
        if let Some(first) = wrong.first() {
            println!("without '{rule}': seed {seed}: {first}");
            scenario.world.planted = Planted::only("nothing").expect("there is no bug of that name");
            let right = found(&run(&scenario, Departures::default()));
            assert!(right.is_empty(), "seed {seed}, with '{rule}': {right:?}");
            return;
        }
    }
    panic!("'{rule}' was not missed in {MAX_SEEDS} worlds");
}

#[test]
fn visibility_that_ignores_an_entry_is_caught() {
    let departures = Departures {
        ignored_entry: Some(ReplicaId(0)),
        ..Departures::default()
    };
    is_caught("every entry counts", departures, |scenario| {
        // What the first site writes comes to the second one later than what other sites write that have read it.
        scenario.world.delays[0][1] = Micros::from_millis(300);
    });
}

#[test]
fn a_past_without_what_was_read_is_caught() {
    let departures = Departures {
        past_not_merged: true,
        ..Departures::default()
    };
    is_caught("what is read is part of the past", departures, |_| {});
}

#[test]
fn entries_out_of_timestamp_order_are_caught() {
    is_caught(
        "entries leave in timestamp order",
        Departures::default(),
        |scenario| {
            scenario.world.planted = Planted::only("outputs_swapped").expect("there is a bug of that name");
        },
    );
}

#[test]
fn collection_by_each_servers_own_dsv_is_caught() {
    let departures = Departures {
        collects_by_own_dsv: true,
        ..Departures::default()
    };
    is_caught("nobody collects what a snapshot shows", departures, |scenario| {
        scenario.load.kind = Kind::Mixed(Mixed {
            keys: 4,
            writes: 70,
            deletes: 0,
            value_bytes: 10,
            careless: 0,
            ..Mixed::default()
        });
    });
}

#[test]
fn a_token_with_what_was_stable_elsewhere_is_caught() {
    let departures = Departures {
        token_has_stable: true,
        ..Departures::default()
    };
    is_caught("a token carries the past alone", departures, |scenario| {
        scenario.load.roam_every = Some(3);
    });
}

/// A bug of a protocol, in worlds drawn as `turnbuckle sim` draws them, that breaks one of these rules.
fn is_found<S: Session>(bug: &str, rules: &[Rule]) {
    assert!(S::Protocol::BUGS.iter().any(|known| known.name == bug));
    is_found_among::<S>(bug, rules, 1..=40);
}

/// A bug of the nodes or of a protocol, in one of these worlds.
fn is_found_among<S: Session>(bug: &str, rules: &[Rule], seeds: RangeInclusive<u64>) {
    for seed in seeds {
        let scenario = Draw::new(seed).suited_to(S::Protocol::DESCRIPTOR).scenario();
        let right = scenario.parameters.config::<S::Protocol>();
        let (mut wrong, mut config) = (scenario.clone(), right.clone());
        assert!(plant::<S::Protocol>(&mut wrong.world, &mut config, bug));
        let keep = Keep {
            trace: false,
            ..Keep::JUDGE_AND_TRACE
        };
        let outcome = wrong.run::<S>(config, keep);
        let mut broken = outcome.violations.iter();
        if let Some(found) = broken.find(|violation| rules.contains(&violation.rule)) {
            println!("{bug}: seed {seed}: {found}");
            let outcome = scenario.run::<S>(right, keep);
            assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
            return;
        }
    }
    panic!("{bug} was not found");
}

fn conditions_on_nothing_are_found<S: Session>() {
    is_found::<S>("conditions_ignore_the_newest", &[Rule::Conditions]);
}

fn removals_of_what_was_not_seen_are_found<S: Session>() {
    is_found::<S>("removes_unseen", &[Rule::NothingLost, Rule::NothingUndone]);
}

#[test]
fn conditions_on_nothing_are_found_in_eventual() {
    conditions_on_nothing_are_found::<EventualSession>();
}

#[test]
fn conditions_on_nothing_are_found_in_causalspartanx() {
    conditions_on_nothing_are_found::<CausalSpartanXSession>();
}

#[test]
fn conditions_on_nothing_are_found_in_gentlerain() {
    conditions_on_nothing_are_found::<GentleRainSession>();
}

#[test]
fn conditions_on_nothing_are_found_in_cops() {
    conditions_on_nothing_are_found::<CopsSession>();
}

#[test]
fn removals_of_what_was_not_seen_are_found_in_eventual() {
    removals_of_what_was_not_seen_are_found::<EventualSession>();
}

#[test]
fn removals_of_what_was_not_seen_are_found_in_causalspartanx() {
    removals_of_what_was_not_seen_are_found::<CausalSpartanXSession>();
}

#[test]
fn removals_of_what_was_not_seen_are_found_in_gentlerain() {
    removals_of_what_was_not_seen_are_found::<GentleRainSession>();
}

/// A replica that has lost the newest shares in a power loss goes on from an older one than its peers have. Few worlds show it.
#[test]
fn differences_to_any_share_are_found_in_eventual() {
    is_found_among::<EventualSession>("builds_on_any_share", &[Rule::Convergence], 340..=348);
}
