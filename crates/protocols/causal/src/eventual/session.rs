use super::replica::Eventual;
use turnbuckle_core::{Level, Levels, PlainProtocol, PlainSession};

/// A client of an eventual keyspace.
pub type EventualSession = PlainSession<Eventual>;

impl PlainProtocol for Eventual {
    const LEVELS: Levels = Levels::of_both(&[Level::Eventual]);
    const OVERLAPS: bool = true;
    const WRITES_ANYWHERE: bool = false;
}
