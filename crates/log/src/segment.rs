//! One file of the log.
//!
//! ```text
//!   magic "TBUCKLOG" | version u32 | CRC-32C u32 over what follows | identity u128 | start u64 | records ...
//! ```
use crate::{Disk, DiskFile, OpenError, Position};
use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};

/// The version of the format that this release writes and reads.
const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"TBUCKLOG";

/// The size of the header in front of the records, in bytes.
pub(crate) const HEADER_BYTES: u64 = 40;

/// Half of what a u64 can count: far more than any disk holds. So the sum of two positions does not overflow.
const MAX_FIRST_OFFSET: u64 = u64::MAX / 2;

/// An open segment.
pub(crate) struct Segment {
    /// The position of the segment's first record.
    pub start: Position,
    pub file: Box<dyn DiskFile>,
    pub name: String,
    /// The owner that the header names. `None` if the header was never completed.
    pub identity: Option<u128>,
    /// The offset up to which room was made, or could not be made: nothing is tried again before it ([`Segment::make_room`]).
    room: AtomicU64,
}

pub(crate) fn name_of(start: Position) -> String {
    format!("{:020}.log", start.0)
}

/// The start that a file's name says; `None` if the file is no segment.
pub(crate) fn start_in(name: &str) -> Option<Position> {
    let digits = name.strip_suffix(".log")?;
    let start = digits
        .parse()
        .ok()
        .map(Position)
        .filter(|start| start.0 <= MAX_FIRST_OFFSET)?;
    (name_of(start) == name).then_some(start)
}

impl Segment {
    /// Creates a segment. Its header and its place in the directory survive a power loss only when both are synced.
    pub fn create(disk: &dyn Disk, start: Position, identity: u128) -> io::Result<Segment> {
        let name = name_of(start);
        // An earlier attempt on a full disk may have left this file.
        let _ = disk.remove(&name);
        let file = disk.create(&name)?;
        if let Err(error) = file.write_at(0, &header(start, identity)) {
            let _ = disk.remove(&name);
            return Err(error);
        }
        Ok(Segment {
            start,
            file,
            name,
            identity: Some(identity),
            room: AtomicU64::new(0),
        })
    }

    /// Opens a segment and checks its header. A header that a crash left unfinished (cut short, or zeros) is no error here.
    pub fn open(disk: &dyn Disk, name: &str, start: Position) -> Result<Segment, OpenError> {
        let file = disk.open(name)?;
        let mut header = [0; HEADER_BYTES as usize];
        let read = file.read_at(0, &mut header)?;
        let unfinished = read < header.len() || header.iter().all(|&byte| byte == 0);
        let identity = if unfinished {
            None
        } else {
            Some(identity_in(&header, name, start)?)
        };
        Ok(Segment {
            start,
            file,
            name: name.to_string(),
            identity,
            room: AtomicU64::new(0),
        })
    }

    /// The offset of a position in the file.
    pub fn offset_of(&self, position: Position) -> u64 {
        HEADER_BYTES + (position.0 - self.start.0)
    }

    /// Makes room behind `end`, the end of what is written: zeros up to a multiple of `ahead` bytes, and not beyond `until`. A sync of what is written there later need not write the file's length, too. For
    /// recovery these zeros are a torn end.
    ///
    /// A disk that is full has no room for them. Then the file ends where the records end.
    pub fn make_room(&self, end: u64, ahead: u64, until: u64) {
        if ahead == 0 || end < self.room.load(Ordering::Relaxed) {
            return;
        }
        let room = (end + 1).next_multiple_of(ahead);
        #[cfg(test)]
        let until = match crate::planted::is(crate::planted::Bug::RoomBeyondTheSegment) {
            true => room,
            false => until,
        };
        let room = room.min(until).max(end);
        self.room.store(room, Ordering::Relaxed);
        let zeros = vec![0; (room - end) as usize];
        if self.file.write_at(end, &zeros).is_err() {
            // If that fails, too, there are some zeros. They do no harm.
            let _ = self.file.truncate(end);
        }
    }

    /// Cuts the file off behind `end`.
    pub fn cut(&self, end: u64) -> io::Result<()> {
        self.room.store(0, Ordering::Relaxed);
        self.file.truncate(end)
    }

    /// The position behind the last byte of the file.
    pub fn file_end(&self) -> io::Result<Position> {
        let records_bytes = self.file.len_bytes()?.saturating_sub(HEADER_BYTES);
        Ok(Position(self.start.0 + records_bytes.min(MAX_FIRST_OFFSET)))
    }
}

fn header(start: Position, identity: u128) -> Vec<u8> {
    let rest = [&identity.to_le_bytes()[..], &start.0.to_le_bytes()].concat();
    let mut header = Vec::from(*MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&crc32c::crc32c(&rest).to_le_bytes());
    header.extend_from_slice(&rest);
    header
}

fn identity_in(header: &[u8; HEADER_BYTES as usize], name: &str, start: Position) -> Result<u128, OpenError> {
    let wrong = |expected: String, found: String| OpenError::Header {
        file: name.to_string(),
        expected,
        found,
    };
    if header[..8] != *MAGIC {
        return Err(wrong("a segment of a commit log".into(), "another file".into()));
    }
    let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    if version != VERSION {
        return Err(wrong(
            format!("version {VERSION} of the format"),
            format!("version {version}, which another release may have written"),
        ));
    }
    if crc32c::crc32c(&header[16..]).to_le_bytes() != header[12..16] {
        return Err(wrong("a header with its checksum".into(), "a damaged one".into()));
    }
    if header[32..40] != start.0.to_le_bytes() {
        return Err(wrong(
            format!("a segment that begins at {start}"),
            "one that begins elsewhere: the file was renamed".into(),
        ));
    }
    Ok(u128::from_le_bytes(header[16..32].try_into().expect("16 bytes")))
}
