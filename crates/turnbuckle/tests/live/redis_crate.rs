//! The `redis` crate, unchanged, plain and in cluster mode, against a site of two nodes: a plain client's commands are
//! forwarded to the node that has the key's partition, a cluster client finds it by itself.
use crate::cluster::{Cluster, patient, wait_until};
use redis::{Commands, ErrorKind, RedisResult, ServerErrorKind, cluster::ClusterClient};
use std::collections::BTreeSet;
use turnbuckle_server::config::Limits;

fn address(cluster: &Cluster, node: usize, query: &str) -> String {
    format!("redis://127.0.0.1:{}/{query}", cluster.ports(node).resp)
}

fn drive(connection: &mut impl Commands, name: &str) {
    let key = |number: usize| format!("{name}:{number}");
    for number in 0..200 {
        let _: () = connection.set(key(number), number).expect("it is written");
    }
    for number in 0..200 {
        let found: Option<usize> = connection.get(key(number)).expect("an answer");
        assert_eq!(found, Some(number), "{name}");
    }
    let binary = [0_u8, 255, 13, 10];
    let _: () = connection.set(&binary, &[] as &[u8]).expect("it is written");
    let found: Option<Vec<u8>> = connection.get(&binary).expect("an answer");
    assert_eq!(found, Some(Vec::new()), "{name}: an empty value of a binary key");
    assert_eq!(
        connection.get(key(1000)),
        Ok(None::<String>),
        "{name}: a key that is not there"
    );
    assert_eq!(connection.strlen(key(100)), Ok(3), "{name}");
    assert_eq!(connection.exists(key(7)), Ok(true), "{name}");
    let keys: Vec<String> = (0..100).map(key).collect();
    let found: Vec<usize> = connection.mget(&keys).expect("an answer");
    assert!(
        found.into_iter().eq(0..100),
        "{name}: MGET of keys of both partitions"
    );
    let pairs: Vec<(String, usize)> = (200..300).map(|number| (key(number), number)).collect();
    let _: () = connection.mset(&pairs).expect("it is written");
    assert_eq!(connection.get(key(250)), Ok(250), "{name}");
    assert_eq!(connection.del(key(7)), Ok(1), "{name}");
    assert_eq!(connection.get(key(7)), Ok(None::<usize>), "{name}");
    let _: () = connection.set_ex(key(8), 1, 100).expect("values may expire");
    let ttl: u64 = connection.ttl(key(8)).expect("it is told when it expires");
    assert!((1..=100).contains(&ttl), "{name}: {ttl}");
    let refused: RedisResult<()> = connection.set_nx(key(8), 1);
    let error = refused.expect_err("conditions are not there");
    assert_eq!(error.code(), Some("UNSUPPORTED"), "{name}: {error}");
    let wrong: RedisResult<()> = redis::cmd("GET").arg("a").arg("b").query(connection);
    let error = wrong.expect_err("a wrong number of arguments");
    assert_eq!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::ResponseError),
        "{name}: {error}"
    );
}

#[test]
fn a_plain_client_uses_every_key_through_either_node() {
    let cluster = Cluster::start_with_nodes(2, "interval(10ms)", patient());
    for (node, query) in [(0, ""), (1, ""), (0, "?protocol=resp3"), (1, "?protocol=resp3")] {
        let name = format!("plain {}{query}", cluster.name(node));
        let client = redis::Client::open(address(&cluster, node, query)).expect("an address");
        let mut connection = client.get_connection().expect("a connection");
        drive(&mut connection, &name);
        let mut pipeline = redis::pipe();
        (0..1000).for_each(|number| {
            pipeline.set(format!("{name}:p{number}"), number).ignore();
        });
        let _: () = pipeline.query(&mut connection).expect("a pipeline of 1000");
        let pattern = format!("{name}:p*").replace('?', "\\?");
        let found = connection.scan_match::<_, String>(pattern).expect("an answer");
        let found: RedisResult<BTreeSet<String>> = found.collect();
        assert_eq!(
            found.expect("keys").len(),
            1000,
            "{name}: SCAN shows the keys of both nodes"
        );
    }
}

#[test]
fn a_cluster_client_routes_itself() {
    let cluster = Cluster::start_with_nodes(2, "interval(10ms)", patient());
    // It is told of one node, and has to find the other.
    let client = ClusterClient::new(vec![address(&cluster, 1, "")]).expect("an address");
    let mut connection = client.get_connection().expect("a connection");
    let handled_before: Vec<u64> = (0..2).map(|node| operations(&cluster, node)).collect();
    drive(&mut connection, "cluster");
    for (node, before) in handled_before.iter().enumerate() {
        let handled = operations(&cluster, node) - before;
        assert!(handled > 200, "node {node} was asked {handled} times");
    }
    let mut pipeline = redis::cluster::cluster_pipe();
    (0..1000).for_each(|number| {
        pipeline.set(format!("p{number}"), number).ignore();
    });
    let _: () = pipeline.query(&mut connection).expect("a pipeline of 1000");
    assert_eq!(connection.get("p777"), Ok(777));
    cluster.settle();
    for site in 1..3 {
        let mut there = redis::Client::open(address(&cluster, 2 * site, ""))
            .and_then(|client| client.get_connection())
            .expect("a connection");
        assert_eq!(there.get("p777"), Ok(777), "it is at site {site} too");
    }
}

/// The operations of clients that a node has been asked for.
fn operations(cluster: &Cluster, node: usize) -> u64 {
    let metrics = cluster.admin(node).metrics().expect("the node says how it is");
    metrics
        .lines()
        .filter(|line| line.starts_with("turnbuckle_operations_total"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[test]
fn a_partition_of_a_dead_node_fails_in_time_and_comes_back() {
    let mut cluster = Cluster::start_with_nodes(2, "fsync", Limits::default());
    let mut connection = redis::Client::open(address(&cluster, 0, ""))
        .and_then(|client| client.get_connection())
        .expect("a connection");
    let keys: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
    for key in &keys {
        let _: () = connection.set(key, 1).expect("it is written");
    }
    cluster.kill(1);
    let mut refused = 0;
    for key in &keys[..20] {
        match connection.set::<_, _, ()>(key, 2) {
            Ok(()) => {}
            Err(error) => {
                assert!(
                    matches!(error.code(), Some("TIMEOUT" | "UNAVAILABLE")),
                    "{key}: {error}"
                );
                refused += 1;
            }
        }
    }
    assert!(
        refused > 0 && refused < 20,
        "half of the keys are on the dead node: {refused} of 20"
    );
    cluster.start_node(1);
    // Reads of its keys may be answered by another site before the node is back. Writes are not.
    wait_until("every key can be written again", || {
        keys.iter().all(|key| connection.set::<_, _, ()>(key, 3).is_ok())
    });
    for key in &keys {
        assert_eq!(connection.get(key), Ok(3));
    }
}
