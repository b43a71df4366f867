use crate::{Jitter, Span};
use serde::Deserialize;
use turnbuckle_core::Micros;
use turnbuckle_document::word;
use turnbuckle_node::{Durability, Planted, StreamLimits};

/// What a world is like. Everything that is not said here is drawn from the seed.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// Where all chance comes from.
    pub seed: u64,
    /// The sites' names.
    pub sites: Vec<String>,
    /// How many nodes each site has.
    pub nodes_per_site: usize,
    /// How many members each partition has at each site: at most as many as there are nodes, and as the protocol may have.
    pub members: u16,
    /// At how many of the sites each partition stands; `None`: at all.
    pub replica_sites: Option<u16>,
    /// How many keyspaces there are, all of one protocol.
    pub keyspaces: usize,
    /// How many partitions each keyspace has.
    pub partitions: u16,
    /// When its writes are acknowledged.
    pub durability: Durability,
    /// How long a frame is under way from one site (first index) to another, at least.
    pub delays: Vec<Vec<Micros>>,
    /// How much longer.
    pub jitter: Jitter,
    /// How much a link carries in each direction, in bytes per second. `None`: as much as there is.
    pub bandwidth: Option<u64>,
    /// Of a million frames that the seam lets be lost, so many are.
    pub loss_ppm: u64,
    /// How long it takes until a connection of which one direction is cut is given up.
    pub give_up: Span,
    /// How many cores each node has; 0: what a node does takes no time.
    pub cores: usize,
    /// How long a core is busy with one thing.
    pub service: Service,
    /// How long a node takes until it commits what has come in.
    pub turn: Span,
    /// Whether a node is asked in two steps for what it has for another one, as the server asks it: other threads go on in between.
    pub fills_in_halves: bool,
    /// How long a disk takes to sync.
    pub sync: Span,
    /// How long a node takes until it begins background work that waits.
    pub work: Span,
    /// How long a disk takes for one step of background work.
    pub disk: Span,
    /// How long each node's disk takes, in percent of the usual. Those not named take as long as usual.
    pub disk_percents: Vec<u64>,
    /// How long a broken link takes until it is tried again.
    pub backoff: Span,
    /// What every node believes of its wall clock: it is at most so far from true time.
    pub clock_bound: Micros,
    /// Whether nodes keep their wall clocks from jumping, as the server's do ([`turnbuckle_core::SteadyWall`]).
    pub steady_clocks: bool,
    /// Whether a process that opens its node anew, because rows on its disk are damaged, goes on with the clock that it has, as the server's does.
    pub keeps_clocks: bool,
    /// How far each node's wall clock is ahead of true time, in microseconds. Those not named are exact.
    pub clock_offsets_us: Vec<i64>,
    /// How much each node's clocks run too fast, in microseconds a second. Those not named run right.
    pub clock_drifts_ppm: Vec<i64>,
    /// Memory for versions on each node, in bytes.
    pub memory_limit_bytes: u64,
    /// The log is kept for absent peers up to this many bytes.
    pub retained_log_bytes: u64,
    /// A checkpoint begins when this much log has been written since the last one, in bytes.
    pub checkpoint_log_bytes: u64,
    /// A checkpoint begins so long after the last one if anything was written since.
    pub checkpoint_interval: Micros,
    /// Once it has come to rest, deletes that nobody needs must be forgotten.
    pub must_forget: bool,
    /// A fault that takes a data directory is left out while a node at another site does not have everything again that it lost with its own.
    pub one_loss_at_a_time: bool,
    /// How many keys a checkpoint or a full copy takes in one step.
    pub batch_keys: usize,
    /// How long a node that was restarted waits for sites that may hold what a power loss took from it.
    pub patience: Micros,
    /// Intervals of what protocols do seldom, and limits of what they remember, are divided by this ([`turnbuckle_core::Protocol::shrink`]).
    pub shrink: u32,
    /// Writes are refused while a disk has less than this many bytes free.
    pub min_free_bytes: u64,
    /// The log's segments, in bytes.
    pub segment_bytes: u64,
    /// The streams' limits.
    pub stream: StreamLimits,
    /// How much a node gives to a link at once, in bytes.
    pub chunk_bytes: usize,
    /// An operation that is not answered by then fails.
    pub deadline: Micros,
    /// Bugs planted into every node.
    pub planted: Planted,
}

/// How long a core is busy with one thing, in a world in which that takes time.
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
    /// Each KiB of such frames, besides.
    #[serde(deserialize_with = "word")]
    pub kib: Micros,
}

impl Default for Service {
    /// About what the server takes on a core of today, sockets included.
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
    /// Sites of one node and one partition each, `delay` apart, on which nothing varies: for scripts, where the
    /// reader wants to do the sums.
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
            members: 1,
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
        }
    }

    /// The longest that a step of the slowest disk takes.
    pub(crate) fn slowest_disk(&self) -> Micros {
        let percent = self.disk_percents.iter().copied().max().unwrap_or(100).max(100);
        Micros(self.disk.max.0.saturating_mul(percent) / 100)
    }
}
