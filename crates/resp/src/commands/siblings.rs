use super::{Keys, PLAIN, Reads, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::Operation;

pub(super) const SIBLINGS: Spec = Spec {
    name: "siblings",
    arity: -2,
    flags: &["readonly", "fast"],
    keys: Keys::ONE,
    group: "string",
    summary: "The causal context of a key, for SET and DEL with REPLACES, and all values of the key that no write has replaced, newest first. \
              Null instead of the first one if the newest write is a delete.",
    syntax: "key [AT level]",
    reads: Reads::Always,
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let level = call.level_behind(2, "siblings")?;
    let (door, key) = (call.door()?, call.key(1)?);
    let read = Operation::siblings(key.clone()).wanting(call.read_level(level));
    let key = key.compact();
    call.operate(Shape::Siblings { door, key }, read)
}
