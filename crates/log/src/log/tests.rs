use super::*;
use crate::{SimulatedDisk, segment};

mod random;

const SMALL: Options = Options {
    segment_bytes: 500,
    ahead_bytes: 0,
    identity: 7,
};

type Records = Vec<(Position, Vec<u8>)>;

fn open(disk: &SimulatedDisk) -> (Log, Records) {
    try_open(disk).expect("the log opens")
}

fn try_open(disk: &SimulatedDisk) -> Result<(Log, Records), OpenError> {
    let mut records = Vec::new();
    let log = Log::open(Arc::new(disk.clone()), SMALL, Position(0), |position, bytes| {
        records.push((position, bytes.to_vec()));
        Ok(())
    })?;
    Ok((log, records))
}

fn payload(number: u64) -> Vec<u8> {
    format!("record {number} {}", "x".repeat((number % 97) as usize)).into_bytes()
}

fn append(log: &Log, numbers: std::ops::Range<u64>) {
    for number in numbers {
        log.append(&[&payload(number)]);
    }
}

/// The number of records, which must be `0..n` in order.
fn count(records: &[(Position, Vec<u8>)]) -> u64 {
    for (number, (_, bytes)) in records.iter().enumerate() {
        assert_eq!(*bytes, payload(number as u64), "record {number}");
    }
    records.len() as u64
}

#[test]
fn what_was_written_is_there_after_the_process_was_killed_and_what_was_pending_is_not() {
    let disk = SimulatedDisk::new();
    let (log, _) = open(&disk);
    append(&log, 0..100);
    let end = log.write().unwrap();
    append(&log, 100..110);
    disk.crash_process();
    let (log, records) = open(&disk);
    assert_eq!((count(&records), log.end()), (100, end));
    assert_eq!(log.start(), Position(0));
}

#[test]
fn a_closed_file_of_an_earlier_life_takes_nothing() {
    let disk = SimulatedDisk::new();
    let (log, _) = open(&disk);
    append(&log, 0..3);
    disk.crash_process();
    assert!(matches!(
        log.write(),
        Err(LogError::Poisoned(_) | LogError::NotWritten(_))
    ));
}

#[test]
fn damage_to_what_was_safely_on_disk_is_an_error_that_names_the_place() {
    let disk = SimulatedDisk::new();
    let (log, _) = open(&disk);
    append(&log, 0..3);
    log.write().unwrap();
    log.sync().unwrap();
    append(&log, 3..40);
    log.write().unwrap();
    drop(log);
    let (name, _) = disk.lengths()[0].clone();
    for offset in [48, 60, 70, 80] {
        disk.crash_process();
        disk.flip_bit(&name, offset, 3);
        let error = try_open(&disk).err().expect("damage was not noticed");
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        assert!(
            error.to_string().contains(&name) && error.to_string().contains("byte"),
            "{error}"
        );
        disk.flip_bit(&name, offset, 3);
    }
    assert_eq!(count(&open(&disk).1), 40, "all bits are back");
}

#[test]
fn every_flipped_bit_ends_the_log_or_is_refused_and_never_shows_a_wrong_record() {
    let disk = SimulatedDisk::new();
    let (log, _) = open(&disk);
    append(&log, 0..4);
    log.write().unwrap();
    drop(log);
    let (name, len) = disk.lengths()[0].clone();
    for offset in 0..len {
        let copy = SimulatedDisk::new();
        let file = copy.create(&name).unwrap();
        let mut bytes = vec![0; len];
        disk.open(&name).unwrap().read_at(0, &mut bytes).unwrap();
        file.write_at(0, &bytes).unwrap();
        copy.flip_bit(&name, offset, offset as u32);
        if let Ok((_, records)) = try_open(&copy) {
            assert!(count(&records) < 4, "a flipped bit at {offset} went unnoticed");
        }
    }
}

#[test]
fn a_full_disk_takes_nothing_halfway_and_goes_on_when_there_is_room() {
    let disk = SimulatedDisk::new();
    let (log, _) = open(&disk);
    append(&log, 0..5);
    log.write().unwrap();
    disk.set_room_bytes(Some(30));
    append(&log, 5..8);
    assert!(matches!(log.write(), Err(LogError::NotWritten(_))));
    append(&log, 8..9);
    assert!(log.pending_bytes() > 0);
    disk.set_room_bytes(None);
    let end = log.write().unwrap();
    assert_eq!(end, log.end());
    disk.crash_process();
    assert_eq!(count(&open(&disk).1), 9);
}

#[test]
fn a_full_disk_at_the_beginning_of_a_segment_is_no_different() {
    let disk = SimulatedDisk::new();
    let (log, _) = open(&disk);
    append(&log, 0..20);
    log.write().unwrap();
    append(&log, 20..21);
    disk.set_room_bytes(Some(10));
    assert!(log.write().is_err());
    disk.set_room_bytes(None);
    log.write().unwrap();
    disk.crash_process();
    assert_eq!(count(&open(&disk).1), 21);
}

#[test]
fn what_is_cut_off_or_removed_is_room_again() {
    let disk = SimulatedDisk::new();
    let used = |disk: &SimulatedDisk| -> u64 { disk.lengths().iter().map(|(_, len)| *len as u64).sum() };
    let room = turnbuckle_core::Room::default();
    disk.set_room(&room);
    let (log, _) = open(&disk);
    append(&log, 0..20);
    log.write().unwrap();
    log.sync().unwrap();
    let before = used(&disk);
    room.set_free(Some(30));
    append(&log, 20..40);
    for _ in 0..3 {
        assert!(matches!(log.write(), Err(LogError::NotWritten(_))));
        assert_eq!(
            (used(&disk), room.free()),
            (before, 30),
            "what was written halfway is cut off"
        );
    }
    room.set_free(Some(10_000));
    log.write().unwrap();
    log.sync().unwrap();
    append(&log, 40..60);
    log.write().unwrap();
    log.sync().unwrap();
    assert_eq!(room.free(), 10_000 + before - used(&disk));
    let whole = used(&disk);
    log.purge(log.synced()).unwrap();
    assert!(used(&disk) < whole, "a segment is gone");
    assert_eq!(room.free(), 10_000 + before - used(&disk));
    disk.crash_unsynced();
    assert_eq!(
        room.free(),
        10_000 + before - used(&disk),
        "removed files are back"
    );
    drop(log);
    disk.crash_power(7);
    assert_eq!(room.free(), 10_000 + before - used(&disk));
}

#[test]
fn a_failed_sync_poisons_the_log() {
    let disk = SimulatedDisk::new();
    let (log, _) = open(&disk);
    append(&log, 0..5);
    log.write().unwrap();
    disk.set_sync_fails(true);
    assert!(matches!(log.sync(), Err(LogError::Poisoned(_))));
    disk.set_sync_fails(false);
    assert!(
        matches!(log.sync(), Err(LogError::Poisoned(_))),
        "what the kernel dropped does not come back"
    );
    append(&log, 5..6);
    assert!(matches!(log.write(), Err(LogError::Poisoned(_))));
    assert_eq!(log.synced(), Position(0));
}

#[test]
fn records_are_read_back_from_anywhere_across_segments() {
    let disk = SimulatedDisk::new();
    let (log, _) = open(&disk);
    append(&log, 0..60);
    log.append(&[&vec![b'y'; 5_000]]);
    log.write().unwrap();
    append(&log, 60..61);
    for max_bytes in [1, 100, 1_000, 1_000_000] {
        let (mut from, mut records) = (Position(0), Vec::new());
        while let chunk = log.read(from, max_bytes).unwrap()
            && !chunk.records.is_empty()
        {
            records.extend(
                chunk
                    .records
                    .iter()
                    .map(|(position, bytes)| (*position, bytes.to_vec())),
            );
            from = chunk.next;
        }
        assert_eq!(from, log.written(), "what is only pending is not read");
        assert_eq!(records.pop().map(|(_, bytes)| bytes.len()), Some(5_000));
        assert_eq!(count(&records), 60);
    }
}

#[test]
fn purging_removes_whole_segments_and_reading_says_so() {
    let disk = SimulatedDisk::new();
    let (log, _) = open(&disk);
    for number in 0..60 {
        append(&log, number..number + 1);
        log.write().unwrap();
    }
    log.sync().unwrap();
    let middle = Position(log.written().0 / 2);
    log.purge(middle).unwrap();
    assert!(log.start() > Position(0) && log.start() <= middle);
    assert!(matches!(log.read(Position(0), 10), Err(ReadError::Purged { start }) if start == log.start()));
    let start = log.start();
    disk.crash_process();
    assert!(
        matches!(try_open(&disk), Err(OpenError::Missing { .. })),
        "from the beginning there is nothing any more"
    );
    let reopened = Log::open(Arc::new(disk.clone()), SMALL, start, |_, _| Ok(())).unwrap();
    assert_eq!(reopened.start(), start);
    reopened.purge(reopened.end()).unwrap();
    assert_eq!(disk.lengths().len(), 1, "the last segment stays");
}

#[test]
fn a_log_of_another_node_or_a_newer_format_is_refused() {
    let disk = SimulatedDisk::new();
    drop(open(&disk));
    let other = Options { identity: 8, ..SMALL };
    let error = Log::open(Arc::new(disk.clone()), other, Position(0), |_, _| Ok(()))
        .err()
        .unwrap();
    assert!(error.to_string().contains("found one of node"), "{error}");
    let (name, _) = disk.lengths()[0].clone();
    disk.flip_bit(&name, 8, 1);
    let error = try_open(&disk).err().unwrap();
    assert!(
        error
            .to_string()
            .contains("expected version 1 of the format, found version 3"),
        "{error}"
    );
}

/// Found by fuzzing: the log continued in the older segment, which was never read, and the next opening failed there.
#[test]
fn a_segment_with_an_unfinished_header_is_begun_anew_and_older_ones_stay_closed() {
    let disk = SimulatedDisk::new();
    let (log, _) = open(&disk);
    append(&log, 0..20);
    log.write().unwrap();
    log.sync().unwrap();
    let from = log.end();
    append(&log, 20..21);
    log.write().unwrap();
    drop(log);
    disk.crash_process();
    let [(older, _), (newer, _)] = disk.lengths().try_into().expect("two segments");
    disk.flip_bit(&older, 100, 0);
    disk.cut(&newer, 10);
    for appended in [0, 1] {
        let mut count = 0;
        let log = Log::open(disk.mount(), SMALL, from, |_, _| {
            count += 1;
            Ok(())
        });
        let log = log.expect("nothing from the checkpoint on was ever synced");
        assert_eq!((count, log.start()), (appended, Position(0)));
        append(&log, 20..21);
        log.write().unwrap();
        log.sync().unwrap();
    }
}
