use crate::frame::{put_record, take_record};
use crate::{
    Answer, BadFrame, BadLevel, BadToken, Failure, Hlc, Key, Level, Levels, Operation, Outcome, Protocol,
    Receipt, ServerId, Session, SessionContext, SiteId, Topology, Wire,
};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;

/// A protocol whose clients know nothing that a token would have to carry: what an operation needs, its replicas find out. Such a protocol has a
/// [`PlainSession`], and takes what that asks as it is.
pub trait PlainProtocol: Protocol<Request = PlainRequest, Response = PlainResponse> {
    /// The levels that it offers.
    const LEVELS: Levels;
    /// See [`Session::OVERLAPS`].
    const OVERLAPS: bool;
}

/// One operation on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlainRequest {
    /// The key's value.
    Get(Key, Level),
    /// A new value, or `None` to delete.
    Put(Key, Option<Bytes>, Level),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlainResponse {
    /// The value, if the key has one.
    Value(Option<Bytes>),
    /// The write is done.
    Written {
        /// Whether the key had a value before.
        existed: bool,
    },
    /// It certainly was not carried out.
    Refused(String),
    /// Nobody knows.
    Unknown(String),
}

impl PlainRequest {
    /// The key.
    pub fn key(&self) -> &Key {
        match self {
            PlainRequest::Get(key, _) | PlainRequest::Put(key, ..) => key,
        }
    }

    /// Whether it writes.
    pub fn is_write(&self) -> bool {
        matches!(self, PlainRequest::Put(..))
    }
}

impl From<PlainResponse> for Answer {
    fn from(response: PlainResponse) -> Answer {
        match response {
            PlainResponse::Value(value) => Answer::Value(value),
            PlainResponse::Written { existed } => Answer::Written { existed },
            PlainResponse::Refused(why) => Answer::Failed(Failure::Unavailable(why)),
            PlainResponse::Unknown(why) => Answer::Failed(Failure::Timeout(why)),
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct RequestRecord {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(string, tag = "2")]
    level: String,
    #[prost(bool, tag = "3")]
    is_write: bool,
    #[prost(bytes = "bytes", optional, tag = "4")]
    value: Option<Bytes>,
}

impl Wire for PlainRequest {
    fn encode(&self, out: &mut BytesMut) {
        let (PlainRequest::Get(key, level) | PlainRequest::Put(key, _, level)) = self;
        let value = match self {
            PlainRequest::Get(..) => None,
            PlainRequest::Put(_, value, _) => value.clone(),
        };
        put_record(
            &RequestRecord {
                key: key.0.clone(),
                level: level.to_string(),
                is_write: self.is_write(),
                value,
            },
            out,
        );
    }

    fn decode(frame: Bytes) -> Result<PlainRequest, BadFrame> {
        const WHAT: &str = "a request for one key";
        let record: RequestRecord = take_record(frame, WHAT)?;
        let level = record.level.parse();
        let level = level.map_err(|error: BadLevel| BadFrame::new(WHAT, error.to_string()))?;
        let key = Key(record.key);
        Ok(match record.is_write {
            true => PlainRequest::Put(key, record.value, level),
            false => PlainRequest::Get(key, level),
        })
    }

    fn newest(&self) -> Hlc {
        Hlc::ZERO
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResponseRecord {
    #[prost(oneof = "Done", tags = "1, 2, 3, 4, 5")]
    done: Option<Done>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Done {
    #[prost(bytes = "bytes", tag = "1")]
    Value(Bytes),
    #[prost(bool, tag = "2")]
    NoValue(bool),
    #[prost(bool, tag = "3")]
    Written(bool),
    #[prost(string, tag = "4")]
    Refused(String),
    #[prost(string, tag = "5")]
    Unknown(String),
}

impl Wire for PlainResponse {
    fn encode(&self, out: &mut BytesMut) {
        let done = Some(match self.clone() {
            PlainResponse::Value(Some(value)) => Done::Value(value),
            PlainResponse::Value(None) => Done::NoValue(true),
            PlainResponse::Written { existed } => Done::Written(existed),
            PlainResponse::Refused(why) => Done::Refused(why),
            PlainResponse::Unknown(why) => Done::Unknown(why),
        });
        put_record(&ResponseRecord { done }, out);
    }

    fn decode(frame: Bytes) -> Result<PlainResponse, BadFrame> {
        const WHAT: &str = "an answer about one key";
        let record: ResponseRecord = take_record(frame, WHAT)?;
        Ok(match record.done {
            Some(Done::Value(value)) => PlainResponse::Value(Some(value)),
            Some(Done::NoValue(_)) => PlainResponse::Value(None),
            Some(Done::Written(existed)) => PlainResponse::Written { existed },
            Some(Done::Refused(why)) => PlainResponse::Refused(why),
            Some(Done::Unknown(why)) => PlainResponse::Unknown(why),
            None => return Err(BadFrame::new(WHAT, "none")),
        })
    }

    fn newest(&self) -> Hlc {
        Hlc::ZERO
    }
}

/// A client that asks, for each key, the nearest replica of the key's partition. Reads of several keys are read one by one.
pub struct PlainSession<P: PlainProtocol> {
    topology: Topology,
    /// Reads of several keys that are under way.
    gathering: BTreeMap<u64, Gathering>,
    of: std::marker::PhantomData<fn() -> P>,
}

/// The parts of a read of several keys.
struct Gathering {
    values: Vec<Option<Bytes>>,
    missing: usize,
    /// What all parts prove together.
    receipt: Option<Receipt>,
}

impl<P: PlainProtocol> PlainSession<P> {
    fn ask(&self, cx: &mut SessionContext<'_, P>, tag: u64, part: u32, request: PlainRequest) {
        let server = cx.nearest(&self.topology, request.key());
        cx.ask(tag, part, server, request);
    }
}

impl<P: PlainProtocol> Session for PlainSession<P> {
    type Protocol = P;

    const LEVELS: Levels = P::LEVELS;
    const OVERLAPS: bool = P::OVERLAPS;

    fn open(_: &P::Config, _: SiteId, topology: Topology) -> PlainSession<P> {
        PlainSession {
            topology,
            gathering: BTreeMap::new(),
            of: std::marker::PhantomData,
        }
    }

    fn resume(&mut self, state: Bytes) -> Result<(), BadToken> {
        match state.len() {
            0 => Ok(()),
            bytes => {
                let expected = "the empty state of a session that remembers nothing";
                Err(BadFrame::new(expected, format!("{bytes} bytes")).into())
            }
        }
    }

    fn on_operation(&mut self, cx: &mut SessionContext<'_, P>, tag: u64, operation: Operation, level: Level) {
        match operation {
            Operation::Get { key, .. } => self.ask(cx, tag, 0, PlainRequest::Get(key, level)),
            Operation::Put { key, value, .. } => self.ask(cx, tag, 0, PlainRequest::Put(key, value, level)),
            Operation::ReadMany { keys, .. } if keys.is_empty() => {
                cx.answer(tag, Answer::Values(Vec::new()), None)
            }
            Operation::ReadMany { keys, .. } => {
                let gathering = Gathering {
                    values: vec![None; keys.len()],
                    missing: keys.len(),
                    receipt: None,
                };
                self.gathering.insert(tag, gathering);
                for (part, key) in keys.into_iter().enumerate() {
                    self.ask(cx, tag, part as u32, PlainRequest::Get(key, level));
                }
            }
            Operation::Scan { .. } | Operation::Count => {
                cx.fail(
                    tag,
                    Failure::Unsupported("the gateway surveys keys, not the session".into()),
                );
            }
        }
    }

    fn on_response(
        &mut self,
        cx: &mut SessionContext<'_, P>,
        tag: u64,
        part: u32,
        _: ServerId,
        outcome: Outcome<P::Response>,
    ) {
        let (answer, receipt) = match outcome {
            Outcome::Answered(response, receipt) => (Answer::from(response), receipt),
            lost => {
                self.gathering.remove(&tag);
                return cx.fail(tag, lost.into_failure().expect("it is not an answer"));
            }
        };
        match (answer, self.gathering.get_mut(&tag)) {
            (Answer::Value(value), Some(gathering)) => {
                gathering.values[part as usize] = value;
                gathering.missing -= 1;
                gathering.receipt = Some(match gathering.receipt.take() {
                    Some(so_far) => so_far.merged(receipt),
                    None => receipt,
                });
                if gathering.missing == 0 {
                    let done = self.gathering.remove(&tag).expect("just found");
                    cx.answer(tag, Answer::Values(done.values), done.receipt);
                }
            }
            (Answer::Failed(failure), _) => {
                self.gathering.remove(&tag);
                cx.fail(tag, failure);
            }
            (answer, _) => cx.answer(tag, answer, Some(receipt)),
        }
    }

    fn token(&self, _: &mut BytesMut) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<T: Wire + PartialEq + std::fmt::Debug>(all: &[T]) {
        for value in all {
            let mut out = BytesMut::new();
            value.encode(&mut out);
            assert_eq!(T::decode(out.freeze()).as_ref(), Ok(value));
        }
    }

    #[test]
    fn requests_and_responses_come_back_as_they_were() {
        let (key, value) = (Key::from("k"), Bytes::from_static(b"v"));
        there_and_back(&[
            PlainRequest::Get(key.clone(), Level::Linearizable),
            PlainRequest::Put(key.clone(), None, Level::Eventual),
            PlainRequest::Put(key, Some(Bytes::new()), Level::Bounded(crate::Micros(7))),
        ]);
        there_and_back(&[
            PlainResponse::Value(None),
            PlainResponse::Value(Some(Bytes::new())),
            PlainResponse::Value(Some(value)),
            PlainResponse::Written { existed: false },
            PlainResponse::Refused(String::new()),
            PlainResponse::Unknown("why".into()),
        ]);
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [&b""[..], b"\xff", b"\x0a\x01k\x12\x03abc"] {
            let frame = Bytes::from_static(bytes);
            assert!(PlainRequest::decode(frame.clone()).is_err(), "{bytes:?}");
            assert!(
                PlainResponse::decode(frame).is_err() || bytes.len() > 1,
                "{bytes:?}"
            );
        }
    }
}
