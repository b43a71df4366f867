//! What lanes of one node tell each other: each has an inbox, and nobody holds two lanes' locks.
use super::Keyspace;
use crate::{
    frame::{Body, Frame},
    shared::held,
};
use bytes::BytesMut;
use std::sync::atomic::Ordering;
use turnbuckle_core::{Now, Protocol, ServerId, SiteSet, Wire};
use turnbuckle_replication::StreamBody;

/// How many messages between the lanes of a keyspace are handled before others are served.
const MOST_MESSAGES: usize = 256;

impl<P: Protocol> Keyspace<P> {
    // ---- between replicas -----------------------------------------------------------------------------------

    /// A replica's message: to the inbox of one on this node, else to the link.
    pub(super) fn send(&self, from: ServerId, to: ServerId, message: P::Message) {
        if let Some(place) = self.place_of(to) {
            held(&self.lanes()[place].inbox).push_back((from, message));
            self.note_busy(place);
            return;
        }
        if !self.topology().contains(to) {
            return;
        }
        let mut body = BytesMut::new();
        message.encode(&mut body);
        let frame = Frame::new(self.tag(), from, to, Body::Message(body.freeze()));
        let _ = self.shared().send(self.node_of(to), &frame);
    }

    /// Lost if there is no way: so are messages, and what else is said comes again when the link does.
    pub(super) fn say(&self, from: ServerId, to: ServerId, body: StreamBody) {
        let frame = Frame::of_stream(self.tag(), from, to, body);
        let _ = self.shared().send(self.node_of(to), &frame);
    }

    /// Streams or marks wait for the partition's replicas at these sites.
    pub(super) fn wake_links(&self, from: ServerId, to: SiteSet) {
        for site in self
            .topology()
            .sites()
            .filter(|&site| site != from.site && to.contains(site))
        {
            self.shared()
                .wake
                .wake_link(self.node_of(self.topology().peer_at(from, site)));
        }
    }

    /// Steps the lanes that others on this node have sent something, until their inboxes are empty or a share of messages is handled. A read of
    /// many keys is as many messages: the first loop is woken to go on with what is left, and serves others in between.
    pub(crate) fn run_inboxes(&self, now: Now) {
        let mut left = MOST_MESSAGES;
        while left > 0 {
            let Some(place) = ({ held(&self.busy).pop_front() }) else {
                return;
            };
            let cell = &self.lanes()[place];
            // Whatever comes from here on notes it again.
            cell.is_noted.store(false, Ordering::Release);
            if held(&cell.inbox).is_empty() {
                continue;
            }
            let mut lane = self.enter(cell);
            while left > 0
                && let Some((from, message)) = { held(&cell.inbox).pop_front() }
            {
                lane.hear(now, from, message);
                left -= 1;
            }
            drop(lane);
            if left == 0 && !held(&cell.inbox).is_empty() {
                self.note_busy(place);
            }
        }
        if !held(&self.busy).is_empty() {
            self.shared().wake.wake_loop(0);
        }
    }

    /// Something is in a lane's inbox. It stands in the list once, however much that is.
    fn note_busy(&self, place: usize) {
        if !self.lanes()[place].is_noted.swap(true, Ordering::AcqRel) {
            held(&self.busy).push_back(place);
        }
    }
}
