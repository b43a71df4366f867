//! `HGET`, `HSET`, and the other commands on hashes.
use super::incr::computing;
use super::{Keys, PLAIN, Reads, Spec};
use crate::element_shape::{ElementShape, Shown};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use bytes::Bytes;
use turnbuckle_core::{Compute, Edit, Kind, Operation, Wanted};

pub(super) const HGET: Spec = Spec {
    name: "hget",
    arity: -3,
    flags: &["readonly", "fast"],
    keys: Keys::ONE,
    group: "hash",
    syntax: "key field [AT level]",
    summary: "The value of a field of a hash.",
    reads: Reads::Always,
    run: |call| about_field(call, "hget", Shown::Value),
    in_transactions: true,
    ..PLAIN
};

pub(super) const HEXISTS: Spec = Spec {
    name: "hexists",
    summary: "Whether a hash has a field.",
    run: |call| about_field(call, "hexists", Shown::Has),
    ..HGET
};

pub(super) const HSTRLEN: Spec = Spec {
    name: "hstrlen",
    summary: "The length of the value of a field of a hash.",
    run: |call| about_field(call, "hstrlen", Shown::Length),
    ..HGET
};

pub(super) const HMGET: Spec = Spec {
    name: "hmget",
    syntax: "key field [field ...] [AT level]",
    summary: "The values of several fields of a hash.",
    run: |call| {
        let (level, end) = call.level_at_end(2)?;
        let fields = named(call, end);
        show(call, Kind::Hash, Shown::Values(fields), level)
    },
    ..HGET
};

pub(super) const HGETALL: Spec = Spec {
    name: "hgetall",
    arity: -2,
    flags: &["readonly"],
    syntax: "key [AT level]",
    summary: "All fields of a hash, and their values.",
    run: |call| about_key(call, "hgetall", Shown::All),
    ..HGET
};

pub(super) const HKEYS: Spec = Spec {
    name: "hkeys",
    summary: "The names of all fields of a hash.",
    run: |call| about_key(call, "hkeys", Shown::Names),
    ..HGETALL
};

pub(super) const HVALS: Spec = Spec {
    name: "hvals",
    summary: "The values of all fields of a hash.",
    run: |call| about_key(call, "hvals", Shown::AllValues),
    ..HGETALL
};

pub(super) const HLEN: Spec = Spec {
    name: "hlen",
    flags: &["readonly", "fast"],
    summary: "How many fields a hash has.",
    run: |call| about_key(call, "hlen", Shown::Count),
    ..HGETALL
};

pub(super) const HSET: Spec = Spec {
    name: "hset",
    arity: -4,
    flags: &["write", "denyoom", "fast"],
    syntax: "key field value [field value ...] [AT level]",
    summary: "Sets fields of a hash, and returns how many of them are new.",
    reads: Reads::Never,
    run: |call| set(call, "hset", Shape::Changed),
    ..HGET
};

/// Redis's older name of it, with another reply.
pub(super) const HMSET: Spec = Spec {
    name: "hmset",
    summary: "Sets fields of a hash.",
    run: |call| set(call, "hmset", Shape::Done),
    ..HSET
};

pub(super) const HSETNX: Spec = Spec {
    name: "hsetnx",
    syntax: "key field value [AT level]",
    summary: "Sets a field of a hash that does not have it, and returns whether it did.",
    run: |call| {
        let level = call.level_behind(4, "hsetnx")?;
        let (field, value) = (call.arguments.bytes(2), call.arguments.bytes(3));
        edit(call, Shape::Changed, Edit::SetNew(field, value), level)
    },
    ..HSET
};

pub(super) const HINCRBY: Spec = Spec {
    name: "hincrby",
    syntax: "key field increment [AT level]",
    summary: "Adds to the number that is the value of a field of a hash, and returns the sum.",
    run: |call| {
        let level = call.level_behind(4, "hincrby")?;
        let more = call.integer(3)?;
        let field = call.arguments.bytes(2);
        edit(call, Shape::Integer, Edit::Add(field, more), level)
    },
    ..HSET
};

pub(super) const HINCRBYFLOAT: Spec = Spec {
    name: "hincrbyfloat",
    syntax: "key field increment [AT level]",
    summary: "Adds to the decimal number that is the value of a field of a hash, and returns the sum. Up to 28 digits are exact.",
    run: |call| {
        let level = call.level_behind(4, "hincrbyfloat")?;
        let more = turnbuckle_core::decimal(call.arguments.at(3));
        let more = more.ok_or_else(|| Refusal::err("value is not a valid float"))?;
        let field = call.arguments.bytes(2);
        edit(call, Shape::Number, Edit::AddDecimal(field, more), level)
    },
    ..HSET
};

pub(super) const HDEL: Spec = Spec {
    name: "hdel",
    arity: -3,
    flags: &["write", "fast"],
    syntax: "key field [field ...] [AT level]",
    summary: "Removes fields of a hash, and returns how many there were.",
    run: |call| {
        let (level, end) = call.level_at_end(2)?;
        let fields = named(call, end);
        edit(call, Shape::Changed, Edit::Remove(Kind::Hash, fields), level)
    },
    ..HSET
};

/// A reply about the field that comes behind the key.
fn about_field(call: &mut Call<'_>, name: &str, shown: fn(Bytes) -> Shown) -> Result<(), Refusal> {
    let level = call.level_behind(3, name)?;
    let field = call.arguments.bytes(2);
    show(call, Kind::Hash, shown(field), level)
}

fn about_key(call: &mut Call<'_>, name: &str, shown: Shown) -> Result<(), Refusal> {
    let level = call.level_behind(2, name)?;
    show(call, Kind::Hash, shown, level)
}

fn set(call: &mut Call<'_>, name: &str, shape: Shape) -> Result<(), Refusal> {
    // A level at the end has two words, as a field and its value have.
    if !call.len().is_multiple_of(2) {
        return Err(Refusal::arity(name));
    }
    let (level, end) = call.level_at_end(3)?;
    let pair = |place| (call.arguments.bytes(place), call.arguments.bytes(place + 1));
    let fields = (2..end).step_by(2).map(pair).collect();
    edit(call, shape, Edit::Set(fields), level)
}

/// The arguments behind the key.
pub(super) fn named(call: &Call<'_>, end: usize) -> Vec<Bytes> {
    (2..end).map(|place| call.arguments.bytes(place)).collect()
}

/// Reads the command's key.
pub(super) fn show(
    call: &mut Call<'_>,
    kind: Kind,
    shown: Shown,
    level: Option<Wanted>,
) -> Result<(), Refusal> {
    let get = Operation::get(call.key(1)?).wanting(call.read_level(level));
    call.operate(Shape::Elements(ElementShape { kind, shown }), get)
}

/// Changes the hash or the set that is the command's key.
pub(super) fn edit(
    call: &mut Call<'_>,
    shape: Shape,
    edit: Edit,
    level: Option<Wanted>,
) -> Result<(), Refusal> {
    let put = computing(call, Compute::Edit(Box::new(edit)))?;
    call.operate(shape, put.wanting(call.write_level(level)))
}
