use super::{Keys, PLAIN, Reads, Spec, set::Unit};
use crate::shape::{Remaining, Shape};
use crate::{call::Call, refusal::Refusal};
use turnbuckle_core::Operation;

pub(super) const TTL: Spec = Spec {
    name: "ttl",
    arity: -2,
    flags: &["readonly", "fast"],
    keys: Keys::ONE,
    group: "generic",
    syntax: "key [AT level]",
    summary: "In how many seconds a key's value expires. -1: never. -2: it has none.",
    reads: Reads::Always,
    in_transactions: true,
    run: |call| {
        run(
            call,
            "ttl",
            Remaining {
                unit: Unit::Seconds,
                is_time: false,
            },
        )
    },
    ..PLAIN
};

pub(super) const PTTL: Spec = Spec {
    name: "pttl",
    summary: "In how many milliseconds a key's value expires. -1: never. -2: it has none.",
    run: |call| {
        run(
            call,
            "pttl",
            Remaining {
                unit: Unit::Millis,
                is_time: false,
            },
        )
    },
    ..TTL
};

pub(super) const EXPIRETIME: Spec = Spec {
    name: "expiretime",
    summary: "When a key's value expires, in seconds since 1970. -1: never. -2: it has none.",
    run: |call| {
        run(
            call,
            "expiretime",
            Remaining {
                unit: Unit::Seconds,
                is_time: true,
            },
        )
    },
    ..TTL
};

pub(super) const PEXPIRETIME: Spec = Spec {
    name: "pexpiretime",
    summary: "When a key's value expires, in milliseconds since 1970. -1: never. -2: it has none.",
    run: |call| {
        run(
            call,
            "pexpiretime",
            Remaining {
                unit: Unit::Millis,
                is_time: true,
            },
        )
    },
    ..TTL
};

/// The value is read as `GET` reads it: its receipt says when it expires.
fn run(call: &mut Call<'_>, name: &str, remaining: Remaining) -> Result<(), Refusal> {
    let level = call.level_behind(2, name)?;
    let get = Operation::get(call.key(1)?).wanting(call.read_level(level));
    call.operate(Shape::Remaining(remaining), get)
}
