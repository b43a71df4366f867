//! One file of the log.
use crate::{Disk, DiskFile, OpenError, Position};
use std::{io, sync::Arc};

/// The version of the format that this release writes and reads.
const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"TBUCKLOG";

/// Magic, version u32, CRC-32C u32 over what follows it, identity u128, start u64. Little endian.
pub(crate) const HEADER_BYTES: u64 = 40;

#[derive(Clone)]
pub(crate) struct Segment {
    pub start: Position,
    pub file: Arc<dyn DiskFile>,
    pub name: String,
}

pub(crate) fn name_of(start: Position) -> String {
    format!("{:020}.log", start.0)
}

/// The start that a file's name tells; `None` for files of others.
pub(crate) fn start_in(name: &str) -> Option<Position> {
    let digits = name.strip_suffix(".log").filter(|digits| digits.len() == 20)?;
    digits.parse().ok().map(Position)
}

impl Segment {
    /// Creates a segment, complete with its place in the directory, so that what is later synced in it can be found.
    pub fn create(disk: &dyn Disk, start: Position, identity: u128) -> io::Result<Segment> {
        let name = name_of(start);
        // What an earlier attempt on a full disk may have left.
        let _ = disk.remove(&name);
        let file: Arc<dyn DiskFile> = disk.create(&name)?.into();
        let mut header = Vec::from(*MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        let rest = [&identity.to_le_bytes()[..], &start.0.to_le_bytes()].concat();
        header.extend_from_slice(&crc32c::crc32c(&rest).to_le_bytes());
        header.extend_from_slice(&rest);
        let written = file
            .write_at(0, &header)
            .and_then(|()| file.sync())
            .and_then(|()| disk.sync_directory());
        if let Err(error) = written {
            let _ = disk.remove(&name);
            return Err(error);
        }
        Ok(Segment { start, file, name })
    }

    /// Opens a segment and checks its header. `Ok(None)`: its creation was never completed, and nothing is lost with it.
    pub fn open(
        disk: &dyn Disk,
        name: &str,
        start: Position,
        identity: &mut Option<u128>,
    ) -> Result<Option<Segment>, OpenError> {
        let wrong = |expected: String, found: String| OpenError::Header {
            file: name.to_string(),
            expected,
            found,
        };
        let file: Arc<dyn DiskFile> = disk.open(name)?.into();
        let mut header = [0; HEADER_BYTES as usize];
        let read = file.read_at(0, &mut header)?;
        if read < header.len() || header == [0; HEADER_BYTES as usize] {
            return Ok(None);
        }
        if header[..8] != *MAGIC {
            return Err(wrong("a segment of a commit log".into(), "another file".into()));
        }
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if version != VERSION {
            return Err(wrong(
                format!("version {VERSION} of the format"),
                format!("version {version}"),
            ));
        }
        if crc32c::crc32c(&header[16..]).to_le_bytes() != header[12..16] {
            return Err(wrong("a header with its checksum".into(), "a damaged one".into()));
        }
        let id = u128::from_le_bytes(header[16..32].try_into().expect("16 bytes"));
        let of = identity.get_or_insert(id);
        if *of != id {
            return Err(wrong(
                format!("a segment of node {of:032x}"),
                format!("one of node {id:032x}"),
            ));
        }
        if header[32..40] != start.0.to_le_bytes() {
            return Err(wrong(
                format!("a segment that begins at {start}"),
                "one that begins elsewhere".into(),
            ));
        }
        Ok(Some(Segment {
            start,
            file,
            name: name.to_string(),
        }))
    }

    /// Where a position lies in the file.
    pub fn offset_of(&self, position: Position) -> u64 {
        HEADER_BYTES + (position.0 - self.start.0)
    }

    /// The position behind the last byte of the file.
    pub fn file_end(&self) -> io::Result<Position> {
        Ok(Position(
            self.start.0 + self.file.len()?.saturating_sub(HEADER_BYTES),
        ))
    }
}
