//! What the sessions of one gateway share: the servers that they can ask, and what they know together.
use std::{collections::BTreeMap, sync::Arc};
use turnbuckle_core::{
    Micros, Now, Protocol, Reach, Receipt, Route, ServerId, Session, SessionContext, SessionStep, SiteId,
};
use turnbuckle_node::{Keyspace, NodeId};

/// What the sessions of one keyspace share.
pub(crate) struct SharedState<S: Session> {
    servers: Servers<S::Protocol>,
    shared: S::Shared,
    patience: Micros,
}

impl<S: Session> SharedState<S> {
    pub fn new(keyspace: Arc<Keyspace<S::Protocol>>, patience: Micros) -> SharedState<S> {
        SharedState {
            servers: Servers {
                keyspace,
                seen_from: None,
                round_trips: BTreeMap::new(),
            },
            shared: S::Shared::default(),
            patience,
        }
    }

    /// The context of a session: what it sees, and how it acts. `seen_from`: the session sees only the servers of this site, as if it were there.
    pub fn context<'a>(
        &'a mut self,
        now: Now,
        seen_from: Option<SiteId>,
        steps: &'a mut Vec<SessionStep<S>>,
    ) -> SessionContext<'a, S> {
        self.servers.seen_from = seen_from;
        SessionContext {
            now,
            patience: self.patience,
            shared: &mut self.shared,
            reach: &self.servers,
            steps,
        }
    }

    /// Takes note that a server took this long to answer. Only answers of other nodes count.
    pub fn learn(&mut self, took: Micros, receipt: &Receipt) {
        if receipt.route == Route::Forwarded {
            let node = self.servers.keyspace.node_of(receipt.server);
            let round_trip = took.since(receipt.waited);
            let smoothed = self.servers.round_trips.entry(node).or_insert(round_trip);
            *smoothed = smooth(*smoothed, round_trip);
        }
    }
}

/// The servers that can be asked, and the round trips to their nodes.
struct Servers<P: Protocol> {
    keyspace: Arc<Keyspace<P>>,
    /// The only site whose servers are seen. `None`: all are.
    seen_from: Option<SiteId>,
    /// The smoothed round trip to each node.
    round_trips: BTreeMap<NodeId, Micros>,
}

impl<P: Protocol> Reach for Servers<P> {
    fn nearest(&self, partition: u16) -> ServerId {
        match self.seen_from {
            None => self.keyspace.nearest(partition),
            Some(site) => self.keyspace.nearest_at(site, partition),
        }
    }

    fn nearest_elsewhere(&self, partition: u16) -> Option<ServerId> {
        match self.seen_from {
            None => self.keyspace.nearest_elsewhere(partition),
            Some(_) => None,
        }
    }

    fn is_reached(&self, server: ServerId) -> bool {
        self.keyspace.is_reached(server)
    }

    fn round_trip(&self, server: ServerId) -> Option<Micros> {
        match self.keyspace.is_here(server) {
            true => Some(Micros(0)),
            false => self.round_trips.get(&self.keyspace.node_of(server)).copied(),
        }
    }
}

/// Smooths round trips as TCP does: a new one counts for an eighth (RFC 6298, 2.3).
fn smooth(so_far: Micros, new: Micros) -> Micros {
    Micros(so_far.0 - so_far.0 / 8 + new.0 / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_follows_what_is_seen_and_not_a_single_outlier() {
        let calm = Micros(80_000);
        let once = smooth(calm, Micros(800_000));
        assert_eq!(once, Micros(170_000));
        let again = (0..40).fold(once, |so_far, _| smooth(so_far, calm));
        assert!((again.0).abs_diff(calm.0) < 1_000, "{again}");
    }
}
