//! The messages between replicas, and what is kept with each version.
use bytes::{Buf, BufMut, Bytes, BytesMut};
use turnbuckle_core::{
    BadFrame, Hlc, Record, ReplicaId, ReplicaSet, Version, VersionId, VersionRecord, Wire,
};
use turnbuckle_streams::MarkRecord;

/// The number of replicas that must store a version before its write is acknowledged. A version that more than one must store is synced everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copies(pub u8);

impl Copies {
    /// Whether replicas must sync the version, and acknowledge it.
    pub fn is_awaited(self) -> bool {
        self.0 > 1
    }
}

impl Wire for Copies {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(self.0);
    }

    fn decode(mut frame: Bytes) -> Result<Copies, BadFrame> {
        match frame.len() {
            1 => Ok(Copies(frame.get_u8())),
            bytes => Err(BadFrame::new("a number of copies", format!("{bytes} bytes"))),
        }
    }

    fn newest(&self) -> Hlc {
        Hlc::ZERO
    }
}

/// A message to another replica.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// The coordinator's number for the operation, which is never used twice. 0 if the message is about no single operation.
    #[prost(uint64, tag = "1")]
    pub operation: u64,
    /// What is said.
    #[prost(oneof = "Body", tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")]
    pub body: Option<Body>,
}

/// What a message says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Body {
    /// A mark of the sender's stream.
    #[prost(message, tag = "2")]
    Mark(MarkRecord),
    /// A question: which version of the key does the receiver have?
    #[prost(message, tag = "3")]
    Read(Read),
    /// The answer: the newest version, which is newer than the asker's.
    #[prost(message, tag = "4")]
    Newer(Stored),
    /// The answer: this is the newest version, and the asker has it or a newer one. Without a value.
    #[prost(message, tag = "5")]
    Older(VersionRecord),
    /// The answer: the receiver cannot be counted now, for this reason.
    #[prost(string, tag = "6")]
    Declined(String),
    /// Everything of the receiver's stream up to this timestamp that was to be acknowledged is on disk.
    #[prost(fixed64, tag = "7")]
    StoredUntil(u64),
    /// A question: is everything of the sender's stream up to this timestamp on disk?
    #[prost(fixed64, tag = "8")]
    Confirm(u64),
    /// A request to store this version, unless the receiver has a newer one. It is acknowledged if the message has an operation's number.
    #[prost(message, tag = "9")]
    Store(Repair),
    /// The answer to a request to store: that version, or a newer one, is on disk.
    #[prost(message, tag = "10")]
    Stored(()),
    /// A question: how far is the receiver? With the number of the round, which no earlier life of the sender has used.
    #[prost(fixed64, tag = "11")]
    Round(u64),
    /// A mark of the sender's stream, and how far the sender is with the others: a status, or the answer to a round.
    #[prost(message, tag = "12")]
    Held(Held),
    /// A request to send statuses regularly, for this time in microseconds from when the request arrives.
    #[prost(fixed64, tag = "13")]
    Subscribe(u64),
}

/// How far a replica is: a status message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Held {
    /// The mark: how far the sender's own stream is.
    #[prost(message, required, tag = "1")]
    pub mark: MarkRecord,
    /// The receiver's last round that the sender has heard of. 0 if there was none.
    #[prost(fixed64, tag = "2")]
    pub round: u64,
    /// How far the sender may have acknowledged the streams of the replicas other than the two.
    #[prost(message, repeated, tag = "3")]
    pub entries: Vec<Entry>,
}

/// How far the stream of a replica is.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Entry {
    /// The replica's number.
    #[prost(uint32, tag = "1")]
    pub replica: u32,
    /// No version is acknowledged that the replica stamped later.
    #[prost(fixed64, tag = "2")]
    pub until: u64,
}

impl Held {
    fn check(&self) -> Result<(), String> {
        self.mark.check()?;
        let wrong = self.entries.iter().find(|entry| entry.replica > u16::MAX.into());
        wrong.map_or(Ok(()), |entry| Err(format!("replica {}", entry.replica)))
    }

    fn newest(&self) -> Hlc {
        let entries = self.entries.iter().map(|entry| Hlc(entry.until));
        entries.max().unwrap_or(Hlc::ZERO).max(Record::newest(&self.mark))
    }

    fn replicas(&self) -> ReplicaSet {
        self.entries
            .iter()
            .map(|entry| ReplicaId(entry.replica as u16))
            .collect()
    }
}

/// A question about a key.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Read {
    /// The key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The newest version that the asker has, without its value.
    #[prost(message, required, tag = "2")]
    pub newest: VersionRecord,
}

/// A version with what is kept of it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Stored {
    /// The version.
    #[prost(message, required, tag = "1")]
    pub version: VersionRecord,
    /// See [`Copies`].
    #[prost(uint32, tag = "2")]
    pub copies: u32,
}

/// A version that the receiver is to store.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Repair {
    /// Its key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The version.
    #[prost(message, required, tag = "2")]
    pub stored: Stored,
}

impl Stored {
    /// The record of a version.
    pub fn new(version: &Version<Copies>) -> Stored {
        Stored {
            version: VersionRecord::new(Some(&Version {
                id: version.id,
                value: version.value.clone(),
                meta: (),
            })),
            copies: u32::from(version.meta.0),
        }
    }

    fn check(&self) -> Result<(), String> {
        match u8::try_from(self.copies) {
            Ok(_) => self.version.check(),
            Err(_) => Err(format!("a version with {} copies", self.copies)),
        }
    }

    /// The version. A record from outside must have been checked before.
    pub fn version(self) -> Option<Version<Copies>> {
        let Version { id, value, .. } = self.version.version()?;
        let meta = Copies(self.copies as u8);
        Some(Version { id, value, meta })
    }
}

/// The record of a version's name, without its value.
pub(crate) fn name_of(id: VersionId) -> VersionRecord {
    VersionRecord::new(Some(&Version {
        id,
        value: None,
        meta: (),
    }))
}

/// The name in such a record. The name of no version is before all others.
pub(crate) fn named_in(record: &VersionRecord) -> VersionId {
    let replica = record.replicas().iter().next().unwrap_or(ReplicaId(0));
    let at = record.newest();
    VersionId { at, replica }
}

impl Message {
    fn version(&self) -> Option<&VersionRecord> {
        match self.body.as_ref()? {
            Body::Read(read) => Some(&read.newest),
            Body::Newer(stored) => Some(&stored.version),
            Body::Older(version) => Some(version),
            Body::Store(repair) => Some(&repair.stored.version),
            Body::Mark(_)
            | Body::Declined(_)
            | Body::StoredUntil(_)
            | Body::Confirm(_)
            | Body::Round(_)
            | Body::Held(_)
            | Body::Subscribe(_)
            | Body::Stored(()) => None,
        }
    }
}

impl Record for Message {
    const WHAT: &'static str = "a message of a quorum keyspace";

    fn check(&self) -> Result<(), String> {
        match self.body.as_ref().ok_or("no body")? {
            Body::Mark(mark) => mark.check(),
            Body::Held(held) => held.check(),
            Body::Newer(stored) => stored.check(),
            Body::Store(repair) => repair.stored.check(),
            _ => self.version().map_or(Ok(()), VersionRecord::check),
        }
    }

    fn newest(&self) -> Hlc {
        match &self.body {
            Some(Body::Mark(mark)) => Record::newest(mark),
            Some(Body::Held(held)) => held.newest(),
            // They are compared with timestamps of this cluster, and no clock follows them.
            Some(Body::StoredUntil(_) | Body::Confirm(_) | Body::Round(_) | Body::Subscribe(_)) | None => {
                Hlc::ZERO
            }
            Some(_) => self.version().map_or(Hlc::ZERO, VersionRecord::newest),
        }
    }

    fn replicas(&self) -> ReplicaSet {
        match &self.body {
            Some(Body::Held(held)) => held.replicas(),
            _ => self.version().map(VersionRecord::replicas).unwrap_or_default(),
        }
    }
}
