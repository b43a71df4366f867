use super::{Keys, PLAIN, Reads, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::Operation;

pub(super) const EXISTS: Spec = Spec {
    name: "exists",
    arity: -2,
    flags: &["readonly", "fast"],
    keys: Keys::ALL,
    group: "generic",
    syntax: "key [key ...] [AT level]",
    summary: "Counts the keys that have a value, a hash or a set.",
    reads: Reads::Always,
    run,
    in_transactions: true,
    ..PLAIN
};

/// It is not noted when a key was last used, so this is `EXISTS`.
pub(super) const TOUCH: Spec = Spec {
    name: "touch",
    ..EXISTS
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (level, end) = call.level_at_end(1)?;
    if end == 2 {
        let get = Operation::get(call.key(1)?).wanting(call.read_level(level));
        return call.operate(Shape::Present, get);
    }
    call.count_each(level, end)
}
