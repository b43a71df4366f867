//! Decimal numbers, with the strictness of Redis, and fast.
use bytes::BytesMut;

/// A whole number as Redis reads it: no plus, no leading zero, no space, nothing after it.
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value = 0_i64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // The value is built as a negative number, because the smallest number has no positive counterpart.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative {
        Some(value)
    } else {
        value.checked_neg()
    }
}

/// Appends `value` in decimal.
pub(crate) fn put_integer(out: &mut BytesMut, value: i64) {
    let mut digits = [0; 20];
    let mut place = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        place -= 1;
        digits[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        place -= 1;
        digits[place] = b'-';
    }
    out.extend_from_slice(&digits[place..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_reads_as_it_was_written(value: i64) {
            let mut out = BytesMut::new();
            put_integer(&mut out, value);
            prop_assert_eq!(&out, &value.to_string());
            prop_assert_eq!(parse_integer(&out), Some(value));
        }

        #[test]
        fn only_the_canonical_form_is_a_number(text in "[-+ 0-9]{0,21}") {
            let canonical = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
            prop_assert_eq!(parse_integer(text.as_bytes()), canonical);
        }
    }

    #[test]
    fn the_ends_of_the_range_are_numbers_and_what_is_beyond_is_not() {
        assert_eq!(parse_integer(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_integer(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_integer(b"9223372036854775808"), None);
        assert_eq!(parse_integer(b"-9223372036854775809"), None);
        assert_eq!(parse_integer(b"-0"), None);
    }
}
