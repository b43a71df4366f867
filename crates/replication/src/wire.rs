//! The frames that the ends of a stream send each other, and the records that each of them writes down. Prost stays in this module: the field tags
//! must survive a rolling upgrade, and other modules use types of their own.
mod records;
pub use records::{
    CutFrame, IncarnationRecord, LAST_PLACE, NamedRecord, ReceivedRecord, add_named, check_lives,
    check_places, check_time, cut_from_frames, cut_to_frames, replica_number,
};

use crate::stream::StreamPosition;
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use turnbuckle_core::{BadFrame, Forgotten, Hlc, ReplicaId, Topology};

/// The body of a frame between the two ends of a stream. Streams run from their source (`from` of entries, marks and copies) to a receiver.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum StreamBody {
    /// The next entries of a stream.
    #[prost(message, tag = "7")]
    Entries(EntriesFrame),
    /// A mark, behind the entries up to a position.
    #[prost(message, tag = "8")]
    Mark(MarkFrame),
    /// The receiver has everything up to this position, durably.
    #[prost(message, tag = "9")]
    Ack(PositionFrame),
    /// The receiver has everything up to this position and wants what follows.
    #[prost(message, tag = "10")]
    Resume(ResumeFrame),
    /// The source lost what it stamped after a time. The receiver must send it back; then it counts as being at a position.
    #[prost(message, tag = "11")]
    TakeBack(TakeBackFrame),
    /// Versions that the receiver sends back.
    #[prost(message, tag = "12")]
    Returned(ReturnedFrame),
    /// A full copy begins; afterwards the stream continues behind a position.
    #[prost(message, tag = "13")]
    CopyBegin(CopyBeginFrame),
    /// Rows of a full copy.
    #[prost(message, tag = "14")]
    CopyRows(CopyRowsFrame),
    /// The source holds durably what was sent back: the receiver counts as being at a position, and entries follow.
    #[prost(message, tag = "15")]
    TakenBack(PositionFrame),
}

impl StreamBody {
    /// The incarnation and the numbers that it contains.
    pub fn places(&self) -> [u64; 3] {
        let of = |position: &PositionFrame| [position.incarnation, position.number, 0];
        match self {
            StreamBody::Entries(frame) => [frame.incarnation, frame.previous, frame.last],
            StreamBody::Mark(frame) => [frame.incarnation, frame.after, 0],
            StreamBody::Ack(position) | StreamBody::TakenBack(position) => of(position),
            StreamBody::Resume(frame) => {
                let beside = [frame.copy, frame.held].into_iter().flatten();
                let beside = beside.map(|place| place.incarnation.max(place.number)).max();
                [frame.incarnation, frame.number, beside.unwrap_or(0)]
            }
            StreamBody::CopyBegin(frame) => of(&frame.resume),
            StreamBody::TakeBack(_) | StreamBody::Returned(_) | StreamBody::CopyRows(_) => [0; 3],
        }
    }

    /// What it is, in a few words. `entry_words` describes an encoded entry.
    pub fn words(&self, entry_words: impl Fn(&Bytes) -> Option<String>) -> String {
        let places = |first: u64, last: u64| match last.saturating_sub(first) {
            0 | 1 => format!("{last}"),
            _ => format!("{}-{last}", first + 1),
        };
        match self {
            StreamBody::Entries(frame) => {
                let keys: Vec<String> = frame.entries.iter().take(3).filter_map(entry_words).collect();
                let more = if frame.entries.len() > 3 { " .." } else { "" };
                let numbers = places(frame.previous, frame.last);
                format!("entries {numbers}: {}{more}", keys.join(", "))
            }
            StreamBody::Mark(frame) => format!("mark behind {}", frame.after),
            StreamBody::Ack(position) => format!("ack {}", position.number),
            StreamBody::Resume(position) => format!("resume behind {}", position.number),
            StreamBody::TakeBack(_) => "take back".into(),
            StreamBody::Returned(_) => "returned".into(),
            StreamBody::CopyBegin(_) => "copy begins".into(),
            StreamBody::CopyRows(frame) => format!("copy, {} rows", frame.entries.len()),
            StreamBody::TakenBack(position) => format!("taken back, at {}", position.number),
        }
    }
}

/// The next entries of a stream.
#[derive(Clone, PartialEq, Message)]
pub struct EntriesFrame {
    /// The incarnation of the source that wrote them.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// The position that the receiver must be at.
    #[prost(uint64, tag = "2")]
    pub previous: u64,
    /// The position that it is at afterwards. Entries that are only for other receivers are skipped.
    #[prost(uint64, tag = "3")]
    pub last: u64,
    /// Encoded entries.
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub entries: Vec<Bytes>,
    /// Their numbers, if some between `previous` and `last` are skipped.
    #[prost(uint64, repeated, tag = "5")]
    pub numbers: Vec<u64>,
}

/// A mark, and the place that it travels behind.
#[derive(Clone, PartialEq, Message)]
pub struct MarkFrame {
    /// The incarnation of the source.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// The number of the entry that it travels behind.
    #[prost(uint64, tag = "2")]
    pub after: u64,
    /// The message, encoded.
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
}

/// A position in a stream.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct PositionFrame {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
    #[prost(uint64, tag = "2")]
    number: u64,
}

/// The word of a receiver: its position, and what else it reports when a link comes up.
#[derive(Clone, PartialEq, Message)]
pub struct ResumeFrame {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
    /// The number of the last entry that was received.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// If rows are missing: a full copy must come first, from a source that has received the receiver's own stream up to this position.
    #[prost(message, optional, tag = "3")]
    pub copy: Option<PositionFrame>,
    /// The receiver's clock: it is above everything that the receiver has heard of the source.
    #[prost(fixed64, tag = "4")]
    pub clock: u64,
    /// Deletes up to this time may be forgotten at the receiver. None if its directory was empty and is still being filled.
    #[prost(fixed64, optional, tag = "5")]
    forgotten: Option<u64>,
    /// The births of data directories: the receiver's own, and those of the replicas whose word allowed deletes to be forgotten.
    #[prost(message, repeated, tag = "6")]
    directories: Vec<DirectoryFrame>,
    /// Full copies from third sites may have brought the receiver what the source wrote up to this position, which is further than the stream has
    /// come.
    #[prost(message, optional, tag = "7")]
    pub held: Option<PositionFrame>,
    /// The number of this word: how many times the receiver has reported its position. A full copy names the word that it answers.
    #[prost(uint64, tag = "8")]
    pub word_number: u64,
    /// The newest births that the receiver knows of other sites' directories.
    #[prost(message, repeated, tag = "9")]
    met: Vec<DirectoryFrame>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct DirectoryFrame {
    #[prost(uint32, tag = "1")]
    replica: u32,
    #[prost(fixed64, tag = "2")]
    birth: u64,
}

fn directories(births: &BTreeMap<ReplicaId, u64>) -> Vec<DirectoryFrame> {
    let births = births.iter();
    births
        .map(|(replica, &birth)| DirectoryFrame {
            replica: u32::from(replica.0),
            birth,
        })
        .collect()
}

fn births(directories: &[DirectoryFrame], topology: &Topology) -> Result<BTreeMap<ReplicaId, u64>, BadFrame> {
    let mut births = BTreeMap::new();
    for directory in directories {
        let replica = u16::try_from(directory.replica)
            .map_err(|_| BadFrame::new("a replica", directory.replica.to_string()))?;
        births.insert(ReplicaId(replica), Forgotten::check_birth(directory.birth)?);
    }
    topology.check_replicas(births.keys().copied().collect())?;
    Ok(births)
}

impl ResumeFrame {
    /// The word of a receiver at a position. `copy` says how far the source of a full copy must be, if one is needed first.
    pub fn new(
        at: StreamPosition,
        clock: Hlc,
        forgotten: &Forgotten,
        copy: Option<StreamPosition>,
    ) -> ResumeFrame {
        ResumeFrame {
            incarnation: at.incarnation,
            number: at.number,
            copy: copy.map(PositionFrame::from),
            clock: clock.0,
            forgotten: forgotten.until.map(|until| until.0),
            directories: directories(&forgotten.directories),
            held: None,
            word_number: 0,
            met: directories(&forgotten.met),
        }
    }

    /// What the receiver says of forgotten deletes.
    ///
    /// # Errors
    /// If it names a replica that does not exist.
    pub fn word(&self, topology: &Topology) -> Result<Forgotten, BadFrame> {
        Ok(Forgotten {
            until: self.forgotten.map(Hlc),
            directories: births(&self.directories, topology)?,
            met: births(&self.met, topology)?,
        })
    }

    /// The receiver's position.
    pub fn at(&self) -> StreamPosition {
        StreamPosition {
            incarnation: self.incarnation,
            number: self.number,
        }
    }
}

/// What a source has lost.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct TakeBackFrame {
    /// The time after which versions were stamped that must be sent back.
    #[prost(fixed64, tag = "1")]
    pub since: u64,
}

/// A part of what a source has lost.
#[derive(Clone, PartialEq, Message)]
pub struct ReturnedFrame {
    /// Versions, encoded.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub entries: Vec<Bytes>,
    /// Whether this is the last frame.
    #[prost(bool, tag = "2")]
    pub end: bool,
    /// In the last frame: the newest delete of each site that kept versions from being sent back.
    #[prost(message, repeated, tag = "3")]
    pub withheld: Vec<CutFrame>,
    /// If everything was asked for: what the sender's protocol keeps beside its versions, or a part of that.
    #[prost(message, repeated, tag = "4")]
    pub named: Vec<NamedRecord>,
    /// In the last frame: the sender's clock. What has replaced versions there was stamped up to this time.
    #[prost(fixed64, tag = "5")]
    pub clock: u64,
}

/// The frame of a full copy in front of its rows.
#[derive(Clone, PartialEq, Message)]
pub struct CopyBeginFrame {
    /// The stream continues behind this position.
    #[prost(message, required, tag = "1")]
    pub resume: PositionFrame,
    /// The cut that the rows cover.
    #[prost(message, repeated, tag = "2")]
    pub cut: Vec<CutFrame>,
    /// How far the source has received the streams of other replicas.
    #[prost(message, repeated, tag = "4")]
    pub received: Vec<ReceivedRecord>,
    /// Whether rows are missing at the source as well.
    #[prost(bool, tag = "5")]
    pub is_partial: bool,
    /// How far in the streams of other replicas the rows may reach, with what full copies have brought to the source.
    #[prost(message, repeated, tag = "6")]
    pub held: Vec<ReceivedRecord>,
    /// The number of the receiver's word that it answers. If that is not the last word, another copy or entries follow.
    #[prost(uint64, tag = "7")]
    pub answers: u64,
    /// The index of the last entry of the source's journal whose effect the rows have.
    #[prost(uint64, tag = "8")]
    pub applied_index: u64,
    /// Its term.
    #[prost(uint64, tag = "9")]
    pub applied_term: u64,
}

/// Rows of a full copy.
#[derive(Clone, PartialEq, Message)]
pub struct CopyRowsFrame {
    /// Encoded entries, by key in the order of the engine's rows. The entries of one key may continue in the next frame.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub entries: Vec<Bytes>,
    /// Whether this is the last frame.
    #[prost(bool, tag = "2")]
    pub end: bool,
    /// What the source's protocol keeps beside its versions, or a part of that.
    #[prost(message, repeated, tag = "3")]
    pub named: Vec<NamedRecord>,
}

impl From<StreamPosition> for PositionFrame {
    fn from(position: StreamPosition) -> PositionFrame {
        PositionFrame {
            incarnation: position.incarnation,
            number: position.number,
        }
    }
}

impl From<PositionFrame> for StreamPosition {
    fn from(frame: PositionFrame) -> StreamPosition {
        StreamPosition {
            incarnation: frame.incarnation,
            number: frame.number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_no_stream_reaches_is_refused() {
        let at = |incarnation, number| PositionFrame { incarnation, number };
        let parse = |body: StreamBody| check_places(body.places());
        assert!(parse(StreamBody::Ack(at(LAST_PLACE, LAST_PLACE))).is_ok());
        for place in [at(LAST_PLACE + 1, 0), at(0, u64::MAX)] {
            let mark = MarkFrame {
                incarnation: place.incarnation,
                after: place.number,
                body: Bytes::new(),
            };
            let entries = EntriesFrame {
                incarnation: place.incarnation,
                last: place.number,
                ..EntriesFrame::default()
            };
            let copy = CopyBeginFrame {
                resume: place,
                cut: Vec::new(),
                received: Vec::new(),
                is_partial: false,
                held: Vec::new(),
                answers: 0,
                applied_index: 0,
                applied_term: 0,
            };
            for body in [
                StreamBody::Resume(ResumeFrame::new(
                    place.into(),
                    Hlc(7),
                    &Forgotten {
                        until: Some(Hlc(5)),
                        directories: BTreeMap::from([(ReplicaId(1), 7)]),
                        met: BTreeMap::new(),
                    },
                    Some(place.into()),
                )),
                StreamBody::Ack(place),
                StreamBody::TakenBack(place),
                StreamBody::Mark(mark),
                StreamBody::Entries(entries),
                StreamBody::CopyBegin(copy),
            ] {
                assert!(parse(body.clone()).is_err(), "{body:?}");
            }
        }
    }
}
