//! Planted bugs: drawn worlds notice each of them. Directed scripts, one for each, are among the golden scripts of the causal protocols
//! (`goldens/planted`). The same seeds without a bug are in `swarm.rs`.
use turnbuckle_causal::eventual::{Eventual, EventualSession};
use turnbuckle_core::Micros;
use turnbuckle_node::{Durability, NodeId};
use turnbuckle_sim::{Draw, Fault, FaultKind, Jitter, Keep, Kind, Loss, Mixed, Scenario, Span, plant};

/// Runs worlds, from this seed on, until one reports what is expected for this bug.
fn is_caught(bug: &str, first: u64, expected: &[&str]) {
    is_caught_in(bug, first, expected, |draw| draw.scenario());
}

/// The same in worlds that are changed so that the bug has an effect. Some bugs show only together: `one+another`.
fn is_caught_in(bug: &str, first: u64, expected: &[&str], bend: impl Fn(Draw) -> Scenario) {
    const MAX_SEEDS: u64 = 50;
    for seed in first..first + MAX_SEEDS {
        let right = bend(Draw::new(seed));
        let config = right.parameters.config::<Eventual>();
        let (mut wrong, mut bugged) = (right.clone(), config);
        assert!(
            plant::<Eventual>(&mut wrong.world, &mut bugged, bug),
            "there is no bug '{bug}'"
        );
        let keep = Keep {
            trace: false,
            ..Keep::JUDGE_AND_TRACE
        };
        let outcome = wrong.run::<EventualSession>(bugged, keep);
        let found = outcome
            .violations
            .iter()
            .find(|violation| expected.iter().any(|text| violation.words.contains(text)));
        if let Some(found) = found {
            println!("{bug} is caught by seed {seed}: {found}");
            let outcome = right.run::<EventualSession>(config, keep);
            assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
            return;
        }
    }
    panic!("{bug} was not noticed in {MAX_SEEDS} worlds from seed {first} on");
}

#[test]
fn a_mark_that_overtakes_the_stream_is_caught_as_a_false_receipt() {
    is_caught("marks_overtake", 0, &["claims to reflect"]);
}

#[test]
fn outputs_in_the_wrong_order_are_caught_as_a_false_receipt() {
    is_caught("outputs_swapped", 0, &["claims to reflect"]);
}

#[test]
fn a_copy_that_merges_is_caught_as_a_deleted_key_that_comes_back() {
    let expected = ["had shown version", "claims to reflect", "the sites differ"];
    is_caught_in("forgets_deletes_early,copy_merges", 0, &expected, |mut draw| {
        // A node that is away for long needs a copy, and much may have been deleted meanwhile.
        draw.world.retained_log_bytes = 0;
        draw.world.checkpoint_log_bytes = 2 << 10;
        draw.world.segment_bytes = 1 << 10;
        draw.world.stream.tail_bytes = 200;
        draw.world.work = Span::us(100, 2_000);
        draw.world.jitter = Jitter::Uniform(Micros::from_millis(20));
        draw.outage = Span::us(50_000, 500_000);
        draw.load.think = Span::us(0, 5_000);
        draw.load.kind = Kind::Mixed(Mixed {
            keys: 100,
            writes: 50,
            deletes: 50,
            value_bytes: 100,
            careless: 0,
            ..Mixed::default()
        });
        draw.safety = Micros::from_millis(2_000);
        draw.scenario()
    });
}

#[test]
fn positions_used_twice_are_caught_as_sites_that_differ() {
    // A peer skips what it takes for entries that it has.
    let expected = ["the sites differ", "lost version", "cannot use a frame of"];
    is_caught_in("positions_reused", 0, &expected, |mut draw| {
        // Power failures take what peers have got.
        draw.power = true;
        draw.world.durability = Durability::None;
        draw.load.think = Span::us(0, 5_000);
        draw.outage = Span::us(50_000, 200_000);
        draw.fault_every = Some(Micros::from_millis(500));
        draw.scenario()
    });
}

#[test]
fn an_answer_before_it_is_durable_is_caught_as_undone_by_a_crash() {
    is_caught("answers_early", 20, &["had shown version", "lost version"]);
}

#[test]
fn an_entry_dropped_after_a_restart_is_caught_as_sites_that_differ() {
    is_caught("drops_after_restart", 0, &["the sites differ", "lost version"]);
}

#[test]
fn a_clock_that_goes_back_in_a_restart_is_caught_as_a_write_that_is_undone() {
    let expected = [
        "had shown version",
        "has two versions",
        "the sites differ",
        "which it had acknowledged before",
    ];
    is_caught_in("clock_goes_back", 0, &expected, |mut draw| {
        draw.load.think = Span::us(0, 5_000);
        draw.load.kind = Kind::Mixed(Mixed {
            keys: 100,
            writes: 50,
            deletes: 50,
            value_bytes: 10,
            careless: 0,
            ..Mixed::default()
        });
        draw.safety = Micros::from_millis(5_000);
        // A node that has forgotten deletes is cut off, its clock is set back, and it restarts. It is away for longer than its first writes
        // wait until a peer is heard.
        let node = NodeId(0);
        let ms = Micros::from_millis;
        let fault = |at, span, kind| Fault {
            at: ms(at),
            span: ms(span),
            kind,
        };
        let mut scenario = draw.scenario();
        scenario.faults = vec![
            fault(900, 0, FaultKind::Checkpoint { node }),
            fault(1_000, 0, FaultKind::Checkpoint { node }),
            fault(1_010, 3_500, FaultKind::Isolate { node }),
            fault(
                1_020,
                4_500,
                FaultKind::ClockStep {
                    node,
                    by_us: -4_000_000,
                },
            ),
            fault(
                1_030,
                10,
                FaultKind::Crash {
                    node,
                    loss: Loss::Process,
                },
            ),
        ];
        scenario
    });
}

#[test]
fn ties_that_go_by_arrival_are_caught_as_sites_that_differ() {
    is_caught_in(
        "ties_by_arrival",
        100,
        &["the sites differ", "lost version"],
        |mut draw| {
            // All clients write at every full millisecond.
            draw.world.clock_offsets_us.clear();
            draw.load.think = Span::fixed(Micros::from_millis(1));
            draw.world.sync = Span::fixed(Micros::from_millis(1));
            draw.world.disk = Span::fixed(Micros(0));
            draw.world.disk_percents.clear();
            draw.world.durability = Durability::None;
            draw.world.turn = Span::fixed(Micros(10));
            draw.world.cores = 0;
            draw.world.nodes_per_site = 1;
            draw.load.clients_per_node = 1;
            draw.load.roam_every = None;
            (draw.load.pipeline, draw.load.amplification, draw.load.visits) = (1, 1, 0);
            draw.fault_every = None;
            draw.load.kind = Kind::Mixed(Mixed {
                keys: 2,
                writes: 90,
                deletes: 0,
                value_bytes: 10,
                careless: 0,
                ..Mixed::default()
            });
            draw.scenario()
        },
    );
}

#[test]
fn a_receipt_that_claims_more_than_was_proven_is_caught_as_false() {
    is_caught("receipts_claim_more", 0, &["claims to reflect"]);
}
