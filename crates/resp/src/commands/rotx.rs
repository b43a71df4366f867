use super::{Keys, PLAIN, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Level, Operation};

pub(super) const ROTX: Spec = Spec {
    name: "rotx",
    arity: -2,
    flags: &["readonly", "fast"],
    keys: Keys::ALL,
    group: "string",
    summary: "A causally consistent snapshot of several keys, or an error: ROTX key [key ...] [AT level].",
    run,
    ..PLAIN
};

/// MGET that insists on a snapshot, whatever the connection's level: a keyspace without them says which levels it has.
fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (level, end) = call.level_at_end(1)?;
    let read = Operation::ReadMany {
        keys: (1..end).map(|place| call.key(place)).collect::<Result<_, _>>()?,
        level: Some(level.unwrap_or(Level::Causal)),
    };
    call.operate(Shape::Values, read)
}
