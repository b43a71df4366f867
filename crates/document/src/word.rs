use crate::{Misplaced, quote, wrong::split};
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use std::{fmt, fmt::Display, marker::PhantomData, ops::Deref, ops::Range, str::FromStr};
use toml::Spanned;

/// Text in quotes that stands for a `T`, and remembers how it was written and where.
///
/// What was expected is in the error of `T`, which begins with `expected`, or with what was found and then `; expected`. If the
/// field is missing, the error of an empty text says it.
#[derive(Debug, Clone)]
pub struct Word<T> {
    place: Range<usize>,
    text: String,
    value: T,
}

impl<T> Word<T> {
    /// Where it stands, in bytes.
    pub fn place(&self) -> Range<usize> {
        self.place.clone()
    }

    /// As it is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it stands for.
    pub fn get(self) -> T {
        self.value
    }

    /// It should have been something else.
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

/// For `deserialize_with`: what a [`Word`] stands for, where nobody asks for its place.
pub fn word<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: Display,
{
    Parsed::deserialize(deserializer).map(|Parsed(_, value)| value)
}

/// What is expected where any text will do.
pub(crate) const TEXT: &str = "text in quotes";

/// A text, and what it stands for.
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

/// The error comes from within the visitor: there it gets the place of this very text, also in a list.
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

/// Serde says of a missing field only its name.
pub(crate) fn say_if_missing<E: Error>(error: E, expected: &str) -> E {
    let message = error.to_string();
    match message.starts_with("missing field") {
        true => E::custom(format!("{}, expected {expected}", message.trim())),
        false => error,
    }
}
