//! Values that are computed from the value before them: `INCR`, `INCRBYFLOAT`, `APPEND`, `SETRANGE`.
//!
//! The replica that puts a key's writes into order computes the value, at the write's place in that order. So no increment is lost, and no two
//! answers to increments of one key are the same.
use crate::Edit;
use bytes::{BufMut, Bytes, BytesMut};
use rust_decimal::Decimal;
use std::fmt;

/// How a put computes its value from the one before it. A key without a value counts as 0, or as the empty value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compute {
    /// Adds to an integer of 64 bits.
    Add(i64),
    /// Adds to a decimal number. Up to 28 digits are exact; further ones behind the point are rounded.
    AddDecimal(Decimal),
    /// Appends these bytes.
    Append(Bytes),
    /// Writes these bytes from this place on. If the value is shorter, zero bytes fill the gap. Without bytes, the value stays as it is.
    Overwrite(u32, Bytes),
    /// Changes a hash or a set. Boxed, so that the others are not larger.
    Edit(Box<Edit>),
}

/// What a put that computes its value has put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Computed {
    /// A number, as it is written.
    Number(Bytes),
    /// A value of this length.
    Length(u64),
    /// A hash or a set in which this many elements are new, or from which this many are removed.
    Elements(u64),
}

/// Why a value could not be computed. Nothing was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum NotComputed {
    /// The value is not an integer of 64 bits.
    NotAnInteger = 0,
    /// The value is not a decimal number of at most 28 digits.
    NotANumber = 1,
    /// The sum is no integer of 64 bits.
    Overflow = 2,
    /// The sum has more than 28 digits before the point.
    TooManyDigits = 3,
    /// The value would be longer than [`Compute::MAX_BYTES`].
    TooLong = 4,
    /// The key has a value of another type.
    WrongType = 5,
    /// The value of the field is not an integer of 64 bits.
    FieldNotAnInteger = 6,
    /// The value of the field is not a decimal number of at most 28 digits.
    FieldNotANumber = 7,
    /// The elements that this site has added would take more than [`Edit::MAX_BYTES`].
    TooManyElements = 8,
}

/// The words are those of Redis, so that clients know them.
impl fmt::Display for NotComputed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotComputed::NotAnInteger => "value is not an integer or out of range",
            NotComputed::NotANumber => "value is not a valid float",
            NotComputed::Overflow => "increment or decrement would overflow",
            NotComputed::TooManyDigits => "the sum would have more than 28 digits",
            NotComputed::TooLong => "string exceeds maximum allowed size",
            NotComputed::WrongType => "Operation against a key holding the wrong kind of value",
            NotComputed::FieldNotAnInteger => "hash value is not an integer",
            NotComputed::FieldNotANumber => "hash value is not a float",
            NotComputed::TooManyElements => {
                "the elements that this site has added to the key would take more than 1048576 bytes"
            }
        })
    }
}

impl Compute {
    /// The longest value that is computed. A longer one could not be sent to other replicas together with what else is sent.
    pub const MAX_BYTES: usize = 16 << 20;

    /// What is added to a number, if that is what it does.
    pub fn added(&self) -> Option<Decimal> {
        match self {
            Compute::Add(more) => Some(Decimal::from(*more)),
            Compute::AddDecimal(more) => Some(*more),
            Compute::Append(_) | Compute::Overwrite(..) | Compute::Edit(_) => None,
        }
    }

    /// What is changed in a hash or a set, if that is what it does.
    pub fn edit(&self) -> Option<&Edit> {
        match self {
            Compute::Edit(edit) => Some(edit),
            _ => None,
        }
    }

    /// Whether each replica may do it apart, in its share of the key: an addition to a number, and a change of elements.
    pub fn is_shared(&self) -> bool {
        self.added().is_some() || self.edit().is_some()
    }

    /// Whether anything is put: `SETRANGE` of nothing puts nothing.
    pub fn puts(&self) -> bool {
        !matches!(self, Compute::Overwrite(_, with) if with.is_empty())
    }

    /// The value that is put in the place of `before`, and what the client is told.
    ///
    /// # Errors
    /// If the value before it, or the result, is not as it must be.
    pub fn apply(&self, before: Option<&Bytes>) -> Result<(Bytes, Computed), NotComputed> {
        let number = |text: String| {
            let text = Bytes::from(text);
            (text.clone(), Computed::Number(text))
        };
        match self {
            Compute::Add(more) => {
                let before = before.map_or(Some(0), |value| integer(value));
                let sum = before.ok_or(NotComputed::NotAnInteger)?.checked_add(*more);
                sum.map(|sum| number(sum.to_string()))
                    .ok_or(NotComputed::Overflow)
            }
            Compute::AddDecimal(more) => {
                let before = before.map_or(Some(Decimal::ZERO), |value| decimal(value));
                let sum = before.ok_or(NotComputed::NotANumber)?.checked_add(*more);
                let sum = sum.ok_or(NotComputed::TooManyDigits)?;
                Ok(number(sum.normalize().to_string()))
            }
            Compute::Append(more) => overwritten(before, before.map_or(0, Bytes::len), more),
            Compute::Overwrite(at, with) => match self.puts() {
                true => overwritten(before, *at as usize, with),
                false => overwritten(before, 0, with),
            },
            // The elements of a key are no value of bytes: see [`crate::Share`].
            Compute::Edit(_) => Err(NotComputed::WrongType),
        }
    }
}

fn overwritten(before: Option<&Bytes>, at: usize, with: &Bytes) -> Result<(Bytes, Computed), NotComputed> {
    let before = before.map_or(&b""[..], |value| value);
    let end = at + with.len();
    let len = end.max(before.len());
    if len > Compute::MAX_BYTES {
        return Err(NotComputed::TooLong);
    }
    let mut value = BytesMut::with_capacity(len);
    value.put_slice(&before[..at.min(before.len())]);
    value.resize(at, 0);
    value.put_slice(with);
    value.put_slice(before.get(end..).unwrap_or_default());
    Ok((value.freeze(), Computed::Length(len as u64)))
}

/// An integer as Redis takes it: in its shortest form.
fn integer(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

/// The longest text of a number.
pub(crate) const MAX_NUMBER_BYTES: usize = 64;

/// A decimal number, perhaps with an exponent: `10.5`, `3.0e3`. Digits behind the point, beyond the 28th of all, are rounded.
pub fn decimal(text: &[u8]) -> Option<Decimal> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    // Before the library sees it: it takes underscores, and each of them takes room on the stack.
    if text.len() > MAX_NUMBER_BYTES || !text.iter().all(is_digit) {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    // Almost all numbers are integers, and those are read faster than others.
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    match text.contains(['e', 'E']) {
        true => Decimal::from_scientific(text).ok(),
        false => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(before: Option<&str>, more: i64) -> Result<String, NotComputed> {
        told(Compute::Add(more), before)
    }

    fn told(compute: Compute, before: Option<&str>) -> Result<String, NotComputed> {
        let before = before.map(|text| Bytes::copy_from_slice(text.as_bytes()));
        let (value, computed) = compute.apply(before.as_ref())?;
        match computed {
            Computed::Number(told) => assert_eq!(told, value),
            Computed::Length(len) => assert_eq!(len, value.len() as u64),
            Computed::Elements(count) => panic!("{count} elements of {value:?}"),
        }
        Ok(String::from_utf8_lossy(&value).into_owned())
    }

    fn add_decimal(before: Option<&str>, more: &str) -> Result<String, NotComputed> {
        told(Compute::AddDecimal(decimal(more.as_bytes()).unwrap()), before)
    }

    #[test]
    fn integers_are_added_within_64_bits_and_only_in_their_shortest_form() {
        assert_eq!(add(None, 5), Ok("5".into()));
        assert_eq!(add(Some("-5"), 5), Ok("0".into()));
        assert_eq!(add(Some("9223372036854775806"), 1), Ok(i64::MAX.to_string()));
        assert_eq!(add(Some(&i64::MAX.to_string()), 1), Err(NotComputed::Overflow));
        assert_eq!(add(Some(&i64::MIN.to_string()), -1), Err(NotComputed::Overflow));
        for text in [
            "",
            " 1",
            "1 ",
            "+1",
            "01",
            "-0",
            "1.0",
            "x",
            "9223372036854775808",
        ] {
            assert_eq!(add(Some(text), 1), Err(NotComputed::NotAnInteger), "{text:?}");
        }
    }

    #[test]
    fn decimal_numbers_are_added_exactly() {
        assert_eq!(add_decimal(None, "10.50"), Ok("10.5".into()));
        assert_eq!(add_decimal(Some("0.1"), "0.2"), Ok("0.3".into()));
        assert_eq!(add_decimal(Some("5.0e3"), "2.0e2"), Ok("5200".into()));
        assert_eq!(add_decimal(Some("1"), "-1.1"), Ok("-0.1".into()));
        assert_eq!(add_decimal(Some("1.5"), "-1.5"), Ok("0".into()));
        for text in ["", " 1", "x", "nan", "inf", "1_000", "1e", "1e99"] {
            assert_eq!(
                add_decimal(Some(text), "1"),
                Err(NotComputed::NotANumber),
                "{text:?}"
            );
        }
        for text in [&"1_".repeat(1 << 20), &"0".repeat(65)] {
            assert_eq!(add_decimal(Some(text), "1"), Err(NotComputed::NotANumber));
            assert_eq!(decimal(text.as_bytes()), None);
        }
        let most = Decimal::MAX.to_string();
        assert_eq!(add_decimal(Some(&most), "1"), Err(NotComputed::TooManyDigits));
    }

    #[test]
    fn bytes_are_appended_and_overwritten() {
        let append = |before, more| told(Compute::Append(Bytes::from_static(more)), before);
        assert_eq!(append(None, b"ab"), Ok("ab".into()));
        assert_eq!(append(Some("ab"), b"c"), Ok("abc".into()));
        let overwrite = |before, at, with| told(Compute::Overwrite(at, Bytes::from_static(with)), before);
        assert_eq!(overwrite(None, 2, b"x"), Ok("\0\0x".into()));
        assert_eq!(
            overwrite(Some("hello world"), 6, b"Redis"),
            Ok("hello Redis".into())
        );
        assert_eq!(overwrite(Some("hello"), 1, b"a"), Ok("hallo".into()));
        assert_eq!(overwrite(Some("hello"), 900, b""), Ok("hello".into()));
        assert_eq!(
            overwrite(None, Compute::MAX_BYTES as u32, b"x"),
            Err(NotComputed::TooLong)
        );
    }
}
