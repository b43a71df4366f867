//! A node over a commit log whose records are intact and hold anything: it says what is wrong with one, or opens, serves
//! clients and peers, and opens again.
#![no_main]

mod cluster;
mod wire;

use bytes::Bytes;
use cluster::{At, Clock, Entry, KEYSPACE, KeyName, Machine, Number, Site, Spoken, Stamp};
use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use std::sync::Arc;
use turnbuckle_causal::Eventual;
use turnbuckle_core::{Key, Outcome, PlainResponse};
use turnbuckle_log::{Log, Options, Position, SimulatedDisk};
use turnbuckle_node::NodeId;
use turnbuckle_store::MemoryEngine;
use wire::Fields;

#[derive(Debug, Arbitrary)]
struct Input {
    records: Vec<Record>,
    resume: Option<At>,
}

#[derive(Debug, Arbitrary)]
enum Record {
    Raw(Vec<u8>),
    Formed {
        partition: Option<Number>,
        /// None: where the stream has got to.
        first_position: Option<Number>,
        writes: Vec<Write>,
        received: Vec<(Site, At)>,
        opened: Option<(Number, Number, Stamp)>,
    },
}

#[derive(Debug, Arbitrary)]
enum Write {
    Put { entry: Entry, to: Option<Number> },
    Drop { key: KeyName, at: Stamp, site: Site },
    Named { name: String, bytes: Vec<u8> },
    Bound(Stamp),
    Empty,
}

impl Write {
    fn is_streamed(&self) -> bool {
        matches!(self, Write::Put { to, .. } if to.is_none_or(|to| to.value() != 0))
    }

    fn fields(&self) -> Fields {
        let fields = Fields::default();
        match self {
            Write::Put { entry, to } => fields
                .bytes(1, entry.bytes::<Eventual>())
                .uint(2, to.map_or(0b110, Number::value)),
            Write::Drop { key, at, site } => {
                let dropped = Fields::default()
                    .bytes(1, key.bytes())
                    .fixed64(2, at.value())
                    .uint(3, site.value());
                fields.message(3, &dropped)
            }
            Write::Named { name, bytes } => {
                fields.message(4, &Fields::default().bytes(1, name).bytes(2, bytes))
            }
            Write::Bound(bound) => fields.fixed64(5, bound.value()),
            Write::Empty => fields,
        }
    }
}

impl Record {
    /// Its bytes; `next` is the number of the stream's next entry.
    fn bytes(&self, next: &mut u64) -> Vec<u8> {
        match self {
            Record::Raw(bytes) => bytes.clone(),
            Record::Formed {
                partition,
                first_position,
                writes,
                received,
                opened,
            } => {
                let fields = Fields::default()
                    .fixed32(1, crc32c::crc32c(KEYSPACE.as_bytes()))
                    .uint(2, partition.map_or(0, Number::value))
                    .uint(4, first_position.map_or(*next, Number::value));
                *next += writes.iter().filter(|write| write.is_streamed()).count() as u64;
                let fields = fields.each(writes, |fields, write| fields.message(6, &write.fields()));
                let fields = fields.each(received, |fields, (site, at)| {
                    let At { incarnation, number } = at;
                    let received = Fields::default()
                        .uint(1, site.value())
                        .uint(2, incarnation.value())
                        .uint(3, number.value());
                    fields.message(7, &received)
                });
                let fields = fields.each(opened, |fields, (number, start, clock)| {
                    let opened = Fields::default()
                        .uint(1, number.value())
                        .uint(2, start.value())
                        .fixed64(3, clock.value());
                    fields.message(8, &opened)
                });
                fields.0
            }
        }
    }
}

fuzz_target!(|input: Input| {
    let (disk, engine) = (SimulatedDisk::new(), MemoryEngine::new());
    let log = Log::open(Arc::new(disk.clone()), Options::default(), Position(0), |_, _| {
        Ok(())
    })
    .expect("an empty disk is opened");
    let mut next = 1;
    for record in input.records.iter().take(64) {
        log.append(&[&record.bytes(&mut next)]);
    }
    log.write().expect("the disk works");
    log.sync().expect("the disk works");
    disk.crash_process();
    let mut clock = Clock::default();
    let mut machine = match Machine::<Eventual>::over(NodeId(0), disk, engine, clock) {
        Ok(machine) => machine,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let peer = NodeId(1);
    machine.node.link_up(clock.now(), peer);
    if let Some(at) = input.resume {
        let frame = Fields::default()
            .fixed32(1, crc32c::crc32c(KEYSPACE.as_bytes()))
            .uint(2, 1 << 32)
            .message(10, &at.fields());
        let _ = machine.node.handle_frame(clock.now(), peer, frame.0.into());
    }
    // In the partition that stands on this node.
    let key = Key::from("last");
    let value = Bytes::from_static(b"a value");
    let put = machine.ask(clock, Eventual::put(key.clone(), Some(value.clone())));
    assert!(
        matches!(put, Some(Outcome::Answered(PlainResponse::Written { .. }, _))),
        "{put:?}"
    );
    machine.frames(peer);
    clock.pass(100);
    machine.node.tick(clock.now());
    machine.turn(clock);
    machine.node.checkpoint_now().run(|| clock.now()).expect("the disks work");
    machine.frames(peer);
    machine.crash(clock, Some(7));
    let got = machine.ask(clock, Eventual::get(key));
    assert!(
        matches!(&got, Some(Outcome::Answered(PlainResponse::Value(Some(found)), _)) if *found == value),
        "{got:?}"
    );
});
