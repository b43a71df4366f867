//! What replicas tell each other.
use bytes::Bytes;
use turnbuckle_core::{Hlc, Record, ReplicaSet, VersionRecord};

/// A message about one operation.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// The coordinator's number for the operation, never given twice.
    #[prost(uint64, tag = "1")]
    pub operation: u64,
    /// Its key. An answer leaves it out: the operation tells it.
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    /// What is said of it.
    #[prost(oneof = "Body", tags = "3, 4, 5, 6")]
    pub body: Option<Body>,
}

/// What is said of it.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Body {
    /// Which version have you?
    #[prost(message, tag = "3")]
    Query(()),
    /// This one, or none.
    #[prost(message, tag = "4")]
    Found(VersionRecord),
    /// Keep this version, unless you have a newer one.
    #[prost(message, tag = "5")]
    Store(VersionRecord),
    /// That, or something newer, is on disk.
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
