use crate::{Jitter, Span};
use serde::Deserialize;
use turnbuckle_core::{Conditional, Members, Micros};
use turnbuckle_document::word;
use turnbuckle_node::{Durability, NodeId, Planted, StreamLimits};

/// The properties of a world. Everything that is not set here is drawn from the seed.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// The seed of all chance.
    pub seed: u64,
    /// The sites' names.
    pub sites: Vec<String>,
    /// The number of nodes at each site.
    pub nodes_per_site: usize,
    /// How many members each partition has at each site: at most as many as there are nodes, and as the protocol may have.
    pub members: Members,
    /// The number of sites that hold a replica of each partition. `None`: all sites do.
    pub replica_sites: Option<u16>,
    /// The number of keyspaces, all of one protocol.
    pub keyspaces: usize,
    /// The number of partitions of each keyspace.
    pub partitions: u16,
    /// What keyspaces do with conditional writes that their protocol cannot decide exactly.
    pub conditional: Conditional,
    /// When writes are acknowledged.
    pub durability: Durability,
    /// How long a frame is under way from one site (first index) to another, at least.
    pub delays: Vec<Vec<Micros>>,
    /// The additional time that a frame is under way.
    pub jitter: Jitter,
    /// The bandwidth of a link in each direction, in bytes per second. `None`: unlimited.
    pub bandwidth: Option<u64>,
    /// The number of lost frames, of a million that the seam lets be lost.
    pub loss_ppm: u64,
    /// How long it takes until a connection is given up of which one direction is cut.
    pub give_up: Span,
    /// The number of cores of each node. 0: what a node does takes no time.
    pub cores: usize,
    /// How long a core is busy with one thing.
    pub service: Service,
    /// How long a node takes until it commits what has come in.
    pub turn: Span,
    /// Whether a node is asked in two steps for what it has for another node, as the server does it: other threads run in between.
    pub fills_in_halves: bool,
    /// How long a disk takes to sync.
    pub sync: Span,
    /// How long a node takes until it begins background work that waits.
    pub work: Span,
    /// How long a disk takes for one step of background work.
    pub disk: Span,
    /// The time that each node's disk takes, in percent of the usual. Those not named take the usual time.
    pub disk_percents: Vec<u64>,
    /// How long a broken link takes until it is tried again.
    pub backoff: Span,
    /// How far every node believes that its wall clock is from true time, at most.
    pub clock_bound: Micros,
    /// Whether nodes keep their wall clocks from jumping, as the server's do ([`turnbuckle_core::SteadyWall`]).
    pub steady_clocks: bool,
    /// Whether a process keeps its clock when it opens its node again because rows on its disk are damaged, as the server does.
    pub keeps_clocks: bool,
    /// How far each node's wall clock is ahead of true time, in microseconds. Those not named are exact.
    pub clock_offsets_us: Vec<i64>,
    /// How much each node's clocks run too fast, in microseconds per second. Those not named run right.
    pub clock_drifts_ppm: Vec<i64>,
    /// Memory for versions on each node, in bytes.
    pub memory_limit_bytes: u64,
    /// The log is kept for absent peers up to this many bytes.
    pub retained_log_bytes: u64,
    /// A checkpoint begins when this much log has been written since the last one, in bytes.
    pub checkpoint_log_bytes: u64,
    /// A checkpoint begins this long after the last one if anything was written since.
    pub checkpoint_interval: Micros,
    /// A node whose checkpoints begin much later: it forgets deletes and expired values later than others, too.
    pub late_checkpoints: Option<NodeId>,
    /// Whether deletes that no replica needs must be forgotten once the world has come to rest.
    pub must_forget: bool,
    /// Whether a fault that takes a data directory is left out while a node at another site has not got back everything that it lost with
    /// its own directory.
    pub one_loss_at_a_time: bool,
    /// The number of keys that a checkpoint or a full copy takes in one step.
    pub batch_keys: usize,
    /// How long a node that was restarted waits for sites that may hold what a power loss took from it.
    pub patience: Micros,
    /// Intervals of what protocols do seldom, and limits of what they remember, are divided by this
    /// ([`turnbuckle_core::Protocol::shrink`]).
    pub shrink: u32,
    /// Writes are refused while a disk has fewer bytes free than this.
    pub min_free_bytes: u64,
    /// The size of the log's segments, in bytes.
    pub segment_bytes: u64,
    /// The limits of the streams.
    pub stream: StreamLimits,
    /// The most bytes that a node gives to a link at once.
    pub chunk_bytes: usize,
    /// An operation that is not answered within this time fails.
    pub deadline: Micros,
    /// Bugs planted into every node.
    pub planted: Planted,
}

/// How long a core is busy with one thing, in a world in which work takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// A client's read.
    #[serde(deserialize_with = "word")]
    pub read: Micros,
    /// A client's write.
    #[serde(deserialize_with = "word")]
    pub write: Micros,
    /// A frame of another node.
    #[serde(deserialize_with = "word")]
    pub frame: Micros,
    /// Each KiB of such frames, additionally.
    #[serde(deserialize_with = "word")]
    pub kib: Micros,
}

impl Default for Service {
    /// About the times that the server takes on a current core, sockets included.
    fn default() -> Service {
        Service {
            read: Micros(10),
            write: Micros(15),
            frame: Micros(10),
            kib: Micros(0),
        }
    }
}

impl WorldOptions {
    /// Sites of one node and one partition each, `delay` apart, without anything that varies: for scripts whose readers want to calculate
    /// times.
    pub fn plain(sites: impl IntoIterator<Item = impl Into<String>>, delay: Micros) -> WorldOptions {
        let sites: Vec<String> = sites.into_iter().map(Into::into).collect();
        let delay_to = |from, to| if from == to { Micros(200) } else { delay };
        WorldOptions {
            seed: 0,
            delays: (0..sites.len())
                .map(|from| (0..sites.len()).map(|to| delay_to(from, to)).collect())
                .collect(),
            sites,
            nodes_per_site: 1,
            members: 1.into(),
            replica_sites: None,
            keyspaces: 1,
            partitions: 1,
            durability: Durability::Fsync,
            jitter: Jitter::NONE,
            bandwidth: None,
            loss_ppm: 0,
            give_up: Span::us(200_000, 200_000),
            cores: 0,
            service: Service::default(),
            turn: Span::fixed(Micros(10)),
            fills_in_halves: false,
            sync: Span::fixed(Micros::from_millis(1)),
            work: Span::fixed(Micros::from_millis(1)),
            disk: Span::fixed(Micros(0)),
            disk_percents: Vec::new(),
            backoff: Span::fixed(Micros::from_millis(10)),
            clock_bound: Micros::from_millis(1),
            steady_clocks: true,
            keeps_clocks: true,
            clock_offsets_us: Vec::new(),
            clock_drifts_ppm: Vec::new(),
            shrink: 1,
            memory_limit_bytes: 64 << 20,
            retained_log_bytes: 64 << 20,
            checkpoint_log_bytes: 64 << 20,
            checkpoint_interval: Micros::from_millis(60_000),
            late_checkpoints: None,
            must_forget: false,
            one_loss_at_a_time: false,
            batch_keys: 512,
            patience: Micros::from_millis(5_000),
            min_free_bytes: 64 << 20,
            segment_bytes: 1 << 20,
            stream: StreamLimits::default(),
            chunk_bytes: 64 << 10,
            deadline: Micros::from_millis(5_000),
            planted: Planted::default(),
            conditional: Conditional::default(),
        }
    }

    /// How long a round trip between two sites takes at most, almost always.
    pub fn longest_round_trip(&self) -> Micros {
        let places = 0..self.delays.len();
        let pairs = places
            .clone()
            .flat_map(|from| places.clone().map(move |to| (from, to)));
        let round_trips = pairs.map(|(from, to)| self.delays[from][to] + self.delays[to][from]);
        let longest = self.jitter.longest();
        round_trips.max().unwrap_or_default() + longest + longest
    }

    /// The longest time that a step of the slowest disk takes.
    pub(crate) fn slowest_disk(&self) -> Micros {
        let percent = self.disk_percents.iter().copied().max().unwrap_or(100).max(100);
        Micros(self.disk.max.0.saturating_mul(percent) / 100)
    }
}
