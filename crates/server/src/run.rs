//! A running node: its event loops, its links, its workers.
mod ballast;
mod client;
mod client_memory;
mod descriptors;
mod door;
mod event_loop;
mod host;
pub(crate) use host::Host;
mod files;
mod identity;
pub use identity::IdentityError;
mod input;
mod line;
mod socket;
mod wakes;
mod workers;

use crate::{
    Clock, TestFaults,
    admin::AdminServer,
    admin::ask_others,
    config::{ClusterConfig, ConfigError, NodeId},
    peer,
    tls::TlsError,
    users,
    wan::WanMatrix,
};
use client::Client;
use event_loop::EventLoop;
use socket::Socket;
use std::{
    io::{self, Write},
    net::{TcpListener, ToSocketAddrs},
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
};
use thiserror::Error;
use tokio::task::LocalSet;
use turnbuckle_node::OpenError;
use turnbuckle_resp::{Connection, Greeting, Refused, RefusedFor, UserBook};

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address is taken, or is not an address of this machine.
    #[error("the {what} address {address} of node '{node}' cannot be used: {source}")]
    Address {
        /// The name of the address: RESP, peer or admin.
        what: &'static str,
        /// The address.
        address: String,
        /// The node's name.
        node: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The data directory cannot be used.
    #[error("the data directory {path}: {source}")]
    Directory {
        /// The path of the directory.
        path: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The data directory is another node's, or its identity cannot be read or written.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The data cannot be opened.
    #[error("the data directory {path}: {source}")]
    Data {
        /// The path of the directory.
        path: String,
        /// The error.
        source: Box<OpenError>,
    },
    /// The engine cannot be opened.
    #[error("the data directory {path}: {source}")]
    Engine {
        /// The path of the directory.
        path: String,
        /// The error.
        source: turnbuckle_store::EngineError,
    },
    /// Files of the engine do not hold what was written to them, and what was written cannot be restored from them.
    #[error(
        "{path}: {found}; this was once safely on disk, so the disk is failing or a file was changed. {advice} (docs/configuration.md, \
         \"A damaged disk\")"
    )]
    Damaged {
        /// The path of the engine's directory.
        path: String,
        /// What was found.
        found: String,
        /// What the operator should do.
        advice: &'static str,
    },
    /// The certificates cannot be used.
    #[error("[tls]: {0}")]
    Tls(#[from] TlsError),
    /// The file of the users cannot be read, or has a mistake.
    #[error(transparent)]
    Users(#[from] ConfigError),
    /// The system provides no thread, runtime, socket or random numbers.
    #[error("the operating system refused: {0}")]
    System(#[from] io::Error),
}

/// Why a node that was to be opened again does not run.
#[derive(Debug, Error)]
pub enum OpenAnewError {
    /// The log could not be written while the node was stopped.
    #[error("{0}")]
    End(String),
    /// The node does not start again.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// A running node, in threads of its own. When this is dropped, the node stops.
pub struct Running {
    host: Arc<Host>,
    loops: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    /// What the node was started with.
    start: Start,
}

/// What a node is started with.
#[derive(Clone)]
struct Start {
    config: Arc<ClusterConfig>,
    node: NodeId,
    wan: WanMatrix,
    options: StartOptions,
    /// The clock stays when the node is opened again: a process takes the wall clock as it is only once.
    clock: Arc<Clock>,
    /// The users stay, too: if the file has a mistake by then, the node serves nevertheless.
    users: Option<Arc<UserBook>>,
}

/// The sockets of a node. They are bound before anything else, because a port that is taken is the most common mistake.
struct Sockets {
    resp: TcpListener,
    peer: TcpListener,
    admin: TcpListener,
}

/// Starts a node: binds its sockets, opens its data, and serves.
///
/// `wan` delays the frames that the node sends. The nodes of one process share it.
///
/// # Errors
/// If an address or the data directory cannot be used.
pub fn start(config: Arc<ClusterConfig>, node: NodeId, wan: WanMatrix) -> Result<Running, StartError> {
    start_with(config, node, wan, StartOptions::default())
}

/// The options of a start, besides the configuration.
#[derive(Clone, Default)]
pub struct StartOptions {
    /// The cluster has never served. So an empty data directory is not a lost one, and the node does not wait for other sites to fill it.
    pub is_new_cluster: bool,
    /// The faults that a test puts into the node.
    pub faults: Option<Arc<TestFaults>>,
}

/// Starts a node as [`start`] does, with options.
///
/// # Errors
/// As [`start`].
pub fn start_with(
    config: Arc<ClusterConfig>,
    node: NodeId,
    wan: WanMatrix,
    options: StartOptions,
) -> Result<Running, StartError> {
    let clock = Clock::new(config.limits.clock_bound()).with_faults(options.faults.clone());
    let users = read_users(&config, node)?;
    Start {
        users,
        config,
        node,
        wan,
        options,
        clock: Arc::new(clock),
    }
    .run()
}

/// Reads the users, if there is a file of them. Says what a node without users does.
fn read_users(config: &ClusterConfig, node: NodeId) -> Result<Option<Arc<UserBook>>, ConfigError> {
    let entry = config.node(node);
    let node = &entry.name;
    let Some(file) = &config.users_file else {
        let is_local = match entry.resp.host() {
            "localhost" => true,
            host => host
                .parse()
                .is_ok_and(|address: std::net::IpAddr| address.is_loopback()),
        };
        match (config.is_protected(), is_local) {
            (true, true) => tracing::info!(node, "{NO_USERS}"),
            (true, false) => tracing::warn!(node, "{NO_USERS}"),
            (false, _) if config.protected => tracing::info!(
                node,
                "the node has no users: each client with a certificate may do everything"
            ),
            (false, _) => tracing::warn!(
                node,
                "the node has no users and is not protected: each client that reaches {} may do everything",
                entry.resp
            ),
        }
        return Ok(None);
    };
    let found = users::read(file, config)?;
    if users::is_readable_by_others(file) {
        tracing::warn!(
            node,
            "{} can be read by other users of the machine: it should have mode 0600",
            file.display()
        );
    }
    tracing::info!(node, "{} users of {}", found.len(), file.display());
    Ok(Some(UserBook::new(found)))
}

const NO_USERS: &str = "the node has no users (users_file), so it serves clients of this machine only, over loopback addresses (protected)";

/// What a client of another machine is told by a node without users.
const DENIED: &[u8] = b"-DENIED This node has no users, so it serves clients of its own machine only, over loopback addresses. Either give it \
    users (users_file in its configuration), or write protected = false there if every machine that reaches it may do everything; then restart \
    the node (docs/security.md).\r\n";

/// Says which default levels often cost more than their names say.
fn warn_of_levels(config: &ClusterConfig, node: &str) {
    for (_, keyspace) in config.keyspaces() {
        for level in [keyspace.levels.read, keyspace.levels.write] {
            if let Some(doubt) = keyspace.protocol.doubt(&keyspace.parameters, level) {
                tracing::warn!(node, "keyspace '{}': {doubt}", keyspace.name);
            }
        }
    }
}

impl Start {
    fn run(self) -> Result<Running, StartError> {
        let entry = self.config.node(self.node).clone();
        descriptors::raise_limit(&self.config, &entry.name);
        warn_of_levels(&self.config, &entry.name);
        files::keep_private(&entry.name, &entry.data);
        let bind = |what, address: &crate::config::Address| {
            bind(&address.to_string()).map_err(|source| StartError::Address {
                what,
                address: address.to_string(),
                node: entry.name.clone(),
                source,
            })
        };
        let sockets = Sockets {
            resp: bind("RESP", &entry.resp)?,
            peer: bind("peer", &entry.peer)?,
            admin: bind("admin", &entry.admin)?,
        };
        self.wan.serve(self.node);
        let host = Host::open(&self)?;
        let (others, wan) = (Arc::clone(&host.others), self.wan.clone());
        // This thread is not waited for: a node serves whether other nodes answer or not.
        std::thread::Builder::new()
            .name(format!("{}-wan", entry.name))
            .spawn(move || ask_others(&others, &wan))?;
        let workers = workers::start(&host)?;
        let mut loops = Vec::new();
        let mut first = Some((sockets.peer, sockets.admin));
        for index in 0..entry.loops {
            let resp = sockets.resp.try_clone()?;
            let (host, first) = (Arc::clone(&host), first.take());
            let thread = std::thread::Builder::new().name(format!("{}-loop{index}", entry.name));
            loops.push(thread.spawn(move || run_loop(host, index, resp, first))?);
        }
        Ok(Running {
            host,
            loops,
            workers,
            start: self,
        })
    }
}

fn bind(address: &str) -> io::Result<TcpListener> {
    let addresses: Vec<_> = address.to_socket_addrs()?.collect();
    let listener = TcpListener::bind(&addresses[..])?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn run_loop(host: Arc<Host>, index: usize, resp: TcpListener, first: Option<(TcpListener, TcpListener)>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return host.fail(&format!("an event loop cannot run: {error}")),
    };
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let event_loop = EventLoop::new(Arc::clone(&host), index);
        if let Some((peers, admin)) = first {
            match (
                tokio::net::TcpListener::from_std(peers),
                tokio::net::TcpListener::from_std(admin),
            ) {
                (Ok(peers), Ok(admin)) => {
                    peer::start(&host, peers);
                    match AdminServer::start(admin, host.admin()) {
                        Ok(server) => event_loop.keep(server),
                        Err(error) => return host.fail(&format!("the admin socket cannot be used: {error}")),
                    }
                }
                (Err(error), _) | (_, Err(error)) => {
                    return host.fail(&format!("a socket cannot be used: {error}"));
                }
            }
        }
        let turns = Rc::clone(&event_loop);
        tokio::task::spawn_local(async move { turns.run_turns().await });
        match tokio::net::TcpListener::from_std(resp) {
            Ok(resp) => {
                tokio::select! {
                    () = accept_clients(&event_loop, resp) => {}
                    () = host.until_stopping() => {}
                }
            }
            Err(error) => host.fail(&format!("the RESP socket cannot be used: {error}")),
        }
        event_loop.wind_down().await;
    });
}

async fn accept_clients(event_loop: &Rc<EventLoop>, listener: tokio::net::TcpListener) {
    let host = &event_loop.host;
    loop {
        let (socket, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(node = host.name, "no connection could be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if host.is_protected_from(address.ip()) {
            host.note_refused(&Refused {
                why: RefusedFor::Protected,
                client: &address.to_string(),
                user: b"",
                command: "",
                keyspace: "",
                key: None,
            });
            event_loop.recorder.borrow_mut().client_refused();
            // Tokio does not write before it knows that the socket is ready.
            let _ = socket.into_std().map(|mut socket| socket.write(DENIED));
            continue;
        }
        if !host.admit_client() {
            event_loop.recorder.borrow_mut().client_refused();
            // With TLS, the client cannot read that.
            let _ = socket.try_write(b"-ERR max number of clients reached\r\n");
            continue;
        }
        let _ = socket.set_nodelay(true);
        let greeting = Greeting {
            id: host.client_ids.fetch_add(1, Ordering::Relaxed) + 1,
            peer: address.to_string(),
            local: socket
                .local_addr()
                .map(|address| address.to_string())
                .unwrap_or_default(),
            keyspace: host.default_keyspace().to_string(),
            limits: host.resp_limits(),
        };
        let protected = host.tls.as_ref().and_then(|tls| tls.for_clients());
        let socket = match protected {
            None => Socket::plain(socket),
            Some(config) => match Socket::protected(socket, config) {
                Ok(socket) => socket,
                Err(error) => {
                    tracing::warn!(node = host.name, "a connection cannot be protected: {error}");
                    host.client_left();
                    continue;
                }
            },
        };
        let charge = host.client_memory.open(greeting.id, &event_loop.served);
        let now = event_loop.now().monotonic;
        let connection = match &host.users {
            Some(users) => Connection::new(greeting).with_users(Arc::clone(users)),
            None => Connection::new(greeting),
        };
        let client = event_loop.admit(|slot| Client::new(slot, socket, connection, charge, now));
        event_loop.recorder.borrow_mut().client_connected();
        let event_loop = Rc::clone(event_loop);
        tokio::task::spawn_local(client.serve(event_loop));
    }
}

/// How long to wait if no connection can be accepted, for example because no file descriptor is left.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

impl Running {
    /// The node's name.
    pub fn name(&self) -> &str {
        &self.host.name
    }

    /// Whether the node has links to all other nodes.
    pub fn is_connected(&self) -> bool {
        self.host.peers().all(|peer| self.host.node.is_link_up(peer))
    }

    /// Whether it has users.
    pub fn has_users(&self) -> bool {
        self.host.users.is_some()
    }

    /// Reads the file of the users again. If it cannot be read or has a mistake, that is logged, and the users stay as they are.
    pub fn reload_users(&self) {
        self.host.reload_users();
    }

    /// Why the node stopped by itself, if it did.
    pub fn failure(&self) -> Option<String> {
        self.host.failure()
    }

    /// Whether the node stopped in order to be opened again ([`Running::open_anew`]). Opened again, it takes from other sites the data that a disk
    /// has damaged.
    pub fn wants_restart(&self) -> bool {
        self.host.wants_restart()
    }

    /// Stops the node as [`Running::stop`] does, and opens it again on its data directory.
    ///
    /// # Errors
    /// If stopping or starting fails.
    pub fn open_anew(self) -> Result<Running, OpenAnewError> {
        let mut start = self.start.clone();
        // Even if its directory is empty by then, the cluster has served.
        start.options.is_new_cluster = false;
        // The directory must be released first.
        self.stop().map_err(OpenAnewError::End)?;
        Ok(start.run()?)
    }

    /// Stops the node. It accepts no new clients, finishes what is under way within the configured grace, and syncs everything that was written.
    ///
    /// # Errors
    /// If the log could not be written in the end. Then writes that were not acknowledged are lost.
    pub fn stop(mut self) -> Result<(), String> {
        self.end()
    }

    fn end(&mut self) -> Result<(), String> {
        self.host.hand_over();
        self.host.stop();
        // Operations under way need the workers: they wait for a sync, or for a key from disk.
        for thread in self.loops.drain(..) {
            let _ = thread.join();
        }
        self.host.stop_workers();
        for thread in self.workers.drain(..) {
            let _ = thread.join();
        }
        self.host.finish().map_err(|error| {
            let node = &self.host.name;
            format!("node {node}, at the end: {error}; every acknowledged write with durability fsync is on disk; a power loss can take \
                writes with interval or none that were not synced")
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.loops.is_empty()
            && let Err(why) = self.end()
        {
            tracing::error!("{why}");
        }
    }
}
