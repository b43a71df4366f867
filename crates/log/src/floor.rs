//! Records beside the log up to where it is on disk.
//!
//! A log that ends early looks like one whose end a crash has torn off. Its records tell a torn end from damage only if some are
//! behind it. A checkpoint tells it only up to where the checkpoint began. If what was synced since then were cut off cleanly,
//! the node would not notice, unless a peer has it. So now and then the synced position is written into a file of its own, and a
//! log that does not reach that position is refused.
//!
//! ```text
//!   0:    position u64 | CRC-32C u32      written in turn: one that is torn leaves the other
//!   512:  position u64 | CRC-32C u32
//! ```
//!
//! The file is never synced itself. It may show less than was synced, and never more. What was synced after the last note, in the
//! fraction of a second before the end, can still be cut off unnoticed.
use crate::{Disk, DiskFile, Position};
use std::io;

/// The file's name. No segment has it.
const NAME: &str = "synced";

/// The offsets of the two notes. They are not in the same sector.
const PLACES: [u64; 2] = [0, 512];

const NOTE_BYTES: usize = 12;

/// The open file.
pub(crate) struct Floor {
    file: Box<dyn DiskFile>,
    noted: Position,
    next: usize,
}

impl Floor {
    /// The position that the log of a directory must reach.
    pub fn read(disk: &dyn Disk) -> io::Result<Position> {
        if !disk.list()?.iter().any(|name| name == NAME) {
            return Ok(Position(0));
        }
        let file = disk.open(NAME)?;
        let mut floor = Position(0);
        for place in PLACES {
            let mut note = [0; NOTE_BYTES];
            if file.read_at(place, &mut note)? == NOTE_BYTES {
                floor = floor.max(position_in(&note).unwrap_or_default());
            }
        }
        Ok(floor)
    }

    /// Opens the file, or creates it.
    pub fn open(disk: &dyn Disk) -> io::Result<Floor> {
        let file = match disk.list()?.iter().any(|name| name == NAME) {
            true => disk.open(NAME)?,
            false => disk.create(NAME)?,
        };
        Ok(Floor {
            file,
            noted: Position(0),
            next: 0,
        })
    }

    /// Writes down that everything before `synced` is on disk.
    pub fn note(&mut self, synced: Position) -> io::Result<()> {
        if synced <= self.noted {
            return Ok(());
        }
        let position = synced.0.to_le_bytes();
        let mut note = [0; NOTE_BYTES];
        note[..8].copy_from_slice(&position);
        note[8..].copy_from_slice(&crc32c::crc32c(&position).to_le_bytes());
        self.file.write_at(PLACES[self.next], &note)?;
        (self.noted, self.next) = (synced, 1 - self.next);
        Ok(())
    }
}

fn position_in(note: &[u8; NOTE_BYTES]) -> Option<Position> {
    let (position, checksum) = note.split_at(8);
    let is_right = crc32c::crc32c(position).to_le_bytes() == *checksum;
    let position = u64::from_le_bytes(position.try_into().ok()?);
    is_right.then_some(Position(position))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Log, OpenError, Options, SimulatedDisk};

    fn open(disk: &SimulatedDisk) -> Result<Log, OpenError> {
        Log::open(disk.mount(), Options::default(), Position(0), |_, _| Ok(()))
    }

    /// A log with `records` records, of which the first `noted` are synced and noted.
    fn log(disk: &SimulatedDisk, records: usize, noted: usize) -> Log {
        let log = open(disk).expect("the disk works");
        for number in 1..=records {
            log.append(&[b"a record"]);
            log.write().expect("the disk works");
            if number == noted {
                log.sync().expect("the disk works");
                log.note_synced().expect("the disk works");
            }
        }
        log
    }

    fn cut(disk: &SimulatedDisk, to: Position) {
        let disk = disk.mount();
        let names = disk.list().expect("the disk works");
        let segment = names
            .iter()
            .find(|name| name.ends_with(".log"))
            .expect("there is one");
        let file = disk.open(segment).expect("it is there");
        file.truncate(crate::segment::HEADER_BYTES + to.0)
            .expect("the disk works");
    }

    #[test]
    fn a_synced_end_that_is_cut_off_is_noticed_and_a_torn_one_is_not() {
        let disk = SimulatedDisk::new();
        let log = log(&disk, 9, 5);
        let (synced, end) = (log.synced(), log.written());
        drop(log);
        disk.crash_process();
        cut(&disk, Position(end.0 - 3));
        assert!(open(&disk).expect("it was torn").written() >= synced);
        cut(&disk, Position(synced.0 - 3));
        assert!(matches!(open(&disk).map(|_| ()), Err(OpenError::Damaged { .. })));
        let record = synced.0 / 5;
        cut(&disk, Position(record * 4));
        let missing = open(&disk).map(|_| ());
        assert!(matches!(missing, Err(OpenError::Missing { .. })), "{missing:?}");
        for name in disk.mount().list().expect("the disk works") {
            if name != NAME {
                disk.mount().remove(&name).expect("it is there");
            }
        }
        let missing = open(&disk).map(|_| ());
        assert!(matches!(missing, Err(OpenError::Missing { .. })), "{missing:?}");
    }

    #[test]
    fn a_torn_note_leaves_the_one_before() {
        let disk = SimulatedDisk::new();
        let mut floor = Floor::open(&*disk.mount()).expect("the disk works");
        for position in [5, 9, 7] {
            floor.note(Position(position)).expect("the disk works");
        }
        assert_eq!(Floor::read(&*disk.mount()).expect("the disk works"), Position(9));
        let file = disk.mount().open(NAME).expect("it is there");
        file.write_at(514, b"noise").expect("the disk works");
        assert_eq!(Floor::read(&*disk.mount()).expect("the disk works"), Position(5));
    }
}
