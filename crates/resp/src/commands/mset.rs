use super::{Keys, PLAIN, Spec};
use crate::{call::Call, long::Each, refusal::Refusal};

pub(super) const MSET: Spec = Spec {
    name: "mset",
    arity: -3,
    flags: &["write", "denyoom"],
    keys: Keys::PAIRS,
    group: "string",
    syntax: "key value [key value ...] [AT level]",
    summary: "Sets several keys, one by one, not as one transaction.",
    run,
    in_transactions: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    if call.len().is_multiple_of(2) {
        return Err(Refusal::arity("mset"));
    }
    let (level, end) = call.level_at_end(2)?;
    call.write_each(Each::Set, level, end)
}
