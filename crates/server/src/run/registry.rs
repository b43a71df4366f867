//! The protocols that a keyspace can have.
use crate::config::{KeyspaceEntry, KnownProtocol};
use std::sync::Arc;
use turnbuckle_causal::{
    CausalSpartanXConfig, CausalSpartanXSession, CopsConfig, CopsSession, EventualConfig, EventualSession,
    GentleRainConfig, GentleRainSession,
};
use turnbuckle_core::{Level, Protocol, Session};
use turnbuckle_gateway::Gateway;
use turnbuckle_node::{Keyspace, KeyspaceConfig, NodeBuilder, OpenError};

/// All protocols, by the names that the configuration may have. A kind of keyspace stands for its usual protocol: on disk, between
/// nodes and in what a node says of itself it has that one's name.
pub const PROTOCOLS: &[KnownProtocol] = &[
    known("causal", "causalspartanx", true),
    known("causalspartanx", "causalspartanx", true),
    known("causalspartanx-published", "causalspartanx-published", true),
    known("cops", "cops", false),
    known("eventual", "eventual", false),
    known("gentlerain", "gentlerain", true),
];

const fn known(name: &'static str, means: &'static str, has_theta: bool) -> KnownProtocol {
    KnownProtocol {
        name,
        means,
        has_theta,
    }
}

/// The protocol's own name, if this is a name of one.
pub(crate) fn own_name(name: &str) -> Option<&'static str> {
    PROTOCOLS
        .iter()
        .find(|known| known.name == name)
        .map(|known| known.means)
}

/// The keyspaces of a cluster that nobody has configured, each named after its kind; the first is where a new connection is.
pub const KINDS: &[&str] = &["causal", "eventual"];

/// Adds a keyspace to an event loop's gateway.
pub(crate) type AddToGateway = Box<dyn Fn(&mut Gateway) + Send + Sync>;

/// A protocol, as far as a node has to know it by name.
struct Entry {
    /// The kind of keyspace that it belongs to.
    kind: &'static str,
    /// The levels that it offers, default first.
    levels: &'static [Level],
    add: Add,
}

type Add = fn(&mut NodeBuilder, &KeyspaceEntry, u64) -> Result<AddToGateway, OpenError>;

fn entry(protocol: &str) -> Option<Entry> {
    Some(match protocol {
        "eventual" => Entry {
            kind: "eventual",
            levels: EventualSession::LEVELS,
            add: |builder, entry, memory| {
                let config = EventualConfig::paced(entry.heartbeat, entry.theta);
                add::<EventualSession>(builder, entry, config, memory)
            },
        },
        "causalspartanx" => Entry {
            kind: "causal",
            levels: CausalSpartanXSession::LEVELS,
            add: |builder, entry, memory| {
                let config = CausalSpartanXConfig::paced(entry.heartbeat, entry.theta);
                add::<CausalSpartanXSession>(builder, entry, config, memory)
            },
        },
        "causalspartanx-published" => Entry {
            kind: "causal",
            levels: CausalSpartanXSession::LEVELS,
            add: |builder, entry, memory| {
                let config = CausalSpartanXConfig::paced(entry.heartbeat, entry.theta).published();
                add::<CausalSpartanXSession>(builder, entry, config, memory)
            },
        },
        "cops" => Entry {
            kind: "causal",
            levels: CopsSession::LEVELS,
            add: |builder, entry, memory| {
                let config = CopsConfig::paced(entry.heartbeat, entry.theta);
                add::<CopsSession>(builder, entry, config, memory)
            },
        },
        "gentlerain" => Entry {
            kind: "causal",
            levels: GentleRainSession::LEVELS,
            add: |builder, entry, memory| {
                let config = GentleRainConfig::paced(entry.heartbeat, entry.theta);
                add::<GentleRainSession>(builder, entry, config, memory)
            },
        },
        _ => return None,
    })
}

fn add<S: Session>(
    builder: &mut NodeBuilder,
    entry: &KeyspaceEntry,
    protocol: <S::Protocol as Protocol>::Config,
    memory_limit_bytes: u64,
) -> Result<AddToGateway, OpenError> {
    let config = KeyspaceConfig {
        name: entry.name.clone(),
        topology: entry.topology.clone(),
        durability: entry.durability,
    };
    let keyspace: Arc<Keyspace<S::Protocol>> = builder.keyspace(config, protocol, memory_limit_bytes)?;
    Ok(Box::new(move |gateway| gateway.add::<S>(keyspace.clone())))
}

/// Adds a keyspace to a node.
///
/// # Panics
/// If the protocol's own name is none of [`PROTOCOLS`]: the configuration is checked before.
pub(crate) fn add_keyspace(
    builder: &mut NodeBuilder,
    keyspace: &KeyspaceEntry,
    memory_limit_bytes: u64,
) -> Result<AddToGateway, OpenError> {
    let name = &keyspace.protocol;
    let entry = entry(name);
    let entry = entry
        .unwrap_or_else(|| panic!("the configuration let a protocol pass that does not exist: '{name}'"));
    (entry.add)(builder, keyspace, memory_limit_bytes)
}

/// The levels that a protocol offers, default first.
pub(crate) fn levels_of(protocol: &str) -> &'static [Level] {
    entry(protocol).map_or(&[], |entry| entry.levels)
}

/// The kind of keyspace that a protocol belongs to.
pub(crate) fn kind_of(protocol: &str) -> &'static str {
    entry(protocol).map_or("unknown", |entry| entry.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_of_a_protocol_and_every_kind_is_a_name() {
        for protocol in PROTOCOLS {
            assert!(
                !levels_of(protocol.means).is_empty(),
                "{} offers no level",
                protocol.name
            );
            assert_eq!(own_name(protocol.means), Some(protocol.means));
        }
        for kind in KINDS {
            assert_eq!(own_name(kind).map(kind_of), Some(*kind));
        }
    }
}
