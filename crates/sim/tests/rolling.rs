//! Keyspaces are added to a cluster and removed from it while it serves: one node after the other is restarted with another configuration.
//! Nodes with different keyspaces go on with those that both have.
use bytes::Bytes;
use turnbuckle_causal::{
    CausalSpartanX, CausalSpartanXConfig, CausalSpartanXSession, Cops, CopsSession, Eventual,
    EventualSession, GentleRain, GentleRainSession,
};
use turnbuckle_core::{Answer, Key, Micros, Operation, Protocol, Session, Settings};
use turnbuckle_node::{Durability, NodeId};
use turnbuckle_sim::{
    Fault, FaultKind, Keep, Kind, Load, Mixed, Outcome, Random, Scenario, Span, World, WorldOptions,
};

const SITES: [&str; 3] = ["a", "b", "c"];

fn options(seed: u64, nodes_per_site: usize) -> WorldOptions {
    let mut options = WorldOptions::plain(SITES, Micros::from_millis(5));
    options.seed = seed;
    options.keyspaces = 2;
    options.nodes_per_site = nodes_per_site;
    options.partitions = 2;
    options
}

fn put<S: Session>(world: &mut World<S>, client: usize, key: &str, value: &'static str) -> Option<Answer> {
    let put = Operation::put(Key::from(key), Bytes::from_static(value.as_bytes()));
    world.ask(client, put).map(|(answer, _)| answer)
}

fn get<S: Session>(world: &mut World<S>, client: usize, key: &str) -> Option<Answer> {
    let (key, level) = (Key::from(key), None);
    world
        .ask(client, Operation::Get { key, level })
        .map(|(answer, _)| answer)
}

fn value(text: &'static str) -> Option<Answer> {
    Some(Answer::Value(Some(Bytes::from_static(text.as_bytes()))))
}

fn nothing_is_wrong<S: Session>(world: &World<S>) {
    let violations = world.judge().violations();
    assert!(violations.is_empty(), "{violations:?}");
}

/// One site's node leaves the second keyspace out. The first one goes on everywhere. Of the second, nothing is lost and no delete is
/// forgotten.
#[test]
fn a_node_without_a_keyspace_is_away_there_and_nowhere_else() {
    let mut world = World::<CausalSpartanXSession>::new(options(1, 1), CausalSpartanXConfig::default());
    let clients =
        |world: &mut World<_>, keyspace| [0, 1, 2].map(|n| world.add_client_in(keyspace, NodeId(n)));
    let (first, second) = (clients(&mut world, 0), clients(&mut world, 1));
    assert!(world.settle(Micros::from_millis(10_000)));
    for text in ["2/x", "2/y"] {
        assert_eq!(
            put(&mut world, second[0], text, "old"),
            Some(Answer::Written { existed: false })
        );
    }
    assert!(world.settle(Micros::from_millis(10_000)));
    world.leave_out(NodeId(2), 1, true);
    assert!(
        world.settle(Micros::from_millis(10_000)),
        "links are up, and what both have is in rest"
    );
    assert_eq!(world.statuses(NodeId(2)).len(), 1);
    // The first keyspace: writes pass in both directions, and the stable time advances.
    put(&mut world, first[2], "from c", "1");
    put(&mut world, first[0], "from a", "2");
    world.advance(Micros::from_millis(200));
    assert_eq!(get(&mut world, first[0], "from c"), value("1"));
    assert_eq!(get(&mut world, first[2], "from a"), value("2"));
    // The second keyspace: a and b go on. A client that asks c is not served.
    put(&mut world, second[0], "2/x", "new");
    let delete = Operation::delete(Key::from("2/y"));
    assert_eq!(
        world.ask(second[1], delete).map(|answered| answered.0),
        Some(Answer::Written { existed: true })
    );
    assert_eq!(get(&mut world, second[2], "2/x"), None);
    let of_second = |world: &World<_>, node: u16| {
        let statuses = world.statuses(NodeId(node)).into_iter();
        statuses.last().expect("both keyspaces are there")
    };
    for node in [0, 1] {
        let streams = of_second(&world, node).streams;
        let mut to_c = streams
            .iter()
            .filter(|stream| stream.peer == turnbuckle_core::ReplicaId(2));
        assert!(to_c.all(|stream| stream.state == "left-out"), "{streams:?}");
    }
    // Long enough for a delete to be forgotten, if all sites had it.
    for _ in 0..5 {
        world.advance(Micros::from_millis(2_000));
        world.nodes().for_each(|node| world.checkpoint(node));
    }
    let of_first = world.status(NodeId(0)).expect("it runs").vitals;
    let (stable, kept) = (of_first.stable_until, of_second(&world, 0).vitals.deletes_until);
    assert!(
        kept < stable,
        "deletes are forgotten up to {kept:?}, and c has not seen them"
    );
    world.leave_out(NodeId(2), 1, false);
    assert!(world.settle(Micros::from_millis(60_000)));
    assert_eq!(get(&mut world, second[2], "2/x"), value("new"));
    assert_eq!(get(&mut world, second[2], "2/y"), Some(Answer::Value(None)));
    world.compare_sites();
    nothing_is_wrong(&world);
}

/// In a site of two nodes, a client asks one node for a partition of the other, which lacks the keyspace. Another site answers. If the nodes
/// there lack the keyspace, too, the client is refused at once, by the keyspace's name.
#[test]
fn a_partition_of_a_node_without_the_keyspace_is_refused_by_name() {
    let mut world = World::<CausalSpartanXSession>::new(options(2, 2), CausalSpartanXConfig::default());
    let client = world.add_client_in(1, NodeId(0));
    assert!(world.settle(Micros::from_millis(10_000)));
    let keys = ["2/k0", "2/k1", "2/k2", "2/k3"].map(Key::from);
    world.leave_out(NodeId(1), 1, true);
    world.advance(Micros::from_millis(100));
    for key in ["2/k0", "2/k1", "2/k2", "2/k3"] {
        assert_eq!(get(&mut world, client, key), Some(Answer::Value(None)));
    }
    for node in [3, 5] {
        world.leave_out(NodeId(node), 1, true);
    }
    world.advance(Micros::from_millis(100));
    let before = world.time();
    let mut refused = 0;
    for key in &keys {
        let get = Operation::Get {
            key: key.clone(),
            level: None,
        };
        match world.ask(client, get) {
            Some((Answer::Failed(failure), _)) => {
                assert_eq!(failure.word(), "UNAVAILABLE");
                assert!(failure.to_string().contains("the keyspace 'world2'"), "{failure}");
                refused += 1;
            }
            Some((Answer::Value(None), _)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!((1..4).contains(&refused), "some keys are on either node");
    let snapshot = Operation::ReadMany {
        keys: keys.into(),
        level: None,
    };
    let Some((Answer::Failed(failure), _)) = world.ask(client, snapshot) else {
        panic!("a snapshot needs all partitions");
    };
    assert!(failure.to_string().contains("the keyspace 'world2'"), "{failure}");
    assert!(
        world.time().since(before) < Micros::from_millis(100),
        "the client is refused at once"
    );
    for node in [1, 3, 5] {
        world.leave_out(NodeId(node), 1, false);
    }
    assert!(world.settle(Micros::from_millis(10_000)));
    for key in ["2/k0", "2/k1", "2/k2", "2/k3"] {
        assert_eq!(get(&mut world, client, key), Some(Answer::Value(None)));
    }
    nothing_is_wrong(&world);
}

/// The second keyspace is added node by node, left out node by node, and added again, while clients ask and the log is purged.
fn rolling(seed: u64) -> Scenario {
    let mut random = Random::new(seed);
    let mut world = options(seed, 1 + seed as usize % 2);
    world.durability = *random.pick(&[
        Durability::Fsync,
        Durability::Interval(Micros::from_millis(10)),
        Durability::None,
    ]);
    world.turn = Span::us(1, 500);
    world.backoff = Span::us(1_000, *random.pick(&[5_000, 50_000]));
    world.disk = Span::us(0, *random.pick(&[0, 2_000, 20_000]));
    world.checkpoint_log_bytes = *random.pick(&[2 << 10, 40 << 10]);
    world.retained_log_bytes = *random.pick(&[0, 10 << 10, 8 << 20]);
    world.checkpoint_interval = Micros::from_millis(*random.pick(&[50, 500]));
    world.segment_bytes = 1 << 10;
    world.memory_limit_bytes = *random.pick(&[16 << 10, 8 << 20]);
    world.patience = Micros::from_millis(*random.pick(&[100, 5_000]));
    let nodes = SITES.len() * world.nodes_per_site;
    let step = Micros::from_millis(random.of(20..=100));
    let mut order: Vec<u16> = (0..nodes as u16).collect();
    let mut faults = Vec::new();
    let mut left_out = |at: Micros, until: Micros, node: u16| {
        let kind = FaultKind::LeftOut {
            node: NodeId(node),
            keyspace: 1,
        };
        let span = until.since(at);
        faults.push(Fault { at, span, kind });
    };
    let nth = |from: Micros, n: usize| Micros(from.0 + step.0 * (n as u64 + 1));
    let round = nth(Micros(0), nodes + 1);
    for (n, &node) in order.iter().enumerate() {
        left_out(Micros(0), nth(Micros(0), n), node);
    }
    order.rotate_left(random.below(nodes as u64) as usize);
    for (n, &node) in order.iter().enumerate() {
        left_out(nth(round, n), nth(Micros(3 * round.0), nodes - n), node);
    }
    Scenario {
        name: "rolling".into(),
        world,
        load: Load {
            at: Vec::new(),
            requests: None,
            after: Micros(0),
            clients_per_node: 2,
            think: Span::us(0, 20_000),
            kind: Kind::Mixed(Mixed {
                keys: 30,
                deletes: 30,
                ..Mixed::default()
            }),
            read: None,
            read_mix: None,
            write: None,
            roam_every: (seed.is_multiple_of(3)).then_some(5),
            amplification: 1,
            pipeline: 1,
            visits: 0,
            away: 0,
        },
        safety: Micros(5 * round.0),
        faults,
        parameters: Settings::from([
            ("heartbeat", Micros::from_millis(20)),
            ("theta", Micros::from_millis(10)),
        ]),
    }
}

fn is_right(scenario: &Scenario, outcome: &Outcome) {
    let seed = scenario.world.seed;
    assert!(
        outcome.violations.is_empty(),
        "seed {seed}: {:?}",
        outcome.violations
    );
    assert!(outcome.converged, "seed {seed}");
    assert!(outcome.tally.answered() > 100, "seed {seed}: {:?}", outcome.tally);
    let report = outcome.check().expect("it is a trace");
    assert_eq!(
        report.audit.receipts.broken, 0,
        "seed {seed}: {:?}",
        report.audit.broken
    );
}

fn runs<S: Session>(protocol: impl Fn(&Scenario) -> <S::Protocol as Protocol>::Config) {
    for seed in 1..=6 {
        let scenario = rolling(seed);
        let outcome = scenario.run::<S>(protocol(&scenario), Keep::JUDGE_AND_TRACE);
        is_right(&scenario, &outcome);
    }
}

#[test]
fn rolling_restarts_lose_nothing_under_eventual() {
    runs::<EventualSession>(|scenario| scenario.parameters.config::<Eventual>());
}

#[test]
fn rolling_restarts_lose_nothing_under_causalspartanx() {
    runs::<CausalSpartanXSession>(|scenario| scenario.parameters.config::<CausalSpartanX>());
}

#[test]
fn rolling_restarts_lose_nothing_under_cops() {
    runs::<CopsSession>(|scenario| scenario.parameters.config::<Cops>());
}

#[test]
fn rolling_restarts_lose_nothing_under_gentlerain() {
    runs::<GentleRainSession>(|scenario| scenario.parameters.config::<GentleRain>());
}
