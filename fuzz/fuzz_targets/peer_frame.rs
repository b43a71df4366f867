//! Frames of peers to a node: of any bytes, of any fields, and those of a real peer with some of their bytes changed. A node never panics over
//! them; whatever it took in, it goes on answering its clients, takes checkpoints, and opens what it wrote.
#![no_main]

mod cluster;
mod wire;

use bytes::Bytes;
use cluster::{At, Clock, Entry, KEYSPACE, KeyName, Machine, Number, Site, Spoken, Stamp};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use turnbuckle_causal::{CausalSpartanX, Eventual};
use turnbuckle_core::{Key, Outcome};
use turnbuckle_node::NodeId;
use wire::Fields;

#[derive(Debug, Arbitrary)]
enum Step {
    /// Any bytes.
    Raw {
        node: u8,
        bytes: Vec<u8>,
    },
    /// Any fields.
    Formed {
        node: u8,
        from: Server,
        to: Server,
        body: Body,
    },
    /// What the real peer has to say, and what it gets, with some bytes changed.
    Relay {
        changes: Vec<(u16, u8)>,
    },
    /// A client of the node.
    Put {
        key: KeyName,
        value: Option<Vec<u8>>,
    },
    /// A client of the real peer.
    PutAtPeer {
        key: KeyName,
        value: Option<Vec<u8>>,
    },
    Get {
        key: KeyName,
    },
    Turn,
    Pass {
        ms: u16,
    },
    Maintain,
    Checkpoint,
    CheckpointAtPeer,
    Crash {
        power: Option<u8>,
    },
    CrashPeer {
        power: Option<u8>,
    },
    LinkDown {
        node: u8,
    },
    LinkUp {
        node: u8,
    },
}

#[derive(Debug, Arbitrary)]
struct Server {
    /// None: the one that belongs there.
    other: Option<(u8, u8, u8)>,
    partition: bool,
}

impl Server {
    fn packed(&self, site: u64) -> u64 {
        match self.other {
            None => site << 32 | u64::from(self.partition) << 16,
            Some((site, partition, member)) => {
                u64::from(site) << 32 | u64::from(partition) << 16 | u64::from(member)
            }
        }
    }
}

#[derive(Debug, Arbitrary)]
enum Body {
    Request {
        id: Number,
        key: KeyName,
        write: bool,
        value: Option<Vec<u8>>,
        survey: Option<(Number, u32)>,
    },
    Response {
        id: Number,
        body: Vec<u8>,
        level: Option<String>,
        refused: Option<String>,
    },
    Message(Vec<u8>),
    Entries {
        incarnation: Number,
        previous: Number,
        /// None: as many as there are.
        last: Option<Number>,
        entries: Vec<Entry>,
    },
    Mark {
        incarnation: Number,
        after: Number,
        promise: Stamp,
        wall: Number,
    },
    BadMark(Vec<u8>),
    Ack(At),
    Resume(At),
    TakeBack {
        since: Stamp,
        end: At,
    },
    Returned {
        entries: Vec<Entry>,
        end: bool,
    },
    CopyBegin {
        resume: At,
        cut: Vec<(Site, Stamp)>,
    },
    CopyRows {
        entries: Vec<Entry>,
        end: bool,
    },
}

impl Body {
    fn put<P: Spoken>(&self, frame: Fields) -> Fields {
        let fields = Fields::default();
        let entries_in = |fields: Fields, tag, entries: &[Entry]| {
            fields.each(entries, |fields, entry| fields.bytes(tag, entry.bytes::<P>()))
        };
        match self {
            Body::Request {
                id,
                key,
                write,
                value,
                survey,
            } => {
                let request = match write {
                    true => P::put(key.key(), value.clone().map(Into::into)),
                    false => P::get(key.key()),
                };
                let fields = fields.uint(1, id.value()).bytes(2, P::encoded(&request));
                let fields = fields.each(survey, |fields, (cursor, count)| {
                    let survey = Fields::default().uint(1, cursor.value()).uint(2, (*count).into());
                    fields.message(3, &survey)
                });
                frame.message(4, &fields)
            }
            Body::Response {
                id,
                body,
                level,
                refused,
            } => {
                let fields = fields.uint(1, id.value()).bytes(2, body);
                let fields = fields.each(level, |fields, level| {
                    let receipt = Fields::default().bytes(1, level).bytes(2, "eventual");
                    fields.message(3, &receipt)
                });
                let fields = fields.each(refused, |fields, why| fields.bytes(4, why));
                frame.message(5, &fields)
            }
            Body::Message(bytes) => frame.bytes(6, bytes),
            Body::Entries {
                incarnation,
                previous,
                last,
                entries,
            } => {
                let previous = previous.value();
                let last = last.map_or(previous.saturating_add(entries.len() as u64), Number::value);
                let fields = fields
                    .uint(1, incarnation.value())
                    .uint(2, previous)
                    .uint(3, last);
                frame.message(7, &entries_in(fields, 4, entries))
            }
            Body::Mark {
                incarnation,
                after,
                promise,
                wall,
            } => {
                let mark = Fields::default()
                    .fixed64(1, promise.value())
                    .uint(2, wall.value());
                let fields = fields.uint(1, incarnation.value()).uint(2, after.value());
                frame.message(8, &fields.message(3, &mark))
            }
            Body::BadMark(bytes) => frame.message(8, &fields.bytes(3, bytes)),
            Body::Ack(at) => frame.message(9, &at.fields()),
            Body::Resume(at) => frame.message(10, &at.fields()),
            Body::TakeBack { since, end } => {
                frame.message(11, &fields.fixed64(1, since.value()).message(2, &end.fields()))
            }
            Body::Returned { entries, end } => {
                frame.message(12, &entries_in(fields, 1, entries).uint(2, (*end).into()))
            }
            Body::CopyBegin { resume, cut } => {
                let fields = fields.message(1, &resume.fields());
                let fields = fields.each(cut, |fields, (site, until)| {
                    let cut = Fields::default().uint(1, site.value()).fixed64(2, until.value());
                    fields.message(2, &cut)
                });
                frame.message(13, &fields)
            }
            Body::CopyRows { entries, end } => {
                frame.message(14, &entries_in(fields, 1, entries).uint(2, (*end).into()))
            }
        }
    }
}

const ME: NodeId = NodeId(0);
const PEER: NodeId = NodeId(1);

struct World<P: Spoken> {
    clock: Clock,
    me: Machine<P>,
    peer: Machine<P>,
}

// Versions of one protocol depend on nothing, those of the other on what sites have stamped.
fuzz_target!(|run: (bool, Vec<Step>)| {
    match run {
        (false, steps) => run_steps::<Eventual>(steps),
        (true, steps) => run_steps::<CausalSpartanX>(steps),
    }
});

fn run_steps<P: Spoken>(steps: Vec<Step>) {
    let clock = Clock::default();
    let mut world = World::<P> {
        clock,
        me: Machine::new(ME.0, clock),
        peer: Machine::new(PEER.0, clock),
    };
    for node in 1..4 {
        world.link(NodeId(node), true);
    }
    for step in steps.into_iter().take(200) {
        world.take(step);
    }
    world.end();
}

/// A node other than the one under test.
fn other(node: u8) -> NodeId {
    NodeId(u16::from(node % 3) + 1)
}

impl<P: Spoken> World<P> {
    fn take(&mut self, step: Step) {
        match step {
            Step::Raw { node, bytes } => self.hand_over(other(node), bytes.into()),
            Step::Formed { node, from, to, body } => {
                let node = other(node);
                let site = u64::from(cluster::placement().site_of(node).0);
                let frame = Fields::default()
                    .fixed32(1, crc32c::crc32c(KEYSPACE.as_bytes()))
                    .uint(2, from.packed(site))
                    .uint(3, to.packed(0));
                self.hand_over(node, body.put::<P>(frame).0.into());
            }
            Step::Relay { changes } => self.relay(&changes),
            Step::Put { key, value } => {
                self.me.ask(self.clock, P::put(key.key(), value.map(Into::into)));
            }
            Step::PutAtPeer { key, value } => {
                self.peer
                    .ask(self.clock, P::put(key.key(), value.map(Into::into)));
            }
            Step::Get { key } => {
                self.me.ask(self.clock, P::get(key.key()));
            }
            Step::Turn => self.turn(),
            Step::Pass { ms } => self.clock.pass(ms.into()),
            Step::Maintain => {
                self.me.node.maintain().run(|| self.clock.now()).expect("the disks work");
            }
            Step::Checkpoint => self
                .me
                .node
                .checkpoint_now().run(|| self.clock.now())
                .expect("the disks work"),
            Step::CheckpointAtPeer => {
                let now = self.clock.now();
                self.peer.node.maintain().run(|| now).expect("the disks work");
                self.peer.node.checkpoint_now().run(|| now).expect("the disks work");
            }
            Step::Crash { power } => {
                self.me.crash(self.clock, power.map(u64::from));
                self.peer.node.link_down(self.clock.now(), ME);
                for node in 1..4 {
                    self.link(NodeId(node), true);
                }
            }
            Step::CrashPeer { power } => {
                self.peer.crash(self.clock, power.map(u64::from));
                self.me.node.link_down(self.clock.now(), PEER);
                self.link(PEER, true);
            }
            Step::LinkDown { node } => self.link(other(node), false),
            Step::LinkUp { node } => self.link(other(node), true),
        }
    }

    fn link(&self, node: NodeId, up: bool) {
        let now = self.clock.now();
        let set = |machine: &Machine<P>, with: NodeId| {
            machine.node.link_down(now, with);
            if up {
                machine.node.link_up(now, with);
            }
        };
        set(&self.me, node);
        if node == PEER {
            set(&self.peer, ME);
        }
    }

    /// A driver breaks the link over a frame that is refused.
    fn hand_over(&self, node: NodeId, frame: Bytes) {
        if self.me.node.is_link_up(node) && self.me.node.handle_frame(self.clock.now(), node, frame).is_err()
        {
            self.link(node, true);
        }
    }

    fn turn(&self) {
        let now = self.clock.now();
        for machine in [&self.me, &self.peer] {
            machine.node.tick(now);
            machine.turn(self.clock);
        }
        for node in [2, 3].map(NodeId) {
            if self.me.node.is_link_up(node) {
                self.me.frames(node);
            }
        }
    }

    fn relay(&self, changes: &[(u16, u8)]) {
        if !self.me.node.is_link_up(PEER) {
            return;
        }
        for frame in self.me.frames(PEER) {
            let result = self.peer.node.handle_frame(self.clock.now(), ME, frame);
            if result.is_err() {
                return self.link(PEER, true);
            }
        }
        self.turn();
        for (place, frame) in self.peer.frames(ME).into_iter().enumerate() {
            let mut frame = Vec::from(frame);
            if let Some(&(at, with)) = changes.get(place) {
                let at = usize::from(at) % frame.len();
                frame[at] ^= with;
            }
            self.hand_over(PEER, frame.into());
        }
    }

    /// Whatever came, the node serves its clients, and opens what it wrote.
    fn end(&mut self) {
        self.clock.pass(1_000);
        self.turn();
        self.me.node.maintain().run(|| self.clock.now()).expect("the disks work");
        // In the partition that stands on this node.
        let key = Key::from("last");
        let value = Bytes::from_static(b"a value");
        let put = self.me.ask(self.clock, P::put(key.clone(), Some(value.clone())));
        assert!(
            matches!(put, Some(Outcome::Answered(..))),
            "the node does not serve its clients"
        );
        self.me
            .node
            .checkpoint_now().run(|| self.clock.now())
            .expect("the disks work");
        self.me.crash(self.clock, Some(7));
        let got = self.me.ask(self.clock, P::get(key));
        let Some(Outcome::Answered(response, _)) = got else {
            panic!("the node does not serve its clients");
        };
        assert_eq!(P::value(response), Some(value));
    }
}
