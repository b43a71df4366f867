//! A real process on a real directory is killed (`kill -9`) in the middle of its writes, over and over. Every record that it had
//! reported as written must be there, in order.
//!
//! The process is this test binary, started again with [`DIRECTORY`] set.
use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::Arc,
};
use turnbuckle_log::{DirectoryDisk, Log, Options, Position, ReadError};

const DIRECTORY: &str = "TURNBUCKLE_LOG_TEST_DIRECTORY";

const OPTIONS: Options = Options {
    segment_bytes: 200_000,
    ahead_bytes: 30_000,
    identity: 0xA11CE,
};

/// Numbers are checked, so that records of every length up to a few pages are covered.
fn payload(number: u64) -> Vec<u8> {
    let len = (number * 37 % 9_000) as usize;
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(8 + len, number as u8);
    bytes
}

fn open(directory: &str) -> (Log, u64) {
    let disk = DirectoryDisk::open(directory).expect("the last holder of the lock is dead");
    let mut count = 0;
    let log = Log::open(Arc::new(disk), OPTIONS, Position(0), |_, record| {
        assert_eq!(record, payload(count), "record {count}");
        count += 1;
        Ok(())
    });
    (log.expect("the log opens"), count)
}

/// Appends and reports until it is killed. Does nothing in the process that runs the tests.
#[test]
fn the_process_that_is_killed() {
    let Ok(directory) = env::var(DIRECTORY) else {
        return;
    };
    let (log, mut number) = open(&directory);
    let mut out = std::io::stdout().lock();
    loop {
        for _ in 0..1 + number % 5 {
            log.append(&[&payload(number)]);
            number += 1;
        }
        log.write().expect("the disk has room");
        if number.is_multiple_of(7) {
            log.sync().expect("the disk works");
        }
        // If the other end of the pipe is closed, the test has ended.
        if writeln!(out, "written {number}").is_err() {
            return;
        }
    }
}

#[test]
fn every_record_that_a_killed_process_reported_as_written_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let mut before = 0;
    for round in 0..12_u64 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "the_process_that_is_killed", "--nocapture"])
            .env(DIRECTORY, path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut reports = lines.map_while(Result::ok).filter_map(|line| {
            let (_, number) = line.split_once("written ")?;
            number.parse::<u64>().ok()
        });
        // The scheduler decides where the kill hits. It certainly hits while the process writes.
        let mut reported = reports.by_ref().nth(5 + 40 * round as usize).expect("it writes");
        child.kill().unwrap();
        child.wait().unwrap();
        // What the process reported before it was killed.
        reported = reports.last().unwrap_or(reported);
        let (log, count) = open(path);
        assert!(
            count >= reported && reported > before,
            "round {round}: {count} >= {reported} > {before}"
        );
        assert_eq!(log.read(log.end(), 1).unwrap().records.len(), 0);
        before = count;
    }
}

#[test]
fn two_holders_of_a_directory_cannot_be() {
    let directory = tempfile::tempdir().unwrap();
    let first = DirectoryDisk::open(directory.path().join("deep/er")).unwrap();
    let error = DirectoryDisk::open(directory.path().join("deep/er")).unwrap_err();
    assert!(error.to_string().contains("in use by another process"), "{error}");
    drop(first);
    DirectoryDisk::open(directory.path().join("deep/er")).unwrap();
}

#[test]
fn a_real_directory_is_purged_read_and_synced_like_the_simulated_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let (log, _) = open(path);
    for number in 0..500 {
        log.append(&[&payload(number)]);
        log.write().unwrap();
    }
    log.sync().unwrap();
    let middle = Position(log.end().0 / 2);
    log.purge(middle).unwrap();
    assert!(log.start() > Position(0) && log.start() <= middle);
    assert!(matches!(log.read(Position(0), 1), Err(ReadError::Purged { .. })));
    let first = log.read(log.start(), 1).unwrap();
    let number = u64::from_le_bytes(first.records[0].1[..8].try_into().unwrap());
    assert_eq!(first.records[0].1, payload(number));
    let files = std::fs::read_dir(path).unwrap().count();
    assert!(
        (2..=8).contains(&files),
        "{files} files: the purged ones are still there"
    );
}
