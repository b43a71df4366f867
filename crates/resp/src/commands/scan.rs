use super::{Concerns, PLAIN, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{HASH_SLOTS, Operation};

pub(super) const SCAN: Spec = Spec {
    name: "scan",
    arity: -2,
    flags: &["readonly"],
    group: "generic",
    syntax: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
    summary: "Lists keys, some at a time.",
    waits: true,
    run,
    concerns: Concerns::AllKeys,
    ..PLAIN
};

/// How many keys are looked at if no `COUNT` is given, as in Redis.
const DEFAULT_COUNT: u32 = 10;

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let cursor = std::str::from_utf8(call.arguments.at(1))
        .ok()
        .and_then(|text| text.parse::<u64>().ok())
        // The first 16 bits of a cursor are the next hash slot.
        .filter(|cursor| cursor >> 48 < u64::from(HASH_SLOTS))
        .ok_or_else(|| Refusal::err("invalid cursor"))?;
    let max = call.connection.greeting.limits.max_scan_count;
    let mut count = DEFAULT_COUNT.min(max);
    let mut pattern = None;
    let mut none = false;
    let mut place = 2;
    while place < call.len() {
        if place + 1 == call.len() {
            return Err(syntax());
        }
        if call.arguments.is(place, "COUNT") {
            let asked = call.integer(place + 1)?;
            if asked < 1 {
                return Err(Refusal::err(format_args!(
                    "syntax error; found COUNT {asked}, expected a number of 1 or more"
                )));
            }
            count = u32::try_from(asked).unwrap_or(u32::MAX).min(max);
        } else if call.arguments.is(place, "MATCH") {
            pattern = Some(call.key(place + 1)?.0);
        } else if call.arguments.is(place, "TYPE") {
            none = !has_type(call, place + 1)?;
        } else {
            return Err(syntax());
        }
        place += 2;
    }
    let scan = Operation::Scan { cursor, count };
    call.operate(Shape::Keys { pattern, none }, scan)
}

fn syntax() -> Refusal {
    Refusal::usage(&SCAN.usage())
}

/// Whether the argument names the type that all values have. If it names another type of Redis, no value has it. Where keys may have hashes and sets, it is not known which
/// type a key has that is listed.
fn has_type(call: &mut Call<'_>, place: usize) -> Result<bool, Refusal> {
    const OTHERS: [&str; 5] = ["LIST", "SET", "ZSET", "HASH", "STREAM"];
    let is_one_of = |types: &[&str]| types.iter().any(|name| call.arguments.is(place, name));
    let is_string = is_one_of(&["STRING"]);
    if is_one_of(&["STRING", "HASH", "SET"]) && call.keeps_elements()? {
        return Err(Refusal::unsupported(format_args!(
            "SCAN: in the keyspace '{}' the types of the keys that are listed are not known; TYPE tells that of a key",
            call.connection.state.keyspace
        )));
    }
    if is_string {
        return Ok(true);
    }
    if OTHERS.iter().any(|other| call.arguments.is(place, other)) {
        return Ok(false);
    }
    let name: String = call.text(place).chars().take(128).collect();
    Err(Refusal::err(format_args!("unknown type name '{name}'")))
}
