//! A site whose clock is an hour ahead: the other sites hold its stream, marks included, and keep their own time.
use turnbuckle_causal::eventual::{EventualConfig, EventualSession};
use turnbuckle_core::{Hlc, Key, Micros, Operation, Protocol, ServerId, SiteId};
use turnbuckle_node::NodeId;
use turnbuckle_sim::{World, WorldOptions};

const HOUR_US: i64 = 3_600_000_000;

#[test]
fn writes_from_an_hour_ahead_do_not_drag_the_others_along() {
    an_hour_ahead(true);
}

#[test]
fn marks_from_an_hour_ahead_do_not_drag_the_others_along() {
    an_hour_ahead(false);
}

fn an_hour_ahead(writes: bool) {
    let mut options = WorldOptions::plain(["a", "b", "c"], Micros::from_millis(10));
    options.clock_offsets_us = vec![0, 0, HOUR_US];
    let heartbeat = Micros::from_millis(20);
    let mut world = World::<EventualSession>::new(
        options,
        EventualConfig {
            heartbeat,
            ..EventualConfig::default()
        },
    );
    let clients: Vec<usize> = (0..3).map(|node| world.add_client(NodeId(node))).collect();
    let put = |name: &str| Operation::put(Key::from(name), bytes::Bytes::from_static(b"v"));
    for _ in 0..100 {
        if writes {
            world.ask(clients[2], put("of c"));
        }
        world.ask(clients[0], put("of a"));
        world.advance(Micros::from_millis(50));
    }
    let soon = Hlc::from_wall(world.time() + Micros::from_millis(61_000));
    for site in 0..2 {
        let server = ServerId {
            site: SiteId(site),
            partition: 0,
            member: 0,
        };
        let promised = world.inspect(server, |replica| replica.cut()).expect("it runs");
        let newest = promised.iter().map(|&(_, until)| until).max();
        assert!(newest.is_some_and(|newest| newest < soon), "{promised:?}");
        let found = world
            .ask(clients[usize::from(site)], get("of c"))
            .expect("an answer");
        assert!(format!("{found:?}").contains("Value(None)"), "{found:?}");
        let found = world
            .ask(clients[usize::from(site)], get("of a"))
            .expect("an answer");
        assert!(!format!("{found:?}").contains("Value(None)"), "{found:?}");
    }
    for node in 0..2 {
        let status = world.status(NodeId(node)).expect("it runs");
        let held: Vec<u16> = status
            .streams
            .iter()
            .filter(|stream| stream.held)
            .map(|stream| stream.peer.0)
            .collect();
        assert_eq!(held, [2], "it says whose clock is ahead");
    }
}

/// A clock this far ahead is believed. But a clock that is known to be wrong proves no freshness any more.
#[test]
fn a_clock_that_breaks_its_bound_proves_no_freshness() {
    let mut options = WorldOptions::plain(["a", "b"], Micros::from_millis(10));
    options.clock_offsets_us = vec![0, 50_000_000];
    let heartbeat = Micros::from_millis(20);
    let mut world = World::<EventualSession>::new(
        options,
        EventualConfig {
            heartbeat,
            ..EventualConfig::default()
        },
    );
    let clients: Vec<usize> = (0..2).map(|node| world.add_client(NodeId(node))).collect();
    world.advance(Micros::from_millis(500));
    let staleness = |world: &mut World<EventualSession>, client| {
        let (_, receipt) = world.ask(client, get("k")).expect("an answer");
        receipt.expect("every read has a receipt").staleness
    };
    assert_eq!(
        staleness(&mut world, clients[0]),
        None,
        "the other's clock is ahead"
    );
    let behind = staleness(&mut world, clients[1]).expect("an old mark is only old");
    assert!(behind >= Micros(50_000_000));
}

fn get(name: &str) -> Operation {
    Operation::Get {
        key: Key::from(name),
        level: None,
    }
}
