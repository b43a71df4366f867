//! Random runs against the simplest possible log: a list of records, and the numbers of them that are written and synced.
use super::*;
use crate::{
    Disk,
    planted::{self, Bug},
};

/// The expected content of the log.
#[derive(Default)]
struct Expected {
    records: Vec<(Position, Vec<u8>)>,
    /// The number of records that a process crash leaves.
    written: usize,
    /// The number of records that a power loss leaves.
    synced: usize,
    /// The end of the last record.
    end: Position,
}

struct World {
    disk: SimulatedDisk,
    mount: Arc<dyn Disk>,
    log: Log,
    options: Options,
    expected: Expected,
    random: u64,
    /// The position that a checkpoint would name.
    from: Position,
    number: u64,
}

/// The error says what went wrong.
type Verdict = Result<(), String>;

fn check(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

const TINY: Options = Options {
    segment_bytes: 700,
    ahead_bytes: 0,
    identity: 42,
};

/// Some lives of the log make room ahead: less than a sector, more than one, or all of a segment at once. And the segments of one life may be larger than those of another.
fn options_of(draw: u64) -> Options {
    Options {
        ahead_bytes: [0, 50, 300, 1_000][(draw % 4) as usize],
        segment_bytes: [TINY.segment_bytes, 400][(draw / 4 % 2) as usize],
        ..TINY
    }
}

impl World {
    fn new(seed: u64) -> World {
        let disk = SimulatedDisk::new();
        let mount = disk.mount();
        let options = options_of(seed);
        let log = Log::open(mount.clone(), options, Position(0), |_, _| Ok(())).expect("an empty disk opens");
        let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (expected, from) = (Expected::default(), Position(0));
        World {
            disk,
            mount,
            log,
            options,
            expected,
            random,
            from,
            number: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn step(&mut self) -> Verdict {
        match self.draw(24) {
            0..=6 => self.append(),
            7..=10 => self.write(),
            11..=13 => self.sync(),
            14 => self.full_disk(),
            15 | 16 => self.read_back(),
            17 => self.purge(),
            18 => self.crash(false),
            19 => self.crash(true),
            20 | 21 => self.stop_anywhere(),
            22 => self.failing_sync(),
            _ => self.flip_a_bit(),
        }
    }

    fn append(&mut self) -> Verdict {
        for _ in 0..=self.draw(5) {
            let len = match self.draw(20) {
                0 => 0,
                1 => 1_500,
                _ => self.draw(120),
            };
            self.number += 1;
            let bytes = format!("{} {}", self.number, "y".repeat(len as usize)).into_bytes();
            let (head, tail) = bytes.split_at(bytes.len() / 2);
            let end = self.log.append(&[head, tail]);
            self.expected.records.push((self.expected.end, bytes));
            self.expected.end = end;
        }
        check(self.log.end() == self.expected.end, || {
            "the end is elsewhere".into()
        })
    }

    fn write(&mut self) -> Verdict {
        let end = self.log.write().map_err(|error| error.to_string())?;
        self.expected.written = self.expected.records.len();
        check(end == self.expected.end && self.log.pending_bytes() == 0, || {
            format!("all was written, yet the log is written up to {end}")
        })
    }

    fn sync(&mut self) -> Verdict {
        self.log.sync().map_err(|error| error.to_string())?;
        self.expected.synced = self.expected.written;
        check(self.log.synced() == self.log.written(), || {
            "not all was synced".into()
        })
    }

    fn full_disk(&mut self) -> Verdict {
        self.append()?;
        let room_bytes = self.draw(300);
        self.disk.set_room_bytes(Some(room_bytes));
        let result = self.log.write();
        self.append()?;
        self.disk.set_room_bytes(None);
        match result {
            Ok(end) => {
                let records = &self.expected.records;
                self.expected.written = records.partition_point(|(position, _)| *position < end);
                Ok(())
            }
            Err(LogError::NotWritten(_)) => Ok(()),
            Err(error) => Err(format!("a full disk is not the end: {error}")),
        }
    }

    fn read_back(&mut self) -> Verdict {
        let places: Vec<Position> = self.expected.records[..self.expected.written]
            .iter()
            .map(|(position, _)| *position)
            .filter(|position| *position >= self.log.start())
            .collect();
        if places.is_empty() {
            return Ok(());
        }
        let mut from = places[self.draw(places.len() as u64) as usize];
        let mut place = self
            .expected
            .records
            .partition_point(|(position, _)| *position < from);
        let max_bytes = [1, 100, 1_000, 1 << 20][self.draw(4) as usize];
        while place < self.expected.written {
            let chunk = self
                .log
                .read(from, max_bytes)
                .map_err(|error| error.to_string())?;
            check(!chunk.records.is_empty(), || {
                format!("nothing was read at {from}")
            })?;
            for (position, bytes) in &chunk.records {
                let (expected, expected_bytes) = &self.expected.records[place];
                check(expected == position && expected_bytes == bytes, || {
                    format!("another record was read at {position}")
                })?;
                place += 1;
            }
            from = chunk.next;
        }
        check(from == self.log.written(), || {
            "more was read than was written".into()
        })
    }

    fn purge(&mut self) -> Verdict {
        let synced = self.expected.synced;
        if synced == 0 {
            return Ok(());
        }
        let place = self.draw(synced as u64) as usize;
        let position = self.expected.records[place].0;
        if position < self.log.start() {
            return Ok(());
        }
        self.from = self.from.max(position);
        self.log.purge(position).map_err(|error| error.to_string())?;
        check(self.log.start() <= position, || {
            format!("{position} was purged too")
        })
    }

    fn crash(&mut self, power: bool) -> Verdict {
        let max = self.expected.written;
        self.crash_with(power, max)
    }

    /// Crashes, opens and compares. At most `max` of the records may be there.
    fn crash_with(&mut self, power: bool, max: usize) -> Verdict {
        let min = if power {
            self.expected.synced
        } else {
            self.expected.written
        };
        if power {
            let seed = self.draw(u64::MAX);
            self.disk.crash_power(seed);
        } else {
            self.disk.crash_process();
        }
        // A crash may also interrupt the recovery from a crash.
        if self.draw(4) == 0 {
            let (changes, seed) = (self.draw(4), self.draw(u64::MAX));
            self.disk.stop_after(changes, seed);
            let _ = Log::open(self.disk.mount(), self.options, self.from, |_, _| Ok(()));
            self.disk.crash_process();
            if power {
                self.disk.crash_power(seed);
            }
        }
        self.reopen(min, max)
    }

    fn reopen(&mut self, min: usize, max: usize) -> Verdict {
        let mut seen = Vec::new();
        self.options = options_of(self.draw(8));
        self.mount = self.disk.mount();
        self.log = Log::open(self.mount.clone(), self.options, self.from, |position, bytes| {
            seen.push((position, bytes.to_vec()));
            Ok(())
        })
        .map_err(|error| error.to_string())?;
        self.compare(&seen, min, max)
    }

    fn compare(&mut self, seen: &[(Position, Vec<u8>)], min: usize, max: usize) -> Verdict {
        let from = self.from;
        let records = &mut self.expected.records;
        let first = records.partition_point(|(position, _)| *position < from);
        let count = first + seen.len();
        check((min..=max).contains(&count), || {
            format!("{count} records are left, not {min} to {max}")
        })?;
        check(records[first..count] == *seen, || {
            "records changed or moved".into()
        })?;
        records.truncate(count);
        self.expected.written = count;
        self.expected.synced = count;
        self.expected.end = records.last().map_or(Position(0), |(position, bytes)| {
            Position(position.0 + (record::HEADER_BYTES + bytes.len()) as u64)
        });
        check(self.log.end() == self.expected.end, || {
            format!("the log ends at {}, not {}", self.log.end(), self.expected.end)
        })
    }

    /// The process ends in the middle of some change to the disk. The power may fail at the same time.
    fn stop_anywhere(&mut self) -> Verdict {
        let (changes, seed, power) = (self.draw(6), self.draw(u64::MAX), self.draw(2) == 0);
        self.disk.stop_after(changes, seed);
        for _ in 0..4 {
            self.append()?;
            let appended = self.expected.records.len();
            match self.log.write() {
                Ok(_) => self.expected.written = appended,
                Err(_) => break,
            }
            if self.draw(2) == 0 && self.log.sync().is_ok() {
                self.expected.synced = self.expected.written;
            }
            if self.draw(2) == 0 && self.expected.synced > 0 {
                let place = self.draw(self.expected.synced as u64) as usize;
                let position = self.expected.records[place].0;
                self.from = self.from.max(position);
                let _ = self.log.purge(position);
            }
        }
        // Any part of the interrupted write may be there.
        let max = self.expected.records.len();
        self.crash_with(power, max)
    }

    fn failing_sync(&mut self) -> Verdict {
        self.append()?;
        self.write()?;
        let before = self.log.synced();
        self.disk.set_sync_fails(true);
        let failed = matches!(self.log.sync(), Err(LogError::Poisoned(_)));
        self.disk.set_sync_fails(false);
        let refused = matches!(self.log.sync(), Err(LogError::Poisoned(_)))
            && matches!(self.log.write(), Err(LogError::Poisoned(_)));
        check(failed && refused && self.log.synced() == before, || {
            "a failed sync was taken for a success".into()
        })?;
        self.crash(true)
    }

    /// A bit on the disk flips. If a later record proves that the damaged bytes were safely on disk, that is noticed. If not, the
    /// log ends in front of them.
    fn flip_a_bit(&mut self) -> Verdict {
        self.crash(false)?;
        let proven_end = self.expected.end;
        self.append()?;
        self.write()?;
        self.crash(false)?;
        let files = self.disk.lengths();
        let (name, len) = files[self.draw(files.len() as u64) as usize].clone();
        let (offset, bit) = (self.draw(len as u64) as usize, self.draw(8) as u32);
        self.disk.flip_bit(&name, offset, bit);
        let mut seen = Vec::new();
        let opened = Log::open(self.disk.mount(), self.options, self.from, |position, bytes| {
            seen.push((position, bytes.to_vec()));
            Ok(())
        });
        let start_of = |name: &str| segment::start_in(name).expect("only segments are on the disk");
        let damaged = Position(start_of(&name).0 + (offset as u64).saturating_sub(segment::HEADER_BYTES));
        let scanned = files.iter().map(|(name, _)| start_of(name));
        let scanned = scanned.filter(|start| *start <= self.from).max();
        match opened {
            Ok(log) if Some(damaged) >= scanned => {
                self.log = log;
                check(damaged >= proven_end, || {
                    format!("damage in {name} at byte {offset} was not noticed")
                })?;
                let records = &self.expected.records;
                let whole = records.partition_point(|(position, _)| *position <= damaged) - 1;
                self.compare(&seen, whole, whole)
            }
            // The bit is in front of what is read at opening, or the damage is noticed.
            Ok(_) | Err(OpenError::Damaged { .. } | OpenError::Header { .. }) => {
                self.disk.flip_bit(&name, offset, bit);
                let written = self.expected.written;
                self.reopen(written, written)
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Runs a seed. The error says what went wrong and how to repeat the run.
fn run(seed: u64) -> Verdict {
    let mut world = World::new(seed);
    for step in 0..150 {
        world
            .step()
            .map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
    }
    world.crash(seed.is_multiple_of(2))
}

#[test]
fn crashes_full_disks_and_damage_lose_only_what_they_may() {
    for seed in 0..600 {
        run(seed).unwrap();
    }
}

#[test]
fn the_random_runs_find_each_planted_bug() {
    for bug in [
        Bug::ChecksumIsNotLookedAt,
        Bug::DamageIsCutOffLikeATornEnd,
        Bug::FailedWriteIsForgotten,
        Bug::DirectoryIsNotSynced,
        Bug::RoomBeyondTheSegment,
    ] {
        let found = planted::with(bug, || (0..200).find_map(|seed| run(seed).err()));
        assert!(found.is_some(), "{bug:?} was not found");
        println!("{bug:?}: {}", found.unwrap_or_default());
    }
}
