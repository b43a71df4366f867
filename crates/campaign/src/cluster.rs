//! Three sites of two nodes each, as processes of the built program, with small limits, so that everything happens often.
//!
//! A fault *claims* the node on which it acts: only the fault that has claimed a node starts, kills and pauses it. The faults of a node (a
//! false clock, a full disk, a planted bug) are in a file beside its log, which the node reads again and again.
use crate::{
    directory, free_ports,
    operator::FAR_US,
    process::{Launch, Process, Resident, resident_bytes},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use turnbuckle_core::{Levels, SiteId};
use turnbuckle_protocols::KnownProtocol;
use turnbuckle_server::{
    admin::{AdminClient, LinkName},
    config::{Demo, DemoKeyspace, DemoPorts, Limits},
    status::Status,
    wan::{LinkDelay, WanDelays},
};

/// The names of the sites.
pub const SITES: [&str; 3] = ["a", "b", "c"];
/// The number of nodes of each site.
pub const NODES_OF_A_SITE: usize = 2;
/// The number of all nodes.
pub const NODES: usize = SITES.len() * NODES_OF_A_SITE;
/// The number of partitions of each keyspace: two on each node.
pub const PARTITIONS: u16 = 4;
/// How long a node may take to be ready, on a machine that is busy with five other nodes.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long an answer over HTTP may take.
const ADMIN_PATIENCE: Duration = Duration::from_secs(5);

/// A keyspace of the campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyspace {
    /// Its name, made of its protocol and its durability.
    pub name: String,
    /// Its protocol.
    pub protocol: KnownProtocol,
    /// When its writes are acknowledged, as in the configuration.
    pub durability: String,
}

impl Keyspace {
    /// The keyspace of a protocol and a durability.
    pub fn new(protocol: KnownProtocol, durability: &str) -> Keyspace {
        let plain: String = durability.chars().filter(char::is_ascii_alphanumeric).collect();
        Keyspace {
            name: format!("{protocol}-{plain}"),
            protocol,
            durability: durability.to_owned(),
        }
    }

    /// Whether a read depends on what its session has seen before.
    pub fn is_causal(&self) -> bool {
        let Levels { reads, .. } = self.protocol.levels();
        reads.first().is_some_and(|default| default.promise().is_causal())
    }

    /// Whether several keys can be read as one snapshot.
    pub fn has_snapshots(&self) -> bool {
        self.is_causal() && self.protocol != KnownProtocol::Cops
    }
}

/// The faults of a node: the content of its file of faults.
#[derive(Debug, Clone, Default)]
struct NodeFaults {
    clock_offset_us: i64,
    disk_is_full: bool,
}

/// The state of one node of the cluster.
struct Slot {
    process: Mutex<Option<Process>>,
    faults: Mutex<NodeFaults>,
    /// Whether a fault has claimed the node.
    is_claimed: AtomicBool,
    /// Whether the node should run: if it does not, it ended by itself.
    is_wanted: AtomicBool,
    /// Whether a table in its directory was damaged, and the directory was not emptied since.
    is_damaged: AtomicBool,
    /// The most resident memory over all its lives, in bytes.
    max_resident: Mutex<u64>,
}

/// The cluster: see the module.
pub struct Cluster {
    directory: PathBuf,
    program: PathBuf,
    ports: Vec<DemoPorts>,
    keyspaces: Vec<Keyspace>,
    planted: Option<String>,
    slots: Vec<Slot>,
}

/// The result of a start.
#[derive(Debug)]
pub enum Start {
    /// The node is ready.
    Ready,
    /// The node ended. These are the last lines of its log.
    Refused(String),
    /// The node neither ended nor was ready in time.
    Hangs,
}

impl Cluster {
    /// A cluster in an existing directory. None of its nodes runs yet.
    ///
    /// # Errors
    /// If there are no free ports, or a file cannot be written.
    pub fn new(
        directory: &Path,
        program: &Path,
        keyspaces: Vec<Keyspace>,
        planted: Option<String>,
    ) -> io::Result<Cluster> {
        let ports = free_ports(NODES)?;
        let demo = Demo {
            cluster: "campaign".into(),
            secret: "everybody may know the secret of a campaign".into(),
            ports: ports.clone(),
            partitions: PARTITIONS,
            keyspaces: keyspaces.iter().map(demo_keyspace).collect(),
            data_root: directory.to_path_buf(),
            loops: 1,
            wan: delays(),
            limits: limits(),
        };
        fs::write(directory.join("cluster.toml"), demo.to_toml())?;
        fs::create_dir_all(directory.join("logs"))?;
        let slot = |_| Slot {
            process: Mutex::default(),
            faults: Mutex::default(),
            is_claimed: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
            max_resident: Mutex::default(),
        };
        let cluster = Cluster {
            directory: directory.to_path_buf(),
            program: program.to_path_buf(),
            ports,
            keyspaces,
            planted,
            slots: (0..NODES).map(slot).collect(),
        };
        (0..NODES).try_for_each(|node| cluster.write_faults(node))?;
        Ok(cluster)
    }

    /// The directory of the campaign.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The keyspaces that it serves.
    pub fn keyspaces(&self) -> &[Keyspace] {
        &self.keyspaces
    }

    /// The port to which clients of a node connect.
    pub fn resp_port(&self, node: usize) -> u16 {
        self.ports[node].resp
    }

    /// A node's data directory.
    pub fn data(&self, node: usize) -> PathBuf {
        self.directory.join(node_name(node))
    }

    /// The file of a node's log.
    pub fn log(&self, node: usize) -> PathBuf {
        self.directory
            .join("logs")
            .join(format!("{}.log", node_name(node)))
    }

    /// Claims a node for a fault. Returns false if another fault has claimed it.
    pub fn claim(&self, node: usize) -> bool {
        !self.slots[node].is_claimed.swap(true, Ordering::AcqRel)
    }

    /// Ends a claim on a node.
    pub fn release(&self, node: usize) {
        self.slots[node].is_claimed.store(false, Ordering::Release);
    }

    // ---- processes --------------------------------------------------------------------------------------------

    /// Starts a node, and waits until it is ready.
    ///
    /// # Errors
    /// If the program cannot be run.
    pub fn start(&self, node: usize) -> io::Result<Start> {
        let launch = Launch {
            program: self.program.clone(),
            config: self.directory.join("cluster.toml"),
            node: node_name(node),
            log: self.log(node),
            faults: self.faults_file(node),
        };
        *self.process(node) = Some(Process::start(&launch)?);
        let admin = self.admin(node);
        let begun = Instant::now();
        while begun.elapsed() < START_PATIENCE {
            if let Some(process) = &mut *self.process(node)
                && process.ended()?.is_some()
            {
                return Ok(Start::Refused(last_words(&self.log(node))));
            }
            if admin.status().is_ok() {
                self.slots[node].is_wanted.store(true, Ordering::Release);
                return Ok(Start::Ready);
            }
            std::thread::park_timeout(Duration::from_millis(25));
        }
        Ok(Start::Hangs)
    }

    /// Kills a node with `kill -9`.
    pub fn kill(&self, node: usize) {
        self.slots[node].is_wanted.store(false, Ordering::Release);
        self.note_memory(node);
        // The process is killed when it is dropped.
        drop(self.process(node).take());
    }

    /// Pauses a node (`SIGSTOP`), or lets it go on.
    pub fn pause(&self, node: usize, paused: bool) {
        if let Some(process) = &*self.process(node) {
            // If the process has ended meanwhile, the watch notices that.
            let _ = process.pause(paused);
        }
    }

    /// Kills all nodes.
    pub fn kill_all(&self) {
        (0..NODES).for_each(|node| self.kill(node));
    }

    /// If the node should run but has ended by itself: the last lines of its log. It is not wanted any more then.
    pub fn ended_by_itself(&self, node: usize) -> Option<String> {
        let slot = &self.slots[node];
        let ended = match &mut *self.process(node) {
            Some(process) => process.ended().ok().flatten()?,
            None => return None,
        };
        let words = format!("{ended}: {}", last_words(&self.log(node)));
        slot.is_wanted.swap(false, Ordering::AcqRel).then_some(words)
    }

    /// Whether the node should run. A node that ended by itself should not, once [`Cluster::ended_by_itself`] has returned its last lines.
    pub fn is_wanted(&self, node: usize) -> bool {
        self.slots[node].is_wanted.load(Ordering::Acquire)
    }

    /// Damages a table of a node that does not run. Returns whether it has one.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn damage(&self, node: usize, draw: u64) -> io::Result<bool> {
        let is_damaged = directory::damage(&self.data(node).join("store"), draw)?.is_some();
        self.slots[node].is_damaged.fetch_or(is_damaged, Ordering::AcqRel);
        Ok(is_damaged)
    }

    /// Whether a table in the node's directory was damaged, and may still be.
    pub fn is_damaged(&self, node: usize) -> bool {
        self.slots[node].is_damaged.load(Ordering::Acquire)
    }

    /// Empties the directory of a node that does not run.
    ///
    /// # Errors
    /// If it cannot be emptied.
    pub fn empty(&self, node: usize) -> io::Result<()> {
        self.slots[node].is_damaged.store(false, Ordering::Release);
        directory::empty(&self.data(node))
    }

    /// Notes how much memory a node takes.
    pub fn note_memory(&self, node: usize) {
        let id = self.process(node).as_ref().map(Process::id);
        if let Some(Resident { max, .. }) = id.and_then(resident_bytes) {
            let mut known = lock(&self.slots[node].max_resident);
            *known = (*known).max(max);
        }
    }

    /// The most memory that a node had resident, in bytes.
    pub fn max_resident(&self, node: usize) -> u64 {
        *lock(&self.slots[node].max_resident)
    }

    fn process(&self, node: usize) -> MutexGuard<'_, Option<Process>> {
        lock(&self.slots[node].process)
    }

    // ---- faults -----------------------------------------------------------------------------------------------

    /// Sets how far a node's wall clock is off, in microseconds.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn set_clock(&self, node: usize, offset_us: i64) -> io::Result<()> {
        lock(&self.slots[node].faults).clock_offset_us = offset_us;
        self.write_faults(node)
    }

    /// Makes a node see a full disk, or one with room again.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn set_disk_full(&self, node: usize, is_full: bool) -> io::Result<()> {
        lock(&self.slots[node].faults).disk_is_full = is_full;
        self.write_faults(node)
    }

    /// Cuts two sites from each other, or heals that. The first node that answers tells the others.
    pub fn cut(&self, one: usize, other: usize, is_cut: bool) {
        let link = LinkName {
            from: SITES[one].into(),
            to: SITES[other].into(),
        };
        for node in 0..NODES {
            let done = match is_cut {
                true => self.admin(node).cut(&link),
                false => self.admin(node).heal(Some(&link)),
            };
            if done.is_ok() {
                return;
            }
        }
    }

    /// Heals all cuts at every node that runs.
    pub fn heal_all(&self) {
        for node in 0..NODES {
            let _ = self.admin(node).heal(None);
        }
    }

    fn faults_file(&self, node: usize) -> PathBuf {
        self.directory
            .join("logs")
            .join(format!("{}.faults.toml", node_name(node)))
    }

    fn write_faults(&self, node: usize) -> io::Result<()> {
        let faults = lock(&self.slots[node].faults).clone();
        let is_near = faults.clock_offset_us.unsigned_abs() < FAR_US;
        let keeps_going = self
            .keyspaces
            .iter()
            .any(|keyspace| !keyspace.protocol.descriptor().tolerates_clock_steps);
        let mut text = format!(
            "clock_offset_us = {}\nclock_never_goes_back = {keeps_going}\ndisk_is_full = {}\n",
            faults.clock_offset_us,
            faults.disk_is_full,
            keeps_going = keeps_going && is_near
        );
        if let Some(bug) = &self.planted {
            text += &format!("planted = \"{bug}\"\n");
        }
        let file = self.faults_file(node);
        let new = file.with_extension("new");
        fs::write(&new, text)?;
        fs::rename(new, file)
    }

    // ---- status -----------------------------------------------------------------------------------------------

    /// A client of a node's admin HTTP.
    pub fn admin(&self, node: usize) -> AdminClient {
        AdminClient::new(format!("127.0.0.1:{}", self.ports[node].admin), ADMIN_PATIENCE)
    }

    /// A node's status, if it answers.
    pub fn status(&self, node: usize) -> Option<Status> {
        self.admin(node).status().ok()
    }

    /// Whether a node says that its directory is an old copy, and must be emptied.
    pub fn is_outdated(&self, node: usize) -> bool {
        let status = self.status(node);
        status.is_some_and(|status| {
            status
                .keyspaces
                .iter()
                .any(|keyspace| keyspace.directory_outdated)
        })
    }
}

/// The memory that a node may have resident, in bytes: its memory limit, and what the engine takes beside it for each table
/// (docs/campaign.md).
pub fn memory_budget(keyspaces: usize) -> u64 {
    const MIB: u64 = 1 << 20;
    let tables = keyspaces as u64 * u64::from(PARTITIONS) / NODES_OF_A_SITE as u64;
    limits().memory_limit_mb * MIB + (ENGINE_CACHE_MIB + tables * TABLE_MIB + REST_MIB) * MIB
}

/// The engine's cache of blocks, in MiB.
const ENGINE_CACHE_MIB: u64 = 32;
/// A table's rows in memory that are not in a file yet, in MiB: one buffer that fills, and one that is written.
const TABLE_MIB: u64 = 2 * 16;
/// Memory for what is neither stored nor sent, in MiB: requests, replies, frames of links, a full copy's pages, and the allocator's own.
const REST_MIB: u64 = 768;

/// The log that a node keeps for nodes that are away, in MiB.
pub const RETAINED_LOG_MIB: u64 = 16;

fn limits() -> Limits {
    Limits {
        memory_limit_mb: 16,
        retained_log_mb: RETAINED_LOG_MIB,
        checkpoint_log_mb: 2,
        checkpoint_interval_ms: 1_000,
        operation_deadline_ms: 3_000,
        max_link_backlog_bytes: 8 << 20,
        shutdown_grace_ms: 1_000,
        ..Limits::default()
    }
}

fn delays() -> WanDelays {
    let mut wan = WanDelays::none(SITES);
    let pairs = [(0, 1, "1ms~1ms"), (0, 2, "4ms~2ms"), (1, 2, "2ms~1ms")];
    for (one, other, delay) in pairs {
        let delay: LinkDelay = delay.parse().expect("a delay");
        wan.set_both(SiteId(one), SiteId(other), delay);
    }
    wan
}

fn demo_keyspace(keyspace: &Keyspace) -> DemoKeyspace {
    DemoKeyspace {
        name: keyspace.name.clone(),
        protocol: keyspace.protocol.to_string(),
        durability: keyspace.durability.parse().expect("a durability"),
        members: 1,
    }
}

/// A node's name, which is that of its data directory.
pub fn node_name(node: usize) -> String {
    format!("{}{}", SITES[site_of(node)], node % NODES_OF_A_SITE + 1)
}

/// The site of a node.
pub fn site_of(node: usize) -> usize {
    node / NODES_OF_A_SITE
}

/// The nodes of a site.
pub fn nodes_of(site: usize) -> std::ops::Range<usize> {
    site * NODES_OF_A_SITE..(site + 1) * NODES_OF_A_SITE
}

/// The node that a receipt's `server` names: `a/3/0` is partition 3 at site a.
pub fn node_of_server(server: &str) -> Option<usize> {
    let mut parts = server.split('/');
    let site = parts.next()?;
    let site = SITES.iter().position(|name| *name == site)?;
    let partition: usize = parts.next()?.parse().ok()?;
    Some(nodes_of(site).start + partition % NODES_OF_A_SITE)
}

/// The end of a log, in one line.
pub fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(4_096)..]).into_owned();
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
