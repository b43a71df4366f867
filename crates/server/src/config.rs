//! The cluster's configuration: one TOML file, the same for all of its nodes.
//!
//! ```toml
//! cluster = "shop"                 # checked when nodes connect to each other
//! secret_file = "shop.secret"      # or secret = "...": signs session tokens and authenticates peers
//! admin_token_file = "ops.token"   # optional; or admin_token = "...": lets operators change things through the admin address
//! admin_hosts = ["ops.example"]    # optional: further host names of the admin addresses
//! users_file = "users.toml"        # optional: the users and their rights, see `users`
//! protected = true                 # without users, only clients of this machine are served
//!
//! [tls]                            # optional; see `tls`
//! certificate = "tls/{node}.crt"
//! key = "tls/{node}.key"
//! authority = "tls/authority.crt"
//!
//! [[site]]                         # in their order, which must stay: a new site goes to the end
//! name = "a"
//!
//! [[node]]
//! name = "a1"
//! site = "a"
//! resp = "127.0.0.1:7001"          # where clients connect
//! peer = "127.0.0.1:7201"          # where other nodes connect
//! admin = "127.0.0.1:7101"         # health, metrics, status, WAN
//! data = "data/a1"                 # relative to this file
//! loops = 1                        # event loops (threads)
//!
//! [[keyspace]]
//! name = "eventual"
//! protocol = "eventual"
//! partitions = 2                   # cannot be changed later
//! members = 1                      # likewise; default 1
//! replica_sites = 3                # likewise; default all
//! prefer = "a"                     # where leaders are to be, if the partitions have leaders
//! durability = "interval(10ms)"    # or fsync, or none; see `Durability`
//! conditional = "refuse"           # or site: what is done with conditional writes; see `Conditional`
//! default = true                   # where a new connection is; else the first keyspace
//! db = 1                           # SELECT 1 chooses it, too
//!
//! [limits]                         # all optional; see `Limits`
//! max_value_bytes = 1_048_576
//!
//! [wan]                            # one-way delays for tests and demos; see `wan`
//! a-b = "40ms~4ms"                 # both directions
//! "a->c" = "75ms"                  # one direction
//! ```
//!
//! The text is parsed, not validated. The result is a [`ClusterConfig`] in which every name is resolved and every number is within its bounds, or one
//! [`WrongFile`] with file, line, field, what was found and what was expected. No later code has to check again.
//!
//! **Caveats.** Only one error is reported at a time. Whether the files of different nodes fit together is checked by the peer handshake: all nodes
//! must agree on [`ClusterConfig::layout`], and both ends of a link on the [`ClusterConfig::terms`] of the keyspaces that both have.
use std::path::{Path, PathBuf};
use turnbuckle_core::{ClusterSecret, Conditional, HASH_SLOTS, KeyspaceLevels, Settings, SiteId, Topology};
use turnbuckle_document::{Document, WrongFile};
use turnbuckle_node::{KeyspaceTerms, Placement};
use turnbuckle_protocols::KnownProtocol;

pub use crate::tls::{ClientTls, TlsConfig};
use crate::{admin::AdminToken, wan::WanDelays};

mod address;
use address::HostName;
pub use address::{Address, BadAddress};
mod check;
mod demo;
pub use demo::{Demo, DemoKeyspace, DemoPorts};
pub use turnbuckle_node::{BadDurability, Durability, NodeId};
mod limits;
pub use limits::Limits;
mod read;
pub use read::ConfigError;
pub(crate) use read::{read_bounded, read_text};
mod tables;
pub(crate) use tables::SecretText;
mod wan;
pub use wan::read_wan_file;

/// A keyspace's place in the configuration. It must not be stored: the place may change, the name does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceId(pub u16);

/// A cluster whose configuration has been checked.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// The cluster's name.
    pub name: String,
    /// The secret that only the cluster's nodes know.
    pub secret: ClusterSecret,
    /// The token that a request to the admin HTTP needs if it changes something. Without one, such a request must come over a loopback connection.
    pub admin_token: Option<AdminToken>,
    /// The limits of each node.
    pub limits: Limits,
    /// Whether nodes tell clients that a site is a Redis cluster.
    pub cluster_mode: bool,
    /// The file of the users. Each node reads it at its start, and again when it is told to.
    pub users_file: Option<PathBuf>,
    /// Whether a node without users serves only clients of its own machine.
    pub protected: bool,
    /// The delays between sites at the start.
    pub wan: WanDelays,
    /// Certificates, and which connections they protect. `None`: no connection is protected.
    pub tls: Option<TlsConfig>,
    /// Host names by which the admin HTTP may be addressed, beside those of the nodes' addresses.
    admin_hosts: Vec<String>,
    /// The names of the sites, in the file's order.
    sites: Vec<String>,
    /// The nodes, in the file's order. Invariant: at least one at each site.
    nodes: Vec<NodeEntry>,
    /// The nodes of each site, in the file's order.
    nodes_of_site: Vec<Vec<NodeId>>,
    /// The keyspaces, in the file's order. Invariant: at least one, and their topologies have all sites.
    keyspaces: Vec<KeyspaceEntry>,
    default_keyspace: KeyspaceId,
}

/// A process of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEntry {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Its site.
    pub site: SiteId,
    /// The address for clients (RESP).
    pub resp: Address,
    /// The address for other nodes.
    pub peer: Address,
    /// The address for operators and monitoring (admin HTTP).
    pub admin: Address,
    /// The directory of its data.
    pub data: PathBuf,
    /// The number of its event loops, at least 1.
    pub loops: usize,
}

/// A keyspace: a protocol, and where its replicas are placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceEntry {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Its protocol.
    pub protocol: KnownProtocol,
    /// Its sites, partitions and members.
    pub topology: Topology,
    /// When its writes are acknowledged.
    pub durability: Durability,
    /// The site at which the leaders of its partitions are to be.
    pub prefer: Option<SiteId>,
    /// The values of the protocol's parameters.
    pub parameters: Settings,
    /// The levels that its operations may name, and the defaults.
    pub levels: KeyspaceLevels,
    /// What is done with conditional writes that the protocol cannot decide exactly.
    pub conditional: Conditional,
    /// The number by which Redis clients select it, from 1 on.
    pub db: Option<u16>,
}

impl KeyspaceEntry {
    /// Where conditional writes are decided: `exact` for all sites together, at one `site`, or nowhere (`refuse`).
    pub fn decides(&self) -> &'static str {
        match (self.protocol.descriptor().takes_conditions, self.conditional) {
            (true, _) => "exact",
            (false, Conditional::Site) => "site",
            (false, Conditional::Refuse) => "refuse",
        }
    }
}

impl ClusterConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError::Unreadable`] if the file cannot be read, is not a regular file, or is larger than 1 MiB; [`ConfigError::Wrong`] if its content
    /// is wrong.
    pub fn read(file: &Path) -> Result<ClusterConfig, ConfigError> {
        Ok(Self::parse(file, &read::read_text(file)?)?)
    }

    /// Checks the text of a file. `file` is named in errors, and relative paths start at its directory. The only other files that are opened
    /// are `secret_file` and `admin_token_file`.
    ///
    /// # Errors
    /// If anything in the text is wrong.
    pub fn parse(file: &Path, text: &str) -> Result<ClusterConfig, WrongFile> {
        let document = Document::parse(file, text)?;
        check::check(&document, &document.decode()?).map_err(|wrong| document.report(wrong))
    }

    /// The hosts by which the admin HTTP of any node may be addressed: those of all nodes' addresses, and those that were listed.
    pub fn admin_hosts(&self) -> impl Iterator<Item = &str> {
        let of_nodes = self
            .nodes
            .iter()
            .flat_map(|node| [node.admin.host(), node.resp.host(), node.peer.host()]);
        of_nodes.chain(self.admin_hosts.iter().map(String::as_str))
    }

    /// Whether a node without users serves clients of its own machine only. Clients that need certificates may come from other machines.
    pub fn is_protected(&self) -> bool {
        let clients = self.tls.as_ref().map_or(ClientTls::Plain, |tls| tls.clients);
        self.protected && clients != ClientTls::Certificate
    }

    /// The names of the sites, in their order: place n is `SiteId(n)`.
    pub fn sites(&self) -> &[String] {
        &self.sites
    }

    /// The name of a site.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn site_name(&self, site: SiteId) -> &str {
        &self.sites[usize::from(site.0)]
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeEntry)> {
        self.nodes
            .iter()
            .enumerate()
            .map(|(place, node)| (NodeId(place as u16), node))
    }

    /// A node.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn node(&self, node: NodeId) -> &NodeEntry {
        &self.nodes[usize::from(node.0)]
    }

    /// The node of that name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.nodes().find(|(_, node)| node.name == name).map(|(id, _)| id)
    }

    /// The nodes of a site, in the file's order. At least one.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn nodes_of(&self, site: SiteId) -> &[NodeId] {
        &self.nodes_of_site[usize::from(site.0)]
    }

    /// All keyspaces.
    pub fn keyspaces(&self) -> impl Iterator<Item = (KeyspaceId, &KeyspaceEntry)> {
        self.keyspaces
            .iter()
            .enumerate()
            .map(|(place, keyspace)| (KeyspaceId(place as u16), keyspace))
    }

    /// A keyspace.
    ///
    /// # Panics
    /// If there is no such keyspace.
    pub fn keyspace(&self, keyspace: KeyspaceId) -> &KeyspaceEntry {
        &self.keyspaces[usize::from(keyspace.0)]
    }

    /// The keyspace of that name.
    pub fn keyspace_named(&self, name: &str) -> Option<KeyspaceId> {
        self.keyspaces()
            .find(|(_, keyspace)| keyspace.name == name)
            .map(|(id, _)| id)
    }

    /// The number by which Redis clients select a keyspace: 0 for that of a new connection.
    pub fn db(&self, keyspace: KeyspaceId) -> Option<u16> {
        match keyspace == self.default_keyspace {
            true => Some(0),
            false => self.keyspace(keyspace).db,
        }
    }

    /// The keyspace of a new connection.
    pub fn default_keyspace(&self) -> KeyspaceId {
        self.default_keyspace
    }

    /// Which node holds which server.
    pub fn placement(&self) -> Placement {
        let names = self.nodes.iter().map(|node| node.name.as_str());
        Placement::new(self.nodes.iter().map(|node| node.site)).with_names(names)
    }

    /// What all nodes of a cluster must agree on, as text: the sites, and the nodes with their sites, each in their order. Addresses, limits,
    /// durability and the set of keyspaces may differ while a file is being rolled out.
    pub fn layout(&self) -> String {
        let nodes = self
            .nodes
            .iter()
            .map(|node| format!("{}@{}", node.name, self.site_name(node.site)));
        format!(
            "sites {}; nodes {}",
            self.sites.join(" "),
            nodes.collect::<Vec<_>>().join(" ")
        )
    }

    /// The keyspaces, as this node describes them to its peers. If both ends of a link have a keyspace of one name, the two descriptions must be
    /// equal.
    pub fn terms(&self) -> Vec<KeyspaceTerms> {
        let terms = self.keyspaces.iter().map(|keyspace| KeyspaceTerms {
            name: keyspace.name.clone(),
            protocol: keyspace.protocol.to_string(),
            partitions: keyspace.topology.partitions().into(),
            members: keyspace.topology.members().clone(),
            replica_sites: keyspace.topology.some_sites().map(u32::from),
        });
        terms.collect()
    }
}

/// The most partitions that a keyspace can have: one for each hash slot.
const MAX_PARTITIONS: u64 = HASH_SLOTS as u64;

/// The greatest number of a keyspace. With 0, that is a number for each of the keyspaces that there can be.
const MAX_DB: u64 = 255;

#[cfg(test)]
mod tests;
