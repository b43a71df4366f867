use super::{Keys, PLAIN, Reads, Spec};
use crate::part::{Part, Span};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::Operation;

pub(super) const GETRANGE: Spec = Spec {
    name: "getrange",
    arity: -4,
    flags: &["readonly"],
    keys: Keys::ONE,
    group: "string",
    syntax: "key start end [AT level]",
    summary: "A part of a key's value, from one byte to another, both included. Places below 0 are counted from the end.",
    reads: Reads::Always,
    run: |call| run(call, "getrange"),
    in_transactions: true,
    ..PLAIN
};

/// Redis's older name of it.
pub(super) const SUBSTR: Spec = Spec {
    name: "substr",
    run: |call| run(call, "substr"),
    ..GETRANGE
};

fn run(call: &mut Call<'_>, name: &str) -> Result<(), Refusal> {
    let level = call.level_behind(4, name)?;
    let span = Span::bytes(call.integer(2)?, call.integer(3)?);
    let get = Operation::get(call.key(1)?).wanting(call.read_level(level));
    call.operate(Shape::Part(Part::Bytes(span)), get)
}
