//! What a session has seen: for each partition and replica, the newest version stamped there that the session has read or written. And the session's position: the
//! highest timestamp of them all, or the cut that it has read at.
//!
//! A session that is used with many partitions keeps one vector for all of them instead. Then its reads may wait for more than they need.
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use turnbuckle_core::{BadFrame, Hlc, Vector, VersionId};

/// What all partitions together may take in a token, in bytes.
const MAX_BYTES: usize = 32 << 10;

/// What a session has seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Seen {
    of: BTreeMap<u16, Vector>,
    /// Of every partition.
    everywhere: Vector,
    position: Hlc,
    /// The number of replicas that a partition may have.
    replicas: usize,
}

impl Seen {
    /// Nothing yet.
    pub fn new(replicas: usize) -> Seen {
        Seen {
            replicas,
            ..Seen::default()
        }
    }

    /// The session has seen a version of a key of this partition.
    pub fn note(&mut self, partition: u16, version: VersionId) {
        self.pass(version.at);
        if self.everywhere.covers_id(version) {
            return;
        }
        let of_partition = self.of.entry(partition).or_default();
        of_partition.raise(version.replica, version.at);
        self.shrink();
    }

    /// The session's operations so far come before everything that is stamped after this.
    pub fn pass(&mut self, position: Hlc) {
        self.position = self.position.max(position);
    }

    /// The session's position.
    pub fn position(&self) -> Hlc {
        self.position
    }

    /// What it has seen of a partition.
    pub fn of(&self, partition: u16) -> Vector {
        match self.of.get(&partition) {
            Some(seen) => seen.clone().merged(&self.everywhere),
            None => self.everywhere.clone(),
        }
    }

    /// Adds what another session has seen.
    pub fn merge(&mut self, other: Seen) {
        for (partition, seen) in other.of {
            self.of.entry(partition).or_default().merge(&seen);
        }
        self.everywhere.merge(&other.everywhere);
        self.pass(other.position);
        self.shrink();
    }

    fn shrink(&mut self) {
        if self.of.len() * (3 + 10 * self.replicas) > MAX_BYTES {
            for (_, seen) in std::mem::take(&mut self.of) {
                self.everywhere.merge(&seen);
            }
        }
    }

    /// Appends it: the position, the vector of all partitions, the number of partitions, and for each its number and its vector.
    pub fn put(&self, out: &mut BytesMut) {
        out.put_u64(self.position.0);
        self.everywhere.put(out);
        out.put_u16(self.of.len() as u16);
        for (&partition, seen) in &self.of {
            out.put_u16(partition);
            seen.put(out);
        }
    }

    /// Reads what [`Seen::put`] has written.
    ///
    /// # Errors
    /// If it was something else.
    pub fn take(mut from: Bytes, replicas: usize) -> Result<Seen, BadFrame> {
        let bad = |found: &str| BadFrame::new("what a session of a quorum keyspace has seen", found);
        let mut seen = Seen::new(replicas);
        seen.position = Hlc(from.try_get_u64().map_err(|_| bad("a part of it"))?);
        if seen.position > Hlc::LATEST {
            return Err(bad("a time after 2112"));
        }
        seen.everywhere = Vector::take(&mut from)?;
        for _ in 0..from.try_get_u16().map_err(|_| bad("a part of it"))? {
            let partition = from.try_get_u16().map_err(|_| bad("a part of it"))?;
            seen.of.insert(partition, Vector::take(&mut from)?);
        }
        match from.is_empty() {
            true => Ok(seen),
            false => Err(bad("more")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::{ReplicaId, TokenHeader};

    fn version(replica: u16, at: u64) -> VersionId {
        VersionId {
            at: Hlc(at),
            replica: ReplicaId(replica),
        }
    }

    #[test]
    fn it_comes_back_as_it_was_and_nothing_else_is_taken() {
        let mut seen = Seen::new(3);
        seen.note(0, version(2, 7));
        seen.note(5, version(0, 9));
        seen.note(5, version(0, 8));
        let mut out = BytesMut::new();
        seen.put(&mut out);
        let bytes = out.freeze();
        let back = Seen::take(bytes.clone(), 3).expect("it is what was put");
        assert_eq!(back, seen);
        assert_eq!(back.of(5).at(ReplicaId(0)), Hlc(9));
        assert_eq!(back.of(1), Vector::ZERO);
        for len in 0..bytes.len() {
            assert!(Seen::take(bytes.slice(..len), 3).is_err());
        }
        let longer: Bytes = [&bytes[..], &[0]].concat().into();
        assert!(Seen::take(longer, 3).is_err());
    }

    #[test]
    fn it_stays_small_and_forgets_nothing() {
        let mut seen = Seen::new(5);
        for partition in 0..16_384 {
            seen.note(partition, version(partition % 5, u64::from(partition) + 1));
        }
        let mut out = BytesMut::new();
        seen.put(&mut out);
        assert!(out.len() < TokenHeader::MAX_BYTES, "{}", out.len());
        for partition in 0..16_384 {
            assert!(
                seen.of(partition)
                    .covers_id(version(partition % 5, u64::from(partition) + 1))
            );
        }
    }
}
