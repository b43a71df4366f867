use crate::{
    Disk, LogError, OpenError, Position, ReadError,
    floor::Floor,
    reader::READ_BYTES,
    record::{self, Found, Salt},
    recovery::{self, Recovered},
    segment::Segment,
};
use bytes::Bytes;
use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use turnbuckle_core::BadFrame;

/// The options of a log.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// When a segment has grown to this number of bytes, a new one follows it.
    pub segment_bytes: u64,
    /// The last segment gets zeros up to a multiple of this number of bytes before records are written there: then a sync takes less time, because the file's length does not change. Everything is written
    /// twice, so this is for logs that are synced after each write. 0: no zeros.
    pub ahead_bytes: u64,
    /// The owner of the log, as a number. It is written into a new log, and checked in an existing one unless it is 0. It should
    /// be drawn at random once per data directory.
    pub identity: u128,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            ahead_bytes: 0,
            identity: 0,
        }
    }
}

/// Records that were read.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The records, each with the position at which it begins. They share one buffer: copy what is kept for long.
    pub records: Vec<(Position, Bytes)>,
    /// The position at which to read on.
    pub next: Position,
}

/// A commit log. All methods may be called from any thread.
pub struct Log {
    disk: Arc<dyn Disk>,
    options: Options,
    identity: u128,
    salt: Salt,
    // Locks are taken in this order, each only where it is needed: syncing, segments, pending.
    /// Allows one sync at a time. Held while the disk works.
    syncing: Mutex<()>,
    /// Allows one write at a time. Held while bytes are handed to the operating system.
    segments: Mutex<Segments>,
    /// Held for a checksum and a copy.
    pending: Mutex<Pending>,
    start: AtomicU64,
    written: AtomicU64,
    synced: AtomicU64,
    poisoned: AtomicBool,
    why_poisoned: Mutex<String>,
    /// The file in which the synced position is noted. `None` before the first note.
    floor: Mutex<Option<Floor>>,
    /// A planted bug: bytes that the disk did not take count as written.
    is_forgetful: AtomicBool,
}

/// Records that were appended and not yet written.
struct Pending {
    bytes: Vec<u8>,
    /// A buffer that was written. It is used again.
    spare: Vec<u8>,
    end: Position,
}

struct Segments {
    /// All segments, oldest first. Never empty.
    all: Vec<Arc<Segment>>,
    /// Segments that were written to since the last sync.
    unsynced: Vec<Arc<Segment>>,
    /// Whether a segment was created since the last sync.
    directory_unsynced: bool,
    /// Segments that are purged, but whose files are not removed yet.
    doomed: Vec<Arc<Segment>>,
}

impl Log {
    /// Opens a log, or creates an empty one. `visit` is called with every intact record from `from` on and its position. The
    /// record's bytes are in a large shared buffer, so copy what is kept for long. A torn end that a crash has left is cut off
    /// permanently. Once this returns, every record that was passed to `visit` survives a power loss.
    ///
    /// `from` is the position up to which a checkpoint covers the log: the caller promises that the log was synced up to there.
    ///
    /// # Errors
    /// See [`OpenError`]. If a log is refused, its directory is not changed.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: Options,
        from: Position,
        mut visit: impl FnMut(Position, Bytes) -> Result<(), BadFrame>,
    ) -> Result<Log, OpenError> {
        let Recovered {
            identity,
            segments,
            end,
        } = recovery::recover(&*disk, options.identity, from, &mut visit)?;
        for segment in &segments {
            segment.file.sync()?;
        }
        disk.sync_directory()?;
        Ok(Log {
            disk,
            options,
            identity,
            salt: Salt::of(identity),
            syncing: Mutex::new(()),
            start: AtomicU64::new(segments[0].start.0),
            written: AtomicU64::new(end.0),
            synced: AtomicU64::new(end.0),
            poisoned: AtomicBool::new(false),
            why_poisoned: Mutex::default(),
            floor: Mutex::default(),
            is_forgetful: AtomicBool::new(false),
            segments: Mutex::new(Segments {
                all: segments,
                unsynced: Vec::new(),
                directory_unsynced: false,
                doomed: Vec::new(),
            }),
            pending: Mutex::new(Pending {
                bytes: Vec::new(),
                spare: Vec::new(),
                end,
            }),
        })
    }

    /// The owner of the log, as a number.
    pub fn identity(&self) -> u128 {
        self.identity
    }

    // ---- appending ------------------------------------------------------------------------------------------

    /// Appends a record: the parts of its payload, one behind the other. Does no I/O and never fails. Returns the position behind
    /// the record. It is written when [`Log::written`] has reached that position, and synced when [`Log::synced`] has.
    ///
    /// While writes fail, appended records accumulate in memory: the caller must look at [`Log::pending_bytes`].
    ///
    /// # Panics
    /// If the payload is larger than 128 MiB.
    pub fn append(&self, payload: &[&[u8]]) -> Position {
        let synced = self.synced();
        let mut pending = lock(&self.pending);
        let (position, before) = (pending.end, pending.bytes.len());
        record::put(&mut pending.bytes, self.salt, position, synced, payload);
        pending.end = Position(position.0 + (pending.bytes.len() - before) as u64);
        pending.end
    }

    /// Hands every record that any thread appended before the call to the operating system in one write. Returns the position up
    /// to which everything is written. Costs next to nothing if nothing is pending.
    ///
    /// # Errors
    /// See [`LogError`]. After [`LogError::NotWritten`] the log is as it was before the call.
    pub fn write(&self) -> Result<Position, LogError> {
        self.check()?;
        // It is not enough that nothing is pending: another thread may have taken it, and its write may be under way.
        if self.end() == self.written() {
            return Ok(self.written());
        }
        let mut segments = lock(&self.segments);
        self.check()?;
        let bytes = self.take_pending();
        if bytes.is_empty() {
            return Ok(self.written());
        }
        match self.write_bytes(&mut segments, &bytes) {
            Ok(end) => {
                self.written.store(end.0, Ordering::Release);
                self.keep_spare(bytes);
                Ok(end)
            }
            Err(error) => {
                self.put_back(bytes);
                Err(error)
            }
        }
    }

    fn take_pending(&self) -> Vec<u8> {
        let mut pending = lock(&self.pending);
        let spare = std::mem::take(&mut pending.spare);
        std::mem::replace(&mut pending.bytes, spare)
    }

    fn keep_spare(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        bytes.shrink_to(READ_BYTES);
        lock(&self.pending).spare = bytes;
    }

    /// Puts bytes back in front of those that were appended meanwhile.
    fn put_back(&self, bytes: Vec<u8>) {
        #[cfg(test)]
        if crate::planted::is(crate::planted::Bug::FailedWriteIsForgotten) {
            return;
        }
        let mut pending = lock(&self.pending);
        let behind = std::mem::replace(&mut pending.bytes, bytes);
        pending.bytes.extend_from_slice(&behind);
    }

    fn write_bytes(&self, segments: &mut Segments, bytes: &[u8]) -> Result<Position, LogError> {
        let at = self.written();
        let not_written = |error: io::Error| LogError::NotWritten(error.to_string());
        let last = segments.last_for(self, at).map_err(not_written)?;
        let offset = last.offset_of(at);
        if let Err(error) = last.file.write_at(offset, bytes)
            && !self.is_forgetful.load(Ordering::Relaxed)
        {
            if let Err(worse) = last.cut(offset) {
                return Err(self.poison(format!("{error}; then its end could not be cut off: {worse}")));
            }
            return Err(not_written(error));
        }
        let end = offset + bytes.len() as u64;
        // What does not fit into this segment comes into the next one, so zeros never follow the records of a segment that is not the last.
        last.make_room(end, self.options.ahead_bytes, self.options.segment_bytes);
        Ok(Position(at.0 + bytes.len() as u64))
    }

    /// Makes everything that was written before the call survive a power loss. Other threads may append and write meanwhile. A
    /// second sync waits for the first. Returns the position up to which everything is synced.
    ///
    /// # Errors
    /// [`LogError::Poisoned`], and from then on always. After a failed fsync the kernel may have dropped the pages that it could
    /// not write, and the next fsync might succeed without them, so nothing can be promised any more.
    pub fn sync(&self) -> Result<Position, LogError> {
        let _one_at_a_time = lock(&self.syncing);
        self.check()?;
        let (unsynced, directory, written) = {
            let mut segments = lock(&self.segments);
            let written = self.written();
            if written == self.synced() {
                return Ok(written);
            }
            (
                std::mem::take(&mut segments.unsynced),
                std::mem::take(&mut segments.directory_unsynced),
                written,
            )
        };
        for segment in &unsynced {
            if let Err(error) = segment.file.sync() {
                return Err(self.poison(format!("a sync failed: {error}")));
            }
        }
        #[cfg(test)]
        let directory = directory && !crate::planted::is(crate::planted::Bug::DirectoryIsNotSynced);
        if directory && let Err(error) = self.disk.sync_directory() {
            return Err(self.poison(format!("a sync of the directory failed: {error}")));
        }
        self.synced.store(written.0, Ordering::Release);
        Ok(written)
    }

    /// Writes down how far the log is synced, so that the next opening notices if that is cut off. Call it a few times a second.
    ///
    /// # Errors
    /// If the disk fails. Then less of a cut is noticed.
    pub fn note_synced(&self) -> io::Result<()> {
        let mut floor = lock(&self.floor);
        let floor = match &mut *floor {
            Some(floor) => floor,
            none => none.insert(Floor::open(&*self.disk)?),
        };
        floor.note(self.synced())
    }

    /// A bug, planted to prove that tests can fail: from now on, bytes that the disk did not take count as written.
    pub fn plant_forgetfulness(&self) {
        self.is_forgetful.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> Result<(), LogError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(LogError::Poisoned(lock(&self.why_poisoned).clone()));
        }
        Ok(())
    }

    fn poison(&self, why: String) -> LogError {
        lock(&self.why_poisoned).clone_from(&why);
        self.poisoned.store(true, Ordering::Release);
        LogError::Poisoned(why)
    }

    // ---- positions ------------------------------------------------------------------------------------------

    /// The oldest position that is kept.
    pub fn start(&self) -> Position {
        Position(self.start.load(Ordering::Acquire))
    }

    /// Everything before this survives a power loss.
    pub fn synced(&self) -> Position {
        Position(self.synced.load(Ordering::Acquire))
    }

    /// Everything before this survives the end of the process.
    pub fn written(&self) -> Position {
        Position(self.written.load(Ordering::Acquire))
    }

    /// The position at which the next record will begin.
    pub fn end(&self) -> Position {
        lock(&self.pending).end
    }

    /// The number of bytes that were appended and not yet written. It grows while writes fail: the caller bounds it by taking no
    /// more requests.
    pub fn pending_bytes(&self) -> usize {
        let end = self.end();
        end.0.saturating_sub(self.written().0) as usize
    }

    // ---- reading back ---------------------------------------------------------------------------------------

    /// Written records from `from` on, where a record must begin: as many as fit into about `max_bytes`, at least one if there is
    /// one, none if `from` is the written end. Waits for a write that is under way, never for a sync. Delays neither.
    ///
    /// # Errors
    /// [`ReadError::Purged`] if the position is no longer kept; [`ReadError::Failed`] if the disk does not return what was
    /// written.
    pub fn read(&self, from: Position, max_bytes: usize) -> Result<Chunk, ReadError> {
        self.read_records(from, max_bytes).map_err(|error| {
            // It may have been purged while it was read.
            let start = self.start();
            if from < start {
                ReadError::Purged { start }
            } else {
                error
            }
        })
    }

    fn read_records(&self, from: Position, max_bytes: usize) -> Result<Chunk, ReadError> {
        let written = self.written();
        if from < self.start() {
            return Err(ReadError::Purged { start: self.start() });
        }
        if from >= written {
            let records = Vec::new();
            return Ok(Chunk { records, next: from });
        }
        let failed = |why: String| ReadError::Failed { position: from, why };
        let (segment, end) = self.segment_at(from, written)?;
        let left = (end.0 - from.0) as usize;
        let mut wanted = max_bytes.max(record::HEADER_BYTES);
        loop {
            let mut buffer = vec![0; wanted.min(left)];
            let read = segment.file.read_at(segment.offset_of(from), &mut buffer);
            buffer.truncate(read.map_err(|error| failed(error.to_string()))?);
            let (chunk, needed) = self.records_in(buffer.into(), from)?;
            if !chunk.records.is_empty() {
                return Ok(chunk);
            }
            if wanted >= left {
                return Err(failed("a record is cut short".into()));
            }
            // One record is larger than what was asked for.
            wanted = needed.max(wanted + 1);
        }
    }

    /// The whole records at the beginning of a buffer, and the number of bytes that the next one needs.
    fn records_in(&self, buffer: Bytes, from: Position) -> Result<(Chunk, usize), ReadError> {
        let mut chunk = Chunk {
            records: Vec::new(),
            next: from,
        };
        let mut at = 0;
        loop {
            match record::look(&buffer[at..], self.salt, chunk.next) {
                Found::Record { payload } => {
                    let bytes = payload.end;
                    let record = buffer.slice(at + payload.start..at + payload.end);
                    chunk.records.push((chunk.next, record));
                    at += bytes;
                    chunk.next.0 += bytes as u64;
                }
                Found::Short(needed) => return Ok((chunk, needed)),
                Found::Damaged(expected) => {
                    let why = format!("expected {expected}");
                    return Err(ReadError::Failed {
                        position: chunk.next,
                        why,
                    });
                }
            }
        }
    }

    /// The segment that holds a position, and the position where its written part ends.
    fn segment_at(
        &self,
        position: Position,
        written: Position,
    ) -> Result<(Arc<Segment>, Position), ReadError> {
        let segments = lock(&self.segments);
        let place = segments.all.partition_point(|segment| segment.start <= position);
        if place == 0 {
            return Err(ReadError::Purged { start: self.start() });
        }
        let end = segments.all.get(place).map_or(written, |next| next.start);
        Ok((segments.all[place - 1].clone(), end))
    }

    // ---- purging --------------------------------------------------------------------------------------------

    /// Removes segments that are wholly before `before` and before what is synced. The last segment stays. Readers that are
    /// reading in a removed segment may finish.
    ///
    /// # Errors
    /// [`LogError::NotWritten`] if a file could not be removed. The log does not use it any more, and the next purge tries again.
    pub fn purge(&self, before: Position) -> Result<(), LogError> {
        let mut doomed = {
            let mut segments = lock(&self.segments);
            segments.doom(before, self.synced());
            self.start.store(segments.all[0].start.0, Ordering::Release);
            std::mem::take(&mut segments.doomed)
        };
        // Not under the lock: removing a large file takes time. The oldest file goes first, so that a crash leaves no gap.
        while let Some(segment) = doomed.first() {
            match self.disk.remove(&segment.name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    lock(&self.segments).doomed.append(&mut doomed);
                    return Err(LogError::NotWritten(error.to_string()));
                }
                _ => doomed.remove(0),
            };
        }
        Ok(())
    }
}

impl Segments {
    /// The segment into which bytes at `at` are to be written: a new one if the last is full. It is marked as not synced.
    fn last_for(&mut self, log: &Log, at: Position) -> io::Result<Arc<Segment>> {
        let last = self.all.last().expect("there is always a segment");
        if at > last.start && last.offset_of(at) >= log.options.segment_bytes {
            // No sync here, on the hot path: the next sync of the log also syncs this one's header and the directory.
            let segment = Arc::new(Segment::create(&*log.disk, at, log.identity)?);
            self.directory_unsynced = true;
            self.all.push(segment);
        }
        let last = self.all.last().expect("there is always a segment").clone();
        if self
            .unsynced
            .last()
            .is_none_or(|segment| segment.start != last.start)
        {
            self.unsynced.push(last.clone());
        }
        Ok(last)
    }

    /// Takes out the segments that are wholly before `before`, if the segment that follows cannot vanish in a power loss: once
    /// something in it was synced, its place in the directory was synced, too.
    fn doom(&mut self, before: Position, synced: Position) {
        let gone = self.all[1..]
            .iter()
            .take_while(|next| next.start <= before && next.start < synced)
            .count();
        self.doomed.extend(self.all.drain(..gone));
        let start = self.all[0].start;
        self.unsynced.retain(|segment| segment.start >= start);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
