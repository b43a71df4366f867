//! What is staged goes to the log, and what waits for that is let go.
use super::{Lane, Logged};
use crate::{
    durability::Durability,
    entry::Written,
    record::{Record, WriteRecord},
};
use prost::Message;
use std::collections::BTreeMap;
use turnbuckle_core::{Batch, Hlc, Now, Protocol, ReplicaId, Write};
use turnbuckle_log::Position;
use turnbuckle_replication::{Entry, ReceivedRecord, StreamBody, StreamPosition};

/// How much of a large record's memory is kept for the next one.
const KEPT_BYTES: usize = 1 << 20;

impl<P: Protocol> Lane<P> {
    /// Appends what is staged to the log, as one record.
    pub fn append(&mut self) {
        let batch = self.replica.take_batch();
        let received = self.take_received();
        let taken = std::mem::take(&mut self.taken);
        if batch.is_none() && received.is_empty() && taken.is_empty() {
            return;
        }
        let from = self.env.shared().log().end();
        let (record, entries, bound) =
            self.record(batch.as_ref().map_or(&[], |batch| &batch.writes), &received);
        self.encoded.clear();
        record.encode(&mut self.encoded).expect("a Vec grows");
        let end = self.env.shared().log().append(&[&self.encoded]);
        self.encoded.shrink_to(KEPT_BYTES);
        if let Some(first) = entries.first() {
            self.outgoing.note_position(first.number, from);
        }
        let must_sync = batch.as_ref().is_some_and(|batch| batch.must_sync);
        // What was given back is not to be lost once more: the peer forgets that it was ahead.
        let sync = must_sync || !taken.is_empty() || matches!(self.env.durability(), Durability::Fsync);
        if let Some(bound) = bound {
            self.bound = bound;
            self.bounds.push_back((end, bound));
        }
        let number = batch.as_ref().map(|batch| batch.number);
        self.logged.push_back(Logged {
            number,
            end,
            sync,
            entries,
            received,
            taken,
        });
        if let Some(Batch { writes, .. }) = batch {
            self.replica.recycle(writes);
        }
        if self.env.shared().config.planted.answers_early
            && let Some(number) = number
        {
            self.replica.handle_durable(number);
            self.route();
        }
    }

    fn take_received(&mut self) -> Vec<(ReplicaId, StreamPosition)> {
        let moved = self
            .incoming
            .iter_mut()
            .filter(|(_, incoming)| incoming.logged != incoming.received);
        moved
            .map(|(&replica, incoming)| {
                incoming.logged = incoming.received;
                (replica, incoming.received)
            })
            .collect()
    }

    fn record(
        &mut self,
        writes: &[Write<P::Meta>],
        received: &[(ReplicaId, StreamPosition)],
    ) -> (Record, Vec<Entry>, Option<Hlc>) {
        let mut record = Record::new(self.env.tag(), self.me);
        record.first_position = self.outgoing.next();
        record.incarnation = self.outgoing.incarnation();
        record.received = received
            .iter()
            .map(|&(replica, position)| ReceivedRecord::new(replica, position))
            .collect();
        record.writes.reserve(writes.len());
        let (mut entries, mut bound) = (Vec::new(), None);
        for write in writes {
            let mut encoded = Written::default();
            let written = WriteRecord::new(write, &mut self.arena, &mut encoded);
            // Not those of a full copy.
            if matches!(write, Write::Put { version, .. } if version.id.replica == self.id) {
                self.written.add(encoded);
            }
            match write {
                Write::Put { to, .. } | Write::Hint { to, .. } if !to.is_empty() => {
                    let bytes = written.entry.clone().expect("what is streamed has an entry");
                    entries.push(Entry {
                        number: self.outgoing.assign(),
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
        (record, entries, bound)
    }

    /// The log has everything up to `written` and on disk up to `synced`: what was held behind it goes out. Returns whether more waits.
    pub fn release(&mut self, now: Now, written: Position, synced: Position) -> bool {
        while self.bounds.front().is_some_and(|&(end, _)| end <= synced) {
            let (_, bound) = self.bounds.pop_front().expect("just seen");
            self.replica.handle_bound_synced(bound);
        }
        let mut acks: BTreeMap<ReplicaId, StreamPosition> = BTreeMap::new();
        while self
            .logged
            .front()
            .is_some_and(|batch| batch.end <= if batch.sync { synced } else { written })
        {
            let batch = self.logged.pop_front().expect("just seen");
            if let Some(number) = batch.number {
                self.replica.handle_durable(number);
            }
            let mut entries = batch.entries;
            if self.env.shared().config.planted.outputs_swapped {
                std::mem::swap(&mut entries, &mut self.swapped);
                self.route();
            }
            if !entries.is_empty() && self.outgoing.make_ready(now.monotonic, entries) {
                self.wake_links(self.env.topology().others_of(self.me));
            }
            acks.extend(batch.received);
            for replica in batch.taken {
                self.taken_back(replica);
            }
        }
        for (replica, position) in acks {
            self.say(self.me.peer(replica), StreamBody::Ack(position.into()));
        }
        self.settle_promises();
        self.finish_input(now);
        // Only now that it is written: a sync that was asked for earlier might have been over before.
        if self.waits_for_sync() {
            self.want_sync();
        }
        !self.logged.is_empty() || !self.bounds.is_empty() || !self.promises.is_empty()
    }

    /// Whether something is held until the log has been synced, and no interval brings that about.
    fn waits_for_sync(&self) -> bool {
        let promises = !self.promises.is_empty() && self.env.durability() == Durability::None;
        promises || !self.bounds.is_empty() || self.logged.front().is_some_and(|batch| batch.sync)
    }

    /// Whether anything was done since the last call that may have staged something.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Whether something is appended and not yet durable.
    pub fn is_waiting(&self) -> bool {
        !self.logged.is_empty()
    }
}
