//! `SADD`, `SMEMBERS`, and the other commands on sets.
use super::hashes::{edit, named, show};
use super::{Keys, PLAIN, Reads, Spec};
use crate::element_shape::{Shown, Together};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Edit, Kind};

pub(super) const SADD: Spec = Spec {
    name: "sadd",
    arity: -3,
    flags: &["write", "denyoom", "fast"],
    keys: Keys::ONE,
    group: "set",
    syntax: "key member [member ...] [AT level]",
    summary: "Adds members to a set, and returns how many of them are new.",
    run: |call| {
        let (level, end) = call.level_at_end(2)?;
        let members = named(call, end);
        edit(call, Shape::Changed, Edit::Insert(members), level)
    },
    in_transactions: true,
    ..PLAIN
};

pub(super) const SREM: Spec = Spec {
    name: "srem",
    flags: &["write", "fast"],
    summary: "Removes members from a set, and returns how many there were.",
    run: |call| {
        let (level, end) = call.level_at_end(2)?;
        let members = named(call, end);
        edit(call, Shape::Changed, Edit::Remove(Kind::Set, members), level)
    },
    ..SADD
};

pub(super) const SMEMBERS: Spec = Spec {
    name: "smembers",
    arity: -2,
    flags: &["readonly"],
    keys: Keys::ONE,
    group: "set",
    syntax: "key [AT level]",
    summary: "All members of a set.",
    reads: Reads::Always,
    run: |call| {
        let level = call.level_behind(2, "smembers")?;
        show(call, Kind::Set, Shown::All, level)
    },
    in_transactions: true,
    ..PLAIN
};

pub(super) const SCARD: Spec = Spec {
    name: "scard",
    flags: &["readonly", "fast"],
    summary: "How many members a set has.",
    run: |call| {
        let level = call.level_behind(2, "scard")?;
        show(call, Kind::Set, Shown::Count, level)
    },
    ..SMEMBERS
};

pub(super) const SISMEMBER: Spec = Spec {
    name: "sismember",
    arity: -3,
    flags: &["readonly", "fast"],
    syntax: "key member [AT level]",
    summary: "Whether a set has a member.",
    run: |call| {
        let level = call.level_behind(3, "sismember")?;
        let member = call.arguments.bytes(2);
        show(call, Kind::Set, Shown::Has(member), level)
    },
    ..SMEMBERS
};

pub(super) const SMISMEMBER: Spec = Spec {
    name: "smismember",
    syntax: "key member [member ...] [AT level]",
    summary: "Whether a set has each of several members.",
    run: |call| {
        let (level, end) = call.level_at_end(2)?;
        let members = named(call, end);
        show(call, Kind::Set, Shown::HasEach(members), level)
    },
    ..SISMEMBER
};

pub(super) const SINTER: Spec = Spec {
    name: "sinter",
    keys: Keys::ALL,
    syntax: "key [key ...] [AT level]",
    summary: "The members that all of several sets of one partition have, at one moment.",
    run: |call| together(call, Together::Intersection),
    ..SMEMBERS
};

pub(super) const SUNION: Spec = Spec {
    name: "sunion",
    summary: "The members that any of several sets of one partition has, at one moment.",
    run: |call| together(call, Together::Union),
    ..SINTER
};

pub(super) const SDIFF: Spec = Spec {
    name: "sdiff",
    summary: "The members of a set that no other one of several sets of its partition has, at one moment.",
    run: |call| together(call, Together::Difference),
    ..SINTER
};

fn together(call: &mut Call<'_>, together: Together) -> Result<(), Refusal> {
    let (level, end) = call.level_at_end(1)?;
    call.read_together(Shape::Together(together), level, end)
}
