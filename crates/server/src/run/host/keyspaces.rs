//! Adds keyspaces to a node and to the gateway of each event loop. Here the types of their protocols are still known.
use crate::config::KeyspaceEntry;
use std::sync::Arc;
use turnbuckle_core::{Protocol, Session};
use turnbuckle_gateway::Gateway;
use turnbuckle_node::{Keyspace, KeyspaceConfig, NodeBuilder, OpenError};
use turnbuckle_protocols::ForProtocol;

/// Adds a keyspace to an event loop's gateway.
pub(crate) type AddToGateway = Box<dyn Fn(&mut Gateway) + Send + Sync>;

/// Adds a keyspace to a node.
pub(super) fn add_keyspace(
    builder: &mut NodeBuilder,
    entry: &KeyspaceEntry,
    memory_limit_bytes: u64,
) -> Result<AddToGateway, OpenError> {
    let add = Add {
        builder,
        entry,
        memory_limit_bytes,
    };
    entry.protocol.apply(&entry.parameters, add)
}

struct Add<'a> {
    builder: &'a mut NodeBuilder,
    entry: &'a KeyspaceEntry,
    memory_limit_bytes: u64,
}

impl ForProtocol for Add<'_> {
    type Output = Result<AddToGateway, OpenError>;

    fn with<S: Session>(
        self,
        protocol: <S::Protocol as Protocol>::Config,
    ) -> Result<AddToGateway, OpenError> {
        let config = KeyspaceConfig {
            name: self.entry.name.clone(),
            topology: self.entry.topology.clone(),
            durability: self.entry.durability,
        };
        let keyspace: Arc<Keyspace<S::Protocol>> =
            self.builder.keyspace(config, protocol, self.memory_limit_bytes)?;
        let levels = self.entry.levels;
        Ok(Box::new(move |gateway| {
            gateway.add::<S>(keyspace.clone(), levels)
        }))
    }
}
