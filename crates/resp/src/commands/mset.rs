use super::{Keys, PLAIN, Spec};
use crate::{call::Call, refusal::Refusal};
use turnbuckle_core::{Key, Operation};

pub(super) const MSET: Spec = Spec {
    name: "mset",
    arity: -3,
    flags: &["write", "denyoom"],
    keys: Keys::PAIRS,
    group: "string",
    summary: "Sets several keys, one by one, not as one transaction: MSET key value [key value ...] [AT level].",
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    if call.len().is_multiple_of(2) {
        return Err(Refusal::arity("mset"));
    }
    let (level, end) = call.level_at_end(2)?;
    let level = call.write_level(level);
    let places = || (1..end).step_by(2);
    let keys: Vec<Key> = places().map(|place| call.key(place)).collect::<Result<_, _>>()?;
    let arguments = call.arguments;
    let puts = places().zip(keys.clone()).map(|(place, key)| Operation::Put {
        key,
        value: Some(arguments.bytes(place + 1)),
        level,
    });
    call.operate_several(false, keys, puts)
}
