//! The messages between replicas.
use bytes::Bytes;
use turnbuckle_core::{Hlc, Record, ReplicaSet, VersionRecord};

/// A message about one operation.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// The coordinator's number for the operation, which is never used twice.
    #[prost(uint64, tag = "1")]
    pub operation: u64,
    /// The operation's key. An answer leaves it out: the coordinator knows it by the operation.
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    /// What is asked or answered.
    #[prost(oneof = "Body", tags = "3, 4, 5, 6")]
    pub body: Option<Body>,
}

/// What a message asks or answers.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Body {
    /// A question: which version of the key does the receiver have?
    #[prost(message, tag = "3")]
    Query(()),
    /// The answer to a query: the newest version, or none.
    #[prost(message, tag = "4")]
    Found(VersionRecord),
    /// A request to store this version, unless the receiver has a newer one.
    #[prost(message, tag = "5")]
    Store(VersionRecord),
    /// The answer to a store: that version, or a newer one, is on disk.
    #[prost(message, tag = "6")]
    Stored(()),
}

impl Message {
    fn version(&self) -> Option<&VersionRecord> {
        match &self.body {
            Some(Body::Found(version) | Body::Store(version)) => Some(version),
            _ => None,
        }
    }
}

impl Record for Message {
    const WHAT: &'static str = "a message of an ABD keyspace: query, found, store or stored";

    fn check(&self) -> Result<(), String> {
        self.body.as_ref().ok_or("none of these")?;
        self.version().map_or(Ok(()), VersionRecord::check)
    }

    fn newest(&self) -> Hlc {
        self.version().map_or(Hlc::ZERO, VersionRecord::newest)
    }

    fn replicas(&self) -> ReplicaSet {
        self.version()
            .map_or(ReplicaSet::default(), VersionRecord::replicas)
    }
}
