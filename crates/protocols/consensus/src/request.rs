//! What a session asks of a replica, and what it is told.
use crate::change::Index;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use turnbuckle_core::{
    BadFrame, Basis, Hlc, Key, Level, Meta, Micros, PlainRequest, PlainResponse, ReplicaId, ReplicaSet,
    Transaction, Wire,
};
use turnbuckle_raft::OperationName;

/// What a session asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// One operation on one key.
    One(PlainRequest),
    /// A transaction.
    Many(Box<Transaction>),
}

impl Work {
    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let (one, many) = match self {
            Work::One(request) => (Some(request.key()), None),
            Work::Many(transaction) => (None, Some(transaction.keys())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// The level.
    pub fn level(&self) -> Level {
        match self {
            Work::One(request) => request.level(),
            Work::Many(_) => Level::Linearizable,
        }
    }

    /// Whether it has an entry in the log. A transaction that only reads has one, too: that is its place in the order.
    pub fn is_write(&self) -> bool {
        match self {
            Work::One(request) => request.is_write(),
            Work::Many(_) => true,
        }
    }
}

/// An operation on one key, or a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub work: Work,
    /// Its name.
    pub by: OperationName,
    /// Of a read: the index that the answering replica must have applied. Of a write: the operation has no entry up to this index.
    pub index: u64,
    /// The newest time that the session has seen: at levels that promise it something, a value that has expired by this time is not shown, and what is written is stamped above it.
    pub above: Hlc,
    /// Whether the operation may have been carried out already.
    pub is_repeated: bool,
    /// Not sent: until then the read may wait for the time of the partition.
    pub(crate) patience_ends: Option<Micros>,
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
    /// The newest time that the answer shows to have passed: that of the entry, or of the version that was read, or when its value expired.
    pub time: Hlc,
}

/// What became of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was carried out, or refused.
    Answered(PlainResponse),
    /// The transaction was carried out: what each step is told; or `None`, because one of its conditions did not hold.
    Transacted(Option<Vec<PlainResponse>>),
    /// It was not carried out: this replica does not lead. The leader may be known.
    NotLeader(Option<ReplicaId>),
    /// The transaction was not carried out, and never will be: it reads or writes more than an entry of the log may have.
    TooLarge(String),
    /// The write was not carried out: it may be among entries that this leader does not keep any more. If no other request for it is under way, it may be asked for again, with the index of this answer.
    Late,
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
        out.put_u64(self.above.0);
        out.put_u8(u8::from(self.is_repeated));
        match &self.work {
            Work::One(request) => {
                out.put_u8(0);
                request.encode(out);
            }
            Work::Many(transaction) => {
                out.put_u8(1);
                transaction.encode(out);
            }
        }
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
        let above = Hlc(frame.try_get_u64().map_err(cut_short)?);
        let mut flag = || match frame.try_get_u8().map_err(cut_short)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(bad(format!("{other} where 0 or 1 is expected"))),
        };
        let (is_repeated, is_transaction) = (flag()?, flag()?);
        let work = match is_transaction {
            false => Work::One(PlainRequest::decode(frame)?),
            true => Work::Many(Box::new(Transaction::decode(frame)?)),
        };
        Ok(Request {
            work,
            by,
            index,
            above,
            is_repeated,
            patience_ends: None,
            confirmed: None,
        })
    }

    fn newest(&self) -> Hlc {
        let of_work = match &self.work {
            Work::One(request) => request.newest(),
            Work::Many(transaction) => transaction.newest(),
        };
        of_work.max(self.above)
    }

    fn replicas(&self) -> ReplicaSet {
        match &self.work {
            Work::One(request) => request.replicas(),
            Work::Many(transaction) => transaction.replicas(),
        }
    }

    fn heap_bytes(&self) -> usize {
        match &self.work {
            Work::One(request) => request.heap_bytes(),
            Work::Many(transaction) => transaction.heap_bytes(),
        }
    }
}

impl Wire for Response {
    fn encode(&self, out: &mut BytesMut) {
        out.put_u64(self.index);
        out.put_u64(self.time.0);
        let (kind, leader) = match &self.outcome {
            Outcome::Answered(response) => {
                out.put_u8(0);
                return response.encode(out);
            }
            Outcome::Transacted(None) => return out.put_u8(3),
            Outcome::Late => return out.put_u8(5),
            Outcome::TooLarge(why) => {
                out.put_u8(6);
                return out.put_slice(why.as_bytes());
            }
            Outcome::Transacted(Some(steps)) => {
                out.put_u8(4);
                for step in steps {
                    let len_at = out.len();
                    out.put_u32(0);
                    step.encode(out);
                    let len = (out.len() - len_at - 4) as u32;
                    out[len_at..len_at + 4].copy_from_slice(&len.to_be_bytes());
                }
                return;
            }
            Outcome::NotLeader(leader) => (1, leader),
            Outcome::Behind(leader) => (2, leader),
        };
        out.put_u8(kind);
        out.put_u16(leader.map_or(u16::MAX, |leader| leader.0));
    }

    fn decode(mut frame: Bytes) -> Result<Response, BadFrame> {
        let index = frame.try_get_u64().map_err(cut_short)?;
        let time = Hlc(frame.try_get_u64().map_err(cut_short)?);
        let kind = frame.try_get_u8().map_err(cut_short)?;
        if kind == 0 {
            let outcome = Outcome::Answered(PlainResponse::decode(frame)?);
            return Ok(Response { outcome, index, time });
        }
        if kind == 3 && frame.is_empty() {
            let outcome = Outcome::Transacted(None);
            return Ok(Response { outcome, index, time });
        }
        if kind == 5 && frame.is_empty() {
            let outcome = Outcome::Late;
            return Ok(Response { outcome, index, time });
        }
        if kind == 6 {
            let outcome = Outcome::TooLarge(String::from_utf8_lossy(&frame).into_owned());
            return Ok(Response { outcome, index, time });
        }
        if kind == 4 {
            let mut steps = Vec::new();
            while !frame.is_empty() {
                let len = frame.try_get_u32().map_err(cut_short)? as usize;
                if len > frame.len() || steps.len() == Transaction::MAX {
                    return Err(bad("a part of the answers to a transaction, or more than all"));
                }
                steps.push(PlainResponse::decode(frame.split_to(len))?);
            }
            let outcome = Outcome::Transacted(Some(steps));
            return Ok(Response { outcome, index, time });
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
            true => Ok(Response { outcome, index, time }),
            false => Err(bad("more")),
        }
    }

    fn newest(&self) -> Hlc {
        let of_outcome = match &self.outcome {
            Outcome::Answered(response) => response.newest(),
            Outcome::Transacted(Some(steps)) => steps.iter().map(Wire::newest).max().unwrap_or(Hlc::ZERO),
            _ => Hlc::ZERO,
        };
        of_outcome.max(self.time)
    }

    fn replicas(&self) -> ReplicaSet {
        match &self.outcome {
            Outcome::Answered(response) => response.replicas(),
            Outcome::Transacted(steps) => {
                let sets = steps.iter().flatten().map(Wire::replicas);
                sets.fold(ReplicaSet::default(), ReplicaSet::union)
            }
            Outcome::Late | Outcome::TooLarge(_) => ReplicaSet::default(),
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
