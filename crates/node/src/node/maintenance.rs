//! Checkpoints and full copies in the background, when they are due.
use super::Node;
use crate::{
    background::Retention,
    error::WorkError,
    memory,
    shared::lock,
    steps::{Steps, Work},
};
use std::sync::{Arc, atomic::Ordering};
use turnbuckle_core::Now;
use turnbuckle_log::Position;

/// If the disk has little free space, a checkpoint begins once the log has grown by this number of bytes.
const TIGHT_LOG_BYTES: u64 = 1 << 20;

/// By how many times checkpoints come more often while deletes can be forgotten. Two checkpoints are needed for that, and the first may
/// have to come after the last write.
const FORGETS_TIMES: u64 = 4;

/// How urgent the work of maintenance is. If it is not urgent, it should rest now and then, and leave the processors to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Haste {
    /// A checkpoint is under way, and has time.
    None,
    /// Versions that no checkpoint has yet take more than an eighth of the memory limit, or the log has grown by as much as one checkpoint should cover.
    Some,
    /// They take more than half of the limit, the log has grown by twice as much, or the disk has little free space. Or the work is another one: somebody waits for it.
    Great,
}

impl Node {
    /// Puts full copies in place, and takes checkpoints that peers wait for or that are due. Returns whether anything was done.
    ///
    /// # Panics
    /// If the node is being maintained already.
    pub fn maintain(self: &Arc<Self>) -> Work<Result<bool, WorkError>> {
        let node = Arc::clone(self);
        Work::new(|steps| async move {
            let _one_at_a_time = Maintaining::begin(&node);
            if let Some(failure) = node.shared.take_engine_failure() {
                return Err(failure.into());
            }
            if let Some(damage) = node
                .keyspaces
                .iter()
                .find_map(|keyspace| keyspace.mendable_damage())
            {
                node.engine.suspect()?;
                return Err(damage);
            }
            let mut any = false;
            node.share_memory();
            for keyspace in &node.keyspaces {
                keyspace.trim();
                if node.has_room_for_checkpoints(1) {
                    let placing = Arc::clone(keyspace).place_copies(Arc::clone(&node.engine), steps.clone());
                    any |= placing.await?;
                }
            }
            if node.wants_checkpoint(steps.now()) {
                node.checkpoint(&steps).await?;
                return Ok(true);
            }
            if node.has_room_for_checkpoints(1) {
                any |= node.checkpoint_lanes(true, &steps).await?;
            }
            Ok(any)
        })
    }

    /// Shares the memory between the lanes: each has a new limit. Call it a few times in a second. Maintenance calls it, too, but a checkpoint can take long.
    pub fn share_memory(&self) {
        let used: Vec<u64> = self
            .keyspaces
            .iter()
            .flat_map(|keyspace| keyspace.memory_used())
            .collect();
        let limits = memory::limits(self.shared.config.memory_limit_bytes, &used);
        let mut limits = limits.into_iter();
        for keyspace in &self.keyspaces {
            keyspace.set_memory_limits(&mut limits);
        }
    }

    /// Takes a checkpoint of every lane, whether due or not. Then purges the log of the records that no replica needs.
    ///
    /// # Panics
    /// If the node is being maintained already.
    pub fn checkpoint_now(self: &Arc<Self>) -> Work<Result<(), WorkError>> {
        let node = Arc::clone(self);
        Work::new(|steps| async move {
            let _one_at_a_time = Maintaining::begin(&node);
            node.checkpoint(&steps).await
        })
    }

    async fn checkpoint(&self, steps: &Steps) -> Result<(), WorkError> {
        lock(&self.checkpoints).running = true;
        let began = steps.now().monotonic;
        let result = self.checkpoint_all(steps).await;
        let mut counts = lock(&self.checkpoints);
        counts.running = false;
        match &result {
            Ok(()) => {
                counts.completed += 1;
                counts.last_at = Some(began);
                counts.last_took = steps.now().monotonic.since(began);
            }
            Err(_) => counts.failed += 1,
        }
        result
    }

    async fn checkpoint_all(&self, steps: &Steps) -> Result<(), WorkError> {
        let covered = self.shared.log().end();
        let left_out = self.shared.left_out_bytes.load(Ordering::Relaxed);
        self.shared.deletes_left.store(false, Ordering::Relaxed);
        self.checkpoint_lanes(false, steps).await?;
        self.checkpointed.store(covered.0, Ordering::Release);
        self.left_out_then.store(left_out, Ordering::Release);
        self.purge(covered)
    }

    /// Takes checkpoints of all lanes or, with `only_wanted`, of those that want one themselves or for their peers. Returns whether there
    /// were any.
    async fn checkpoint_lanes(&self, only_wanted: bool, steps: &Steps) -> Result<bool, WorkError> {
        let mut any = false;
        for keyspace in &self.keyspaces {
            let engine = Arc::clone(&self.engine);
            let checkpoint = Arc::clone(keyspace).checkpoint(engine, only_wanted, steps.clone());
            any |= checkpoint.await?;
        }
        Ok(any)
    }

    /// Purges the log. It is needed from the last checkpoint on. Peers that are being fed may need an earlier part. So may peers that are
    /// away, up to `retained_log_bytes`.
    fn purge(&self, covered: Position) -> Result<(), WorkError> {
        let mut keep = covered;
        let limit = Position(
            self.shared
                .log()
                .end()
                .0
                .saturating_sub(self.shared.config.retained_log_bytes),
        );
        for keyspace in &self.keyspaces {
            let Retention { fed, absent } = keyspace.retention();
            keep = keep
                .min(fed.unwrap_or(keep))
                .min(absent.unwrap_or(keep).max(limit));
        }
        self.shared.log().purge(keep)?;
        let start = self.shared.log().start();
        for keyspace in &self.keyspaces {
            keyspace.purged(start);
        }
        Ok(())
    }

    /// Whether a checkpoint is due: enough was written since the last one, or anything was written and enough time has passed.
    fn wants_checkpoint(&self, now: Now) -> bool {
        let config = &self.shared.config;
        let since = self.logged_since_checkpoint();
        let last = lock(&self.checkpoints).last_at.unwrap_or(self.opened);
        let passed = now.monotonic.since(last);
        let is_late = since > 0 && passed >= config.checkpoint_interval;
        let can_forget = || self.keyspaces.iter().any(|keyspace| keyspace.can_forget());
        let is_forgetful = passed.0 >= config.checkpoint_interval.0 / FORGETS_TIMES && can_forget();
        // A later checkpoint might find no room any more, and then the log could never be purged.
        let is_tight = since >= TIGHT_LOG_BYTES && !self.has_room_for_checkpoints(2);
        let has_left = self.shared.deletes_left.load(Ordering::Relaxed);
        (since >= config.checkpoint_log_bytes
            || is_late
            || is_forgetful
            || is_tight
            || has_left
            || self.is_crowded())
            && self.has_room_for_checkpoints(1)
    }

    /// Whether the disk has room for `number` checkpoints. The engine writes new versions twice, into its journal and into its tables. If
    /// the disk becomes full in the middle of that, the engine breaks. Half of the space that is kept free may be used for it.
    fn has_room_for_checkpoints(&self, number: u64) -> bool {
        let (dirty, _) = self.memory();
        let kept = self.shared.config.min_free_bytes / 2;
        self.shared.free_bytes() >= kept.saturating_add(2 * number * dirty)
    }

    /// How urgent the work of maintenance is that is under way.
    pub fn haste(&self) -> Haste {
        let is_checkpoint = lock(&self.checkpoints).running;
        let (dirty, limit) = self.memory();
        let (logged, log_limit) = (
            self.logged_since_checkpoint(),
            self.shared.config.checkpoint_log_bytes,
        );
        let is_short = dirty > limit / 2 || logged / 2 > log_limit || !self.has_room_for_checkpoints(2);
        match dirty > limit / 8 || logged > log_limit {
            _ if is_short || !is_checkpoint => Haste::Great,
            true => Haste::Some,
            false => Haste::None,
        }
    }

    /// How much was written to the log since the last checkpoint began, in bytes. A share of which only a difference was logged counts for a quarter of what it takes in memory: a restart makes all shares since the
    /// last checkpoint, and a keyspace with history keeps them in memory.
    fn logged_since_checkpoint(&self) -> u64 {
        let left_out = self.shared.left_out_bytes.load(Ordering::Relaxed);
        let left_out = left_out.saturating_sub(self.left_out_then.load(Ordering::Acquire));
        self.shared.log().end().0 - self.checkpointed.load(Ordering::Acquire) + left_out / 4
    }

    /// Whether more than a quarter of the memory limit holds versions that no checkpoint has yet.
    fn is_crowded(&self) -> bool {
        let (dirty, limit) = self.memory();
        dirty > limit / 4
    }
}

/// Marks the node as being maintained until it is dropped.
struct Maintaining(Arc<Node>);

impl Maintaining {
    fn begin(node: &Arc<Node>) -> Maintaining {
        let is_maintained = node.maintaining.swap(true, Ordering::AcqRel);
        assert!(!is_maintained, "a node is maintained by one work at a time");
        Maintaining(Arc::clone(node))
    }
}

impl Drop for Maintaining {
    fn drop(&mut self) {
        self.0.maintaining.store(false, Ordering::Release);
    }
}
