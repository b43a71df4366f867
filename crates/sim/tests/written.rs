//! The counts of versions that are written.
use turnbuckle_causal::causalspartanx::{CausalSpartanXConfig, CausalSpartanXSession};
use turnbuckle_core::{Key, Micros, Operation};
use turnbuckle_node::{NodeId, Written};
use turnbuckle_sim::{Loss, World, WorldOptions};

fn put(world: &mut World<CausalSpartanXSession>, client: usize, name: &str) {
    let put = Operation::put(Key::from(name), bytes::Bytes::from_static(b"v"));
    world.ask(client, put).expect("an answer");
}

#[test]
fn a_version_counts_once_where_it_was_written_also_after_a_crash() {
    let options = WorldOptions::plain(["a", "b"], Micros::from_millis(10));
    let mut world = World::<CausalSpartanXSession>::new(options, CausalSpartanXConfig::default());
    world.advance(Micros::from_millis(500));
    let client = world.add_client(NodeId(0));
    // A vector takes one byte, and ten for each site of which its writer had seen a version.
    put(&mut world, client, "x");
    put(&mut world, client, "y");
    world.advance(Micros::from_millis(500));
    assert_eq!(
        world.written(),
        Written {
            versions: 2,
            metadata_bytes: 1 + 11
        }
    );
    world.crash(NodeId(0), Loss::Process);
    world.restart(NodeId(0));
    world.advance(Micros::from_millis(500));
    let other = world.add_client(NodeId(0));
    put(&mut world, other, "z");
    world.advance(Micros::from_millis(500));
    assert_eq!(
        world.written(),
        Written {
            versions: 3,
            metadata_bytes: 1 + 11 + 1
        }
    );
}
