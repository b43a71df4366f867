use crate::Micros;
use std::str::FromStr;
use thiserror::Error;

/// The longest span that is accepted: about 31 years. It is far from overflow in any calculation.
const LONGEST_US: u64 = 1_000_000_000_000_000;

/// A span of time that does not parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected a number and s, ms or us, such as 250ms")]
pub struct BadSpan;

/// A span of time as people write it: a whole or decimal number, then `s`, `ms` or `us`, as [`Micros`] prints it.
///
/// Counted in integers, so that `0.1s` is 100,000 microseconds and not one more or less. Digits below a microsecond
/// are refused rather than rounded.
impl FromStr for Micros {
    type Err = BadSpan;

    fn from_str(text: &str) -> Result<Micros, BadSpan> {
        parse_micros(text).ok_or(BadSpan)
    }
}

fn parse_micros(text: &str) -> Option<Micros> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let decimals = match unit {
        "s" => 6,
        "ms" => 3,
        "us" => 0,
        _ => return None,
    };
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return None,
        None => (number, ""),
    };
    if whole.is_empty() || fraction.len() > decimals {
        return None;
    }
    // Shifting the point by `decimals` places is appending that many digits.
    let us: u64 = format!("{whole}{fraction:0<decimals$}").parse().ok()?;
    (us <= LONGEST_US).then_some(Micros(us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_counted_exactly() {
        for (text, us) in [
            ("0ms", 0),
            ("40ms", 40_000),
            ("1.5s", 1_500_000),
            ("0.1s", 100_000),
            ("0.25ms", 250),
            ("7us", 7),
            ("1000000000s", LONGEST_US),
        ] {
            assert_eq!(parse_micros(text), Some(Micros(us)), "{text}");
        }
    }

    #[test]
    fn what_is_no_span_is_refused() {
        for text in [
            "",
            "5",
            "ms",
            ".5s",
            "5.s",
            "1.2.3s",
            "-1s",
            "1h",
            "1 s",
            "0.5us",
            "1000000001s",
            "99999999999999999999s",
        ] {
            assert_eq!(parse_micros(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_span_parses_as_it_prints(us in 0..=LONGEST_US) {
            proptest::prop_assert_eq!(parse_micros(&Micros(us).to_string()), Some(Micros(us)));
        }
    }
}
