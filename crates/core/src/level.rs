use crate::Micros;
use std::{fmt, str::FromStr};
use thiserror::Error;

/// How consistent an operation must be. The kind of a keyspace determines which levels it can give. What each level promises is its
/// [`Promise`](crate::Promise). The order of the levels here has no meaning.
///
/// Printed and parsed by the same names: lower case words, with an argument in brackets where there is one:
/// `bounded(2s)`, `delay(15ms)`, `cpq(0.25)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// The answer is what the asked replica has. In the end all replicas agree.
    Eventual,
    /// All four session guarantees.
    Session,
    /// The session sees its own writes.
    ReadYourWrites,
    /// The session never goes back in time.
    MonotonicReads,
    /// The session's writes are seen in the order it made them.
    MonotonicWrites,
    /// Where a write is seen, everything that its session had read before is seen too.
    WritesFollowReads,
    /// Causal order on each key alone.
    PerKeyCausal,
    /// Nothing is seen before what it depends on.
    Causal,
    /// One replica is asked.
    One,
    /// A majority of replicas is asked.
    Quorum,
    /// Every replica is asked.
    All,
    /// This many replicas are asked.
    Replicas(u8),
    /// `one` or, with probability p, `quorum`. The number is p in millionths.
    Cpq(u32),
    /// `one`, with a wait of this length before a read and after a write.
    Delay(Micros),
    /// Reflects every write acknowledged longer ago than this.
    Bounded(Micros),
    /// One order of all operations on each key.
    PerKeySequential,
    /// One order of all operations within a partition.
    PartitionSequential,
    /// One order of all operations.
    Sequential,
    /// Quorum reads and writes that are linearizable per key.
    Atomic,
    /// As if there were one copy.
    Linearizable,
}

/// A level that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{found}' is no consistency level; expected {expected}")]
pub struct BadLevel {
    /// What was given.
    pub found: String,
    /// What would have been understood.
    pub expected: &'static str,
}

/// The levels without an argument.
const WORDS: [(&str, Level); 16] = [
    ("eventual", Level::Eventual),
    ("session", Level::Session),
    ("read-your-writes", Level::ReadYourWrites),
    ("monotonic-reads", Level::MonotonicReads),
    ("monotonic-writes", Level::MonotonicWrites),
    ("writes-follow-reads", Level::WritesFollowReads),
    ("per-key-causal", Level::PerKeyCausal),
    ("causal", Level::Causal),
    ("one", Level::One),
    ("quorum", Level::Quorum),
    ("all", Level::All),
    ("per-key-sequential", Level::PerKeySequential),
    ("partition-sequential", Level::PartitionSequential),
    ("sequential", Level::Sequential),
    ("atomic", Level::Atomic),
    ("linearizable", Level::Linearizable),
];

const NAMES: &str = "eventual, session, read-your-writes, monotonic-reads, monotonic-writes, writes-follow-reads, \
                     per-key-causal, causal, one, quorum, all, per-key-sequential, partition-sequential, sequential, \
                     atomic, linearizable, replicas(2), bounded(2s), delay(15ms) or cpq(0.25)";

impl Level {
    /// How many of a key's `all` replicas must take part in an operation at this level, as far as the level alone says.
    pub fn replicas_needed(self, all: usize) -> usize {
        match self {
            Level::Quorum | Level::Atomic | Level::PerKeySequential | Level::Sequential => all / 2 + 1,
            Level::All => all,
            Level::Replicas(count) => usize::from(count),
            _ => 1,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Cpq(millionths) => write!(f, "cpq({})", f64::from(*millionths) / 1e6),
            Level::Delay(delay) => write!(f, "delay({delay})"),
            Level::Bounded(bound) => write!(f, "bounded({bound})"),
            Level::Replicas(count) => write!(f, "replicas({count})"),
            word => {
                let (name, _) = WORDS
                    .iter()
                    .find(|(_, level)| level == word)
                    .expect("every level without argument has a word");
                f.write_str(name)
            }
        }
    }
}

impl FromStr for Level {
    type Err = BadLevel;

    fn from_str(text: &str) -> Result<Level, BadLevel> {
        let bad = |expected| BadLevel {
            found: text.chars().take(64).collect(),
            expected,
        };
        let lower = text.to_ascii_lowercase();
        if let Some((_, level)) = WORDS.iter().find(|(name, _)| *name == lower) {
            return Ok(*level);
        }
        // Of a level whose argument is missing, or has no end, what is said is what the argument must be.
        let (name, argument) = match lower.split_once('(') {
            Some((name, rest)) => (name, rest.strip_suffix(')').unwrap_or_default()),
            None => (lower.as_str(), ""),
        };
        match name {
            "bounded" => argument
                .parse()
                .ok()
                .filter(|bound| *bound > Micros(0))
                .map(Level::Bounded)
                .ok_or_else(|| bad("a time above 0 in s, ms or us, such as bounded(2s) or bounded(250ms)")),
            "delay" => argument
                .parse()
                .map(Level::Delay)
                .map_err(|_| bad("a time in s, ms or us, such as delay(15ms)")),
            "replicas" => argument
                .parse()
                .ok()
                .filter(|count| (1..=128).contains(count))
                .map(Level::Replicas)
                .ok_or_else(|| bad("a number of replicas, such as replicas(2)")),
            "cpq" => argument
                .parse()
                .ok()
                .filter(|p| (0.0..=1.0).contains(p))
                .map(|p: f64| Level::Cpq((p * 1e6).round() as u32))
                .ok_or_else(|| bad("a probability from 0 to 1, such as cpq(0.25)")),
            _ => Err(bad(NAMES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_parses_as_it_prints() {
        let with_argument = [
            Level::Cpq(250_000),
            Level::Delay(Micros(15_000)),
            Level::Bounded(Micros(2_000_000)),
            Level::Bounded(Micros(1_500)),
            Level::Replicas(2),
        ];
        for level in WORDS.iter().map(|(_, level)| *level).chain(with_argument) {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert_eq!("BOUNDED(2s)".parse(), Ok(Level::Bounded(Micros(2_000_000))));
        assert_eq!(Level::Bounded(Micros(2_000_000)).to_string(), "bounded(2s)");
    }

    #[test]
    fn a_majority_is_more_than_half() {
        for (all, majority) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
            assert_eq!(Level::Quorum.replicas_needed(all), majority);
            assert_eq!(Level::All.replicas_needed(all), all);
            assert_eq!(Level::Eventual.replicas_needed(all), 1);
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_was_expected() {
        for text in [
            "",
            "strong",
            "bounded",
            "bounded()",
            "bounded(2)",
            "bounded(0ms)",
            "bounded(-2s)",
            "bounded(2h)",
            "cpq(2)",
            "replicas(0)",
            "replicas(1.5)",
            "replicas(-1)",
            "cpq(nan)",
            "delay(1s",
            "bounded(1e400s)",
        ] {
            let error = text.parse::<Level>().expect_err(text);
            assert!(error.to_string().contains("expected"), "{error}");
        }
    }

    #[test]
    fn a_level_without_its_argument_is_told_which_argument_it_needs() {
        for (text, expected) in [
            ("bounded", "a time above 0"),
            ("replicas", "a number of replicas"),
            ("delay", "a time"),
            ("cpq", "a probability"),
            ("strong", "eventual, session"),
        ] {
            let error = text.parse::<Level>().expect_err(text);
            assert!(error.expected.starts_with(expected), "{text}: {error}");
        }
    }
}
