use super::{Keys, PLAIN, Reads, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::Operation;

pub(super) const EXISTS: Spec = Spec {
    name: "exists",
    arity: -2,
    flags: &["readonly", "fast"],
    keys: Keys::ALL,
    group: "generic",
    summary: "Counts the keys that have a value: EXISTS key [key ...] [AT level].",
    reads: Reads::Always,
    run,
    in_transactions: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (level, end) = call.level_at_end(1)?;
    if end == 2 {
        let get = Operation::get(call.key(1)?).wanting(call.read_level(level));
        return call.operate(Shape::Present, get);
    }
    call.read_each(Shape::Present, level, end)
}
