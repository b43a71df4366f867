use super::{Keys, PLAIN, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Key, Operation};

pub(super) const DEL: Spec = Spec {
    name: "del",
    arity: -2,
    flags: &["write"],
    keys: Keys::ALL,
    group: "generic",
    summary: "Deletes keys, one by one, and counts those that had a value: DEL key [key ...] [AT level].",
    run,
    ..PLAIN
};

/// The same as `DEL`: there is no memory to free in the foreground.
pub(super) const UNLINK: Spec = Spec {
    name: "unlink",
    flags: &["write", "fast"],
    ..DEL
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (level, end) = call.level_at_end(1)?;
    let level = call.write_level(level);
    let delete = |key| Operation::Put {
        key,
        value: None,
        level,
    };
    if end == 2 {
        let key = call.key(1)?;
        return call.operate(Shape::Deleted, delete(key));
    }
    let keys: Vec<Key> = (1..end).map(|place| call.key(place)).collect::<Result<_, _>>()?;
    call.operate_several(true, keys.clone(), keys.into_iter().map(delete))
}
