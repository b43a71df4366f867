/// What a protocol is like, for those who run it and judge it and know nothing else of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Whether anybody ever asks for a version that is not a key's newest. Without history a store keeps one version a key.
    pub history: bool,
    /// How versions reach other replicas.
    pub replication: Replication,
    /// How many members a partition may have inside a site.
    pub most_members: u16,
    /// Whether a partition may stand at some sites only.
    pub leaves_sites_out: bool,
    /// Whether it keeps its promises when clocks are set.
    pub stands_clock_steps: bool,
    /// Whether it keeps its promises, or refuses to serve, when a data directory is replaced by an old copy of itself.
    pub stands_old_directories: bool,
}

/// A bug that can be planted into a protocol ([`crate::Protocol::plant`]): a rule of it left out. Drawn worlds must find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bug {
    /// Its name on command lines.
    pub name: &'static str,
    /// What goes wrong with it.
    pub what: &'static str,
}

impl Bug {
    /// A bug.
    pub const fn new(name: &'static str, what: &'static str) -> Bug {
        Bug { name, what }
    }
}

/// How versions reach other sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// By durable streams ([`crate::Context::replicate`]): each replica has every version in the end, or a newer one. What a replica lost, its peers
    /// give back.
    Streams,
    /// By the protocol's own messages ([`crate::Context::send`]), to a majority of a partition's replicas. No replica need have everything. One whose
    /// data directory was lost, or whose rows were damaged, neither serves nor hears messages until it has a full copy of each
    /// of the others.
    Majority,
}
