//! Any directory as a commit log: refused, or opened and then consistent. Never a panic, a hang, or memory for what is not there.
//!
//! The input describes files: noise, and segments whose headers and records are mostly well formed, checksums included, but
//! say whatever they like.
#![no_main]

use libfuzzer_sys::{arbitrary, arbitrary::Unstructured, fuzz_target};
use turnbuckle_log::{Disk, Log, OpenError, Options, Position, ReadError, SimulatedDisk};

const IDENTITY: u128 = 7;
const OPTIONS: Options = Options { segment_bytes: 300, ahead_bytes: 40, identity: IDENTITY };

/// Starts near each other, so that segments meet, and now and then one that is far away.
fn position(input: &mut Unstructured, near: u64) -> arbitrary::Result<u64> {
    Ok(match input.int_in_range(0..=9)? {
        0 => input.arbitrary()?,
        1 | 2 => near.wrapping_add(input.int_in_range(0..=64)?),
        _ => near,
    })
}

fn number<T: for<'a> arbitrary::Arbitrary<'a>>(input: &mut Unstructured, likely: T) -> arbitrary::Result<T> {
    if input.ratio(1, 12)? { input.arbitrary() } else { Ok(likely) }
}

fn header(input: &mut Unstructured, start: u64) -> arbitrary::Result<Vec<u8>> {
    let identity = number(input, IDENTITY)?;
    let start = number(input, start)?;
    let rest = [&identity.to_le_bytes()[..], &start.to_le_bytes()].concat();
    let mut header = b"TBUCKLOG".to_vec();
    header.extend_from_slice(&number(input, 1_u32)?.to_le_bytes());
    header.extend_from_slice(&number(input, crc32c::crc32c(&rest))?.to_le_bytes());
    header.extend_from_slice(&rest);
    if input.ratio(1, 10)? {
        header.fill(0);
    }
    Ok(header)
}

fn record(input: &mut Unstructured, at: u64) -> arbitrary::Result<Vec<u8>> {
    let len = input.int_in_range(0..=80_usize)?;
    let mut payload = input.bytes(len.min(input.len()))?.to_vec();
    if input.ratio(1, 8)? {
        // A value that looks like a record of its own place, as a client might write one.
        let inner = at.wrapping_add(24);
        payload = bytes_of(inner, inner, len as u32, &payload, None);
    }
    let len = number(input, payload.len() as u32)?;
    let crc = if input.ratio(1, 12)? { Some(input.arbitrary()?) } else { None };
    let synced = position(input, at.saturating_sub(100))?;
    Ok(bytes_of(number(input, at)?, synced, len, &payload, crc))
}

fn bytes_of(position: u64, synced: u64, len: u32, payload: &[u8], crc: Option<u32>) -> Vec<u8> {
    let rest = [&position.to_le_bytes()[..], &synced.to_le_bytes(), payload].concat();
    let salt = crc32c::crc32c(&IDENTITY.to_le_bytes());
    let crc = crc.unwrap_or_else(|| crc32c::crc32c_append(salt ^ !len, &rest));
    [&len.to_le_bytes()[..], &crc.to_le_bytes(), &rest].concat()
}

fn fill(disk: &SimulatedDisk, input: &mut Unstructured) -> arbitrary::Result<Position> {
    let mut at = position(input, 0)?;
    let from = Position(position(input, at)?);
    for _ in 0..input.int_in_range(1..=4)? {
        let start = position(input, at)?;
        let mut bytes = header(input, start)?;
        at = start;
        for _ in 0..input.int_in_range(0..=6)? {
            let record = record(input, at)?;
            at = at.wrapping_add(record.len() as u64);
            bytes.extend_from_slice(&record);
        }
        if input.ratio(1, 4)? {
            let len = input.int_in_range(0..=40_usize)?;
            bytes.extend_from_slice(input.bytes(len.min(input.len()))?);
        }
        if input.ratio(1, 4)? {
            bytes.truncate(input.int_in_range(0..=bytes.len())?);
        }
        // Two of one name are one file.
        if let Ok(file) = disk.create(&format!("{start:020}.log")) {
            file.write_at(0, &bytes).expect("the simulated disk has room");
        }
    }
    Ok(from)
}

type Records = Vec<(Position, Vec<u8>)>;

fn open(disk: &SimulatedDisk, from: Position) -> Result<(Log, Records), OpenError> {
    let mut records = Records::new();
    let log = Log::open(disk.mount(), OPTIONS, from, |position, bytes| {
        records.push((position, bytes.to_vec()));
        Ok(())
    })?;
    Ok((log, records))
}

/// One record follows the other, up to the end.
fn check(log: &Log, from: Position, records: &Records) {
    for (record, next) in records.iter().zip(records.iter().skip(1)) {
        assert_eq!(record.0.0 + 24 + record.1.len() as u64, next.0.0);
    }
    if let Some((position, bytes)) = records.last() {
        assert_eq!(Position(position.0 + 24 + bytes.len() as u64), log.end());
    }
    assert!(log.start() <= from && from <= log.end() && log.end() == log.synced());
    let (mut at, mut read) = (records.first().map_or(log.end(), |record| record.0), Records::new());
    while at < log.end() {
        let chunk = log.read(at, 64).expect("what was shown at opening can be read");
        assert!(chunk.next > at, "reading makes progress");
        read.extend(chunk.records.iter().map(|(position, bytes)| (*position, bytes.to_vec())));
        at = chunk.next;
    }
    assert_eq!(&read, records);
}

fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let disk = SimulatedDisk::new();
    let Ok(from) = fill(&disk, &mut input) else { return };
    let before = disk.lengths();
    let Ok((log, records)) = open(&disk, from) else {
        assert_eq!(disk.lengths(), before, "what is refused is left as it was");
        return;
    };
    check(&log, from, &records);
    // From anywhere, an answer.
    for _ in 0..3 {
        let Ok(at) = input.arbitrary::<u16>() else { break };
        let at = Position(log.start().0.saturating_add(at.into()));
        if let Err(ReadError::Purged { start }) = log.read(at, 100) {
            panic!("{at} is not before {start}");
        }
    }
    // It can be gone on with, and opens again as it was.
    let end = log.append(&[b"one more"]);
    assert_eq!((log.write().unwrap(), log.sync().unwrap()), (end, end));
    disk.crash_power(data.len() as u64);
    let (log, again) = open(&disk, from).expect("what was opened once opens again");
    check(&log, from, &again);
    assert_eq!(&again[..records.len()], &records[..]);
    assert_eq!(again[records.len()].1, b"one more");
});
