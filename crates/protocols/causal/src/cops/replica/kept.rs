use crate::cops::waiting::At;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeSet;
use turnbuckle_core::{BadFrame, Hlc, ReplicaId, Vector};

/// The state of a replica that is written down.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) vv: Vector,
    pub(super) visible: Vector,
    pub(super) above: BTreeSet<At>,
}

impl Kept {
    pub(super) fn encode(vv: &Vector, visible: &Vector, above: &BTreeSet<At>) -> Bytes {
        let mut out = BytesMut::new();
        vv.put(&mut out);
        visible.put(&mut out);
        for (replica, at) in above {
            out.put_u16(replica.0);
            out.put_u64(at.0);
        }
        out.freeze()
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Kept, BadFrame> {
        let mut from = bytes.clone();
        let (vv, visible) = (Vector::take(&mut from)?, Vector::take(&mut from)?);
        let mut above = BTreeSet::new();
        while let (Ok(replica), Ok(at)) = (from.try_get_u16(), from.try_get_u64()) {
            above.insert((ReplicaId(replica), Hlc(at)));
        }
        Ok(Kept { vv, visible, above })
    }
}
