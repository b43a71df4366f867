//! A disk damages a node's tables: nothing wrong is ever served, and what is damaged comes from the other sites; or the node says what to do.
use crate::cluster::{Client, Cluster, PATIENCE, patient, text, wait_until};
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Stdio,
};
use turnbuckle_resp::Value;
use turnbuckle_server::config::Limits;

/// As much as does not fit into memory by far.
const KEYS: usize = 48_000;
const BATCH: usize = 1_000;

fn key(number: usize) -> Vec<u8> {
    format!("k{number}").into_bytes()
}

/// The value of a key's turn: 1,000 bytes that do not compress.
fn value(number: usize, turn: usize) -> Vec<u8> {
    let mut state = (number as u64) << 8 | turn as u64 | 1 << 60;
    let noise = (0..985).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u8
    });
    format!("{number:08}.{turn:06}")
        .into_bytes()
        .into_iter()
        .chain(noise)
        .collect()
}

/// What a value says its turn is, if it is one that was ever written.
fn turn_of(number: usize, found: &[u8]) -> Option<usize> {
    let turn = std::str::from_utf8(found.get(9..15)?).ok()?.parse().ok()?;
    (found == value(number, turn)).then_some(turn)
}

/// Writes keys at a site, and notes their turn.
fn write(
    cluster: &Cluster,
    site: usize,
    turns: &mut BTreeMap<usize, usize>,
    numbers: impl Iterator<Item = usize>,
) {
    let numbers: Vec<usize> = numbers.collect();
    let mut client = cluster.client(site);
    for batch in numbers.chunks(BATCH) {
        let commands: Vec<_> = batch
            .iter()
            .map(|number| {
                let turn = turns.get(number).map_or(0, |turn| turn + 1);
                vec![b"SET".to_vec(), key(*number), value(*number, turn)]
            })
            .collect();
        for (number, answer) in batch.iter().zip(client.pipeline(&commands)) {
            assert_eq!(text(&answer), "OK");
            turns.entry(*number).and_modify(|turn| *turn += 1).or_insert(0);
        }
    }
}

/// Reads keys at a site. What is read was written, and if `all`, each is there as it was last written. How many were refused.
fn read(cluster: &Cluster, site: usize, turns: &BTreeMap<usize, usize>, all: bool) -> usize {
    let mut client = cluster.client(site);
    let (mut refused, numbers) = (0, turns.keys().copied().collect::<Vec<_>>());
    for batch in numbers.chunks(BATCH) {
        let commands: Vec<_> = batch
            .iter()
            .map(|&number| vec![b"GET".to_vec(), key(number)])
            .collect();
        for (number, answer) in batch.iter().zip(client.pipeline(&commands)) {
            match answer {
                Value::Bulk(found) => {
                    let turn = turn_of(*number, &found);
                    assert!(turn.is_some(), "k{number}: nobody wrote {}", found.escape_ascii());
                    assert!(!all || turn == turns.get(number).copied(), "k{number}: {turn:?}");
                }
                Value::Error(why) if !all => {
                    assert!(why.starts_with(b"UNAVAILABLE"), "{}", why.escape_ascii());
                    refused += 1;
                }
                other => panic!("k{number}: {other:?}"),
            }
        }
    }
    refused
}

/// Reads some keys at a site, others for each part. What is read was written. How many were refused; none if the node is being opened again.
fn sample(cluster: &Cluster, site: usize, turns: &BTreeMap<usize, usize>, part: usize) -> Option<usize> {
    let stream = TcpStream::connect(("127.0.0.1", cluster.ports(site).resp)).ok()?;
    let mut client = Client::over(stream);
    let mut refused = 0;
    for &number in turns.keys().filter(|&&number| number % 97 == part % 97) {
        match client.try_call(&[b"GET", &key(number)])? {
            Value::Bulk(found) => {
                let turn = turn_of(number, &found);
                assert!(turn.is_some(), "k{number}: nobody wrote {}", found.escape_ascii());
            }
            Value::Error(_) => refused += 1,
            other => panic!("k{number}: {other:?}"),
        }
    }
    Some(refused)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder.to_path_buf()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("it can be listed") {
            let entry = entry.expect("it can be listed");
            match entry.file_type().expect("it has one").is_dir() {
                true => folders.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.sort();
    files
}

fn length(file: &Path) -> u64 {
    fs::metadata(file).expect("it is there").len()
}

fn flip(file: &Path, place: usize) {
    let mut bytes = fs::read(file).expect("it can be read");
    bytes[place] ^= 0x20;
    fs::write(file, bytes).expect("it can be written");
}

fn limits() -> Limits {
    Limits {
        memory_limit_mb: 16,
        checkpoint_interval_ms: 500,
        checkpoint_log_mb: 8,
        ..patient()
    }
}

#[test]
fn what_a_disk_has_damaged_comes_from_the_other_sites() {
    let mut cluster = Cluster::start("interval(10ms)", limits());
    cluster.settle();
    let mut turns = BTreeMap::new();
    for site in 0..3 {
        write(
            &cluster,
            site,
            &mut turns,
            (0..KEYS).filter(|number| number % 3 == site),
        );
    }
    cluster.settle();
    let tables = |cluster: &Cluster| {
        let mut tables = files(&cluster.data_directory(1).join("store").join("keyspaces"));
        tables.retain(|file| length(file) > 1 << 20);
        tables
    };
    wait_until("there are tables on disk", || !tables(&cluster).is_empty());
    wait_until("a checkpoint is done", || {
        let status = cluster.admin(1).status().expect("the node says how it is");
        status.checkpoint.completed_total > 0 && !status.checkpoint.running
    });
    assert_eq!(cluster.terminate(1), Some(0));
    for file in tables(&cluster) {
        for part in [3, 4, 5] {
            flip(&file, length(&file) as usize / 8 * part);
        }
    }
    cluster.start_node(1);
    // Under load: whatever is answered is right.
    let (mut refused, mut repaired, mut was_ready, mut part) = (0, false, true, 0);
    wait_until("everything is back", || {
        write(&cluster, 0, &mut turns, 0..300);
        let status = cluster.admin(1).status();
        repaired |= status.is_ok_and(|status| status.partitions_repaired_total > 0);
        was_ready &= matches!(cluster.admin(1).readiness(), Ok(Ok(())));
        part += 1;
        refused += sample(&cluster, 1, &turns, part).unwrap_or(0);
        repaired && matches!(cluster.admin(1).readiness(), Ok(Ok(())))
    });
    assert!(!was_ready, "it was never told that something is damaged");
    assert!(refused > 0, "all was served while rows were missing");
    assert!(cluster.runs(1));
    let metrics = cluster.admin(1).metrics().expect("it answers");
    assert!(
        metrics.contains("turnbuckle_damaged_partitions{keyspace=\"causal\"} 0"),
        "{metrics}"
    );
    cluster.settle();
    (0..3).for_each(|site| assert_eq!(read(&cluster, site, &turns, true), 0));
    // What came back is on disk.
    (0..3).for_each(|site| cluster.kill(site));
    cluster.start_all();
    cluster.settle();
    (0..3).for_each(|site| assert_eq!(read(&cluster, site, &turns, true), 0));
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).expect("it lies there"));
        fs::create_dir_all(target.parent().expect("a folder")).expect("it can be made");
        fs::copy(file, target).expect("it can be copied");
    }
}

/// Whatever file of the store is damaged: the node starts and repairs it, or says what is wrong, where, and what helps.
#[test]
fn a_damaged_file_is_repaired_or_named_with_what_helps() {
    let mut cluster = Cluster::start("interval(10ms)", limits());
    cluster.settle();
    let mut turns = BTreeMap::new();
    write(&cluster, 0, &mut turns, 0..2_000);
    cluster.settle();
    (0..3).for_each(|node| assert_eq!(cluster.terminate(node), Some(0)));
    let store = cluster.data_directory(1).join("store");
    let wholes = [0, 1, 2].map(|node| cluster.data_directory(node).with_extension("whole"));
    (0..3).for_each(|node| copy(&cluster.data_directory(node), &wholes[node]));
    let (mut refused, mut started) = (0, 0);
    let damaged = files(&store).into_iter().filter(|file| length(file) > 0);
    for file in damaged.collect::<Vec<_>>() {
        // All sites go back to the same state: a copy that is older than what its peers know is refused for that.
        for (node, whole) in wholes.iter().enumerate() {
            copy(whole, &cluster.data_directory(node));
        }
        flip(&file, length(&file) as usize / 2);
        [0, 2].iter().for_each(|&node| cluster.start_node(node));
        let mut process = cluster.start_command(1);
        let mut process = process.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("it is piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("it can be read");
        if line.contains("is ready") {
            started += 1;
            let mut client = cluster.client(1);
            let begun = std::time::Instant::now();
            let last = *turns.keys().last().expect("there are keys");
            loop {
                let answer = client.call(&[b"GET", &key(last)]);
                if matches!(&answer, Value::Bulk(found) if turn_of(last, found).is_some()) {
                    break;
                }
                assert!(
                    begun.elapsed() < PATIENCE,
                    "{} is damaged: {answer:?}",
                    file.display()
                );
                std::thread::park_timeout(std::time::Duration::from_millis(20));
            }
            read(&cluster, 1, &turns, false);
            process.kill().expect("it can be killed");
            process.wait().expect("it ends");
            [0, 2].iter().for_each(|&node| cluster.kill(node));
            continue;
        }
        let mut said = String::new();
        let stderr = process.stderr.take().expect("it is piped");
        BufReader::new(stderr)
            .read_to_string(&mut said)
            .expect("it is text");
        assert_eq!(process.wait().expect("it ends").code(), Some(3), "{said}");
        let store = store.display().to_string();
        assert!(!said.contains("panicked"), "{}: {said}", file.display());
        assert!(
            said.contains("empty data directory") && (said.contains(&store) || said.contains(".log")),
            "{}: {said}",
            file.display()
        );
        [0, 2].iter().for_each(|&node| cluster.kill(node));
        refused += 1;
    }
    assert!(
        refused > 0 && started > 0,
        "{refused} were refused, {started} started"
    );
}
