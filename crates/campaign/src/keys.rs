//! The keys of a round. Each round has its own keys, so that its trace is complete. Those of earlier rounds stay, and must not change.
//!
//! | keys | what happens to them |
//! |---|---|
//! | `hot`, `warm` | written and read by all clients, never deleted: a checker can say most about them |
//! | `photo`, `comment` | written in pairs: a client that reads the comment must find the photo |
//! | `bulk` | large values, more than fit into memory and into the logs |
//! | `fickle` | written, deleted and written again |
//! | `churn` | written once and deleted once |
//! | `ballast` | of no round: thousands of small values that are written once, so that full copies have something to carry |
//! | `gone` | says that a key of `churn` was deleted: a client that reads it must not find that key |
use bytes::Bytes;
use turnbuckle_workload::Random;

/// A set of keys that clients choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A few keys that all clients use.
    Hot,
    /// Some more keys that all clients use.
    Warm,
    /// The first key of a pair.
    Photo,
    /// The second key of a pair.
    Comment,
    /// Large values.
    Bulk,
    /// Keys that are deleted and written again.
    Fickle,
    /// Keys that tell of deletes.
    Gone,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Class::Hot => "hot",
            Class::Warm => "warm",
            Class::Photo => "photo",
            Class::Comment => "comment",
            Class::Bulk => "bulk",
            Class::Fickle => "fickle",
            Class::Gone => "gone",
        }
    }

    fn size(self) -> u64 {
        match self {
            Class::Hot => 12,
            Class::Warm => 150,
            Class::Photo | Class::Comment => 40,
            Class::Bulk => 500,
            Class::Fickle => 80,
            Class::Gone => 20,
        }
    }
}

/// The key with this number in a class.
pub fn key(round: u32, class: Class, number: u64) -> Bytes {
    Bytes::from(format!("r{round}/{}/{number}", class.name()))
}

/// A drawn number of a class.
pub fn any(random: &mut Random, class: Class) -> u64 {
    random.below(class.size())
}

/// A key that only one client writes, and only once.
pub fn churn(round: u32, client: u16, number: u64) -> Bytes {
    Bytes::from(format!("r{round}/churn/c{client}.{number}"))
}

/// A key that is written once, at the beginning of the campaign, and stays, so that full copies have something to carry.
pub fn ballast(number: u64) -> Bytes {
    Bytes::from(format!("ballast/{number}"))
}

/// The round of a key.
pub fn round_of(key: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(key).ok()?;
    text.strip_prefix('r')?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_its_round() {
        assert_eq!(round_of(&key(12, Class::Bulk, 3)), Some(12));
        assert_eq!(round_of(&churn(3, 4, 5)), Some(3));
        assert_eq!(round_of(b"user1"), None);
    }
}
