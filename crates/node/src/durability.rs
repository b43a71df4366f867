use std::{fmt, str::FromStr};
use thiserror::Error;
use turnbuckle_core::Micros;

/// When a write of a keyspace is acknowledged. Printed and parsed as in the configuration file: `fsync`, `interval(10ms)`, `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Once the write is on the disk. Survives a power loss.
    Fsync,
    /// Once the operating system has the write. It is on the disk at most this interval later. Survives `kill -9`. A power loss takes at
    /// most the last interval.
    Interval(Micros),
    /// Once the operating system has the write. The operating system decides when it goes to the disk. Survives `kill -9`.
    None,
}

/// `interval(10ms)`: `kill -9` loses no acknowledged write, a power loss takes at most the last 10 ms, and it is nearly as fast as `none`.
impl Default for Durability {
    fn default() -> Durability {
        Durability::Interval(Micros::from_millis(10))
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Fsync => f.write_str("fsync"),
            Durability::Interval(every) => write!(f, "interval({every})"),
            Durability::None => f.write_str("none"),
        }
    }
}

/// A durability that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected {}", Durability::EXPECTED)]
pub struct BadDurability;

impl Durability {
    /// The forms of a durability, for error messages.
    pub const EXPECTED: &str = "\"fsync\", \"interval(10ms)\" (from 1ms to 60s) or \"none\"";
}

impl FromStr for Durability {
    type Err = BadDurability;

    fn from_str(text: &str) -> Result<Durability, BadDurability> {
        match text {
            "fsync" => return Ok(Durability::Fsync),
            "none" => return Ok(Durability::None),
            _ => {}
        }
        text.strip_prefix("interval(")
            .and_then(|rest| rest.strip_suffix(')'))
            .and_then(|every| every.parse().ok())
            .filter(|every| (Micros::from_millis(1)..=Micros::from_millis(60_000)).contains(every))
            .map(Durability::Interval)
            .ok_or(BadDurability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_durability_parses_as_it_prints() {
        for text in ["fsync", "interval(10ms)", "interval(1s)", "none"] {
            assert_eq!(text.parse::<Durability>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "Fsync",
            "interval",
            "interval()",
            "interval(0ms)",
            "interval(61s)",
            "interval(10)",
        ] {
            assert_eq!(text.parse::<Durability>(), Err(BadDurability), "{text}");
        }
    }
}
