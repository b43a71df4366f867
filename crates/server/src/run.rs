//! A node that runs: its event loops, its links, its workers.
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
mod wakes;
mod workers;

use crate::{
    Clock, TestFaults,
    admin::AdminServer,
    admin::ask_others,
    config::{ClusterConfig, NodeId},
    peer,
    wan::WanMatrix,
};
use client::Client;
use event_loop::EventLoop;
use std::{
    io,
    net::{TcpListener, ToSocketAddrs},
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
};
use thiserror::Error;
use tokio::task::LocalSet;
use turnbuckle_node::OpenError;
use turnbuckle_resp::{Connection, Greeting};

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address is taken, or not of this machine.
    #[error("the {what} address {address} of node '{node}' cannot be used: {source}")]
    Address {
        /// What it is for.
        what: &'static str,
        /// The address.
        address: String,
        /// The node.
        node: String,
        /// Why.
        source: io::Error,
    },
    /// The data directory cannot be used.
    #[error("the data directory {path}: {source}")]
    Directory {
        /// Which.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The data directory is another node's.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The data cannot be opened.
    #[error("the data directory {path}: {source}")]
    Data {
        /// Which.
        path: String,
        /// Why.
        source: Box<OpenError>,
    },
    /// The engine cannot be opened.
    #[error("the data directory {path}: {source}")]
    Engine {
        /// Which.
        path: String,
        /// Why.
        source: turnbuckle_store::EngineError,
    },
    /// What the engine's files hold is not what was written there, and cannot be told from it.
    #[error(
        "{path}: {found}; this was once safely on disk, so the disk is failing or a file was changed. {advice} (docs/configuration.md, \
         \"A damaged disk\")"
    )]
    Damaged {
        /// Which directory.
        path: String,
        /// What was found.
        found: String,
        /// What to do.
        advice: &'static str,
    },
    /// No thread, no runtime.
    #[error("the operating system refused: {0}")]
    System(#[from] io::Error),
}

/// Why a node that was to be opened anew does not run.
#[derive(Debug, Error)]
pub enum OpenAnewError {
    /// The log could not be written while the node was stopped.
    #[error("{0}")]
    End(String),
    /// It does not start again.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// A node that runs, in threads of its own. Dropped, it stops.
pub struct Running {
    host: Arc<Host>,
    loops: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    /// What it was started with.
    start: Start,
}

/// What a node is started with.
#[derive(Clone)]
struct Start {
    config: Arc<ClusterConfig>,
    node: NodeId,
    wan: WanMatrix,
    options: StartOptions,
    /// It goes on when the node is opened anew: a process takes the wall clock as it is only once.
    clock: Arc<Clock>,
}

/// The sockets of a node, bound before anything else: a port that is taken is the commonest mistake.
struct Sockets {
    resp: TcpListener,
    peer: TcpListener,
    admin: TcpListener,
}

/// Starts a node: binds its sockets, opens its data, and serves.
///
/// `wan` is what delays its frames; the nodes of one process share it.
///
/// # Errors
/// If an address or the data directory cannot be used.
pub fn start(config: Arc<ClusterConfig>, node: NodeId, wan: WanMatrix) -> Result<Running, StartError> {
    start_with(config, node, wan, StartOptions::default())
}

/// What a start may be told besides the configuration.
#[derive(Clone, Default)]
pub struct StartOptions {
    /// The cluster has never served: an empty data directory is no lost one, and waits for no other site.
    pub is_new_cluster: bool,
    /// What a test has done to the node.
    pub faults: Option<Arc<TestFaults>>,
}

/// The same, with options.
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
    Start {
        config,
        node,
        wan,
        options,
        clock: Arc::new(clock),
    }
    .run()
}

impl Start {
    fn run(self) -> Result<Running, StartError> {
        let entry = self.config.node(self.node).clone();
        descriptors::raise_limit(&self.config, &entry.name);
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
        // Nobody waits for it: a node serves whether others answer or not.
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
        if !host.admit_client() {
            event_loop.recorder.borrow_mut().client_refused();
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
        let charge = host.client_memory.open(greeting.id, &event_loop.served);
        let client = event_loop.admit(|slot| Client::new(slot, socket, Connection::new(greeting), charge));
        event_loop.recorder.borrow_mut().client_connected();
        let event_loop = Rc::clone(event_loop);
        tokio::task::spawn_local(client.serve(event_loop));
    }
}

/// When no connection can be accepted (there are no more file descriptors), another try a little later.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

impl Running {
    /// The node's name.
    pub fn name(&self) -> &str {
        &self.host.name
    }

    /// Whether the node has links to all others.
    pub fn is_connected(&self) -> bool {
        self.host.peers().all(|peer| self.host.node.is_link_up(peer))
    }

    /// What made the node stop by itself, if something did.
    pub fn failure(&self) -> Option<String> {
        self.host.failure()
    }

    /// Whether it stopped so that it is opened anew ([`Running::open_anew`]): then what a disk has damaged comes from other sites.
    pub fn wants_restart(&self) -> bool {
        self.host.wants_restart()
    }

    /// Stops the node as [`Running::stop`] does, and opens it on what its data directory holds.
    ///
    /// # Errors
    /// As of stopping and of starting.
    pub fn open_anew(self) -> Result<Running, OpenAnewError> {
        let mut start = self.start.clone();
        // Whatever its directory is by then, the cluster has served.
        start.options.is_new_cluster = false;
        // The directory has to be released first.
        self.stop().map_err(OpenAnewError::End)?;
        Ok(start.run()?)
    }

    /// Stops the node: no new clients, what is under way is finished within the configured grace, everything written is synced.
    ///
    /// # Errors
    /// If the log could not be written in the end: what was not acknowledged is lost.
    pub fn stop(mut self) -> Result<(), String> {
        self.end()
    }

    fn end(&mut self) -> Result<(), String> {
        self.host.stop();
        // What is under way needs the workers: it waits for a sync, or for a key from disk.
        for thread in self.loops.drain(..) {
            let _ = thread.join();
        }
        self.host.stop_workers();
        for thread in self.workers.drain(..) {
            let _ = thread.join();
        }
        self.host.finish().map_err(|error| {
            let node = &self.host.name;
            format!("node {node}, at the end: {error}; what was acknowledged is safe")
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
