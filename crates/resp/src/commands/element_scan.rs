//! `HSCAN`, `SSCAN`. The first call shows everything: a hash or a set is read as a whole in any case.
use super::{Keys, PLAIN, Reads, Spec};
use crate::element_shape::{ElementShape, Matching, Shown};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Kind, Operation};

pub(super) const HSCAN: Spec = Spec {
    name: "hscan",
    arity: -3,
    flags: &["readonly"],
    keys: Keys::ONE,
    group: "hash",
    syntax: "key cursor [MATCH pattern] [COUNT count] [NOVALUES] [AT level]",
    summary: "The fields of a hash and their values, all at once.",
    reads: Reads::Always,
    run: |call| run(call, Kind::Hash, &HSCAN),
    in_transactions: true,
    ..PLAIN
};

pub(super) const SSCAN: Spec = Spec {
    name: "sscan",
    group: "set",
    syntax: "key cursor [MATCH pattern] [COUNT count] [AT level]",
    summary: "The members of a set, all at once.",
    run: |call| run(call, Kind::Set, &SSCAN),
    ..HSCAN
};

fn run(call: &mut Call<'_>, kind: Kind, spec: &Spec) -> Result<(), Refusal> {
    let cursor = std::str::from_utf8(call.arguments.at(2)).ok();
    let cursor = cursor.and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or_else(|| Refusal::err("invalid cursor"))?;
    let mut wanted = Matching {
        pattern: None,
        with_values: kind == Kind::Hash,
        is_over: cursor != 0,
    };
    let syntax = || Refusal::usage(&spec.usage());
    let mut level = None;
    let mut place = 3;
    while place < call.len() {
        if call.arguments.is(place, "AT") && place + 2 >= call.len() {
            level = call.level_behind(place, spec.name)?;
        } else if call.arguments.is(place, "NOVALUES") {
            if kind != Kind::Hash {
                return Err(Refusal::err("NOVALUES option can only be used in HSCAN"));
            }
            wanted.with_values = false;
            place += 1;
            continue;
        } else if place + 1 == call.len() {
            return Err(syntax());
        } else if call.arguments.is(place, "MATCH") {
            wanted.pattern = Some(call.key(place + 1)?.0);
        } else if call.arguments.is(place, "COUNT") {
            if call.integer(place + 1)? < 1 {
                return Err(syntax());
            }
        } else {
            return Err(syntax());
        }
        place += 2;
    }
    let get = Operation::get(call.key(1)?).wanting(call.read_level(level));
    let shown = Shown::Matching(Box::new(wanted));
    call.operate(Shape::Elements(ElementShape { kind, shown }), get)
}
