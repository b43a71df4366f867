//! The operations of a node on a keyspace, whatever its protocol.
use crate::{
    background::Retention,
    config::NodeId,
    error::{ReplayError, WorkError},
    frame::Frame,
    keyspace::{Keyspace, LaneCell},
    record::Record,
    status::KeyspaceStatus,
    steps::{Stepping, Steps},
};
use bytes::BytesMut;
use std::sync::Arc;
use turnbuckle_core::{BadFrame, Input, Micros, Now, Protocol, Wish};
use turnbuckle_log::Position;
use turnbuckle_store::{Engine, EngineError, forget_lack, lacks_rows};

/// The operations of a node on a keyspace, whatever its protocol.
pub(crate) trait Lanes: Send + Sync {
    fn name(&self) -> &str;
    fn tag(&self) -> u32;
    fn replay(&self, record: Record, from: Position) -> Result<(), ReplayError>;
    fn begin(&self, now: Now) -> Result<(), ReplayError>;
    fn start(&self, now: Now);
    fn append(&self);
    fn release(&self, now: Now);
    fn is_dirty(&self) -> bool;
    fn run_inboxes(&self, now: Now);
    fn tick(&self, now: Now);
    fn next_deadline(&self) -> Option<Micros>;
    fn set_link(&self, now: Now, node: NodeId, up: bool);
    fn on_frame(&self, now: Now, node: NodeId, frame: Frame) -> Result<(), BadFrame>;
    fn fill(&self, node: NodeId, turn: usize, out: &mut BytesMut, max_bytes: usize) -> bool;
    fn fetch(self: Arc<Self>, steps: Steps) -> Stepping<bool>;
    fn checkpoint(
        self: Arc<Self>,
        engine: Arc<dyn Engine>,
        only_wanted: bool,
        steps: Steps,
    ) -> Stepping<Result<bool, WorkError>>;
    /// How much memory the versions of each lane take, in bytes.
    fn memory_used(&self) -> Vec<u64>;
    /// Gives each lane its limit of memory, in the same order.
    fn set_memory_limits(&self, limits: &mut dyn Iterator<Item = u64>);
    fn trim(&self);
    fn place_copies(
        self: Arc<Self>,
        engine: Arc<dyn Engine>,
        steps: Steps,
    ) -> Stepping<Result<bool, WorkError>>;
    fn retention(&self) -> Retention;
    fn purged(&self, start: Position);
    fn status(&self, now: Now) -> KeyspaceStatus;
    /// Tells the replicas of a partition, or of all partitions, what is wanted of them. Returns how many replicas are here.
    fn wish(&self, now: Now, partition: Option<u16>, wish: Wish) -> usize;
    /// Whether a replica here is handing its leadership over.
    fn is_handing_over(&self) -> bool;
    fn dirty_bytes(&self) -> u64;
    /// Whether a checkpoint would help to forget deletes.
    fn can_forget(&self) -> bool;
    /// A lane's damaged rows, if a peer has them.
    fn mendable_damage(&self) -> Option<WorkError>;
    /// Removes from the lanes' tables the mark that rows are missing: the lanes' checkpoints record it now.
    fn forget_lacks(&self) -> Result<(), EngineError>;
}

impl<P: Protocol> Lanes for Keyspace<P> {
    fn name(&self) -> &str {
        Keyspace::name(self)
    }

    fn tag(&self) -> u32 {
        Keyspace::tag(self)
    }

    fn replay(&self, record: Record, from: Position) -> Result<(), ReplayError> {
        let lane = self.lanes().iter().find(|cell| {
            record.lane()
                == (
                    Keyspace::tag(self),
                    u32::from(cell.me.partition),
                    u32::from(cell.me.member),
                )
        });
        match lane {
            Some(cell) => self.enter(cell).replay(record, from),
            // A partition that has moved to another node.
            None => Ok(()),
        }
    }

    fn begin(&self, now: Now) -> Result<(), ReplayError> {
        let mut lanes = self.lanes().iter();
        lanes.try_for_each(|cell| self.enter(cell).begin(now, self.protocol()))
    }

    fn start(&self, now: Now) {
        for cell in self.lanes() {
            let mut lane = self.enter(cell);
            lane.step(now, Input::Start);
        }
    }

    fn append(&self) {
        Keyspace::append(self);
    }

    fn release(&self, now: Now) {
        Keyspace::release(self, now);
    }

    fn is_dirty(&self) -> bool {
        Keyspace::is_dirty(self)
    }

    fn run_inboxes(&self, now: Now) {
        Keyspace::run_inboxes(self, now);
    }

    fn tick(&self, now: Now) {
        Keyspace::tick(self, now);
    }

    fn next_deadline(&self) -> Option<Micros> {
        Keyspace::next_deadline(self)
    }

    fn set_link(&self, now: Now, node: NodeId, up: bool) {
        Keyspace::set_link(self, now, node, up);
    }

    fn on_frame(&self, now: Now, node: NodeId, frame: Frame) -> Result<(), BadFrame> {
        Keyspace::on_frame(self, now, node, frame)
    }

    fn fill(&self, node: NodeId, turn: usize, out: &mut BytesMut, max_bytes: usize) -> bool {
        let mut more = false;
        let count = self.pairs(node).count();
        let begin = turn % count.max(1);
        for (cell, peer) in self.pairs(node).skip(begin).chain(self.pairs(node).take(begin)) {
            more |= self.enter(cell).fill(peer, out, max_bytes);
        }
        more
    }

    fn fetch(self: Arc<Self>, steps: Steps) -> Stepping<bool> {
        Box::pin(async move { Keyspace::fetch(&self, &steps).await })
    }

    fn checkpoint(
        self: Arc<Self>,
        engine: Arc<dyn Engine>,
        only_wanted: bool,
        steps: Steps,
    ) -> Stepping<Result<bool, WorkError>> {
        Box::pin(async move { Keyspace::checkpoint(&self, &*engine, only_wanted, &steps).await })
    }

    fn memory_used(&self) -> Vec<u64> {
        let cells = self.lanes().iter();
        cells.map(|cell| cell.look().store.memory_bytes()).collect()
    }

    fn set_memory_limits(&self, limits: &mut dyn Iterator<Item = u64>) {
        for (cell, limit) in self.lanes().iter().zip(limits) {
            self.enter(cell).store.set_memory_limit_bytes(limit);
        }
    }

    fn trim(&self) {
        Keyspace::trim(self);
    }

    fn place_copies(
        self: Arc<Self>,
        engine: Arc<dyn Engine>,
        steps: Steps,
    ) -> Stepping<Result<bool, WorkError>> {
        Box::pin(async move { Keyspace::place_copies(&self, &*engine, &steps).await })
    }

    fn retention(&self) -> Retention {
        Keyspace::retention(self)
    }

    fn purged(&self, start: Position) {
        Keyspace::purged(self, start);
    }

    fn status(&self, now: Now) -> KeyspaceStatus {
        Keyspace::status(self, now)
    }

    fn wish(&self, now: Now, partition: Option<u16>, wish: Wish) -> usize {
        let is_meant = |cell: &&LaneCell<P>| partition.is_none_or(|partition| partition == cell.me.partition);
        let meant = self.lanes().iter().filter(is_meant);
        meant
            .map(|cell| self.enter(cell).step(now, Input::Wish(wish.clone())))
            .count()
    }

    fn is_handing_over(&self) -> bool {
        self.lanes().iter().any(|cell| {
            let group = cell.look().replica.protocol().group();
            group.is_some_and(|group| group.is_handing_over)
        })
    }

    fn dirty_bytes(&self) -> u64 {
        Keyspace::dirty_bytes(self)
    }

    fn can_forget(&self) -> bool {
        self.lanes().iter().any(|cell| cell.look().can_forget())
    }

    fn mendable_damage(&self) -> Option<WorkError> {
        self.lanes().iter().find_map(|cell| {
            let lane = cell.look();
            Some(WorkError::Damaged {
                keyspace: self.name().to_string(),
                partition: cell.me.partition,
                why: lane.mendable_damage()?.to_string(),
            })
        })
    }

    fn forget_lacks(&self) -> Result<(), EngineError> {
        for cell in self.lanes() {
            let table = cell.look().store.table();
            if lacks_rows(&*table)? {
                forget_lack(&*table)?;
            }
        }
        Ok(())
    }
}
