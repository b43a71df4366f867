//! The state of planted bugs: empty unless one is planted.
use super::Lane;
use turnbuckle_core::{Key, Protocol, Version, Versions};
use turnbuckle_replication::Entry;

#[derive(Default)]
pub(super) struct PlantedState {
    /// Whether the bug `drops_after_restart` has dropped its entry.
    has_dropped: bool,
    /// The entries of the last batch, for the bug `outputs_swapped`.
    pub swapped: Vec<Entry>,
}

impl<P: Protocol> Lane<P> {
    /// Whether the bug `drops_after_restart` drops this entry.
    pub(super) fn is_dropped(&mut self, key: &Key, version: &Version<P::Meta>) -> bool {
        let planted = &self.env.shared().config.planted;
        // The stream of a new node is in its first incarnation.
        let is_restarted = self.outgoing.incarnations().len() > 1;
        if planted.drops_after_restart && is_restarted && !self.planted.has_dropped {
            self.planted.has_dropped = true;
            return true;
        }
        let chain = self.store.chain(key.as_ref());
        planted.ties_by_arrival && chain.is_some_and(|chain| chain.newest().id.at == version.id.at)
    }
}
