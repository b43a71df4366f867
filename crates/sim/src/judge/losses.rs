//! What a power loss excuses.
//!
//! A node under `interval` or `none` that loses power may lose what it has written since it last synced. Nothing else is excused:
//!
//! - A *lost* version: its own replica stamped it, and no other replica or client knew of it before the last sync. It is not demanded, as a
//!   floor or in the end. There is one exception: a replica that has itself shown it and has not lost power since still has it. If there is
//!   such a replica in the end, all sites must have the version again.
//! - What the replica itself had shown since its last sync: it is no floor of this replica any more.
//!
//! A node whose data directory is lost, or replaced by an old copy, loses what it wrote since that copy. But what a running peer has at
//! that moment comes back from there: it is *spared*, and demanded as before, while some running node has it.
//!
//! All other floors stay: those of other keys, other replicas and all sessions. A session that has seen a lost version may be shown less, unless the protocol tells sessions of losses.
use super::{Judge, Seen, Witness};
use turnbuckle_core::{Key, Micros, Rank, ServerId};

/// A power loss.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    pub at: Micros,
    /// Everything that was written up to then was synced.
    pub kept_until: Micros,
    /// Whether the data directory is gone, or replaced by an old copy.
    pub is_directory: bool,
}

impl Judge {
    /// A replica lost power, or its files: anything that it wrote after `kept_until` may be gone.
    pub(crate) fn excuse(&mut self, server: ServerId, now: Micros, kept_until: Micros) {
        self.take(server, now, kept_until, false);
    }

    fn take(&mut self, server: ServerId, now: Micros, kept_until: Micros, is_directory: bool) {
        let loss = Loss {
            at: now,
            kept_until,
            is_directory,
        };
        self.losses.entry(server).or_default().push(loss);
        self.last_loss = now;
        self.excuse_numbers(server, loss);
        for of_key in self.keys.values_mut() {
            if let Some(shown) = of_key.shown.get_mut(&server) {
                shown.retain(|_, &mut at| at <= kept_until);
            }
            if let Some(floors) = of_key.floors.get_mut(&Witness::Replica(server)) {
                floors.excuse_after(kept_until);
            }
        }
    }

    /// The replica's files are gone, or are as they were at `kept_until`. What may be lost with them are versions that `stamping` names as the replica that stamped them: itself or, where the replicas of a site agree, the first of the
    /// site. `survives` tells whether a running peer has such a version, or something newer. Its last argument says whether the version is a delete, or was deleted since.
    pub(crate) fn lose_directory(
        &mut self,
        (server, stamping): (ServerId, ServerId),
        now: Micros,
        kept_until: Micros,
        survives: impl Fn(ServerId, &Key, Rank, bool) -> bool,
    ) {
        if self.sleeps {
            return;
        }
        let mut spared = Vec::new();
        for (key, of_key) in &self.keys {
            for version in of_key
                .versions()
                .filter(|version| version.id.replica == stamping.replica())
            {
                let is_its_own = self.server_of(key, version.id.replica) == stamping;
                // What was lost before does not come back through what a peer has heard since.
                let is_deleted = of_key.is_deleted(version, now);
                if is_its_own && !self.is_lost(key, version) && survives(stamping, key, version, is_deleted) {
                    spared.push((key.clone(), version));
                }
            }
        }
        self.take(server, now, kept_until, true);
        if stamping != server {
            let loss = Loss {
                at: now,
                kept_until,
                is_directory: true,
            };
            self.losses.entry(stamping).or_default().push(loss);
        }
        self.spared.extend(spared);
    }

    /// A node is about to lose something. It may be the only one that has what other nodes have lost before.
    pub(crate) fn look_at_spared(
        &mut self,
        now: Micros,
        survives: impl Fn(ServerId, &Key, Rank, bool) -> bool,
    ) {
        let mut spared = std::mem::take(&mut self.spared);
        spared.retain(|(key, version)| {
            let is_deleted = self
                .keys
                .get(key)
                .is_some_and(|of_key| of_key.is_deleted(*version, now));
            survives(self.server_of(key, version.id.replica), key, *version, is_deleted)
        });
        self.spared = spared;
    }

    /// Whether a power loss may have taken a version where it was stamped: it was known only after the last sync.
    pub(super) fn is_lost(&self, key: &Key, version: Rank) -> bool {
        if !self.spared.is_empty() && self.spared.contains(&(key.clone(), version)) {
            return false;
        }
        let known = || self.keys.get(key)?.known(version);
        let Some(losses) = self.losses.get(&self.server_of(key, version.id.replica)) else {
            return false;
        };
        known().is_some_and(|known| {
            let mut losses = losses.iter();
            losses.any(|loss| known.seen > loss.kept_until && known.begun <= loss.at)
        })
    }

    /// All versions that a power loss may have taken, and whether each is a delete.
    pub(crate) fn lost_versions(&self) -> impl Iterator<Item = (&Key, Rank, bool)> {
        let all = self.keys.iter().flat_map(|(key, of_key)| {
            let values = of_key.values.keys().map(move |&version| (key, version, false));
            let deletes = of_key.deletes.keys().map(move |&version| (key, version, true));
            values.chain(deletes)
        });
        all.filter(|(key, version, _)| !self.losses.is_empty() && self.is_lost(key, *version))
    }

    /// An answer from before a power loss says nothing about what the replica has now.
    pub(super) fn is_from_before_loss(&self, seen: &Seen) -> bool {
        let losses = self.losses.get(&seen.server);
        losses.is_some_and(|losses| losses.last().is_some_and(|loss| seen.invoked <= loss.at))
    }
}
