use crate::durability::Durability;
use std::collections::BTreeSet;
use turnbuckle_core::{Hlc, Micros, Now, ServerId, SiteId, Topology};
use turnbuckle_replication::StreamLimits;

/// A node by its place in the cluster's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// The nodes of a cluster, and which server stands where. The same on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    sites: Vec<Vec<NodeId>>,
    nodes: Vec<SiteId>,
    names: Vec<String>,
}

impl Placement {
    /// The placement of a cluster whose nodes stand at these sites.
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

    /// Where a node stands.
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
    /// Its name.
    pub name: String,
    /// Its sites, partitions and members.
    pub topology: Topology,
    /// When its writes are acknowledged.
    pub durability: Durability,
}

/// What a node has to know of itself.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Which node it is.
    pub node: NodeId,
    /// Where everything is.
    pub placement: Placement,
    /// How many event loops will call it: answers are delivered per loop.
    pub loops: usize,
    /// Memory for versions, of all lanes together, in bytes.
    pub memory_limit_bytes: u64,
    /// The log is kept for absent peers up to this many bytes.
    pub retained_log_bytes: u64,
    /// A checkpoint begins when this much log has been written since the last one, in bytes.
    pub checkpoint_log_bytes: u64,
    /// A checkpoint begins so long after the last one if anything was written since.
    pub checkpoint_interval: Micros,
    /// How long a replica that was restarted waits for sites that may hold what a power loss took from it, before it promises what it
    /// can without them.
    pub patience: Micros,
    /// Nobody can hold anything that this node wrote: its writes need not wait until others have been heard.
    pub is_new_cluster: bool,
    /// Keyspaces of which the same is true: they were added to a directory that was not lost.
    pub new_keyspaces: BTreeSet<String>,
    /// How many keys a checkpoint or a full copy takes in one step.
    pub batch_keys: usize,
    /// Writes are refused, and peers' entries wait, while the disk has less room than this, in bytes.
    pub min_free_bytes: u64,
    /// A peer whose timestamps are further ahead of this node's clock is held.
    pub clock_ahead: Micros,
    /// The log's segments, in bytes.
    pub segment_bytes: u64,
    /// Whose log it is, checked when it is opened; 0 for whoever's it is. A secret number also keeps clients from writing
    /// what would pass as a record.
    pub identity: u128,
    /// Streams' limits.
    pub stream: StreamLimits,
    /// Seed of all randomness in the replicas.
    pub seed: u64,
    /// Whether the protocols' invariants are looked at after every input, also in a release build.
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

    /// Whether nobody can hold anything of a keyspace that this node wrote and does not remember.
    pub(crate) fn is_first_life_of(&self, keyspace: &str) -> bool {
        self.is_new_cluster || self.new_keyspaces.contains(keyspace)
    }

    /// No timestamp beyond it is believed: how far a peer's clock may be ahead of this node's. A clock that has jumped widens the interval that it gives,
    /// but not what is believed.
    pub(crate) fn horizon(&self, now: Now) -> Hlc {
        Hlc::from_wall(now.wall.reading + self.clock_ahead)
    }
}

/// Bugs that can be planted, each one a rule of the seam left out. The simulator's tests switch them on, one at a time, and
/// must notice.
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
    /// Outputs of a lane are handed on in the wrong order, as two threads without the lane's lock would: a batch's stream
    /// entries behind all that the next batch lets go.
    pub outputs_swapped: bool,
    /// The first entry that a peer sends after a restart is taken for received, and not handled.
    pub drops_after_restart: bool,
    /// The hybrid logical clock forgets, in a restart, what it has given.
    pub clock_goes_back: bool,
    /// Of two versions with the same timestamp the one that came first stays, whatever their sites.
    pub ties_by_arrival: bool,
    /// A peer that has lost something is given back also what was deleted since, and sends it on.
    pub gives_back_what_was_deleted: bool,
    /// Entries that come again, because a peer lost them and took them back, are taken in as if they were new.
    pub takes_again_what_it_had: bool,
    /// A replica that begins with nothing is sent the whole log, whatever was deleted and forgotten since.
    pub replays_to_the_empty: bool,
    /// Receipts claim half of the staleness that was proven.
    pub receipts_claim_more: bool,
    /// The staged rows of a full copy are removed when the next one may have begun.
    pub copies_cleared_late: bool,
    /// What other streams bring while a full copy is put in place is taken in even if the copy covers it.
    pub copy_ignores_arrivals: bool,
    /// A peer is sent rows of a checkpoint that began before it asked for them.
    pub rows_of_begun_checkpoint: bool,
    /// What waited for a disk is answered with the time from before it waited.
    pub time_before_disk: bool,
    /// A replica that begins with an empty directory stamps writes before it has heard how far its peers are.
    pub stamps_unheard: bool,
    /// What is left of a damaged table is served as if it were everything.
    pub serves_what_damage_left: bool,
    /// What the log has of a keyspace that the configuration leaves out is purged with the rest of it.
    pub purges_what_is_left_out: bool,
    /// The first copy that a peer can send counts as bringing all that was damaged, whatever the peer has heard.
    pub repaired_by_any_copy: bool,
    /// Reads are refused, too, while the disk has too little room.
    pub refuses_reads_when_full: bool,
    /// What could not be written to the log for want of room counts as written.
    pub forgets_what_did_not_fit: bool,
    /// A checkpoint forgets one page of deletes, and the next one is in no hurry, however many are left.
    pub collects_few_deletes: bool,
    /// A checkpoint leaves in the engine what was truncated from a journal.
    pub keeps_truncated_entries: bool,
    /// A checkpoint counts as finished before all that is kept beside versions is written.
    pub meta_before_the_rest: bool,
}

impl Planted {
    /// The bug of a name and no other; `nothing` for none.
    pub fn only(name: &str) -> Option<Planted> {
        let mut planted = Planted::default();
        match name {
            "nothing" => {}
            name => *planted.named(name)? = true,
        }
        Some(planted)
    }

    /// The bug of a name, to be switched on.
    pub fn named(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "marks_overtake" => &mut self.marks_overtake,
            "copy_merges" => &mut self.copy_merges,
            "positions_reused" => &mut self.positions_reused,
            "answers_early" => &mut self.answers_early,
            "outputs_swapped" => &mut self.outputs_swapped,
            "drops_after_restart" => &mut self.drops_after_restart,
            "clock_goes_back" => &mut self.clock_goes_back,
            "ties_by_arrival" => &mut self.ties_by_arrival,
            "gives_back_what_was_deleted" => &mut self.gives_back_what_was_deleted,
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
