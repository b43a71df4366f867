use crate::{
    agreement::Agreement,
    background::Retention,
    config::{KeyspaceConfig, NodeConfig, NodeId},
    error::{OpenError, ReplayError, WorkError},
    frame::Frame,
    keyspace::Keyspace,
    lane::{Beside, Lane},
    left_out::{Aside, LeftOut},
    record::{CheckpointMeta, Record},
    shared::{Shared, Wake, lock},
    status::{CheckpointCounts, KeyspaceStatus},
    steps::{Stepping, Steps, Work},
    table::table_name,
};
use bytes::{Bytes, BytesMut};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use turnbuckle_core::{BadFrame, Input, Micros, Now, Protocol, Replication};
use turnbuckle_log::{
    Disk, Log, LogError, OpenError as LogOpenError, Options as LogOptions, Position, newest_segment,
};
use turnbuckle_replication::Repair;
use turnbuckle_store::{
    Beside as RowsBeside, Engine, EngineError, Options as StoreOptions, Store, StoreError, forget_lack,
    lacks_rows,
};

/// One node of a cluster, without sockets, threads or clocks: its lanes, its commit log, its engine.
///
/// Every method may be called from any thread. The driver brings requests to [`Keyspace`]s and frames to
/// [`Node::handle_frame`], calls [`Node::commit`] once per turn of its loop, [`Node::tick`] when [`Node::next_deadline`]
/// has passed, and fills links with [`Node::fill`].
///
/// What waits for disks is [`Work`], which the driver does step by step: [`Node::sync`] when [`Node::wants_sync`], and
/// [`Node::fetch`] and [`Node::maintain`] when it was woken ([`Wake::wake_worker`]). Several threads may fetch; one maintains.
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

/// With little room on the disk a checkpoint begins once the log has grown by so much.
const TIGHT_LOG_BYTES: u64 = 1 << 20;

/// How many times as often checkpoints come while deletes can be forgotten: it takes two of them, and the first may have to come after
/// the last write.
const FORGETS_TIMES: u64 = 4;

/// How much of what peers give back may wait before nothing more is read from links.
const MOST_RETURNED_BYTES: usize = 64 << 20;

/// A node that is being put together.
pub struct NodeBuilder {
    shared: Arc<Shared>,
    keyspaces: Vec<Arc<dyn Lanes>>,
    engine: Arc<dyn Engine>,
    disk: Arc<dyn Disk>,
    /// The tables of the lanes that were added.
    served: BTreeSet<String>,
    /// From where the log is needed: none of them has a checkpoint that says so, or what it lacks was set aside.
    from: Option<Position>,
    asides: Vec<Aside>,
}

/// What a node does with a keyspace, whatever its protocol.
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
    fn fill(&self, node: NodeId, turn: usize, out: &mut BytesMut, most_bytes: usize) -> bool;
    fn fetch(self: Arc<Self>, steps: Steps) -> Stepping<bool>;
    fn checkpoint(
        self: Arc<Self>,
        engine: Arc<dyn Engine>,
        only_wanted: bool,
        steps: Steps,
    ) -> Stepping<Result<bool, WorkError>>;
    fn trim(&self);
    fn place_copies(
        self: Arc<Self>,
        engine: Arc<dyn Engine>,
        steps: Steps,
    ) -> Stepping<Result<bool, WorkError>>;
    fn retention(&self) -> Retention;
    fn purged(&self, start: Position);
    fn status(&self, now: Now) -> KeyspaceStatus;
    fn dirty_bytes(&self) -> u64;
    /// Whether a checkpoint is of use for deletes that wait to be forgotten.
    fn can_forget(&self) -> bool;
    /// Rows that are damaged and that peers have.
    fn mendable_damage(&self) -> Option<WorkError>;
    /// The checkpoints of the lanes say themselves that rows are missing.
    fn forget_lacks(&self) -> Result<(), EngineError>;
}

impl NodeBuilder {
    /// A node over these disks.
    pub fn new(
        config: NodeConfig,
        disk: Arc<dyn Disk>,
        engine: Arc<dyn Engine>,
        wake: Arc<dyn Wake>,
    ) -> NodeBuilder {
        let shared = Arc::new(Shared::new(config, wake));
        NodeBuilder {
            shared,
            keyspaces: Vec::new(),
            engine,
            disk,
            served: BTreeSet::new(),
            from: None,
            asides: Vec::new(),
        }
    }

    /// Adds a keyspace of a protocol, with the lanes of it that stand on this node.
    pub fn keyspace<P: Protocol>(
        &mut self,
        config: KeyspaceConfig,
        protocol: P::Config,
        memory_limit_bytes: u64,
    ) -> Result<Arc<Keyspace<P>>, OpenError> {
        let keyspace = Arc::new(Keyspace::<P>::new(config, protocol, self.shared.clone()));
        if let Some(other) = self.keyspaces.iter().find(|other| other.tag() == keyspace.tag()) {
            return Err(OpenError::SameTag(
                other.name().to_string(),
                keyspace.name().to_string(),
            ));
        }
        let servers = keyspace.servers();
        let mut lanes = Vec::new();
        for &server in &servers {
            let bad = |why: String| OpenError::Store {
                keyspace: keyspace.name().to_string(),
                partition: server.partition,
                why,
            };
            let name = table_name(keyspace.name(), server);
            let lane_table = self.engine.open_table(&name)?;
            let table = Arc::clone(&lane_table);
            let options = StoreOptions {
                memory_limit_bytes: memory_limit_bytes / servers.len() as u64,
                history: P::DESCRIPTOR.history,
                hash_seed: self.shared.config.seed,
            };
            let failed = |error: StoreError| match error.is_damage() {
                true => OpenError::Damaged {
                    keyspace: keyspace.name().to_string(),
                    partition: server.partition,
                    why: error.to_string(),
                },
                false => bad(error.to_string()),
            };
            let rows_beside = RowsBeside::read(&*table).map_err(failed)?;
            let (store, meta) = Store::open(table, options).map_err(failed)?;
            let parsed = meta.map(CheckpointMeta::parse).transpose();
            let parsed = parsed.map_err(|error| bad(error.to_string()))?;
            let lacks = lacks_rows(&*lane_table)? && !self.shared.config.planted.serves_what_damage_left;
            let (is_new, meta) = (parsed.is_none(), parsed.unwrap_or_default());
            let aside = Aside::of(&*self.engine, &name, Position(meta.log_position))?;
            let config = keyspace.protocol();
            let others = keyspace.topology().others_of(server).iter();
            let streams = P::DESCRIPTOR.replication == Replication::Streams;
            // Without streams nothing tells what the others have, and only their own copies will do.
            let is_emptied = is_new && !streams && !self.shared.config.is_first_life_of(keyspace.name());
            let repair = match lacks || is_emptied {
                true => Some(Repair::of_all(others, !is_new && streams)).filter(|repair| !repair.is_over()),
                false => meta.repair.as_ref().map(Repair::restore),
            };
            let beside = Beside::open(rows_beside, meta.journal_first);
            let env = keyspace.env().clone();
            let mut lane = Lane::open(env, server, store, beside, &meta, repair, config);
            if let Some(aside) = &aside {
                aside.replay(|record, position| Ok(lane.replay(record, position)?))?;
            }
            if lacks {
                lane.want_checkpoint();
            }
            match is_new || aside.is_some() {
                true => lane.skip_log(),
                false => {
                    let from = Position(meta.log_position);
                    self.from = Some(self.from.map_or(from, |before| before.min(from)));
                }
            }
            self.asides.extend(aside);
            self.served.insert(name);
            lanes.push(lane);
        }
        keyspace.set_lanes(lanes);
        self.keyspaces.push(keyspace.clone());
        Ok(keyspace)
    }

    /// Opens the log, replays what no checkpoint covers, begins a new incarnation of every stream, and starts the replicas.
    pub fn open(self, now: Now) -> Result<Arc<Node>, OpenError> {
        let options = LogOptions {
            segment_bytes: self.shared.config.segment_bytes,
            identity: self.shared.config.identity,
        };
        let mut left_out = match self.shared.config.planted.purges_what_is_left_out {
            false => LeftOut::find(&*self.engine, &self.served)?,
            true => LeftOut::default(),
        };
        let from = match [self.from, left_out.from()].into_iter().flatten().min() {
            Some(from) => from,
            None => newest_segment(&*self.disk)
                .map_err(LogOpenError::from)?
                .unwrap_or(Position(0)),
        };
        let mut failed: Option<OpenError> = None;
        let keyspaces = &self.keyspaces;
        let log = Log::open(self.disk, options, from, |position, bytes| {
            let record = Record::parse(bytes.clone())?;
            if failed.is_none() {
                let keyspace = keyspaces
                    .iter()
                    .find(|keyspace| keyspace.tag() == record.keyspace);
                let aside = left_out.take(&record, position, &bytes).map_err(OpenError::from);
                let replayed = keyspace.map_or(Ok(()), |keyspace| keyspace.replay(record, position));
                failed = aside.and(replayed.map_err(OpenError::from)).err();
            }
            Ok(())
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        left_out.finish(&*self.engine, log.end())?;
        if self.shared.config.planted.forgets_what_did_not_fit {
            log.plant_forgetfulness();
        }
        let start = log.start();
        self.shared.set_log(log);
        for keyspace in &self.keyspaces {
            keyspace.purged(start);
            keyspace.begin(now)?;
        }
        self.shared.log().write()?;
        self.shared.log().sync()?;
        for keyspace in &self.keyspaces {
            // Those that are new, or were left out.
            let (keyspace, engine) = (Arc::clone(keyspace), Arc::clone(&self.engine));
            Work::new(|steps| keyspace.checkpoint(engine, true, steps)).run(|| now)?;
        }
        for keyspace in &self.keyspaces {
            keyspace.forget_lacks()?;
        }
        self.engine.persist()?;
        for aside in self.asides {
            aside.remove(&*self.engine)?;
        }
        let node = Node {
            shared: self.shared,
            keyspaces: self.keyspaces,
            engine: self.engine,
            checkpointed: AtomicU64::new(from.0),
            opened: now.monotonic,
            maintaining: AtomicBool::new(false),
            checkpoints: Mutex::default(),
        };
        for keyspace in &node.keyspaces {
            keyspace.start(now);
        }
        Ok(Arc::new(node))
    }
}

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

    /// Puts frames for another node into `out`, each with its length in front, until there are `most_bytes` or no more.
    /// Returns whether there are more. Call it when the link can take them and [`Wake::wake_link`] was called.
    pub fn fill(&self, peer: NodeId, out: &mut BytesMut, most_bytes: usize) -> bool {
        let more = self.fill_single(peer, out, most_bytes);
        self.fill_streams(peer, out, most_bytes) | more
    }

    /// The first half of [`Node::fill`]: frames that were sent one by one. Other threads go on between the halves, so what has to come before a
    /// stream's entries does not go this way.
    pub fn fill_single(&self, peer: NodeId, out: &mut BytesMut, most_bytes: usize) -> bool {
        self.shared.take_frames(peer, out, most_bytes)
    }

    /// The second half: what streams, full copies and what is given back have for the peer. A slow link takes
    /// only a part of what waits for it. So each call begins with the next keyspace, and after one round with the next partition of each.
    pub fn fill_streams(&self, peer: NodeId, out: &mut BytesMut, most_bytes: usize) -> bool {
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
            more |= keyspace.fill(peer, turn, out, most_bytes);
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

    /// Whether enough was written since the last checkpoint for another, or anything long enough ago.
    fn wants_checkpoint(&self, now: Now) -> bool {
        let config = &self.shared.config;
        let since = self.shared.log().end().0 - self.checkpointed.load(Ordering::Acquire);
        let last = lock(&self.checkpoints).last_at.unwrap_or(self.opened);
        let passed = now.monotonic.since(last);
        let is_late = since > 0 && passed >= config.checkpoint_interval;
        let can_forget = || self.keyspaces.iter().any(|keyspace| keyspace.can_forget());
        let is_forgetful = passed.0 >= config.checkpoint_interval.0 / FORGETS_TIMES && can_forget();
        // Later there might not be room for one any more, and the log could never be purged.
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

    /// Whether the disk has room for so many checkpoints. The engine writes what is new twice, into its journal and into its
    /// tables, and a disk that is full in the middle of it breaks it. Half of what is kept free may go into it.
    fn has_room_for_checkpoints(&self, number: u64) -> bool {
        let (dirty, _) = self.memory();
        let kept = self.shared.config.min_free_bytes / 2;
        self.shared.free_bytes() >= kept.saturating_add(2 * number * dirty)
    }

    /// Whether memory is full of what no checkpoint has yet.
    fn is_crowded(&self) -> bool {
        let (dirty, limit) = self.memory();
        dirty > limit / 4
    }

    fn memory(&self) -> (u64, u64) {
        let dirty = self.keyspaces.iter().map(|keyspace| keyspace.dirty_bytes()).sum();
        (dirty, self.shared.config.memory_limit_bytes)
    }

    /// Whether so much is in memory that no checkpoint has yet that clients have to wait: the disk is slower than they are.
    pub fn is_overloaded(&self) -> bool {
        let (dirty, limit) = self.memory();
        dirty > limit
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
        !self.is_overloaded() && self.shared.returned_bytes.load(Ordering::Relaxed) < MOST_RETURNED_BYTES
    }

    /// Copies to put in place, checkpoints that peers wait for, checkpoints that are due. Returns whether anything was done.
    ///
    /// # Panics
    /// If the node is being maintained already.
    pub fn maintain(self: &Arc<Self>) -> Work<Result<bool, WorkError>> {
        let node = Arc::clone(self);
        Work::new(|steps| async move {
            let _one_at_a_time = Maintaining::begin(&node);
            if let Some(damage) = node
                .keyspaces
                .iter()
                .find_map(|keyspace| keyspace.mendable_damage())
            {
                node.engine.suspect()?;
                return Err(damage);
            }
            let mut any = false;
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

    /// A checkpoint of every lane, whether due or not; then the log is purged of what nobody needs.
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
        self.shared.deletes_left.store(false, Ordering::Relaxed);
        self.checkpoint_lanes(false, steps).await?;
        self.checkpointed.store(covered.0, Ordering::Release);
        self.purge(covered)
    }

    /// Checkpoints of all lanes, or of those whose peers wait for one. Returns whether there were any.
    async fn checkpoint_lanes(&self, only_wanted: bool, steps: &Steps) -> Result<bool, WorkError> {
        let mut any = false;
        for keyspace in &self.keyspaces {
            let engine = Arc::clone(&self.engine);
            let checkpoint = Arc::clone(keyspace).checkpoint(engine, only_wanted, steps.clone());
            any |= checkpoint.await?;
        }
        Ok(any)
    }

    /// The log is needed from the last checkpoint on; before that by peers that are being fed, and, up to a limit, by those that are away.
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

/// A node is being maintained, until this is dropped.
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

    fn fill(&self, node: NodeId, turn: usize, out: &mut BytesMut, most_bytes: usize) -> bool {
        let mut more = false;
        let count = self.pairs(node).count();
        let begin = turn % count.max(1);
        for (cell, peer) in self.pairs(node).skip(begin).chain(self.pairs(node).take(begin)) {
            more |= self.enter(cell).fill(peer, out, most_bytes);
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
