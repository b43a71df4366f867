//! HTTP for people and monitoring: health, metrics, status, and the WAN between sites.
//!
//! | | |
//! |---|---|
//! | `GET /healthz` | 200 while the process serves HTTP at all |
//! | `GET /readyz` | 200 while the node serves clients, else 503 with the reason. `degraded` lists what does not work all the same |
//! | `GET /metrics` | numbers for Prometheus |
//! | `GET /status` | what the node says about itself: [`Status`] |
//! | `GET /wan` | delays and cuts: [`WanView`] |
//! | `POST /wan` or `PUT /wan` | sets a delay: [`SetDelay`] |
//! | `POST /wan/cut` | lets nothing through between two sites: [`LinkName`] |
//! | `POST /wan/heal` | lets everything through again: [`LinkName`], or no body for all links |
//! | `PUT /wan/links` | what another node's matrix is like: [`WanLink`]s |
//!
//! **One truth.** A change of the WAN may be asked of any node. It tells the nodes of all other processes, and the answer names those that it did
//! not reach; they are told again, each second. A node that starts asks the others.
//!
//! Every answer but `/metrics` is JSON. What is refused is answered with `{"error": .., "expected": ..}`: what was
//! wrong, and what would have been right.
//!
//! It shares a current-thread runtime with the event loop of clients, so an answer is made from memory and at once. It
//! is bounded: [`MAX_CONNECTIONS`] connections (for one more, the one that was heard the longest ago goes), bodies of 16 KiB, and limits
//! on how long a connection may take over its request, its answer and in all. So unfinished requests do not keep `/healthz` from
//! answering.
//!
//! **Caveats.** There is no authentication: give it an address that only operators reach. Requests that a web page of
//! another origin makes through an operator's browser are refused.
use crate::{metrics::Metrics, status::Status, wan::WanMatrix};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, sync::Arc};

mod client;
pub use client::{AdminClient, AdminClientError};
mod refusal;
use refusal::Refusal;
mod route;
mod spread;
pub use spread::{Others, ask_others};
mod serve;
pub use serve::{AdminServer, MAX_CONNECTIONS};

/// What the admin HTTP asks of the node. Called on the event loop: answers from memory, and soon.
pub trait AdminSource: Send + Sync + 'static {
    /// Whether the node serves clients, or why not yet.
    fn readiness(&self) -> Result<(), String>;

    /// What does not work although the node serves clients, each in a sentence.
    fn degraded(&self) -> Vec<String> {
        Vec::new()
    }

    /// The keyspaces that some peers are known not to have, with the names of these: nothing of them gets there. The node serves all the same.
    fn missing_keyspaces(&self) -> BTreeMap<String, Vec<String>> {
        BTreeMap::new()
    }

    /// What the node says about itself.
    fn status(&self) -> Status;
}

/// What there is to see and to change. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    /// The node.
    pub source: Arc<dyn AdminSource>,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// The delays of what it sends.
    pub wan: WanMatrix,
    /// The other nodes, which are told what changes.
    pub others: Arc<Others>,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("wan", &self.wan)
            .finish_non_exhaustive()
    }
}

/// The WAN as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WanView {
    /// The names of the sites.
    pub sites: Vec<String>,
    /// Every direction between two different sites.
    pub links: Vec<WanLink>,
    /// The nodes that could not be told of a change yet, and why. They are told again, each second.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_reached: BTreeMap<String, String>,
}

/// One direction of a link between two sites.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WanLink {
    /// Where frames come from.
    pub from: String,
    /// Where they go.
    pub to: String,
    /// How long they take, as `40ms~4ms`.
    pub delay: String,
    /// Whether nothing passes.
    pub cut: bool,
    /// When this was changed, in microseconds since 1970; 0 if it is as it was configured.
    #[serde(default)]
    pub changed_us: u64,
}

/// Sets the delay of one direction, or of both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetDelay {
    /// Where frames come from.
    pub from: String,
    /// Where they go.
    pub to: String,
    /// How long they take, as `40ms~4ms`.
    pub delay: String,
    /// Whether the way back shall take as long.
    #[serde(default)]
    pub both: bool,
}

/// Names the link between two sites.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkName {
    /// One of its sites.
    pub from: String,
    /// The other one.
    pub to: String,
}

impl WanView {
    /// The matrix, now.
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
