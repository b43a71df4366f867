//! Replies that show a part of a value, or something about it: `GETRANGE`, `GETBIT`, `BITCOUNT`, `BITPOS`, `OBJECT ENCODING`, `MEMORY USAGE`.
//!
//! The value is read as `GET` reads it, so each of them has the levels, the receipt and the conflicts of a read, and no protocol knows of them.
//!
//! Places are counted as Redis counts them: in bytes from 0, or from the end if they are negative, where -1 is the last byte. The first bit of a byte
//! is its highest.
use crate::Writer;
use crate::number::parse_integer;
use crate::refusal::Refusal;
use bytes::Bytes;
use std::ops::Range;
use turnbuckle_core::Elements;

/// What a reply shows of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// These bytes of it.
    Bytes(Span),
    /// The bit at this place.
    Bit(u64),
    /// How many bits of these are 1.
    Ones(Span),
    /// The place of the first bit of these that has this value, or -1.
    First {
        /// The value that is looked for.
        bit: bool,
        /// Where it is looked for.
        among: Span,
        /// Whether the client said where the span ends. If it did not, a value is taken to have zeros behind its end.
        is_bounded: bool,
    },
    /// How Redis would hold it: `int`, `embstr`, `raw` or `hashtable`.
    Encoding,
    /// 1 if there is a value.
    One,
    /// How many bytes it has, together with a key of this length.
    Size {
        /// The length of the key.
        key: usize,
    },
}

/// A span of a value, both ends included. Places below 0 are counted from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// The first place.
    pub(crate) first: i64,
    /// The last place.
    pub(crate) last: i64,
    /// Whether places are those of bits, and not those of bytes.
    pub(crate) of_bits: bool,
}

/// The longest value that Redis holds together with its key.
const MAX_EMBEDDED_BYTES: usize = 44;

impl Span {
    /// The whole value.
    pub(crate) const WHOLE: Span = Span::bytes(0, -1);

    /// The span between two places in bytes.
    pub(crate) const fn bytes(first: i64, last: i64) -> Span {
        Span {
            first,
            last,
            of_bits: false,
        }
    }

    /// Whether both ends are counted from the end, and are in the wrong order. As in Redis, `GETRANGE` and `BITCOUNT` then find nothing, and `BITPOS`
    /// looks at the first byte if both ends are before it.
    fn is_backwards(self) -> bool {
        self.first < 0 && self.last < 0 && self.first > self.last
    }

    /// The places that it has in a value of `len` bytes: from the first to before the end, in its own unit.
    fn within(self, len: usize) -> Range<usize> {
        let all = if self.of_bits { 8 * len as i64 } else { len as i64 };
        let place = |place: i64| {
            if place < 0 {
                place.saturating_add(all)
            } else {
                place
            }
        };
        let (first, last) = (place(self.first).max(0), place(self.last).max(0).min(all - 1));
        match first <= last {
            true => first as usize..last as usize + 1,
            false => 0..0,
        }
    }

    /// The bits that it has in a value of `len` bytes.
    fn bits_within(self, len: usize) -> Range<usize> {
        let span = self.within(len);
        match self.of_bits {
            true => span,
            false => 8 * span.start..8 * span.end,
        }
    }
}

impl Part {
    /// Whether the reply carries bytes of the value.
    pub(crate) fn carries(self) -> bool {
        matches!(self, Part::Bytes(_))
    }

    /// Writes the reply about this value, or about a key that has none.
    pub(crate) fn write(self, value: Option<&Bytes>, writer: &mut Writer<'_>) {
        let of = |value: Option<&Bytes>| value.cloned().unwrap_or_default();
        match self {
            Part::Bytes(span) if span.is_backwards() => writer.bulk(b""),
            Part::Bytes(span) => {
                let value = of(value);
                match span.within(value.len()) {
                    whole if whole.len() == value.len() => writer.value(Some(&value)),
                    // A copy: a reply that shared the value would hold the whole of it, and count as a part.
                    part => writer.bulk(&value[part]),
                }
            }
            Part::Bit(place) => writer.integer(i64::from(bit_at(&of(value), place))),
            Part::Ones(span) if span.is_backwards() => writer.integer(0),
            Part::Ones(span) => writer.integer(ones(&of(value), span)),
            Part::First {
                bit,
                among,
                is_bounded,
            } => writer.integer(match value {
                Some(value) => first(value, bit, among, is_bounded),
                // A key without a value has zeros only.
                None => {
                    if bit {
                        -1
                    } else {
                        0
                    }
                }
            }),
            Part::Encoding => match value {
                Some(value) => writer.bulk(encoding(value).as_bytes()),
                None => writer.null(),
            },
            Part::One => match value {
                Some(_) => writer.integer(1),
                None => writer.null(),
            },
            Part::Size { key } => match value {
                Some(value) => writer.integer((key + value.len()) as i64),
                None => writer.null(),
            },
        }
    }

    /// Writes the reply about a hash or a set.
    ///
    /// # Errors
    /// If only a value of bytes has such a part.
    pub(crate) fn write_of_elements(
        self,
        elements: &Elements,
        writer: &mut Writer<'_>,
    ) -> Result<(), Refusal> {
        match self {
            Part::Encoding => writer.bulk(b"hashtable"),
            Part::One => writer.integer(1),
            Part::Size { key } => writer.integer((key + elements.bytes()) as i64),
            Part::Bytes(_) | Part::Bit(_) | Part::Ones(_) | Part::First { .. } => {
                return Err(Refusal::wrong_type());
            }
        }
        Ok(())
    }
}

fn bit_at(value: &[u8], place: u64) -> bool {
    let byte = usize::try_from(place / 8).ok().and_then(|byte| value.get(byte));
    byte.is_some_and(|byte| byte >> (7 - place % 8) & 1 == 1)
}

/// The bits of the byte at this place that are among `bits`, as ones.
fn mask(byte: usize, bits: &Range<usize>) -> u8 {
    let skipped = bits.start.saturating_sub(8 * byte).min(8);
    let cut = (8 * (byte + 1)).saturating_sub(bits.end).min(8);
    ((0xff_u16 >> skipped) & (0xff_u16 << cut)) as u8
}

/// The byte at this place of a value, with all bits that are not among `bits` set to 0.
fn masked(value: &[u8], byte: usize, bits: &Range<usize>) -> u8 {
    value[byte] & mask(byte, bits)
}

/// How many bytes are looked at in one step.
const WORD_BYTES: usize = 8;

fn ones(value: &[u8], span: Span) -> i64 {
    let bits = span.bits_within(value.len());
    let bytes = bits.start / 8..bits.end.div_ceil(8);
    // Only the first and the last byte can have bits that are not meant.
    let whole = bits.start.div_ceil(8)..bits.end / 8;
    if whole.start >= whole.end {
        return bytes
            .map(|byte| i64::from(masked(value, byte, &bits).count_ones()))
            .sum();
    }
    let ends = (bytes.start..whole.start).chain(whole.end..bytes.end);
    let of_ends: u32 = ends.map(|byte| masked(value, byte, &bits).count_ones()).sum();
    let (words, rest) = value[whole].as_chunks::<WORD_BYTES>();
    let of_words = words
        .iter()
        .map(|word| i64::from(u64::from_ne_bytes(*word).count_ones()));
    let of_rest: u32 = rest.iter().map(|byte| byte.count_ones()).sum();
    i64::from(of_ends) + of_words.sum::<i64>() + i64::from(of_rest)
}

fn first(value: &[u8], bit: bool, among: Span, is_bounded: bool) -> i64 {
    let bits = among.bits_within(value.len());
    // To look for a 0 is to look for a 1 in the complement.
    let skipped: u8 = if bit { 0 } else { 0xff };
    let (mut byte, end) = (bits.start / 8, bits.end.div_ceil(8));
    while byte < end {
        let looked_at = (value[byte] ^ skipped) & mask(byte, &bits);
        if looked_at != 0 {
            return (8 * byte) as i64 + i64::from(looked_at.leading_zeros());
        }
        byte += 1;
        let (words, _) = value[byte..end].as_chunks::<WORD_BYTES>();
        byte += WORD_BYTES
            * words
                .iter()
                .take_while(|word| **word == [skipped; WORD_BYTES])
                .count();
    }
    match !bit && !is_bounded && !bits.is_empty() {
        true => bits.end as i64,
        false => -1,
    }
}

fn encoding(value: &[u8]) -> &'static str {
    match parse_integer(value) {
        Some(_) => "int",
        None if value.len() <= MAX_EMBEDDED_BYTES => "embstr",
        None => "raw",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Output, Resp};
    use proptest::prelude::*;

    fn shown(part: Part, value: Option<&[u8]>) -> String {
        let value = value.map(Bytes::copy_from_slice);
        let mut output = Output::default();
        part.write(value.as_ref(), &mut Writer::new(&mut output, Resp::Two));
        String::from_utf8_lossy(&output.split())
            .trim_end()
            .replace("\r\n", " ")
    }

    /// The bits of a value, one by one.
    fn bits(value: &[u8]) -> Vec<bool> {
        let bit = |byte: u8, place: u32| byte & (0x80 >> place) != 0;
        let bits = value
            .iter()
            .flat_map(|&byte| (0..8).map(move |place| bit(byte, place)));
        bits.collect()
    }

    /// The places of a span, looked for one by one among all that there are.
    fn places(span: Span, all: usize) -> Vec<usize> {
        let from_start = |place: i64| {
            if place < 0 {
                all as i128 + i128::from(place)
            } else {
                i128::from(place)
            }
        };
        // Redis moves both ends to the first place if they are before it.
        let (first, last) = (from_start(span.first).max(0), from_start(span.last).max(0));
        (0..all)
            .filter(|&place| (first..=last).contains(&(place as i128)))
            .collect()
    }

    fn span() -> impl Strategy<Value = Span> {
        let place = prop_oneof![-330_i64..330, Just(i64::MIN), Just(i64::MAX)];
        (place.clone(), place, any::<bool>()).prop_map(|(first, last, of_bits)| Span { first, last, of_bits })
    }

    proptest! {
        #[test]
        fn bits_are_counted_and_found_as_when_each_is_looked_at(
            value in prop::collection::vec(prop_oneof![9 => Just(0_u8), 9 => Just(0xff), 1 => any::<u8>()], 0..40),
            span in span(),
            bit: bool,
            is_bounded: bool,
        ) {
            let all = bits(&value);
            let among = match span.of_bits {
                true => places(span, all.len()),
                false => places(span, value.len()).iter().flat_map(|byte| 8 * byte..8 * byte + 8).collect(),
            };
            let is_backwards = span.first < 0 && span.last < 0 && span.first > span.last;
            let ones = among.iter().filter(|&&place| all[place] && !is_backwards).count();
            prop_assert_eq!(shown(Part::Ones(span), Some(&value)), format!(":{ones}"));
            let found = among.iter().find(|&&place| all[place] == bit).map(|&place| place as i64);
            let behind = match among.last() {
                Some(last) if !bit && !is_bounded => *last as i64 + 1,
                _ => -1,
            };
            let first = Part::First { bit, among: span, is_bounded };
            prop_assert_eq!(shown(first, Some(&value)), format!(":{}", found.unwrap_or(behind)));
        }

        #[test]
        fn bytes_and_single_bits_are_those_that_are_there(
            value in prop::collection::vec(any::<u8>(), 0..8),
            span in span(),
            place in 0_u64..80,
        ) {
            let span = Span { of_bits: false, ..span };
            let wanted: Vec<u8> = places(span, value.len()).into_iter().map(|place| value[place]).collect();
            let part = Bytes::from(value.clone()).slice(span.within(value.len()));
            prop_assert_eq!(&part[..], &wanted[..]);
            let bit = bits(&value).get(place as usize).copied().unwrap_or(false);
            prop_assert_eq!(shown(Part::Bit(place), Some(&value)), format!(":{}", u8::from(bit)));
        }
    }

    #[test]
    fn a_key_without_a_value_has_zeros_only_no_encoding_and_no_size() {
        assert_eq!(shown(Part::Bytes(Span::WHOLE), None), "$0");
        assert_eq!(shown(Part::Bit(7), None), ":0");
        assert_eq!(shown(Part::Ones(Span::WHOLE), None), ":0");
        let first = |bit| Part::First {
            bit,
            among: Span::WHOLE,
            is_bounded: true,
        };
        assert_eq!(
            (shown(first(true), None), shown(first(false), None)),
            (":-1".into(), ":0".into())
        );
        assert_eq!(
            (shown(Part::Encoding, None), shown(Part::Size { key: 3 }, None)),
            ("$-1".into(), "$-1".into())
        );
    }

    #[test]
    fn encodings_are_those_of_redis() {
        assert_eq!(
            (encoding(b"-17"), encoding(b"017"), encoding(&[b'x'; 45])),
            ("int", "embstr", "raw")
        );
        assert_eq!(shown(Part::Size { key: 3 }, Some(b"four")), ":7");
    }
}
