use crate::compute::{Computed, NotComputed};
use crate::elements::{Elements, ElementsRecord};
use crate::frame::{put_record, take_record};
use crate::put_options::PutOptionsRecord;
use crate::{
    Answer, BadFrame, BadLevel, BadToken, Failure, Hlc, Key, Level, Levels, Lifetime, Micros, Operation,
    Outcome, Protocol, PutOptions, Receipt, ReplicaSet, ServerId, Session, SessionContext, SessionId,
    Siblings, SiteId, Topology, Unmet, Vector, Version, VersionRecord, Wire,
};
use bytes::{Bytes, BytesMut};
use std::{collections::BTreeMap, sync::Arc};

/// A protocol whose sessions know nothing that a token would have to carry: the replicas find out what an operation needs. Its sessions are
/// [`PlainSession`]s, and it takes their requests as they are.
pub trait PlainProtocol: Protocol<Request = PlainRequest, Response = PlainResponse> {
    /// The levels that the protocol offers.
    const LEVELS: Levels;
    /// See [`Session::OVERLAPS`].
    const OVERLAPS: bool;
    /// Whether any replica may take a write, whichever took the one before. If not, writes of a client wait for its own site, so that they are stamped
    /// in the order in which they were sent.
    const WRITES_ANYWHERE: bool;
}

/// One operation on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlainRequest {
    /// Reads the key, at this level.
    Get(Key, Level),
    /// Reads all siblings of the key, at this level. Only for protocols that keep siblings.
    Siblings(Key, Level),
    /// Writes the key: its new value, or `None` to delete it; the level; and the put's options, which are `None` unless the protocol's descriptor
    /// says that it takes them.
    Put(Key, Option<Bytes>, Level, Option<Box<PutOptions>>),
}

/// The answer to a [`PlainRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlainResponse {
    /// The value, if the key has one.
    Value(Option<Bytes>),
    /// The elements, if the key has such in the place of a value.
    Elements(Arc<Elements>),
    /// All siblings.
    Siblings(Box<Siblings>),
    /// The write is done.
    Written {
        /// Whether the key had a value before. A delete that found none has written nothing: the judge and the checker take it for a read. So it must
        /// not have stamped a version.
        existed: bool,
    },
    /// The write is done and had asked for the value before it: that value.
    Replaced(Option<Bytes>),
    /// The write's condition did not hold, and it was not carried out: see [`Answer::Unmet`].
    Unmet(Box<Unmet>),
    /// When the value expires: to a step of a transaction.
    Lifetime(Lifetime),
    /// The write has computed its value.
    Computed(Computed),
    /// The write could not compute its value, and was not carried out: see [`Answer::NotComputed`].
    NotComputed(NotComputed),
    /// The operation was certainly not carried out, for this reason.
    Refused(String),
    /// It is not known whether the operation was carried out, for this reason.
    Unknown(String),
}

impl PlainRequest {
    /// The key.
    pub fn key(&self) -> &Key {
        match self {
            PlainRequest::Get(key, _) | PlainRequest::Siblings(key, _) | PlainRequest::Put(key, ..) => key,
        }
    }

    /// The level.
    pub fn level(&self) -> Level {
        match self {
            PlainRequest::Get(_, level)
            | PlainRequest::Siblings(_, level)
            | PlainRequest::Put(_, _, level, _) => *level,
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
            PlainResponse::Elements(elements) => Answer::Elements(elements),
            PlainResponse::Siblings(siblings) => Answer::Siblings(siblings),
            PlainResponse::Written { existed } => Answer::Written { existed },
            PlainResponse::Replaced(value) => Answer::Replaced(value),
            PlainResponse::Unmet(unmet) => Answer::Unmet(unmet),
            PlainResponse::Lifetime(lifetime) => Answer::Lifetime(lifetime),
            PlainResponse::Computed(computed) => Answer::Computed(computed),
            PlainResponse::NotComputed(why) => Answer::NotComputed(why),
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
    #[prost(message, optional, tag = "5")]
    options: Option<PutOptionsRecord>,
    #[prost(bool, tag = "6")]
    reads_siblings: bool,
}

impl Wire for PlainRequest {
    fn encode(&self, out: &mut BytesMut) {
        let (value, options) = match self {
            PlainRequest::Get(..) | PlainRequest::Siblings(..) => (None, None),
            PlainRequest::Put(_, value, _, options) => (value.clone(), options.as_deref()),
        };
        put_record(
            &RequestRecord {
                key: self.key().0.clone(),
                level: self.level().to_string(),
                is_write: self.is_write(),
                value,
                options: options.map(PutOptionsRecord::from),
                reads_siblings: matches!(self, PlainRequest::Siblings(..)),
            },
            out,
        );
    }

    fn decode(frame: Bytes) -> Result<PlainRequest, BadFrame> {
        const WHAT: &str = "a request for one key";
        let record: RequestRecord = take_record(frame, WHAT)?;
        let level = record.level.parse();
        let level = level.map_err(|error: BadLevel| BadFrame::new(WHAT, error.to_string()))?;
        let options = record.options.map(PutOptionsRecord::options).transpose();
        let options = options.map_err(|found| BadFrame::new(WHAT, found))?;
        let key = Key(record.key);
        if record.value.is_some() && options.as_ref().is_some_and(|options| options.retimes.is_some()) {
            return Err(BadFrame::new(
                WHAT,
                "a value, and a change of the expiry of another one",
            ));
        }
        Ok(match record.is_write {
            true => PlainRequest::Put(key, record.value, level, options.map(Box::new)),
            false if record.reads_siblings => PlainRequest::Siblings(key, level),
            false => PlainRequest::Get(key, level),
        })
    }

    fn newest(&self) -> Hlc {
        match self {
            PlainRequest::Put(_, _, _, Some(options)) => options.newest(),
            _ => Hlc::ZERO,
        }
    }

    fn replicas(&self) -> ReplicaSet {
        match self {
            PlainRequest::Put(_, _, _, Some(options)) => options.replicas(),
            _ => ReplicaSet::default(),
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResponseRecord {
    #[prost(oneof = "Done", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14")]
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
    #[prost(message, tag = "6")]
    Replaced(ValueRecord),
    #[prost(message, tag = "7")]
    Unmet(ValueRecord),
    #[prost(message, tag = "8")]
    Siblings(SiblingsRecord),
    #[prost(bytes = "bytes", tag = "9")]
    Number(Bytes),
    #[prost(uint64, tag = "10")]
    Length(u64),
    #[prost(enumeration = "NotComputed", tag = "11")]
    NotComputed(i32),
    #[prost(message, tag = "12")]
    Lifetime(LifetimeRecord),
    #[prost(message, tag = "13")]
    Elements(ElementsRecord),
    /// How many elements are new or removed.
    #[prost(uint64, tag = "14")]
    Edited(u64),
}

#[derive(Clone, PartialEq, prost::Message)]
struct LifetimeRecord {
    #[prost(bool, tag = "1")]
    has_value: bool,
    #[prost(uint64, optional, tag = "2")]
    until: Option<u64>,
}

impl From<Lifetime> for LifetimeRecord {
    fn from(lifetime: Lifetime) -> LifetimeRecord {
        LifetimeRecord {
            has_value: lifetime != Lifetime::NoValue,
            until: match lifetime {
                Lifetime::Until(until) => Some(until.0),
                Lifetime::NoValue | Lifetime::Forever => None,
            },
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct SiblingsRecord {
    /// See [`Vector::put`].
    #[prost(bytes = "bytes", tag = "1")]
    context: Bytes,
    #[prost(message, repeated, tag = "2")]
    versions: Vec<VersionRecord>,
}

impl SiblingsRecord {
    fn new(siblings: &Siblings) -> SiblingsRecord {
        let mut context = BytesMut::new();
        siblings.context.encode(&mut context);
        let record = |(id, value): &(_, Option<Bytes>)| {
            let (id, content, meta) = (*id, value.clone().into(), ());
            VersionRecord::new(Some(&Version { id, content, meta }))
        };
        SiblingsRecord {
            context: context.freeze(),
            versions: siblings.versions.iter().map(record).collect(),
        }
    }

    fn siblings(self) -> Result<Siblings, BadFrame> {
        const WHAT: &str = "the siblings of a key";
        let context = Vector::decode(self.context)?;
        let mut versions = Vec::with_capacity(self.versions.len());
        for record in self.versions {
            record.check().map_err(|found| BadFrame::new(WHAT, found))?;
            let Version { id, content, .. } = record
                .version()
                .ok_or_else(|| BadFrame::new(WHAT, "no version"))?;
            versions.push((id, content.stored().cloned()));
        }
        Ok(Siblings { context, versions })
    }
}

/// Whether a key has or had a value, and the value itself if the answer tells it.
#[derive(Clone, PartialEq, prost::Message)]
struct ValueRecord {
    #[prost(bool, tag = "1")]
    has_value: bool,
    #[prost(bytes = "bytes", optional, tag = "2")]
    value: Option<Bytes>,
}

impl ValueRecord {
    fn new(has_value: bool, value: Option<Bytes>) -> ValueRecord {
        ValueRecord { has_value, value }
    }
}

impl Wire for PlainResponse {
    fn encode(&self, out: &mut BytesMut) {
        let done = Some(match self.clone() {
            PlainResponse::Value(Some(value)) => Done::Value(value),
            PlainResponse::Value(None) => Done::NoValue(true),
            PlainResponse::Elements(elements) => Done::Elements(ElementsRecord::from(&*elements)),
            PlainResponse::Written { existed } => Done::Written(existed),
            PlainResponse::Replaced(value) => Done::Replaced(ValueRecord::new(value.is_some(), value)),
            PlainResponse::Unmet(unmet) => Done::Unmet(ValueRecord::new(unmet.has_value, unmet.value)),
            PlainResponse::Refused(why) => Done::Refused(why),
            PlainResponse::Unknown(why) => Done::Unknown(why),
            PlainResponse::Siblings(siblings) => Done::Siblings(SiblingsRecord::new(&siblings)),
            PlainResponse::Computed(Computed::Number(number)) => Done::Number(number),
            PlainResponse::Computed(Computed::Length(len)) => Done::Length(len),
            PlainResponse::Computed(Computed::Elements(count)) => Done::Edited(count),
            PlainResponse::NotComputed(why) => Done::NotComputed(why.into()),
            PlainResponse::Lifetime(lifetime) => Done::Lifetime(lifetime.into()),
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
            Some(Done::Replaced(before)) => PlainResponse::Replaced(before.value),
            Some(Done::Unmet(there)) => PlainResponse::Unmet(Box::new(Unmet {
                has_value: there.has_value,
                value: there.value,
            })),
            Some(Done::Refused(why)) => PlainResponse::Refused(why),
            Some(Done::Unknown(why)) => PlainResponse::Unknown(why),
            Some(Done::Siblings(record)) => PlainResponse::Siblings(Box::new(record.siblings()?)),
            Some(Done::Number(number)) => PlainResponse::Computed(Computed::Number(number)),
            Some(Done::Length(len)) => PlainResponse::Computed(Computed::Length(len)),
            Some(Done::Edited(count)) => PlainResponse::Computed(Computed::Elements(count)),
            Some(Done::Elements(record)) => {
                let elements = record.elements().map_err(|found| BadFrame::new(WHAT, found))?;
                PlainResponse::Elements(Arc::new(elements))
            }
            Some(Done::NotComputed(why)) => match NotComputed::try_from(why) {
                Ok(why) => PlainResponse::NotComputed(why),
                Err(_) => {
                    return Err(BadFrame::new(
                        WHAT,
                        format!("reason {why} why no value was computed"),
                    ));
                }
            },
            Some(Done::Lifetime(record)) => {
                PlainResponse::Lifetime(Lifetime::new(record.has_value, record.until.map(Micros)))
            }
            None => return Err(BadFrame::new(WHAT, "none")),
        })
    }

    fn newest(&self) -> Hlc {
        match self {
            PlainResponse::Siblings(siblings) => siblings.context.newest(),
            _ => Hlc::ZERO,
        }
    }

    fn replicas(&self) -> ReplicaSet {
        match self {
            PlainResponse::Siblings(siblings) => siblings.context.replicas(),
            _ => ReplicaSet::default(),
        }
    }
}

/// A session that asks, for each key, the nearest replica of the key's partition. A read of several keys reads them one by one.
pub struct PlainSession<P: PlainProtocol> {
    topology: Topology,
    /// Reads of several keys that are under way.
    gathering: BTreeMap<u64, Gathering>,
    of: std::marker::PhantomData<fn() -> P>,
}

/// A read of several keys that is under way.
struct Gathering {
    values: Vec<Option<Bytes>>,
    missing: usize,
    /// What the answers so far prove together.
    receipt: Option<Box<Receipt>>,
}

impl<P: PlainProtocol> PlainSession<P> {
    fn ask(&self, cx: &mut SessionContext<'_, Self>, tag: u64, part: u32, request: PlainRequest) {
        let mut server = cx.nearest(&self.topology, request.key());
        let may_go_elsewhere = P::WRITES_ANYWHERE || !request.is_write();
        if may_go_elsewhere && !cx.reach.is_reached(server) {
            // The node that has the key here is away.
            server = cx.reach.nearest_elsewhere(server.partition).unwrap_or(server);
        }
        cx.ask(tag, part, server, request);
    }
}

impl<P: PlainProtocol> Session for PlainSession<P> {
    type Protocol = P;
    type Shared = ();
    type Timer = ();

    const LEVELS: Levels = P::LEVELS;
    const OVERLAPS: bool = P::OVERLAPS;

    fn overlaps_at(level: Level) -> bool {
        P::OVERLAPS && !matches!(level, Level::Bounded(_))
    }

    fn open(_: &P::Config, _: SiteId, topology: Topology, _: SessionId) -> PlainSession<P> {
        PlainSession {
            topology,
            gathering: BTreeMap::new(),
            of: std::marker::PhantomData,
        }
    }

    fn resume(&mut self, state: Bytes) -> Result<(), BadToken> {
        BadToken::unless_empty(&state)
    }

    fn on_operation(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
        tag: u64,
        operation: Operation,
        level: Level,
    ) {
        match operation {
            Operation::Get { key, .. } => self.ask(cx, tag, 0, PlainRequest::Get(key, level)),
            Operation::Siblings { key, .. } => self.ask(cx, tag, 0, PlainRequest::Siblings(key, level)),
            Operation::Put {
                key, value, options, ..
            } => self.ask(cx, tag, 0, PlainRequest::Put(key, value, level, options)),
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
            Operation::Transact { .. }
            | Operation::Watch { .. }
            | Operation::Scan { .. }
            | Operation::Count
            | Operation::Wait { .. }
            | Operation::Publish { .. }
            | Operation::First(_) => {
                cx.fail(
                    tag,
                    Failure::Unsupported("only the gateway carries this out".into()),
                );
            }
        }
    }

    fn on_response(
        &mut self,
        cx: &mut SessionContext<'_, Self>,
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
        let answer = match (answer, self.gathering.get_mut(&tag)) {
            // Not a value of bytes.
            (Answer::Elements(_), Some(_)) => Answer::Value(None),
            (answer, _) => answer,
        };
        match (answer, self.gathering.get_mut(&tag)) {
            (Answer::Value(value), Some(gathering)) => {
                gathering.values[part as usize] = value;
                gathering.missing -= 1;
                gathering.receipt = Some(match gathering.receipt.take() {
                    Some(so_far) => Box::new(so_far.merged(*receipt)),
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

    fn give_up(&mut self, _: &mut SessionContext<'_, Self>, tag: u64) {
        self.gathering.remove(&tag);
    }

    fn token(&self, _: &mut BytesMut) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compute, Condition, Expiry, Micros, ReplicaId, Retimes, VersionId, decimal};

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
            PlainRequest::Siblings(key.clone(), Level::One),
            PlainRequest::Put(key.clone(), None, Level::Eventual, None),
            PlainRequest::Put(key.clone(), Some(Bytes::new()), Level::Bounded(Micros(7)), None),
        ]);
        let id = VersionId {
            at: Hlc(7),
            replica: ReplicaId(17),
        };
        let conditions = [Condition::Absent, Condition::Present, Condition::Version(id)];
        let expiries = [Expiry::At(Micros(5)), Expiry::After(Micros(0)), Expiry::Kept];
        let computes = [
            Compute::Add(-7),
            Compute::AddDecimal(decimal(b"-0.50").unwrap()),
            Compute::Overwrite(3, value.clone()),
        ];
        for ((condition, expiry), compute) in conditions.into_iter().zip(expiries).zip(computes) {
            let options = PutOptions {
                condition: Some(condition),
                expiry: Some(expiry),
                returns_previous: true,
                replaces: Some(Vector::of(id)),
                computes: Some(compute),
                retimes: None,
            };
            let options = Some(Box::new(options));
            let put = PlainRequest::Put(key.clone(), None, Level::Eventual, options);
            assert_eq!(
                (put.newest(), put.replicas()),
                (id.at, ReplicaSet::one(id.replica))
            );
            there_and_back(&[put]);
        }
        there_and_back(&Retimes::ALL.map(|retimes| {
            let options = PutOptions {
                retimes: Some(retimes),
                ..PutOptions::default()
            };
            PlainRequest::Put(key.clone(), None, Level::Eventual, Some(Box::new(options)))
        }));
        let siblings = Siblings {
            context: Vector::of(id),
            versions: vec![(id, None), (id, Some(value.clone()))],
        };
        there_and_back(&[
            PlainResponse::Siblings(Box::default()),
            PlainResponse::Siblings(Box::new(siblings)),
        ]);
        there_and_back(&[
            PlainResponse::Value(None),
            PlainResponse::Value(Some(Bytes::new())),
            PlainResponse::Value(Some(value)),
            PlainResponse::Written { existed: false },
            PlainResponse::Replaced(None),
            PlainResponse::Replaced(Some(Bytes::new())),
            PlainResponse::Unmet(Box::new(Unmet {
                has_value: true,
                value: None,
            })),
            PlainResponse::Computed(Computed::Number(Bytes::from_static(b"1"))),
            PlainResponse::Computed(Computed::Length(0)),
            PlainResponse::NotComputed(NotComputed::TooLong),
            PlainResponse::NotComputed(NotComputed::NotAnInteger),
            PlainResponse::Refused(String::new()),
            PlainResponse::Unknown("why".into()),
        ]);
    }

    #[test]
    fn a_condition_on_no_version_or_no_replica_is_refused() {
        for (at, replica) in [(0, 1), (7, 9_999)] {
            let id = VersionId {
                at: Hlc(at),
                replica: ReplicaId(replica),
            };
            let options = PutOptions {
                condition: Some(Condition::Version(id)),
                ..PutOptions::default()
            };
            let mut out = BytesMut::new();
            PlainRequest::Put(Key::from("k"), None, Level::Eventual, Some(Box::new(options)))
                .encode(&mut out);
            assert!(PlainRequest::decode(out.freeze()).is_err(), "{id}");
        }
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
