//! Keys that inputs wait for are read from the engine.
use crate::{
    keyspace::{Keyspace, LaneCell},
    lane::Lane,
    steps::Steps,
};
use turnbuckle_core::{Key, Now, Protocol};
use turnbuckle_store::{Store, StoreError};

/// The most keys of a lane that are fetched at a time. A key that a stream asks for meanwhile waits until these are read.
const FETCH_KEYS: usize = 4;

/// The most keys that are evicted under one lock.
const EVICT_KEYS: usize = 256;

/// The number of rounds of maintenance in which all keys are looked at once, if none of them can be evicted.
const TRIM_PARTS: usize = 8;

impl<P: Protocol> Keyspace<P> {
    /// Brings some keys that inputs wait for into memory, and runs those inputs. Returns whether there were any.
    pub(crate) async fn fetch(&self, steps: &Steps) -> bool {
        let mut any = false;
        for cell in self.lanes() {
            let keys = self.enter(cell).cold.take_wanted(FETCH_KEYS);
            any |= !keys.is_empty();
            for key in keys {
                let began = steps.now();
                let result = self.make_resident(cell, &key, steps).await;
                // A time that was read before the disk read proves less than the receipts of these inputs would claim.
                let now = match self.shared().config.planted.time_before_disk {
                    true => began,
                    false => steps.now(),
                };
                self.fetched(cell, now, &key, result);
            }
        }
        any
    }

    fn fetched(&self, cell: &LaneCell<P>, now: Now, key: &Key, result: Result<(), StoreError>) {
        let mut lane = self.enter(cell);
        match result {
            // Another thread has evicted the key already: it is fetched once more.
            Ok(()) if !lane.store.is_resident(key.as_ref()) => {
                lane.cold.fetched(key);
                lane.cold.want(key);
            }
            Ok(()) => lane.fetched(now, key),
            Err(error) => {
                // Damage is logged once, when it is found.
                if !error.is_damage() {
                    tracing::error!(keyspace = self.name(), "a key cannot be read from disk: {error}");
                }
                lane.fetch_failed(key, &error);
            }
        }
    }

    /// Reads a key from the engine without the lane's lock, and brings it into memory. If it is in memory already, this takes no step.
    pub(super) async fn make_resident(
        &self,
        cell: &LaneCell<P>,
        key: &Key,
        steps: &Steps,
    ) -> Result<(), StoreError> {
        loop {
            let (table, epoch) = {
                let lane = cell.look();
                if lane.store.is_resident(key.as_ref()) {
                    return Ok(());
                }
                (lane.store.table(), lane.store.epoch())
            };
            steps.next().await;
            let fetched = Store::fetch(&*table, key, epoch)?;
            steps.next().await;
            if self.enter(cell).store.admit(fetched).is_ok() {
                return Ok(());
            }
        }
    }

    /// Runs `with` on a lane in which `key` is resident.
    pub(super) async fn with_resident<R>(
        &self,
        cell: &LaneCell<P>,
        key: &Key,
        steps: &Steps,
        with: impl FnOnce(&mut Lane<P>) -> R,
    ) -> Result<R, StoreError> {
        loop {
            self.make_resident(cell, key, steps).await?;
            let mut lane = self.enter(cell);
            if lane.store.is_resident(key.as_ref()) {
                let result = with(&mut lane);
                return Ok(result);
            }
        }
    }

    /// Evicts versions that the engine has, until the others are under the memory limit.
    pub(crate) fn trim(&self) {
        for cell in self.lanes() {
            // A key that was used since the eviction hand last passed it stays for one more pass: so a look may evict nothing although the
            // next one does.
            let mut idle_looks = cell.look().store.resident_keys() / EVICT_KEYS / TRIM_PARTS;
            loop {
                let mut lane = self.enter(cell);
                if !lane.store.wants_room() {
                    lane.store.shrink();
                    break;
                }
                if lane.evict(EVICT_KEYS) == 0 {
                    match idle_looks {
                        0 => break,
                        left => idle_looks = left - 1,
                    }
                }
            }
        }
    }
}
