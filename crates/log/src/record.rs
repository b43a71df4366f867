//! The encoding of records in a segment.
//!
//! ```text
//!   length u32 | CRC-32C u32 | position u64 | synced u64 | payload ...        little endian
//! ```
use std::fmt;

/// A place in the endless log: a byte offset.
///
/// If a crash has torn off the end of the log, other bytes may later have the same position, unless it could be known that it was
/// synced. A position up to which the log was synced means the same bytes forever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// The size of the header in front of each payload, in bytes.
pub(crate) const HEADER_BYTES: usize = 24;

/// The largest payload, in bytes. A length above it is damage.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 128 << 20;

/// The beginning of every checksum of a log. It comes from the log's identity: so neither a record of another node's log nor
/// bytes that a client chose (a value may have any bytes) pass for a record of this log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salt(u32);

impl Salt {
    /// The salt of the log with this identity.
    pub fn of(identity: u128) -> Salt {
        Salt(crc32c::crc32c(&identity.to_le_bytes()))
    }

    /// The length is included, because it decides where the payload ends.
    fn checksum(self, len: u32, rest: &[u8]) -> u32 {
        crc32c::crc32c_append(self.0 ^ !len, rest)
    }
}

/// Appends a record to `out`.
pub(crate) fn put(out: &mut Vec<u8>, salt: Salt, position: Position, synced: Position, payload: &[&[u8]]) {
    let begin = out.len();
    let len: usize = payload.iter().map(|part| part.len()).sum();
    assert!(
        len <= MAX_PAYLOAD_BYTES,
        "a record of {len} bytes is too large for the log"
    );
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&(len as u32).to_le_bytes());
    header[8..16].copy_from_slice(&position.0.to_le_bytes());
    header[16..].copy_from_slice(&synced.0.to_le_bytes());
    out.reserve(HEADER_BYTES + len);
    out.extend_from_slice(&header);
    for part in payload {
        out.extend_from_slice(part);
    }
    let crc = salt.checksum(len as u32, &out[begin + 8..]);
    out[begin + 4..begin + 8].copy_from_slice(&crc.to_le_bytes());
}

/// The fields in front of a payload, not yet checked.
pub(crate) struct Header {
    len: u32,
    crc: u32,
    /// The position that the record claims to have.
    pub position: Position,
    /// The position up to which the log was known to be synced when the record was appended.
    pub synced: Position,
}

impl Header {
    /// Decodes the fields.
    pub fn of(bytes: &[u8; HEADER_BYTES]) -> Header {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        Header {
            len: u32_at(0),
            crc: u32_at(4),
            position: Position(u64_at(8)),
            synced: Position(u64_at(16)),
        }
    }

    /// The length of the whole record; `None` if no record is that long.
    pub fn record_bytes(&self) -> Option<usize> {
        (self.len as usize <= MAX_PAYLOAD_BYTES).then_some(HEADER_BYTES + self.len as usize)
    }
}

/// What is at the beginning of some bytes.
pub(crate) enum Found {
    /// A record, and the place of its payload.
    Record { payload: std::ops::Range<usize> },
    /// Not enough bytes: at least this number is needed.
    Short(usize),
    /// No record of this position. The text says what was expected.
    Damaged(&'static str),
}

/// Looks for a record that begins at `position`.
pub(crate) fn look(bytes: &[u8], salt: Salt, position: Position) -> Found {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Found::Short(HEADER_BYTES);
    };
    let header = Header::of(header);
    if header.position != position {
        return Found::Damaged("a record of this position");
    }
    let Some(end) = header.record_bytes() else {
        return Found::Damaged("a length of at most 128 MiB");
    };
    if bytes.len() < end {
        return Found::Short(end);
    }
    #[cfg(test)]
    if crate::planted::is(crate::planted::Bug::ChecksumIsNotLookedAt) {
        return Found::Record {
            payload: HEADER_BYTES..end,
        };
    }
    if salt.checksum(header.len, &bytes[8..end]) != header.crc {
        return Found::Damaged("a record with its checksum");
    }
    Found::Record {
        payload: HEADER_BYTES..end,
    }
}
