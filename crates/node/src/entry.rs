//! A version with its key, as it is stored in the log and sent in streams: encoded once for both.
use bytes::{Bytes, BytesMut};
use prost::Message;
use turnbuckle_core::{
    BadFrame, Base, Chain, Difference, Found, Hlc, Key, Meta, Micros, ReplicaSet, SharesRecord, Topology,
    Version, VersionId, VersionIdRecord,
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
    /// If it is a share, or has seen shares. A share may be a difference to an earlier one.
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

/// An entry as it is decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decoded<M> {
    pub key: Key,
    /// If there is a difference: without the elements.
    pub version: Version<M>,
    /// How the elements of the share differ from those of an earlier one. On the heap, because almost no entry has it.
    pub difference: Option<Box<Difference>>,
}

/// What has become of an entry that may be a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// It says all by itself.
    Whole,
    /// A newer share is there.
    Passed,
    /// What it builds on is not there.
    Nothing,
}

impl<M: Meta> Decoded<M> {
    /// Puts the difference onto what it builds on, in the chain of its key. With the planted bug `is_any`, onto the newest share of the replica.
    pub fn make_whole(&mut self, chain: Option<&Chain<M>>, is_any: bool) -> Made {
        let Some(difference) = &self.difference else {
            return Made::Whole;
        };
        let id = self.version.id;
        let mut shares = chain.into_iter().flat_map(Chain::shares);
        let newest = shares.find(|share| is_any && share.id.replica == id.replica);
        let newest = newest.and_then(|newest| newest.content.share());
        let found = match newest.filter(|newest| difference.fits(newest)) {
            Some(newest) => Found::Base(newest),
            None => difference.find(id, chain),
        };
        match found {
            Found::Newer => Made::Passed,
            Found::Nothing => Made::Nothing,
            Found::Base(base) => {
                self.version.content = difference.onto(base, &self.version.content);
                self.difference = None;
                Made::Whole
            }
        }
    }
}

/// Encodes an entry into the memory of `arena`, with all that it says.
pub(crate) fn encode_entry<M: Meta>(key: Key, version: Version<M>, arena: &mut BytesMut) -> Bytes {
    encode_and_count(key, version, None, arena, &mut Written::default())
}

/// Encodes an entry into the memory of `arena`, and counts it. If there is a base, a share may become a difference to it.
pub(crate) fn encode_and_count<M: Meta>(
    key: Key,
    version: Version<M>,
    base: Option<&Base>,
    arena: &mut BytesMut,
    counted: &mut Written,
) -> Bytes {
    version.meta.encode(arena);
    // To split something off counts one more owner of the arena, even if it is nothing.
    let meta = match arena.is_empty() {
        true => Bytes::new(),
        false => arena.split().freeze(),
    };
    counted.versions += 1;
    counted.metadata_bytes += meta.len() as u64;
    let frame = EntryFrame {
        key: key.0,
        at: version.id.at.0,
        replica: u32::from(version.id.replica.0),
        meta,
        until: version.content.until().map(|until| until.0),
        base: version
            .content
            .base()
            .filter(|_| version.content.share().is_none())
            .map(VersionIdRecord::from),
        shares: match base {
            Some(base) => SharesRecord::since(&version.content, version.id, base),
            None => SharesRecord::of(&version.content, version.id),
        },
        value: version.content.into_stored(),
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
pub(crate) fn decode_entry<M: Meta>(bytes: Bytes, topology: &Topology) -> Result<Decoded<M>, BadFrame> {
    let mut frame =
        EntryFrame::decode(bytes).map_err(|error| BadFrame::new("an entry", error.to_string()))?;
    let id = VersionId {
        at: check_time(frame.at)?,
        replica: replica_number(frame.replica)?,
    };
    let meta = M::decode(frame.meta)?;
    let base = frame.base.map(VersionIdRecord::id).transpose()?;
    base.map_or(Ok(()), |base| base.check_base_of(id))?;
    let until = frame.until.map(Micros);
    let shares = frame.shares.as_mut();
    let difference = shares
        .map(|shares| shares.take_difference(id))
        .transpose()?
        .flatten();
    let content = SharesRecord::content(frame.shares, id, frame.value, until, base)?;
    let replicas = [id].into_iter().chain(base).map(|id| id.replica);
    let mut replicas = replicas.collect::<ReplicaSet>().union(content.replicas());
    if let Some(difference) = &difference {
        replicas = replicas.union(difference.replicas());
    }
    topology.check_replicas(meta.replicas().union(replicas))?;
    let version = Version { id, content, meta };
    version.check()?;
    Ok(Decoded {
        key: Key(frame.key),
        version,
        difference: difference.map(Box::new),
    })
}

/// Decodes an entry that says all by itself.
///
/// # Errors
/// As [`decode_entry`], and if it is a difference.
pub(crate) fn decode_whole<M: Meta>(
    bytes: Bytes,
    topology: &Topology,
) -> Result<(Key, Version<M>), BadFrame> {
    let decoded = decode_entry(bytes, topology)?;
    match decoded.difference {
        None => Ok((decoded.key, decoded.version)),
        Some(_) => Err(BadFrame::new(
            "a version with all that it says",
            "a difference to an earlier one".to_string(),
        )),
    }
}
