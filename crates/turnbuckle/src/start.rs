//! `turnbuckle start`: one node of a cluster, from its configuration.
use crate::failure::{Failure, environment, usage};
use clap::Args;
use std::{path::PathBuf, sync::Arc};
use turnbuckle_server::{PROTOCOLS, Running, config::ClusterConfig, wan::WanMatrix};

/// Runs one node of a cluster.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  turnbuckle start --config cluster.toml --node a1\n\n\
                        The file is described in docs/configuration.md."
)]
pub struct Start {
    /// The cluster's file, the same on all nodes.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Which of its nodes this is.
    #[arg(long, value_name = "NAME")]
    node: String,
}

pub fn run(options: &Start) -> Result<(), Failure> {
    let config = ClusterConfig::read(&options.config, PROTOCOLS).map_err(|error| environment(&error))?;
    let Some(node) = config.node_named(&options.node) else {
        let known: Vec<&str> = config.nodes().map(|(_, node)| node.name.as_str()).collect();
        return Err(usage(&format!(
            "{} has no node '{}'; expected one of {}",
            options.config.display(),
            options.node,
            known.join(", ")
        )));
    };
    let wan = WanMatrix::new(&config.wan);
    let config = Arc::new(config);
    let running =
        turnbuckle_server::start(Arc::clone(&config), node, wan).map_err(|error| environment(&error))?;
    let entry = config.node(node);
    println!(
        "node {} at site {} is ready: RESP {}, admin http://{}, peers {}",
        entry.name,
        config.site_name(entry.site),
        entry.resp,
        entry.admin,
        entry.peer
    );
    wait_for_end(&[running], None)
}

/// Runs until the process is told to end, or the time is up, or a node fails; then stops the nodes in good order.
pub fn wait_for_end(running: &[Running], time: Option<std::time::Duration>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| environment(&error))?;
    runtime.block_on(async {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate()).map_err(|error| environment(&error))?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| environment(&error))?;
        let up = async {
            match time {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(up);
        loop {
            tokio::select! {
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                () = &mut up => return Ok(()),
                () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {
                    if let Some(why) = running.iter().find_map(Running::failure) {
                        return Err(environment(&why));
                    }
                }
            }
        }
    })
}
