//! What an entry of the log does: the effect of one operation, as its leader has computed it.
use bytes::Bytes;
use prost::Message;
use turnbuckle_core::{
    Hlc, Key, PlainResponse, PutOptions, ReplicaId, ReplicaSet, SessionId, Unmet, Version, VersionId,
};

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
    existed: bool,
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
    /// Whether the operation had a condition that did not hold.
    #[prost(bool, tag = "9")]
    is_unmet: bool,
    /// Whether the client is told the value before, which is then here.
    #[prost(bool, tag = "10")]
    returns_previous: bool,
    #[prost(bytes = "bytes", optional, tag = "11")]
    previous: Option<Bytes>,
}

/// What a key has when an operation is carried out.
pub(crate) struct Found {
    /// Its newest version, which may be a delete.
    pub id: Option<VersionId>,
    pub value: Option<Bytes>,
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
    /// The effect of an operation on what it finds. A delete that finds no value puts nothing, and neither does an operation whose condition does not hold. They have a place in the
    /// order all the same.
    pub fn of(
        by: OperationName,
        key: &Key,
        value: Option<Bytes>,
        options: Option<&PutOptions>,
        found: Found,
        stamp: impl FnOnce() -> VersionId,
    ) -> Change {
        let existed = found.value.is_some();
        let condition = options.and_then(|options| options.condition);
        let is_unmet = condition.is_some_and(|condition| !condition.holds(existed, found.id));
        let returns_previous = options.is_some_and(|options| options.returns_previous);
        let puts = !is_unmet && (value.is_some() || existed);
        let id = match puts {
            true => stamp(),
            false => found.id.unwrap_or_default(),
        };
        Change {
            session: by.session,
            tag: by.tag,
            key: key.0.clone(),
            existed,
            at: id.at.0,
            replica: u32::from(id.replica.0),
            puts,
            value: value.filter(|_| puts),
            is_unmet,
            returns_previous,
            previous: found.value.filter(|_| returns_previous),
        }
    }

    /// What the client is told.
    pub fn response(&self) -> PlainResponse {
        let previous = || self.previous.clone();
        if self.is_unmet {
            let (has_value, value) = (self.existed, previous());
            return PlainResponse::Unmet(Box::new(Unmet { has_value, value }));
        }
        match self.returns_previous {
            true => PlainResponse::Replaced(previous()),
            false => PlainResponse::Written {
                existed: self.existed,
            },
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

    /// The value that it puts.
    pub fn into_value(self) -> Option<Bytes> {
        self.value
    }
}

/// The index of the entry that has put a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Index(pub u64);
