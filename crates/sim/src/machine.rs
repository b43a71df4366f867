//! One node's machine: what survives a crash, and what does not.
use crate::{
    BEGINNING, Loss, WorldOptions,
    clock::{Clock, ProcessClock},
    keyspaces::name_of,
    space::Space,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use turnbuckle_core::DoorId;
use turnbuckle_core::{
    ClusterSecret, KeyspaceLevels, Micros, Now, Protocol, Room, Session, SiteId, Topology,
};
use turnbuckle_gateway::{Gateway, GatewayOptions};
use turnbuckle_log::{LogError, SimulatedDisk};
use turnbuckle_node::{
    Keyspace, KeyspaceConfig, Node, NodeBuilder, NodeConfig, NodeId, OpenError, Placement, Wake, Work,
    WorkError, Written,
};
use turnbuckle_store::{Engine, MemoryEngine};

/// Worlds last for seconds. With the server's five minutes, no line of an expiring value would ever move on.
const SHORT_LIVED: Micros = Micros(100_000);

/// The checkpoints of [`WorldOptions::late_checkpoints`] begin this many times later.
const LATE: u64 = 30;

/// A machine. It keeps its disks. Processes on it begin and end.
pub(crate) struct Machine<S: Session> {
    pub id: NodeId,
    pub site: SiteId,
    pub disk: SimulatedDisk,
    pub engine: MemoryEngine,
    /// The keyspaces of the world that its configuration leaves out.
    pub left_out: BTreeSet<usize>,
    /// A copy of disk and engine.
    pub backup: Option<Backup>,
    /// Whether its data directory was replaced by that copy.
    pub is_old: bool,
    /// When it last lost its data directory, or started with less in it than it had. `None` once it has everything again.
    pub lost_at: Option<Micros>,
    pub process: Option<Process<S>>,
    /// What its earlier processes have written.
    pub written: Written,
    /// The number of processes that have run here: events of an earlier one have no effect.
    pub lives: u64,
    /// Whether the process ends with one of its next writes.
    pub dying: bool,
    /// When the log was last synced.
    pub synced_at: Micros,
    /// When each worker did its last step.
    pub stepped_at: BTreeMap<Worker, Micros>,
    pub clock: Clock,
    /// The clock of a process that is about to open its node again.
    pub kept_clock: Option<ProcessClock>,
    /// Nothing happens in the process before this time.
    pub paused_until: Micros,
    /// The time until which each core is busy.
    pub cores: Vec<Micros>,
    /// The time that the disk takes to sync, in percent of the usual.
    pub slow_disk_percent: u64,
    /// The additional delay of what the node sends.
    pub late: Micros,
    /// The space on its disk.
    pub space: Space,
    /// Whether the disk has failed to sync since the process started, or may have: the process may notice later.
    pub disk_has_failed: bool,
    /// How far the wall clock has jumped and was not set right, in microseconds.
    pub jumped_us: i64,
}

/// A copy of a data directory.
pub(crate) struct Backup {
    disk: SimulatedDisk,
    engine: MemoryEngine,
    /// When the copy was made.
    pub at: Micros,
}

/// A running node.
pub(crate) struct Process<S: Session> {
    pub node: Arc<Node>,
    pub keyspaces: BTreeMap<usize, Arc<Keyspace<S::Protocol>>>,
    pub gateway: Gateway,
    pub wakes: Arc<Wakes>,
    /// The door of each client.
    pub doors: BTreeMap<usize, DoorId>,
    /// The events of the process that are on the calendar and have not come yet.
    pub due: Due,
    /// The jobs of its background threads.
    pub jobs: BTreeMap<Worker, Job>,
    /// Background threads that were woken during a job.
    pub woken: BTreeSet<Worker>,
    /// Whether a checkpoint was asked for.
    pub checkpoint_wanted: bool,
    /// The clock of the process, made from the machine's clocks.
    pub clock: ProcessClock,
}

/// Events that wait for a node. There is at most one of each kind.
#[derive(Debug, Default)]
pub(crate) struct Due {
    pub turn: bool,
    pub workers: BTreeSet<Worker>,
    /// The deadline of the tick that counts. Earlier ticks on the calendar do nothing.
    pub tick: Option<Micros>,
}

/// The threads that the server has for work that waits for disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Worker {
    Sync,
    Maintain,
    Fetch(u8),
}

/// The job of a worker.
pub(crate) enum Job {
    Sync(Work<Result<(), LogError>>),
    Maintain(Work<Result<bool, WorkError>>),
    Checkpoint(Work<Result<(), WorkError>>),
    Fetch(Work<bool>),
}

impl<S: Session> Process<S> {
    /// When the first timer of a replica or a session is due, in monotonic time.
    pub fn next_deadline(&self) -> Option<Micros> {
        let deadlines = [self.node.next_deadline(), self.gateway.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// A new job for a worker.
    pub fn begin(&mut self, worker: Worker) -> Job {
        match worker {
            Worker::Sync => Job::Sync(self.node.sync()),
            Worker::Fetch(_) => Job::Fetch(self.node.fetch()),
            Worker::Maintain if std::mem::take(&mut self.checkpoint_wanted) => {
                Job::Checkpoint(self.node.checkpoint_now())
            }
            Worker::Maintain => Job::Maintain(self.node.maintain()),
        }
    }
}

/// What a node asked for in the call that was just made.
#[derive(Default)]
pub(crate) struct Wakes {
    looped: AtomicBool,
    links: AtomicU64,
    worker: AtomicBool,
}

impl Wake for Wakes {
    fn wake_loop(&self, _: usize) {
        self.looped.store(true, Ordering::Relaxed);
    }

    fn wake_link(&self, peer: NodeId) {
        self.links.fetch_or(1 << peer.0, Ordering::Relaxed);
    }

    fn wake_worker(&self) {
        self.worker.store(true, Ordering::Relaxed);
    }

    /// The other workers look round, too: in the server they do so by their own clocks, which may be at any moment.
    fn wake_sync(&self) {
        self.wake_worker();
    }
}

impl Wakes {
    pub fn take_loop(&self) -> bool {
        self.looped.swap(false, Ordering::Relaxed)
    }

    /// The links for which frames wait, one bit each.
    pub fn take_links(&self) -> u64 {
        self.links.swap(0, Ordering::Relaxed)
    }

    pub fn take_worker(&self) -> bool {
        self.worker.swap(false, Ordering::Relaxed)
    }
}

impl<S: Session> Machine<S> {
    pub fn new(id: NodeId, site: SiteId, clock: Clock, cores: usize) -> Machine<S> {
        let (disk, engine, space) = (SimulatedDisk::new(), MemoryEngine::new(), Space::new());
        disk.set_room(&space.room);
        engine.set_room(&space.room);
        Machine {
            id,
            site,
            disk,
            engine,
            left_out: BTreeSet::new(),
            backup: None,
            is_old: false,
            lost_at: None,
            process: None,
            written: Written::default(),
            lives: 0,
            dying: false,
            synced_at: Micros(0),
            stepped_at: BTreeMap::new(),
            clock,
            kept_clock: None,
            paused_until: Micros(0),
            cores: vec![Micros(0); cores],
            slow_disk_percent: 100,
            late: Micros(0),
            space,
            disk_has_failed: false,
            jumped_us: 0,
        }
    }

    /// The time of its clocks at a true time.
    pub fn now(&self, time: Micros) -> Now {
        match &self.process {
            Some(process) => process.clock.now(&self.clock, time),
            None => self.clock.now(time),
        }
    }

    /// Whether true time is in the interval that its process is told, or would be told if it started now.
    pub fn is_told_the_truth(&self, time: Micros) -> bool {
        let wall = match &self.process {
            // A clone, because to ask the clock would change it.
            Some(process) => process.clock.clone().now(&self.clock, time).wall,
            None => self.now(time).wall,
        };
        (wall.earliest..=wall.latest).contains(&time)
    }

    /// Work that comes in now keeps a core busy for `takes`. Returns when it is done.
    pub fn work_until(&mut self, time: Micros, takes: Micros) -> Micros {
        let Some(core) = self.cores.iter_mut().min() else {
            return time;
        };
        *core = (*core).max(time) + takes;
        *core
    }

    /// Starts a process on what the disks hold. If that is damaged, it is salvaged and the start is tried once more.
    pub fn start(
        &mut self,
        time: Micros,
        options: &WorldOptions,
        placement: &Placement,
        topology: &Topology,
        protocol: &<S::Protocol as Protocol>::Config,
    ) -> Result<(), OpenError> {
        let begin = || ProcessClock::begin(&self.clock, time, options.steady_clocks);
        let clock = self.kept_clock.take().unwrap_or_else(begin);
        self.space.give_up_ballast_if_short();
        self.salvage()?;
        match self.start_once(time, &clock, options, placement, topology, protocol) {
            Err(error) if error.is_damage() => {
                self.engine.suspect()?;
                self.salvage()?;
                self.start_once(time, &clock, options, placement, topology, protocol)
            }
            done => done,
        }
    }

    fn salvage(&mut self) -> Result<(), OpenError> {
        if let Some(salvaged) = self.engine.salvaged()? {
            self.engine.set_room(&Room::default());
            salvaged.set_room(&self.space.room);
            self.engine = salvaged;
        }
        Ok(())
    }

    fn start_once(
        &mut self,
        time: Micros,
        clock: &ProcessClock,
        options: &WorldOptions,
        placement: &Placement,
        topology: &Topology,
        protocol: &<S::Protocol as Protocol>::Config,
    ) -> Result<(), OpenError> {
        self.disk_has_failed = self.disk.sync_fails();
        let wakes = Arc::new(Wakes::default());
        let mut config = NodeConfig::new(self.id, placement.clone());
        config.is_new_cluster = time == BEGINNING;
        config.memory_limit_bytes = options.memory_limit_bytes;
        config.retained_log_bytes = options.retained_log_bytes;
        config.checkpoint_log_bytes = options.checkpoint_log_bytes;
        config.segment_bytes = options.segment_bytes;
        config.stream = options.stream;
        config.batch_keys = options.batch_keys;
        config.short_lived = SHORT_LIVED;
        config.patience = options.patience;
        config.checkpoint_interval = options.checkpoint_interval;
        if options.late_checkpoints == Some(self.id) {
            config.checkpoint_interval = Micros(options.checkpoint_interval.0 * LATE);
            config.checkpoint_log_bytes *= LATE;
        }
        config.min_free_bytes = options.min_free_bytes;
        let seed = options.seed ^ u64::from(self.id.0) << 32 ^ self.lives;
        config.seed = seed;
        config.validate = true;
        config.planted = options.planted;
        let engine = Arc::new(self.engine.clone());
        let mut builder = NodeBuilder::new(config, self.disk.mount(), engine, wakes.clone());
        let mut keyspaces = BTreeMap::new();
        for number in self.configured(options) {
            let keyspace = KeyspaceConfig {
                name: name_of(number),
                topology: topology.clone(),
                durability: options.durability,
            };
            keyspaces.insert(number, builder.keyspace(keyspace, protocol.clone())?);
        }
        let node = builder.open(clock.now(&self.clock, time))?;
        let mut gateway = Gateway::new(
            self.site,
            GatewayOptions {
                loop_index: 0,
                cluster: "simulated".to_string(),
                secret: ClusterSecret::new(&b"a secret"[..]),
                deadline: options.deadline,
                seed,
            },
        );
        for keyspace in keyspaces.values() {
            let levels = KeyspaceLevels::of(S::LEVELS);
            gateway.add::<S>(keyspace.clone(), levels, options.conditional);
        }
        gateway.listen(Arc::new(|_| true));
        self.lives += 1;
        self.synced_at = time;
        self.process = Some(Process {
            node,
            keyspaces,
            gateway,
            wakes,
            doors: BTreeMap::new(),
            due: Due::default(),
            jobs: BTreeMap::new(),
            woken: BTreeSet::new(),
            checkpoint_wanted: false,
            clock: clock.clone(),
        });
        self.look_at_disk();
        Ok(())
    }

    /// A process has ended before it served anything. What it wrote is there.
    pub fn fail_to_start(&mut self) {
        self.disk.crash_process();
        self.engine.crash_keeping(usize::MAX);
    }

    /// Tells the process how much space its disk has.
    pub fn look_at_disk(&mut self) {
        if let Some(process) = &self.process {
            let free = self.space.look(process.node.appended_bytes());
            process.node.set_free_bytes(free);
        }
    }

    /// The same, if the process has logged enough since the last time.
    pub fn look_at_disk_in_turn(&mut self) {
        let Some(process) = &self.process else { return };
        let min = process.node.config().min_free_bytes;
        if self.space.wants_look(process.node.appended_bytes(), min) {
            self.look_at_disk();
        }
    }

    /// Whether the disk has no room for writes, or had none a moment ago, or the engine has failed one.
    pub fn is_short_of_room(&self) -> bool {
        let knows = |process: &Process<S>| !process.node.has_room();
        self.space.is_taken || self.engine.is_broken() || self.process.as_ref().is_some_and(knows)
    }

    /// What its processes have written so far.
    pub fn written(&self, time: Micros) -> Written {
        let mut written = self.written;
        if let Some(process) = &self.process {
            let keyspaces = process.node.status(self.now(time));
            keyspaces
                .iter()
                .for_each(|keyspace| written.add(keyspace.written));
        }
        written
    }

    fn end(&mut self, time: Micros) {
        self.written = self.written(time);
        (self.process, self.dying) = (None, false);
        self.lives += 1;
        // Everything that was running there has ended.
        self.paused_until = Micros(0);
        self.cores.fill(Micros(0));
    }

    /// The process ends, with the given loss. The seed decides how much of what was not synced a power loss leaves. Without a seed it
    /// leaves none of it.
    pub fn crash(&mut self, time: Micros, loss: Loss, seed: Option<u64>) {
        self.end(time);
        if loss.takes_directory() {
            self.lost_at = Some(time);
        }
        match loss {
            Loss::Process => {
                self.disk.crash_process();
                self.engine.crash_keeping(usize::MAX);
            }
            Loss::Power => {
                let Some(seed) = seed else {
                    self.disk.crash_unsynced();
                    return self.engine.crash_keeping(0);
                };
                self.disk.crash_power(seed);
                let batches = self.engine.unpersisted_batches() as u64;
                self.engine.crash_keeping((seed % (batches + 1)) as usize);
            }
            Loss::Directory => self.put_back(None),
            Loss::Old => {
                let backup = self.backup.as_ref();
                self.put_back(backup.map(|backup| (backup.disk.copied(), backup.engine.copied())));
            }
        }
    }

    /// Replaces the data directory by this copy, or by an empty one.
    fn put_back(&mut self, copy: Option<(SimulatedDisk, MemoryEngine)>) {
        self.is_old = copy.is_some();
        let (disk, engine) = copy.unwrap_or_else(|| (SimulatedDisk::new(), MemoryEngine::new()));
        // It is the same machine, with the same disk below the directory.
        disk.set_sync_fails(self.disk.sync_fails());
        self.disk.set_room(&Room::default());
        self.engine.set_room(&Room::default());
        disk.set_room(&self.space.room);
        engine.set_room(&self.space.room);
        (self.disk, self.engine) = (disk, engine);
    }

    /// Copies the data directory, all at one moment.
    pub fn back_up(&mut self, at: Micros) {
        self.backup = Some(Backup {
            disk: self.disk.copied(),
            engine: self.engine.copied(),
            at,
        });
    }
}
