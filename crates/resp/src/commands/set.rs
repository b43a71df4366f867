use super::{Keys, PLAIN, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Level, Operation};

pub(super) const SET: Spec = Spec {
    name: "set",
    arity: -3,
    flags: &["write", "denyoom"],
    keys: Keys::ONE,
    group: "string",
    summary: "Sets the value of a key: SET key value [AT level].",
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let level = if call.len() == 3 { None } else { options(call)? };
    let put = Operation::put(call.key(1)?, call.arguments.bytes(2)).at(call.write_level(level));
    call.operate(Shape::Done, put)
}

/// Reads what stands behind the value. What Redis knows and Turnbuckle does not is refused, never ignored: a lock that
/// was taken without its NX is not a lock.
fn options(call: &Call<'_>) -> Result<Option<Level>, Refusal> {
    let mut level = None;
    let mut place = 3;
    while place < call.len() {
        if call.arguments.is(place, "AT") && place + 1 < call.len() && level.is_none() {
            level = Some(call.level(place + 1)?);
            place += 2;
            continue;
        }
        let one = ["NX", "XX", "GET", "KEEPTTL"];
        let two = ["EX", "PX", "EXAT", "PXAT"];
        let found =
            |words: &[&'static str]| words.iter().copied().find(|word| call.arguments.is(place, word));
        if let Some(word) = found(&one) {
            return Err(unsupported(word));
        }
        return Err(match found(&two) {
            Some(word) if place + 1 < call.len() => unsupported(word),
            _ => Refusal::syntax(),
        });
    }
    Ok(level)
}

fn unsupported(option: &str) -> Refusal {
    let what = match option {
        "NX" | "XX" => "conditional writes are",
        "GET" => "reading the old value with a write is",
        _ => "expiry is",
    };
    Refusal::unsupported(format_args!(
        "SET {option}: {what} not in this kind of keyspace yet"
    ))
}
