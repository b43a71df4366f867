//! Hints: a version that a replica already has goes into its durable stream to the replicas that did not answer, whatever the store has by
//! then.
//!
//! The protocol here stores a write, tells the other replicas by messages, and answers at once. A replica that has not acknowledged the
//! version within 30 ms gets a hint. Nothing else brings anything to a replica: there is no stream of all writes, and no repair on reads.
use std::collections::BTreeMap;
use turnbuckle_core::{
    Answer, Context, Descriptor, Key, Level, Levels, Micros, Operation, Parameter, PlainProtocol,
    PlainRequest, PlainResponse, PlainSession, Protocol, Recovered, ReplicaSet, Replication, RequestId,
    ServerId, Topology, Version, VersionId, VersionRecord,
};
use turnbuckle_node::NodeId;
use turnbuckle_sim::{Loss, World, WorldOptions};

const PATIENCE: Micros = Micros::from_millis(30);

/// A version that the other replicas were told of, by its timestamp, and the replicas that have not acknowledged it.
struct Told {
    key: Key,
    version: Version<()>,
    silent: ReplicaSet,
}

struct Hinting {
    told: BTreeMap<u64, Told>,
    hints: u64,
}

type Cx<'a> = Context<'a, Hinting>;

#[derive(Clone, PartialEq, prost::Message)]
struct Message {
    #[prost(fixed64, tag = "1")]
    at: u64,
    #[prost(bytes = "bytes", tag = "2")]
    key: bytes::Bytes,
    /// `None`: the version is stored.
    #[prost(message, optional, tag = "3")]
    version: Option<VersionRecord>,
}

impl turnbuckle_core::Record for Message {
    const WHAT: &'static str = "what is told of a version";
}

impl Protocol for Hinting {
    type Config = ();
    type Request = PlainRequest;
    type Response = PlainResponse;
    type Message = Message;
    /// When to give up on the replicas that were told of a version. The number is its timestamp.
    type Timer = u64;
    type Meta = ();
    type Line = ();

    const DESCRIPTOR: Descriptor = Descriptor {
        tolerates_clock_steps: true,
        ..Descriptor::of(Replication::Streams)
    };
    const PARAMETERS: &'static [Parameter<()>] = &[];

    fn open((): &(), _: ServerId, _: Topology, _: &Recovered, _: u64) -> Hinting {
        Hinting {
            told: BTreeMap::new(),
            hints: 0,
        }
    }

    fn keys(&self, request: &PlainRequest, each: &mut dyn FnMut(&Key)) {
        each(request.key());
    }

    fn message_keys(&self, _: ServerId, message: &Message, each: &mut dyn FnMut(&Key)) {
        each(&Key(message.key.clone()));
    }

    fn is_write(request: &PlainRequest) -> bool {
        request.is_write()
    }

    fn on_start(&mut self, _: &mut Cx<'_>) {}

    fn on_request(&mut self, cx: &mut Cx<'_>, id: RequestId, request: PlainRequest) {
        let response = match request {
            PlainRequest::Get(key, _) | PlainRequest::Siblings(key, _) => {
                let newest = cx.chain(&key).map(|chain| chain.newest());
                PlainResponse::Value(newest.and_then(|version| version.content.stored().cloned()))
            }
            PlainRequest::Put(key, value, ..) => {
                let (at, replica) = (cx.stamp(), cx.me.replica());
                let id = VersionId { at, replica };
                let (content, meta) = (value.into(), ());
                let version = Version { id, content, meta };
                cx.put(key.clone(), version.clone());
                for peer in cx.peers().collect::<Vec<_>>() {
                    let message = Message {
                        at: at.0,
                        key: key.0.clone(),
                        version: Some(VersionRecord::new(Some(&version))),
                    };
                    cx.send(peer, message);
                }
                let silent = cx.others();
                self.told.insert(at.0, Told { key, version, silent });
                cx.set_timer(at.0, PATIENCE);
                PlainResponse::Written { existed: false }
            }
        };
        let receipt = cx.receipt(Level::Eventual, None);
        cx.reply(id, response, receipt);
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, from: ServerId, message: Message) {
        match message.version {
            Some(version) => {
                if let Some(version) = version.version() {
                    cx.put(Key(message.key.clone()), version);
                }
                let stored = Message {
                    version: None,
                    ..message
                };
                cx.send(from, stored);
            }
            None => {
                if let Some(told) = self.told.get_mut(&message.at) {
                    told.silent = told.silent.without(from.replica());
                }
            }
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>, at: u64) {
        let Some(Told { key, version, silent }) = self.told.remove(&at) else {
            return;
        };
        self.hints += silent.len() as u64;
        cx.hint(silent, key, version);
    }

    fn on_replicated(&mut self, cx: &mut Cx<'_>, _: ServerId, key: Key, version: Version<()>) {
        cx.observe(version.id.at);
        cx.put(key, version);
    }
}

impl PlainProtocol for Hinting {
    const LEVELS: Levels = Levels::of_both(&[Level::Eventual]);
    const OVERLAPS: bool = true;
    const WRITES_ANYWHERE: bool = false;
}

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const C: NodeId = NodeId(2);

fn server(node: NodeId) -> ServerId {
    ServerId {
        site: turnbuckle_core::SiteId(node.0),
        ..ServerId::default()
    }
}

fn world() -> World<PlainSession<Hinting>> {
    let mut options = WorldOptions::plain(["a", "b", "c"], Micros::from_millis(5));
    options.checkpoint_interval = Micros::from_millis(200);
    // A node that was restarted waits this long for a site that is cut off.
    options.patience = Micros::from_millis(100);
    let mut world = World::new(options, ());
    world.judge_nothing();
    world.advance(Micros::from_millis(100));
    world
}

fn put(world: &mut World<PlainSession<Hinting>>, node: NodeId, key: &str, value: &str) {
    let client = world.add_client(node);
    let put = Operation::put(Key::from(key), bytes::Bytes::from(value.to_string()));
    let written = world.ask(client, put);
    assert!(
        matches!(written, Some((Answer::Written { .. }, _))),
        "{written:?}"
    );
}

fn get(world: &mut World<PlainSession<Hinting>>, node: NodeId, key: &str) -> Option<String> {
    let client = world.add_client(node);
    let (key, level) = (Key::from(key), None);
    match world.ask(client, Operation::Get { key, level }) {
        Some((Answer::Value(value), _)) => value.map(|value| String::from_utf8_lossy(&value).into_owned()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_replica_that_was_away_gets_what_it_missed_though_the_store_had_it_long_before() {
    let mut world = world();
    world.set_cut(A, C, true);
    for round in 0..20 {
        put(&mut world, A, &format!("k{}", round % 7), &format!("v{round}"));
    }
    world.advance(Micros::from_millis(100));
    assert_eq!(
        world.inspect(server(A), |replica| replica.hints),
        Some(20),
        "b answers, c does not"
    );
    assert_eq!(
        (get(&mut world, B, "k6"), get(&mut world, C, "k6")),
        (Some("v13".into()), None)
    );
    // What waits for c is in the log, and the checkpoint is behind it.
    world.advance(Micros::from_millis(500));
    world.crash(A, Loss::Power);
    world.restart(A);
    world.advance(Micros::from_millis(500));
    world.set_cut(A, C, false);
    world.advance(Micros::from_millis(500));
    for key in 0..7 {
        let key = format!("k{key}");
        let at_a = get(&mut world, A, &key);
        assert!(at_a.is_some());
        assert_eq!(get(&mut world, C, &key), at_a, "{key}");
    }
}

#[test]
fn a_hint_changes_nothing_where_it_is_given() {
    let mut world = world();
    world.set_cut(A, C, true);
    put(&mut world, A, "k", "old");
    put(&mut world, B, "k", "new");
    world.advance(Micros::from_millis(100));
    assert_eq!(
        get(&mut world, A, "k"),
        Some("new".into()),
        "the hint was of the old one"
    );
    world.crash(A, Loss::Process);
    world.restart(A);
    world.advance(Micros::from_millis(300));
    assert_eq!(
        get(&mut world, A, "k"),
        Some("new".into()),
        "so after the log is replayed"
    );
    world.set_cut(A, C, false);
    world.advance(Micros::from_millis(500));
    assert_eq!(get(&mut world, C, "k"), Some("new".into()), "the newer one stays");
}
