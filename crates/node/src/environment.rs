use crate::{
    agreement::tag_of,
    config::{KeyspaceConfig, NodeId},
    durability::Durability,
    shared::Shared,
};
use std::sync::Arc;
use turnbuckle_core::{ReplicaId, ServerId, SiteId, Topology};

/// What surrounds a lane: the configuration of its keyspace, and what all lanes of the node share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Environment {
    keyspace: Arc<KeyspaceConfig>,
    tag: u32,
    shared: Arc<Shared>,
}

impl Environment {
    pub fn new(keyspace: KeyspaceConfig, shared: Arc<Shared>) -> Environment {
        Environment {
            tag: tag_of(&keyspace.name),
            keyspace: Arc::new(keyspace),
            shared,
        }
    }

    /// The keyspace's name.
    pub fn name(&self) -> &str {
        &self.keyspace.name
    }

    /// The tag by which frames and records name the keyspace.
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// The keyspace's sites, partitions and members.
    pub fn topology(&self) -> &Topology {
        &self.keyspace.topology
    }

    /// When the keyspace's writes are acknowledged.
    pub fn durability(&self) -> Durability {
        self.keyspace.durability
    }

    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The site of this node.
    pub fn site(&self) -> SiteId {
        self.shared.config.placement.site_of(self.shared.config.node)
    }

    /// The node that holds a server.
    pub fn node_of(&self, server: ServerId) -> NodeId {
        self.shared.config.placement.node_of(server)
    }

    /// Whether the link to a server's node is up and serves this keyspace.
    pub fn is_up(&self, server: ServerId) -> bool {
        self.shared.serves(self.node_of(server), self.tag)
    }

    /// Whether the link to the node of another replica of the server's partition is up and that node does not have this keyspace.
    pub fn lacks(&self, server: ServerId, replica: ReplicaId) -> bool {
        let peer = server.peer(replica);
        self.shared.lacks(self.node_of(peer), self.tag)
    }
}
