use super::{Keys, PLAIN, Spec};
use crate::{call::Call, long::Each, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Operation, PutOptions};

pub(super) const DEL: Spec = Spec {
    name: "del",
    arity: -2,
    flags: &["write"],
    keys: Keys::ALL,
    group: "generic",
    syntax: "key [key ...] [AT level], or key REPLACES context [AT level]",
    summary: "Deletes keys, one by one, and counts those that had a value.",
    run,
    in_transactions: true,
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
    // As with AT, a key of this name must be placed elsewhere.
    if end >= 4 && call.arguments.at(end - 2) == b"REPLACES" {
        if end > 4 {
            return Err(Refusal::usage(
                "DEL key REPLACES context [AT level]: a context is of one key",
            ));
        }
        let key = call.key(1)?;
        let options = PutOptions {
            replaces: Some(call.context(&key, 3)?),
            ..PutOptions::default()
        };
        let delete = Operation::delete(key).with(options);
        return call.operate(Shape::Deleted, delete.wanting(call.write_level(level)));
    }
    call.write_each(Each::Delete, level, end)
}
