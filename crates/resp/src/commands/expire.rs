//! Changes of when an existing value expires.
use super::{Keys, PLAIN, Spec, set::Unit};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Expiry, Micros, Operation, PutOptions, Retimes, Wanted};

pub(super) const EXPIRE: Spec = Spec {
    name: "expire",
    arity: -3,
    flags: &["write", "fast"],
    keys: Keys::ONE,
    group: "generic",
    syntax: "key seconds [NX | XX | GT | LT] [AT level]",
    summary: "Sets in how many seconds a key's value expires, and returns whether it did.",
    run: |call| run(call, "expire", Unit::Seconds, Kind::Span),
    in_transactions: true,
    ..PLAIN
};

pub(super) const PEXPIRE: Spec = Spec {
    name: "pexpire",
    syntax: "key milliseconds [NX | XX | GT | LT] [AT level]",
    summary: "Sets in how many milliseconds a key's value expires, and returns whether it did.",
    run: |call| run(call, "pexpire", Unit::Millis, Kind::Span),
    ..EXPIRE
};

pub(super) const EXPIREAT: Spec = Spec {
    name: "expireat",
    summary: "Sets when a key's value expires, in seconds since 1970, and returns whether it did.",
    run: |call| run(call, "expireat", Unit::Seconds, Kind::Time),
    ..EXPIRE
};

pub(super) const PEXPIREAT: Spec = Spec {
    name: "pexpireat",
    syntax: "key milliseconds [NX | XX | GT | LT] [AT level]",
    summary: "Sets when a key's value expires, in milliseconds since 1970, and returns whether it did.",
    run: |call| run(call, "pexpireat", Unit::Millis, Kind::Time),
    ..EXPIRE
};

pub(super) const PERSIST: Spec = Spec {
    name: "persist",
    arity: -2,
    syntax: "key [AT level]",
    summary: "Removes the expiry of a key's value, and returns whether it had one.",
    run: |call| {
        let level = call.level_behind(2, "persist")?;
        let persist = Operation::delete(call.key(1)?).with(PutOptions {
            retimes: Some(Retimes::Any),
            ..PutOptions::default()
        });
        call.operate(Shape::CarriedOut, persist.wanting(call.write_level(level)))
    },
    ..EXPIRE
};

/// Whether a number is a span from now on, or a time since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Span,
    Time,
}

fn run(call: &mut Call<'_>, command: &str, unit: Unit, kind: Kind) -> Result<(), Refusal> {
    let expiry = expiry(call, command, unit, kind)?;
    let (retimes, level) = behind(call)?;
    let expire = Operation::delete(call.key(1)?).with(PutOptions {
        expiry: Some(expiry),
        retimes: Some(retimes),
        ..PutOptions::default()
    });
    call.operate(Shape::CarriedOut, expire.wanting(call.write_level(level)))
}

/// The number after the key. If it is 0 or less, the value expires at once.
fn expiry(call: &Call<'_>, command: &str, unit: Unit, kind: Kind) -> Result<Expiry, Refusal> {
    let micros_of_one = unit.micros_of_one() as i64;
    let max = i64::MAX / micros_of_one;
    match call.integer(2)? {
        number if number > max || number < -max => Err(Refusal::invalid_expire_time(command, -max, max)),
        number if number <= 0 => Ok(Expiry::At(Micros(0))),
        number => {
            let micros = Micros((number * micros_of_one) as u64);
            Ok(match kind {
                Kind::Span => Expiry::After(micros),
                Kind::Time => Expiry::At(micros),
            })
        }
    }
}

/// The arguments after the number.
fn behind(call: &Call<'_>) -> Result<(Retimes, Option<Wanted>), Refusal> {
    let (level, end) = call.level_last()?;
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for place in 3..end {
        let words = [("NX", &mut nx), ("XX", &mut xx), ("GT", &mut gt), ("LT", &mut lt)];
        let found = words.into_iter().find(|(word, _)| call.arguments.is(place, word));
        match found {
            Some((_, given)) => *given = true,
            None => {
                let found = call.text(place);
                return Err(Refusal::err(format_args!(
                    "Unsupported option {found}; expected NX, XX, GT, LT or AT level"
                )));
            }
        }
    }
    let retimes = match (nx, xx, gt, lt) {
        (true, true, ..) | (true, _, true, _) | (true, _, _, true) => {
            return Err(Refusal::err(
                "NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        (_, _, true, true) => {
            return Err(Refusal::err(
                "GT and LT options at the same time are not compatible",
            ));
        }
        (true, ..) => Retimes::NeverExpires,
        // What never expires expires later than everything: so it is never made to expire later.
        (_, _, true, _) => Retimes::Later,
        (_, true, _, true) => Retimes::ExpiresAndEarlier,
        (_, false, _, true) => Retimes::Earlier,
        (_, true, ..) => Retimes::Expires,
        (false, false, false, false) => Retimes::Any,
    };
    Ok((retimes, level))
}
