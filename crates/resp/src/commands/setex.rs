use super::{Keys, PLAIN, Spec, set::Unit};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Expiry, Operation, PutOptions};

pub(super) const SETEX: Spec = Spec {
    name: "setex",
    arity: -4,
    flags: &["write", "denyoom"],
    keys: Keys::ONE,
    group: "string",
    syntax: "key seconds value [AT level]",
    summary: "Sets the value of a key for this number of seconds.",
    run: |call| run(call, "setex", Unit::Seconds),
    in_transactions: true,
    ..PLAIN
};

pub(super) const PSETEX: Spec = Spec {
    name: "psetex",
    syntax: "key milliseconds value [AT level]",
    summary: "Sets the value of a key for this number of milliseconds.",
    run: |call| run(call, "psetex", Unit::Millis),
    ..SETEX
};

fn run(call: &mut Call<'_>, command: &str, unit: Unit) -> Result<(), Refusal> {
    let level = call.level_behind(4, command)?;
    let span = unit.micros(call, 2, command)?;
    let put = Operation::put(call.key(1)?, call.arguments.bytes(3));
    let options = PutOptions {
        expiry: Some(Expiry::After(span)),
        ..PutOptions::default()
    };
    let put = put.with(options).wanting(call.write_level(level));
    call.operate(Shape::Done, put)
}
