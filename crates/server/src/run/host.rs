mod about;
mod data;
mod info;

use super::{
    Start, StartError,
    ballast::Ballast,
    client_memory::{ClientMemory, shared_of},
    wakes::Wakes,
};
use crate::{
    TestFaults,
    admin::{AdminToken, Guard, Others},
    audit::Audit,
    clock::Clock,
    config::{ClusterConfig, NodeId},
    metrics::Metrics,
    peer::{Identity, Met, StrangerCounts},
    tls::Tls,
    users,
    wan::{LinkDelay, WanMatrix},
};
use data::{Data, Opened};
use info::Rates;
use rand::{Rng, SeedableRng};
use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;
use turnbuckle_core::{Micros, Now, SiteId, Wish};
use turnbuckle_log::DirectoryDisk;
use turnbuckle_node::{Agreement, Durability, Node, NodeConfig, Planted};
use turnbuckle_resp::{Channels, Limits, Refused, UserBook};
use turnbuckle_served::AddToGateway;

/// What all threads of a node share.
pub(crate) struct Host {
    pub name: String,
    pub id: NodeId,
    pub config: Arc<ClusterConfig>,
    pub node: Arc<Node>,
    pub clock: Arc<Clock>,
    faults: Option<Arc<TestFaults>>,
    pub wan: WanMatrix,
    /// The other nodes, which are told of changes of the WAN matrix.
    pub others: Arc<Others>,
    /// Which requests the admin HTTP answers.
    pub guard: Arc<Guard>,
    /// What `INFO` says of what clients do per second.
    rates: Mutex<Rates>,
    pub wakes: Arc<Wakes>,
    pub metrics: Arc<Metrics>,
    pub identity: Identity,
    /// Certificates, if the configuration has them.
    pub tls: Option<Arc<Tls>>,
    disk: Arc<DirectoryDisk>,
    lost_directory: AtomicBool,
    pub keyspaces: Vec<AddToGateway>,
    pub stopping: AtomicBool,
    /// The event loops have ended, so the threads that wait for disks may end, too.
    pub workers_stopping: AtomicBool,
    pub client_ids: AtomicU64,
    pub client_memory: Arc<ClientMemory>,
    /// Which clients listen to which channels.
    pub channels: Arc<Channels>,
    pub strangers: StrangerCounts,
    /// The users, if the node has a file of them.
    pub users: Option<Arc<UserBook>>,
    pub audit: Audit,
    pub syncs: AtomicU64,
    /// How often the log is synced while there is something to sync, and whether any keyspace asks for syncs by interval.
    pub sync_every: Duration,
    pub syncs_by_interval: bool,
    clients: AtomicUsize,
    stop: watch::Sender<bool>,
    failure: Mutex<Option<String>>,
    /// The node stops in order to be opened again.
    wants_restart: AtomicBool,
    links: Vec<Mutex<Link>>,
    replaced: watch::Sender<u64>,
    started: Micros,
    random: Mutex<rand_chacha::ChaCha8Rng>,
}

/// What is known of the link to another node.
#[derive(Default)]
struct Link {
    up: bool,
    /// The number of the connection. Only the newest connection counts.
    life: u64,
    reason: Option<String>,
    /// The peer, or this node, refuses the link: their configurations or secrets differ, or one of them runs twice.
    is_refused: bool,
    /// While the link is up: which run of the peer has it, and when the peer was last heard from.
    run: Option<(u64, Instant)>,
    /// While the link is up: what the two nodes have agreed on.
    agreement: Agreement,
    sent_bytes: u64,
    received_bytes: u64,
    held_bytes: u64,
}

/// If no keyspace asks for syncs by interval, how long the sync thread waits before it looks again.
const LAZY_SYNC: Duration = Duration::from_millis(100);

impl Host {
    pub(super) fn open(start: &Start) -> Result<Arc<Host>, StartError> {
        let Start {
            config,
            node: id,
            wan,
            options,
            clock,
            users,
        } = start.clone();
        let faults = options.faults;
        let entry = config.node(id);
        let tls = config
            .tls
            .as_ref()
            .map(|tls| Tls::open(&entry.name, tls).map(Arc::new))
            .transpose()?;
        let path = entry.data.display().to_string();
        let mut random = rand_chacha::ChaCha8Rng::try_from_rng(&mut rand::rngs::SysRng)
            .map_err(|error| StartError::System(std::io::Error::other(error.to_string())))?;
        if let Some(free) = free_bytes(&entry.data) {
            Ballast::of(&entry.data).give_up_if_short(&entry.name, free);
        }
        let disk = DirectoryDisk::open(entry.data.join("log"))
            .map_err(|source| StartError::Directory { path, source })?;
        let disk = Arc::new(disk);
        let fresh = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
        let identity = super::identity::check(&entry.data, &config, id, fresh)?;
        let nodes = config.nodes().count();
        let wakes = Wakes::new(entry.loops, nodes);
        let seed = random.next_u64();
        let node_config = || NodeConfig {
            identity: identity.number,
            is_new_cluster: options.is_new_cluster && identity.is_new,
            new_keyspaces: identity.added.clone(),
            planted: faults
                .as_ref()
                .map_or_else(Planted::default, |faults| faults.planted()),
            ..node_config(&config, id, seed)
        };
        let started = clock.now();
        let data = Data {
            config: &config,
            entry,
            disk: Arc::clone(&disk),
            wakes: &wakes,
        };
        let Opened { node, keyspaces } = data.open(node_config, || clock.now())?;
        let intervals = config
            .keyspaces()
            .filter_map(|(_, keyspace)| match keyspace.durability {
                Durability::Interval(every) => Some(Duration::from_micros(every.0)),
                Durability::Fsync | Durability::None => None,
            });
        let interval = intervals.min();
        let others = config.nodes().filter(|(other, _)| *other != id);
        let others = others.map(|(id, other)| (id, other.name.clone(), other.admin.to_string()));
        Ok(Arc::new(Host {
            name: entry.name.clone(),
            id,
            node,
            wan,
            others: Arc::new(Others::new(
                &AdminToken::of_nodes(&config.secret),
                tls.as_ref(),
                others,
            )),
            rates: Mutex::new(Rates::since(started.monotonic)),
            guard: Arc::new(Guard::new(
                &entry.name,
                &config.secret,
                config.admin_token.as_ref(),
                config.admin_hosts().map(str::to_string),
            )),
            wakes,
            metrics: Metrics::new(config.keyspaces().map(|(_, keyspace)| keyspace.name.clone())),
            identity: Identity {
                cluster: config.name.clone(),
                layout: config.layout(),
                keyspaces: config.terms(),
                node: entry.name.clone(),
                run: random.next_u64(),
                secret: config.secret.clone(),
            },
            tls,
            disk,
            lost_directory: AtomicBool::new(false),
            keyspaces,
            stopping: AtomicBool::new(false),
            workers_stopping: AtomicBool::new(false),
            client_ids: AtomicU64::new(0),
            channels: Arc::default(),
            strangers: StrangerCounts::default(),
            users,
            audit: Audit::new(&entry.name),
            client_memory: ClientMemory::new(config.limits.client_memory_bytes()),
            syncs: AtomicU64::new(0),
            sync_every: interval.unwrap_or(LAZY_SYNC),
            syncs_by_interval: interval.is_some(),
            clients: AtomicUsize::new(0),
            stop: watch::Sender::new(false),
            failure: Mutex::default(),
            wants_restart: AtomicBool::new(false),
            links: (0..nodes).map(|_| Mutex::default()).collect(),
            replaced: watch::Sender::new(0),
            started: started.monotonic,
            random: Mutex::new(random),
            config,
            clock,
            faults,
        }))
    }

    // ---- time and turns -------------------------------------------------------------------------------------

    /// This node's site.
    pub fn site(&self) -> SiteId {
        self.config.node(self.id).site
    }

    /// Commits what a worker's call has staged.
    pub fn commit(&self) {
        self.commit_at(self.clock.now());
    }

    pub fn commit_at(&self, now: Now) {
        if let Err(error) = self.node.commit(now) {
            self.complain(&error);
        }
    }

    /// Logs that the log cannot be written, once until it can be written again. Stops the node if the log can never be written again.
    fn complain(&self, error: &turnbuckle_log::LogError) {
        match error {
            turnbuckle_log::LogError::Poisoned(_) => self.fail(&error.to_string()),
            turnbuckle_log::LogError::NotWritten(_) => {
                let mut failure = lock(&self.failure);
                let text = error.to_string();
                if failure.as_ref() != Some(&text) {
                    tracing::error!(node = self.name, "{text}; writes wait until there is room");
                    *failure = Some(text);
                }
            }
        }
    }

    /// Whether the data directory was removed or replaced while the node runs. In that case the node ends, and acknowledges nothing more.
    pub fn has_lost_directory(&self) -> bool {
        self.lost_directory.load(Ordering::Acquire)
    }

    /// Checks whether the data directory is still there. Only the directory of the log is checked, and the engine's tables are not.
    pub fn look_at_directory(&self) {
        if !self.has_lost_directory() && self.disk.is_gone() {
            self.lost_directory.store(true, Ordering::Release);
            self.fail(&format!(
                "the data directory {} was removed or replaced while the node ran; it must be left alone until the node has ended",
                self.config.node(self.id).data.display()
            ));
        }
    }

    /// Logs that the log can be written again, if it could not be.
    fn look_at_log(&self) {
        let mut failure = lock(&self.failure);
        if failure.is_some() && !self.is_stopping() && !self.node.is_log_failing() {
            tracing::warn!(node = self.name, "the log is written again");
            *failure = None;
        }
    }

    /// Tells the node how much free space its disk has. Logs when there is too little, and when there is enough again.
    pub fn look_at_disk(&self) {
        self.look_at_log();
        let data = &self.config.node(self.id).data;
        let Some(free) = free_bytes(data) else {
            return;
        };
        let had_room = self.node.has_room();
        let is_full = self.faults.as_ref().is_some_and(|faults| faults.disk_is_full());
        self.node.set_free_bytes(if is_full { 0 } else { free });
        if had_room != self.node.has_room() {
            let min = self.config.limits.min_free_disk_mb;
            match had_room {
                true => tracing::error!(
                    node = self.name,
                    "the disk of {} has less than {min} MiB free (min_free_disk_mb): writes are refused",
                    data.display()
                ),
                false => tracing::warn!(node = self.name, "the disk has room again: writes are accepted"),
            }
        }
    }

    /// Reserves disk space for the next start, if there is any beyond what writes may need. Returns whether it is reserved.
    pub fn keep_ballast(&self) -> bool {
        let data = &self.config.node(self.id).data;
        let spare =
            free_bytes(data).map(|free| free.saturating_sub(self.config.limits.min_free_disk_bytes()));
        Ballast::of(data).keep(spare.unwrap_or(0))
    }

    /// Whether clients and peers have to wait: the versions in memory that no checkpoint has yet exceed the memory limit.
    pub fn is_overloaded(&self) -> bool {
        self.node.is_overloaded()
    }

    pub fn ring_first_loop(&self) {
        self.wakes.of_loop(0).ring();
    }

    // ---- the end --------------------------------------------------------------------------------------------

    /// Stops the node because it cannot go on.
    pub fn fail(&self, why: &str) {
        tracing::error!(node = self.name, "{why}; the node stops");
        *lock(&self.failure) = Some(why.to_string());
        self.stop();
    }

    /// Stops the node so that it is opened again.
    pub fn restart(&self, why: &str) {
        if self.is_stopping() {
            return;
        }
        self.wants_restart.store(true, Ordering::Release);
        self.fail(why);
    }

    pub fn wants_restart(&self) -> bool {
        self.wants_restart.load(Ordering::Acquire)
    }

    pub fn failure(&self) -> Option<String> {
        lock(&self.failure)
            .clone()
            .filter(|_| self.stopping.load(Ordering::Acquire))
    }

    /// Hands the leadership of the replicas here over to other nodes, as far as they can be reached. Waits until they have it, for a second at most.
    pub fn hand_over(&self) {
        const STEPS: u32 = 100;
        self.node.wish(self.clock.now(), None, None, Wish::HandOver);
        for _ in 0..STEPS {
            if !self.node.is_handing_over() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asks for the leadership of the partitions whose leaders are to be at this site. A replica that is behind does not ask: until it had everything, nobody would lead.
    pub fn prefer(&self, now: Now) {
        let mut wanted = self.config.keyspaces().map(|(_, keyspace)| keyspace);
        if !wanted.any(|keyspace| keyspace.prefer == Some(self.site())) {
            return;
        }
        for status in self.node.status(now) {
            let mut keyspaces = self.config.keyspaces().map(|(_, keyspace)| keyspace);
            let is_wanted = keyspaces
                .any(|keyspace| keyspace.name == status.name && keyspace.prefer == Some(self.site()));
            let could_lead = |group: &turnbuckle_core::GroupStatus| {
                // Not if another replica of this site leads.
                let leader = group.leader.filter(|leader| leader.site() != self.site());
                leader.is_some() && group.is_member && group.applied == group.committed
            };
            for (partition, _) in status
                .groups
                .iter()
                .filter(|(_, group)| is_wanted && could_lead(group))
            {
                self.node
                    .wish(now, Some(&status.name), Some(*partition), Wish::Lead);
            }
        }
    }

    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop.send_replace(true);
        self.wakes.workers().raise();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub fn stop_workers(&self) {
        self.workers_stopping.store(true, Ordering::Release);
        self.wakes.workers().raise();
        self.wakes.sync().raise();
    }

    pub async fn until_stopping(&self) {
        let mut stop = self.stop.subscribe();
        // This cannot fail: the sender lives as long as the host.
        let _ = stop.wait_for(|stop| *stop).await;
    }

    /// Called after all threads have ended. Syncs everything that was written, so that a power loss after a clean stop loses nothing.
    pub fn finish(&self) -> Result<(), turnbuckle_log::LogError> {
        self.node.commit(self.clock.now())?;
        self.node.sync().run(|| self.clock.now())?;
        self.node.note_synced();
        Ok(())
    }

    // ---- clients --------------------------------------------------------------------------------------------

    /// Whether one more client may connect. If so, it is counted.
    pub fn admit_client(&self) -> bool {
        let max = self.config.limits.max_clients as usize;
        let admitted = self
            .clients
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
                (now < max).then_some(now + 1)
            });
        admitted.is_ok()
    }

    /// Whether the node does not serve a client of this address: it has no users, and the client is on another machine.
    pub fn is_protected_from(&self, client: IpAddr) -> bool {
        self.users.is_none() && self.config.is_protected() && !client.to_canonical().is_loopback()
    }

    /// Something was refused because of the client's user.
    pub fn note_refused(&self, refused: &Refused<'_>) {
        self.audit.note(refused, self.clock.monotonic());
    }

    /// Reads the file of the users again. If it cannot be read or has a mistake, that is logged, and the users stay as they are.
    pub fn reload_users(&self) {
        let (Some(book), Some(file)) = (&self.users, &self.config.users_file) else {
            return;
        };
        match users::read(file, &self.config) {
            Ok(users) => {
                tracing::info!(
                    node = self.name,
                    "{} users of {}, read again",
                    users.len(),
                    file.display()
                );
                book.replace(users);
            }
            Err(error) => {
                self.audit.note_bad_file();
                tracing::error!(node = self.name, "the users stay as they were: {error}");
            }
        }
    }

    pub fn client_left(&self) {
        self.clients.fetch_sub(1, Ordering::AcqRel);
    }

    pub fn default_keyspace(&self) -> &str {
        &self.config.keyspace(self.config.default_keyspace()).name
    }

    pub fn resp_limits(&self) -> Limits {
        let (limits, usual) = (&self.config.limits, Limits::default());
        Limits {
            max_key_bytes: limits.max_key_bytes as usize,
            max_bulk_bytes: limits.max_value_bytes as usize,
            max_frame_bytes: limits.max_command_bytes as usize,
            max_arguments: limits.max_arguments as usize,
            max_output_bytes: limits.max_client_backlog_bytes as usize,
            // No client gets more than half of what is shared out, so no reply can be larger.
            max_reply_bytes: usual
                .max_reply_bytes
                .min(shared_of(limits.client_memory_bytes()) as usize / 2),
            ..usual
        }
    }

    // ---- links ----------------------------------------------------------------------------------------------

    pub fn peers(&self) -> impl Iterator<Item = NodeId> {
        let me = self.id;
        self.config.nodes().map(|(id, _)| id).filter(move |&id| id != me)
    }

    pub fn peer_named(&self, name: &str) -> Option<NodeId> {
        self.config.node_named(name)
    }

    pub fn node_name(&self, peer: NodeId) -> &str {
        &self.config.node(peer).name
    }

    pub fn peer_address(&self, peer: NodeId) -> String {
        self.config.node(peer).peer.to_string()
    }

    /// The delay of what is sent to a peer.
    pub fn link_delay(&self, peer: NodeId) -> LinkDelay {
        self.wan.link(self.site(), self.config.node(peer).site).delay
    }

    /// Whether a peer is at another site.
    pub fn is_far(&self, peer: NodeId) -> bool {
        self.config.node(peer).site != self.site()
    }

    /// Whether the WAN matrix has a cut between this node's site and a peer's, in either direction.
    pub fn is_cut(&self, peer: NodeId) -> bool {
        let (here, there) = (self.site(), self.config.node(peer).site);
        self.is_far(peer) && (self.wan.link(here, there).cut || self.wan.link(there, here).cut)
    }

    fn link(&self, peer: NodeId) -> MutexGuard<'_, Link> {
        lock(&self.links[usize::from(peer.0)])
    }

    /// A connection to a peer is ready. An older connection ends first. Returns the number of this connection.
    pub async fn begin_link(&self, peer: NodeId, met: &Met) -> u64 {
        let life = {
            let mut link = self.link(peer);
            link.life += 1;
            link.life
        };
        self.replaced.send_modify(|count| *count += 1);
        // The task of the older connection runs on this same thread, and ends when it is polled next.
        while self.link(peer).up {
            tokio::task::yield_now().await;
        }
        let mut link = self.link(peer);
        (link.up, link.reason, link.is_refused) = (true, None, false);
        link.run = Some((met.run, Instant::now()));
        link.agreement.clone_from(&met.agreement);
        life
    }

    /// Another run of a peer than `run`, if it has a link and was heard from within `heard_within`.
    pub fn another_run(&self, peer: NodeId, run: u64, heard_within: Duration) -> Option<u64> {
        let (linked, heard) = self.link(peer).run?;
        (linked != run && heard.elapsed() < heard_within).then_some(linked)
    }

    /// Returns when a newer connection of the peer has begun.
    pub async fn link_replaced(&self, peer: NodeId, life: u64) {
        let mut replaced = self.replaced.subscribe();
        while self.link(peer).life == life {
            let _ = replaced.changed().await;
        }
    }

    pub fn end_link(&self, peer: NodeId, why: &str) {
        let mut link = self.link(peer);
        (link.up, link.held_bytes, link.run) = (false, 0, None);
        link.agreement = Agreement::default();
        link.reason = Some(why.to_string());
    }

    /// There is no link, and why.
    pub fn note_link(&self, peer: NodeId, reason: &str) {
        let mut link = self.link(peer);
        (link.reason, link.is_refused) = (Some(reason.to_string()), false);
    }

    /// There is no link because one of the two nodes refuses it.
    pub fn note_refusal(&self, peer: NodeId, reason: &str) {
        let mut link = self.link(peer);
        (link.reason, link.is_refused) = (Some(reason.to_string()), true);
    }

    pub fn link_sent(&self, peer: NodeId, bytes: usize, held_bytes: usize) {
        let mut link = self.link(peer);
        link.sent_bytes += bytes as u64;
        link.held_bytes = held_bytes as u64;
    }

    pub fn link_received(&self, peer: NodeId, bytes: usize) {
        let mut link = self.link(peer);
        link.received_bytes += bytes as u64;
        if let Some((_, heard)) = &mut link.run {
            *heard = Instant::now();
        }
    }

    pub fn draw(&self) -> u64 {
        lock(&self.random).next_u64()
    }

    pub fn fill_random(&self, bytes: &mut [u8]) {
        lock(&self.random).fill_bytes(bytes);
    }

    pub fn nonce(&self) -> [u8; 16] {
        let mut nonce = [0; 16];
        lock(&self.random).fill_bytes(&mut nonce);
        nonce
    }
}

/// The free bytes of the disk that a directory is on.
fn free_bytes(directory: &std::path::Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn node_config(config: &ClusterConfig, id: NodeId, seed: u64) -> NodeConfig {
    let limits = &config.limits;
    let placement = config.placement();
    NodeConfig {
        loops: config.node(id).loops,
        memory_limit_bytes: limits.memory_limit_bytes(),
        retained_log_bytes: limits.retained_log_bytes(),
        // The log is purged in whole segments. They are small enough for the limit to mean something.
        segment_bytes: (limits.retained_log_bytes() / 16).clamp(1 << 20, 64 << 20),
        checkpoint_log_bytes: limits.checkpoint_log_bytes(),
        checkpoint_interval: Micros::from_millis(limits.checkpoint_interval_ms),
        min_free_bytes: limits.min_free_disk_bytes(),
        clock_ahead: limits.max_clock_ahead(),
        seed,
        ..NodeConfig::new(id, placement)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
