//! A lane behind its lock, and what can be read of it without the lock.
use super::inbox::Inbox;
use crate::{lane::Lane, shared::lock};
use std::{
    ops::Deref,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use turnbuckle_core::{Protocol, ServerId};

/// A lane behind its lock.
pub(crate) struct LaneCell<P: Protocol> {
    pub me: ServerId,
    pub(super) lane: Mutex<Lane<P>>,
    pub(super) inbox: Inbox<P>,
    /// Whether something may be staged.
    pub(super) dirty: AtomicBool,
    /// Whether something is appended and not yet released.
    pub(super) waiting: AtomicBool,
    /// The lane's next deadline, in monotonic microseconds.
    pub(super) deadline_us: AtomicU64,
    /// The size of the versions that no checkpoint has yet, in bytes, as of the last release.
    pub dirty_bytes: AtomicU64,
}

impl<P: Protocol> LaneCell<P> {
    pub fn new(lane: Lane<P>) -> LaneCell<P> {
        LaneCell {
            me: lane.me,
            lane: Mutex::new(lane),
            inbox: Inbox::new(),
            dirty: AtomicBool::new(true),
            waiting: AtomicBool::new(true),
            deadline_us: AtomicU64::new(0),
            dirty_bytes: AtomicU64::new(0),
        }
    }

    /// Locks the lane, to read it.
    pub fn look(&self) -> impl Deref<Target = Lane<P>> {
        lock(&self.lane)
    }

    /// Something was appended, and is to be released when it is durable.
    pub fn set_waiting(&self) {
        self.waiting.store(true, Ordering::Release);
    }
}
