use super::Keyspace;
use turnbuckle_core::{Protocol, ServerId, hash_slot};

/// The most keys that are looked at together.
const MOST: usize = 16;

impl<P: Protocol> Keyspace<P> {
    /// Looks at the first keys of those that are asked for soon: see [`turnbuckle_store::Store::look_ahead`]. Keys of other nodes are skipped, and those of lanes
    /// that another thread is using.
    pub fn look_ahead(&self, keys: &[&[u8]]) {
        let mut placed: [(u16, &[u8]); MOST] = [(0, &[]); MOST];
        let placed = &mut placed[..keys.len().min(MOST)];
        for (place, key) in placed.iter_mut().zip(keys) {
            *place = (self.topology().partition_of_slot(hash_slot(key)), *key);
        }
        placed.sort_unstable_by_key(|(partition, _)| *partition);
        for together in placed.chunk_by(|one, other| one.0 == other.0) {
            let server = ServerId {
                site: self.env.site(),
                partition: together[0].0,
                member: 0,
            };
            if let Some(cell) = self.cell(server)
                && let Ok(lane) = cell.lane.try_lock()
            {
                lane.look_ahead(together.iter().map(|(_, key)| *key));
            }
        }
    }
}
