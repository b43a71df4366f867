//! How records lie in a segment.
use std::fmt;

/// A place in the endless log: a byte offset that never repeats.
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

/// In front of each payload: length u32, CRC-32C u32 over all that follows it, position u64, synced u64. Little endian.
pub(crate) const HEADER_BYTES: usize = 24;

/// The largest payload, in bytes. A length above it is damage.
pub(crate) const MOST_PAYLOAD_BYTES: usize = 128 << 20;

/// Appends a record to `out`.
pub(crate) fn put(out: &mut Vec<u8>, position: Position, synced: Position, payload: &[&[u8]]) {
    let begin = out.len();
    let len: usize = payload.iter().map(|part| part.len()).sum();
    assert!(
        len <= MOST_PAYLOAD_BYTES,
        "a record of {len} bytes is too large for the log"
    );
    out.extend_from_slice(&(len as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&position.0.to_le_bytes());
    out.extend_from_slice(&synced.0.to_le_bytes());
    for part in payload {
        out.extend_from_slice(part);
    }
    let crc = checksum(len as u32, &out[begin + 8..]);
    out[begin + 4..begin + 8].copy_from_slice(&crc.to_le_bytes());
}

/// The length takes part, or a record of zeros would be intact.
fn checksum(len: u32, rest: &[u8]) -> u32 {
    crc32c::crc32c_append(!len, rest)
}

/// What stands at the beginning of some bytes.
pub(crate) enum Found {
    /// A record, and where its payload lies.
    Record {
        synced: Position,
        payload: std::ops::Range<usize>,
    },
    /// It needs so many bytes to tell.
    Short(usize),
    /// No record of this position.
    Damaged(&'static str),
}

/// Looks for a record that begins at `position`.
pub(crate) fn look(bytes: &[u8], position: Position) -> Found {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Found::Short(HEADER_BYTES);
    };
    let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let (len, crc) = (u32_at(0), u32_at(4));
    if u64_at(8) != position.0 {
        return Found::Damaged("a record of this position");
    }
    if len as usize > MOST_PAYLOAD_BYTES {
        return Found::Damaged("a length of at most 128 MiB");
    }
    let end = HEADER_BYTES + len as usize;
    if bytes.len() < end {
        return Found::Short(end);
    }
    if checksum(len, &bytes[8..end]) != crc {
        return Found::Damaged("a record with its checksum");
    }
    Found::Record {
        synced: Position(u64_at(16)),
        payload: HEADER_BYTES..end,
    }
}
