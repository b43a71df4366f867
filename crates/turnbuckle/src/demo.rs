//! `turnbuckle demo`: a cluster on this machine, one site beside the other, with the delays of a WAN between them.
use crate::{
    failure::{Failure, environment, say, tell, usage},
    logging,
    protocols::protocol_named,
    shell::{self, ShellSite},
    start::wait_for_end,
};
use clap::Args;
use comfy_table::{Table, presets::UTF8_HORIZONTAL_ONLY};
use rand::{TryRng, rngs::SysRng};
use rustix::{
    process::{Pid, Signal, kill_process},
    termios::{OptionalActions, Termios, tcgetattr, tcsetattr},
};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    fs::Permissions,
    io::{self, Write},
    net::TcpListener,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};
use tokio::sync::oneshot;
use turnbuckle_core::Micros;
use turnbuckle_document::Name;
use turnbuckle_protocols::KINDS;
use turnbuckle_server::{
    admin::AdminClient,
    config::{
        ClusterConfig, Demo as DemoConfig, DemoKeyspace, DemoPorts, Limits, NodeEntry, NodeId, read_wan_file,
    },
    wan::{WanDelays, WanMatrix},
};

/// Runs a cluster of several sites on this machine, with WAN delays between them.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  turnbuckle demo\n  redis-cli -p 7000 set greeting hello\n  redis-cli -p 7002 get greeting"
)]
pub struct Demo {
    /// The number of sites, 1 to 16. They are called a, b, c, ...
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=16))]
    sites: u8,
    /// The number of nodes of each site, 1 to 5. With three, each partition of 'regional' has three replicas at each site.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    nodes: u8,
    /// The number of partitions of each keyspace, 1 to 16384.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16_384))]
    partitions: u16,
    /// Add a keyspace beside 'causal', 'eventual', 'quorum', 'consensus' and 'regional', such as rain=gentlerain, or give one of those five another protocol. May be repeated.
    #[arg(long = "keyspace", value_name = "NAME=PROTOCOL", value_parser = keyspace)]
    keyspaces: Vec<(String, String)>,
    /// Read the delays between sites from a file (docs/configuration.md), or use none with 'off'; default: the delays of three continents.
    #[arg(long, value_name = "FILE|off")]
    wan: Option<PathBuf>,
    /// Keep the data in this directory after the end; default: a temporary directory, which is removed.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// End after this time, such as 30s; default: when it is told to end.
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Micros>,
    /// The port of the first node of site a. Each other node gets the next port; admin ports are 100 higher, peer ports 200 higher; default: the first free block
    /// from 7000 on.
    #[arg(long)]
    port: Option<u16>,
    /// Run each node in a process of its own, so that it can be killed. The demo reports when a process has ended, and how to start it again.
    #[arg(long)]
    processes: bool,
    /// Print one JSON object with the addresses once the sites are ready.
    #[arg(long, conflicts_with = "shell")]
    json: bool,
    /// Open a prompt in this terminal: Redis commands at any site, receipts in words, cuts between sites. The demo ends with the prompt.
    #[arg(long)]
    shell: bool,
    /// When writes are acknowledged: fsync, interval(10ms) or none.
    #[arg(long, default_value = "interval(10ms)")]
    durability: turnbuckle_server::config::Durability,
    /// The number of event loops of each site, 1 to 64.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    loops: u8,
    /// The memory for versions of each site, in MiB. What does not fit is read from disk.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(16..=1 << 24))]
    memory_mb: u64,
}

fn keyspace(text: &str) -> Result<(String, String), String> {
    let (name, protocol) = text
        .split_once('=')
        .ok_or_else(|| "expected a name and a protocol, such as rain=gentlerain".to_string())?;
    name.parse::<Name>().map_err(|bad| bad.to_string())?;
    Ok((name.to_string(), protocol.to_string()))
}

/// What a program that starts a demo needs to know: the output of `--json`.
#[derive(Debug, Serialize)]
struct Ready {
    sites: Vec<ReadySite>,
    data: PathBuf,
}

#[derive(Debug, Serialize)]
struct ReadySite {
    site: String,
    node: String,
    resp: String,
    admin: String,
    pid: u32,
}

/// The most nodes: the ports of one kind of address must not reach those of the next.
const MAX_NODES: usize = 100;

/// The first port that is tried.
const FIRST_PORT: u16 = 7000;

/// How long the sites may take to find each other. After that, a demo in one process is shown as it is, and one with `--processes` fails.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// A demo that takes longer than this to start says that it is still starting.
const SLOW_START: Duration = Duration::from_secs(5);

pub fn run(options: &Demo) -> Result<(), Failure> {
    // It is removed when it goes out of scope, at the very end.
    let temporary = match options.data {
        Some(_) => None,
        None => Some(
            tempfile::Builder::new()
                .prefix("turnbuckle-")
                .tempdir()
                .map_err(|error| environment(&error))?,
        ),
    };
    let data = match (&options.data, &temporary) {
        (Some(data), _) => {
            std::fs::create_dir_all(data).map_err(|error| {
                let data = data.display();
                environment(&format!(
                    "--data {data}: {error}; expected a directory, or a name for a new one"
                ))
            })?;
            std::path::absolute(data).map_err(|error| environment(&error))?
        }
        (None, Some(temporary)) => temporary.path().to_path_buf(),
        (None, None) => unreachable!("without --data there is a temporary directory"),
    };
    let demo = describe(options, &data)?;
    let config = demo.config().map_err(|error| usage(&error))?;
    let file = data.join("cluster.toml");
    write_secretly(&file, &demo.to_toml())
        .map_err(|error| environment(&format!("{}: {error}", file.display())))?;
    if !options.processes {
        return run_here(options, config, &data);
    }
    let all_ran = run_processes(options, &config, &file)?;
    // A node that was started again by hand does not end with the demo, and its files must stay.
    if let Some(temporary) = temporary.filter(|_| !all_ran) {
        tell(&format!(
            "{} is not removed: a node has ended before the demo, and may have been started again",
            temporary.keep().display()
        ));
    }
    Ok(())
}

/// The configuration has the cluster's secret: nobody else may read it.
fn write_secretly(file: &Path, text: &str) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut opened = options.open(file)?;
    // A file that was there keeps its mode.
    opened.set_permissions(Permissions::from_mode(0o600))?;
    opened.write_all(text.as_bytes())
}

fn describe(options: &Demo, data: &Path) -> Result<DemoConfig, Failure> {
    let sites: Vec<String> = (b'a'..)
        .take(usize::from(options.sites))
        .map(|name| char::from(name).to_string())
        .collect();
    let wan = match &options.wan {
        None => WanDelays::demo(sites.clone()),
        Some(off) if off.as_os_str() == "off" => WanDelays::none(sites.clone()),
        Some(file) => read_wan_file(file, &sites).map_err(|error| environment(&error))?,
    };
    let nodes = sites.len() * usize::from(options.nodes);
    if nodes > MAX_NODES {
        return Err(usage(&format!(
            "--sites {} --nodes {}: found {nodes} nodes; expected at most {MAX_NODES}",
            options.sites, options.nodes
        )));
    }
    let ports = match options.port {
        Some(port) => DemoPorts::block(port, nodes).ok_or_else(|| {
            usage(&format!(
                "--port {port}: expected a port from 1 to {}, as the admin ports begin 100 above it and the peer ports 200",
                usize::from(u16::MAX).saturating_sub(199 + nodes)
            ))
        })?,
        None => free_block(nodes)?,
    };
    let mut secret = [0; 32];
    SysRng
        .try_fill_bytes(&mut secret)
        .map_err(|error| environment(&error))?;
    Ok(DemoConfig {
        cluster: "demo".to_string(),
        secret: secret.iter().map(|byte| format!("{byte:02x}")).collect(),
        ports,
        partitions: options.partitions,
        keyspaces: keyspaces(options)?,
        data_root: data.to_path_buf(),
        loops: usize::from(options.loops),
        wan,
        limits: Limits {
            memory_limit_mb: options.memory_mb,
            ..Limits::default()
        },
    })
}

/// One keyspace of each kind, and those that the options name.
fn keyspaces(options: &Demo) -> Result<Vec<DemoKeyspace>, Failure> {
    let mut asked = BTreeSet::new();
    if let Some((twice, _)) = options.keyspaces.iter().find(|(name, _)| !asked.insert(name)) {
        return Err(usage(&format!(
            "--keyspace names '{twice}' twice; expected one protocol for each keyspace"
        )));
    }
    let mut keyspaces: Vec<DemoKeyspace> = KINDS.iter().map(|kind| DemoKeyspace::of(kind)).collect();
    for (name, protocol) in &options.keyspaces {
        protocol_named(&format!("--keyspace {name}={protocol}"), protocol)?;
        match keyspaces.iter_mut().find(|known| known.name == *name) {
            Some(known) => known.protocol.clone_from(protocol),
            None => keyspaces.push(DemoKeyspace {
                name: name.clone(),
                ..DemoKeyspace::of(protocol)
            }),
        }
    }
    for keyspace in &mut keyspaces {
        keyspace.durability = options.durability;
        if protocol_named("--keyspace", &keyspace.protocol)?
            .descriptor()
            .agrees_by_site
        {
            keyspace.members = u16::from(options.nodes);
        }
    }
    Ok(keyspaces)
}

fn free_block(nodes: usize) -> Result<Vec<DemoPorts>, Failure> {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    (FIRST_PORT..60_000)
        .step_by(1000)
        .filter_map(|base| DemoPorts::block(base, nodes))
        .find(|block| {
            block
                .iter()
                .all(|ports| is_free(ports.resp) && is_free(ports.peer) && is_free(ports.admin))
        })
        .ok_or_else(|| environment(&"no block of free ports was found; name one with --port"))
}

/// Says that the nodes are still starting, unless the sender that is returned is dropped before.
fn say_if_slow(options: &Demo, config: &ClusterConfig) -> mpsc::Sender<()> {
    let (nodes, keyspaces, partitions) = (
        config.nodes().count(),
        config.keyspaces().count(),
        options.partitions,
    );
    let (started, waits) = mpsc::channel();
    std::thread::spawn(move || {
        if waits.recv_timeout(SLOW_START) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(
                "still starting {nodes} nodes with {keyspaces} keyspaces of {partitions} partitions"
            );
        }
    });
    started
}

fn run_here(options: &Demo, config: ClusterConfig, data: &Path) -> Result<(), Failure> {
    let config = Arc::new(config);
    let wan = WanMatrix::new(&config.wan);
    let starting = say_if_slow(options, &config);
    let mut running = Vec::new();
    for (id, _) in config.nodes() {
        let node = turnbuckle_server::start(Arc::clone(&config), id, wan.clone());
        running.push(node.map_err(|error| environment(&error))?);
    }
    drop(starting);
    let begun = Instant::now();
    while begun.elapsed() < CONNECT_TIME && !running.iter().all(turnbuckle_server::Running::is_connected) {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    announce(options, &config, data, &[std::process::id()])?;
    let terminal = Terminal::remember(options.shell);
    let over = begin(options, &config);
    let ended = wait_for_end(running, over, || ());
    terminal.restore();
    ended
}

/// The modes of the terminal, which a shell changes while it reads a line. A demo may end meanwhile.
struct Terminal(Option<Termios>);

impl Terminal {
    fn remember(is_shell: bool) -> Terminal {
        Terminal(is_shell.then(|| tcgetattr(io::stdin()).ok()).flatten())
    }

    fn restore(&self) {
        if let Terminal(Some(modes)) = self {
            // Whoever closed the terminal does not miss its modes.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, modes);
        }
    }
}

/// Opens the shell, if it was asked for. The future is ready when the shell has ended, or when the time is up.
fn begin(options: &Demo, config: &ClusterConfig) -> impl Future<Output = ()> + use<> {
    let shell = options.shell.then(|| open_shell(config));
    let time = options.time.map(|time| Duration::from_micros(time.0));
    async move {
        let time_is_up = async {
            match time {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        let shell_is_over = async {
            match shell {
                // An error is an end, too: the shell has panicked.
                Some(shell) => drop(shell.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = time_is_up => {}
            () = shell_is_over => {}
        }
    }
}

/// The first node of a site has the site's name, so that commands read as with one node at each site.
fn name_in_shell(config: &ClusterConfig, node: &NodeEntry) -> String {
    let mut of_site = config.nodes().map(|(_, other)| other);
    let first = of_site.find(|other| other.site == node.site);
    match first.is_some_and(|first| first.name == node.name) {
        true => config.site_name(node.site).to_string(),
        false => node.name.clone(),
    }
}

/// Opens a shell in a thread of its own. The receiver is ready when the shell has ended.
fn open_shell(config: &ClusterConfig) -> oneshot::Receiver<()> {
    let sites: Vec<ShellSite> = config
        .nodes()
        .map(|(_, node)| ShellSite {
            name: name_in_shell(config, node),
            node: node.name.clone(),
            resp: node.resp.to_string(),
            admin: node.admin.to_string(),
        })
        .collect();
    let (ends, ended) = oneshot::channel();
    std::thread::spawn(move || {
        if let Err(failure) = shell::run(sites) {
            tell(&format!("error: {failure}"));
        }
        // The demo may be over already.
        let _ = ends.send(());
    });
    ended
}

/// The processes of a demo, one for each node. They are ended when this is dropped.
struct Processes<'a> {
    config: &'a ClusterConfig,
    file: &'a Path,
    /// The processes that run, as far as is known.
    running: Vec<(NodeId, Child)>,
}

impl Processes<'_> {
    /// Reports the processes that have ended since the last call.
    fn look(&mut self) {
        let (config, file) = (self.config, self.file);
        self.running.retain_mut(|(id, child)| {
            let Ok(Some(status)) = child.try_wait() else {
                return true;
            };
            let node = config.node(*id);
            let program = std::env::args().next().unwrap_or_else(|| "turnbuckle".into());
            tell(&format!(
                "site {}, node {}: its process (pid {}) has ended: {status}. To start it again:\n  {program} start --config {} --node {}",
                config.site_name(node.site),
                node.name,
                child.id(),
                file.display(),
                node.name
            ));
            false
        });
    }
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            // A process that has ended already needs no signal.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
        for (_, child) in &mut self.running {
            let _ = child.wait();
        }
    }
}

/// Runs the demo with a process for each node. Returns whether all processes ran until the end.
fn run_processes(options: &Demo, config: &ClusterConfig, file: &Path) -> Result<bool, Failure> {
    let program = std::env::current_exe().map_err(|error| environment(&error))?;
    let mut processes = Processes {
        config,
        file,
        running: Vec::new(),
    };
    let starting = say_if_slow(options, config);
    for (id, node) in config.nodes() {
        let child = Command::new(&program)
            .args(["start", "--config"])
            .arg(file)
            .args(["--node", &node.name])
            .env(logging::FILTER, logging::asked().unwrap_or_else(|| "warn".into()))
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| environment(&error))?;
        processes.running.push((id, child));
    }
    let begun = Instant::now();
    for (_, node) in config.nodes() {
        let admin = AdminClient::new(node.admin.to_string(), Duration::from_secs(1));
        while !matches!(admin.readiness(), Ok(Ok(()))) {
            if begun.elapsed() > CONNECT_TIME {
                return Err(environment(&format!(
                    "node {} did not become ready; its messages are above",
                    node.name
                )));
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
    drop(starting);
    let pids: Vec<u32> = processes.running.iter().map(|(_, child)| child.id()).collect();
    announce(options, config, file.parent().unwrap_or(file), &pids)?;
    let terminal = Terminal::remember(options.shell);
    let over = begin(options, config);
    let ended = wait_for_end(Vec::new(), over, || processes.look());
    terminal.restore();
    ended?;
    Ok(processes.running.len() == config.nodes().count())
}

fn announce(options: &Demo, config: &ClusterConfig, data: &Path, pids: &[u32]) -> Result<(), Failure> {
    let sites: Vec<ReadySite> = config
        .nodes()
        .enumerate()
        .map(|(place, (_, node))| ReadySite {
            site: config.site_name(node.site).to_string(),
            node: node.name.clone(),
            resp: node.resp.to_string(),
            admin: node.admin.to_string(),
            pid: pids.get(place).or(pids.first()).copied().unwrap_or_default(),
        })
        .collect();
    if options.json {
        let ready = Ready {
            sites,
            data: data.to_path_buf(),
        };
        return say(&serde_json::to_string(&ready).expect("names and numbers are JSON"));
    }
    let mut table = Table::new();
    let by_node = options.nodes > 1;
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header([
        if by_node { "node" } else { "site" },
        "redis-cli",
        "admin",
        "one-way delay to the others",
    ]);
    for (site, (_, node)) in sites.iter().zip(config.nodes()) {
        let others: BTreeSet<_> = config
            .nodes()
            .map(|(_, other)| other.site)
            .filter(|&other| other != node.site)
            .collect();
        let delays: Vec<String> = others
            .into_iter()
            .map(|other| {
                format!(
                    "{} {}",
                    config.site_name(other),
                    config.wan.link(node.site, other)
                )
            })
            .collect();
        let process = if options.processes {
            format!(" (pid {})", site.pid)
        } else {
            String::new()
        };
        table.add_row([
            if by_node {
                site.node.clone()
            } else {
                site.site.clone()
            },
            format!("-p {}{process}", node.resp.port()),
            format!("http://{}", site.admin),
            delays.join(", "),
        ]);
    }
    let (first, last) = (
        config.nodes().next().expect("a site").1,
        config.nodes().last().expect("a site").1,
    );
    let program = std::env::args().next().unwrap_or_else(|| "turnbuckle".into());
    let removed = if options.data.is_some() {
        ""
    } else {
        ", removed at the end"
    };
    let data = format!("Data in {}{removed}.", data.display());
    if options.shell {
        return say(&format!("{table}\n\n{data} Ctrl-D or Ctrl-C ends it.\n"));
    }
    say(&format!(
        "{table}\n\n\
         Try, in another terminal:\n  \
         redis-cli -p {first_port} set greeting hello\n  \
         redis-cli -p {last_port} get greeting        # there after the delay\n  \
         {program} wan --admin {admin} cut {first_site} {last_site}   # and see what still works\n\n\
         {data} Ctrl-C ends it. With --shell there is a prompt here.",
        first_port = first.resp.port(),
        last_port = last.resp.port(),
        admin = first.admin,
        first_site = config.site_name(first.site),
        last_site = config.site_name(last.site),
    ))
}
