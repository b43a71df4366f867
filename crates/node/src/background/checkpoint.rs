//! Checkpoints: changes are written into the engine, deletes that no replica needs are removed from it, and the log is kept from the
//! position from which a replica needs it.
use crate::{
    error::WorkError,
    keyspace::{Keyspace, LaneCell},
    lane::{Changes, Lane},
    record::CheckpointMeta,
    steps::Steps,
    table::table_name,
};
use prost::Message;
use std::sync::atomic::Ordering::Relaxed;
use turnbuckle_core::{Hlc, Key, Protocol};
use turnbuckle_log::Position;
use turnbuckle_store::{Collected, Engine, StaleTombstones, Table, TombstonePage};

/// The number of tombstones that are read from the index at a time, and of those that are handled under one lock.
const TOMBSTONE_KEYS: usize = 256;
const TOMBSTONES_AT_ONCE: usize = 32;

/// The most such pages of a lane in one checkpoint. The rows of all tombstones that are dropped are removed in one batch with the checkpoint's meta. If there are more pages,
/// the next checkpoint begins at once.
const MAX_TOMBSTONE_PAGES: usize = 64;

impl<P: Protocol> Keyspace<P> {
    /// Writes what changed since the last checkpoint of each lane into the engine. The engine is made to persist before the log is purged.
    pub(crate) async fn checkpoint(
        &self,
        engine: &dyn Engine,
        only_wanted: bool,
        steps: &Steps,
    ) -> Result<bool, WorkError> {
        let mut any = false;
        for cell in self.lanes() {
            if only_wanted && !cell.look().wants_row_checkpoint() {
                continue;
            }
            any = true;
            self.checkpoint_lane(engine, cell, steps).await?;
        }
        Ok(any)
    }

    pub(super) async fn checkpoint_lane(
        &self,
        engine: &dyn Engine,
        cell: &LaneCell<P>,
        steps: &Steps,
    ) -> Result<(), WorkError> {
        let collected = self.collect_deletes(cell, steps).await;
        let all = collected.inspect_err(|error| self.note_damage(cell, error))?;
        let (table, meta, changes) = {
            let mut lane = self.enter(cell);
            lane.append();
            cell.set_waiting();
            let meta = lane.meta(self.shared().log().end());
            lane.store.begin_checkpoint(meta.encode_to_vec().into());
            lane.begin_row_checkpoint();
            (lane.store.table(), meta, lane.take_changes())
        };
        let mut result = self.write_chunks(cell, &changes, &*table, steps).await;
        self.enter(cell).end_changes(changes, result.is_ok());
        if result.is_ok() {
            steps.next().await;
            result = engine.persist().map_err(WorkError::from);
            steps.next().await;
        }
        // If this cannot be read, the checkpoint is whole all the same.
        let page = TombstonePage::read(&*table, Hlc(u64::MAX), None, 1).map_err(WorkError::from);
        let page = page.inspect_err(|error| self.note_damage(cell, error));
        let first = page.ok().and_then(|page| page.first());
        self.end_checkpoint(cell, meta, result.map(|()| first))?;
        // If this fails, the next checkpoint fails, too, and says why.
        let _ = table.rest();
        if all && self.enter(cell).is_reclaim_due() {
            steps.next().await;
            let free = self.shared().free_bytes();
            let table = table_name(self.name(), cell.me);
            // If this fails, forgotten rows only take their room on the disk for longer.
            let reclaimed = engine.reclaim(&table, free / 2).inspect_err(|error| {
                tracing::warn!(
                    "the table {table} was not merged again, so removed rows still take room on disk: {error}"
                );
            });
            let has_given = reclaimed.unwrap_or(true);
            self.enter(cell).checkpoints.forgetting.reclaimed(has_given);
            steps.next().await;
        }
        Ok(())
    }

    /// The checkpoint is over, and tells when the first delete or expired value may be forgotten. Peers that asked for rows before it began are sent them. Peers that asked later wait for the next
    /// checkpoint: this one may lack the rows that they ask for.
    fn end_checkpoint(
        &self,
        cell: &LaneCell<P>,
        meta: CheckpointMeta,
        result: Result<Option<Hlc>, WorkError>,
    ) -> Result<(), WorkError> {
        let mut lane = self.enter(cell);
        let spent = match &result {
            Ok(first) => {
                lane.checkpoints.last = Some(meta);
                lane.checkpoints.forgetting.end_checkpoint(*first);
                Some(lane.store.finish_checkpoint())
            }
            Err(_) => {
                lane.store.abort_checkpoint();
                None
            }
        };
        let mut result = result.map(|_| ());
        let takes_all = self.shared().config.planted.rows_of_begun_checkpoint;
        for (replica, request) in lane.rows.take_requests(takes_all) {
            let begun = match &result {
                Ok(()) => lane.begin_rows(replica, request.purpose).map_err(WorkError::from),
                Err(_) => {
                    lane.want_rows(replica, request);
                    continue;
                }
            };
            if let Err(error) = begun {
                lane.want_rows(replica, request);
                result = Err(error);
            }
        }
        // After the lock is released: freeing it takes a moment.
        drop(spent);
        result
    }

    /// If `error` says that the lane's table is damaged, the lane notes it.
    pub(super) fn note_damage(&self, cell: &LaneCell<P>, error: &WorkError) {
        if let WorkError::Store(error) = error {
            self.enter(cell).note_damage(error);
        }
    }

    /// Writes the changes beside versions first, then the versions, part by part. The last chunk has the meta. When the meta is written,
    /// nothing that it covers may be missing.
    async fn write_chunks(
        &self,
        cell: &LaneCell<P>,
        changes: &Changes,
        table: &dyn Table,
        steps: &Steps,
    ) -> Result<(), WorkError> {
        let config = &self.shared().config;
        let parts = changes.parts(config.batch_keys, config.planted.keeps_truncated_entries);
        let mut parts = parts.peekable();
        loop {
            let part = parts.next();
            let is_last_part = parts.peek().is_none() || config.planted.meta_before_the_rest;
            let chunk = {
                let mut lane = self.enter(cell);
                // What is in the store but not in the log yet goes to the log first.
                lane.append();
                cell.set_waiting();
                is_last_part.then(|| lane.next_chunk(config.batch_keys)).flatten()
            };
            if chunk.is_none() && part.is_none() {
                return Ok(());
            }
            // If a row were in the engine and the log then lost its record, the row would never reach the peers. So the log is synced
            // first.
            let log = self.shared().log();
            log.write()?;
            steps.next().await;
            log.sync()?;
            steps.next().await;
            if let Some(part) = part {
                table.apply(part)?;
            }
            if let Some(chunk) = chunk {
                chunk.write(table)?;
            }
            steps.next().await;
        }
    }

    /// Drops deletes and expired values that no replica needs any more. Returns whether none of them is left.
    async fn collect_deletes(&self, cell: &LaneCell<P>, steps: &Steps) -> Result<bool, WorkError> {
        let (table, below) = {
            let lane = cell.look();
            (lane.store.table(), lane.settled())
        };
        let mut from = None;
        for _ in 0..MAX_TOMBSTONE_PAGES {
            let keys = TOMBSTONE_KEYS.min(self.shared().config.batch_keys);
            let page = TombstonePage::read(&*table, below, from.as_ref(), keys)?;
            steps.next().await;
            let mut stale = StaleTombstones::default();
            for part in page.parts(TOMBSTONES_AT_ONCE) {
                let (collected, cold) = self.collect_resident(cell, &part);
                stale.add(collected.stale);
                for (key, tombstone) in cold {
                    let collect = |lane: &mut Lane<P>| self.collect(lane, &tombstone);
                    let collected = self.with_resident(cell, &key, steps, collect).await?;
                    stale.add(collected.stale);
                }
            }
            stale.erase(&*table)?;
            match page.next() {
                Some(next) => from = Some(next.clone()),
                None => return Ok(true),
            }
            if self.shared().config.planted.collects_few_deletes {
                return Ok(false);
            }
        }
        self.shared().deletes_left.store(true, Relaxed);
        Ok(false)
    }

    /// Handles those tombstones of a page whose keys are in memory, and returns the others with their keys. They are brought into memory one by one: there may be no
    /// room for all of them.
    fn collect_resident(
        &self,
        cell: &LaneCell<P>,
        page: &TombstonePage,
    ) -> (Collected, Vec<(Key, TombstonePage)>) {
        let mut lane = self.enter(cell);
        let each = page
            .each()
            .filter(|(key, _)| !lane.store.is_resident(key.as_ref()));
        let cold = each.map(|(key, tombstone)| (key.clone(), tombstone)).collect();
        let collected = self.collect(&mut lane, page);
        // Keys of the parts before may have been brought into memory for this alone.
        lane.evict(TOMBSTONES_AT_ONCE);
        (collected, cold)
    }

    fn collect(&self, lane: &mut Lane<P>, page: &TombstonePage) -> Collected {
        let closed = lane.closed_everywhere();
        let collected = lane.store.collect_tombstones(page, closed);
        lane.checkpoints.forgetting.forgot(collected.tombstones);
        let removed = &self.shared().expired_keys_removed;
        removed.fetch_add(collected.expired, Relaxed);
        collected
    }
}

/// The positions from which the log must be kept.
pub(crate) struct Retention {
    /// For peers that are being sent entries from the log, or a full copy. It holds whatever `retained_log_bytes` says.
    pub fed: Option<Position>,
    /// For peers that are away. It holds up to `retained_log_bytes`.
    pub absent: Option<Position>,
}

impl<P: Protocol> Keyspace<P> {
    pub(crate) fn retention(&self) -> Retention {
        let mut retention = Retention {
            fed: None,
            absent: None,
        };
        let earlier = |a: Option<Position>, b: Option<Position>| [a, b].into_iter().flatten().min();
        for cell in self.lanes() {
            let lane = cell.look();
            retention.fed = earlier(retention.fed, lane.outgoing.needed(false));
            retention.absent = earlier(retention.absent, lane.outgoing.needed(true));
        }
        retention
    }

    pub(crate) fn purged(&self, start: Position) {
        for cell in self.lanes() {
            self.enter(cell).outgoing.purged(start);
        }
    }
}
