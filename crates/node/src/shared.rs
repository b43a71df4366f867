use crate::{
    agreement::Agreement,
    config::{NodeConfig, NodeId},
    frame::{Frame, HEADER_BYTES, MAX_FRAME_BYTES},
};
use bytes::{Bytes, BytesMut};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
};
use turnbuckle_log::Log;
use turnbuckle_store::EngineError;

/// How the driver is told that there is work outside of the call that it just made.
pub trait Wake: Send + Sync {
    /// Answers wait for this event loop.
    fn wake_loop(&self, index: usize);
    /// Frames wait for the link to this node.
    fn wake_link(&self, peer: NodeId);
    /// The same, and an operation waits for one of them, or one is a mark. A driver that lets frames gather sends them at once then.
    fn wake_link_at_once(&self, peer: NodeId) {
        self.wake_link(peer);
    }
    /// Background work waits: a checkpoint, a fetch, a copy.
    fn wake_worker(&self);
    /// The log is to be synced: see [`Node::wants_sync`](crate::Node::wants_sync).
    fn wake_sync(&self);
}

/// How soon the log is to be synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum SyncWish {
    /// Nothing waits for it.
    None,
    /// Promises wait for it, and no operation. If the log is synced at intervals, for other keyspaces, that is soon enough.
    Soon,
    /// An operation waits for it, or the clock for its next bound.
    Now,
}

/// The beginning of the text with which a request is refused that needs space on a disk that has too little.
pub const NO_ROOM: &str = "the disk of the node has less than";

/// State that everything in a node shares.
pub(crate) struct Shared {
    pub config: NodeConfig,
    pub wake: Arc<dyn Wake>,
    log: OnceLock<Log>,
    links: Vec<Mutex<LinkQueue>>,
    /// For each node, the number of calls that asked the streams for frames for it.
    turns: Vec<AtomicUsize>,
    /// What waits for a sync: a [`SyncWish`].
    sync_wish: AtomicU8,
    /// The log could not be written: no new requests are taken until it can.
    pub log_failing: AtomicBool,
    /// The engine failed a write of a lane, and takes no more writes. Background work ends with it, so that the node is opened again.
    engine_failure: Mutex<Option<EngineError>>,
    /// The free bytes of the disk, as last set by the driver.
    free_bytes: AtomicU64,
    /// Whether the last checkpoint has left deletes that no replica needs any more.
    pub deletes_left: AtomicBool,
    /// By how many bytes shares are longer than the differences that were logged of them.
    pub left_out_bytes: AtomicU64,
    /// The number of full copies that were put in place.
    pub copies_placed: AtomicU64,
    /// The rows of full copies that have arrived, in bytes.
    pub copy_bytes_received: AtomicU64,
    /// The number of partitions whose missing rows are back.
    pub partitions_repaired: AtomicU64,
    /// The number of keys that were removed because their value had expired.
    pub expired_keys_removed: AtomicU64,
    /// The size of the versions that peers have restored and no lane has taken in yet, in bytes.
    pub returned_bytes: Arc<AtomicUsize>,
}

/// Frames that wait for a link to a peer. Frames of streams are not among them: they are taken from their lanes when the link has room.
#[derive(Default)]
struct LinkQueue {
    /// The keyspaces that the link serves. `None` while it is down.
    serves: Option<Agreement>,
    frames: VecDeque<Bytes>,
    /// The bytes that waiting frames cost: long frames, then short ones.
    bytes: [usize; 2],
}

/// Why a frame was not queued. It is lost, as with a broken connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsent {
    /// The link is down.
    #[error("the node cannot be reached")]
    Down,
    /// The node at the other end does not have the keyspace.
    #[error("the node does not have the keyspace")]
    NoKeyspace,
    /// Too many bytes wait for the link already.
    #[error("the link to the node is full")]
    Full,
    /// The frame is too large for any link.
    #[error("it is larger than {} MiB, the limit of one message between nodes", MAX_FRAME_BYTES >> 20)]
    TooLarge,
}

/// The limit of waiting long frames of a link, in bytes. Once it is reached, no more long frames are taken. Until then one of any size is.
/// So the largest value that clients may write passes every link.
const MAX_LONG_BYTES: usize = 16 << 20;

/// The limit of waiting short frames of a link, in bytes, and the largest size of a short frame. Short frames have room of their own: a
/// caller whose answer found no room is told so in a short frame.
const MAX_SHORT_BYTES: usize = 32 << 20;
const SHORT_BYTES: usize = 1 << 10;

/// What a waiting frame costs beside its own bytes.
const WAITING_BYTES: usize = 64;

impl LinkQueue {
    /// Whether a frame of `len` bytes about this keyspace may wait here.
    fn admit(&self, keyspace: u32, len: usize) -> Result<(), Unsent> {
        match &self.serves {
            None => Err(Unsent::Down),
            Some(agreement) if !agreement.has(keyspace) => Err(Unsent::NoKeyspace),
            Some(_) if len > MAX_FRAME_BYTES => Err(Unsent::TooLarge),
            Some(_) if self.is_full(kind(len)) => Err(Unsent::Full),
            Some(_) => Ok(()),
        }
    }

    /// Whether no more frames of this kind are taken.
    fn is_full(&self, kind: usize) -> bool {
        self.bytes[kind] >= [MAX_LONG_BYTES, MAX_SHORT_BYTES][kind]
    }

    fn push(&mut self, frame: Bytes) {
        let len = frame.len() - HEADER_BYTES;
        self.bytes[kind(len)] += len + WAITING_BYTES;
        self.frames.push_back(frame);
    }

    fn pop(&mut self) -> Option<Bytes> {
        let frame = self.frames.pop_front()?;
        let len = frame.len() - HEADER_BYTES;
        self.bytes[kind(len)] -= len + WAITING_BYTES;
        Some(frame)
    }
}

/// The kind of a frame: 0 for a long one, 1 for a short one.
fn kind(len: usize) -> usize {
    usize::from(len <= SHORT_BYTES)
}

impl Shared {
    pub fn new(config: NodeConfig, wake: Arc<dyn Wake>) -> Shared {
        let links = config.placement.nodes().map(|_| Mutex::default()).collect();
        let turns = config.placement.nodes().map(|_| AtomicUsize::default()).collect();
        Shared {
            config,
            wake,
            log: OnceLock::new(),
            links,
            turns,
            sync_wish: AtomicU8::new(SyncWish::None as u8),
            log_failing: AtomicBool::new(false),
            engine_failure: Mutex::default(),
            free_bytes: AtomicU64::new(u64::MAX),
            deletes_left: AtomicBool::new(false),
            left_out_bytes: AtomicU64::new(0),
            copies_placed: AtomicU64::new(0),
            copy_bytes_received: AtomicU64::new(0),
            partitions_repaired: AtomicU64::new(0),
            expired_keys_removed: AtomicU64::new(0),
            returned_bytes: Arc::default(),
        }
    }

    pub fn set_free_bytes(&self, bytes: u64) {
        self.free_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The engine takes no more writes: background work is to end with this error.
    pub fn note_engine_failure(&self, error: EngineError) {
        *lock(&self.engine_failure) = Some(error);
    }

    /// The failure that was noted, if background work has not ended with it yet.
    pub fn take_engine_failure(&self) -> Option<EngineError> {
        lock(&self.engine_failure).take()
    }

    /// Whether the disk has room for writes.
    pub fn has_room(&self) -> bool {
        self.free_bytes() >= self.config.min_free_bytes
    }

    pub fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    /// The commit log. It is there once the node is open.
    pub fn log(&self) -> &Log {
        self.log.get().expect("lanes write only after the log is open")
    }

    pub fn set_log(&self, log: Log) {
        assert!(self.log.set(log).is_ok(), "a node is opened once");
    }

    /// Queues a frame.
    pub fn send(&self, to: NodeId, frame: &Frame) -> Result<(), Unsent> {
        let (link, len) = (&self.links[usize::from(to.0)], frame.len());
        // First a check without the frame: so it is not encoded in vain, nor under the lock.
        lock(link).admit(frame.keyspace, len)?;
        let mut out = BytesMut::new();
        frame.put(&mut out);
        let mut link = lock(link);
        link.admit(frame.keyspace, len)?;
        link.push(out.freeze());
        drop(link);
        match frame.is_awaited() {
            true => self.wake.wake_link_at_once(to),
            false => self.wake.wake_link(to),
        }
        Ok(())
    }

    /// Whether the queue of short frames to the peer is full: then not even a refusal would find room.
    pub fn is_choked(&self, peer: NodeId) -> bool {
        lock(&self.links[usize::from(peer.0)]).is_full(kind(SHORT_BYTES))
    }

    /// Counts the calls that fill a link. Returns the number of this call, from 0.
    pub fn next_turn(&self, peer: NodeId) -> usize {
        self.turns[usize::from(peer.0)].fetch_add(1, Ordering::Relaxed)
    }

    pub fn is_up(&self, peer: NodeId) -> bool {
        lock(&self.links[usize::from(peer.0)]).serves.is_some()
    }

    /// Whether the link to a peer is up and serves a keyspace.
    pub fn serves(&self, peer: NodeId, keyspace: u32) -> bool {
        let link = lock(&self.links[usize::from(peer.0)]);
        link.serves
            .as_ref()
            .is_some_and(|agreement| agreement.has(keyspace))
    }

    /// Whether the link to a peer is up and the peer does not have a keyspace.
    pub fn lacks(&self, peer: NodeId, keyspace: u32) -> bool {
        let link = lock(&self.links[usize::from(peer.0)]);
        link.serves
            .as_ref()
            .is_some_and(|agreement| !agreement.has(keyspace))
    }

    /// The link came up, for these keyspaces, or went down. Frames that waited for it are dropped.
    pub fn set_link(&self, peer: NodeId, serves: Option<Agreement>) {
        *lock(&self.links[usize::from(peer.0)]) = LinkQueue {
            serves,
            ..LinkQueue::default()
        };
    }

    /// Moves waiting frames into `out`, up to about `max_bytes`. Returns whether there are more.
    pub fn take_frames(&self, peer: NodeId, out: &mut BytesMut, max_bytes: usize) -> bool {
        let mut link = lock(&self.links[usize::from(peer.0)]);
        while out.len() < max_bytes
            && let Some(frame) = link.pop()
        {
            out.extend_from_slice(&frame);
        }
        !link.frames.is_empty()
    }

    pub fn want_sync(&self, wish: SyncWish) {
        if self.sync_wish.fetch_max(wish as u8, Ordering::AcqRel) < wish as u8 {
            self.wake.wake_sync();
        }
    }

    /// What waits for a sync.
    pub fn sync_wish(&self) -> SyncWish {
        let wish = self.sync_wish.load(Ordering::Acquire);
        let all = [SyncWish::Now, SyncWish::Soon];
        all.into_iter()
            .find(|&known| known as u8 == wish)
            .unwrap_or(SyncWish::None)
    }

    /// A sync begins, for everything that has wished for one.
    pub fn begin_sync(&self) {
        self.sync_wish.store(SyncWish::None as u8, Ordering::Release);
    }
}

/// Locks a mutex, also if a thread panicked while it held the lock. The process is of no use any more then, and the other threads go on
/// only to shut down.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        agreement::{KeyspaceTerms, tag_of},
        config::Placement,
        frame::{Body, ResponseFrame},
    };
    use turnbuckle_core::ServerId;

    struct Quiet;

    impl Wake for Quiet {
        fn wake_loop(&self, _: usize) {}
        fn wake_link(&self, _: NodeId) {}
        fn wake_worker(&self) {}
        fn wake_sync(&self) {}
    }

    const PEER: NodeId = NodeId(1);

    fn shared() -> Shared {
        let config = NodeConfig::new(
            NodeId(0),
            Placement::new([turnbuckle_core::SiteId(0), turnbuckle_core::SiteId(0)]),
        );
        let shared = Shared::new(config, Arc::new(Quiet));
        shared.set_link(PEER, Some(agreement()));
        shared
    }

    fn send(shared: &Shared, body_bytes: usize) -> Result<(), Unsent> {
        let response = ResponseFrame {
            body: vec![0; body_bytes].into(),
            ..ResponseFrame::default()
        };
        let server = ServerId::default();
        shared.send(
            PEER,
            &Frame::new(tag_of("both"), server, server, Body::Response(response)),
        )
    }

    /// An agreement in which the peer has only this keyspace.
    fn agreement() -> Agreement {
        let terms = |name: &str| KeyspaceTerms {
            name: name.into(),
            protocol: "p".into(),
            partitions: 1,
            members: 1.into(),
            replica_sites: None,
        };
        let agreement = Agreement::between(&[terms("both"), terms("here")], &[terms("both")]);
        agreement.expect("what both have is the same")
    }

    #[test]
    fn nothing_is_sent_of_a_keyspace_that_the_peer_does_not_have() {
        let shared = shared();
        let server = ServerId::default();
        let frame = Frame::new(tag_of("here"), server, server, Body::Message(Bytes::new()));
        assert_eq!(shared.send(PEER, &frame), Err(Unsent::NoKeyspace));
        assert!(shared.lacks(PEER, tag_of("here")) && !shared.serves(PEER, tag_of("here")));
        assert!(shared.serves(PEER, tag_of("both")) && !shared.lacks(PEER, tag_of("both")));
        shared.set_link(PEER, None);
        assert_eq!(shared.send(PEER, &frame), Err(Unsent::Down));
        assert!(!shared.lacks(PEER, tag_of("here")), "nothing is known of it");
    }

    #[test]
    fn a_link_takes_one_frame_of_any_size_and_behind_it_short_ones() {
        let shared = shared();
        assert_eq!(send(&shared, MAX_LONG_BYTES - 4_000), Ok(()));
        assert_eq!(send(&shared, 3 * MAX_LONG_BYTES), Ok(()));
        assert_eq!(send(&shared, 2 * SHORT_BYTES), Err(Unsent::Full));
        assert_eq!(send(&shared, SHORT_BYTES / 2), Ok(()));
        let mut out = BytesMut::new();
        assert!(shared.take_frames(PEER, &mut out, 1), "there is another");
        assert_eq!(send(&shared, 2 * SHORT_BYTES), Err(Unsent::Full));
        assert!(!shared.take_frames(PEER, &mut out, usize::MAX));
        assert_eq!(send(&shared, 2 * SHORT_BYTES), Ok(()));
    }

    #[test]
    fn what_no_peer_would_take_is_not_sent() {
        let shared = shared();
        assert_eq!(send(&shared, MAX_FRAME_BYTES), Err(Unsent::TooLarge));
        shared.set_link(PEER, None);
        assert_eq!(send(&shared, 1), Err(Unsent::Down));
    }

    #[test]
    fn short_frames_are_bounded_too() {
        let shared = shared();
        let taken = (0..)
            .take_while(|_| send(&shared, SHORT_BYTES / 2).is_ok())
            .count();
        assert!((50_000..70_000).contains(&taken), "{taken}");
        assert!(shared.is_choked(PEER));
    }
}
