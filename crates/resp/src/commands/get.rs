use super::{Keys, PLAIN, Reads, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::Operation;

pub(super) const GET: Spec = Spec {
    name: "get",
    arity: -2,
    flags: &["readonly", "fast"],
    keys: Keys::ONE,
    group: "string",
    syntax: "key [AT level]",
    summary: "The value of a key.",
    reads: Reads::Always,
    run,
    in_transactions: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let level = call.level_behind(2, "get")?;
    let get = Operation::get(call.key(1)?).wanting(call.read_level(level));
    call.operate(Shape::Value, get)
}
