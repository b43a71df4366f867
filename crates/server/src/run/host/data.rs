//! Opens a node's data, also if a disk has damaged it.
//!
//! There are two ways to find data that the engine cannot read. Either the node finds it while it runs, or when it fails, and notes it for the next
//! start. Or the start itself finds it. In both cases the engine is salvaged first, and then the node takes the missing data from its peers. A
//! cluster of one site has no peers: there nothing is touched.
use crate::{
    config::{ClusterConfig, NodeEntry},
    run::{StartError, wakes::Wakes, workers::giving_way},
};
use std::{path::Path, sync::Arc};
use turnbuckle_core::Now;
use turnbuckle_log::DirectoryDisk;
use turnbuckle_node::{KeyspaceConfig, Node, NodeBuilder, NodeConfig, OpenError};
use turnbuckle_served::{AddToGateway, add_keyspace};
use turnbuckle_store::{Engine, EngineError, FjallEngine, FjallOptions};

/// A node that was opened on its data.
pub(super) struct Opened {
    pub node: Arc<Node>,
    pub keyspaces: Vec<AddToGateway>,
}

/// Where a node's data is.
pub(super) struct Data<'a> {
    pub config: &'a ClusterConfig,
    pub entry: &'a NodeEntry,
    pub disk: Arc<DirectoryDisk>,
    pub wakes: &'a Arc<Wakes>,
}

impl Data<'_> {
    /// Opens the node. If its data is damaged and other sites have it, the engine is salvaged first.
    pub fn open(&self, node: impl Fn() -> NodeConfig, now: impl Fn() -> Now) -> Result<Opened, StartError> {
        let store = self.entry.data.join("store");
        if self.has_peers() && FjallEngine::is_suspected(&store) {
            self.salvage(&store)?;
        }
        match self.open_once(&store, node(), now()) {
            Err(StartError::Data { source, .. }) if source.is_damage() && self.has_peers() => {
                tracing::error!(node = self.entry.name, "{source}");
                self.salvage(&store)?;
                self.open_once(&store, node(), now())
            }
            Err(StartError::Data { source, .. }) if source.is_damage() => {
                Err(self.damaged(&store, &source.to_string()))
            }
            done => done,
        }
    }

    fn open_once(&self, store: &Path, node: NodeConfig, now: Now) -> Result<Opened, StartError> {
        let open = || FjallEngine::open(store, FjallOptions::default());
        let engine = giving_way(format!("{}-engine", self.entry.name), open)?;
        let engine = Arc::new(engine.map_err(|source| self.engine_error(store, source))?);
        let opened = self.open_node(&engine, node, now);
        if opened.as_ref().is_err_and(OpenError::is_damage) {
            engine
                .suspect()
                .map_err(|source| self.engine_error(store, source))?;
        }
        opened.map_err(|source| StartError::Data {
            path: self.entry.data.display().to_string(),
            source: Box::new(source),
        })
    }

    fn open_node(&self, engine: &Arc<FjallEngine>, node: NodeConfig, now: Now) -> Result<Opened, OpenError> {
        let (disk, engine) = (Arc::clone(&self.disk), Arc::clone(engine));
        let mut builder = NodeBuilder::new(node, disk, engine, Arc::clone(self.wakes) as _);
        let mut keyspaces = Vec::new();
        for (_, keyspace) in self.config.keyspaces() {
            let config = KeyspaceConfig {
                name: keyspace.name.clone(),
                topology: keyspace.topology.clone(),
                durability: keyspace.durability,
            };
            let (protocol, parameters) = (keyspace.protocol, &keyspace.parameters);
            let (levels, conditional) = (keyspace.levels, keyspace.conditional);
            let add = add_keyspace(&mut builder, config, protocol, parameters, levels, conditional)?;
            keyspaces.push(add);
        }
        let node = builder.open(now)?;
        Ok(Opened { node, keyspaces })
    }

    /// Whether other sites have the data, too.
    fn has_peers(&self) -> bool {
        self.config
            .nodes()
            .any(|(_, other)| other.site != self.entry.site)
    }

    fn salvage(&self, store: &Path) -> Result<(), StartError> {
        let salvaged = FjallEngine::salvage(store, FjallOptions::default());
        for (table, salvage) in salvaged.map_err(|source| self.engine_error(store, source))? {
            tracing::error!(
                node = self.entry.name,
                "table {table} in {} is damaged in at least {} places: {} rows are kept, and the rest is taken from other sites",
                store.display(),
                salvage.gaps,
                salvage.rows
            );
        }
        Ok(())
    }

    fn engine_error(&self, store: &Path, source: EngineError) -> StartError {
        match source.is_damage() {
            true => self.damaged(store, &source.to_string()),
            false => StartError::Engine {
                path: self.entry.data.display().to_string(),
                source,
            },
        }
    }

    fn damaged(&self, store: &Path, found: &str) -> StartError {
        let advice = match self.has_peers() {
            true => {
                "Start this node with an empty data directory: its peers hold its data. The node may refuse an older copy of the directory"
            }
            false => "No other site has the data: put back a copy of the data directory",
        };
        StartError::Damaged {
            path: store.display().to_string(),
            found: found.to_string(),
            advice,
        }
    }
}
