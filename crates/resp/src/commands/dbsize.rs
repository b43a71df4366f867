use super::{Concerns, PLAIN, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::Operation;

pub(super) const DBSIZE: Spec = Spec {
    name: "dbsize",
    arity: 1,
    flags: &["readonly", "fast"],
    group: "server",
    summary: "Counts the keys that have a value.",
    waits: true,
    run,
    concerns: Concerns::AllKeys,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    call.operate(Shape::Count, Operation::Count)
}
