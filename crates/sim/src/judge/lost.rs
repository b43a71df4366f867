//! What may be missing after a data directory was lost, or replaced by an old copy.
//!
//! What reached a peer comes back from there, so it must not be missing. What the node had acknowledged and no running peer
//! holds is gone: that is what durability on one machine means. It is excused by its name, and counted.
use super::{Judge, Witness};
use turnbuckle_core::{Key, Micros, ServerId, VersionId};

impl Judge {
    /// A server's directory holds only what it held at `since`, or nothing.
    pub(crate) fn lose_directory(&mut self, server: ServerId, now: Micros, since: Option<Micros>) {
        if self.is_asleep() {
            return;
        }
        self.losses.insert(server, now);
        let since = since.unwrap_or(Micros(0));
        self.directories.insert(server, (since, now));
        for of_key in self.keys.values_mut() {
            of_key
                .floors
                .retain(|witness, _| !matches!(witness, Witness::Replica(other) if *other == server));
        }
    }

    /// Of what servers acknowledged that have lost their directories: whatever does not survive anywhere is excused. `survives` says
    /// of a version that a server acknowledged whether a peer has it, or something newer.
    pub(crate) fn excuse_what_is_gone(&mut self, survives: impl Fn(ServerId, &Key, VersionId) -> bool) {
        for (key, of_key) in &self.keys {
            for write in &of_key.acknowledged {
                let Some(&(since, until)) = self.directories.get(&write.by) else {
                    continue;
                };
                let was_lost = write.at > since && write.at <= until;
                if was_lost
                    && !self.excused.contains(&write.version)
                    && !survives(write.by, key, write.version)
                {
                    self.excused.insert(write.version);
                    self.gone += 1;
                }
            }
        }
    }

    /// How many acknowledged writes were lost with the directories of their nodes, because no peer had them yet.
    pub fn gone(&self) -> u64 {
        self.gone
    }
}
