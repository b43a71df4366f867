//! What a client has waited for, and what a message stands behind.
//!
//! If a client is told that all other sites have what its session has seen and written, every answer to what is asked for later shows that, or something newer:
//! the answers of all replicas, to all clients, at all levels. So what the session's answers must show of each key is from then on asked of everybody. If fewer sites
//! are counted, it is not known which of them they are, and nothing follows.
//!
//! If clients of a site hear a message to a channel, the same is asked of this site's replicas, for what the publisher's session had seen.
//!
//! Once a node of the site was started again, it is not known for a while what is stable there, and sessions that have seen nothing are shown less. That is excused.
//!
//! A snapshot is as of what is stable at the site, and what was written there is not at once. So a snapshot of another session may lack the newest of it for a moment. That is
//! excused, too.
//!
//! Where a partition has several members at a site, one of them has answered for it. So nothing follows there.
use super::{Floors, Judge, Raised, Witness, key::OfKey};
use crate::{OperationId, Record};
use bytes::Bytes;
use turnbuckle_core::{Micros, SiteId};

/// What a session had seen when it asked for an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    id: OperationId,
    client: usize,
    session: u32,
    before: u64,
    /// When it was asked for: the site has answered later.
    at: Micros,
}

impl Seen {
    pub fn by(id: OperationId, record: &Record) -> Seen {
        Seen {
            id,
            client: record.client,
            session: record.session,
            before: record.before,
            at: record.invoked,
        }
    }

    /// The highest floor of a key.
    fn of(&self, of_key: &OfKey) -> Option<Raised> {
        let floors = of_key.floors.get(&Witness::Session(self.client, self.session))?;
        let is_before = |raised: &&Raised| {
            raised.number <= self.before || raised.client == self.client && raised.id < self.id
        };
        floors.iter().find(is_before).copied()
    }
}

impl Judge {
    /// A client was told that this number of other sites have what its session has seen.
    pub(super) fn waited_for(&mut self, id: OperationId, record: &Record, sites: u16) {
        let is_all = usize::from(sites) + 1 >= self.topology.site_count();
        if is_all {
            let client = record.client;
            self.is_there(Seen::by(id, record), client, |of_key| &mut of_key.waited);
        }
    }

    /// Clients of a site hear a message.
    pub(crate) fn heard(&mut self, site: SiteId, text: &Bytes) {
        if self.sleeps {
            return;
        }
        if let Some(&seen) = self.publications.get(text) {
            self.number += 1;
            // It binds nothing that was asked for before, not even by the publisher, which may be at this site with a new session by then.
            let nobody = usize::MAX;
            self.is_there(seen, nobody, |of_key| of_key.heard.entry(site).or_default());
        }
    }

    /// What a session had seen is there from now on, and for this client after the operation.
    fn is_there(&mut self, seen: Seen, client: usize, floors: impl Fn(&mut OfKey) -> &mut Floors) {
        if self.topology.members().max() > 1 || !self.has_sessions {
            return;
        }
        for of_key in self.keys.values_mut() {
            let Some(highest) = seen.of(of_key) else {
                continue;
            };
            let raised = Raised {
                number: self.number,
                id: seen.id,
                client,
                at: seen.at,
                ..highest
            };
            floors(of_key).raise(raised, |known| known.floor.version == raised.floor.version);
        }
    }
}
