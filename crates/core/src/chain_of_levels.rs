//! Chains of levels: `bounded(100ms) within 20ms or causal`.
//!
//! An operation may name several levels. The first that can be given is given, and the receipt says which. This is the consistency part of Pileus'
//! service level agreements (Terry et al., SOSP 2013), in one line.
use crate::{BadLevel, Level, Micros, Operation};
use std::{fmt, ops::RangeInclusive, str::FromStr, sync::Arc};

/// What an operation asks for: one level, or the first of several that can be given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// One level.
    Level(Level),
    /// The first of these.
    First(Arc<ChainOfLevels>),
}

/// Levels in the order in which they are tried: at least two, and at most [`ChainOfLevels::MAX`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChainOfLevels(Vec<Choice>);

/// One level of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Choice {
    /// The level.
    pub level: Level,
    /// How long an operation may take at this level until the next one is tried. `None`: until it fails.
    pub within: Option<Micros>,
}

/// An operation that names a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstOf {
    /// The operation. It names no level of its own.
    pub operation: Operation,
    /// The levels.
    pub chain: Arc<ChainOfLevels>,
}

impl ChainOfLevels {
    /// The most levels of a chain.
    pub const MAX: usize = 8;

    /// The times that a level may have.
    const TIMES: RangeInclusive<Micros> = Micros::from_millis(1)..=Micros::from_millis(60_000);

    /// The levels, the first one first.
    pub fn choices(&self) -> &[Choice] {
        &self.0
    }
}

impl Wanted {
    /// Of two levels that were given, the one that is less what was asked for: the later one of a chain, or the one that was not asked for.
    pub(crate) fn weaker(&self, one: Level, other: Level) -> Level {
        let place = |level: Level| {
            self.levels()
                .position(|wanted| wanted == level)
                .unwrap_or(usize::MAX)
        };
        match place(one) < place(other) {
            true => other,
            false => one,
        }
    }

    /// The level, or the levels of the chain.
    pub fn levels(&self) -> impl Iterator<Item = Level> + '_ {
        let (one, chain) = match self {
            Wanted::Level(level) => (Some(*level), &[][..]),
            Wanted::First(chain) => (None, chain.choices()),
        };
        one.into_iter().chain(chain.iter().map(|choice| choice.level))
    }
}

impl From<Level> for Wanted {
    fn from(level: Level) -> Wanted {
        Wanted::Level(level)
    }
}

impl PartialEq<Level> for Wanted {
    fn eq(&self, other: &Level) -> bool {
        matches!(self, Wanted::Level(level) if level == other)
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Level(level) => level.fmt(f),
            Wanted::First(chain) => chain.fmt(f),
        }
    }
}

impl fmt::Display for ChainOfLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, choice) in self.0.iter().enumerate() {
            write!(f, "{}{choice}", if place == 0 { "" } else { " or " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.level.fmt(f)?;
        match self.within {
            Some(within) => write!(f, " within {within}"),
            None => Ok(()),
        }
    }
}

const FORM: &str = "a level, or several such as 'bounded(100ms) within 20ms or causal'";

impl FromStr for Wanted {
    type Err = BadLevel;

    fn from_str(text: &str) -> Result<Wanted, BadLevel> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if let [level] = words[..] {
            return level.parse().map(Wanted::Level);
        }
        let bad = |expected| BadLevel {
            found: text.chars().take(64).collect(),
            expected,
        };
        let choices: Result<Vec<Choice>, BadLevel> = words
            .split(|word| word.eq_ignore_ascii_case("or"))
            .map(|choice| {
                let (level, within) = match *choice {
                    [level] => (level, None),
                    [level, word, time] if word.eq_ignore_ascii_case("within") => (level, Some(time)),
                    _ => return Err(bad(FORM)),
                };
                let within = match within.map(str::parse::<Micros>) {
                    None => None,
                    Some(Ok(time)) if ChainOfLevels::TIMES.contains(&time) => Some(time),
                    Some(_) => return Err(bad("a time from 1ms to 60s after 'within', such as 20ms")),
                };
                let level = level.parse()?;
                Ok(Choice { level, within })
            })
            .collect();
        let choices = choices?;
        match choices.len() {
            2..=ChainOfLevels::MAX => Ok(Wanted::First(Arc::new(ChainOfLevels(choices)))),
            0 | 1 => Err(bad(
                "another level after 'within', such as 'bounded(100ms) within 20ms or causal'",
            )),
            _ => Err(bad("at most 8 levels")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_parses_as_it_prints_and_takes_no_more_room_than_a_level() {
        for text in [
            "causal",
            "bounded(100ms) or causal",
            "bounded(100ms) within 20ms or quorum within 1s or one",
        ] {
            let wanted: Wanted = text.parse().expect("it is a chain");
            assert_eq!(wanted.to_string(), text);
        }
        let spaced: Wanted = "  BOUNDED(2s)  OR  eventual ".parse().expect("it is a chain");
        assert_eq!(spaced.to_string(), "bounded(2s) or eventual");
        assert_eq!(size_of::<Wanted>(), size_of::<Level>());
    }

    #[test]
    fn nonsense_is_refused_with_what_was_expected() {
        let nine = ["one"; 9].join(" or ");
        for (text, expected) in [
            ("", "such as"),
            ("bounded(1s) or", "such as"),
            ("or causal", "such as"),
            ("bounded(1s) causal", "such as"),
            ("bounded(1s) within causal", "such as"),
            ("bounded(1s) within 20 or causal", "a time from 1ms"),
            ("bounded(1s) within 61s or causal", "a time from 1ms"),
            ("bounded(1s) within 0ms or causal", "a time from 1ms"),
            ("bounded(1s) within 20ms", "another level after"),
            ("bounded(1s) or strong", "causal, one"),
            (&nine, "at most 8 levels"),
        ] {
            let error = text.parse::<Wanted>().expect_err(text);
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
    }
}
