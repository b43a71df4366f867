use crate::{
    config::{NodeConfig, NodeId},
    frame::Frame,
    pending::Pending,
};
use bytes::{Bytes, BytesMut};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};
use turnbuckle_core::Protocol;
use turnbuckle_log::Log;

/// How the driver learns that there is something to do elsewhere than in the call it just made.
pub trait Wake: Send + Sync {
    /// Answers wait for this loop.
    fn wake_loop(&self, index: usize);
    /// Frames wait for the link to this node.
    fn wake_link(&self, peer: NodeId);
    /// Background work waits: a checkpoint, a fetch, a copy, a sync.
    fn wake_worker(&self);
}

/// What everything in a node shares.
pub(crate) struct Shared {
    pub config: NodeConfig,
    pub wake: Arc<dyn Wake>,
    log: OnceLock<Log>,
    links: Vec<Mutex<LinkQueue>>,
    /// A batch waits for a sync.
    pub sync_wanted: AtomicBool,
    /// The log could not be written: nothing new is taken until it can.
    pub log_failing: AtomicBool,
    /// The room that the disk has, as far as the driver has said.
    free_bytes: AtomicU64,
    /// Full copies that were put in place.
    pub copies_placed: AtomicU64,
    /// What peers have given back and no lane has taken yet, in bytes.
    pub returned_bytes: Arc<AtomicUsize>,
}

/// Frames on their way to a peer, besides streams, which are drawn from their lanes as the link takes them.
#[derive(Default)]
struct LinkQueue {
    up: bool,
    frames: VecDeque<Bytes>,
    bytes: usize,
    dropped: u64,
}

/// How much may wait for a link that takes nothing. Beyond it frames are lost, as with a broken connection.
const MOST_LINK_BYTES: usize = 16 << 20;

impl Shared {
    pub fn new(config: NodeConfig, wake: Arc<dyn Wake>) -> Shared {
        let links = config.placement.nodes().map(|_| Mutex::default()).collect();
        Shared {
            config,
            wake,
            log: OnceLock::new(),
            links,
            sync_wanted: AtomicBool::new(false),
            log_failing: AtomicBool::new(false),
            free_bytes: AtomicU64::new(u64::MAX),
            copies_placed: AtomicU64::new(0),
            returned_bytes: Arc::default(),
        }
    }

    /// An empty queue for what a peer sends to a lane.
    pub fn pending<P: Protocol>(&self) -> Pending<P> {
        Pending::new(self.config.stream.window_bytes, Arc::clone(&self.returned_bytes))
    }

    pub fn set_free_bytes(&self, bytes: u64) {
        self.free_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether the disk has room for writes.
    pub fn has_room(&self) -> bool {
        self.free_bytes() >= self.config.min_free_bytes
    }

    pub fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    /// The commit log; there is one from the moment that the node is open.
    pub fn log(&self) -> &Log {
        self.log.get().expect("lanes write only after the log is open")
    }

    pub fn set_log(&self, log: Log) {
        assert!(self.log.set(log).is_ok(), "a node is opened once");
    }

    /// Queues a frame. False if the link is down or full: the frame is lost.
    pub fn send(&self, to: NodeId, frame: &Frame) -> bool {
        let mut out = BytesMut::new();
        frame.put(&mut out);
        let mut link = held(&self.links[usize::from(to.0)]);
        if !link.up || link.bytes + out.len() > MOST_LINK_BYTES {
            link.dropped += 1;
            return false;
        }
        link.bytes += out.len();
        link.frames.push_back(out.freeze());
        drop(link);
        self.wake.wake_link(to);
        true
    }

    pub fn is_up(&self, peer: NodeId) -> bool {
        held(&self.links[usize::from(peer.0)]).up
    }

    /// The link came up or went down: what waited for it is gone.
    pub fn set_link(&self, peer: NodeId, up: bool) {
        *held(&self.links[usize::from(peer.0)]) = LinkQueue {
            up,
            ..LinkQueue::default()
        };
    }

    /// Moves queued frames into `out`, up to about `most_bytes`. Returns whether there are more.
    pub fn take_frames(&self, peer: NodeId, out: &mut BytesMut, most_bytes: usize) -> bool {
        let mut link = held(&self.links[usize::from(peer.0)]);
        while out.len() < most_bytes
            && let Some(frame) = link.frames.pop_front()
        {
            link.bytes -= frame.len();
            out.extend_from_slice(&frame);
        }
        !link.frames.is_empty()
    }

    pub fn want_sync(&self) {
        if !self.sync_wanted.swap(true, Ordering::AcqRel) {
            self.wake.wake_worker();
        }
    }
}

/// Locks. A thread that panicked while it held the lock has ended the process's usefulness already; the others go on
/// to shut down.
pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
