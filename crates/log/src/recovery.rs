//! Opening: finds where the log ends, and tells the torn end that a crash leaves from damage.
//!
//! The first place without an intact record ends the log, if that is allowed: what a crash tears off was never promised to be
//! there. But every record says what was known to be synced when it was appended. If a record *behind* that place names a synced
//! position beyond it, the broken bytes were once safely on disk, and cutting them off would lose acknowledged data.
//!
//! ```text
//!     record 1 | record 2 | ######## | record 4, synced = 2   torn: record 3 was never synced. The log ends behind 2
//!     record 1 | record 2 | ######## | record 4, synced = 3   damage: an error that names the place
//! ```
use crate::{
    Disk, OpenError, Position,
    floor::Floor,
    reader::{Next, READ_BYTES, Reader},
    record::{self, Header, Salt},
    segment::{self, Segment},
};
use bytes::Bytes;
use std::{io, sync::Arc};
use turnbuckle_core::BadFrame;

/// A log as it was found on the disk.
pub(crate) struct Recovered {
    pub identity: u128,
    /// The segments, oldest first, without gaps, never empty.
    pub segments: Vec<Arc<Segment>>,
    pub end: Position,
}

/// The position at which the newest segment of a log begins; `None` if there is no log. A caller that needs none of its records
/// opens the log from there.
pub fn newest_segment(disk: &dyn Disk) -> io::Result<Option<Position>> {
    let names = disk.list()?;
    Ok(names.iter().filter_map(|name| segment::start_in(name)).max())
}

/// Called with each record.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(Position, Bytes) -> Result<(), BadFrame>;

/// Opens all segments, passes the records from `from` on to `visit`, and cuts off a torn end. `identity` 0 accepts any owner.
pub(crate) fn recover(
    disk: &dyn Disk,
    identity: u128,
    from: Position,
    visit: Visit<'_>,
) -> Result<Recovered, OpenError> {
    let (segments, identity) = open_segments(disk, identity)?;
    let floor = Floor::read(disk)?;
    let Some(oldest) = segments.first() else {
        let found = "no segment".to_string();
        return match floor > from {
            true => Err(cut_off(floor, found)),
            false => begin(disk, identity.unwrap_or(0), from),
        };
    };
    if from < oldest.start {
        let expected = format!("records from {from} on");
        return Err(missing(&expected, format!("records from {} on", oldest.start)));
    }
    let mut recovery = Recovery {
        disk,
        identity,
        salt: Salt::of(identity.unwrap_or(0)),
        segments,
        from,
        floor,
    };
    let rests = recovery.take_what_purging_left()?;
    let end = recovery.scan(visit)?;
    if end < from {
        return Err(missing(
            &format!("records up to {from}"),
            format!("records up to {end}"),
        ));
    }
    if end < floor {
        return Err(cut_off(floor, format!("records up to {end}")));
    }
    for rest in rests {
        disk.remove(&rest.name)?;
    }
    let segments = recovery.segments.into_iter().map(Arc::new).collect();
    let identity = identity.unwrap_or(0);
    Ok(Recovered {
        identity,
        segments,
        end,
    })
}

fn missing(records: &str, found: String) -> OpenError {
    OpenError::Missing {
        expected: format!("{records}, which a checkpoint relies on"),
        found,
    }
}

fn cut_off(floor: Position, found: String) -> OpenError {
    OpenError::Missing {
        expected: format!("records up to {floor}, which were on disk"),
        found,
    }
}

/// Creates a new log.
fn begin(disk: &dyn Disk, identity: u128, from: Position) -> Result<Recovered, OpenError> {
    if from > Position(0) {
        return Err(missing(&format!("records from {from} on"), "no segment".into()));
    }
    let segment = Segment::create(disk, Position(0), identity)?;
    Ok(Recovered {
        identity,
        segments: vec![Arc::new(segment)],
        end: Position(0),
    })
}

/// All segments, oldest first, and their owner, if one of them names it.
fn open_segments(disk: &dyn Disk, wanted: u128) -> Result<(Vec<Segment>, Option<u128>), OpenError> {
    let mut starts: Vec<(Position, String)> = disk
        .list()?
        .into_iter()
        .filter_map(|name| Some((segment::start_in(&name)?, name)))
        .collect();
    starts.sort();
    let mut identity = (wanted != 0).then_some(wanted);
    let mut segments = Vec::with_capacity(starts.len());
    for (start, name) in starts {
        let segment = Segment::open(disk, &name, start)?;
        if let Some(found) = segment.identity {
            let expected = *identity.get_or_insert(found);
            if expected != found {
                return Err(OpenError::Header {
                    file: name,
                    expected: format!("a segment of node {expected:032x}"),
                    found: format!("one of node {found:032x}"),
                });
            }
        }
        segments.push(segment);
    }
    Ok((segments, identity))
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    identity: Option<u128>,
    salt: Salt,
    segments: Vec<Segment>,
    from: Position,
    /// The log was synced up to here.
    floor: Position,
}

impl Recovery<'_> {
    /// Takes out segments that a purge has removed. When the power fails, removed files may come back, some of them and in any
    /// order. If there is a gap before `from`, everything before the gap is such a leftover.
    fn take_what_purging_left(&mut self) -> io::Result<Vec<Segment>> {
        let mut kept = self.first();
        while kept > 0 {
            let before = &self.segments[kept - 1];
            if before.identity.is_none() || before.file_end()? != self.segments[kept].start {
                break;
            }
            kept -= 1;
        }
        Ok(self.segments.drain(..kept).collect())
    }

    /// The index of the segment that holds `from`.
    fn first(&self) -> usize {
        self.segments
            .partition_point(|segment| segment.start <= self.from)
            - 1
    }

    /// Reads all segments from the one that holds `from` on. Returns the end of the log.
    fn scan(&mut self, visit: Visit<'_>) -> Result<Position, OpenError> {
        let mut place = self.first();
        loop {
            let (end, damage) = self.scan_segment(&self.segments[place], visit)?;
            let next = self.segments.get(place + 1).map(|next| next.start);
            let gap = next
                .filter(|&next| next != end)
                .map(|_| "the records up to the next segment");
            match (damage.or(gap), next) {
                (None, Some(_)) => place += 1,
                (None, None) => return Ok(end),
                (Some(expected), _) => {
                    self.cut(place, end, expected)?;
                    return Ok(end);
                }
            }
        }
    }

    /// Passes a segment's intact records to `visit`. Returns their end, and what was expected there if it is not the file's end.
    fn scan_segment(
        &self,
        segment: &Segment,
        visit: Visit<'_>,
    ) -> Result<(Position, Option<&'static str>), OpenError> {
        if segment.identity.is_none() {
            return Ok((segment.start, Some("the header of a segment")));
        }
        let mut reader = Reader::new(segment, self.salt, segment.start);
        loop {
            let position = reader.position();
            match reader.next()? {
                Next::Record(payload) if position >= self.from => {
                    visit(position, payload).map_err(|source| OpenError::Record {
                        file: segment.name.clone(),
                        position,
                        source,
                    })?;
                }
                Next::Record(_) => {}
                Next::End => return Ok((position, None)),
                Next::Damaged(expected) => return Ok((position, Some(expected))),
            }
        }
    }

    /// Ends the log at `end`, in the segment at index `place`, where `expected` was not found; or refuses to.
    fn cut(&mut self, place: usize, end: Position, expected: &'static str) -> Result<(), OpenError> {
        // The caller relies on everything before `from`, so it was synced, too.
        if end < self.from || end < self.floor || self.was_synced(place, end)? {
            let segment = &self.segments[place];
            return Err(OpenError::Damaged {
                file: segment.name.clone(),
                offset: segment.offset_of(end),
                expected,
            });
        }
        // The newest segment first: if this is interrupted, there is no new gap.
        while self.segments.len() > place + 1 {
            self.remove_last()?;
        }
        if self.segments[place].identity.is_some() {
            let segment = &self.segments[place];
            segment.file.truncate(segment.offset_of(end))?;
            return Ok(());
        }
        // The segment is created again at its place. The segment before it must not be continued: it may be wholly before `from`,
        // and then it was not read.
        self.remove_last()?;
        let identity = self.identity.unwrap_or(0);
        self.segments.push(Segment::create(self.disk, end, identity)?);
        Ok(())
    }

    fn remove_last(&mut self) -> io::Result<()> {
        if let Some(segment) = self.segments.last() {
            self.disk.remove(&segment.name)?;
            self.segments.pop();
        }
        Ok(())
    }

    /// Whether the bytes at `end`, in the segment at index `place`, were once safely on disk.
    fn was_synced(&self, place: usize, end: Position) -> io::Result<bool> {
        #[cfg(test)]
        if crate::planted::is(crate::planted::Bug::DamageIsCutOffLikeATornEnd) {
            return Ok(false);
        }
        let mut proof = Proof {
            salt: self.salt,
            end,
            effort_bytes: 0,
        };
        for segment in &self.segments[place..] {
            // Without an identity, records cannot be told from noise. Better refuse than drop what may be data.
            if self.identity.is_none() && segment.file_end()? > segment.start {
                return Ok(true);
            }
            if proof.is_in(segment)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The search for an intact record that was appended when the log was known to be synced beyond `end`.
struct Proof {
    salt: Salt,
    end: Position,
    /// The number of bytes that were checked for what looked like a proof and was none.
    effort_bytes: u64,
}

/// A crash does not leave this number of bytes that look like proofs.
const MAX_EFFORT_BYTES: u64 = 1 << 30;

impl Proof {
    /// Behind damage it is not known where records begin, so every byte is tried. That is slow, and seldom needed for more than the zeros behind a log's end.
    fn is_in(&mut self, segment: &Segment) -> io::Result<bool> {
        let mut from = segment.start.max(self.end);
        let file_end = segment.file_end()?;
        let mut buffer = vec![0; READ_BYTES.min((file_end.0.saturating_sub(from.0)) as usize)];
        while from.0 + record::HEADER_BYTES as u64 <= file_end.0 {
            let read = segment.file.read_at(segment.offset_of(from), &mut buffer)?;
            if read < record::HEADER_BYTES {
                break;
            }
            for (at, window) in buffer[..read].windows(record::HEADER_BYTES).enumerate() {
                let position = Position(from.0 + at as u64);
                // Nearly every byte fails this first test.
                if window[8..16] == position.0.to_le_bytes()
                    && self.is_record(segment, position, file_end, window)?
                {
                    return Ok(true);
                }
            }
            from.0 += (read + 1 - record::HEADER_BYTES) as u64;
        }
        Ok(false)
    }

    fn is_record(
        &mut self,
        segment: &Segment,
        position: Position,
        file_end: Position,
        header: &[u8],
    ) -> io::Result<bool> {
        let header = Header::of(header.try_into().expect("the window is as long as a header"));
        let Some(record_bytes) = header.record_bytes() else {
            return Ok(false);
        };
        let fits = position.0 + record_bytes as u64 <= file_end.0;
        if !fits || header.synced <= self.end || header.synced > position {
            return Ok(false);
        }
        if matches!(Reader::new(segment, self.salt, position).next()?, Next::Record(_)) {
            return Ok(true);
        }
        self.effort_bytes += record_bytes.max(READ_BYTES) as u64;
        Ok(self.effort_bytes > MAX_EFFORT_BYTES)
    }
}
