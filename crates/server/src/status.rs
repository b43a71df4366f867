//! What a node says about itself. `/status` shows all of it and `/metrics` its numbers, so the two never disagree.
mod metric;
pub use metric::{MetricStatus, MetricValue, MetricValues};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A node now. Sites, nodes and keyspaces are given by their names.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    /// The cluster's name.
    pub cluster: String,
    /// The node's name.
    pub node: String,
    /// Its site.
    pub site: String,
    /// The release that it runs.
    pub version: String,
    /// How long it has been running, in seconds.
    pub uptime_seconds: f64,
    /// Whether `/readyz` says that it is ready.
    #[serde(default)]
    pub ready: bool,
    /// Free bytes of the disk that its data directory is on; `None` if they cannot be determined.
    #[serde(default)]
    pub disk_free_bytes: Option<u64>,
    /// Its keyspaces.
    pub keyspaces: Vec<KeyspaceStatus>,
    /// Its links to other nodes.
    pub links: Vec<LinkStatus>,
    /// The replication streams that leave it and that reach it.
    pub streams: Vec<StreamStatus>,
    /// Its replicas of partitions that elect a leader.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupStatus>,
    /// Its commit log.
    pub log: LogStatus,
    /// Its memory for versions.
    pub memory: MemoryStatus,
    /// Its clients, and the memory that they use.
    pub clients: ClientsStatus,
    /// Connections to its port for peers that did not come from a peer.
    pub strangers: StrangersStatus,
    /// How many requests its admin HTTP has refused: for a foreign host, of a foreign web page, or without the right token.
    #[serde(default)]
    pub admin_refused_total: u64,
    /// How often it has refused something to a client because of its user, by the reason.
    #[serde(default)]
    pub refused_total: BTreeMap<String, u64>,
    /// The last second at which peers accept its certificate, since 1970; `None` without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_expires_unix_seconds: Option<u64>,
    /// How often it has read the file of the users again and found a mistake, so that the users stayed as they were.
    #[serde(default)]
    pub users_file_refused_total: u64,
    /// Its checkpoints.
    pub checkpoint: CheckpointStatus,
    /// The machine's wall clock.
    #[serde(default)]
    pub clock: ClockStatus,
    /// How many full copies of peers' data it has put in place so far.
    pub copies_received_total: u64,
    /// How many bytes of rows of such copies have arrived so far.
    #[serde(default)]
    pub copy_bytes_received_total: u64,
    /// How many partitions got back from other sites what a disk had damaged, since the node was opened.
    #[serde(default)]
    pub partitions_repaired_total: u64,
    /// How many keys were removed because their value had expired, since the node was opened.
    #[serde(default)]
    pub expired_keys_removed_total: u64,
}

/// The machine's wall clock, compared with the time that the node goes by (`docs/clocks.md`).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClockStatus {
    /// How far the two are apart, in seconds. Up to `clock_bound_ms` is normal.
    pub away_seconds: f64,
    /// How often the wall clock was set by more than that since the node started.
    pub jumps_total: u64,
}

/// A keyspace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct KeyspaceStatus {
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: String,
    /// How many partitions it has, on all nodes together.
    pub partitions: u16,
    /// When its writes are acknowledged, as in the configuration.
    pub durability: String,
    /// The levels that operations may name, the default first.
    pub levels: Vec<String>,
    /// How many operations wait now: for something to become visible, for a clock, or for a key from disk.
    pub parked_operations: u64,
    /// Deletes that were made within this many seconds are remembered, because some site may not show them yet. The number grows while a site is
    /// away. `None` until every site was heard from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletes_kept_seconds: Option<f64>,
    /// How many keys have a delete that is remembered. It waits until every site shows it, and then for a checkpoint.
    #[serde(default)]
    pub deletes_waiting: u64,
    /// Keys of this node's partitions that have a value. One that has expired counts until it is removed.
    #[serde(default)]
    pub keys: u64,
    /// Those of them whose value expires at some time.
    #[serde(default)]
    pub expiring_keys: u64,
    /// The partitions here of which data on disk is damaged and has not come back from other sites yet, with what is damaged. Some of their keys, or
    /// all, are not served.
    #[serde(default)]
    pub damage: Vec<String>,
    /// The data directory is an old copy: nothing of this keyspace is served. Stop the node, empty its directory, and start it again.
    #[serde(default)]
    pub directory_outdated: bool,
    /// The data directory was empty when the node started, and does not yet have everything that other sites hold. Meanwhile, do not remove the
    /// directory of another site's node.
    #[serde(default)]
    pub directory_filling: bool,
    /// How many versions were written here since the node started, deletes included. Versions that came from other sites are not counted.
    pub versions_written_total: u64,
    /// The metadata that the protocol keeps with those versions, in bytes as stored and sent, without their timestamps and sites.
    pub metadata_bytes_total: u64,
    /// The protocol's own metrics, by their names in `/metrics` without `turnbuckle_`. Each is a field of this object.
    #[serde(flatten)]
    pub metrics: BTreeMap<String, MetricStatus>,
}

impl KeyspaceStatus {
    /// The value of a count among the protocol's own metrics; 0 if the protocol does not have it.
    pub fn count(&self, name: &str) -> u64 {
        match self.metrics.get(name).map(|metric| &metric.values) {
            Some(MetricValues::One(MetricValue::Count(count))) => *count,
            _ => 0,
        }
    }

    /// The protocol's own metrics for `INFO`: one line for the node, and one for each other site that has a value.
    pub(crate) fn metric_lines(&self) -> BTreeMap<String, Vec<String>> {
        let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, metric) in &self.metrics {
            for (site, value) in metric.values() {
                let line = match site {
                    Some(site) => format!("keyspace_{}_from_{site}", self.name),
                    None => format!("keyspace_{}", self.name),
                };
                lines.entry(line).or_default().push(value.fields(name));
            }
        }
        lines
    }
}

/// The link to another node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The other node.
    pub peer: String,
    /// The other node's site.
    pub site: String,
    /// Whether there is a connection that both ends have agreed on.
    pub up: bool,
    /// If there is none, the reason.
    pub reason: Option<String>,
    /// Keyspaces that this node has and the peer does not. For these the peer counts as away. Known while the link is up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_there: Vec<String>,
    /// Keyspaces that the peer has and this node does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_here: Vec<String>,
    /// How many connections were made so far.
    pub connections_total: u64,
    /// Bytes sent so far.
    pub sent_bytes_total: u64,
    /// Bytes received so far.
    pub received_bytes_total: u64,
    /// Bytes that are held back, because of the WAN delay or because the peer does not keep up.
    pub held_bytes: u64,
}

/// One direction of the replication between two replicas of a partition.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StreamStatus {
    /// The keyspace.
    pub keyspace: String,
    /// The partition.
    pub partition: u16,
    /// The site that the entries come from.
    pub from: String,
    /// The site that they go to.
    pub to: String,
    /// How many entries are not acknowledged yet.
    pub lag_entries: u64,
    /// How old the oldest of them is, in seconds; 0 if there is none.
    pub lag_seconds: f64,
    /// What it is doing, in a word or two: `streaming`, `copying`, `silent` without a link, `left-out` if the peer does not have the keyspace, and
    /// others. Of a leader of a regional keyspace: `forwarding`, `asking` while it is not known how far the other site is, or `copying`.
    pub state: String,
}

/// A replica of a partition that elects a leader.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GroupStatus {
    /// The keyspace.
    pub keyspace: String,
    /// The partition.
    pub partition: u16,
    /// The leader that the replica follows, or the replica itself if it leads. `None` while it knows no leader.
    pub leader: Option<String>,
    /// The term.
    pub term: u64,
    /// How many entries are committed, as far as the replica knows.
    pub committed: u64,
    /// How many of them are applied here.
    pub applied: u64,
    /// Whether the replica leads, as far as it knows.
    #[serde(default)]
    pub leads: bool,
    /// Whether the replica takes no part in the group, as far as it knows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_part: bool,
    /// The replicas that may be members of the group, and the node of each.
    #[serde(default)]
    pub replicas: BTreeMap<String, String>,
    /// The replicas that vote.
    #[serde(default)]
    pub voters: Vec<String>,
    /// While the voters change: those before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub voters_before: Vec<String>,
    /// The replicas that take all writes and do not vote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learners: Vec<String>,
    /// Of a leader: why it has not changed the members, as it was told last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Whether to ask again would be in vain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused_for_good: bool,
}

/// The commit log.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LogStatus {
    /// How much of it is kept, in bytes.
    pub bytes: u64,
    /// How much was appended so far, in bytes.
    pub appended_bytes_total: u64,
    /// How often it was synced to disk so far.
    pub syncs_total: u64,
}

/// The memory for versions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// How much is used, in bytes.
    pub bytes: u64,
    /// How much may be used, in bytes.
    pub limit_bytes: u64,
}

/// The clients of a node, and the memory that they use for commands that are not done and for replies that are not read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ClientsStatus {
    /// How many are connected.
    pub connected: u64,
    /// How many bytes they hold together, beyond what each may hold in any case.
    pub memory_bytes: u64,
    /// The budget for that, `client_memory_mb`, in bytes. Clients are given two thirds of it.
    pub memory_limit_bytes: u64,
    /// How often a client had to wait, or was refused a reply, because this memory had no room.
    pub memory_refusals_total: u64,
    /// How many were disconnected so that other clients have room.
    pub disconnected_for_memory_total: u64,
}

/// Connections to the port for peers that did not come from a peer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StrangersStatus {
    /// How many have not yet proven that they come from a peer.
    pub unknown: u64,
    /// How many were refused.
    pub refused_total: u64,
    /// How many had to make room for other connections before they had proven that they come from a peer.
    pub evicted_total: u64,
}

/// The checkpoints.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CheckpointStatus {
    /// Whether one is being written.
    pub running: bool,
    /// How many were completed so far.
    pub completed_total: u64,
    /// How many failed so far.
    pub failed_total: u64,
    /// How long the last one took, in seconds.
    pub last_duration_seconds: f64,
    /// How long ago the last one was completed, in seconds; `None` if there was none.
    pub age_seconds: Option<f64>,
}
