use super::replica::Eventual;
use turnbuckle_core::{Level, Levels, Micros, PlainProtocol, PlainSession};

/// A client of an eventual keyspace.
pub type EventualSession = PlainSession<Eventual>;

impl PlainProtocol for Eventual {
    const LEVELS: Levels = Levels {
        reads: &[Level::Eventual, Level::Bounded(Micros(0))],
        writes: &[Level::Eventual],
    };
    const OVERLAPS: bool = true;
    const WRITES_ANYWHERE: bool = false;
}
