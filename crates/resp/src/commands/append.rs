//! `APPEND`, `SETRANGE`.
use super::incr::computing;
use super::{Keys, PLAIN, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Compute, NotComputed};

pub(super) const APPEND: Spec = Spec {
    name: "append",
    arity: -3,
    flags: &["write", "denyoom", "fast"],
    keys: Keys::ONE,
    group: "string",
    syntax: "key value [AT level]",
    summary: "Appends to a key's value, and returns the new length.",
    run: |call| {
        let level = call.level_behind(3, "append")?;
        let put = computing(call, Compute::Append(call.arguments.bytes(2)))?;
        call.operate(Shape::Length, put.wanting(call.write_level(level)))
    },
    in_transactions: true,
    ..PLAIN
};

pub(super) const SETRANGE: Spec = Spec {
    name: "setrange",
    arity: -4,
    flags: &["write", "denyoom"],
    syntax: "key offset value [AT level]",
    summary: "Overwrites a part of a key's value, and returns the new length.",
    run: set_range,
    ..APPEND
};

fn set_range(call: &mut Call<'_>) -> Result<(), Refusal> {
    let level = call.level_behind(4, "setrange")?;
    let at = call.integer(2)?;
    let with = call.arguments.bytes(3);
    if at < 0 {
        return Err(Refusal::err("offset is out of range"));
    }
    let at = u32::try_from(at).map_err(|_| Refusal::err(NotComputed::TooLong))?;
    let put = computing(call, Compute::Overwrite(at, with))?;
    call.operate(Shape::Length, put.wanting(call.write_level(level)))
}
