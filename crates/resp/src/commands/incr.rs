//! `INCR`, `DECR`, `INCRBY`, `DECRBY`.
use super::{Keys, PLAIN, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Compute, Operation, PutOptions};

pub(super) const INCR: Spec = Spec {
    name: "incr",
    arity: -2,
    flags: &["write", "denyoom", "fast"],
    keys: Keys::ONE,
    group: "string",
    summary: "Adds 1 to the number that is a key's value, and returns the sum.",
    syntax: "key [AT level]",
    run: |call| {
        let level = call.level_behind(2, "incr")?;
        add(call, 1, level)
    },
    in_transactions: true,
    ..PLAIN
};

pub(super) const DECR: Spec = Spec {
    name: "decr",
    summary: "Subtracts 1 from the number that is a key's value, and returns the difference.",
    syntax: "key [AT level]",
    run: |call| {
        let level = call.level_behind(2, "decr")?;
        add(call, -1, level)
    },
    ..INCR
};

pub(super) const INCRBY: Spec = Spec {
    name: "incrby",
    arity: -3,
    summary: "Adds to the number that is a key's value, and returns the sum.",
    syntax: "key increment [AT level]",
    run: |call| {
        let level = call.level_behind(3, "incrby")?;
        let more = call.integer(2)?;
        add(call, more, level)
    },
    ..INCR
};

pub(super) const DECRBY: Spec = Spec {
    name: "decrby",
    arity: -3,
    summary: "Subtracts from the number that is a key's value, and returns the difference.",
    syntax: "key decrement [AT level]",
    run: |call| {
        let level = call.level_behind(3, "decrby")?;
        let less = call.integer(2)?.checked_neg();
        let less = less.ok_or_else(|| Refusal::err("decrement would overflow"))?;
        add(call, less, level)
    },
    ..INCR
};

pub(super) const INCRBYFLOAT: Spec = Spec {
    name: "incrbyfloat",
    arity: -3,
    summary: "Adds to the decimal number that is a key's value, and returns the sum. Up to 28 digits are exact.",
    syntax: "key increment [AT level]",
    run: |call| {
        let level = call.level_behind(3, "incrbyfloat")?;
        let more = turnbuckle_core::decimal(call.arguments.at(2));
        let more = more.ok_or_else(|| Refusal::err("value is not a valid float"))?;
        let put = computing(call, Compute::AddDecimal(more))?;
        call.operate(Shape::Number, put.wanting(call.write_level(level)))
    },
    ..INCR
};

fn add(call: &mut Call<'_>, more: i64, level: Option<turnbuckle_core::Wanted>) -> Result<(), Refusal> {
    let put = computing(call, Compute::Add(more))?;
    call.operate(Shape::Integer, put.wanting(call.write_level(level)))
}

/// A put of the command's key that computes its value.
pub(super) fn computing(call: &Call<'_>, compute: Compute) -> Result<Operation, Refusal> {
    let options = PutOptions {
        computes: Some(compute),
        ..PutOptions::default()
    };
    Ok(Operation::put(call.key(1)?, None).with(options))
}
