//! Hashes and sets, and what a judge can tell of them from answers.
//!
//! | key | what clients do with it |
//! |---|---|
//! | `e:hash0`, `e:set0`, ... | each element is added once, by one client, under a name of its own; any client may remove it. Such a key has few elements, and then the next one begins |
//! | the field `n` of `e:hash0`, ... | each addition adds another power of two, so its value tells which additions it has. Nobody sets or removes it |
//! | `e:wild0`, ... | anything, also deletes, strings, expiries and numbers |
//!
//! Elements that are added once make removals simple to judge: a removal that has found the element removes it for ever, and one that has not found it removes nothing, whenever it arrives elsewhere.
use bytes::Bytes;
use turnbuckle_core::{Key, Kind};

const MARK: &str = "e:";
/// How many elements are added to a key before the next key begins.
pub(crate) const ELEMENTS: u64 = 30;
/// The number of keys to which clients do anything.
pub(crate) const WILD: u64 = 2;
/// The field to which clients add.
pub(crate) const NUMBER: Bytes = Bytes::from_static(b"n");

/// A hash or a set whose elements are added once.
pub(crate) fn key(keyspace: usize, kind: Kind, number: u64) -> Key {
    crate::keyspaces::key_in(keyspace, &format!("{MARK}{}{number}", kind.name()))
}

/// A key to which clients do anything.
pub(crate) fn wild(keyspace: usize, number: u64) -> Key {
    crate::keyspaces::key_in(keyspace, &format!("{MARK}wild{number}"))
}

fn has(key: &Key, part: &str) -> bool {
    key.0.windows(part.len()).any(|found| found == part.as_bytes())
}

/// Whether a key is one of these.
pub(crate) fn is_one(key: &Key) -> bool {
    has(key, MARK)
}

/// Whether clients do anything to this one.
pub(crate) fn is_wild(key: &Key) -> bool {
    has(key, "e:wild")
}
