//! A batch becomes a record of the log.
use super::Lane;
use crate::{
    entry::Written,
    record::{Record, WriteRecord},
};
use bytes::BytesMut;
use prost::Message;
use std::sync::atomic::Ordering;
use turnbuckle_core::{Hlc, Meta, Protocol, ReplicaId, ServerId, Write};
use turnbuckle_log::Log;
use turnbuckle_replication::{ReceivedRecord, StreamPosition};

/// The size of one piece of memory for encoded versions, in bytes.
const ARENA_BYTES: usize = 64 << 10;

/// The most memory of a large record that is kept for the next one, in bytes.
const KEPT_BYTES: usize = 1 << 20;

/// The memory in which records are built.
pub(crate) struct Records {
    /// Encoded versions are put here.
    arena: BytesMut,
    /// The last record. The next one overwrites it.
    encoded: Vec<u8>,
    /// The versions that were stamped here in this life.
    written: Written,
    /// What was stamped in this life is above this: see `difference.rs`.
    life: Hlc,
}

/// A record of a batch, and what else its writes say.
pub(super) struct Recorded {
    pub record: Record,
    /// A higher bound of the clock, if the batch has one.
    pub bound: Option<Hlc>,
}

impl Records {
    pub fn new() -> Records {
        Records {
            arena: BytesMut::with_capacity(ARENA_BYTES),
            encoded: Vec::new(),
            written: Written::default(),
            life: Hlc::LATEST,
        }
    }

    /// A life begins: what is stamped from now on is above this.
    pub fn begin_life(&mut self, above: Hlc) {
        self.life = above;
    }

    /// The versions that were stamped here in this life.
    pub fn written(&self) -> Written {
        self.written
    }

    /// Encodes a write for the log. A version is counted if `me` stamped it: those of a full copy are not counted.
    fn encode<M: Meta>(&mut self, me: ReplicaId, write: Write<M>) -> WriteRecord {
        let mut encoded = Written::default();
        let is_own = matches!(&write, Write::Put { version, .. } if version.id.replica == me);
        let record = WriteRecord::new(write, self.life, &mut self.arena, &mut encoded);
        if is_own {
            self.written.add(encoded);
        }
        record
    }

    /// A record that holds only a bound of the clock.
    pub fn of_bound<P: Protocol>(&mut self, tag: u32, me: ServerId, bound: Hlc) -> Record {
        let mut record = Record::new(tag, me);
        let write = Write::<P::Meta>::Bound(bound);
        record.writes.push(self.encode(me.replica(), write));
        record
    }

    /// Appends a record. Returns its end in the log.
    pub fn append(&mut self, log: &Log, record: &Record) -> turnbuckle_log::Position {
        self.encoded.clear();
        record.encode(&mut self.encoded).expect("a Vec grows");
        let end = log.append(&[&self.encoded]);
        self.encoded.shrink_to(KEPT_BYTES);
        end
    }
}

impl<P: Protocol> Lane<P> {
    /// A record of this lane without content.
    pub(super) fn empty_record(&self) -> Record {
        Record::new(self.env.tag(), self.me)
    }

    /// Appends a record that belongs to no batch.
    pub(super) fn append_record(&mut self, record: &Record) {
        self.records.append(self.env.shared().log(), record);
    }

    /// Builds the record of staged writes, and of the positions that other streams have reached with them.
    pub(super) fn record(
        &mut self,
        writes: impl ExactSizeIterator<Item = Write<P::Meta>>,
        received: &[(ReplicaId, StreamPosition)],
    ) -> Recorded {
        let mut record = self.empty_record();
        record.first_position = self.outgoing.next();
        record.incarnation = self.outgoing.incarnation();
        let received = received.iter();
        let received = received.map(|&(replica, position)| ReceivedRecord::new(replica, position));
        record.received = received.collect();
        record.writes.reserve(writes.len());
        let (mut bound, mut left_out) = (None, 0);
        for write in writes {
            match &write {
                Write::Put { to, .. } | Write::Hint { to, .. } if !to.is_empty() => {
                    self.outgoing.assign();
                }
                Write::Bound(higher) => bound = Some(*higher),
                Write::Put { .. } | Write::Hint { .. } | Write::Drop { .. } | Write::Named { .. } => {}
                Write::Append { .. } | Write::Truncate(_) | Write::Purge(_) => {}
            }
            self.beside.logged(&write);
            let written = self.records.encode(self.id, write);
            left_out += written.left_out();
            record.writes.push(written);
        }
        self.env
            .shared()
            .left_out_bytes
            .fetch_add(left_out, Ordering::Relaxed);
        Recorded { record, bound }
    }
}
