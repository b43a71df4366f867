//! The messages between replicas, and what is kept with each version.
use bytes::{Buf, BufMut, Bytes, BytesMut};
use turnbuckle_core::{
    BadFrame, Content, Hlc, Meta, Record, ReplicaId, ReplicaSet, Vector, Version, VersionId, VersionRecord,
    Wire,
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

impl Meta for Copies {}

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
    #[prost(oneof = "Body", tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14")]
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
    /// A request to store these versions, unless the receiver has something that replaces them. It is acknowledged if the message has an operation's number.
    #[prost(message, tag = "9")]
    Store(Repair),
    /// The answer to a request to store: those versions, or what replaces them, are on disk.
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
    /// The answer where siblings are kept: what the receiver knows of the key, and the versions that the asker lacks.
    #[prost(message, tag = "14")]
    Found(Found),
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
        check_context(&self.entries)
    }

    fn newest(&self) -> Hlc {
        newest_of(&self.entries).max(Record::newest(&self.mark))
    }
}

/// A causal context as a list.
pub(crate) fn entries_of(context: &Vector) -> Vec<Entry> {
    let entries = context.entries().map(|(replica, until)| Entry {
        replica: replica.0.into(),
        until: until.0,
    });
    entries.collect()
}

/// The context in such a list. A list from outside must have been checked before.
pub(crate) fn context_in(entries: &[Entry]) -> Vector {
    let entries = entries.iter();
    entries
        .map(|entry| (ReplicaId(entry.replica as u16), Hlc(entry.until)))
        .collect()
}

fn check_context(entries: &[Entry]) -> Result<(), String> {
    let max = u32::from(ReplicaSet::MAX);
    let wrong = entries.iter().find(|entry| entry.replica >= max);
    wrong.map_or(Ok(()), |entry| Err(format!("replica {}", entry.replica)))
}

fn newest_of(entries: &[Entry]) -> Hlc {
    let entries = entries.iter().map(|entry| Hlc(entry.until));
    entries.max().unwrap_or(Hlc::ZERO)
}

fn replicas_of(entries: &[Entry]) -> ReplicaSet {
    let entries = entries.iter().map(|entry| ReplicaId(entry.replica as u16));
    entries.collect()
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
    /// Where siblings are kept: the causal context of what the asker has.
    #[prost(message, repeated, tag = "3")]
    pub context: Vec<Entry>,
}

/// What a replica has of a key, where siblings are kept.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Found {
    /// The causal context of what it has.
    #[prost(message, repeated, tag = "1")]
    pub context: Vec<Entry>,
    /// The versions that the asker's context does not cover.
    #[prost(message, repeated, tag = "2")]
    pub versions: Vec<Stored>,
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
    /// Where siblings are kept: the causal context of the version.
    #[prost(message, repeated, tag = "3")]
    pub replaces: Vec<Entry>,
}

/// Versions that the receiver is to store.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Repair {
    /// Their key.
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    /// The versions. Siblings come together: what a replica has of another one's versions must have no gap.
    #[prost(message, repeated, tag = "2")]
    pub versions: Vec<Stored>,
}

impl Stored {
    fn check(&self) -> Result<(), String> {
        check_context(&self.replaces)?;
        if !self.replaces.is_empty() && newest_of(&self.replaces) >= VersionRecord::newest(&self.version) {
            return Err("a version whose context is not older than itself".into());
        }
        match u8::try_from(self.copies) {
            Ok(_) => self.version.check(),
            Err(_) => Err(format!("a version with {} copies", self.copies)),
        }
    }

    fn newest(&self) -> Hlc {
        VersionRecord::newest(&self.version).max(newest_of(&self.replaces))
    }

    fn replicas(&self) -> ReplicaSet {
        self.version.replicas().union(replicas_of(&self.replaces))
    }
}

impl Found {
    fn check(&self) -> Result<(), String> {
        check_context(&self.context)?;
        self.versions.iter().try_for_each(Stored::check)
    }
}

/// The record of a version's name, without its value.
pub(crate) fn name_of(id: VersionId) -> VersionRecord {
    VersionRecord::new(Some(&Version {
        id,
        content: Content::DELETE,
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
    fn stored(&self) -> &[Stored] {
        match &self.body {
            Some(Body::Newer(stored)) => std::slice::from_ref(stored),
            Some(Body::Store(repair)) => &repair.versions,
            Some(Body::Found(found)) => &found.versions,
            _ => &[],
        }
    }

    /// The version that it names, and the context.
    fn named(&self) -> (Option<&VersionRecord>, &[Entry]) {
        match &self.body {
            Some(Body::Read(read)) => (Some(&read.newest), &read.context),
            Some(Body::Older(version)) => (Some(version), &[]),
            Some(Body::Found(found)) => (None, &found.context),
            Some(Body::Held(held)) => (None, &held.entries),
            _ => (None, &[]),
        }
    }
}

impl Record for Message {
    const WHAT: &'static str = "a message of a quorum keyspace";

    fn check(&self) -> Result<(), String> {
        match self.body.as_ref().ok_or("no body")? {
            Body::Mark(mark) => mark.check(),
            Body::Held(held) => held.check(),
            Body::Found(found) => found.check(),
            Body::Read(read) => check_context(&read.context).and_then(|()| read.newest.check()),
            Body::Older(version) => version.check(),
            _ => self.stored().iter().try_for_each(Stored::check),
        }
    }

    fn newest(&self) -> Hlc {
        match &self.body {
            Some(Body::Mark(mark)) => return Record::newest(mark),
            Some(Body::Held(held)) => return held.newest(),
            // They are compared with timestamps of this cluster, and no clock follows them.
            Some(Body::StoredUntil(_) | Body::Confirm(_) | Body::Round(_) | Body::Subscribe(_)) | None => {
                return Hlc::ZERO;
            }
            Some(_) => {}
        }
        let (version, context) = self.named();
        let stored = self.stored().iter().map(Stored::newest).max();
        version
            .map_or(Hlc::ZERO, VersionRecord::newest)
            .max(newest_of(context))
            .max(stored.unwrap_or(Hlc::ZERO))
    }

    fn replicas(&self) -> ReplicaSet {
        let (version, context) = self.named();
        let stored = self.stored().iter().map(Stored::replicas);
        let named = version.map(VersionRecord::replicas).unwrap_or_default();
        stored.fold(named.union(replicas_of(context)), ReplicaSet::union)
    }
}
