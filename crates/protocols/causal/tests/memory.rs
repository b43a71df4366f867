//! An hour of overwriting a few keys: what is kept of each does not grow.
use bytes::Bytes;
use turnbuckle_causal::{
    CausalSpartanXConfig, CausalSpartanXSession, CopsConfig, CopsSession, GentleRainConfig, GentleRainSession,
};
use turnbuckle_core::{Key, Micros, Operation, Protocol, Session};
use turnbuckle_sim::{World, WorldOptions};

/// Every site reads and overwrites three keys in turn, for an hour. Returns the most that any node had in memory in each ten minutes.
fn most_bytes<S: Session>(config: <S::Protocol as Protocol>::Config) -> Vec<u64> {
    let sites = ["a", "b", "c"].map(String::from).to_vec();
    let mut options = WorldOptions::plain(sites, Micros::from_millis(20));
    (options.partitions, options.checkpoint_log_bytes) = (2, 64 << 10);
    let mut world = World::<S>::new(options, config);
    let nodes: Vec<_> = world.nodes().collect();
    let clients: Vec<_> = nodes.iter().map(|&node| world.add_client(node)).collect();
    world.judge_nothing();
    let (mut most, mut written) = (Vec::new(), 0_u64);
    for _ in 0..6 {
        let mut bytes = 0;
        for _ in 0..1_200 {
            for &client in &clients {
                written += 1;
                let key = Key::from(["x", "y", "z"][written as usize / 3 % 3]);
                let value = Some(Bytes::from(format!("{written:>100}")));
                let (read, level) = (key.clone(), None);
                world.invoke(client, Operation::Get { key: read, level });
                world.invoke(client, Operation::Put { key, value, level });
            }
            world.advance(Micros::from_millis(500));
            world.forget_history();
            let now = nodes.iter().filter_map(|&node| world.status(node));
            bytes = bytes.max(now.map(|status| status.memory_bytes).max().unwrap_or(0));
        }
        most.push(bytes);
    }
    println!("{most:?} bytes, {written} writes, {} events", world.events());
    most
}

fn stays_flat<S: Session>(config: <S::Protocol as Protocol>::Config) {
    let most = most_bytes::<S>(config);
    let (first, later) = (most[0], &most[1..]);
    assert!(
        first > 300,
        "three values of 100 bytes take more than {first} bytes"
    );
    assert!(
        later.iter().all(|&bytes| bytes <= first + first / 10),
        "it grows: {most:?} bytes in each ten minutes"
    );
}

/// A key that is overwritten all the time for less than a second: most of its versions go in the same second.
fn a_second_stays_small<S: Session>(config: <S::Protocol as Protocol>::Config) {
    const WRITES: u64 = 4_000;
    let sites = ["a", "b"].map(String::from).to_vec();
    let mut world = World::<S>::new(WorldOptions::plain(sites, Micros::from_millis(5)), config);
    let nodes: Vec<_> = world.nodes().collect();
    let client = world.add_client(nodes[0]);
    world.judge_nothing();
    // What is written down every second was, and will not be again.
    world.advance(Micros::from_millis(1_100));
    let mut most = 0;
    for written in 0..WRITES {
        let (key, level) = (Key::from("x"), None);
        let value = Some(Bytes::from(format!("{written:>100}")));
        world.invoke(client, Operation::Put { key, value, level });
        world.advance(Micros(200));
        world.forget_history();
        let now = nodes.iter().filter_map(|&node| world.status(node));
        most = most.max(now.map(|status| status.memory_bytes).max().unwrap_or(0));
    }
    println!("{most} bytes");
    assert!(most < 80_000, "{most} bytes; all versions take 133,000");
}

#[test]
fn a_hot_key_is_collected_within_its_second() {
    a_second_stays_small::<CausalSpartanXSession>(CausalSpartanXConfig::default());
    a_second_stays_small::<GentleRainSession>(GentleRainConfig::default());
}

const HEARTBEAT: Option<Micros> = Some(Micros::from_millis(1_000));
const THETA: Option<Micros> = Some(Micros::from_millis(500));

#[test]
fn an_hour_of_overwriting_takes_no_memory_in_causalspartanx() {
    stays_flat::<CausalSpartanXSession>(CausalSpartanXConfig::paced(HEARTBEAT, THETA));
}

#[test]
fn an_hour_of_overwriting_takes_no_memory_in_gentlerain() {
    stays_flat::<GentleRainSession>(GentleRainConfig::paced(HEARTBEAT, THETA));
}

#[test]
fn an_hour_of_overwriting_takes_no_memory_in_cops() {
    stays_flat::<CopsSession>(CopsConfig::paced(HEARTBEAT, THETA));
}
