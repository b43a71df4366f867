use crate::durability::Durability;
use std::collections::BTreeSet;
use turnbuckle_core::{Hlc, Micros, Now, ServerId, SiteId, Topology};
use turnbuckle_replication::StreamLimits;
use turnbuckle_store::SHORT_LIVED;

/// A node by its place in the cluster's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// The nodes of a cluster, and the node that holds each server. It is the same on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    sites: Vec<Vec<NodeId>>,
    nodes: Vec<SiteId>,
    names: Vec<String>,
}

impl Placement {
    /// The placement of a cluster whose nodes are at these sites.
    ///
    /// # Panics
    /// If a site has no node: the configuration is checked before.
    pub fn new(nodes: impl IntoIterator<Item = SiteId>) -> Placement {
        let nodes: Vec<SiteId> = nodes.into_iter().collect();
        let site_count = nodes
            .iter()
            .map(|site| usize::from(site.0) + 1)
            .max()
            .unwrap_or(0);
        let mut sites = vec![Vec::new(); site_count];
        for (place, site) in nodes.iter().enumerate() {
            sites[usize::from(site.0)].push(NodeId(place as u16));
        }
        assert!(
            sites.iter().all(|nodes| !nodes.is_empty()),
            "every site has a node"
        );
        let names = (0..nodes.len()).map(|place| place.to_string()).collect();
        Placement { sites, nodes, names }
    }

    /// With the names that operators know the nodes by, in their order. Without it they are told by their numbers.
    pub fn with_names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Placement {
        for (name, given) in self.names.iter_mut().zip(names) {
            *name = given.into();
        }
        self
    }

    /// The name of a node, for messages.
    pub fn name_of(&self, node: NodeId) -> &str {
        &self.names[usize::from(node.0)]
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u16).map(NodeId)
    }

    /// The site of a node.
    pub fn site_of(&self, node: NodeId) -> SiteId {
        self.nodes[usize::from(node.0)]
    }

    /// The nodes of a site.
    pub fn nodes_at(&self, site: SiteId) -> &[NodeId] {
        &self.sites[usize::from(site.0)]
    }

    /// The node that holds a server: a site's partitions go round its nodes.
    pub fn node_of(&self, server: ServerId) -> NodeId {
        let nodes = self.nodes_at(server.site);
        nodes[(usize::from(server.partition) + usize::from(server.member)) % nodes.len()]
    }
}

/// One keyspace as this node sees it.
#[derive(Debug, Clone)]
pub struct KeyspaceConfig {
    /// The keyspace's name.
    pub name: String,
    /// The keyspace's sites, partitions and members.
    pub topology: Topology,
    /// When the keyspace's writes are acknowledged.
    pub durability: Durability,
}

/// The configuration of a node.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// The number of this node.
    pub node: NodeId,
    /// The nodes of the cluster and their sites.
    pub placement: Placement,
    /// The number of event loops that call the node. Answers are delivered per loop.
    pub loops: usize,
    /// Memory for the versions of all lanes together, in bytes.
    pub memory_limit_bytes: u64,
    /// The log is kept for absent peers up to this many bytes.
    pub retained_log_bytes: u64,
    /// A checkpoint begins when this much log has been written since the last one, in bytes.
    pub checkpoint_log_bytes: u64,
    /// A checkpoint begins this long after the last one, if anything was written since.
    pub checkpoint_interval: Micros,
    /// How long a replica that was restarted waits for sites that may hold what a power loss took from it. After that it promises what it
    /// can without them.
    pub patience: Micros,
    /// No other node can hold anything that this node wrote: its writes need not wait until peers were heard.
    pub is_new_cluster: bool,
    /// Keyspaces of which `is_new_cluster` is true: they were added to a directory that was not lost.
    pub new_keyspaces: BTreeSet<String>,
    /// The number of keys that a checkpoint or a full copy takes in one step.
    pub batch_keys: usize,
    /// Values that are shown for less than twice this have one line in the index of what can be forgotten ([`turnbuckle_store::SHORT_LIVED`]).
    pub short_lived: Micros,
    /// Writes are refused, and peers' entries wait, while the disk has fewer free bytes than this.
    pub min_free_bytes: u64,
    /// How far a peer's timestamps may be ahead of this node's clock. If they are further ahead, the peer's stream is held.
    pub clock_ahead: Micros,
    /// The size of the log's segments, in bytes.
    pub segment_bytes: u64,
    /// The owner of the log, as a number that is checked when the log is opened. 0: any log is opened. A secret number also keeps clients
    /// from writing bytes that would pass as a record.
    pub identity: u128,
    /// The limits of the streams.
    pub stream: StreamLimits,
    /// The seed of all randomness in the replicas.
    pub seed: u64,
    /// Whether the protocols' invariants are checked after every input, also in a release build.
    pub validate: bool,
    /// Bugs planted to prove that tests can fail. Empty outside tests.
    pub planted: Planted,
}

impl NodeConfig {
    /// A node with the default limits.
    pub fn new(node: NodeId, placement: Placement) -> NodeConfig {
        NodeConfig {
            node,
            placement,
            loops: 1,
            memory_limit_bytes: 1 << 30,
            retained_log_bytes: 1 << 30,
            checkpoint_log_bytes: 256 << 20,
            checkpoint_interval: Micros::from_millis(60_000),
            patience: Micros::from_millis(5_000),
            is_new_cluster: false,
            new_keyspaces: BTreeSet::new(),
            batch_keys: 512,
            short_lived: SHORT_LIVED,
            min_free_bytes: 64 << 20,
            clock_ahead: Micros::from_millis(60_000),
            segment_bytes: 64 << 20,
            identity: 0,
            stream: StreamLimits::default(),
            seed: 0,
            validate: false,
            planted: Planted::default(),
        }
    }

    /// Whether no other node can hold anything of a keyspace that this node wrote and does not remember.
    pub(crate) fn is_first_life_of(&self, keyspace: &str) -> bool {
        self.is_new_cluster || self.new_keyspaces.contains(keyspace)
    }

    /// The latest timestamp that is believed: it says how far a peer's clock may be ahead of this node's. If this clock jumps, the interval
    /// that it gives becomes wider, but the horizon does not move further.
    pub(crate) fn horizon(&self, now: Now) -> Hlc {
        Hlc::from_wall(now.wall.reading + self.clock_ahead)
    }
}

/// Bugs that can be planted. Each one leaves out a rule of the seam. The simulator's tests switch them on, one at a time, and must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Planted {
    /// A mark is sent at once, in front of the entries that came before it.
    pub marks_overtake: bool,
    /// A full copy is merged into what is there instead of replacing what it covers.
    pub copy_merges: bool,
    /// A stream goes on in the same incarnation after a restart.
    pub positions_reused: bool,
    /// Outputs leave before what they follow is durable.
    pub answers_early: bool,
    /// Outputs of a lane are handed on in the wrong order, as two threads without the lane's lock would do it: a batch's stream entries
    /// follow all the outputs that the next batch releases.
    pub outputs_swapped: bool,
    /// After a restart, the first entry that a peer sends is acknowledged and not handled.
    pub drops_after_restart: bool,
    /// A restart makes the hybrid logical clock forget the timestamps that it has given.
    pub clock_goes_back: bool,
    /// Of two versions with the same timestamp the one that arrived first wins, whatever their sites.
    pub ties_by_arrival: bool,
    /// A peer that has lost versions is also sent those that were deleted since, and puts them into its stream.
    pub returns_deleted_versions: bool,
    /// Entries that come again, because a peer lost them and took them back, are handled as if they were new.
    pub takes_again_what_it_had: bool,
    /// A replica that begins with an empty directory is sent the whole log, although deletes in it were forgotten since.
    pub replays_to_the_empty: bool,
    /// Receipts claim half of the staleness that was proven.
    pub receipts_claim_more: bool,
    /// The staged rows of a full copy are removed after the next copy may have begun.
    pub copies_cleared_late: bool,
    /// Entries that other streams bring while a full copy is put in place are handled even if the copy covers them.
    pub copy_ignores_arrivals: bool,
    /// A peer is sent rows of a checkpoint that began before it asked for them.
    pub rows_of_begun_checkpoint: bool,
    /// A request that waited for a disk is answered with the time from before it waited.
    pub time_before_disk: bool,
    /// A replica that begins with an empty directory stamps writes before its peers have said how far their clocks are.
    pub stamps_unheard: bool,
    /// The rows that are left of a damaged table are served as if none were missing.
    pub serves_what_damage_left: bool,
    /// The log's records of a keyspace that the configuration leaves out are purged like all others.
    pub purges_what_is_left_out: bool,
    /// The first copy that a peer can send counts as bringing back all damaged rows, however little of the other streams the peer has
    /// received.
    pub repaired_by_any_copy: bool,
    /// While the disk has too little room, reads are refused as well as writes.
    pub refuses_reads_when_full: bool,
    /// Records that could not be written to the log because the disk was full count as written.
    pub forgets_what_did_not_fit: bool,
    /// A checkpoint forgets one page of deletes, and does not ask for another checkpoint, however many deletes are left.
    pub collects_few_deletes: bool,
    /// A checkpoint leaves entries in the engine that were truncated from a journal.
    pub keeps_truncated_entries: bool,
    /// A client that waits for sites counts those, too, that have refused its question.
    pub counts_silent_sites: bool,
    /// A message to a channel is heard when it arrives, also before what its publisher had seen.
    pub messages_overtake: bool,
    /// A share may be sent as a difference to one of an earlier life of its replica, and peers build on whatever share of the replica they have.
    pub builds_on_any_share: bool,
    /// A replay of the log puts a key's first version beside what its row has, although that was forgotten before the version was written.
    pub revives_forgotten_rows: bool,
    /// A checkpoint counts as finished before everything that is kept beside versions is written.
    pub meta_before_the_rest: bool,
}

impl Planted {
    /// The bugs with only the one of this name switched on. With the name `nothing`, none is. `None` if there is no such bug.
    pub fn only(name: &str) -> Option<Planted> {
        let mut planted = Planted::default();
        match name {
            "nothing" => {}
            name => *planted.named(name)? = true,
        }
        Some(planted)
    }

    /// The switch of the bug of this name.
    pub fn named(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "marks_overtake" => &mut self.marks_overtake,
            "messages_overtake" => &mut self.messages_overtake,
            "counts_silent_sites" => &mut self.counts_silent_sites,
            "builds_on_any_share" => &mut self.builds_on_any_share,
            "revives_forgotten_rows" => &mut self.revives_forgotten_rows,
            "copy_merges" => &mut self.copy_merges,
            "positions_reused" => &mut self.positions_reused,
            "answers_early" => &mut self.answers_early,
            "outputs_swapped" => &mut self.outputs_swapped,
            "drops_after_restart" => &mut self.drops_after_restart,
            "clock_goes_back" => &mut self.clock_goes_back,
            "ties_by_arrival" => &mut self.ties_by_arrival,
            "returns_deleted_versions" => &mut self.returns_deleted_versions,
            "takes_again_what_it_had" => &mut self.takes_again_what_it_had,
            "replays_to_the_empty" => &mut self.replays_to_the_empty,
            "receipts_claim_more" => &mut self.receipts_claim_more,
            "copies_cleared_late" => &mut self.copies_cleared_late,
            "copy_ignores_arrivals" => &mut self.copy_ignores_arrivals,
            "rows_of_begun_checkpoint" => &mut self.rows_of_begun_checkpoint,
            "time_before_disk" => &mut self.time_before_disk,
            "stamps_unheard" => &mut self.stamps_unheard,
            "serves_what_damage_left" => &mut self.serves_what_damage_left,
            "purges_what_is_left_out" => &mut self.purges_what_is_left_out,
            "collects_few_deletes" => &mut self.collects_few_deletes,
            "meta_before_the_rest" => &mut self.meta_before_the_rest,
            "keeps_truncated_entries" => &mut self.keeps_truncated_entries,
            "repaired_by_any_copy" => &mut self.repaired_by_any_copy,
            "refuses_reads_when_full" => &mut self.refuses_reads_when_full,
            "forgets_what_did_not_fit" => &mut self.forgets_what_did_not_fit,
            _ => return None,
        })
    }
}
