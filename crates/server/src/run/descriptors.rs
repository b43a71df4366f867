//! File descriptors. Each connection takes one, and the soft limit that a shell sets is often about a thousand.
use crate::config::ClusterConfig;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The descriptors that a node has open besides its clients: the engine's files, the log, links, its own sockets.
const BESIDES_CLIENTS: u64 = 512;

/// Raises the process's soft limit to its hard limit, and warns if that is too low for the clients that the configuration allows. Clients beyond it
/// are not accepted until other clients have left.
pub(super) fn raise_limit(config: &ClusterConfig, node: &str) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(node, "the limit of open files cannot be raised: {error}");
    }
    let wanted = config.limits.max_clients + BESIDES_CLIENTS;
    if let Some(max) = getrlimit(Resource::Nofile).current.filter(|&max| max < wanted) {
        tracing::warn!(
            node,
            "max_clients = {} needs about {wanted} open files, and this process may have {max} (ulimit -n)",
            config.limits.max_clients
        );
    }
}
