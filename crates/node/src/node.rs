mod builder;
mod lanes;
mod maintenance;
pub use builder::NodeBuilder;
pub(crate) use lanes::Lanes;
pub use maintenance::Haste;

use crate::{
    SyncWish,
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
use turnbuckle_core::{BadFrame, Micros, Now, Wish};
use turnbuckle_log::LogError;
use turnbuckle_store::Engine;

/// One node of a cluster, without sockets, threads or clocks: its lanes, its commit log, its engine.
///
/// Every method may be called from any thread. The driver hands requests to [`Keyspace`](crate::Keyspace)s and frames to
/// [`Node::handle_frame`]. It calls [`Node::commit`] once per turn of its loop, and [`Node::tick`] when [`Node::next_deadline`] has passed.
/// It fills links with [`Node::fill`].
///
/// What waits for disks is [`Work`], which the driver does step by step: [`Node::sync`] when [`Node::wants_sync`] says so, and
/// [`Node::fetch`] and [`Node::maintain`] when it was woken ([`Wake::wake_worker`](crate::Wake::wake_worker)). Several threads may fetch at
/// the same time, but only one may maintain.
pub struct Node {
    shared: Arc<Shared>,
    keyspaces: Vec<Arc<dyn Lanes>>,
    engine: Arc<dyn Engine>,
    /// The log's position at which the last checkpoint began.
    checkpointed: AtomicU64,
    /// What the log had left out then.
    left_out_then: AtomicU64,
    opened: Micros,
    /// Whether a thread is maintaining the node.
    maintaining: AtomicBool,
    checkpoints: Mutex<CheckpointCounts>,
}

/// While more bytes than this wait that peers restore, nothing is read from links.
const MAX_RETURNED_BYTES: usize = 64 << 20;

impl Node {
    /// The node's configuration.
    pub fn config(&self) -> &NodeConfig {
        &self.shared.config
    }

    /// One turn of a loop: the writes that any thread has staged go to the log in one write, and what waited for that is released.
    ///
    /// # Errors
    /// If the log cannot be written now (the disk is full) or ever again (a sync failed). A write that did not reach the log is never
    /// acknowledged. The call may be repeated.
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

    /// The number of bytes that were written to the log and not yet synced.
    pub fn unsynced_bytes(&self) -> u64 {
        self.shared.log().written().0 - self.shared.log().synced().0
    }

    /// Whether something is staged that no commit has seen.
    pub fn is_dirty(&self) -> bool {
        self.keyspaces.iter().any(|keyspace| keyspace.is_dirty())
    }

    /// How soon the log is to be synced.
    pub fn wants_sync(&self) -> SyncWish {
        self.shared.sync_wish()
    }

    /// Syncs the log, and releases what waited for that.
    pub fn sync(self: &Arc<Self>) -> Work<Result<(), LogError>> {
        let node = Arc::clone(self);
        Work::new(|steps| async move {
            let began = steps.now();
            node.shared.begin_sync();
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

    /// Records how far the log is synced, so that the next start notices if a synced part was cut off. If this fails, less of a cut is
    /// noticed. The driver calls it a few times a second.
    pub fn note_synced(&self) {
        let _ = self.shared.log().note_synced();
    }

    /// Fires timers and deadlines that are due.
    pub fn tick(&self, now: Now) {
        for keyspace in &self.keyspaces {
            keyspace.tick(now);
        }
    }

    /// When to call [`Node::tick`] next, in monotonic time.
    pub fn next_deadline(&self) -> Option<Micros> {
        self.keyspaces
            .iter()
            .filter_map(|keyspace| keyspace.next_deadline())
            .min()
    }

    // ---- leaders --------------------------------------------------------------------------------------------

    /// Tells the replicas here of a keyspace, or of all keyspaces, what is wanted of them; of one partition, or of all. Returns how many replicas
    /// that are, or `None` if there is no such keyspace.
    pub fn wish(
        &self,
        now: Now,
        keyspace: Option<&str>,
        partition: Option<u16>,
        wish: Wish,
    ) -> Option<usize> {
        let is_meant = |known: &&Arc<dyn Lanes>| keyspace.is_none_or(|name| name == known.name());
        let meant: Vec<_> = self.keyspaces.iter().filter(is_meant).collect();
        let told = meant
            .iter()
            .map(|keyspace| keyspace.wish(now, partition, wish.clone()));
        (!meant.is_empty()).then(|| told.sum())
    }

    /// Whether a replica here is handing its leadership over.
    pub fn is_handing_over(&self) -> bool {
        self.keyspaces.iter().any(|keyspace| keyspace.is_handing_over())
    }

    // ---- links ----------------------------------------------------------------------------------------------

    /// A connection to another node is up. Both sides call this. For keyspaces that the link does not serve, the peer counts as away.
    pub fn link_up(&self, now: Now, peer: NodeId, agreement: Agreement) {
        self.shared.set_link(peer, Some(agreement));
        for keyspace in self.served(peer) {
            keyspace.set_link(now, peer, true);
        }
    }

    /// The connection is gone, with every frame that was on it.
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

    /// Handles a frame from another node, given without its length.
    ///
    /// What is checked. The first four checks come in this order; the others depend on what the frame carries:
    ///
    /// | what | where |
    /// |---|---|
    /// | the versions, names and secrets of both nodes, once for each connection | the server's `peer/handshake.rs` |
    /// | its length | `take_frames` in the server's `peer.rs` |
    /// | that it decodes, and that both nodes have its keyspace | here |
    /// | that the servers of a message or a stream are those of the two nodes | `Keyspace::on_frame` in `keyspace.rs` |
    /// | that its body decodes, and names replicas of the partition only | `decode_message` in `lane/peer.rs`, `decode_entry` in `entry.rs` |
    /// | that a stream's entries follow what has arrived, were stamped by the replica whose stream it is, and fit the window | `incoming/peer_stream.rs` and `pending.rs` in `replication/src`, `lane/receiver.rs` |
    /// | that a full copy was asked for, has its rows in order, and has room | `lane/copies.rs`, `lane/rows_in.rs` |
    /// | that an answer to a read or write carries a receipt; an answer that nobody waits for is ignored | `keyspace/route.rs`, `callers.rs` |
    /// | that no timestamp is too far ahead: a message is dropped, a stream is held, a full copy and a request are refused | `lane/peer.rs`, `lane/receiver.rs`, `lane/copies.rs`, `keyspace/route.rs` |
    ///
    /// # Errors
    /// If the frame is not valid. The driver must break the link: the frames after it cannot be understood. A new link starts from what is
    /// known to have arrived.
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

    /// The first half of [`Node::fill`]: frames that were queued one by one. Other threads run between the halves. So a frame that has to
    /// come before a stream's entries must not be queued this way.
    pub fn fill_single(&self, peer: NodeId, out: &mut BytesMut, max_bytes: usize) -> bool {
        self.shared.take_frames(peer, out, max_bytes)
    }

    /// The second half of [`Node::fill`]: streams, full copies and versions that are restored to the peer. A slow link takes only a part of
    /// what waits for it. So each call begins with the next keyspace, and after one round with the next partition of each keyspace.
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

    /// Reads keys from disk that inputs or streams wait for. Returns whether there were any.
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

    /// Whether the versions in memory that no checkpoint has yet exceed the memory limit. Clients have to wait then: the disk is slower
    /// than their writes.
    pub fn is_overloaded(&self) -> bool {
        let (dirty, limit) = self.memory();
        dirty > limit
    }

    /// The size of the versions in memory that no checkpoint has yet, and the limit, in bytes.
    fn memory(&self) -> (u64, u64) {
        let dirty = self.keyspaces.iter().map(|keyspace| keyspace.dirty_bytes()).sum();
        (dirty, self.shared.config.memory_limit_bytes)
    }

    /// Sets the free space of the disk that holds the node's files, in bytes. The driver calls it about every hundred milliseconds. Until
    /// its first call, the node assumes that there is room.
    pub fn set_free_bytes(&self, bytes: u64) {
        self.shared.set_free_bytes(bytes);
    }

    /// Whether the disk has room for writes. If not, writes are refused, reads are served, and peers' entries wait.
    pub fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    /// Whether the driver should read from links. It should not while clients have to wait, or while more than 64 MiB of restored versions
    /// wait.
    pub fn wants_frames(&self) -> bool {
        !self.is_overloaded() && self.shared.returned_bytes.load(Ordering::Relaxed) < MAX_RETURNED_BYTES
    }

    // ---- what can be seen -----------------------------------------------------------------------------------

    /// The status of every keyspace.
    pub fn status(&self, now: Now) -> Vec<KeyspaceStatus> {
        self.keyspaces
            .iter()
            .map(|keyspace| keyspace.status(now))
            .collect()
    }

    /// The size of the log on disk, in bytes.
    pub fn log_bytes(&self) -> u64 {
        self.shared.log().end().0 - self.shared.log().start().0
    }

    /// The number of bytes that were ever appended to the log, in all lives of the node.
    pub fn appended_bytes(&self) -> u64 {
        self.shared.log().end().0
    }

    /// The number of full copies of peers that were put in place here.
    pub fn copies_placed(&self) -> u64 {
        self.shared.copies_placed.load(Ordering::Relaxed)
    }

    /// The rows of full copies of peers that have arrived here, in bytes.
    pub fn copy_bytes_received(&self) -> u64 {
        self.shared.copy_bytes_received.load(Ordering::Relaxed)
    }

    /// The number of partitions of this node whose missing rows are back.
    pub fn partitions_repaired(&self) -> u64 {
        self.shared.partitions_repaired.load(Ordering::Relaxed)
    }

    /// The number of keys that were removed here because their value had expired.
    pub fn expired_keys_removed(&self) -> u64 {
        self.shared.expired_keys_removed.load(Ordering::Relaxed)
    }

    /// Counts of checkpoints.
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
