//! What a client has waited for.
//!
//! If a client is told that all other sites have what its session has seen and written, every answer to what is asked for later shows that, or something newer:
//! the answers of all replicas, to all clients, at all levels. So what the session's answers must show of each key is from then on asked of everybody. If fewer sites
//! are counted, it is not known which of them they are, and nothing follows.
//!
//! Where a partition has several members at a site, one of them has answered for it. So nothing follows there, either.
use super::{Floors, Judge, Raised, Witness};
use crate::{OperationId, Record};
use turnbuckle_core::Micros;

impl Judge {
    /// A client was told that this number of other sites have what its session has seen.
    pub(super) fn waited_for(&mut self, id: OperationId, record: &Record, sites: u16, at: Micros) {
        let is_all = usize::from(sites) + 1 >= self.topology.site_count();
        if !is_all || self.topology.members().max() > 1 || !self.has_sessions {
            return;
        }
        let session = Witness::Session(record.client, record.session);
        for of_key in self.keys.values_mut() {
            let seen = of_key.floors.get(&session).map(Floors::iter);
            let before = |raised: &&Raised| {
                raised.number <= record.before || raised.client == record.client && raised.id < id
            };
            let Some(highest) = seen.and_then(|mut seen| seen.find(before)).copied() else {
                continue;
            };
            let raised = Raised {
                number: self.number,
                id,
                client: record.client,
                at,
                ..highest
            };
            of_key.waited.raise(raised, |known| known.floor.version == raised.floor.version);
        }
    }
}
