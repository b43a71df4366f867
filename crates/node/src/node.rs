mod builder;
mod lanes;
mod maintenance;
pub use builder::NodeBuilder;
pub(crate) use lanes::Lanes;

use crate::{
    agreement::Agreement,
    config::{NodeConfig, NodeId},
    frame::Frame,
    shared::{Shared, lock},
    status::{CheckpointCounts, KeyspaceStatus},
    steps::Work,
};
use bytes::{Bytes, BytesMut};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
use turnbuckle_core::{BadFrame, Micros, Now};
use turnbuckle_log::LogError;
use turnbuckle_store::Engine;

/// One node of a cluster, without sockets, threads or clocks: its lanes, its commit log, its engine.
///
/// Every method may be called from any thread. The driver brings requests to [`Keyspace`](crate::Keyspace)s and frames to
/// [`Node::handle_frame`], calls [`Node::commit`] once per turn of its loop, [`Node::tick`] when [`Node::next_deadline`]
/// has passed, and fills links with [`Node::fill`].
///
/// What waits for disks is [`Work`], which the driver does step by step: [`Node::sync`] when [`Node::wants_sync`], and
/// [`Node::fetch`] and [`Node::maintain`] when it was woken ([`Wake::wake_worker`](crate::Wake::wake_worker)). Several threads may fetch; one maintains.
pub struct Node {
    shared: Arc<Shared>,
    keyspaces: Vec<Arc<dyn Lanes>>,
    engine: Arc<dyn Engine>,
    /// The log's position at the last checkpoint.
    checkpointed: AtomicU64,
    opened: Micros,
    /// Somebody maintains it.
    maintaining: AtomicBool,
    checkpoints: Mutex<CheckpointCounts>,
}

/// How much of what peers give back may wait before nothing more is read from links.
const MAX_RETURNED_BYTES: usize = 64 << 20;

impl Node {
    /// What it was configured with.
    pub fn config(&self) -> &NodeConfig {
        &self.shared.config
    }

    /// One turn of a loop: what was staged by any thread goes to the log in one write, and what waited for that is let go.
    ///
    /// An error says that the log cannot be written now (a full disk) or any more (a failed sync). Nothing that was
    /// not written is ever acknowledged; the call may be repeated.
    pub fn commit(&self, now: Now) -> Result<(), LogError> {
        self.run_inboxes(now);
        for keyspace in &self.keyspaces {
            keyspace.append();
        }
        let written = self.shared.log().write();
        self.shared.log_failing.store(written.is_err(), Ordering::Relaxed);
        written?;
        self.release(now);
        Ok(())
    }

    fn release(&self, now: Now) {
        for keyspace in &self.keyspaces {
            keyspace.release(now);
        }
        self.run_inboxes(now);
    }

    fn run_inboxes(&self, now: Now) {
        for keyspace in &self.keyspaces {
            keyspace.run_inboxes(now);
        }
    }

    /// What was written to the log and not yet synced, in bytes.
    pub fn unsynced_bytes(&self) -> u64 {
        self.shared.log().written().0 - self.shared.log().synced().0
    }

    /// Whether something is staged that no commit has seen.
    pub fn is_dirty(&self) -> bool {
        self.keyspaces.iter().any(|keyspace| keyspace.is_dirty())
    }

    /// Whether a batch waits for a sync.
    pub fn wants_sync(&self) -> bool {
        self.shared.sync_wanted.load(Ordering::Acquire)
    }

    /// Syncs the log, and lets go what waited for that.
    pub fn sync(self: &Arc<Self>) -> Work<Result<(), LogError>> {
        let node = Arc::clone(self);
        Work::new(|steps| async move {
            let began = steps.now();
            node.shared.sync_wanted.store(false, Ordering::Release);
            steps.next().await;
            node.shared.log().sync()?;
            steps.next().await;
            node.release(match node.shared.config.planted.time_before_disk {
                true => began,
                false => steps.now(),
            });
            Ok(())
        })
    }

    /// Notes how far the log is synced, so that the next start misses what is cut off. If that fails, less is noticed. The driver calls it a
    /// few times a second.
    pub fn note_synced(&self) {
        let _ = self.shared.log().note_synced();
    }

    /// Timers and deadlines.
    pub fn tick(&self, now: Now) {
        for keyspace in &self.keyspaces {
            keyspace.tick(now);
        }
    }

    /// When to call [`Node::tick`], in monotonic time.
    pub fn next_deadline(&self) -> Option<Micros> {
        self.keyspaces
            .iter()
            .filter_map(|keyspace| keyspace.next_deadline())
            .min()
    }

    // ---- links ----------------------------------------------------------------------------------------------

    /// A connection to another node is up. Both sides call this. For the keyspaces that it does not serve the peer stays away.
    pub fn link_up(&self, now: Now, peer: NodeId, agreement: Agreement) {
        self.shared.set_link(peer, Some(agreement));
        for keyspace in self.served(peer) {
            keyspace.set_link(now, peer, true);
        }
    }

    /// It is gone, with everything that was on it.
    pub fn link_down(&self, now: Now, peer: NodeId) {
        let served = self.served(peer);
        self.shared.set_link(peer, None);
        for keyspace in served {
            keyspace.set_link(now, peer, false);
        }
    }

    /// The keyspaces that the link to a peer serves.
    fn served(&self, peer: NodeId) -> Vec<&Arc<dyn Lanes>> {
        let served = |keyspace: &&Arc<dyn Lanes>| self.shared.serves(peer, keyspace.tag());
        self.keyspaces.iter().filter(served).collect()
    }

    /// A frame from another node, without its length. After an error the driver breaks the link: what follows cannot be
    /// understood, and a new link starts from what is known to have arrived.
    pub fn handle_frame(&self, now: Now, from: NodeId, frame: Bytes) -> Result<(), BadFrame> {
        let frame = Frame::parse(frame)?;
        let keyspace = self
            .keyspaces
            .iter()
            .find(|keyspace| keyspace.tag() == frame.keyspace);
        let keyspace = keyspace.ok_or_else(|| {
            BadFrame::new(
                "a keyspace of this node's configuration",
                format!("one with tag {:08x}", frame.keyspace),
            )
        })?;
        if self.shared.lacks(from, frame.keyspace) {
            return Err(BadFrame::new(
                "a keyspace that both nodes of the link have",
                format!("'{}'", keyspace.name()),
            ));
        }
        keyspace.on_frame(now, from, frame)
    }

    /// Puts frames for another node into `out`, each with its length in front, until there are `max_bytes` or no more.
    /// Returns whether there are more. Call it when the link can take them and [`Wake::wake_link`](crate::Wake::wake_link) was called.
    pub fn fill(&self, peer: NodeId, out: &mut BytesMut, max_bytes: usize) -> bool {
        let more = self.fill_single(peer, out, max_bytes);
        self.fill_streams(peer, out, max_bytes) | more
    }

    /// The first half of [`Node::fill`]: frames that were sent one by one. Other threads go on between the halves, so what has to come before a
    /// stream's entries does not go this way.
    pub fn fill_single(&self, peer: NodeId, out: &mut BytesMut, max_bytes: usize) -> bool {
        self.shared.take_frames(peer, out, max_bytes)
    }

    /// The second half: what streams, full copies and what is given back have for the peer. A slow link takes
    /// only a part of what waits for it. So each call begins with the next keyspace, and after one round with the next partition of each.
    pub fn fill_streams(&self, peer: NodeId, out: &mut BytesMut, max_bytes: usize) -> bool {
        let turn = self.shared.next_turn(peer);
        let count = self.keyspaces.len().max(1);
        let (begin, turn) = (turn % count, turn / count);
        let mut more = false;
        let in_turn = self
            .keyspaces
            .iter()
            .cycle()
            .skip(begin)
            .take(self.keyspaces.len());
        for keyspace in in_turn.filter(|keyspace| self.shared.serves(peer, keyspace.tag())) {
            more |= keyspace.fill(peer, turn, out, max_bytes);
        }
        more
    }

    // ---- background -----------------------------------------------------------------------------------------

    /// Reads keys from disk that requests or streams wait for. Returns whether there were any.
    pub fn fetch(self: &Arc<Self>) -> Work<bool> {
        let node = Arc::clone(self);
        Work::new(|steps| async move {
            let mut any = false;
            for keyspace in &node.keyspaces {
                any |= Arc::clone(keyspace).fetch(steps.clone()).await;
            }
            any
        })
    }

    /// Whether so much is in memory that no checkpoint has yet that clients have to wait: the disk is slower than they are.
    pub fn is_overloaded(&self) -> bool {
        let (dirty, limit) = self.memory();
        dirty > limit
    }

    /// What of memory no checkpoint has yet, and the limit, in bytes.
    fn memory(&self) -> (u64, u64) {
        let dirty = self.keyspaces.iter().map(|keyspace| keyspace.dirty_bytes()).sum();
        (dirty, self.shared.config.memory_limit_bytes)
    }

    /// How much room the disk has for the node's files, in bytes. The driver says so about every hundred milliseconds; until it
    /// has, there is room.
    pub fn set_free_bytes(&self, bytes: u64) {
        self.shared.set_free_bytes(bytes);
    }

    /// Whether the disk has room for writes. Without it they are refused, reads are served, and peers' entries wait.
    pub fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    /// Whether links should be read from. Not while clients have to wait, or much of what was given back waits for its turn.
    pub fn wants_frames(&self) -> bool {
        !self.is_overloaded() && self.shared.returned_bytes.load(Ordering::Relaxed) < MAX_RETURNED_BYTES
    }

    // ---- what can be seen -----------------------------------------------------------------------------------

    /// Every keyspace's numbers.
    pub fn status(&self, now: Now) -> Vec<KeyspaceStatus> {
        self.keyspaces
            .iter()
            .map(|keyspace| keyspace.status(now))
            .collect()
    }

    /// Bytes of log on disk.
    pub fn log_bytes(&self) -> u64 {
        self.shared.log().end().0 - self.shared.log().start().0
    }

    /// Bytes of log appended in all its lives.
    pub fn appended_bytes(&self) -> u64 {
        self.shared.log().end().0
    }

    /// How many full copies of a peer's data were put in place here.
    pub fn copies_placed(&self) -> u64 {
        self.shared.copies_placed.load(Ordering::Relaxed)
    }

    /// How many partitions here have got back what was damaged.
    pub fn partitions_repaired(&self) -> u64 {
        self.shared.partitions_repaired.load(Ordering::Relaxed)
    }

    /// What checkpoints there were.
    pub fn checkpoints(&self) -> CheckpointCounts {
        *lock(&self.checkpoints)
    }

    /// Whether the link to a node is up.
    pub fn is_link_up(&self, peer: NodeId) -> bool {
        self.shared.is_up(peer)
    }

    /// Whether the last attempt to write the log failed.
    pub fn is_log_failing(&self) -> bool {
        self.shared.log_failing.load(Ordering::Relaxed)
    }
}
