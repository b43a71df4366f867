//! Twins: keys of one partition that transactions write alike, so that it can be seen if a transaction is shown in part.
//!
//! ```text
//!   {w0}one  {w0}other    each transaction writes the same value to both, or deletes both
//!   {w0}sum  {w0}total    each transaction adds the same to both
//! ```
//!
//! Whoever reads them as of one moment finds twins alike: by a transaction, or by a read of several keys that is a snapshot. Two reads one after the other may differ.
use turnbuckle_core::Key;

/// The names of the twins.
pub(crate) const NAMES: [[&str; 2]; 2] = [["one", "other"], ["sum", "total"]];
/// The number of groups of twins in a keyspace.
pub(crate) const GROUPS: u64 = 2;

const TAG: &str = "{w";

/// The key of this name in a group.
pub(crate) fn key(keyspace: usize, group: u64, name: &str) -> Key {
    crate::keyspaces::key_in(keyspace, &format!("{TAG}{group}}}{name}"))
}

/// Whether a key is one of these.
pub(crate) fn is_one(key: &Key) -> bool {
    key.0.windows(TAG.len()).any(|part| part == TAG.as_bytes())
}
