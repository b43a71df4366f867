//! Staged writes go to the log, and what waits for them is released.
use super::{Lane, in_log::Logged, records::Recorded};
use crate::{durability::Durability, shared::SyncWish};
use std::collections::BTreeMap;
use turnbuckle_core::{Batch, Now, Protocol, ReplicaId};
use turnbuckle_log::Position;
use turnbuckle_replication::{EarlierIncarnations, Entry, StreamBody, StreamPosition};

impl<P: Protocol> Lane<P> {
    /// Appends what is staged to the log, as one record.
    pub fn append(&mut self) {
        let mut batch = self.replica.take_batch();
        let received = self.incoming.take_moved();
        let givers = self.take_givers();
        if batch.is_none() && received.is_empty() && givers.is_empty() {
            return;
        }
        let from = self.env.shared().log().end();
        let mut nothing = Vec::new();
        let writes = batch.as_mut().map_or(&mut nothing, |batch| &mut batch.writes);
        let Recorded { record, bound } = self.record(writes.drain(..), &received);
        let end = self.records.append(self.env.shared().log(), &record);
        // With room for the entries alone: the list of writes is larger, and would be kept until the batch is durable.
        let streamed = self.outgoing.next() - record.first_position;
        let mut entries: Vec<Entry> = Vec::with_capacity(streamed as usize);
        entries.extend(record.into_entries());
        if let Some(first) = entries.first() {
            self.outgoing.note_position(first.number, from);
        }
        let must_sync = batch.as_ref().is_some_and(|batch| batch.must_sync);
        // Versions that a peer restored must not be lost once more: the peer forgets that it held more than this lane.
        let sync = must_sync || !givers.is_empty() || matches!(self.env.durability(), Durability::Fsync);
        let number = batch.as_ref().map(|batch| batch.number);
        let logged = Logged {
            number,
            end,
            sync,
            entries,
            received,
            givers,
        };
        self.in_log.push(logged, bound);
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

    /// The log is written up to `written` and synced up to `synced`: what waited for that is released. Returns whether more waits.
    pub fn release(&mut self, now: Now, written: Position, synced: Position) -> bool {
        while let Some(bound) = self.in_log.take_bound(synced) {
            self.replica.handle_bound_synced(bound);
        }
        let mut acks: BTreeMap<ReplicaId, StreamPosition> = BTreeMap::new();
        while let Some(batch) = self.in_log.take_batch(written, synced) {
            acks.extend(batch.received.iter().copied());
            self.let_go(now, batch);
        }
        for (replica, position) in acks {
            self.say(self.me.peer(replica), StreamBody::Ack(position.into()));
        }
        self.settle_promises();
        self.finish_input(now);
        self.go_on_making(now);
        // Only when the batch is written: a sync that was asked for earlier might have ended before that.
        match self.in_log.sync_wish(self.env.durability() != Durability::None) {
            SyncWish::None => {}
            wish => self.want_sync(wish),
        }
        !self.in_log.is_empty()
    }

    /// A batch is durable: its outputs, entries and acknowledgements are released.
    fn let_go(&mut self, now: Now, batch: Logged) {
        if let Some(number) = batch.number {
            self.replica.handle_durable(number);
        }
        let mut entries = batch.entries;
        if self.env.shared().config.planted.outputs_swapped {
            std::mem::swap(&mut entries, &mut self.planted.swapped);
            self.route();
        }
        if !entries.is_empty() && self.outgoing.make_ready(now.monotonic, entries) {
            let others = self.env.topology().others_of(self.me);
            // What had to be synced here is what others are to acknowledge.
            match batch.sync {
                true => self.wake_links_at_once(others),
                false => self.wake_links(others),
            }
        }
        for replica in batch.givers {
            self.taken_back(replica);
        }
    }

    /// No power loss takes what is synced any more: the replica may promise it in its next mark.
    pub(super) fn settle_promises(&mut self) {
        let is_settled = self.lives().is_none_or(EarlierIncarnations::is_settled);
        let synced = self.in_log.take_promises(self.env.shared().log().synced());
        for (promise, number) in synced.filter(|_| is_settled) {
            self.replica.handle_mark_synced(promise, number);
        }
    }

    /// Whether anything that may have staged a write was done since the last call.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// Looks at keys that are asked for soon.
    pub fn look_ahead<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) {
        self.store.look_ahead(keys);
    }

    /// Whether something is appended to the log and not yet durable.
    pub fn is_waiting(&self) -> bool {
        self.in_log.has_batches()
    }
}
