//! The metrics of ABD.
use turnbuckle_abd::{AbdConfig, AbdSession};
use turnbuckle_core::{Key, Level, Micros, Operation, Reading, SiteId};
use turnbuckle_node::NodeId;
use turnbuckle_sim::{World, WorldOptions};

#[test]
fn operations_are_counted_while_they_wait_for_a_majority_and_when_they_are_given_up() {
    let options = WorldOptions::plain(["a", "b", "c"], Micros::from_millis(5));
    let mut world = World::<AbdSession>::new(options, AbdConfig::default());
    let client = world.add_client(NodeId(0));
    assert!(world.settle(Micros::from_millis(10_000)));
    let counts = |world: &World<AbdSession>| {
        let measured = world.status(NodeId(0)).expect("it runs").measured;
        ["operations_under_way", "operations_given_up_total"]
            .map(|name| measured[name].readings[&None].clone())
    };
    let count = |[under_way, given_up]: [u64; 2]| [Reading::Count(under_way), Reading::Count(given_up)];
    assert_eq!(counts(&world), count([0, 0]));
    for other in [1, 2] {
        world.set_sites_cut(SiteId(0), SiteId(other), true);
    }
    world.invoke(
        client,
        Operation::Get {
            key: Key::from("x"),
            level: Some(Level::Linearizable),
        },
    );
    world.advance(Micros::from_millis(1_000));
    assert_eq!(counts(&world), count([1, 0]));
    world.advance(AbdConfig::default().patience);
    assert_eq!(counts(&world), count([0, 1]));
}
