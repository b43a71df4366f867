//! Nodes on simulated disks whose frames a test carries by hand.
use bytes::{Buf, Bytes, BytesMut};
use std::{cell::RefCell, sync::Arc};
use turnbuckle_core::{
    BadFrame, Micros, Now, Outcome, Protocol, RequestId, ServerId, SiteId, Topology, WallInterval,
};
use turnbuckle_log::SimulatedDisk;
use turnbuckle_node::{
    Agreement, Delivered, Durability, Keyspace, KeyspaceConfig, KeyspaceTerms, Node, NodeBuilder, NodeConfig,
    NodeId, Placement, Wake,
};
use turnbuckle_store::MemoryEngine;

pub const KEYSPACE: &str = "test";
const START_US: u64 = 1_700_000_000_000_000;

/// Nodes 0 and 3 are at site a, where they hold partitions 0 and 1. Nodes 1 and 2 hold both partitions, at sites b and c.
pub fn placement() -> Placement {
    Placement::new([0, 1, 2, 0].map(SiteId))
}

pub fn topology() -> Topology {
    Topology::new(["a", "b", "c"], 2, 1)
}

pub fn server(site: u16, partition: u16) -> ServerId {
    ServerId {
        site: SiteId(site),
        partition,
        member: 0,
    }
}

/// The time `ms` milliseconds after the beginning.
pub fn at(ms: u64) -> Now {
    let wall = START_US + ms * 1_000;
    Now {
        monotonic: Micros(ms * 1_000),
        wall: WallInterval::around(Micros(wall + 500), Micros(500)),
    }
}

struct Quiet;

impl Wake for Quiet {
    fn wake_loop(&self, _: usize) {}
    fn wake_link(&self, _: NodeId) {}
    fn wake_worker(&self) {}
    fn wake_sync(&self) {}
}

pub struct Machine<P: Protocol> {
    pub node: Arc<Node>,
    pub keyspace: Arc<Keyspace<P>>,
    pub id: NodeId,
    disk: SimulatedDisk,
    engine: MemoryEngine,
    asked: u64,
    /// Answers that came at once.
    answered: RefCell<Vec<(RequestId, Delivered<P>)>>,
}

impl<P: Protocol<Config: Default>> Machine<P> {
    pub fn new(id: u16) -> Machine<P> {
        let (id, disk, engine) = (NodeId(id), SimulatedDisk::new(), MemoryEngine::new());
        let (node, keyspace) = open(id, &disk, &engine, at(0));
        Machine {
            node,
            keyspace,
            id,
            disk,
            engine,
            asked: 0,
            answered: RefCell::default(),
        }
    }

    /// `kill -9`, after which the node is opened again.
    pub fn restart(&mut self, now: Now) {
        self.disk.crash_process();
        (self.node, self.keyspace) = open(self.id, &self.disk, &self.engine, now);
    }

    /// A turn of the loop, with all background work.
    pub fn turn(&self, now: Now) {
        self.node.tick(now);
        self.node.commit(now).expect("the disk works");
        self.node.sync().run(|| now).expect("the disk works");
        self.node.fetch().run(|| now);
        self.node.maintain().run(|| now).expect("the disks work");
        self.node.commit(now).expect("the disk works");
        self.node.sync().run(|| now).expect("the disk works");
    }

    pub fn ask(&mut self, now: Now, server: ServerId, request: P::Request) -> RequestId {
        self.asked += 1;
        let id = RequestId::of_loop(0, self.asked);
        let outcome = self.keyspace.ask(now, id, server, request);
        let answer = outcome.map(|outcome| (id, Delivered::Response(outcome)));
        self.answered.borrow_mut().extend(answer);
        self.turn(now);
        id
    }

    /// The answers that have come, in order.
    pub fn answers(&self) -> Vec<(RequestId, Delivered<P>)> {
        let mut deliveries = Vec::new();
        self.keyspace.take_deliveries(0, &mut deliveries);
        let pairs = deliveries.into_iter();
        let mut answers = self.answered.take();
        answers.extend(pairs.map(|delivery| (delivery.id, delivery.answer)));
        answers
    }

    /// The only answer that has come.
    pub fn answer(&self) -> Outcome<P::Response> {
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "one answer was expected");
        match answers.remove(0) {
            (_, Delivered::Response(outcome)) => outcome,
            (_, Delivered::Surveyed(_)) => panic!("the answer to a survey"),
            (_, Delivered::Durable) => panic!("nothing was heard ahead"),
        }
    }

    /// The frames for a peer, without their lengths, until there are no more.
    pub fn frames(&self, peer: NodeId) -> Vec<Bytes> {
        let mut out = BytesMut::new();
        while self.node.fill(peer, &mut out, usize::MAX) {}
        let mut out = out.freeze();
        let mut frames = Vec::new();
        while !out.is_empty() {
            let len = out.get_u32() as usize;
            frames.push(out.split_to(len));
        }
        frames
    }

    pub fn hear(&self, now: Now, from: NodeId, frame: Bytes) -> Result<(), BadFrame> {
        self.node.handle_frame(now, from, frame)
    }

    /// Carries every frame that this node has for another one to it. Returns the length of the largest frame.
    pub fn carry(&self, now: Now, to: &Machine<P>) -> usize {
        let frames = self.frames(to.id);
        let largest = frames.iter().map(Bytes::len).max().unwrap_or(0);
        for frame in frames {
            to.hear(now, self.id, frame).expect("a node understands another");
        }
        to.turn(now);
        largest
    }
}

pub fn link<P: Protocol>(now: Now, one: &Machine<P>, other: &Machine<P>, up: bool) {
    for (machine, peer) in [(one, other), (other, one)] {
        match up {
            true => machine.node.link_up(now, peer.id, agreement(true)),
            false => machine.node.link_down(now, peer.id),
        }
    }
}

/// A link between two nodes of which one does not have the keyspace. The test need not say which one.
pub fn link_without<P: Protocol>(now: Now, one: &Machine<P>, other: &Machine<P>) {
    one.node.link_up(now, other.id, agreement(false));
    other.node.link_up(now, one.id, agreement(false));
}

/// An agreement in which both have the keyspace, or the peer lacks it.
fn agreement(both: bool) -> Agreement {
    let terms = [KeyspaceTerms {
        name: KEYSPACE.to_string(),
        protocol: "any".to_string(),
        partitions: topology().partitions().into(),
        members: 1.into(),
        replica_sites: None,
    }];
    Agreement::between(&terms, if both { &terms } else { &[] }).expect("it is the same")
}

fn open<P: Protocol<Config: Default>>(
    id: NodeId,
    disk: &SimulatedDisk,
    engine: &MemoryEngine,
    now: Now,
) -> (Arc<Node>, Arc<Keyspace<P>>) {
    let mut config = NodeConfig::new(id, placement());
    config.is_new_cluster = true;
    config.retained_log_bytes = 64 << 10;
    config.segment_bytes = 16 << 10;
    config.stream.tail_bytes = 64 << 10;
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
    let keyspace = builder.keyspace::<P>(keyspace, P::Config::default());
    let keyspace = keyspace.expect("its table is opened");
    (builder.open(now).expect("it opens what it wrote"), keyspace)
}
