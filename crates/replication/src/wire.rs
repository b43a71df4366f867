//! What the ends of a stream say to each other, and what each of them writes down of it. Prost stays in here: the field tags are what survives a
//! rolling upgrade, the types around it are ours.
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

/// What the two ends of a stream say to each other. Streams run from their source (`from` of entries, marks and copies) to a receiver.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum StreamBody {
    /// The next entries of a stream.
    #[prost(message, tag = "7")]
    Entries(EntriesFrame),
    /// A mark, behind the entries up to a position.
    #[prost(message, tag = "8")]
    Mark(MarkFrame),
    /// The receiver has everything up to here, durably.
    #[prost(message, tag = "9")]
    Ack(PositionFrame),
    /// The receiver has everything up to here and wants what follows.
    #[prost(message, tag = "10")]
    Resume(ResumeFrame),
    /// The source lost what it stamped after a time: the receiver is to give it back; then it will count as being at a position.
    #[prost(message, tag = "11")]
    TakeBack(TakeBackFrame),
    /// What the receiver gives back.
    #[prost(message, tag = "12")]
    Returned(ReturnedFrame),
    /// A full copy begins; afterwards the stream goes on behind a position.
    #[prost(message, tag = "13")]
    CopyBegin(CopyBeginFrame),
    /// Rows of a full copy.
    #[prost(message, tag = "14")]
    CopyRows(CopyRowsFrame),
    /// The source holds durably what it was given back: the receiver counts as being at a position, and entries follow.
    #[prost(message, tag = "15")]
    TakenBack(PositionFrame),
}

impl StreamBody {
    /// The incarnation and the numbers that it speaks of.
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

    /// What it is, in a few words; `entry_words` says what an encoded entry is.
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
    /// The life of the source that wrote them.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// The position that the receiver must be at.
    #[prost(uint64, tag = "2")]
    pub previous: u64,
    /// The position it is at afterwards: entries for other sites only are skipped.
    #[prost(uint64, tag = "3")]
    pub last: u64,
    /// Encoded entries.
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub entries: Vec<Bytes>,
    /// Their numbers, if some between `previous` and `last` are skipped.
    #[prost(uint64, repeated, tag = "5")]
    pub numbers: Vec<u64>,
}

/// A mark, and what it travels behind.
#[derive(Clone, PartialEq, Message)]
pub struct MarkFrame {
    /// The life of the source.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// The number of the entry that it travels behind.
    #[prost(uint64, tag = "2")]
    pub after: u64,
    /// The message, encoded.
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
}

/// A place in a stream.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct PositionFrame {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
    #[prost(uint64, tag = "2")]
    number: u64,
}

/// Where a receiver is.
#[derive(Clone, PartialEq, Message)]
pub struct ResumeFrame {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
    /// The number of the last entry that was taken in.
    #[prost(uint64, tag = "2")]
    pub number: u64,
    /// Rows are missing: a full copy is to come first, of who has taken in the receiver's own stream up to here.
    #[prost(message, optional, tag = "3")]
    pub copy: Option<PositionFrame>,
    /// The receiver's clock: it is above everything that the receiver has heard of the source.
    #[prost(fixed64, tag = "4")]
    pub clock: u64,
    /// Deletes up to here may be forgotten at the receiver. None if its directory was empty and is still being filled.
    #[prost(fixed64, optional, tag = "5")]
    forgotten: Option<u64>,
    /// The births of data directories: the receiver's own, and those by whose word deletes were forgotten.
    #[prost(message, repeated, tag = "6")]
    directories: Vec<DirectoryFrame>,
    /// Full copies of third sites may have brought the receiver what the source wrote up to here, which is further than the stream has.
    #[prost(message, optional, tag = "7")]
    pub held: Option<PositionFrame>,
    /// How often the receiver has said where it is: a full copy names the word that it answers.
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
    /// A receiver is there; `copy` says how far the source of a full copy has to be, if one is needed first.
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
    /// If it names a site that there is not.
    pub fn word(&self, topology: &Topology) -> Result<Forgotten, BadFrame> {
        Ok(Forgotten {
            until: self.forgotten.map(Hlc),
            directories: births(&self.directories, topology)?,
            met: births(&self.met, topology)?,
        })
    }

    /// Where it is.
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
    /// What was stamped after this is to be given back.
    #[prost(fixed64, tag = "1")]
    pub since: u64,
}

/// Something of what a source has lost.
#[derive(Clone, PartialEq, Message)]
pub struct ReturnedFrame {
    /// Versions, encoded.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub entries: Vec<Bytes>,
    /// There are no more.
    #[prost(bool, tag = "2")]
    pub end: bool,
    /// With the end: deletes have kept versions from being given back. The newest such delete of each site.
    #[prost(message, repeated, tag = "3")]
    pub withheld: Vec<CutFrame>,
    /// If all was asked for: what the giver's protocol keeps beside its versions, or a part of that.
    #[prost(message, repeated, tag = "4")]
    pub named: Vec<NamedRecord>,
}

/// What a full copy says in front of its rows.
#[derive(Clone, PartialEq, Message)]
pub struct CopyBeginFrame {
    /// The stream goes on behind this.
    #[prost(message, required, tag = "1")]
    pub resume: PositionFrame,
    /// What the rows cover.
    #[prost(message, repeated, tag = "2")]
    pub cut: Vec<CutFrame>,
    /// How far the source has taken in the streams of other sites.
    #[prost(message, repeated, tag = "4")]
    pub received: Vec<ReceivedRecord>,
    /// Rows are missing at the source as well.
    #[prost(bool, tag = "5")]
    pub is_partial: bool,
    /// How far the rows may go in the streams of other sites, with what copies have brought to the source.
    #[prost(message, repeated, tag = "6")]
    pub held: Vec<ReceivedRecord>,
    /// Which word of the receiver it answers. One that answers an earlier word than the last is followed by another copy, or by entries.
    #[prost(uint64, tag = "7")]
    pub answers: u64,
}

/// Rows of a full copy.
#[derive(Clone, PartialEq, Message)]
pub struct CopyRowsFrame {
    /// Encoded entries, by key in the order of the engine's rows; those of one key may go on in the next frame.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub entries: Vec<Bytes>,
    /// There are no more.
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
