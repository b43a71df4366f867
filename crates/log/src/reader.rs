use crate::{
    Position,
    record::{self, Found, Salt},
    segment::Segment,
};
use bytes::Bytes;
use std::io;

/// The number of bytes that are read from a file at a time.
pub(crate) const READ_BYTES: usize = 1 << 20;

/// Reads the records of one segment, one after the other.
pub(crate) struct Reader<'a> {
    segment: &'a Segment,
    salt: Salt,
    position: Position,
    buffer: Bytes,
}

/// What comes next in a segment.
pub(crate) enum Next {
    Record(Bytes),
    /// Nothing: the file ends here.
    End,
    /// Something other than what this text expects.
    Damaged(&'static str),
}

impl<'a> Reader<'a> {
    pub fn new(segment: &'a Segment, salt: Salt, position: Position) -> Reader<'a> {
        Reader {
            segment,
            salt,
            position,
            buffer: Bytes::new(),
        }
    }

    /// The position at which the next record begins.
    pub fn position(&self) -> Position {
        self.position
    }

    pub fn next(&mut self) -> io::Result<Next> {
        loop {
            match record::look(&self.buffer, self.salt, self.position) {
                Found::Record { payload } => return Ok(Next::Record(self.take(payload))),
                Found::Damaged(expected) => return Ok(Next::Damaged(expected)),
                Found::Short(needed) => {
                    if !self.fill(needed)? {
                        return Ok(match self.buffer.is_empty() {
                            true => Next::End,
                            false => Next::Damaged("the rest of a record"),
                        });
                    }
                }
            }
        }
    }

    fn take(&mut self, payload: std::ops::Range<usize>) -> Bytes {
        let bytes = payload.end;
        let payload = self.buffer.slice(payload);
        self.buffer = self.buffer.slice(bytes..);
        self.position.0 += bytes as u64;
        payload
    }

    /// Reads at least `needed` bytes. False if the file does not have them: so a damaged length, however large, allocates
    /// nothing.
    fn fill(&mut self, needed: usize) -> io::Result<bool> {
        let left = self.segment.file_end()?.0.saturating_sub(self.position.0);
        if left < needed as u64 && left <= self.buffer.len() as u64 {
            return Ok(false);
        }
        let wanted = (needed.max(READ_BYTES) as u64).min(left) as usize;
        let mut buffer = vec![0; wanted];
        let offset = self.segment.offset_of(self.position);
        let read = self.segment.file.read_at(offset, &mut buffer)?;
        buffer.truncate(read);
        let more = read > self.buffer.len();
        if more {
            self.buffer = buffer.into();
        }
        Ok(more)
    }
}
