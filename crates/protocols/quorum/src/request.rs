//! What a session asks of a replica: an operation, with what the session has seen.
use bytes::{Bytes, BytesMut};
use turnbuckle_core::{BadFrame, Hlc, Level, PlainRequest, ReplicaSet, Vector, Wire};

/// One operation on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub operation: PlainRequest,
    /// Of each replica of the key's partition, the newest version stamped there that the session has read or written. A write is stamped above all of
    /// them. A read at `per-key-sequential` shows no less.
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
        self.seen.put(out);
        self.operation.encode(out);
    }

    fn decode(mut frame: Bytes) -> Result<Request, BadFrame> {
        let seen = Vector::take(&mut frame)?;
        let operation = PlainRequest::decode(frame)?;
        Ok(Request { operation, seen })
    }

    fn newest(&self) -> Hlc {
        self.seen.newest()
    }

    fn replicas(&self) -> ReplicaSet {
        self.seen.replicas()
    }

    fn heap_bytes(&self) -> usize {
        self.operation.heap_bytes() + self.seen.heap_bytes()
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
                seen: seen.clone(),
            };
            let mut out = BytesMut::new();
            request.encode(&mut out);
            let bytes = out.freeze();
            assert_eq!(Request::decode(bytes.clone()).as_ref(), Ok(&request));
            assert_eq!(
                (request.newest(), request.replicas()),
                (seen.newest(), seen.replicas())
            );
            assert!(Request::decode(bytes.slice(..bytes.len() - 1)).is_err());
            assert!(Request::decode(Bytes::new()).is_err());
        }
    }
}
