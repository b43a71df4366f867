//! The store's names of versions, as small numbers.
//!
//! Turnbuckle prints a version as `12.0@a`: microseconds, counter, site. Such names have an order: the one with the greater stamp
//! is the newer. Equal stamps of two sites have an order inside the store, by the sites' numbers, which the name does not show: so
//! neither counts as older. Other texts can only be told apart.
use indexmap::IndexMap;
use std::hash::RandomState;

/// A version of a key. Equal exactly if the store used the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// Microseconds and counter in one number; of other texts 0.
    stamp: u64,
    /// The number of the site, or of the text.
    name: Name,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    /// A place in [`VersionNames::texts`]: the site behind a stamp.
    Site(u32),
    /// A place in [`VersionNames::texts`]: the whole name.
    Text(u32),
}

impl Version {
    /// The stamp by which versions of a key are ordered, if the name has one.
    pub fn stamp(self) -> Option<u64> {
        matches!(self.name, Name::Site(_)).then_some(self.stamp)
    }
}

/// The texts that names of versions are made of.
#[derive(Debug, Clone, Default)]
pub struct VersionNames {
    texts: IndexMap<Box<str>, (), RandomState>,
}

/// In a stamp, below the microseconds.
const COUNTER_BITS: u32 = 12;

impl VersionNames {
    /// The version of that name.
    pub fn intern(&mut self, name: &str) -> Version {
        match parse(name) {
            Some((stamp, site)) => Version {
                stamp,
                name: Name::Site(self.text(site)),
            },
            None => Version {
                stamp: 0,
                name: Name::Text(self.text(name)),
            },
        }
    }

    fn text(&mut self, text: &str) -> u32 {
        let place = match self.texts.get_index_of(text) {
            Some(place) => place,
            None => self.texts.insert_full(text.into(), ()).0,
        };
        place as u32
    }

    /// The name, as it was.
    pub fn name(&self, version: Version) -> String {
        let text = |place: u32| {
            self.texts
                .get_index(place as usize)
                .map_or("?", |(text, ())| text)
        };
        match version.name {
            Name::Text(place) => text(place).to_owned(),
            Name::Site(place) => format!(
                "{}.{}@{}",
                version.stamp >> COUNTER_BITS,
                version.stamp & ((1 << COUNTER_BITS) - 1),
                text(place)
            ),
        }
    }
}

/// Stamp and site of a name that is written exactly as the store would.
fn parse(name: &str) -> Option<(u64, &str)> {
    let (stamp, site) = name.split_once('@')?;
    Some((parse_stamp(stamp)?, site))
}

/// The stamp that a text is, if it is written exactly as the store would.
pub(crate) fn parse_stamp(stamp: &str) -> Option<u64> {
    let (wall, counter) = stamp.split_once('.')?;
    let (wall, counter) = (number(wall)?, number(counter)?);
    let fits = wall >> (64 - COUNTER_BITS) == 0 && counter >> COUNTER_BITS == 0;
    fits.then_some(wall << COUNTER_BITS | counter)
}

/// A number without sign and leading zeros, so that it prints as it was.
fn number(text: &str) -> Option<u64> {
    let plain = text == "0" || text.starts_with(|first: char| ('1'..='9').contains(&first));
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were_and_stamps_have_an_order() {
        let mut names = VersionNames::default();
        let texts = ["12.0@a", "12.1@a", "13.0@b", "4503599627370495.4095@a"];
        let stamps: Vec<u64> = texts
            .map(|text| names.intern(text).stamp().expect("a stamp"))
            .to_vec();
        assert!(stamps.is_sorted_by(|one, other| one < other), "{stamps:?}");
        for text in texts {
            let version = names.intern(text);
            assert_eq!(names.name(version), text);
        }
    }

    #[test]
    fn what_the_store_would_not_print_is_only_told_apart() {
        let mut names = VersionNames::default();
        for text in [
            "",
            "v7",
            "012.0@a",
            "12.00@a",
            "+12.0@a",
            "12@a",
            "12.0",
            "12.4096@a",
            "4503599627370496.0@a",
            "99999999999999999999.0@a",
        ] {
            let version = names.intern(text);
            assert_eq!((version.stamp(), names.name(version).as_str()), (None, text));
            assert_eq!(names.intern(text), version);
        }
        assert_ne!(names.intern("12.0@a"), names.intern("12.0@b"));
    }
}
