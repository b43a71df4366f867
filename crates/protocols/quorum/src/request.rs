//! What a session asks of a replica: an operation, with what the session has seen.
use bytes::{Buf, BufMut, Bytes, BytesMut};
use turnbuckle_core::{BadFrame, Hlc, Level, PlainRequest, ReplicaSet, Vector, Wire};

/// One operation on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub operation: PlainRequest,
    /// What it must come after.
    pub floor: Floor,
}

/// What a session has seen, as far as an operation needs it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Floor {
    /// The session's position: the highest timestamp that it has read, written, or read at. A write is stamped above it. A read at `sequential` is at this
    /// cut, or at a later one.
    pub position: Hlc,
    /// Whether a read at `sequential` must be at exactly this cut.
    pub exactly: bool,
    /// Of each replica of the key's partition, the newest version stamped there that the session has read or written. A read at `per-key-sequential` shows
    /// no less.
    pub seen: Vector,
}

impl Request {
    /// Whether the answer must show everything that the session has seen of the key.
    pub fn shows_seen(&self) -> bool {
        // A delete that finds nothing is a read.
        let reads = matches!(
            self.operation,
            PlainRequest::Get(..) | PlainRequest::Put(_, None, ..)
        );
        reads && self.operation.level() == Level::PerKeySequential
    }
}

impl Wire for Request {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.floor.position.0);
        out.put_u8(u8::from(self.floor.exactly));
        self.floor.seen.put(out);
        self.operation.encode(out);
    }

    fn decode(mut frame: Bytes) -> Result<Request, BadFrame> {
        let bad = |found: String| BadFrame::new("a request of a session", found);
        let cut_short = || bad("a part of one".into());
        let position = Hlc(frame.try_get_u64().map_err(|_| cut_short())?);
        let exactly = match frame.try_get_u8().map_err(|_| cut_short())? {
            0 => false,
            1 => true,
            other => return Err(bad(format!("{other} where 0 or 1 is expected"))),
        };
        let seen = Vector::take(&mut frame)?;
        let operation = PlainRequest::decode(frame)?;
        let floor = Floor {
            position,
            exactly,
            seen,
        };
        Ok(Request { operation, floor })
    }

    fn newest(&self) -> Hlc {
        self.floor.seen.newest().max(self.floor.position)
    }

    fn replicas(&self) -> ReplicaSet {
        self.floor.seen.replicas()
    }

    fn heap_bytes(&self) -> usize {
        self.operation.heap_bytes() + self.floor.seen.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::{Key, ReplicaId, VersionId};

    #[test]
    fn a_request_comes_back_as_it_was_and_part_of_one_is_refused() {
        let seen = Vector::of(VersionId {
            at: Hlc(7),
            replica: ReplicaId(2),
        });
        for seen in [Vector::ZERO, seen] {
            let request = Request {
                operation: PlainRequest::Put(Key::from("k"), None, Level::PerKeySequential, None),
                floor: Floor {
                    position: Hlc(5),
                    exactly: seen == Vector::ZERO,
                    seen: seen.clone(),
                },
            };
            let mut out = BytesMut::new();
            request.encode(&mut out);
            let bytes = out.freeze();
            assert_eq!(Request::decode(bytes.clone()).as_ref(), Ok(&request));
            assert_eq!(request.newest(), seen.newest().max(Hlc(5)));
            assert_eq!(request.replicas(), seen.replicas());
            assert!(Request::decode(bytes.slice(..bytes.len() - 1)).is_err());
            assert!(Request::decode(Bytes::new()).is_err());
        }
    }
}
