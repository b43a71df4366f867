//! What an entry of the log does: the effect of one operation, as its leader has computed it.
use bytes::Bytes;
use prost::Message;
use turnbuckle_core::{Hlc, Key, ReplicaId, ReplicaSet, SessionId, Version, VersionId};

/// The effect of an operation.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Change {
    /// The session that has asked for it, and its number for the operation.
    #[prost(fixed64, tag = "1")]
    session: u64,
    #[prost(uint64, tag = "2")]
    tag: u64,
    #[prost(bytes = "bytes", tag = "3")]
    key: Bytes,
    /// Whether the key had a value before.
    #[prost(bool, tag = "4")]
    pub existed: bool,
    /// When the version that the client is told was stamped: the one that is put, or the delete that is there already. 0 if there is none.
    #[prost(fixed64, tag = "5")]
    at: u64,
    /// The leader that has stamped it.
    #[prost(uint32, tag = "6")]
    replica: u32,
    /// Whether that version is put. A delete that finds nothing puts nothing.
    #[prost(bool, tag = "8")]
    pub puts: bool,
    /// The value; none for a delete.
    #[prost(bytes = "bytes", optional, tag = "7")]
    value: Option<Bytes>,
}

/// An operation, by its session and the session's number for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct OperationName {
    /// The session.
    pub session: u64,
    /// Its number for the operation.
    pub tag: u64,
}

impl OperationName {
    /// An operation of a session.
    pub fn new(session: SessionId, tag: u64) -> OperationName {
        let session = session.0;
        OperationName { session, tag }
    }
}

impl Change {
    /// An operation that puts a version.
    pub fn put(by: OperationName, key: &Key, existed: bool, id: VersionId, value: Option<Bytes>) -> Change {
        Change {
            puts: true,
            existed,
            value,
            ..Change::nothing(by, key, Some(id))
        }
    }

    /// A delete of a key without a value. `found` is the delete that is there already.
    pub fn nothing(by: OperationName, key: &Key, found: Option<VersionId>) -> Change {
        let id = found.unwrap_or_default();
        Change {
            session: by.session,
            tag: by.tag,
            key: key.0.clone(),
            existed: false,
            at: id.at.0,
            replica: u32::from(id.replica.0),
            puts: false,
            value: None,
        }
    }

    pub fn encode(&self) -> Bytes {
        self.encode_to_vec().into()
    }

    /// # Errors
    /// If it is something else. No replica proposes that.
    pub fn decode(data: Bytes) -> Result<Change, String> {
        let change = <Change as Message>::decode(data).map_err(|error| error.to_string())?;
        match change.replica < u32::from(ReplicaSet::MAX) {
            true => Ok(change),
            false => Err(format!("a version of replica {}", change.replica)),
        }
    }

    pub fn by(&self) -> OperationName {
        OperationName {
            session: self.session,
            tag: self.tag,
        }
    }

    pub fn key(&self) -> Key {
        Key(self.key.clone())
    }

    /// The version that is put, if one is.
    pub fn into_version(self, index: u64) -> Option<Version<Index>> {
        let id = self.id().filter(|_| self.puts)?;
        let (value, meta) = (self.value, Index(index));
        Some(Version { id, value, meta })
    }

    /// The version that the client is told.
    pub fn id(&self) -> Option<VersionId> {
        (self.at > 0).then_some(VersionId {
            at: Hlc(self.at),
            replica: ReplicaId(self.replica as u16),
        })
    }

    /// Whether it leaves the key with a value.
    pub fn leaves_value(&self) -> bool {
        self.value.is_some()
    }
}

/// The index of the entry that has put a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Index(pub u64);
