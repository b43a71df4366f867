//! Records of streams that are written down and are also part of frames: positions, cuts, incarnations, and what is kept by name. What comes from
//! outside is checked here.
use crate::stream::{Incarnation, StreamPosition};
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use turnbuckle_core::{BadFrame, Hlc, ReplicaId, ReplicaSet};

/// The largest incarnation or entry number that is accepted. Incarnations are microseconds since 1970 and entries are counted one by one: none gets
/// here in a hundred thousand years. With a larger number, the next one could overflow.
pub const LAST_PLACE: u64 = 1 << 62;

/// Checks incarnations and numbers that come from outside.
pub fn check_places(places: impl IntoIterator<Item = u64>) -> Result<(), BadFrame> {
    match places.into_iter().find(|&place| place > LAST_PLACE) {
        Some(beyond) => Err(BadFrame::new(
            "a position that a stream can reach",
            beyond.to_string(),
        )),
        None => Ok(()),
    }
}

/// Checks a timestamp that comes from outside.
pub fn check_time(at: u64) -> Result<Hlc, BadFrame> {
    if at > Hlc::LATEST.0 {
        return Err(BadFrame::new("a timestamp before 2112", at.to_string()));
    }
    Ok(Hlc(at))
}

/// Everything that a replica stamped up to a time.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct CutFrame {
    /// The replica, by its number.
    #[prost(uint32, tag = "1")]
    pub replica: u32,
    /// The time.
    #[prost(fixed64, tag = "2")]
    pub until: u64,
}

/// What is kept beside versions, under a name.
#[derive(Clone, PartialEq, Message)]
pub struct NamedRecord {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes = "bytes", tag = "2")]
    bytes: Bytes,
}

impl NamedRecord {
    /// Something that is kept under a name.
    pub fn new(name: String, bytes: Bytes) -> NamedRecord {
        NamedRecord { name, bytes }
    }

    /// The length of the name and of what is kept under it, in bytes.
    pub fn bytes(&self) -> usize {
        self.name.len() + self.bytes.len()
    }

    /// The name, and what is kept under it.
    pub fn into_parts(self) -> (String, Bytes) {
        (self.name, self.bytes)
    }

    /// Everything that is kept beside versions.
    pub fn all<'a>(named: impl IntoIterator<Item = (&'a String, &'a Bytes)>) -> Vec<NamedRecord> {
        let record = |(name, bytes): (&String, &Bytes)| NamedRecord {
            name: name.clone(),
            bytes: bytes.clone(),
        };
        named.into_iter().map(record).collect()
    }
}

/// How far the stream of a replica was received.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ReceivedRecord {
    #[prost(uint32, tag = "1")]
    replica: u32,
    #[prost(uint64, tag = "2")]
    incarnation: u64,
    #[prost(uint64, tag = "3")]
    number: u64,
}

/// An incarnation of a stream's source.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct IncarnationRecord {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(uint64, tag = "2")]
    start: u64,
    #[prost(fixed64, tag = "3")]
    clock: u64,
}

/// The encoding of a cut.
pub fn cut_to_frames(cut: &[(ReplicaId, Hlc)]) -> Vec<CutFrame> {
    cut.iter()
        .map(|&(replica, until)| CutFrame {
            replica: replica.0.into(),
            until: until.0,
        })
        .collect()
}

/// A cut that comes from outside.
///
/// # Errors
/// If it names a replica or a time that cannot exist.
pub fn cut_from_frames(frames: &[CutFrame]) -> Result<Vec<(ReplicaId, Hlc)>, BadFrame> {
    frames
        .iter()
        .map(|frame| Ok((replica_number(frame.replica)?, check_time(frame.until)?)))
        .collect()
}

/// The replica of a number that comes from outside. It is an error if no cluster can have it.
pub fn replica_number(number: u32) -> Result<ReplicaId, BadFrame> {
    let replica = u16::try_from(number)
        .ok()
        .filter(|&replica| replica < ReplicaSet::MAX);
    replica.map(ReplicaId).ok_or_else(|| BadFrame::replica(number))
}

impl IncarnationRecord {
    /// Checks a record that comes from outside.
    ///
    /// # Errors
    /// If no incarnation can be like that.
    pub fn check(&self) -> Result<(), BadFrame> {
        check_places([self.number, self.start])?;
        if self.start == 0 {
            return Err(BadFrame::new(
                "an incarnation that begins with entry 1 or later",
                "0",
            ));
        }
        check_time(self.clock).map(drop)
    }
}

/// Checks the incarnations of a stream whose next entry has the number `next`.
///
/// # Errors
/// If one cannot exist, or if they do not follow each other.
pub fn check_lives(lives: &[IncarnationRecord], next: u64) -> Result<(), BadFrame> {
    lives.iter().try_for_each(IncarnationRecord::check)?;
    let rising =
        |pair: &[IncarnationRecord]| pair[0].number < pair[1].number && pair[0].start <= pair[1].start;
    match lives.windows(2).all(rising) && lives.last().is_none_or(|last| last.start <= next) {
        true => Ok(()),
        false => Err(BadFrame::new("incarnations that follow each other", "others")),
    }
}

impl ReceivedRecord {
    /// Checks a record that comes from outside.
    ///
    /// # Errors
    /// If it names a replica or a position that cannot exist.
    pub fn check(self) -> Result<(), BadFrame> {
        replica_number(self.replica)?;
        check_places([self.incarnation, self.number])
    }

    /// The record that the stream of a replica was received up to a position.
    pub fn new(replica: ReplicaId, position: StreamPosition) -> ReceivedRecord {
        ReceivedRecord {
            replica: replica.0.into(),
            incarnation: position.incarnation,
            number: position.number,
        }
    }

    /// The replica, and how far its stream was received.
    pub fn parts(self) -> (ReplicaId, StreamPosition) {
        (
            ReplicaId(self.replica as u16),
            StreamPosition {
                incarnation: self.incarnation,
                number: self.number,
            },
        )
    }
}

impl From<Incarnation> for IncarnationRecord {
    fn from(incarnation: Incarnation) -> IncarnationRecord {
        IncarnationRecord {
            number: incarnation.number,
            start: incarnation.start,
            clock: incarnation.clock.0,
        }
    }
}

impl From<IncarnationRecord> for Incarnation {
    fn from(record: IncarnationRecord) -> Incarnation {
        Incarnation {
            number: record.number,
            start: record.start,
            clock: Hlc(record.clock),
        }
    }
}

/// The most bytes that a peer accepts of what a protocol keeps by name, names included: the peer has them in memory.
const MAX_NAMED_BYTES: usize = 256 << 20;

/// Adds what has arrived to what is kept by name. Of two pieces with one name, the last counts.
///
/// # Errors
/// If that is more than a peer accepts, which is 256 MiB.
pub fn add_named(named: &mut BTreeMap<String, Bytes>, came: Vec<NamedRecord>) -> Result<(), BadFrame> {
    if came.is_empty() {
        return Ok(());
    }
    named.extend(came.into_iter().map(NamedRecord::into_parts));
    let bytes: usize = named.iter().map(|(name, bytes)| name.len() + bytes.len()).sum();
    match bytes <= MAX_NAMED_BYTES {
        true => Ok(()),
        false => Err(BadFrame::new(
            "at most 256 MiB of a protocol's state",
            format!("{bytes} bytes"),
        )),
    }
}
