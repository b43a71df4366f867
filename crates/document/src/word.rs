use crate::{Misplaced, quote, wrong::split};
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use std::{fmt, fmt::Display, marker::PhantomData, ops::Deref, ops::Range, str::FromStr};
use toml::Spanned;

/// Text in quotes that stands for a `T`. It remembers how it was written and where.
///
/// The error of `T` says what was expected: it begins with `expected`, or with what was found and then `; expected`. If the field
/// is missing, the error for an empty text is used.
#[derive(Debug, Clone)]
pub struct Word<T> {
    place: Range<usize>,
    text: String,
    value: T,
}

impl<T> Word<T> {
    /// The place in the file, in bytes.
    pub fn place(&self) -> Range<usize> {
        self.place.clone()
    }

    /// The text as it is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The value that it stands for.
    pub fn get(self) -> T {
        self.value
    }

    /// An error: something else should be there.
    pub fn wrong(&self, expected: impl Into<String>) -> Misplaced {
        Misplaced::at(self.place(), quote(&self.text), expected)
    }
}

impl<T> Deref for Word<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<'de, T> Deserialize<'de> for Word<T>
where
    T: FromStr,
    T::Err: Display,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Word<T>, D::Error> {
        let parsed = Spanned::<Parsed<T>>::deserialize(deserializer);
        let parsed = parsed.map_err(|error| say_if_missing(error, &expected::<T>()))?;
        let place = parsed.span();
        let Parsed(text, value) = parsed.into_inner();
        Ok(Word { place, text, value })
    }
}

/// For `deserialize_with`: the value of a [`Word`] whose place is not needed.
pub fn word<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: Display,
{
    Parsed::deserialize(deserializer).map(|Parsed(_, value)| value)
}

/// What is expected if any text is valid.
pub(crate) const TEXT: &str = "text in quotes";

/// A text, and the value that it stands for.
struct Parsed<T>(String, T);

impl<'de, T> Deserialize<'de> for Parsed<T>
where
    T: FromStr,
    T::Err: Display,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Parsed<T>, D::Error> {
        deserializer.deserialize_str(Parse(PhantomData))
    }
}

/// Parses inside the visitor, so that an error gets the place of this text, also in a list.
struct Parse<T>(PhantomData<T>);

impl<T> Visitor<'_> for Parse<T>
where
    T: FromStr,
    T::Err: Display,
{
    type Value = Parsed<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match "".parse::<T>() {
            Ok(_) => f.write_str(TEXT),
            Err(_) => write!(f, "{}, in quotes", expected::<T>()),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Parsed<T>, E> {
        let parsed = text.parse().map(|value| Parsed(text.into(), value));
        parsed.map_err(|error: T::Err| {
            let (_, expected) = split(&error.to_string());
            E::custom(format!("{}, expected {expected}", quote(text)))
        })
    }
}

fn expected<T>() -> String
where
    T: FromStr,
    T::Err: Display,
{
    let error = "".parse::<T>().err();
    error.map_or_else(|| TEXT.into(), |error| split(&error.to_string()).1)
}

/// Adds what was expected to serde's message about a missing field, which has only the field's name.
pub(crate) fn say_if_missing<E: Error>(error: E, expected: &str) -> E {
    let message = error.to_string();
    match message.starts_with("missing field") {
        true => E::custom(format!("{}, expected {expected}", message.trim())),
        false => error,
    }
}
