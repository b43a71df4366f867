//! A lane behind its lock, and what can be seen of it without.
use super::Keyspace;
use crate::{lane::Lane, shared::held};
use std::{
    collections::VecDeque,
    ops::{Deref, DerefMut},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use turnbuckle_core::{Protocol, ServerId};

/// A lane behind its lock.
pub(crate) struct LaneCell<P: Protocol> {
    pub me: ServerId,
    lane: Mutex<Lane<P>>,
    pub(super) inbox: Mutex<VecDeque<(ServerId, P::Message)>>,
    /// It stands in the list of those whose inbox is not empty.
    pub(super) is_noted: AtomicBool,
    /// Something may be staged.
    pub(super) dirty: AtomicBool,
    /// Something is appended and not yet released.
    pub(super) waiting: AtomicBool,
    /// The replica's next deadline, in monotonic microseconds.
    pub(super) deadline_us: AtomicU64,
    /// The store's, as of the last release.
    pub dirty_bytes: AtomicU64,
}

impl<P: Protocol> LaneCell<P> {
    pub fn new(lane: Lane<P>) -> LaneCell<P> {
        LaneCell {
            me: lane.me,
            lane: Mutex::new(lane),
            inbox: Mutex::default(),
            is_noted: AtomicBool::new(false),
            dirty: AtomicBool::new(true),
            waiting: AtomicBool::new(true),
            deadline_us: AtomicU64::new(0),
            dirty_bytes: AtomicU64::new(0),
        }
    }

    /// The lane, to look at.
    pub fn look(&self) -> impl Deref<Target = Lane<P>> {
        held(&self.lane)
    }

    /// Something was appended and is to be released when it is durable.
    pub fn set_waiting(&self) {
        self.waiting.store(true, Ordering::Release);
    }
}

impl<P: Protocol> Keyspace<P> {
    /// Locks a lane, to step it.
    pub(crate) fn enter<'a>(&'a self, cell: &'a LaneCell<P>) -> Entered<'a, P> {
        let lane = held(&cell.lane);
        assert!(
            lane.effects.is_empty(),
            "a lane's effects are performed before it is unlocked"
        );
        Entered {
            keyspace: self,
            cell,
            lane,
        }
    }
}

/// A lane that is being stepped. Before it is unlocked its effects are performed, in their order.
pub(crate) struct Entered<'a, P: Protocol> {
    keyspace: &'a Keyspace<P>,
    cell: &'a LaneCell<P>,
    lane: MutexGuard<'a, Lane<P>>,
}

impl<P: Protocol> Deref for Entered<'_, P> {
    type Target = Lane<P>;

    fn deref(&self) -> &Lane<P> {
        &self.lane
    }
}

impl<P: Protocol> DerefMut for Entered<'_, P> {
    fn deref_mut(&mut self) -> &mut Lane<P> {
        &mut self.lane
    }
}

impl<P: Protocol> Drop for Entered<'_, P> {
    fn drop(&mut self) {
        self.keyspace.perform(self.cell.me, &mut self.lane.effects);
        if self.lane.take_moved() {
            let deadline = self.lane.replica.next_deadline();
            let deadline_us = deadline.map_or(u64::MAX, |deadline| deadline.0);
            self.cell.deadline_us.store(deadline_us, Ordering::Release);
            self.cell.dirty.store(true, Ordering::Release);
        }
    }
}
