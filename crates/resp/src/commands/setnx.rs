use super::{Keys, PLAIN, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Condition, Operation, PutOptions};

pub(super) const SETNX: Spec = Spec {
    name: "setnx",
    arity: -3,
    flags: &["write", "denyoom", "fast"],
    keys: Keys::ONE,
    group: "string",
    syntax: "key value [AT level]",
    summary: "Sets the value of a key that has none, and returns whether it did.",
    run,
    in_transactions: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let level = call.level_behind(3, "setnx")?;
    let put = Operation::put(call.key(1)?, call.arguments.bytes(2));
    let options = PutOptions {
        condition: Some(Condition::Absent),
        ..PutOptions::default()
    };
    let put = put.with(options).wanting(call.write_level(level));
    call.operate(Shape::CarriedOut, put)
}
