//! The protocols that a keyspace can have.
use crate::config::KeyspaceEntry;
use turnbuckle_causal::{Eventual, EventualConfig, EventualSession};
use turnbuckle_core::{Level, Session};
use turnbuckle_gateway::Gateway;
use turnbuckle_node::{KeyspaceConfig, NodeBuilder, OpenError};

/// The names of all protocols, as the configuration has them.
pub const PROTOCOLS: &[&str] = &["eventual"];

/// Adds a keyspace to an event loop's gateway.
pub(crate) type AddToGateway = Box<dyn Fn(&mut Gateway) + Send + Sync>;

/// Adds a keyspace to a node.
///
/// # Panics
/// If the protocol is none of [`PROTOCOLS`]: the configuration is checked before.
pub(crate) fn add_keyspace(
    builder: &mut NodeBuilder,
    entry: &KeyspaceEntry,
    memory_limit_bytes: u64,
) -> Result<AddToGateway, OpenError> {
    let config = KeyspaceConfig {
        name: entry.name.clone(),
        topology: entry.topology.clone(),
        durability: entry.durability,
    };
    match entry.protocol.as_str() {
        "eventual" => {
            let keyspace =
                builder.keyspace::<Eventual>(config, EventualConfig::default(), memory_limit_bytes)?;
            Ok(Box::new(move |gateway| {
                gateway.add::<EventualSession>(keyspace.clone())
            }))
        }
        other => panic!("the configuration let a protocol pass that does not exist: '{other}'"),
    }
}

/// The levels that a protocol offers, default first.
pub(crate) fn levels_of(protocol: &str) -> &'static [Level] {
    match protocol {
        "eventual" => EventualSession::LEVELS,
        _ => &[],
    }
}

/// The kind of keyspace that a protocol belongs to.
pub(crate) fn kind_of(protocol: &str) -> &'static str {
    match protocol {
        "eventual" => "eventual",
        _ => "unknown",
    }
}
