//! A batch becomes a record of the log.
use super::Lane;
use crate::{
    entry::Written,
    record::{Record, WriteRecord},
};
use bytes::BytesMut;
use prost::Message;
use turnbuckle_core::{Hlc, Protocol, ReplicaId, ServerId, Write};
use turnbuckle_log::Log;
use turnbuckle_replication::{Entry, ReceivedRecord, StreamPosition};

/// How much memory is taken at a time for encoded versions.
const ARENA_BYTES: usize = 64 << 10;

/// How much of a large record's memory is kept for the next one.
const KEPT_BYTES: usize = 1 << 20;

/// The memory that records are made in.
pub(crate) struct Records {
    /// Versions are encoded into it.
    arena: BytesMut,
    /// The last record, to be overwritten by the next.
    encoded: Vec<u8>,
    /// What was stamped here in this life.
    written: Written,
}

/// What a record is made of, beside its writes.
pub(super) struct Recorded {
    pub record: Record,
    /// The entries of the lane's stream in it.
    pub entries: Vec<Entry>,
    /// A higher bound of the clock.
    pub bound: Option<Hlc>,
}

impl Records {
    pub fn new() -> Records {
        Records {
            arena: BytesMut::with_capacity(ARENA_BYTES),
            encoded: Vec::new(),
            written: Written::default(),
        }
    }

    /// What was stamped here in this life.
    pub fn written(&self) -> Written {
        self.written
    }

    /// A write as it is logged. It is counted if it was stamped by `me`: not those of a full copy.
    fn encode<M: turnbuckle_core::Wire>(&mut self, me: ReplicaId, write: &Write<M>) -> WriteRecord {
        let mut encoded = Written::default();
        let record = WriteRecord::new(write, &mut self.arena, &mut encoded);
        if matches!(write, Write::Put { version, .. } if version.id.replica == me) {
            self.written.add(encoded);
        }
        record
    }

    /// A record that is one bound of the clock.
    pub fn of_bound<P: Protocol>(&mut self, tag: u32, me: ServerId, bound: Hlc) -> Record {
        let mut record = Record::new(tag, me);
        let write = Write::<P::Meta>::Bound(bound);
        record.writes.push(self.encode(me.replica(), &write));
        record
    }

    /// Appends a record. Returns where it ends.
    pub fn append(&mut self, log: &Log, record: &Record) -> turnbuckle_log::Position {
        self.encoded.clear();
        record.encode(&mut self.encoded).expect("a Vec grows");
        let end = log.append(&[&self.encoded]);
        self.encoded.shrink_to(KEPT_BYTES);
        end
    }
}

impl<P: Protocol> Lane<P> {
    /// A record that says nothing yet.
    pub(super) fn empty_record(&self) -> Record {
        Record::new(self.env.tag(), self.me)
    }

    /// Appends a record that no batch belongs to.
    pub(super) fn append_record(&mut self, record: &Record) {
        self.records.append(self.env.shared().log(), record);
    }

    /// The record of what is staged, and of how far other streams have come with it.
    pub(super) fn record(
        &mut self,
        writes: &[Write<P::Meta>],
        received: &[(ReplicaId, StreamPosition)],
    ) -> Recorded {
        let mut record = self.empty_record();
        record.first_position = self.outgoing.next();
        record.incarnation = self.outgoing.incarnation();
        let received = received.iter();
        let received = received.map(|&(replica, position)| ReceivedRecord::new(replica, position));
        record.received = received.collect();
        record.writes.reserve(writes.len());
        let (mut entries, mut bound) = (Vec::new(), None);
        for write in writes {
            let written = self.records.encode(self.id, write);
            match write {
                Write::Put { to, .. } | Write::Hint { to, .. } if !to.is_empty() => {
                    let bytes = written.entry.clone().expect("what is streamed has an entry");
                    let number = self.outgoing.assign();
                    entries.push(Entry {
                        number,
                        to: *to,
                        bytes,
                    });
                }
                Write::Bound(higher) => bound = Some(*higher),
                Write::Put { .. } | Write::Hint { .. } | Write::Drop { .. } | Write::Named { .. } => {}
                Write::Append { .. } | Write::Truncate(_) | Write::Purge(_) => {}
            }
            self.beside.logged(write);
            record.writes.push(written);
        }
        Recorded {
            record,
            entries,
            bound,
        }
    }
}
