use super::{Keys, PLAIN, Reads, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Operation, PutOptions};

pub(super) const GETSET: Spec = Spec {
    name: "getset",
    arity: -3,
    flags: &["write", "denyoom", "fast"],
    keys: Keys::ONE,
    group: "string",
    syntax: "key value [AT level]",
    summary: "Sets the value of a key, and returns the value before.",
    reads: Reads::Always,
    run,
    in_transactions: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let level = call.level_behind(3, "getset")?;
    let put = Operation::put(call.key(1)?, call.arguments.bytes(2));
    let options = PutOptions {
        returns_previous: true,
        ..PutOptions::default()
    };
    let put = put.with(options).wanting(call.write_level(level));
    call.operate(Shape::Previous, put)
}
