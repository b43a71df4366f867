//! `turnbuckle start`: one node of a cluster, from its configuration.
use crate::failure::{Failure, environment, say, usage};
use clap::Args;
use std::{io::ErrorKind, path::PathBuf, sync::Arc};
use tokio::signal::unix::{Signal, SignalKind, signal};
use turnbuckle_server::{
    Running, StartError, StartOptions, TestFaults, TlsError,
    config::{ClusterConfig, ConfigError},
    wan::WanMatrix,
};

/// Runs one node of a cluster.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  turnbuckle start --config cluster.toml --node a1\n\n\
                        The file is described in docs/configuration.md."
)]
pub struct Start {
    /// The cluster's configuration file, the same on all nodes. Default: the first that exists of ./cluster.toml, turnbuckle/cluster.toml in
    /// $XDG_CONFIG_HOME or ~/.config, and /etc/turnbuckle/cluster.toml.
    #[arg(long, value_name = "FILE", env = "TURNBUCKLE_CONFIG")]
    config: Option<PathBuf>,
    /// The name of this node in the file.
    #[arg(long, value_name = "NAME", env = "TURNBUCKLE_NODE")]
    node: String,
    /// The cluster has never served: if this node's data directory is empty, the node waits for no other site before it serves. In a keyspace of the
    /// protocol nukv (regional) it still waits: a site takes writes there once it has heard every other site. Never use this for a node that has lost
    /// its directory.
    #[arg(long)]
    new_cluster: bool,
    /// Take the faults of a test from this file: a wrong clock, a full disk, a planted bug (docs/campaign.md).
    #[arg(long, value_name = "FILE", hide = true)]
    test_faults: Option<PathBuf>,
}

/// The cluster's file at one of the usual places.
fn usual_file() -> Result<PathBuf, Failure> {
    const NAME: &str = "turnbuckle/cluster.toml";
    let of = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let home = of("XDG_CONFIG_HOME").or_else(|| Some(of("HOME")?.join(".config")));
    let mut places = vec![PathBuf::from("cluster.toml")];
    places.extend(home.map(|home| home.join(NAME)));
    places.push(PathBuf::from("/etc").join(NAME));
    let found = places.iter().find(|place| place.is_file());
    found.cloned().ok_or_else(|| {
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        usage(&format!(
            "no --config is given, and there is no file {}",
            places.join(", ")
        ))
    })
}

pub fn run(options: &Start) -> Result<(), Failure> {
    let file = match &options.config {
        Some(file) => file.clone(),
        None => usual_file()?,
    };
    let config = ClusterConfig::read(&file).map_err(|error| match error {
        ConfigError::Wrong(_) => usage(&error),
        // What is there is no configuration, and is none after a restart either.
        ConfigError::Unreadable { ref source, .. }
            if matches!(source.kind(), ErrorKind::FileTooLarge | ErrorKind::InvalidInput) =>
        {
            usage(&error)
        }
        ConfigError::Unreadable { .. } => environment(&error),
    })?;
    let Some(node) = config.node_named(&options.node) else {
        let known: Vec<&str> = config.nodes().map(|(_, node)| node.name.as_str()).collect();
        return Err(usage(&format!(
            "{} has no node '{}'; expected one of {}",
            file.display(),
            options.node,
            known.join(", ")
        )));
    };
    let wan = WanMatrix::new(&config.wan);
    let config = Arc::new(config);
    let faults = options.test_faults.as_deref().map(TestFaults::follow).transpose();
    let faults = faults.map_err(|error| usage(&error))?;
    let start_options = StartOptions {
        is_new_cluster: options.new_cluster,
        faults,
    };
    let running = turnbuckle_server::start_with(Arc::clone(&config), node, wan, start_options);
    let running = running.map_err(|error| match error {
        StartError::Users(ConfigError::Wrong(_))
        | StartError::Tls(TlsError::NotPem { .. } | TlsError::Unusable { .. }) => usage(&error),
        error => environment(&error),
    })?;
    let entry = config.node(node);
    let ready = format!(
        "node {} at site {} is ready: RESP {}, admin {}://{}, peers {}",
        entry.name,
        config.site_name(entry.site),
        entry.resp,
        if config.tls.as_ref().is_some_and(|tls| tls.admin) {
            "https"
        } else {
            "http"
        },
        entry.admin,
        entry.peer
    );
    // A node serves even if nothing reads its standard output.
    let _ = say(&ready);
    tell_systemd(sd_notify::NotifyState::Ready);
    wait_for_end(vec![running], std::future::pending(), || ())
}

/// Runs until the process is told to end, or `over` is ready, or a node fails. Then it stops the nodes in good order. Until then it calls `look`
/// every 200 ms, and opens a node again if the node asks for it.
pub fn wait_for_end(
    mut running: Vec<Running>,
    over: impl Future<Output = ()>,
    look: impl FnMut(),
) -> Result<(), Failure> {
    let ended = wait(&mut running, over, look);
    let stopped: Vec<_> = running.into_iter().map(Running::stop).collect();
    ended.and_then(|()| {
        let failed = stopped.into_iter().find_map(Result::err);
        failed.map_or(Ok(()), |why| Err(environment(&why)))
    })
}

/// For a unit of `Type=notify`. Without systemd there is nobody to tell.
fn tell_systemd(state: sd_notify::NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}

/// The same, without stopping the nodes.
fn wait(
    running: &mut Vec<Running>,
    over: impl Future<Output = ()>,
    mut look: impl FnMut(),
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| environment(&error))?;
    runtime.block_on(async {
        let mut told = Told::new()?;
        tokio::pin!(over);
        loop {
            tokio::select! {
                signal = told.wait() => {
                    if signal == HANGUP && running.iter().any(Running::has_users) {
                        running.iter().for_each(Running::reload_users);
                        continue;
                    }
                    tracing::info!("stopping, because of {signal}");
                    tell_systemd(sd_notify::NotifyState::Stopping);
                    end_at_once_if_told_again();
                    return Ok(());
                }
                () = &mut over => return Ok(()),
                () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {
                    while let Some(place) = running.iter().position(|node| node.failure().is_some()) {
                        if !running[place].wants_restart() {
                            return Err(environment(&running[place].failure().unwrap_or_default()));
                        }
                        let opened = running.remove(place).open_anew();
                        running.push(opened.map_err(|error| environment(&error))?);
                    }
                    look();
                }
            }
        }
    })
}

/// This signal tells nodes that have users to read the file of the users again. A node without users ends.
const HANGUP: &str = "SIGHUP";

/// The signals that tell a process to end.
struct Told([Signal; 3]);

impl Told {
    fn new() -> Result<Told, Failure> {
        let listen = |kind| signal(kind).map_err(|error| environment(&error));
        let kinds = [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
        ];
        let [terminate, interrupt, hangup] = kinds.map(listen);
        Ok(Told([terminate?, interrupt?, hangup?]))
    }

    /// Waits for one of them. Returns its name.
    async fn wait(&mut self) -> &'static str {
        let Told([terminate, interrupt, hangup]) = self;
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            _ = hangup.recv() => HANGUP,
        }
    }
}

/// Ends the process at once if it is told to end a second time. To end in good order may take as long as the configured grace.
fn end_at_once_if_told_again() {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime {
            let again = runtime.block_on(async {
                Told::new()?.wait().await;
                Ok::<(), Failure>(())
            });
            if again.is_ok() {
                std::process::exit(3);
            }
        }
    });
}
