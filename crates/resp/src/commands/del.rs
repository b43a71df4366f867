use super::{Keys, PLAIN, Spec};
use crate::{call::Call, long::Each, refusal::Refusal, shape::Shape};
use turnbuckle_core::Operation;

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
    if end == 2 {
        let delete = Operation::delete(call.key(1)?).wanting(call.write_level(level));
        return call.operate(Shape::Deleted, delete);
    }
    call.write_each(Each::Delete, level, end)
}
