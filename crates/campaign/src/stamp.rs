//! The stamp of a version: of two versions, the one with the greater stamp wins.
use std::{fmt, str::FromStr};

/// `12.0@a`: microseconds, counter, site. A greater stamp is newer. Sites are ordered as in the configuration, which here means by their
/// names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    micros: u64,
    counter: u64,
    site: String,
}

impl FromStr for Stamp {
    type Err = ();

    fn from_str(text: &str) -> Result<Stamp, ()> {
        let (at, site) = text.split_once('@').ok_or(())?;
        let (micros, counter) = at.split_once('.').ok_or(())?;
        Ok(Stamp {
            micros: micros.parse().map_err(drop)?,
            counter: counter.parse().map_err(drop)?,
            site: site.to_owned(),
        })
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}@{}", self.micros, self.counter, self.site)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_ordered_by_time_then_counter_then_site() {
        let stamps = ["9.0@c", "10.0@a", "10.0@b", "10.2@a", "11.0@a"];
        let parsed: Vec<Stamp> = stamps.iter().map(|text| text.parse().expect("a stamp")).collect();
        assert!(parsed.is_sorted_by(|one, other| one < other));
        assert_eq!(parsed[3].to_string(), "10.2@a");
        assert!("12".parse::<Stamp>().is_err() && "x.1@a".parse::<Stamp>().is_err());
    }
}
