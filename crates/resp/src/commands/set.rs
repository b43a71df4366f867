use super::{Keys, PLAIN, Reads, Spec};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Condition, Expiry, Micros, Operation, PutOptions, Wanted};

pub(super) const SET: Spec = Spec {
    name: "set",
    arity: -3,
    flags: &["write", "denyoom"],
    keys: Keys::ONE,
    group: "string",
    syntax: "key value [NX | XX | IF VERSION version] [REPLACES context] [GET] \
             [EX seconds | PX milliseconds | EXAT seconds | PXAT milliseconds | KEEPTTL] [AT level]",
    summary: "Sets the value of a key.",
    reads: Reads::With("GET"),
    run,
    in_transactions: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let put = Operation::put(call.key(1)?, call.arguments.bytes(2));
    if call.len() == 3 {
        return call.operate(Shape::Done, put.wanting(call.write_level(None)));
    }
    let Behind { level, options } = behind(call)?;
    let shape = match options.returns_previous {
        true => Shape::Previous,
        false => Shape::Done,
    };
    call.operate(shape, put.with(options).wanting(call.write_level(level)))
}

/// The arguments after the value.
#[derive(Default)]
struct Behind {
    level: Option<Wanted>,
    options: PutOptions,
}

fn behind(call: &mut Call<'_>) -> Result<Behind, Refusal> {
    let mut behind = Behind::default();
    let mut place = 3;
    while place < call.len() {
        place += behind.take(call, place)?;
    }
    Ok(behind)
}

impl Behind {
    /// Takes the option that begins at `place`. Returns how many arguments it has.
    fn take(&mut self, call: &mut Call<'_>, place: usize) -> Result<usize, Refusal> {
        let (arguments, len) = (call.arguments, call.len());
        let is = |word| arguments.is(place, word);
        let has = |more| place + more < len;
        if is("GET") {
            self.options.returns_previous = true;
            return Ok(1);
        }
        if is("REPLACES") && has(1) {
            let context = call.context(&call.key(1)?, place + 1)?;
            return once(&mut self.options.replaces, context, 2);
        }
        if is("AT") && has(1) {
            return once(&mut self.level, call.level(place + 1)?, 2);
        }
        if let Some((condition, len)) = condition(call, place)? {
            return once(&mut self.options.condition, condition, len);
        }
        if let Some((expiry, len)) = expiry(call, place)? {
            return once(&mut self.options.expiry, expiry, len);
        }
        Err(usage())
    }
}

/// Notes an option. Each kind of option may be given once.
fn once<T>(known: &mut Option<T>, found: T, len: usize) -> Result<usize, Refusal> {
    match known.replace(found) {
        None => Ok(len),
        Some(_) => Err(usage()),
    }
}

/// The condition that begins at `place`, if there is one, and how many arguments it has.
fn condition(call: &Call<'_>, place: usize) -> Result<Option<(Condition, usize)>, Refusal> {
    let is = |place, word| call.arguments.is(place, word);
    Ok(if is(place, "NX") {
        Some((Condition::Absent, 1))
    } else if is(place, "XX") {
        Some((Condition::Present, 1))
    } else if is(place, "IF") && is(place + 1, "VERSION") && place + 2 < call.len() {
        Some((Condition::Version(call.version(place + 2)?), 3))
    } else {
        None
    })
}

/// The expiry that begins at `place`, if there is one, and how many arguments it has.
fn expiry(call: &Call<'_>, place: usize) -> Result<Option<(Expiry, usize)>, Refusal> {
    if call.arguments.is(place, "KEEPTTL") {
        return Ok(Some((Expiry::Kept, 1)));
    }
    let expiry = expiry_with_number(call, place, "set")?;
    Ok(expiry.map(|expiry| (expiry, 2)))
}

/// The word at `place`, and the number behind it, as an expiry. `None`: it is another word.
pub(super) fn expiry_with_number(
    call: &Call<'_>,
    place: usize,
    command: &str,
) -> Result<Option<Expiry>, Refusal> {
    type Make = fn(Micros) -> Expiry;
    const WITH_NUMBER: [(&str, Unit, Make); 4] = [
        ("EX", Unit::Seconds, Expiry::After),
        ("PX", Unit::Millis, Expiry::After),
        ("EXAT", Unit::Seconds, Expiry::At),
        ("PXAT", Unit::Millis, Expiry::At),
    ];
    let mut words = WITH_NUMBER.into_iter();
    let found = words.find(|(word, ..)| call.arguments.is(place, word) && place + 1 < call.len());
    let Some((_, unit, expiry)) = found else {
        return Ok(None);
    };
    let number = unit.micros(call, place + 1, command)?;
    Ok(Some(expiry(number)))
}

/// The unit of an expiry's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Millis,
}

impl Unit {
    pub(crate) fn micros_of_one(self) -> u64 {
        match self {
            Unit::Seconds => 1_000_000,
            Unit::Millis => 1_000,
        }
    }

    /// The argument as a time or a span: more than 0, and small enough for microseconds.
    pub(super) fn micros(self, call: &Call<'_>, place: usize, command: &str) -> Result<Micros, Refusal> {
        let micros_of_one = self.micros_of_one() as i64;
        let max = i64::MAX / micros_of_one;
        match call.integer(place)? {
            number if (1..=max).contains(&number) => Ok(Micros((number * micros_of_one) as u64)),
            _ => Err(Refusal::invalid_expire_time(command, 1, max)),
        }
    }
}

fn usage() -> Refusal {
    Refusal::usage(&SET.usage())
}
