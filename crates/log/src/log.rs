use crate::{
    Disk, Position,
    record::{self, Found},
    segment::{self, Segment},
};
use bytes::Bytes;
use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use thiserror::Error;
use turnbuckle_core::BadFrame;

/// How a log is to be.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// A segment that has grown to this many bytes is followed by a new one.
    pub segment_bytes: u64,
    /// Who the log belongs to: written into a new one, and checked in one that exists unless it is 0.
    pub identity: u128,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            identity: 0,
        }
    }
}

/// Why a log cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The disk failed.
    #[error("the disk failed: {0}")]
    Disk(#[from] io::Error),
    /// A file is not what its name says.
    #[error("{file}: expected {expected}, found {found}")]
    Header {
        /// The file.
        file: String,
        /// What would have been understood.
        expected: String,
        /// What was there.
        found: String,
    },
    /// Something that was safely on disk is damaged.
    #[error(
        "{file}, byte {offset}: expected {expected}; it was once safely on disk, so the disk is failing or the file was \
             changed. Restore the data directory, or start this node with an empty one: its peers hold its data"
    )]
    Damaged {
        /// The file.
        file: String,
        /// Where in it.
        offset: u64,
        /// What was expected.
        expected: &'static str,
    },
    /// A segment is missing, or the log does not reach back or on to where it is needed.
    #[error("expected the commit log to have {expected}, found that it has {found}")]
    Missing {
        /// What is needed.
        expected: String,
        /// What there is.
        found: String,
    },
    /// An intact record means nothing to its reader.
    #[error("{file}, record {position}: {source}")]
    Record {
        /// The file.
        file: String,
        /// The record.
        position: Position,
        /// What its reader says.
        source: BadFrame,
    },
}

/// Why something could not be written or synced.
#[derive(Debug, Clone, Error)]
pub enum LogError {
    /// The write failed and was taken back; what was pending still is. It may be tried again.
    #[error("the commit log could not be written: {0}")]
    NotWritten(String),
    /// An earlier failure left the log in a state that cannot be known. Only opening it anew helps.
    #[error("the commit log failed and takes nothing more: {0}")]
    Poisoned(String),
}

/// Why something could not be read back.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It was purged; the log begins later.
    #[error("the commit log begins at {start}")]
    Purged {
        /// Where it begins.
        start: Position,
    },
    /// The disk failed, or what it holds is damaged.
    #[error("the commit log could not be read back at {position}: {why}")]
    Failed {
        /// Where.
        position: Position,
        /// Why.
        why: String,
    },
}

/// Some records.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The records, each with the position at which it begins.
    pub records: Vec<(Position, Bytes)>,
    /// Where to read on.
    pub next: Position,
}

/// A commit log.
pub struct Log {
    disk: Arc<dyn Disk>,
    options: Options,
    identity: u128,
    pending: Mutex<Pending>,
    segments: Mutex<Segments>,
    /// Syncs one at a time.
    syncing: Mutex<()>,
    start: AtomicU64,
    written: AtomicU64,
    synced: AtomicU64,
    poisoned: AtomicBool,
    why_poisoned: Mutex<String>,
}

/// Appended and not yet written.
struct Pending {
    bytes: Vec<u8>,
    /// A buffer that was written, to be filled again.
    spare: Vec<u8>,
    end: Position,
}

struct Segments {
    /// Oldest first. Never empty.
    all: Vec<Segment>,
    /// Segments that were written to since the last sync.
    unsynced: Vec<Segment>,
}

/// How much is read from a file at a time.
const READ_BYTES: usize = 1 << 20;

impl Log {
    /// Opens a log, or creates an empty one. `visit` is shown every intact record from `from` on, with its position.
    /// What a crash has torn off at the end is cut off for good.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: Options,
        from: Position,
        mut visit: impl FnMut(Position, Bytes) -> Result<(), BadFrame>,
    ) -> Result<Log, OpenError> {
        let mut identity = (options.identity != 0).then_some(options.identity);
        let mut segments = open_segments(&*disk, &mut identity)?;
        let identity = identity.unwrap_or(0);
        if segments.is_empty() {
            if from > Position(0) {
                return Err(OpenError::Missing {
                    expected: format!("records from {from} on"),
                    found: "no segment".into(),
                });
            }
            segments.push(Segment::create(&*disk, Position(0), identity)?);
        }
        let start = segments[0].start;
        if from < start {
            let found = format!("records from {start} on");
            return Err(OpenError::Missing {
                expected: format!("records from {from} on"),
                found,
            });
        }
        let end = scan(&*disk, &mut segments, from, &mut visit)?;
        if end < from {
            let found = format!("records up to {end}");
            return Err(OpenError::Missing {
                expected: format!("records up to {from}"),
                found,
            });
        }
        // What is there now stays there, also through the next crash.
        for segment in &segments {
            segment.file.sync()?;
        }
        Ok(Log {
            disk,
            options,
            identity,
            pending: Mutex::new(Pending {
                bytes: Vec::new(),
                spare: Vec::new(),
                end,
            }),
            segments: Mutex::new(Segments {
                all: segments,
                unsynced: Vec::new(),
            }),
            syncing: Mutex::new(()),
            start: AtomicU64::new(start.0),
            written: AtomicU64::new(end.0),
            synced: AtomicU64::new(end.0),
            poisoned: AtomicBool::new(false),
            why_poisoned: Mutex::default(),
        })
    }

    /// Who the log belongs to.
    pub fn identity(&self) -> u128 {
        self.identity
    }

    /// Appends a record: the parts of its payload, one behind the other. No I/O. Returns the position behind it: the record is
    /// written when [`Log::written`] has reached that, and synced when [`Log::synced`] has.
    ///
    /// # Panics
    /// If it is larger than 128 MiB.
    pub fn append(&self, payload: &[&[u8]]) -> Position {
        let synced = self.synced();
        let mut pending = held(&self.pending);
        let (position, before) = (pending.end, pending.bytes.len());
        record::put(&mut pending.bytes, position, synced, payload);
        pending.end = Position(position.0 + (pending.bytes.len() - before) as u64);
        pending.end
    }

    /// Hands everything that was appended before the call to the operating system. Costs next to nothing if there is nothing.
    pub fn write(&self) -> Result<Position, LogError> {
        self.check()?;
        if held(&self.pending).bytes.is_empty() {
            return Ok(self.written());
        }
        let mut segments = held(&self.segments);
        let bytes = {
            let mut pending = held(&self.pending);
            let spare = std::mem::take(&mut pending.spare);
            std::mem::replace(&mut pending.bytes, spare)
        };
        let result = self.write_bytes(&mut segments, &bytes);
        let mut pending = held(&self.pending);
        match result {
            Ok(end) => {
                self.written.store(end.0, Ordering::Release);
                pending.spare = bytes;
                pending.spare.clear();
                pending.spare.shrink_to(READ_BYTES);
                Ok(end)
            }
            Err(error) => {
                // Back in front of what was appended meanwhile.
                let behind = std::mem::replace(&mut pending.bytes, bytes);
                pending.bytes.extend_from_slice(&behind);
                Err(error)
            }
        }
    }

    fn write_bytes(&self, segments: &mut Segments, bytes: &[u8]) -> Result<Position, LogError> {
        let at = self.written();
        let not_written = |error: io::Error| LogError::NotWritten(error.to_string());
        let last = segments.all.last().expect("there is always a segment");
        if last.offset_of(at) >= self.options.segment_bytes {
            segments
                .all
                .push(Segment::create(&*self.disk, at, self.identity).map_err(not_written)?);
        }
        let last = segments.all.last().expect("there is always a segment").clone();
        let offset = last.offset_of(at);
        if segments
            .unsynced
            .last()
            .is_none_or(|segment| segment.start != last.start)
        {
            segments.unsynced.push(last.clone());
        }
        if let Err(error) = last.file.write_at(offset, bytes) {
            if let Err(worse) = last.file.truncate(offset) {
                return Err(self.poison(format!("{error}; then its end could not be cut off: {worse}")));
            }
            return Err(not_written(error));
        }
        Ok(Position(at.0 + bytes.len() as u64))
    }

    /// Makes everything that was written before the call survive a power loss. Others may append and write meanwhile.
    pub fn sync(&self) -> Result<Position, LogError> {
        let _one_at_a_time = held(&self.syncing);
        self.check()?;
        let (unsynced, written) = {
            let mut segments = held(&self.segments);
            (std::mem::take(&mut segments.unsynced), self.written())
        };
        if written == self.synced() {
            return Ok(written);
        }
        for segment in &unsynced {
            if let Err(error) = segment.file.sync() {
                return Err(self.poison(format!("a sync failed: {error}")));
            }
        }
        self.synced.store(written.0, Ordering::Release);
        Ok(written)
    }

    fn check(&self) -> Result<(), LogError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(LogError::Poisoned(held(&self.why_poisoned).clone()));
        }
        Ok(())
    }

    fn poison(&self, why: String) -> LogError {
        held(&self.why_poisoned).clone_from(&why);
        self.poisoned.store(true, Ordering::Release);
        LogError::Poisoned(why)
    }

    /// The oldest position that is kept.
    pub fn start(&self) -> Position {
        Position(self.start.load(Ordering::Acquire))
    }

    /// Everything before this survives the end of the process.
    pub fn written(&self) -> Position {
        Position(self.written.load(Ordering::Acquire))
    }

    /// Everything before this survives a power loss.
    pub fn synced(&self) -> Position {
        Position(self.synced.load(Ordering::Acquire))
    }

    /// Where the next record will begin.
    pub fn end(&self) -> Position {
        held(&self.pending).end
    }

    /// What was appended and not yet written, in bytes.
    pub fn pending_bytes(&self) -> usize {
        held(&self.pending).bytes.len()
    }

    /// Written records from `from` (where one begins) on: as many as fit into about `most_bytes`, at least one if
    /// there is one.
    pub fn read(&self, from: Position, most_bytes: usize) -> Result<Chunk, ReadError> {
        let written = self.written();
        if from < self.start() {
            return Err(ReadError::Purged { start: self.start() });
        }
        let mut chunk = Chunk {
            records: Vec::new(),
            next: from,
        };
        if from >= written {
            return Ok(chunk);
        }
        let (segment, end) = self.segment_at(from, written)?;
        let failed = |position, why: String| ReadError::Failed { position, why };
        let mut wanted = most_bytes.clamp(record::HEADER_BYTES, READ_BYTES.max(most_bytes));
        loop {
            let len = wanted.min((end.0 - from.0) as usize);
            let mut buffer = vec![0; len];
            let read = segment.file.read_at(segment.offset_of(from), &mut buffer);
            let read = read.map_err(|error| failed(from, error.to_string()))?;
            buffer.truncate(read);
            let buffer = Bytes::from(buffer);
            let mut at = 0;
            let short = loop {
                match record::look(&buffer[at..], chunk.next) {
                    Found::Record { payload, .. } => {
                        let bytes = payload.end;
                        chunk
                            .records
                            .push((chunk.next, buffer.slice(at + payload.start..at + payload.end)));
                        at += bytes;
                        chunk.next = Position(chunk.next.0 + bytes as u64);
                    }
                    Found::Short(needed) => break needed,
                    Found::Damaged(expected) => {
                        return Err(failed(chunk.next, format!("expected {expected}")));
                    }
                }
            };
            if !chunk.records.is_empty() {
                return Ok(chunk);
            }
            if len as u64 >= end.0 - from.0 {
                return Err(failed(from, "a record is cut short".into()));
            }
            // One record larger than what was asked for.
            wanted = short.max(wanted * 2);
        }
    }

    /// The segment that holds a position, and where its written part ends.
    fn segment_at(&self, position: Position, written: Position) -> Result<(Segment, Position), ReadError> {
        let segments = held(&self.segments);
        let place = segments.all.partition_point(|segment| segment.start <= position);
        if place == 0 {
            return Err(ReadError::Purged { start: self.start() });
        }
        let end = segments.all.get(place).map_or(written, |next| next.start);
        Ok((segments.all[place - 1].clone(), end))
    }

    /// Removes segments that lie wholly before `before`. The last one stays.
    pub fn purge(&self, before: Position) -> Result<(), LogError> {
        let mut segments = held(&self.segments);
        let Segments { all, unsynced } = &mut *segments;
        while all.len() > 1 && all[1].start <= before {
            let gone = all[0].clone();
            self.disk
                .remove(&gone.name)
                .map_err(|error| LogError::NotWritten(error.to_string()))?;
            unsynced.retain(|segment| segment.start != gone.start);
            all.remove(0);
            self.start.store(all[0].start.0, Ordering::Release);
        }
        Ok(())
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_segments(disk: &dyn Disk, identity: &mut Option<u128>) -> Result<Vec<Segment>, OpenError> {
    let mut starts: Vec<(Position, String)> = disk
        .list()?
        .into_iter()
        .filter_map(|name| Some((segment::start_in(&name)?, name)))
        .collect();
    starts.sort();
    let mut segments = Vec::new();
    let last = starts.len().saturating_sub(1);
    for (place, (start, name)) in starts.into_iter().enumerate() {
        match Segment::open(disk, &name, start, identity)? {
            Some(segment) => segments.push(segment),
            None if place == last => disk.remove(&name)?,
            None => {
                let found = "less than its header".into();
                return Err(OpenError::Header {
                    file: name,
                    expected: "a segment of a commit log".into(),
                    found,
                });
            }
        }
    }
    Ok(segments)
}

/// Reads all segments from `from` on; cuts off what is torn. Returns the end.
fn scan(
    disk: &dyn Disk,
    segments: &mut Vec<Segment>,
    from: Position,
    visit: &mut dyn FnMut(Position, Bytes) -> Result<(), BadFrame>,
) -> Result<Position, OpenError> {
    let first = segments.partition_point(|segment| segment.start <= from).max(1) - 1;
    let mut place = first;
    loop {
        let segment = segments[place].clone();
        let next = segments.get(place + 1).map(|next| next.start);
        let (end, damage) = scan_segment(&segment, from, visit)?;
        if damage.is_none() && next.is_none_or(|next| next == end) {
            match next {
                Some(_) => place += 1,
                None => return Ok(end),
            }
            continue;
        }
        let expected = damage.unwrap_or("the records up to the next segment");
        if was_synced(&segments[place..], end)? {
            return Err(OpenError::Damaged {
                file: segment.name.clone(),
                offset: segment.offset_of(end),
                expected,
            });
        }
        segment.file.truncate(segment.offset_of(end))?;
        for torn in segments.drain(place + 1..) {
            disk.remove(&torn.name)?;
        }
        disk.sync_directory()?;
        return Ok(end);
    }
}

/// Visits a segment's intact records. Returns where they end, and what was expected there if it is not the file's end.
fn scan_segment(
    segment: &Segment,
    from: Position,
    visit: &mut dyn FnMut(Position, Bytes) -> Result<(), BadFrame>,
) -> Result<(Position, Option<&'static str>), OpenError> {
    let mut reader = Reader::new(segment, segment.start);
    loop {
        let position = reader.position;
        match reader.next()? {
            Next::Record { payload, .. } => {
                if position >= from {
                    visit(position, payload).map_err(|source| OpenError::Record {
                        file: segment.name.clone(),
                        position,
                        source,
                    })?;
                }
            }
            Next::End => return Ok((position, None)),
            Next::Damaged(expected) => return Ok((position, Some(expected))),
        }
    }
}

/// Whether any intact record at or behind `end` was appended when the log was synced beyond `end`.
fn was_synced(segments: &[Segment], end: Position) -> Result<bool, OpenError> {
    for segment in segments {
        let mut position = segment.start.max(end);
        let file_end = segment.file_end()?;
        // Records may begin at any byte now. This is slow, and happens once, after damage.
        while position < file_end {
            let mut reader = Reader::new(segment, position);
            match reader.next()? {
                Next::Record { synced, .. } if synced > end => return Ok(true),
                Next::Record { .. } => position = reader.position,
                Next::End | Next::Damaged(_) => position = find_candidate(segment, position, file_end)?,
            }
        }
    }
    Ok(false)
}

/// The next byte behind `after` at which a record's header could stand: one that carries its own position.
fn find_candidate(segment: &Segment, after: Position, file_end: Position) -> Result<Position, OpenError> {
    let mut from = Position(after.0 + 1);
    while from < file_end {
        let mut buffer = vec![0; READ_BYTES];
        let read = segment.file.read_at(segment.offset_of(from), &mut buffer)?;
        for at in 0..read.saturating_sub(15) {
            let position = from.0 + at as u64;
            if buffer[at + 8..at + 16] == position.to_le_bytes() {
                return Ok(Position(position));
            }
        }
        if read < READ_BYTES {
            break;
        }
        from.0 += (read - 15) as u64;
    }
    Ok(file_end)
}

/// Reads records one after the other.
struct Reader<'a> {
    segment: &'a Segment,
    position: Position,
    buffer: Bytes,
}

enum Next {
    Record { payload: Bytes, synced: Position },
    End,
    Damaged(&'static str),
}

impl<'a> Reader<'a> {
    fn new(segment: &'a Segment, position: Position) -> Reader<'a> {
        Reader {
            segment,
            position,
            buffer: Bytes::new(),
        }
    }

    fn next(&mut self) -> io::Result<Next> {
        loop {
            match record::look(&self.buffer, self.position) {
                Found::Record { synced, payload } => {
                    let bytes = payload.end;
                    let payload = self.buffer.slice(payload);
                    self.buffer = self.buffer.slice(bytes..);
                    self.position.0 += bytes as u64;
                    return Ok(Next::Record { payload, synced });
                }
                Found::Damaged(expected) => return Ok(Next::Damaged(expected)),
                Found::Short(needed) => {
                    let had = self.buffer.len();
                    // Not more than there is, whatever a damaged length says.
                    let left = self.segment.file_end()?.0.saturating_sub(self.position.0);
                    if (had as u64) >= left {
                        return Ok(if had == 0 {
                            Next::End
                        } else {
                            Next::Damaged("the rest of a record")
                        });
                    }
                    let wanted = (needed.max(READ_BYTES) as u64).min(left) as usize;
                    let mut buffer = vec![0; wanted];
                    let read = self
                        .segment
                        .file
                        .read_at(self.segment.offset_of(self.position), &mut buffer)?;
                    buffer.truncate(read);
                    if read <= had {
                        return Ok(Next::Damaged("the rest of a record"));
                    }
                    self.buffer = buffer.into();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
