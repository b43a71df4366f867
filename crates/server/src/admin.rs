//! HTTP for operators and monitoring: health, metrics, status, and the WAN between sites.
//!
//! | | |
//! |---|---|
//! | `GET /healthz` | 200 while the process serves HTTP at all |
//! | `GET /readyz` | 200 while the node serves clients, else 503 with the reason. `degraded` lists what does not work all the same |
//! | `GET /metrics` | numbers for Prometheus |
//! | `GET /status` | what the node says about itself: [`Status`] |
//! | `GET /wan` | delays and cuts: [`WanView`] |
//! | `POST /lead` | the node's replicas are to lead their partitions: [`Lead`] |
//! | `POST /members` | those of the node's replicas that lead make the replicas of sites voters, learners or nothing: [`ChangeMembers`] |
//! | `POST /wan` or `PUT /wan` | sets a delay: [`SetDelay`] |
//! | `POST /wan/cut` | lets nothing through between two sites: [`LinkName`] |
//! | `POST /wan/heal` | lets everything through again: [`LinkName`], or no body for all links |
//! | `PUT /wan/links` | takes over another node's matrix, where it was changed later: [`WanLink`]s |
//!
//! **One matrix per cluster.** A change of the WAN may be requested from any node. That node tells the nodes of all other processes. Its answer names
//! the nodes that it did not reach; it tells them again every second. A node that starts asks the other nodes.
//!
//! Every answer except `/metrics` is JSON. A refused request is answered with `{"error": .., "expected": ..}`: what was wrong, and what would have
//! been right.
//!
//! It shares a current-thread runtime with the event loop of clients, so every answer is made from memory, at once. What it uses is bounded:
//! [`MAX_CONNECTIONS`] connections, bodies of 16 KiB (1 MiB for `PUT /wan/links`), and limits on how long a connection may take for its request, for
//! its answer and in all. If one more connection comes, the connection that has been silent for the longest is closed. So unfinished requests do not
//! keep `/healthz` from answering.
//!
//! Requests that change something need a token, or come over a loopback connection; and no request may come from a foreign web page: see [`Guard`].
//!
//! **Caveats.** Everybody who reaches the address can read: give it an address that only operators and monitoring can reach.
use crate::{metrics::Metrics, status::Status, tls::Tls, wan::WanMatrix};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, sync::Arc};

mod client;
pub use client::{AdminClient, AdminClientError};
mod guard;
pub use guard::Guard;
mod refusal;
use refusal::Refusal;
mod route;
mod spread;
pub use spread::{Others, ask_others};
mod serve;
pub use serve::{AdminServer, MAX_CONNECTIONS};
mod token;
pub use token::{AdminToken, BadAdminToken};

/// What the admin HTTP asks of the node. It is called on the event loop, so every method answers from memory, at once.
pub trait AdminSource: Send + Sync + 'static {
    /// Whether the node serves clients. If not, the error is the reason.
    fn readiness(&self) -> Result<(), String>;

    /// What does not work although the node serves clients, each in a sentence.
    fn degraded(&self) -> Vec<String> {
        Vec::new()
    }

    /// The keyspaces that some peers are known not to have, each with the names of those peers. Nothing of such a keyspace is sent to them. The node
    /// serves clients all the same.
    fn missing_keyspaces(&self) -> BTreeMap<String, Vec<String>> {
        BTreeMap::new()
    }

    /// What the node says about itself.
    fn status(&self) -> Status;

    /// The node's replicas of a keyspace, or of one of its partitions, are to lead. Returns how many replicas that are.
    ///
    /// # Errors
    /// If there is no such keyspace, or the node has no such partition.
    fn lead(&self, _: &Lead) -> Result<usize, Unknown> {
        Err(Unknown::default())
    }

    /// Those of the node's replicas that lead are to change the members of their groups. Returns how many replicas of the node are told.
    ///
    /// # Errors
    /// If there is no such keyspace or site, or the node has no such partition.
    fn change_members(&self, _: &ChangeMembers) -> Result<usize, Unknown> {
        Err(Unknown::default())
    }
}

/// What the admin HTTP shows and changes. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    /// The node.
    pub source: Arc<dyn AdminSource>,
    /// The node's counts.
    pub metrics: Arc<Metrics>,
    /// The delays and cuts of the frames that the node sends.
    pub wan: WanMatrix,
    /// The other nodes, which are told of every change of the WAN.
    pub others: Arc<Others>,
    /// Which requests are answered.
    pub guard: Arc<Guard>,
    /// Certificates, if the node has any.
    pub tls: Option<Arc<Tls>>,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("wan", &self.wan)
            .finish_non_exhaustive()
    }
}

/// The WAN matrix as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WanView {
    /// The names of the sites.
    pub sites: Vec<String>,
    /// Every direction between two different sites.
    pub links: Vec<WanLink>,
    /// The nodes that could not be told of a change yet, each with the reason. They are told again every second.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_reached: BTreeMap<String, String>,
}

/// One direction of a link between two sites.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WanLink {
    /// The site that frames come from.
    pub from: String,
    /// The site that frames go to.
    pub to: String,
    /// How long frames take, as `40ms~4ms`: the delay and the jitter.
    pub delay: String,
    /// Whether nothing passes in this direction.
    pub cut: bool,
    /// When this direction was last changed, in microseconds since 1970; 0 if it is as configured.
    #[serde(default)]
    pub changed_us: u64,
}

/// Names replicas of a node, which are to lead their partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lead {
    /// The keyspace.
    pub keyspace: String,
    /// The partition; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u16>,
}

/// The answer to [`Lead`] and [`ChangeMembers`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// How many replicas of the node were told. What became of it is in [`crate::status::GroupStatus`].
    pub replicas: usize,
}

/// Says what the replicas of sites, or of nodes, are to be in their groups. It takes several steps to make a replica a voter: a client repeats the request until
/// [`crate::status::GroupStatus`] shows that it is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeMembers {
    /// The keyspace.
    pub keyspace: String,
    /// The partition; without it, all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u16>,
    /// For each site or node: `voter`, `learner` or `none`.
    pub replicas_of: BTreeMap<String, String>,
}

/// Something was named that the node does not have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unknown {
    /// What was named.
    pub found: String,
    /// What could have been named.
    pub expected: String,
}

/// Sets the delay of one direction, or of both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetDelay {
    /// The site that frames come from.
    pub from: String,
    /// The site that frames go to.
    pub to: String,
    /// How long frames take, as `40ms~4ms`: the delay and the jitter.
    pub delay: String,
    /// Whether the opposite direction gets the same delay.
    #[serde(default)]
    pub both: bool,
}

/// Names the link between two sites.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkName {
    /// One of its sites.
    pub from: String,
    /// The other site.
    pub to: String,
}

impl WanView {
    /// The matrix as it is now.
    pub fn of(matrix: &WanMatrix) -> WanView {
        let name = |site: turnbuckle_core::SiteId| matrix.sites()[usize::from(site.0)].clone();
        let links = matrix.links().map(|(from, to, link)| WanLink {
            from: name(from),
            to: name(to),
            delay: link.delay.to_string(),
            cut: link.cut,
            changed_us: matrix.changed_us(from, to),
        });
        WanView {
            sites: matrix.sites().to_vec(),
            links: links.collect(),
            not_reached: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests;
