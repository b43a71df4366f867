//! Numbers: keys to which clients add, so that it can be seen which additions a value has, and which are missing or there twice.
//!
//! ```text
//!   number-a3    each addition to a key is another power of two below 2^48, so a value tells which of them it has
//!   number-r3    as well, some clients write multiples of 2^48, so a value tells which of these it is based on, and others delete the key
//!   number-e3    as well, some clients say when the value expires
//! ```
//!
//! After 48 additions a key has no more room, and clients go on with the next one. What must be true is in the judge (`judge/numbers.rs`), what clients do is in `load/numbers.rs`.
use turnbuckle_core::Key;

/// The number of additions to a key.
pub(crate) const ADDITIONS: u32 = 48;
/// The most values that are written to a key.
pub(crate) const WRITTEN: u64 = 1 << (62 - ADDITIONS);

/// What clients do with a number beside adding to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Nothing else.
    Added,
    /// They write values, and delete it.
    Reset,
    /// They say when it expires.
    Expiring,
}

impl Kind {
    const fn letter(self) -> char {
        match self {
            Kind::Added => 'a',
            Kind::Reset => 'r',
            Kind::Expiring => 'e',
        }
    }
}

const NAME: &[u8] = b"number-";

/// The key of a number of this kind. Each kind has many, one after the other.
pub(crate) fn key(keyspace: usize, kind: Kind, number: u64) -> Key {
    crate::keyspaces::key_in(keyspace, &format!("number-{}{number}", kind.letter()))
}

/// Whether a key is a number.
pub(crate) fn is_one(key: &Key) -> bool {
    key.0.windows(NAME.len()).any(|part| part == NAME)
}

/// What a value says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Says {
    /// The value that was written, if one was: a number from 1 on.
    pub written: u64,
    /// The additions that it has, a bit for each.
    pub additions: u64,
}

/// What is written as the value of this number.
pub(crate) fn written(number: u64) -> String {
    (number << ADDITIONS).to_string()
}

/// What a value says. `None` if it cannot be one.
pub(crate) fn read(value: &[u8]) -> Option<Says> {
    let value: u64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    let says = Says {
        written: value >> ADDITIONS,
        additions: value & ((1 << ADDITIONS) - 1),
    };
    (says.written < WRITTEN).then_some(says)
}

/// The bits of additions, as their numbers.
pub(crate) fn numbers(additions: u64) -> Vec<u32> {
    (0..ADDITIONS)
        .filter(|number| additions >> number & 1 == 1)
        .collect()
}
