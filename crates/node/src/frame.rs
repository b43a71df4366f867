//! What two nodes of a cluster say to each other. Prost stays in here: the field tags are what survives a
//! rolling upgrade, the types around it are ours.
use crate::record::{NamedRecord, ReceivedRecord};
use crate::status::Written;
use crate::stream::StreamPosition;
use bytes::{Bytes, BytesMut};
use prost::Message;
use std::collections::BTreeMap;
use turnbuckle_core::{
    BadFrame, Forgotten, Hidden, Hlc, Key, Level, Micros, Receipt, Route, ServerId, SiteId, SiteSet,
    Topology, Vector, Version, VersionId, Wire,
};

/// The version of this vocabulary; peers with another one are refused in the handshake.
pub const WIRE_VERSION: u32 = 3;

/// The largest frame that one node sends to another, in bytes without the length in front; a larger one is refused. A value that a
/// client may write is far below it: a write, an answer and an entry of a stream carry one, and what it depends on.
pub const MOST_FRAME_BYTES: usize = 160 << 20;

/// The length in front of a frame.
pub(crate) const HEADER_BYTES: usize = 4;

/// One frame.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Frame {
    /// The keyspace, by its tag.
    #[prost(fixed32, tag = "1")]
    pub keyspace: u32,
    /// The server that speaks.
    #[prost(uint64, tag = "2")]
    from: u64,
    /// The server that is spoken to.
    #[prost(uint64, tag = "3")]
    to: u64,
    #[prost(oneof = "Body", tags = "4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15")]
    pub body: Option<Body>,
}

/// What a frame is about. Streams run from their source (`from` of entries, marks and copies) to a receiver.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Body {
    /// A session's question, passed on.
    #[prost(message, tag = "4")]
    Request(RequestFrame),
    /// The answer.
    #[prost(message, tag = "5")]
    Response(ResponseFrame),
    /// A protocol's message; may be lost.
    #[prost(bytes = "bytes", tag = "6")]
    Message(Bytes),
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

/// Incarnations are microseconds since 1970 and entries are counted one by one: none gets here in a hundred thousand
/// years. Whoever claims to be further would have the next one overflow.
pub(crate) const LAST_PLACE: u64 = 1 << 62;

/// Checks incarnations and numbers that come from outside.
pub(crate) fn check_places(places: impl IntoIterator<Item = u64>) -> Result<(), BadFrame> {
    match places.into_iter().find(|&place| place > LAST_PLACE) {
        Some(beyond) => Err(BadFrame::new(
            "a place in a stream that one can reach",
            beyond.to_string(),
        )),
        None => Ok(()),
    }
}

/// Checks a timestamp that comes from outside.
pub(crate) fn check_time(at: u64) -> Result<Hlc, BadFrame> {
    if at > Hlc::LATEST.0 {
        return Err(BadFrame::new("a timestamp before 2112", at.to_string()));
    }
    Ok(Hlc(at))
}

impl Body {
    /// The incarnation and the numbers that it speaks of.
    fn places(&self) -> [u64; 3] {
        let of = |position: &PositionFrame| [position.incarnation, position.number, 0];
        match self {
            Body::Entries(frame) => [frame.incarnation, frame.previous, frame.last],
            Body::Mark(frame) => [frame.incarnation, frame.after, 0],
            Body::Ack(position) | Body::TakenBack(position) => of(position),
            Body::Resume(frame) => {
                let beside = [frame.copy, frame.held].into_iter().flatten();
                let beside = beside.map(|place| place.incarnation.max(place.number)).max();
                [frame.incarnation, frame.number, beside.unwrap_or(0)]
            }
            Body::CopyBegin(frame) => of(&frame.resume),
            Body::Request(_)
            | Body::Response(_)
            | Body::Message(_)
            | Body::TakeBack(_)
            | Body::Returned(_)
            | Body::CopyRows(_) => [0; 3],
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestFrame {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub body: Bytes,
    /// Not for the protocol: list or count keys.
    #[prost(message, optional, tag = "3")]
    pub survey: Option<SurveyFrame>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct SurveyFrame {
    #[prost(uint64, tag = "1")]
    pub cursor: u64,
    /// 0: count keys; else list about so many.
    #[prost(uint32, tag = "2")]
    pub count: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseFrame {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(bytes = "bytes", tag = "2")]
    pub body: Bytes,
    #[prost(message, optional, tag = "3")]
    pub receipt: Option<ReceiptFrame>,
    #[prost(string, optional, tag = "4")]
    pub refused: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub survey: Option<SurveyedFrame>,
    /// Refused, and yet it may have happened.
    #[prost(bool, tag = "6")]
    pub maybe_done: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SurveyedFrame {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub keys: Vec<Bytes>,
    #[prost(bool, tag = "3")]
    pub counted: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReceiptFrame {
    #[prost(string, tag = "1")]
    asked: String,
    #[prost(string, tag = "2")]
    given: String,
    #[prost(fixed64, optional, tag = "3")]
    version_at: Option<u64>,
    #[prost(uint32, tag = "4")]
    version_site: u32,
    #[prost(uint64, tag = "5")]
    server: u64,
    #[prost(uint64, tag = "6")]
    waited_us: u64,
    #[prost(uint64, optional, tag = "7")]
    staleness_us: Option<u64>,
    #[prost(uint64, tag = "8")]
    clock_bound_us: u64,
    #[prost(bool, tag = "9")]
    siblings: bool,
    #[prost(message, repeated, tag = "10")]
    cut: Vec<CutFrame>,
    #[prost(uint32, tag = "11")]
    hidden: u32,
    #[prost(fixed64, optional, tag = "12")]
    hidden_at: Option<u64>,
    #[prost(uint32, tag = "13")]
    hidden_site: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EntriesFrame {
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

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MarkFrame {
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    #[prost(uint64, tag = "2")]
    pub after: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct PositionFrame {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
    #[prost(uint64, tag = "2")]
    number: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResumeFrame {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
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
    site: u32,
    #[prost(fixed64, tag = "2")]
    birth: u64,
}

fn directories(births: &BTreeMap<SiteId, u64>) -> Vec<DirectoryFrame> {
    let births = births.iter();
    births
        .map(|(site, &birth)| DirectoryFrame {
            site: u32::from(site.0),
            birth,
        })
        .collect()
}

fn births(directories: &[DirectoryFrame], topology: &Topology) -> Result<BTreeMap<SiteId, u64>, BadFrame> {
    let mut births = BTreeMap::new();
    for directory in directories {
        let site =
            u16::try_from(directory.site).map_err(|_| BadFrame::new("a site", directory.site.to_string()))?;
        births.insert(SiteId(site), Forgotten::check_birth(directory.birth)?);
    }
    topology.check_sites(births.keys().copied().collect())?;
    Ok(births)
}

impl ResumeFrame {
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

    pub fn at(&self) -> StreamPosition {
        StreamPosition {
            incarnation: self.incarnation,
            number: self.number,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct TakeBackFrame {
    #[prost(fixed64, tag = "1")]
    pub since: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReturnedFrame {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub entries: Vec<Bytes>,
    #[prost(bool, tag = "2")]
    pub end: bool,
    /// With the end: deletes have kept versions from being given back. The newest such delete of each site.
    #[prost(message, repeated, tag = "3")]
    pub withheld: Vec<CutFrame>,
    /// With the end, if all was asked for: what the giver's protocol keeps beside its versions.
    #[prost(message, repeated, tag = "4")]
    pub named: Vec<NamedRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CopyBeginFrame {
    #[prost(message, required, tag = "1")]
    pub resume: PositionFrame,
    #[prost(message, repeated, tag = "2")]
    pub cut: Vec<CutFrame>,
    /// What the source's protocol keeps beside its versions.
    #[prost(message, repeated, tag = "3")]
    pub named: Vec<NamedRecord>,
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

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct CutFrame {
    #[prost(uint32, tag = "1")]
    site: u32,
    #[prost(fixed64, tag = "2")]
    until: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CopyRowsFrame {
    /// Encoded entries, by key in the order of the engine's rows; those of one key may go on in the next frame.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub entries: Vec<Bytes>,
    #[prost(bool, tag = "2")]
    pub end: bool,
}

/// A version and its key: what lies in the log and travels in streams, encoded once for both.
#[derive(Clone, PartialEq, Message)]
struct EntryFrame {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(fixed64, tag = "2")]
    at: u64,
    #[prost(uint32, tag = "3")]
    site: u32,
    #[prost(bytes = "bytes", optional, tag = "4")]
    value: Option<Bytes>,
    #[prost(bytes = "bytes", tag = "5")]
    meta: Bytes,
}

impl Frame {
    pub fn new(keyspace: u32, from: ServerId, to: ServerId, body: Body) -> Frame {
        Frame {
            keyspace,
            from: pack(from),
            to: pack(to),
            body: Some(body),
        }
    }

    pub fn from(&self) -> ServerId {
        unpack(self.from)
    }

    pub fn to(&self) -> ServerId {
        unpack(self.to)
    }

    /// How many bytes it takes, without the length in front.
    pub fn len(&self) -> usize {
        self.encoded_len()
    }

    /// Appends the frame with its length in front, as it goes over a link.
    pub fn put(&self, out: &mut BytesMut) {
        let len = self.len();
        out.reserve(HEADER_BYTES + len);
        let len = u32::try_from(len).expect("frames are far below 4 GiB");
        out.extend_from_slice(&len.to_be_bytes());
        self.encode(out).expect("a BytesMut grows");
    }

    /// Decodes a frame without its length.
    pub fn parse(bytes: Bytes) -> Result<Frame, BadFrame> {
        let frame =
            Frame::decode(bytes).map_err(|error| BadFrame::new("a frame of a peer", error.to_string()))?;
        check_places(frame.body.as_ref().map_or([0; 3], Body::places))?;
        Ok(frame)
    }
}

/// What a frame is about, for those who watch a link or take frames away from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameAbout {
    /// Who speaks.
    pub from: ServerId,
    /// Who is spoken to.
    pub to: ServerId,
    /// What it is, in a few words.
    pub words: String,
    /// A protocol's message or a mark: the seam lets them be lost.
    pub may_be_lost: bool,
}

impl FrameAbout {
    /// Looks at a frame without its length.
    ///
    /// # Errors
    /// If it is none.
    pub fn of(bytes: Bytes) -> Result<FrameAbout, BadFrame> {
        let frame = Frame::parse(bytes)?;
        let body = frame
            .body
            .as_ref()
            .ok_or_else(|| BadFrame::new("a frame with a body", "none"))?;
        Ok(FrameAbout {
            from: frame.from(),
            to: frame.to(),
            words: body.words(),
            may_be_lost: matches!(body, Body::Message(_) | Body::Mark(_)),
        })
    }
}

impl Body {
    fn words(&self) -> String {
        let places = |first: u64, last: u64| match last.saturating_sub(first) {
            0 | 1 => format!("{last}"),
            _ => format!("{}-{last}", first + 1),
        };
        match self {
            Body::Request(_) => "request".into(),
            Body::Response(_) => "response".into(),
            Body::Message(_) => "message".into(),
            Body::Entries(frame) => {
                let keys: Vec<String> = frame.entries.iter().take(3).filter_map(entry_words).collect();
                let more = if frame.entries.len() > 3 { " .." } else { "" };
                let numbers = places(frame.previous, frame.last);
                format!("entries {numbers}: {}{more}", keys.join(", "))
            }
            Body::Mark(frame) => format!("mark behind {}", frame.after),
            Body::Ack(position) => format!("ack {}", position.number),
            Body::Resume(position) => format!("resume behind {}", position.number),
            Body::TakeBack(_) => "take back".into(),
            Body::Returned(_) => "returned".into(),
            Body::CopyBegin(_) => "copy begins".into(),
            Body::CopyRows(frame) => format!("copy, {} rows", frame.entries.len()),
            Body::TakenBack(position) => format!("taken back, at {}", position.number),
        }
    }
}

/// Key and value of an encoded entry, shortened.
fn entry_words(entry: &Bytes) -> Option<String> {
    const MOST: usize = 24;
    let frame = EntryFrame::decode(entry.clone()).ok()?;
    let short = |bytes: &[u8]| bytes[..bytes.len().min(MOST)].escape_ascii().to_string();
    Some(match &frame.value {
        Some(value) => format!("{}={}", short(&frame.key), short(value)),
        None => format!("{} deleted", short(&frame.key)),
    })
}

fn pack(server: ServerId) -> u64 {
    u64::from(server.site.0) << 32 | u64::from(server.partition) << 16 | u64::from(server.member)
}

fn unpack(packed: u64) -> ServerId {
    ServerId {
        site: SiteId((packed >> 32) as u16),
        partition: (packed >> 16) as u16,
        member: packed as u16,
    }
}

/// Encodes an entry into the memory of `arena`.
pub(crate) fn encode_entry<M: Wire>(key: &Key, version: &Version<M>, arena: &mut BytesMut) -> Bytes {
    encode_and_count(key, version, arena, &mut Written::default())
}

/// Encodes an entry into the memory of `arena`, and counts it.
pub(crate) fn encode_and_count<M: Wire>(
    key: &Key,
    version: &Version<M>,
    arena: &mut BytesMut,
    counted: &mut Written,
) -> Bytes {
    version.meta.encode(arena);
    let meta = arena.split().freeze();
    counted.versions += 1;
    counted.metadata_bytes += meta.len() as u64;
    let frame = EntryFrame {
        key: key.0.clone(),
        at: version.id.at.0,
        site: u32::from(version.id.site.0),
        value: version.value.clone(),
        meta,
    };
    frame.encode(arena).expect("a BytesMut grows");
    arena.split().freeze()
}

/// The newest timestamp that a version speaks of.
pub(crate) fn newest<M: Wire>(version: &Version<M>) -> Hlc {
    version.id.at.max(version.meta.newest())
}

/// Decodes an entry, which names sites of the cluster alone.
pub(crate) fn decode_entry<M: Wire>(
    bytes: Bytes,
    topology: &Topology,
) -> Result<(Key, Version<M>), BadFrame> {
    let frame = EntryFrame::decode(bytes).map_err(|error| BadFrame::new("an entry", error.to_string()))?;
    let id = VersionId {
        at: check_time(frame.at)?,
        site: site_of(frame.site)?,
    };
    let meta = M::decode(frame.meta)?;
    topology.check_sites(meta.sites().union(SiteSet::one(id.site)))?;
    let value = frame.value;
    Ok((Key(frame.key), Version { id, value, meta }))
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

pub(crate) fn cut_to_frames(cut: &[(SiteId, Hlc)]) -> Vec<CutFrame> {
    cut.iter()
        .map(|&(site, until)| CutFrame {
            site: site.0.into(),
            until: until.0,
        })
        .collect()
}

pub(crate) fn cut_from_frames(frames: &[CutFrame]) -> Result<Vec<(SiteId, Hlc)>, BadFrame> {
    frames
        .iter()
        .map(|frame| Ok((site_of(frame.site)?, check_time(frame.until)?)))
        .collect()
}

/// A site that a cluster may have.
pub(crate) fn site_of(number: u32) -> Result<SiteId, BadFrame> {
    let site = u16::try_from(number)
        .ok()
        .filter(|&site| site < SiteSet::MOST_SITES);
    site.map(SiteId)
        .ok_or_else(|| BadFrame::new("a site below 64", number.to_string()))
}

impl From<&Receipt> for ReceiptFrame {
    fn from(receipt: &Receipt) -> ReceiptFrame {
        ReceiptFrame {
            asked: receipt.asked.to_string(),
            given: receipt.given.to_string(),
            version_at: receipt.version.map(|id| id.at.0),
            version_site: receipt.version.map_or(0, |id| id.site.0.into()),
            server: pack(receipt.server),
            waited_us: receipt.waited.0,
            staleness_us: receipt.staleness.map(|bound| bound.0),
            clock_bound_us: receipt.clock_bound.0,
            siblings: receipt.siblings,
            cut: cut_to_frames(&receipt.cut.entries().collect::<Vec<_>>()),
            hidden: receipt.hidden.versions,
            hidden_at: receipt.hidden.newest.map(|id| id.at.0),
            hidden_site: receipt.hidden.newest.map_or(0, |id| id.site.0.into()),
        }
    }
}

impl ReceiptFrame {
    /// The receipt, as one that came from another node of the site.
    pub fn into_forwarded(self, topology: &Topology) -> Result<Receipt, BadFrame> {
        let version = |at: Option<u64>, site: u32| {
            at.map(|at| {
                let (at, site) = (check_time(at)?, site_of(site)?);
                topology.check_sites(SiteSet::one(site))?;
                Ok(VersionId { at, site })
            })
            .transpose()
        };
        let cut = cut_from_frames(&self.cut)?;
        topology.check_sites(cut.iter().map(|&(site, _)| site).collect())?;
        let server = unpack(self.server);
        if !topology.contains(server) {
            return Err(BadFrame::new("a receipt of a server", server.to_string()));
        }
        let level = |name: &str| {
            name.parse::<Level>()
                .map_err(|error| BadFrame::new("a level in a receipt", error.found))
        };
        Ok(Receipt {
            asked: level(&self.asked)?,
            given: level(&self.given)?,
            version: version(self.version_at, self.version_site)?,
            server,
            route: Route::Forwarded,
            waited: Micros(self.waited_us),
            staleness: self.staleness_us.map(Micros),
            clock_bound: Micros(self.clock_bound_us),
            siblings: self.siblings,
            cut: cut.into_iter().collect::<Vector>(),
            hidden: Hidden {
                versions: self.hidden,
                newest: version(self.hidden_at, self.hidden_site)?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_no_stream_reaches_is_refused() {
        let at = |incarnation, number| PositionFrame { incarnation, number };
        let parse = |body| {
            let server = unpack(0);
            Frame::parse(Frame::new(0, server, server, body).encode_to_vec().into())
        };
        assert!(parse(Body::Ack(at(LAST_PLACE, LAST_PLACE))).is_ok());
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
                named: Vec::new(),
                received: Vec::new(),
                is_partial: false,
                held: Vec::new(),
                answers: 0,
            };
            for body in [
                Body::Resume(ResumeFrame::new(
                    place.into(),
                    Hlc(7),
                    &Forgotten {
                        until: Some(Hlc(5)),
                        directories: BTreeMap::from([(SiteId(1), 7)]),
                        met: BTreeMap::new(),
                    },
                    Some(place.into()),
                )),
                Body::Ack(place),
                Body::TakenBack(place),
                Body::Mark(mark),
                Body::Entries(entries),
                Body::CopyBegin(copy),
            ] {
                assert!(parse(body.clone()).is_err(), "{body:?}");
            }
        }
    }

    #[test]
    fn a_receipt_names_servers_and_sites_that_there_are() {
        let topology = Topology::new(["a", "b", "c"], 2, 1);
        let at = Hlc::LATEST.0;
        let receipt = ReceiptFrame {
            asked: "eventual".into(),
            given: "eventual".into(),
            version_at: Some(at),
            version_site: 2,
            server: pack(ServerId {
                site: SiteId(2),
                partition: 1,
                member: 0,
            }),
            cut: vec![CutFrame { site: 2, until: at }],
            hidden_at: Some(at),
            hidden_site: 2,
            ..ReceiptFrame::default()
        };
        assert!(receipt.clone().into_forwarded(&topology).is_ok());
        for site in [3_u32, 63, 64] {
            let altered = [
                ReceiptFrame {
                    version_site: site,
                    ..receipt.clone()
                },
                ReceiptFrame {
                    hidden_site: site,
                    ..receipt.clone()
                },
                ReceiptFrame {
                    server: u64::from(site) << 32,
                    ..receipt.clone()
                },
                ReceiptFrame {
                    cut: vec![CutFrame { site, until: at }],
                    ..receipt.clone()
                },
            ];
            for altered in altered {
                assert!(altered.into_forwarded(&topology).is_err(), "site {site}");
            }
        }
    }
}
