use super::{Keys, PLAIN, Reads, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Operation, PutOptions};

pub(super) const GETDEL: Spec = Spec {
    name: "getdel",
    arity: -2,
    flags: &["write", "fast"],
    keys: Keys::ONE,
    group: "string",
    syntax: "key [AT level]",
    summary: "Deletes a key, and returns the value that it had.",
    reads: Reads::Always,
    run,
    in_transactions: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let level = call.level_behind(2, "getdel")?;
    let options = PutOptions {
        returns_previous: true,
        ..PutOptions::default()
    };
    let delete = Operation::delete(call.key(1)?);
    let delete = delete.with(options).wanting(call.write_level(level));
    call.operate(Shape::Previous, delete)
}
