//! Everything at the same time: appends from several threads, group commits, syncs, readers that follow, and purges behind them.
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};
use turnbuckle_log::{Log, LogError, Options, Position, ReadError, SimulatedDisk};

const RECORDS: u64 = 3_000;
const WRITERS: u64 = 3;

fn log(disk: &SimulatedDisk) -> Log {
    let options = Options {
        segment_bytes: 20_000,
        ahead_bytes: 3_000,
        identity: 9,
    };
    Log::open(disk.mount(), options, Position(0), |_, _| Ok(())).unwrap()
}

fn payload(writer: u64, number: u64) -> Vec<u8> {
    let mut bytes = [writer.to_le_bytes(), number.to_le_bytes()].concat();
    bytes.resize(16 + (number % 61) as usize, writer as u8);
    bytes
}

/// Follows the log until all records are seen. The records of each writer must come in its order, whole, and none may be missing.
fn follow(log: &Log, followed: &AtomicU64) {
    let (mut at, mut next) = (Position(0), [0; WRITERS as usize]);
    while next.iter().sum::<u64>() < RECORDS * WRITERS {
        let chunk = log.read(at, 4_000).expect("nothing is purged that was not read");
        if chunk.records.is_empty() {
            thread::yield_now();
        }
        for (_, bytes) in &chunk.records {
            let writer = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let number = &mut next[writer as usize];
            assert_eq!(*bytes, payload(writer, *number));
            *number += 1;
        }
        at = chunk.next;
        followed.store(at.0, Ordering::Release);
    }
    assert_eq!(at, log.written());
}

#[test]
fn readers_see_every_record_once_and_in_order_while_others_append_write_sync_and_purge() {
    let log = log(&SimulatedDisk::new());
    let followed: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let log = &log;
                scope.spawn(move || {
                    for number in 0..RECORDS {
                        let end = log.append(&[&payload(writer, number)]);
                        if number % 3 == writer {
                            assert!(
                                log.write().unwrap() >= end,
                                "a write covers what was appended before it"
                            );
                        }
                    }
                    log.write().unwrap();
                })
            })
            .collect();
        let readers: Vec<_> = followed
            .iter()
            .map(|followed| scope.spawn(|| follow(&log, followed)))
            .collect();
        scope.spawn(|| {
            // Once more when all is done: on a busy machine this thread may not have run before.
            let mut is_last = false;
            while !is_last {
                is_last = done.load(Ordering::Acquire);
                let written = log.written();
                assert!(log.sync().unwrap() >= written);
                let slowest = followed.iter().map(|at| at.load(Ordering::Acquire)).min();
                log.purge(Position(slowest.unwrap_or(0))).unwrap();
                assert!(
                    log.start() <= log.synced()
                        && log.synced() <= log.written()
                        && log.written() <= log.end()
                );
            }
        });
        let all = writers
            .into_iter()
            .chain(readers)
            .map(|thread| thread.join())
            .collect::<Vec<_>>();
        done.store(true, Ordering::Release);
        assert!(all.iter().all(Result::is_ok), "a thread failed");
    });
    assert!(log.start() > Position(0), "something was purged");
    assert!(matches!(log.read(Position(0), 1), Err(ReadError::Purged { .. })));
}

#[test]
fn a_write_never_reports_success_for_what_another_thread_failed_to_write() {
    let disk = SimulatedDisk::new();
    let log = Arc::new(log(&disk));
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let filler = scope.spawn({
            let disk = disk.clone();
            move || {
                let mut full = false;
                while !stop.load(Ordering::Acquire) {
                    full = !full;
                    disk.set_room_bytes(full.then_some(10));
                    thread::yield_now();
                }
                disk.set_room_bytes(None);
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let log = log.clone();
                scope.spawn(move || {
                    for number in 0..RECORDS {
                        let end = log.append(&[&payload(writer, number)]);
                        match log.write() {
                            Ok(_) => assert!(log.written() >= end),
                            Err(LogError::NotWritten(_)) => {}
                            Err(error) => panic!("a full disk is not the end: {error}"),
                        }
                    }
                })
            })
            .collect();
        let all: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Release);
        filler.join().unwrap();
        assert!(all.iter().all(Result::is_ok), "a writer failed");
    });
    log.write().unwrap();
    follow(&log, &AtomicU64::new(0));
}
