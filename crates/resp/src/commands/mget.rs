use super::{Keys, PLAIN, Reads, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};

pub(super) const MGET: Spec = Spec {
    name: "mget",
    arity: -2,
    flags: &["readonly", "fast"],
    keys: Keys::ALL,
    group: "string",
    syntax: "key [key ...] [AT level]",
    summary: "The values of several keys; a snapshot where the keyspace has them.",
    reads: Reads::Always,
    run,
    in_transactions: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (level, end) = call.level_at_end(1)?;
    call.read_each(Shape::Values, level, end)
}
