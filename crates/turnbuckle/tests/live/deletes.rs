//! Many deletes, and then nobody does anything any more: every site forgets them, and gives memory and disk back.
use crate::cluster::{Client, Cluster, patient, text, wait_until};
use std::path::Path;
use turnbuckle_resp::Value;
use turnbuckle_server::config::Limits;

/// More than a partition forgets at one checkpoint.
const KEYS: usize = 50_000;
const BATCH: usize = 1_000;

/// What tables of the engine may have that are empty: values alone took 10 MB.
const MAX_LEFT_BYTES: u64 = 4 << 20;

fn client(cluster: &Cluster, keyspace: &str) -> Client {
    let mut client = cluster.client(0);
    assert_eq!(text(&client.call(&[b"SELECT", keyspace.as_bytes()])), "OK");
    client
}

/// Each command has so many keys.
fn all(client: &mut Client, keys: usize, expected: &Value, command: impl Fn(&[usize]) -> Vec<Vec<u8>>) {
    let numbers: Vec<usize> = (0..KEYS).collect();
    for batch in numbers.chunks(BATCH) {
        let commands: Vec<_> = batch.chunks(keys).map(&command).collect();
        assert!(client.pipeline(&commands).iter().all(|answer| answer == expected));
    }
}

/// 200 bytes that do not compress.
fn noise(seed: usize) -> Vec<u8> {
    let mut state = seed as u64 | 1 << 60;
    let byte = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u8
    };
    (0..200).map(byte).collect()
}

fn write_all(client: &mut Client) {
    all(client, 1, &Value::Simple("OK".into()), |keys| {
        let key = format!("k{}", keys[0]).into_bytes();
        vec![b"SET".to_vec(), key, noise(keys[0])]
    });
}

fn delete_all(client: &mut Client, each: usize) {
    all(client, each, &Value::Integer(each as i64), |keys| {
        let keys = keys.iter().map(|key| format!("k{key}").into_bytes());
        std::iter::once(b"DEL".to_vec()).chain(keys).collect()
    });
}

/// What every site says of its deletes, as an operator sees it.
fn waiting(cluster: &Cluster, site: usize, keyspace: &str) -> u64 {
    let metrics = cluster.admin(site).metrics().expect("it answers");
    let start = format!("turnbuckle_deletes_waiting{{keyspace=\"{keyspace}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&start));
    line.expect("it is counted").parse().expect("a number")
}

fn disk_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).map(Iterator::collect::<Vec<_>>);
    let entries = entries.unwrap_or_default().into_iter().flatten();
    // What is merged meanwhile is gone when it is looked at.
    let size = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => disk_bytes(&entry.path()),
        _ => entry.metadata().map_or(0, |file| file.len()),
    };
    entries.map(size).sum()
}

fn forgets(keyspace: &str, each: usize) {
    let limits = Limits {
        checkpoint_interval_ms: 1_000,
        ..patient()
    };
    let mut cluster = Cluster::start("interval(10ms)", limits);
    let mut writer = client(&cluster, keyspace);
    write_all(&mut writer);
    cluster.settle();
    let memory = |cluster: &Cluster, site| cluster.admin(site).status().expect("it answers").memory.bytes;
    let with_keys: Vec<u64> = (0..3).map(|site| memory(&cluster, site)).collect();
    // As long as a site is away it may show what was deleted: nobody forgets.
    cluster.kill(2);
    delete_all(&mut writer, each);
    wait_until("both sites have been through checkpoints", || {
        let completed = |site| {
            cluster
                .admin(site)
                .status()
                .expect("it answers")
                .checkpoint
                .completed_total
        };
        (0..2).all(|site| waiting(&cluster, site, keyspace) == KEYS as u64 && completed(site) >= 4)
    });
    cluster.start_all();
    wait_until("every site forgets", || {
        (0..3).all(|site| waiting(&cluster, site, keyspace) == 0)
    });
    for (site, with_keys) in with_keys.into_iter().enumerate() {
        wait_until("memory is given back", || memory(&cluster, site) < with_keys / 10);
        wait_until("disk is given back", || {
            let left = disk_bytes(&cluster.data_directory(site).join("store").join("keyspaces"));
            println!("{keyspace}: site {site} has {left} bytes in tables");
            // A site that was away may keep the rows in files until others are merged with them (docs/standing.md).
            left < MAX_LEFT_BYTES || site == 2
        });
        assert!(cluster.contents_in(site, keyspace).is_empty());
    }
    // And it stays forgotten. What a site had forgotten just before it was killed may not be on its disk: it forgets that again.
    (0..3).for_each(|site| cluster.kill(site));
    cluster.start_all();
    for site in 0..3 {
        assert!(cluster.contents_in(site, keyspace).is_empty());
        wait_until("it has forgotten", || waiting(&cluster, site, keyspace) == 0);
    }
}

#[test]
fn many_deletes_are_forgotten_and_memory_and_disk_come_back_in_an_eventual_keyspace() {
    forgets("eventual", 1);
}

#[test]
fn many_deletes_are_forgotten_and_memory_and_disk_come_back_in_a_causal_keyspace() {
    forgets("causal", 500);
}
