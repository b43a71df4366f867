//! Adds the keyspace of a protocol that is given by name to a node, and to the gateway of each event loop.
//!
//! Here a node meets every protocol: this crate has the machine code of a node, once for each of them. It is a crate of its own so that this code is
//! made once, and not again whenever the server or one of its tests is built. The nodes of simulated worlds run the same code.
use std::sync::Arc;
use turnbuckle_core::{Conditional, KeyspaceLevels, Protocol, Session, Settings};
use turnbuckle_gateway::Gateway;
use turnbuckle_node::{Keyspace, KeyspaceConfig, NodeBuilder, OpenError};
use turnbuckle_protocols::{ForProtocol, KnownProtocol};

/// Adds a keyspace to an event loop's gateway.
pub type AddToGateway = Box<dyn Fn(&mut Gateway) + Send + Sync>;

/// Adds a keyspace of this protocol, with these values of its parameters, to a node. Operations that name no level have the defaults of `levels`, and `conditional` is
/// what is done with writes that the protocol cannot decide exactly.
///
/// # Errors
/// If the node cannot open it.
pub fn add_keyspace(
    builder: &mut NodeBuilder,
    config: KeyspaceConfig,
    protocol: KnownProtocol,
    parameters: &Settings,
    levels: KeyspaceLevels,
    conditional: Conditional,
) -> Result<AddToGateway, OpenError> {
    let add = Add {
        builder,
        config,
        levels,
        conditional,
    };
    protocol.apply(parameters, add)
}

struct Add<'a> {
    builder: &'a mut NodeBuilder,
    config: KeyspaceConfig,
    levels: KeyspaceLevels,
    conditional: Conditional,
}

impl ForProtocol for Add<'_> {
    type Output = Result<AddToGateway, OpenError>;

    fn with<S: Session>(
        self,
        protocol: <S::Protocol as Protocol>::Config,
    ) -> Result<AddToGateway, OpenError> {
        let keyspace: Arc<Keyspace<S::Protocol>> = self.builder.keyspace(self.config, protocol)?;
        let (levels, conditional) = (self.levels, self.conditional);
        Ok(Box::new(move |gateway| {
            gateway.add::<S>(keyspace.clone(), levels, conditional)
        }))
    }
}
