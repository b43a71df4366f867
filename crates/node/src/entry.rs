//! A version with its key, as it is stored in the log and sent in streams: encoded once for both.
use bytes::{Bytes, BytesMut};
use prost::Message;
use turnbuckle_core::{
    BadFrame, Hlc, Key, Meta, Micros, ReplicaSet, SharesRecord, Topology, Version, VersionId, VersionIdRecord,
};
use turnbuckle_replication::{check_time, replica_number};

/// Counts of versions that were stamped, deletes included. A version is counted at the site where it was written, not where it arrives. If
/// a power loss took a version and a peer restored it, it counts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// The number of versions.
    pub versions: u64,
    /// The size of what the protocol keeps with them, in bytes, as stored in the log and sent. It does not include the timestamp and site,
    /// the ten bytes that every version has.
    pub metadata_bytes: u64,
}

impl Written {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: Written) {
        self.versions += other.versions;
        self.metadata_bytes += other.metadata_bytes;
    }
}

/// A version and its key, as stored in the log and sent in streams: encoded once for both.
#[derive(Clone, PartialEq, Message)]
struct EntryFrame {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(fixed64, tag = "2")]
    at: u64,
    #[prost(uint32, tag = "3")]
    replica: u32,
    #[prost(bytes = "bytes", optional, tag = "4")]
    value: Option<Bytes>,
    #[prost(bytes = "bytes", tag = "5")]
    meta: Bytes,
    /// When the value expires, in microseconds since 1970.
    #[prost(uint64, optional, tag = "6")]
    until: Option<u64>,
    /// The version that wrote the value, if this one changed its expiry.
    #[prost(message, optional, tag = "7")]
    base: Option<VersionIdRecord>,
    /// If it is a count, or has seen counts.
    #[prost(message, optional, tag = "8")]
    shares: Option<SharesRecord>,
}

/// The key and value of an encoded entry, shortened, as text.
pub(crate) fn entry_words(entry: &Bytes) -> Option<String> {
    const MAX: usize = 24;
    let frame = EntryFrame::decode(entry.clone()).ok()?;
    let short = |bytes: &[u8]| bytes[..bytes.len().min(MAX)].escape_ascii().to_string();
    Some(match &frame.value {
        Some(value) => format!("{}={}", short(&frame.key), short(value)),
        None => format!("{} deleted", short(&frame.key)),
    })
}

/// Encodes an entry into the memory of `arena`.
pub(crate) fn encode_entry<M: Meta>(key: &Key, version: &Version<M>, arena: &mut BytesMut) -> Bytes {
    encode_and_count(key, version, arena, &mut Written::default())
}

/// Encodes an entry into the memory of `arena`, and counts it.
pub(crate) fn encode_and_count<M: Meta>(
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
        replica: u32::from(version.id.replica.0),
        value: version.content.stored().cloned(),
        meta,
        until: version.content.until().map(|until| until.0),
        base: version
            .content
            .base()
            .filter(|_| version.content.share().is_none())
            .map(VersionIdRecord::from),
        shares: SharesRecord::of(&version.content, version.id),
    };
    frame.encode(arena).expect("a BytesMut grows");
    arena.split().freeze()
}

/// The newest timestamp that a version names: its own, that of its base, or one that its meta depends on.
pub(crate) fn newest<M: Meta>(version: &Version<M>) -> Hlc {
    let base = version.rank().base;
    version.id.at.max(base.at).max(version.meta.newest())
}

/// Decodes an entry.
///
/// # Errors
/// If it does not decode, names a site that the cluster does not have, changes the expiry of a version that is not older, or says of shares what cannot
/// be ([`SharesRecord::content`]).
pub(crate) fn decode_entry<M: Meta>(
    bytes: Bytes,
    topology: &Topology,
) -> Result<(Key, Version<M>), BadFrame> {
    let frame = EntryFrame::decode(bytes).map_err(|error| BadFrame::new("an entry", error.to_string()))?;
    let id = VersionId {
        at: check_time(frame.at)?,
        replica: replica_number(frame.replica)?,
    };
    let meta = M::decode(frame.meta)?;
    let base = frame.base.map(VersionIdRecord::id).transpose()?;
    base.map_or(Ok(()), |base| base.check_base_of(id))?;
    let until = frame.until.map(Micros);
    let content = SharesRecord::content(frame.shares, id, frame.value, until, base)?;
    let replicas = [id].into_iter().chain(base).map(|id| id.replica);
    let replicas = replicas.collect::<ReplicaSet>().union(content.replicas());
    topology.check_replicas(meta.replicas().union(replicas))?;
    let version = Version { id, content, meta };
    version.check()?;
    Ok((Key(frame.key), version))
}
