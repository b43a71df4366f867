use super::{Keys, PLAIN, Reads, Spec};
use crate::part::{Part, Span};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Operation, Wanted};

pub(super) const GETBIT: Spec = Spec {
    name: "getbit",
    arity: -3,
    flags: &["readonly", "fast"],
    keys: Keys::ONE,
    group: "bitmap",
    syntax: "key offset [AT level]",
    summary: "The bit at a place of a key's value, 0 behind its end. The first bit of a byte is its highest.",
    reads: Reads::Always,
    run: |call| {
        let level = call.level_behind(3, "getbit")?;
        let place = call.integer(2).ok().and_then(|place| u32::try_from(place).ok());
        let place = place.ok_or_else(|| Refusal::err("bit offset is not an integer or out of range"))?;
        show(call, Part::Bit(u64::from(place)), level)
    },
    in_transactions: true,
    ..PLAIN
};

pub(super) const BITCOUNT: Spec = Spec {
    name: "bitcount",
    arity: -2,
    flags: &["readonly"],
    syntax: "key [start end [BYTE | BIT]] [AT level]",
    summary: "How many bits of a key's value, or of a part of it, are 1.",
    run: |call| {
        let (level, end) = call.level_last()?;
        let span = match end {
            2 => Span::WHOLE,
            4 | 5 => span(call.integer(2)?, call.integer(3)?, call, 4, end)?,
            _ => return Err(syntax(&BITCOUNT)),
        };
        show(call, Part::Ones(span), level)
    },
    ..GETBIT
};

pub(super) const BITPOS: Spec = Spec {
    name: "bitpos",
    arity: -3,
    flags: &["readonly"],
    syntax: "key bit [start [end [BYTE | BIT]]] [AT level]",
    summary: "The place of the first bit of a key's value, or of a part of it, that is 0 or 1, as asked; -1 if there is none.",
    run: |call| {
        let (level, end) = call.level_last()?;
        if !(3..=6).contains(&end) {
            return Err(syntax(&BITPOS));
        }
        let bit = match call.integer(2)? {
            0 => false,
            1 => true,
            _ => return Err(Refusal::err("The bit argument must be 1 or 0.")),
        };
        let place = |place, other| {
            if place < end {
                call.integer(place)
            } else {
                Ok(other)
            }
        };
        let among = span(place(3, 0)?, place(4, -1)?, call, 5, end)?;
        let part = Part::First {
            bit,
            among,
            is_bounded: end > 4,
        };
        show(call, part, level)
    },
    ..GETBIT
};

/// The span between two places. If there is an argument at `place`, it says whether they are places of bytes or of bits.
fn span(first: i64, last: i64, call: &Call<'_>, place: usize, end: usize) -> Result<Span, Refusal> {
    let is = |word| place < end && call.arguments.is(place, word);
    if place < end && !is("BYTE") && !is("BIT") {
        return Err(Refusal::err("syntax error; expected BYTE or BIT behind the end"));
    }
    Ok(Span {
        first,
        last,
        of_bits: is("BIT"),
    })
}

fn syntax(spec: &Spec) -> Refusal {
    Refusal::usage(&spec.usage())
}

fn show(call: &mut Call<'_>, part: Part, level: Option<Wanted>) -> Result<(), Refusal> {
    let get = Operation::get(call.key(1)?).wanting(call.read_level(level));
    call.operate(Shape::Part(part), get)
}
