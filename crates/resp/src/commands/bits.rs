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
            4 | 5 => Span {
                of_bits: is_of_bits(call, 4, end)?,
                ..Span::bytes(call.integer(2)?, call.integer(3)?)
            },
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
        let among = Span {
            of_bits: is_of_bits(call, 5, end)?,
            ..Span::bytes(place(3, 0)?, place(4, -1)?)
        };
        let part = Part::First {
            bit,
            among,
            is_bounded: end > 4,
        };
        show(call, part, level)
    },
    ..GETBIT
};

/// Whether the last argument says that places are those of bits. Without one they are those of bytes.
fn is_of_bits(call: &Call<'_>, place: usize, end: usize) -> Result<bool, Refusal> {
    let is = |word| call.arguments.is(place, word);
    match place < end {
        false => Ok(false),
        true if is("BIT") => Ok(true),
        true if is("BYTE") => Ok(false),
        true => Err(Refusal::err("syntax error; expected BYTE or BIT behind the end")),
    }
}

fn syntax(spec: &Spec) -> Refusal {
    Refusal::usage(&spec.usage())
}

fn show(call: &mut Call<'_>, part: Part, level: Option<Wanted>) -> Result<(), Refusal> {
    let get = Operation::get(call.key(1)?).wanting(call.read_level(level));
    call.operate(Shape::Part(part), get)
}
