//! Which replicas a read asks: the ones that usually answer first.
use turnbuckle_core::{Level, Micros};
use turnbuckle_quorum::{Quorum, QuorumSession};
use turnbuckle_sim::{Fault, FaultKind, Keep, Kind, Load, Mixed, Scenario, Span, WorldOptions};

/// Clients at a read a few keys at `quorum`. b is 50 ms away from a, and c is 125 ms away, one way.
fn reads_at_a(faults: Vec<Fault>) -> f64 {
    let mut world = WorldOptions::plain(["a", "b", "c"], Micros::from_millis(50));
    for (from, to) in [(0, 2), (2, 0)] {
        world.delays[from][to] = Micros::from_millis(125);
    }
    let at = vec![turnbuckle_node::NodeId(0)];
    let scenario = Scenario {
        name: "distance".into(),
        world,
        load: Load {
            clients_per_node: 1,
            at,
            after: Micros::from_millis(500),
            think: Span::fixed(Micros::from_millis(10)),
            kind: Kind::Mixed(Mixed {
                keys: 3,
                writes: 0,
                ..Mixed::default()
            }),
            read: Some(Level::Quorum),
            read_mix: None,
            write: None,
            roam_every: None,
            amplification: 1,
            pipeline: 1,
            visits: 0,
            away: 0,
            requests: None,
        },
        safety: Micros::from_millis(60_000),
        faults,
        parameters: Default::default(),
    };
    let config = scenario.parameters.config::<Quorum>();
    let outcome = scenario.run::<QuorumSession>(config, Keep::JUDGE_AND_TRACE);
    assert_eq!(outcome.violations, []);
    outcome.tally.reads.summary().p50 / 1e3
}

/// A distant replica is asked first, because nothing is known of it. Each time another one answers before it does.
#[test]
fn the_nearest_replica_is_asked_although_the_distant_one_never_answers_in_time() {
    let took = reads_at_a(Vec::new());
    assert!((100.0..102.0).contains(&took), "{took} ms");
}

#[test]
fn a_replica_that_was_slow_for_a_while_is_asked_again() {
    let slow = |from, to| Fault {
        at: Micros::from_millis(2_000),
        span: Micros::from_millis(8_000),
        kind: FaultKind::SlowLink {
            from: turnbuckle_node::NodeId(from),
            to: turnbuckle_node::NodeId(to),
            percent: 2_000,
        },
    };
    let took = reads_at_a(vec![slow(0, 1), slow(1, 0)]);
    assert!((100.0..102.0).contains(&took), "{took} ms");
}
