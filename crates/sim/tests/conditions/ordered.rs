//! A protocol that supports all conditions and expiry: the replica at the first site puts all operations of its partition into one order,
//! and the other replicas pass their operations on to it.
//!
//! ```text
//!   client --PlainRequest--> replica b --Message: request--> replica a    waits for its turn: here others get in between
//!                                                                |  the turn: is the condition met? then write
//!   client <-PlainResponse-- replica b <-Message: response-------+
//! ```
//!
//! The replica that orders judges by its clock whether a value has expired. A request whose message is lost is never answered: the gateway's deadline
//! ends it.
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use turnbuckle_core::{
    Bug, Chain, Change, Content, Context, Descriptor, Key, Label, Level, Levels, Micros, Parameter,
    PlainProtocol, PlainRequest, PlainResponse, PlainSession, Protocol, PutOptions, Receipt, Record,
    Recovered, Replication, RequestId, ServerId, Shown, SiteId, Topology, Unmet, Version, VersionId,
    VersionRecord, Wire,
};

/// How long an operation waits for its turn.
const TURN: Micros = Micros(2_000);

pub type OrderedSession = PlainSession<Ordered>;

#[derive(Debug, Clone, Default)]
pub struct OrderedConfig {
    /// Planted: a condition is checked when the put arrives, and not at its turn.
    pub checks_early: bool,
}

pub struct Ordered {
    config: OrderedConfig,
    /// Operations that wait for their turn, at the replica that orders them.
    waiting: BTreeMap<u64, Waiting>,
    /// Requests that were passed on to that replica.
    passed: BTreeMap<u64, RequestId>,
    next: u64,
}

struct Waiting {
    asker: Asker,
    request: PlainRequest,
    /// With the planted bug: whether the condition was met when the put arrived.
    met_early: Option<bool>,
}

/// The client or replica that waits for the result of an operation.
#[derive(Clone, Copy)]
enum Asker {
    Client(RequestId),
    /// A replica, and its number for the request.
    Replica(ServerId, u64),
}

/// A request that is passed on, or the answer to one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(oneof = "Body", tags = "2, 3")]
    body: Option<Body>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Body {
    #[prost(bytes = "bytes", tag = "2")]
    Request(Bytes),
    #[prost(message, tag = "3")]
    Answer(Told),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Told {
    #[prost(bytes = "bytes", tag = "1")]
    response: Bytes,
    /// The version that was read, written or found, without its value.
    #[prost(message, required, tag = "2")]
    version: VersionRecord,
}

impl Record for Message {
    const WHAT: &'static str = "a request or an answer of an ordered keyspace";

    fn check(&self) -> Result<(), String> {
        match &self.body {
            Some(Body::Answer(told)) => told.version.check(),
            _ => Ok(()),
        }
    }
}

/// A timer that continues an operation, named by the operation's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Its turn has come.
    Turn(u64),
    /// Its key is in memory.
    Apply(u64),
}

type Cx<'a> = Context<'a, Ordered>;

fn encoded(value: &impl Wire) -> Bytes {
    let mut out = BytesMut::new();
    value.encode(&mut out);
    out.freeze()
}

/// The state that an operation finds at its key.
struct There {
    value: Option<Bytes>,
    newest: Option<Version<()>>,
    expires: Option<Micros>,
}

impl There {
    fn find(cx: &Cx<'_>, key: &Key) -> There {
        let now = cx.read_time();
        let newest = cx.chain(key).map(Chain::newest);
        There {
            newest: newest.map(|version| named(version.label())),
            expires: newest.and_then(|version| version.content.until()),
            value: newest.and_then(|version| version.content.at(now).cloned()),
        }
    }

    fn meets(&self, options: &PutOptions) -> bool {
        let condition = options.condition;
        condition.is_none_or(|condition| {
            let newest = self.newest.as_ref().map(|version| version.id);
            condition.holds(self.value.is_some(), newest)
        })
    }
}

fn write(
    cx: &mut Cx<'_>,
    key: Key,
    value: Option<Bytes>,
    until: impl FnOnce(Micros) -> Option<Micros>,
) -> Version<()> {
    let id = VersionId {
        at: cx.stamp(),
        replica: cx.me.replica(),
    };
    let content = value.map_or(Content::DELETE, |value| Content::new(value, until(id.at.wall())));
    let version = Version {
        id,
        content,
        meta: (),
    };
    let label = version.label();
    cx.put(key, version);
    named(label)
}

/// What a receipt says of a version, as a version without a value.
fn named(Label { id, base, until }: Label) -> Version<()> {
    let content = match until.is_some() || base.is_some() {
        true => Content::with_base(Bytes::new(), until, base),
        false => Content::DELETE,
    };
    Version {
        id,
        content,
        meta: (),
    }
}

/// Changes when a value expires. Returns the answer, and the version that was written or found.
fn retime(cx: &mut Cx<'_>, key: Key, options: &PutOptions) -> (PlainResponse, Option<Version<()>>) {
    let newest = cx.chain(&key).map(|chain| chain.newest().clone());
    let new =
        Change::new(None, Some(Box::new(options.clone()))).of(&Shown::one(newest.as_ref()), cx.read_time());
    let written = new.and_then(|new| {
        let id = VersionId {
            at: cx.stamp(),
            replica: cx.me.replica(),
        };
        let (content, changed) = new.stamped(id)?;
        let version = Version {
            id,
            content,
            meta: (),
        };
        let label = version.label();
        cx.put(key, version);
        Ok((changed, label))
    });
    match written {
        Ok((changed, label)) => (changed.into(), Some(named(label))),
        Err(changed) => (changed.into(), newest.map(|newest| named(newest.label()))),
    }
}

/// Carries out a put. Returns its answer, and the version that it wrote or found.
fn put(
    cx: &mut Cx<'_>,
    key: Key,
    value: Option<Bytes>,
    options: &PutOptions,
    met_early: Option<bool>,
) -> (PlainResponse, Option<Version<()>>) {
    if options.retimes.is_some() {
        return retime(cx, key, options);
    }
    let there = There::find(cx, &key);
    let has_value = there.value.is_some();
    if !met_early.unwrap_or_else(|| there.meets(options)) {
        let value = there.value.filter(|_| options.returns_previous);
        let unmet = Unmet { has_value, value };
        return (PlainResponse::Unmet(Box::new(unmet)), there.newest);
    }
    let previous = there.expires.filter(|_| has_value);
    let until = |stamped| options.expiry?.deadline(stamped, previous);
    // A delete of a key without a value writes nothing.
    let version = match value.is_some() || has_value {
        true => Some(write(cx, key, value, until)),
        false => there.newest,
    };
    let response = match options.returns_previous {
        true => PlainResponse::Replaced(there.value),
        false => PlainResponse::Written { existed: has_value },
    };
    (response, version)
}

impl Ordered {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// An operation arrives at the replica that orders it.
    fn admit(&mut self, cx: &mut Cx<'_>, asker: Asker, request: PlainRequest) {
        let met_early = match &request {
            PlainRequest::Put(key, _, _, Some(options)) if self.config.checks_early => {
                Some(There::find(cx, key).meets(options))
            }
            _ => None,
        };
        let number = self.next();
        let waiting = Waiting {
            asker,
            request,
            met_early,
        };
        self.waiting.insert(number, waiting);
        cx.set_timer(Timer::Turn(number), TURN);
    }

    fn apply(&mut self, cx: &mut Cx<'_>, number: u64) {
        let Waiting {
            asker,
            request,
            met_early,
        } = self.waiting.remove(&number).expect("it waits for its turn");
        let (response, version) = match request {
            PlainRequest::Get(key, _) | PlainRequest::Siblings(key, _) => {
                let there = There::find(cx, &key);
                (PlainResponse::Value(there.value), there.newest)
            }
            PlainRequest::Put(key, value, _, options) => {
                let options = options.map(|options| *options).unwrap_or_default();
                put(cx, key, value, &options, met_early)
            }
        };
        match asker {
            Asker::Client(id) => reply(cx, id, response, version),
            Asker::Replica(replica, number) => {
                let told = Told {
                    response: encoded(&response),
                    version: VersionRecord::new(version.as_ref()),
                };
                let body = Some(Body::Answer(told));
                cx.send(replica, Message { number, body });
            }
        }
    }
}

fn reply(cx: &mut Cx<'_>, id: RequestId, response: PlainResponse, version: Option<Version<()>>) {
    let receipt = Receipt {
        staleness: Some(Micros(0)),
        ..cx.receipt(Level::Linearizable, None)
    };
    let receipt = receipt.of(version.as_ref().map(Version::label));
    cx.reply(id, response, receipt);
}

impl Protocol for Ordered {
    type Config = OrderedConfig;
    type Request = PlainRequest;
    type Response = PlainResponse;
    type Message = Message;
    type Timer = Timer;
    type Meta = ();
    type Line = ();

    const DESCRIPTOR: Descriptor = Descriptor {
        tolerates_clock_steps: true,
        takes_conditions: true,
        takes_expiry: true,
        ..Descriptor::of(Replication::Majority)
    };
    const PARAMETERS: &'static [Parameter<OrderedConfig>] = &[];
    const BUGS: &'static [Bug] = &[Bug::new(
        "checks_early",
        "a condition is looked at when the put arrives, and others write before its turn",
    )];

    fn plant(config: &mut OrderedConfig, bug: &str) -> bool {
        config.checks_early |= bug == "checks_early";
        bug == "checks_early"
    }

    fn open(config: &OrderedConfig, _: ServerId, _: Topology, _: &Recovered, _: u64) -> Ordered {
        Ordered {
            config: config.clone(),
            waiting: BTreeMap::new(),
            passed: BTreeMap::new(),
            next: 0,
        }
    }

    fn keys(&self, request: &PlainRequest, each: &mut dyn FnMut(&Key)) {
        each(request.key());
    }

    fn message_keys(&self, _: ServerId, message: &Message, each: &mut dyn FnMut(&Key)) {
        if let Some(Body::Request(request)) = &message.body
            && let Ok(request) = PlainRequest::decode(request.clone())
        {
            each(request.key());
        }
    }

    fn is_write(request: &PlainRequest) -> bool {
        request.is_write()
    }

    fn on_start(&mut self, _: &mut Cx<'_>) {}

    fn on_request(&mut self, cx: &mut Cx<'_>, id: RequestId, request: PlainRequest) {
        let first = cx.me.peer(SiteId(0).into());
        if cx.me == first {
            return self.admit(cx, Asker::Client(id), request);
        }
        let number = self.next();
        self.passed.insert(number, id);
        let body = Some(Body::Request(encoded(&request)));
        cx.send(first, Message { number, body });
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, from: ServerId, message: Message) {
        match message.body {
            Some(Body::Request(request)) => {
                let request = PlainRequest::decode(request).expect("a replica passes on what it has decoded");
                self.admit(cx, Asker::Replica(from, message.number), request);
            }
            Some(Body::Answer(told)) => {
                let response =
                    PlainResponse::decode(told.response).expect("a replica answers what it can say");
                let id = self.passed.remove(&message.number);
                let id = id.expect("each request is answered once");
                reply(cx, id, response, told.version.version());
            }
            None => {}
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>, timer: Timer) {
        match timer {
            Timer::Turn(number) => {
                let key = self.waiting[&number].request.key().clone();
                cx.when_resident(vec![key], Timer::Apply(number));
            }
            Timer::Apply(number) => self.apply(cx, number),
        }
    }
}

impl PlainProtocol for Ordered {
    const LEVELS: Levels = Levels::of_both(&[Level::Linearizable]);
    const OVERLAPS: bool = false;
    const WRITES_ANYWHERE: bool = false;
}
