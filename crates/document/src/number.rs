use crate::{Misplaced, word::say_if_missing};
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use std::{
    fmt,
    ops::{Deref, Range, RangeInclusive},
};
use toml::Spanned;

/// A whole number from `MIN` to `MAX`, which remembers its place in the file.
#[derive(Debug, Clone)]
pub struct Number<const MIN: u64, const MAX: u64 = { u64::MAX }> {
    place: Range<usize>,
    value: u64,
}

impl<const MIN: u64, const MAX: u64> Number<MIN, MAX> {
    /// The number.
    pub fn get(self) -> u64 {
        self.value
    }

    /// The number, if it is within bounds that follow from other fields.
    ///
    /// # Errors
    /// If it is outside of them.
    pub fn within(self, bounds: RangeInclusive<u64>) -> Result<u64, Misplaced> {
        match bounds.contains(&self.value) {
            true => Ok(self.value),
            false => Err(self.wrong(expected(*bounds.start(), *bounds.end()))),
        }
    }

    /// An error: the number should have been another one.
    pub fn wrong(&self, expected: impl Into<String>) -> Misplaced {
        Misplaced::at(self.place.clone(), self.value.to_string(), expected)
    }
}

impl<const MIN: u64, const MAX: u64> Deref for Number<MIN, MAX> {
    type Target = u64;

    fn deref(&self) -> &u64 {
        &self.value
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Number<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Spanned::<Bounded<MIN, MAX>>::deserialize(deserializer);
        let value = value.map_err(|error| say_if_missing(error, &expected(MIN, MAX)))?;
        Ok(Number {
            place: value.span(),
            value: value.into_inner().0,
        })
    }
}

/// For `deserialize_with`: a [`Number`] whose place is not needed.
pub fn number<'de, D, const MIN: u64, const MAX: u64>(deserializer: D) -> Result<u64, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_u64(Bounds::<MIN, MAX>)
}

pub(crate) struct Bounded<const MIN: u64, const MAX: u64>(pub u64);

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number::<D, MIN, MAX>(deserializer).map(Bounded)
    }
}

struct Bounds<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Visitor<'_> for Bounds<MIN, MAX> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&expected(MIN, MAX))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        let within = u64::try_from(number)
            .ok()
            .filter(|number| (MIN..=MAX).contains(number));
        within.ok_or_else(|| E::custom(format!("{number}, expected {}", expected(MIN, MAX))))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        let within = (MIN..=MAX).contains(&number).then_some(number);
        within.ok_or_else(|| E::custom(format!("{number}, expected {}", expected(MIN, MAX))))
    }
}

fn expected(min: u64, max: u64) -> String {
    match max {
        u64::MAX => format!("a whole number, {min} or more"),
        _ => format!("a whole number from {min} to {max}"),
    }
}
