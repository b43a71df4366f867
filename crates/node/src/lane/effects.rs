//! What a lane wants done. A lane acts on nothing outside itself: it emits effects, and its keyspace performs them in their order, while
//! the lane is still locked.
use super::Lane;
use crate::shared::SyncWish;
use turnbuckle_core::{Outcome, Protocol, ReplicaSet, RequestId, ServerId};
use turnbuckle_replication::StreamBody;

/// One thing to be done.
pub(crate) enum Effect<P: Protocol> {
    /// Answer a request.
    Deliver {
        id: RequestId,
        outcome: Outcome<P::Response>,
    },
    /// Tell that an answer is durable which was heard ahead.
    Confirm { id: RequestId },
    /// Hand a message to another replica, on this node or on another one.
    Send { to: ServerId, message: P::Message },
    /// Send a stream's frame to a server on another node. If the link is down or full, the frame is lost: messages may be lost, and all
    /// else is sent again when the link comes up.
    Say { to: ServerId, body: StreamBody },
    /// Entries or marks wait for these replicas of the partition: their links are woken.
    WakeLinks {
        to: ReplicaSet,
        /// Whether an operation waits until they have them.
        is_urgent: bool,
    },
    /// Background work waits: the worker is woken.
    WakeWorker,
    /// Something waits until the log has been synced: a sync is asked for.
    Sync(SyncWish),
}

impl<P: Protocol> Lane<P> {
    pub(super) fn deliver(&mut self, id: RequestId, outcome: Outcome<P::Response>) {
        self.effects.push(Effect::Deliver { id, outcome });
    }

    pub(super) fn confirm(&mut self, id: RequestId) {
        self.effects.push(Effect::Confirm { id });
    }

    /// Takes the answer to a request out of the effects, if it is there. Other answers stay, to be delivered.
    pub(crate) fn take_answer(&mut self, asked: RequestId) -> Option<Outcome<P::Response>> {
        let is_asked = |effect: &Effect<P>| matches!(effect, Effect::Deliver { id, .. } if *id == asked);
        let place = self.effects.iter().rposition(is_asked)?;
        match self.effects.remove(place) {
            Effect::Deliver { outcome, .. } => Some(outcome),
            _ => unreachable!("it was just seen to be an answer"),
        }
    }

    pub(super) fn send(&mut self, to: ServerId, message: P::Message) {
        self.effects.push(Effect::Send { to, message });
    }

    pub(super) fn say(&mut self, to: ServerId, body: StreamBody) {
        self.effects.push(Effect::Say { to, body });
    }

    pub(super) fn wake_links(&mut self, to: ReplicaSet) {
        let is_urgent = false;
        self.effects.push(Effect::WakeLinks { to, is_urgent });
    }

    pub(super) fn wake_links_at_once(&mut self, to: ReplicaSet) {
        let is_urgent = true;
        self.effects.push(Effect::WakeLinks { to, is_urgent });
    }

    pub(super) fn wake_worker(&mut self) {
        self.effects.push(Effect::WakeWorker);
    }

    pub(super) fn want_sync(&mut self, wish: SyncWish) {
        self.effects.push(Effect::Sync(wish));
    }
}
