//! What comes in: the streams of other sites in their order, and keys that were fetched from disk.
use super::{
    Lane,
    waiting::{Question, Waiting},
};
use crate::{entry, pending::Item};
use bytes::Bytes;
use turnbuckle_core::{
    Hlc, Input, Key, Now, Outcome, Protocol, ReplicaId, ReplicaSet, Version, Versions, Wire,
};
use turnbuckle_replication::{CursorState, StreamPosition};
use turnbuckle_store::StoreError;

/// How many entries of a stream are looked at ahead for keys to read from disk.
const AHEAD: usize = 16;

impl<P: Protocol> Lane<P> {
    /// Hands on what has arrived from a site, in order, as far as its keys are in memory.
    pub fn drain(&mut self, now: Now, replica: ReplicaId) {
        // The source stops a window ahead of what is acknowledged.
        if !self.env.shared().has_room() {
            return;
        }
        let from = self.me.peer(replica);
        let horizon = self.horizon(now);
        let waits_until = match self.env.shared().config.planted.copy_ignores_arrivals {
            true => Hlc::ZERO,
            false => self.covered_by_placing(replica),
        };
        while let Some(item) = self
            .incoming
            .get(&replica)
            .and_then(|incoming| incoming.pending.front())
        {
            let newest = match item {
                Item::Entry { version, .. } | Item::Returned { version, .. } => entry::newest(version),
                Item::Mark(message) => message.newest(),
                Item::ReturnedEnd(returned) => {
                    returned.cut.iter().map(|&(_, at)| at).max().unwrap_or_default()
                }
                Item::Reached(_) => Hlc::ZERO,
            };
            if newest > horizon {
                self.hold(replica, newest);
                break;
            }
            // The copy that is being put in place speaks for it: see `placing`.
            if let Item::Entry { version, .. } = item
                && version.id.at <= waits_until
            {
                break;
            }
            if let Item::Entry { key, .. } | Item::Returned { key, .. } = item
                && (!self.store.is_resident(key.as_ref()) || self.cold.blocks(key))
            {
                let incoming = self.incoming.get(&replica).expect("just seen");
                let is_needed = |key: &&Key| !self.store.is_resident(key.as_ref()) || self.cold.blocks(key);
                let next: Vec<&Key> = incoming.pending.next_keys(AHEAD).filter(is_needed).collect();
                self.cold.want_first(next.into_iter());
                self.wake_worker();
                break;
            }
            let incoming = self.incoming.get_mut(&replica).expect("just seen");
            let covered = incoming.covered;
            let item = incoming.pending.pop().expect("just seen");
            self.held_peers.remove(&replica);
            self.moved = true;
            match item {
                Item::Entry {
                    key,
                    version,
                    encoded,
                    at,
                } => {
                    incoming.received = at;
                    if self.is_dropped(&key, &version) {
                        continue;
                    }
                    // One that is covered was here, and something newer came; that may have been collected.
                    if version.id.at > covered {
                        self.handle(
                            now,
                            Input::Replicated {
                                from,
                                key,
                                version,
                                encoded,
                            },
                        );
                    }
                }
                Item::Returned { key, version } => {
                    let encoded = Bytes::new();
                    self.handle(
                        now,
                        Input::Replicated {
                            from: self.me,
                            key,
                            version,
                            encoded,
                        },
                    );
                }
                Item::Reached(position) => incoming.received = position,
                Item::Mark(message) => self.handle(now, Input::Mark { from, message }),
                Item::ReturnedEnd(returned) => {
                    self.handle(now, Input::Returned { from, returned });
                    self.taken.push(replica);
                }
            }
        }
        self.finish_input(now);
    }

    /// What waits of a peer that was too far ahead, or for a key that could not be read, gets another chance.
    pub fn retry_pending(&mut self, now: Now) {
        let waiting = self
            .incoming
            .iter()
            .filter(|(_, incoming)| incoming.pending.front().is_some());
        for replica in waiting.map(|(&replica, _)| replica).collect::<Vec<_>>() {
            self.drain(now, replica);
        }
        self.ask_for_copy();
    }

    /// Whether a planted bug loses an entry.
    fn is_dropped(&mut self, key: &Key, version: &Version<P::Meta>) -> bool {
        let planted = &self.env.shared().config.planted;
        // A new node's stream is in its first incarnation.
        if planted.drops_after_restart && self.outgoing.incarnations().len() > 1 && !self.has_dropped {
            self.has_dropped = true;
            return true;
        }
        planted.ties_by_arrival
            && self
                .store
                .chain(key.as_ref())
                .is_some_and(|chain| chain.newest().id.at == version.id.at)
    }

    /// A timestamp too far ahead would drag this clock along: the link waits until time has caught up.
    pub fn hold(&mut self, replica: ReplicaId, at: Hlc) {
        if self.held_peers.insert(replica, at).is_none() {
            tracing::error!(
                keyspace = self.env.name(),
                peer = self.env.topology().replica_name(replica),
                "its timestamps are ahead of this clock (next {at}): held until time has caught up; check both clocks"
            );
        }
    }

    /// What a peer gave back is on disk.
    pub fn taken_back(&mut self, replica: ReplicaId) {
        let state = self.outgoing.cursor(replica).map(|cursor| cursor.state);
        if let Some(CursorState::TakingHeld { at, held }) = state {
            return self.took_held(replica, at, held);
        }
        let Some(CursorState::TakingBack { end }) = state else {
            return;
        };
        // Not the place of one that has nothing: it is asked once more if this directory is lost before the copy is there.
        let number = end.unwrap_or_default();
        let position = StreamPosition {
            incarnation: self.outgoing.incarnation_of(number),
            number,
        };
        if let Some(cursor) = self.outgoing.cursor(replica) {
            cursor.set_state(CursorState::Streaming { sent: number });
            cursor.acked = number;
        }
        self.settle_peer(replica);
        if end.is_none() {
            self.want_copy(replica, None, number);
        }
        if let Some(cursor) = self.outgoing.cursor(replica) {
            cursor.begins = Some(position);
        }
        self.wake_links(ReplicaSet::one(replica));
    }

    /// A peer holds nothing that was lost here.
    pub fn settle_peer(&mut self, replica: ReplicaId) {
        self.unsettled = self.unsettled.without(replica);
        self.hear_return(replica);
        if self.unsettled.0 == 0 && !self.given_back {
            self.log_given_back();
        }
    }

    /// A key was fetched: what waited for it goes on.
    pub fn fetched(&mut self, now: Now, key: &Key) {
        self.cold.fetched(key);
        loop {
            let store = &self.store;
            match self.cold.take_runnable(|key| store.is_resident(key.as_ref())) {
                None => break,
                Some(Waiting::Question(Question { id, request, since })) => {
                    self.handle(now, Input::Request { id, request, since });
                }
                Some(Waiting::Message { from, message }) => {
                    self.handle(now, Input::Message { from, message })
                }
                Some(Waiting::Timer { timer, .. }) => self.handle(now, Input::Resident { timer }),
            }
        }
        for replica in self.incoming.keys().copied().collect::<Vec<_>>() {
            self.drain(now, replica);
        }
        self.finish_input(now);
    }

    /// A key could not be read: what waited for it is refused.
    pub fn fetch_failed(&mut self, key: &Key, why: &StoreError) {
        self.cold.fetched(key);
        self.note_damage(why);
        for failed in self.cold.take_failed(key) {
            match failed {
                Waiting::Question(question) => {
                    let refused = match why.is_damage() {
                        true => format!(
                            "the row of the key is damaged on this node's disk, and not back from another site yet: {why}"
                        ),
                        false => format!("the key cannot be read from disk: {why}"),
                    };
                    self.deliver(question.id, Outcome::Refused(refused));
                }
                // It is lost, which its sender is prepared for.
                Waiting::Message { .. } => {}
                Waiting::Timer { keys, timer } => self.unread.push((keys, timer)),
            }
        }
    }
}
