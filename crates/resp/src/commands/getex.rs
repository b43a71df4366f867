use super::set::expiry_with_number;
use super::{Keys, PLAIN, Reads, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Operation, PutOptions, Retimes};

pub(super) const GETEX: Spec = Spec {
    name: "getex",
    arity: -2,
    flags: &["write", "fast"],
    keys: Keys::ONE,
    group: "string",
    syntax: "key [EX seconds | PX milliseconds | EXAT seconds | PXAT milliseconds | PERSIST] [AT level]",
    summary: "Returns the value of a key, and changes when it expires.",
    reads: Reads::Always,
    run,
    in_transactions: true,
    ..PLAIN
};

/// Without an option it only reads, as `GET` does.
fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let key = call.key(1)?;
    let (level, end) = match call.len() {
        2 => (None, 2),
        _ => call.level_last()?,
    };
    if end == 2 {
        return call.operate(Shape::Value, Operation::get(key).wanting(call.read_level(level)));
    }
    let expiry = match expiry_with_number(call, 2, "getex")? {
        Some(expiry) if end == 4 => Some(expiry),
        None if end == 3 && call.arguments.is(2, "PERSIST") => None,
        _ => return Err(Refusal::usage(&GETEX.usage())),
    };
    let getex = Operation::delete(key).with(PutOptions {
        expiry,
        retimes: Some(Retimes::Any),
        returns_previous: true,
        ..PutOptions::default()
    });
    call.operate(Shape::Previous, getex.wanting(call.write_level(level)))
}
