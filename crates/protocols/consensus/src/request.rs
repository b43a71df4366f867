//! What a session asks of a replica, and what it is told.
use crate::change::{Index, OperationName};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use turnbuckle_core::{BadFrame, Basis, Hlc, Meta, PlainRequest, PlainResponse, ReplicaId, ReplicaSet, Wire};

/// One operation on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The operation.
    pub operation: PlainRequest,
    /// Its name.
    pub by: OperationName,
    /// Of a read: the index that the answering replica must have applied. Of a write: the operation has no entry up to this index.
    pub index: u64,
    /// Whether the operation may have been carried out already.
    pub is_repeated: bool,
    /// Not sent: the read may be answered when its index is applied, because a leader has confirmed that this reflects everything that was acknowledged before it; and how.
    pub(crate) confirmed: Option<Basis>,
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// What became of the operation.
    pub outcome: Outcome,
    /// The place of the operation in the order of the partition. Of an operation that was not carried out: how far the replica is.
    pub index: u64,
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out, or refused.
    Answered(PlainResponse),
    /// It was not carried out: this replica does not lead. The leader may be known.
    NotLeader(Option<ReplicaId>),
    /// The read was not carried out: this replica is behind what it needs. The leader may be known.
    Behind(Option<ReplicaId>),
}

/// Half of what a u64 can count: so an index can be counted on from.
const MAX_INDEX: u64 = u64::MAX / 2;

fn bad(found: impl Into<String>) -> BadFrame {
    BadFrame::new("a request or an answer of a consensus keyspace", found)
}

fn cut_short(_: bytes::TryGetError) -> BadFrame {
    bad("a part of one")
}

impl Wire for Request {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.by.session);
        out.put_u64(self.by.tag);
        out.put_u64(self.index);
        out.put_u8(u8::from(self.is_repeated));
        self.operation.encode(out);
    }

    fn decode(mut frame: Bytes) -> Result<Request, BadFrame> {
        let by = OperationName {
            session: frame.try_get_u64().map_err(cut_short)?,
            tag: frame.try_get_u64().map_err(cut_short)?,
        };
        let index = frame.try_get_u64().map_err(cut_short)?;
        if index > MAX_INDEX {
            return Err(bad("an index that no log has"));
        }
        let is_repeated = match frame.try_get_u8().map_err(cut_short)? {
            0 => false,
            1 => true,
            other => return Err(bad(format!("{other} where 0 or 1 is expected"))),
        };
        Ok(Request {
            operation: PlainRequest::decode(frame)?,
            by,
            index,
            is_repeated,
            confirmed: None,
        })
    }

    fn newest(&self) -> Hlc {
        self.operation.newest()
    }

    fn replicas(&self) -> ReplicaSet {
        self.operation.replicas()
    }

    fn heap_bytes(&self) -> usize {
        self.operation.heap_bytes()
    }
}

impl Wire for Response {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.index);
        let (kind, leader) = match &self.outcome {
            Outcome::Answered(response) => {
                out.put_u8(0);
                return response.encode(out);
            }
            Outcome::NotLeader(leader) => (1, leader),
            Outcome::Behind(leader) => (2, leader),
        };
        out.put_u8(kind);
        out.put_u16(leader.map_or(u16::MAX, |leader| leader.0));
    }

    fn decode(mut frame: Bytes) -> Result<Response, BadFrame> {
        let index = frame.try_get_u64().map_err(cut_short)?;
        let kind = frame.try_get_u8().map_err(cut_short)?;
        if kind == 0 {
            let outcome = Outcome::Answered(PlainResponse::decode(frame)?);
            return Ok(Response { outcome, index });
        }
        let leader = match frame.try_get_u16().map_err(cut_short)? {
            u16::MAX => None,
            replica if replica < ReplicaSet::MAX => Some(ReplicaId(replica)),
            other => return Err(BadFrame::replica(other.into())),
        };
        let outcome = match kind {
            1 => Outcome::NotLeader(leader),
            2 => Outcome::Behind(leader),
            other => return Err(bad(format!("an answer of kind {other}"))),
        };
        match frame.is_empty() {
            true => Ok(Response { outcome, index }),
            false => Err(bad("more")),
        }
    }

    fn newest(&self) -> Hlc {
        match &self.outcome {
            Outcome::Answered(response) => response.newest(),
            _ => Hlc::ZERO,
        }
    }

    fn replicas(&self) -> ReplicaSet {
        match &self.outcome {
            Outcome::Answered(response) => response.replicas(),
            Outcome::NotLeader(leader) | Outcome::Behind(leader) => {
                leader.map_or(ReplicaSet::default(), ReplicaSet::one)
            }
        }
    }
}

impl Meta for Index {}

impl Wire for Index {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.0);
    }

    fn decode(mut frame: Bytes) -> Result<Index, BadFrame> {
        let index = frame.try_get_u64().map_err(cut_short)?;
        match frame.is_empty() {
            true => Ok(Index(index)),
            false => Err(bad("more")),
        }
    }

    fn newest(&self) -> Hlc {
        Hlc::ZERO
    }
}
