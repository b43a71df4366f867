//! What a replica writes down of deletes and of directories.
use super::Said;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use turnbuckle_core::{Hlc, ReplicaId};

/// The state that is written down.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Found {
    /// The directory's birth, and what it reported. While it is being filled it shows nothing, and what is forgotten is what other sites have
    /// reported.
    pub said: Said,
    /// Whether another site was heard since the directory began.
    pub was_told: bool,
    /// Whether the directory's birth was reported to other sites.
    pub was_said: bool,
    /// The births of other sites' directories whose reports allowed deletes to be forgotten. While this directory is being filled, that is what other
    /// sites have reported.
    pub vouched: BTreeMap<ReplicaId, u64>,
    /// The newest births of other sites' directories.
    pub met: BTreeMap<ReplicaId, u64>,
}

impl Found {
    pub fn record(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u64(self.said.birth);
        out.put_u64(self.said.shown.0);
        out.put_u64(self.said.forgotten.0);
        out.put_u8(u8::from(self.was_told));
        out.put_u8(u8::from(self.was_said));
        for births in [&self.vouched, &self.met] {
            out.put_u16(births.len() as u16);
            for (replica, birth) in births {
                out.put_u16(replica.0);
                out.put_u64(*birth);
            }
        }
        out.put_u64(self.said.closed.0);
        out.freeze()
    }

    pub fn recall(record: &Bytes) -> Option<Found> {
        let mut from = record.clone();
        let said = Said {
            birth: from.try_get_u64().ok()?,
            shown: Hlc(from.try_get_u64().ok()?),
            forgotten: Hlc(from.try_get_u64().ok()?),
            closed: Hlc::ZERO,
        };
        let was_told = from.try_get_u8().ok()? != 0;
        let was_said = from.try_get_u8().ok()? != 0;
        let mut births = || {
            let mut births = BTreeMap::new();
            for _ in 0..from.try_get_u16().ok()? {
                let replica = ReplicaId(from.try_get_u16().ok()?);
                births.insert(replica, from.try_get_u64().ok()?);
            }
            Some(births)
        };
        let (vouched, met) = (births()?, births()?);
        let closed = Hlc(from.try_get_u64().ok()?);
        Some(Found {
            said: Said { closed, ..said },
            was_told,
            was_said,
            vouched,
            met,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_again() {
        let found = Found {
            said: Said {
                birth: 7,
                shown: Hlc(9),
                forgotten: Hlc(4),
                closed: Hlc(3),
            },
            was_told: true,
            was_said: true,
            vouched: BTreeMap::from([(ReplicaId(1), 8), (ReplicaId(2), 9)]),
            met: BTreeMap::from([(ReplicaId(2), 10)]),
        };
        for found in [Found::default(), found] {
            assert_eq!(Found::recall(&found.record()), Some(found));
        }
        assert_eq!(Found::recall(&Bytes::from_static(b"too short")), None);
    }
}
