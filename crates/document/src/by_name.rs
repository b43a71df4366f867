use crate::{Misplaced, number::Bounded, word::say_if_missing};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};
use std::{collections::BTreeMap, fmt, ops::Range};
use toml::Spanned;

/// A whole number that holds for all of some names, or one for each: `2`, or `{ a = 2, b = 1 }`. It remembers its place in the file.
#[derive(Debug, Clone)]
pub struct ByName {
    place: Range<usize>,
    given: Given,
}

#[derive(Debug, Clone)]
enum Given {
    All(u64),
    Each(BTreeMap<String, u64>),
}

impl ByName {
    /// The numbers of these names, in their order. A number for all is that of each.
    ///
    /// # Errors
    /// If there are numbers for other names than these, or for some of them only. `what` is what has names: `site`.
    pub fn of<'a>(
        &self,
        what: &str,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<Vec<u64>, Misplaced> {
        let given = match &self.given {
            Given::All(number) => return Ok(names.map(|_| *number).collect()),
            Given::Each(given) => given,
        };
        let found: Option<Vec<u64>> = names.clone().map(|name| given.get(name).copied()).collect();
        found.filter(|found| found.len() == given.len()).ok_or_else(|| {
            let names: Vec<&str> = names.collect();
            self.wrong(format!("a number, or one for each {what}: {}", names.join(", ")))
        })
    }

    /// An error: it should have been something else.
    pub fn wrong(&self, expected: impl Into<String>) -> Misplaced {
        Misplaced::at(self.place.clone(), self.given.to_string(), expected)
    }
}

impl<'de> Deserialize<'de> for ByName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Spanned::<Given>::deserialize(deserializer);
        let given = given.map_err(|error| say_if_missing(error, EXPECTED))?;
        Ok(ByName {
            place: given.span(),
            given: given.into_inner(),
        })
    }
}

const EXPECTED: &str = "a whole number, or one for each name, such as { a = 2, b = 1 }";

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Given::All(number) => number.fmt(f),
            Given::Each(numbers) => {
                let words = numbers.iter().map(|(name, number)| format!("{name} = {number}"));
                write!(f, "{{ {} }}", words.collect::<Vec<String>>().join(", "))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GivenVisitor)
    }
}

struct GivenVisitor;

impl<'de> Visitor<'de> for GivenVisitor {
    type Value = Given;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Given, E> {
        let number =
            u64::try_from(number).map_err(|_| E::custom(format!("{number}, expected {EXPECTED}")))?;
        Ok(Given::All(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Given, E> {
        Ok(Given::All(number))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Given, A::Error> {
        let mut numbers = BTreeMap::new();
        while let Some((name, number)) = map.next_entry::<String, Bounded<0, { u64::MAX }>>()? {
            numbers.insert(name, number.0);
        }
        Ok(Given::Each(numbers))
    }
}
