use super::{Keys, PLAIN, Reads, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::Operation;

pub(super) const TYPE: Spec = Spec {
    name: "type",
    arity: -2,
    flags: &["readonly", "fast"],
    keys: Keys::ONE,
    group: "generic",
    syntax: "key [AT level]",
    summary: "The type of a key's value: string, hash, set or none.",
    reads: Reads::Always,
    run,
    in_transactions: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let level = call.level_behind(2, "type")?;
    let get = Operation::get(call.key(1)?).wanting(call.read_level(level));
    call.operate(Shape::Kind, get)
}
