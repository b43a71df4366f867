//! Memory does not grow: neither for a few keys that are overwritten for an hour, nor for keys that were deleted.
use bytes::Bytes;
use turnbuckle_causal::{
    CausalSpartanX, CausalSpartanXConfig, CausalSpartanXSession, Cops, CopsConfig, CopsSession,
    EventualConfig, EventualSession, GentleRain, GentleRainConfig, GentleRainSession,
};
use turnbuckle_core::{Key, Micros, Operation, Protocol, Session, Settings};
use turnbuckle_sim::{World, WorldOptions};

/// Every site reads and overwrites three keys in turn, for an hour. Returns the most bytes that any node had in memory in each ten minutes.
fn max_bytes<S: Session>(config: <S::Protocol as Protocol>::Config) -> Vec<u64> {
    let sites = ["a", "b", "c"].map(String::from).to_vec();
    let mut options = WorldOptions::plain(sites, Micros::from_millis(20));
    (options.partitions, options.checkpoint_log_bytes) = (2, 64 << 10);
    let mut world = World::<S>::new(options, config);
    let nodes: Vec<_> = world.nodes().collect();
    let clients: Vec<_> = nodes.iter().map(|&node| world.add_client(node)).collect();
    world.judge_nothing();
    let (mut max, mut written) = (Vec::new(), 0_u64);
    for _ in 0..6 {
        let mut bytes = 0;
        for _ in 0..1_200 {
            for &client in &clients {
                written += 1;
                let key = Key::from(["x", "y", "z"][written as usize / 3 % 3]);
                let value = Bytes::from(format!("{written:>100}"));
                let (read, level) = (key.clone(), None);
                world.invoke(client, Operation::Get { key: read, level });
                world.invoke(client, Operation::put(key, value));
            }
            world.advance(Micros::from_millis(500));
            world.forget_history();
            let now = nodes.iter().filter_map(|&node| world.status(node));
            bytes = bytes.max(now.map(|status| status.memory_bytes).max().unwrap_or(0));
        }
        max.push(bytes);
    }
    println!("{max:?} bytes, {written} writes, {} events", world.events());
    max
}

fn stays_flat<S: Session>(config: <S::Protocol as Protocol>::Config) {
    let max = max_bytes::<S>(config);
    let (first, later) = (max[0], &max[1..]);
    assert!(
        first > 300,
        "three values of 100 bytes take more than {first} bytes"
    );
    assert!(
        later.iter().all(|&bytes| bytes <= first + first / 10),
        "it grows: {max:?} bytes in each ten minutes"
    );
}

/// A key that is overwritten all the time for less than a second: most of its versions are collected in the same second.
fn a_second_stays_small<S: Session>(config: <S::Protocol as Protocol>::Config) {
    const WRITES: u64 = 4_000;
    let sites = ["a", "b"].map(String::from).to_vec();
    let mut world = World::<S>::new(WorldOptions::plain(sites, Micros::from_millis(5)), config);
    let nodes: Vec<_> = world.nodes().collect();
    let client = world.add_client(nodes[0]);
    world.judge_nothing();
    // What is written down every second was written just now, and will not be written again.
    world.advance(Micros::from_millis(1_100));
    let mut max = 0;
    for written in 0..WRITES {
        let value = Bytes::from(format!("{written:>100}"));
        world.invoke(client, Operation::put(Key::from("x"), value));
        world.advance(Micros(200));
        world.forget_history();
        let now = nodes.iter().filter_map(|&node| world.status(node));
        max = max.max(now.map(|status| status.memory_bytes).max().unwrap_or(0));
    }
    println!("{max} bytes");
    assert!(max < 80_000, "{max} bytes; all versions take 133,000");
}

#[test]
fn a_hot_key_is_collected_within_its_second() {
    a_second_stays_small::<CausalSpartanXSession>(CausalSpartanXConfig::default());
    a_second_stays_small::<GentleRainSession>(GentleRainConfig::default());
}

fn pace() -> Settings {
    let (heartbeat, theta) = (Micros::from_millis(1_000), Micros::from_millis(500));
    Settings::from([("heartbeat", heartbeat), ("theta", theta)])
}

#[test]
fn an_hour_of_overwriting_takes_no_memory_in_causalspartanx() {
    stays_flat::<CausalSpartanXSession>(pace().config::<CausalSpartanX>());
}

#[test]
fn an_hour_of_overwriting_takes_no_memory_in_gentlerain() {
    stays_flat::<GentleRainSession>(pace().config::<GentleRain>());
}

#[test]
fn an_hour_of_overwriting_takes_no_memory_in_cops() {
    stays_flat::<CopsSession>(pace().config::<Cops>());
}

/// Keys are written and deleted, and then the clients stop. Every site forgets the deletes within two minutes. While a site is unreachable, no site
/// forgets them, however long that takes, and no checkpoint is made for nothing.
fn deletes_are_forgotten_when_the_traffic_has_ended<S: Session>(config: <S::Protocol as Protocol>::Config) {
    const KEYS: usize = 50;
    let sites = ["a", "b", "c"].map(String::from).to_vec();
    let mut options = WorldOptions::plain(sites, Micros::from_millis(20));
    (options.partitions, options.batch_keys) = (2, 8);
    let mut world = World::<S>::new(options, config);
    let nodes: Vec<_> = world.nodes().collect();
    let client = world.add_client(nodes[0]);
    world.advance(Micros::from_millis(1_000));
    let minutes = |world: &mut World<S>, minutes: u64| world.advance(Micros::from_millis(minutes * 60_000));
    let put_all = |world: &mut World<S>, value: Option<Bytes>| {
        for number in 0..KEYS {
            let key = Key::from(&*format!("k{number}"));
            world.invoke(client, Operation::put(key, value.clone()));
        }
        world.advance(Micros::from_millis(1_000));
    };
    let deleted = |world: &World<S>| -> Vec<u64> {
        let status = |&node| world.status(node).expect("it runs").deleted_keys;
        nodes.iter().map(status).collect()
    };
    put_all(&mut world, Some(Bytes::from_static(b"v")));
    put_all(&mut world, None);
    assert_eq!(deleted(&world), [KEYS as u64; 3]);
    minutes(&mut world, 2);
    assert_eq!(deleted(&world), [0; 3], "nobody needs them");
    // Once more, while the last site is unreachable.
    put_all(&mut world, Some(Bytes::from_static(b"w")));
    world.set_cut(nodes[2], nodes[0], true);
    world.set_cut(nodes[2], nodes[1], true);
    put_all(&mut world, None);
    let before: Vec<u64> = nodes.iter().map(|&node| world.checkpoints(node)).collect();
    minutes(&mut world, 10);
    assert_eq!(
        deleted(&world),
        [KEYS as u64, KEYS as u64, 0],
        "the last site shows them"
    );
    for (&node, before) in nodes.iter().zip(before) {
        let made = world.checkpoints(node) - before;
        assert!(
            made <= 12,
            "{made} checkpoints in ten minutes, one is due each minute"
        );
    }
    world.set_cut(nodes[2], nodes[0], false);
    world.set_cut(nodes[2], nodes[1], false);
    minutes(&mut world, 2);
    assert_eq!(deleted(&world), [0; 3], "everybody has heard of them");
}

#[test]
fn an_idle_eventual_keyspace_forgets_its_deletes() {
    deletes_are_forgotten_when_the_traffic_has_ended::<EventualSession>(EventualConfig::default());
}

#[test]
fn an_idle_keyspace_of_causalspartanx_forgets_its_deletes() {
    deletes_are_forgotten_when_the_traffic_has_ended::<CausalSpartanXSession>(CausalSpartanXConfig::default());
}

#[test]
fn an_idle_keyspace_of_gentlerain_forgets_its_deletes() {
    deletes_are_forgotten_when_the_traffic_has_ended::<GentleRainSession>(GentleRainConfig::default());
}

#[test]
fn an_idle_keyspace_of_cops_forgets_its_deletes() {
    deletes_are_forgotten_when_the_traffic_has_ended::<CopsSession>(CopsConfig::default());
}
