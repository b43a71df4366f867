use super::{Keys, PLAIN, Reads, Spec, keyspace::described};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Level, Operation};

pub(super) const ROTX: Spec = Spec {
    name: "rotx",
    arity: -2,
    flags: &["readonly", "fast"],
    keys: Keys::ALL,
    group: "string",
    syntax: "key [key ...] [AT causal]",
    summary: "A causally consistent snapshot of several keys, or an error.",
    reads: Reads::Always,
    run,
    ..PLAIN
};

/// `MGET` that requires a snapshot, whatever the connection's level is. In a keyspace without snapshots, the refusal names the levels that it has.
fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (level, end) = call.level_at_end(1)?;
    let wanted = level.unwrap_or(Level::Causal.into());
    let loose = wanted.levels().find(|level| !level.promise().makes_snapshots());
    if let Some(level) = loose {
        let offered = described(call, &call.connection.state.keyspace)?.levels.offered;
        return Err(Refusal::not_a_snapshot(level, offered));
    }
    let read = Operation::ReadMany {
        keys: (1..end).map(|place| call.key(place)).collect::<Result<_, _>>()?,
        level: None,
    };
    call.operate(Shape::Values, read.wanting(wanted))
}
