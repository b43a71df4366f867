//! Nodes on simulated disks, with small limits, for targets that talk to a node.
#![allow(dead_code)]

use crate::wire::Fields;
use bytes::{Buf, Bytes, BytesMut};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use std::sync::Arc;
use turnbuckle_causal::{CausalSpartanX, Eventual, stable};
use turnbuckle_core::{
    Hlc, Key, Level, Micros, Now, Outcome, PlainRequest, PlainResponse, Protocol, RequestId, ServerId,
    SiteId, Topology, Vector, WallInterval, Wire,
};
use turnbuckle_log::SimulatedDisk;
use turnbuckle_node::{
    Delivered, Durability, Keyspace, KeyspaceConfig, Node, NodeBuilder, NodeConfig, NodeId, OpenError,
    Placement, StreamLimits, Wake,
};
use turnbuckle_store::MemoryEngine;

pub const KEYSPACE: &str = "fuzz";
const START_US: u64 = 1_700_000_000_000_000;

/// Sites a, b and c; two nodes at a.
pub fn placement() -> Placement {
    Placement::new([0, 1, 2, 0].map(SiteId))
}

pub fn topology() -> Topology {
    Topology::new(["a", "b", "c"], 2, 1)
}

struct Quiet;

impl Wake for Quiet {
    fn wake_loop(&self, _: usize) {}
    fn wake_link(&self, _: NodeId) {}
    fn wake_worker(&self) {}
}

/// A protocol of which a target knows what its clients say.
pub trait Spoken: Protocol<Config: Default> {
    fn get(key: Key) -> Self::Request;
    fn put(key: Key, value: Option<Bytes>) -> Self::Request;
    /// What a GET was answered with, or a PUT: then nothing.
    fn value(response: Self::Response) -> Option<Bytes>;
    /// What is kept with a version that depends on these.
    fn meta(depends: &[(Site, Stamp)]) -> Vec<u8>;

    fn key(request: &Self::Request) -> Key {
        let mut found = Key::from("");
        Self::keys(request, &mut |key| found = key.clone());
        found
    }

    fn encoded(request: &Self::Request) -> BytesMut {
        let mut out = BytesMut::new();
        request.encode(&mut out);
        out
    }
}

impl Spoken for Eventual {
    fn get(key: Key) -> PlainRequest {
        PlainRequest::Get(key, Level::Eventual)
    }

    fn put(key: Key, value: Option<Bytes>) -> PlainRequest {
        PlainRequest::Put(key, value, Level::Eventual, None)
    }

    fn value(response: PlainResponse) -> Option<Bytes> {
        match response {
            PlainResponse::Value(value) => value,
            _ => None,
        }
    }

    fn meta(_: &[(Site, Stamp)]) -> Vec<u8> {
        Vec::new()
    }
}

impl Spoken for CausalSpartanX {
    fn get(key: Key) -> stable::Request {
        stable::Request::Get(stable::Get {
            key,
            stable: Vector::ZERO,
            need: Vector::ZERO,
            eventual: false,
        })
    }

    fn put(key: Key, value: Option<Bytes>) -> stable::Request {
        stable::Request::Put(stable::Put {
            key,
            value,
            past: Vector::ZERO,
            stable: Vector::ZERO,
            moved: false,
            eventual: false,
        })
    }

    fn value(response: stable::Response) -> Option<Bytes> {
        match response {
            stable::Response::Value { value, .. } => value,
            _ => None,
        }
    }

    /// A vector, of whatever sites.
    fn meta(depends: &[(Site, Stamp)]) -> Vec<u8> {
        let depends = &depends[..depends.len().min(4)];
        let mut meta = vec![depends.len() as u8];
        for (site, at) in depends {
            meta.extend((site.value() as u16).to_be_bytes());
            meta.extend(at.value().to_be_bytes());
        }
        meta
    }
}

/// A node, its disks, and what it takes to open it again.
pub struct Machine<P: Spoken = Eventual> {
    pub id: NodeId,
    pub disk: SimulatedDisk,
    pub engine: MemoryEngine,
    pub node: Arc<Node>,
    pub keyspace: Arc<Keyspace<P>>,
    asked: u64,
}

impl<P: Spoken> Machine<P> {
    pub fn new(id: u16, clock: Clock) -> Machine<P> {
        let (disk, engine) = (SimulatedDisk::new(), MemoryEngine::new());
        Machine::over(NodeId(id), disk, engine, clock).expect("an empty disk is opened")
    }

    pub fn over(
        id: NodeId,
        disk: SimulatedDisk,
        engine: MemoryEngine,
        clock: Clock,
    ) -> Result<Machine<P>, OpenError> {
        let (node, keyspace) = open(id, &disk, &engine, clock)?;
        Ok(Machine {
            id,
            disk,
            engine,
            node,
            keyspace,
            asked: 0,
        })
    }

    /// The process ends, or with a seed the power, and the node is opened again.
    pub fn crash(&mut self, clock: Clock, power: Option<u64>) {
        match power {
            None => self.disk.crash_process(),
            Some(seed) => {
                self.disk.crash_power(seed);
                self.engine.crash();
            }
        }
        let opened = open(self.id, &self.disk, &self.engine, clock);
        (self.node, self.keyspace) = opened.expect("a node opens what it wrote itself");
    }

    /// A turn of the loop, with everything in the background.
    pub fn turn(&self, clock: Clock) {
        let now = clock.now();
        self.node.commit(now).expect("the disk works");
        self.node.sync().run(|| now).expect("the disk works");
        self.node.fetch().run(|| now);
    }

    /// A request of a client here; what comes of it is the answer, unless it has to wait for another node.
    pub fn ask(&mut self, clock: Clock, request: P::Request) -> Option<Outcome<P::Response>> {
        let key = P::key(&request);
        let server = ServerId {
            site: placement().site_of(self.id),
            partition: topology().partition_of_slot(key.slot()),
            member: 0,
        };
        self.asked += 1;
        let id = RequestId::of_loop(0, self.asked);
        self.keyspace.ask(clock.now(), id, server, request);
        let mut deliveries = Vec::new();
        for _ in 0..4 {
            self.turn(clock);
            self.keyspace.take_deliveries(0, &mut deliveries);
            if let Some(place) = deliveries.iter().position(|delivery| delivery.id == id) {
                let Delivered::Response(outcome) = deliveries.swap_remove(place).answer else {
                    panic!("the answer to a request is not one to a survey");
                };
                return Some(outcome);
            }
        }
        None
    }

    /// The frames for a peer, without their lengths.
    pub fn frames(&self, peer: NodeId) -> Vec<Bytes> {
        let mut out = BytesMut::new();
        let mut rounds = 0;
        loop {
            let more = self.node.fill(peer, &mut out, 1 << 16);
            rounds += 1;
            assert!(
                rounds < 1_000 && out.len() < 8 << 20,
                "there is always more for a peer"
            );
            if !more || out.len() >= 1 << 16 {
                break;
            }
        }
        let mut out = out.freeze();
        let mut frames = Vec::new();
        while !out.is_empty() {
            let len = out.get_u32() as usize;
            frames.push(out.split_to(len));
        }
        frames
    }
}

fn open<P: Spoken>(
    id: NodeId,
    disk: &SimulatedDisk,
    engine: &MemoryEngine,
    clock: Clock,
) -> Result<(Arc<Node>, Arc<Keyspace<P>>), OpenError> {
    let mut config = NodeConfig::new(id, placement());
    config.memory_limit_bytes = 4 << 10;
    config.retained_log_bytes = 4 << 10;
    config.checkpoint_log_bytes = 8 << 10;
    config.segment_bytes = 2 << 10;
    config.stream = StreamLimits {
        tail_bytes: 256,
        window_bytes: 1 << 10,
        frame_bytes: 128,
    };
    let mut builder = NodeBuilder::new(
        config,
        Arc::new(disk.clone()),
        Arc::new(engine.clone()),
        Arc::new(Quiet),
    );
    let keyspace = KeyspaceConfig {
        name: KEYSPACE.to_string(),
        topology: topology(),
        durability: Durability::None,
    };
    let keyspace = builder.keyspace::<P>(keyspace, P::Config::default(), 4 << 10)?;
    Ok((builder.open(clock.now())?, keyspace))
}

/// Time passes only when it is told to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    passed_us: u64,
}

impl Clock {
    pub fn pass(&mut self, ms: u64) {
        self.passed_us += ms * 1_000;
    }

    pub fn now(self) -> Now {
        Now {
            monotonic: Micros(self.passed_us),
            wall: WallInterval::around(Micros(START_US + self.passed_us + 500), Micros(500)),
        }
    }
}

/// A number as a peer might choose it.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Number {
    Small(u8),
    FromTheEnd(u8),
    Any(u64),
}

impl Number {
    pub fn value(self) -> u64 {
        match self {
            Number::Small(number) => number.into(),
            Number::FromTheEnd(number) => u64::MAX - u64::from(number),
            Number::Any(number) => number,
        }
    }
}

/// A timestamp.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Stamp {
    /// So many milliseconds from the beginning.
    Near(u16),
    Number(Number),
}

impl Stamp {
    pub fn value(self) -> u64 {
        match self {
            Stamp::Near(ms) => Hlc::from_wall(Micros(START_US + u64::from(ms) * 1_000)).0,
            Stamp::Number(number) => number.value(),
        }
    }
}

/// A key of a few, some of them awkward.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct KeyName(u8);

impl KeyName {
    pub fn bytes(self) -> Vec<u8> {
        match self.0 {
            0 => Vec::new(),
            1 => vec![b'k'; 3_000],
            2 => vec![b'k'; 70_000],
            other => vec![b'k', other % 16],
        }
    }

    pub fn key(self) -> Key {
        Key(self.bytes().into())
    }
}

/// A site, there or not.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Site {
    One(u8),
    Any(u32),
}

impl Site {
    pub fn value(self) -> u64 {
        match self {
            Site::One(site) => u64::from(site % 4),
            Site::Any(site) => site.into(),
        }
    }
}

/// An entry of a stream, of a copy or of the log.
#[derive(Debug, Clone, Arbitrary)]
pub enum Entry {
    Formed {
        key: KeyName,
        at: Stamp,
        site: Site,
        value: Option<Vec<u8>>,
        depends: Vec<(Site, Stamp)>,
    },
    WithMeta(Vec<u8>),
    Raw(Vec<u8>),
}

impl Entry {
    pub fn bytes<P: Spoken>(&self) -> Vec<u8> {
        match self {
            Entry::Formed {
                key,
                at,
                site,
                value,
                depends,
            } => {
                let fields = Fields::default()
                    .bytes(1, key.bytes())
                    .fixed64(2, at.value())
                    .uint(3, site.value());
                let fields = fields.each(value, |fields, value| fields.bytes(4, value));
                fields.bytes(5, P::meta(depends)).0
            }
            Entry::WithMeta(meta) => Fields::default().bytes(1, b"k").bytes(5, meta).0,
            Entry::Raw(bytes) => bytes.clone(),
        }
    }
}

/// A place in a stream.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub struct At {
    pub incarnation: Number,
    pub number: Number,
}

impl At {
    pub fn fields(self) -> Fields {
        Fields::default()
            .uint(1, self.incarnation.value())
            .uint(2, self.number.value())
    }
}
