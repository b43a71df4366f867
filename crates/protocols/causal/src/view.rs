use turnbuckle_core::{Level, Levels, Micros};

/// What a read of a causal keyspace shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Visible versions: level `causal`.
    Visible,
    /// The newest versions here, visible or not: level `eventual`.
    Newest,
    /// Visible versions, once they provably reflect every write that was acknowledged longer ago than this: level `bounded(t)`.
    Fresh(Micros),
}

impl View {
    /// The levels of the family's keyspaces.
    pub const LEVELS: Levels = Levels {
        reads: &[Level::Causal, Level::Eventual, Level::Bounded(Micros(0))],
        writes: &[Level::Causal, Level::Eventual],
    };

    /// What a read at a level shows.
    pub fn at(level: Level) -> View {
        match level {
            Level::Eventual => View::Newest,
            Level::Bounded(bound) => View::Fresh(bound),
            _ => View::Visible,
        }
    }

    /// The level that such a read is given.
    pub fn level(self) -> Level {
        match self {
            View::Visible => Level::Causal,
            View::Newest => Level::Eventual,
            View::Fresh(bound) => Level::Bounded(bound),
        }
    }

    /// Whether versions are shown that may not be visible.
    pub fn is_newest(self) -> bool {
        self == View::Newest
    }

    /// The bound that must be proven first.
    pub fn bound(self) -> Option<Micros> {
        match self {
            View::Fresh(bound) => Some(bound),
            View::Visible | View::Newest => None,
        }
    }
}
