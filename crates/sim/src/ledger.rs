//! Ledgers: keys of one partition that transactions write together, so that what was lost, done twice or done in part can be seen.
//!
//! ```text
//!   {l0}list    "3,7,12,"   each entry appends its number
//!   {l0}twin    "3,7,12,"   the same
//!   {l0}count   "3"         each entry adds 1
//!   {l0}ids     "5"         counts the ids that clients have drawn, each by one operation
//! ```
//!
//! An *entry* is one transaction that writes the first three keys. In the list one sees which entries there were, and in which order. What must be true is in the judge
//! (`judge/ledgers.rs`), what clients do is in `load/ledgers.rs`. Clients that append to a list under a condition, the version that they have read, must find nothing
//! between what they have read and their own entry.
use bytes::Bytes;
use turnbuckle_core::{Key, Step, Transaction};

/// The names of a ledger's keys, behind their tag.
pub(crate) const LIST: &str = "list";
pub(crate) const TWIN: &str = "twin";
pub(crate) const COUNT: &str = "count";
pub(crate) const IDS: &str = "ids";

/// The number of ledgers of a keyspace.
pub(crate) const LEDGERS: u64 = 3;

/// How the names of all ledgers' keys begin, behind what names their keyspace.
const TAG: &[u8] = b"{l";

/// The key of a ledger with this name.
pub(crate) fn key(keyspace: usize, ledger: u64, name: &str) -> Key {
    crate::keyspaces::key_in(keyspace, &format!("{{l{ledger}}}{name}"))
}

/// The ledger that a key is in, and its name there.
pub(crate) fn place(key: &Key) -> Option<(Bytes, &str)> {
    let bytes = &key.0;
    let end = bytes.iter().position(|&byte| byte == b'}')?;
    let begin = bytes[..end].iter().rposition(|&byte| byte == b'{')?;
    if !bytes[begin..].starts_with(TAG) {
        return None;
    }
    let name = std::str::from_utf8(&bytes[end + 1..]).ok()?;
    [LIST, TWIN, COUNT, IDS]
        .contains(&name)
        .then(|| (bytes.slice(..end), name))
}

pub(crate) fn is_in_one(key: &Key) -> bool {
    place(key).is_some()
}

pub(crate) fn is_list(key: &Key) -> bool {
    place(key).is_some_and(|(_, name)| name == LIST)
}

/// What an entry appends.
pub(crate) fn item(number: u64) -> Bytes {
    Bytes::from(format!("{number},"))
}

/// The numbers of the entries in a list, in order. `None` if it is no list.
pub(crate) fn numbers(list: &[u8]) -> Option<Vec<u64>> {
    let text = std::str::from_utf8(list).ok()?;
    let Some(items) = text.strip_suffix(',') else {
        return text.is_empty().then(Vec::new);
    };
    items.split(',').map(|item| item.parse().ok()).collect()
}

/// The number of the entry that a transaction makes, if it makes one.
pub(crate) fn number_of(transaction: &Transaction) -> Option<u64> {
    let mut steps = transaction.steps.iter();
    steps.find_map(|step| match step {
        Step::Put(key, _, Some(options)) if is_list(key) => match &options.computes {
            Some(turnbuckle_core::Compute::Append(item)) => numbers(item)?.first().copied(),
            _ => None,
        },
        _ => None,
    })
}
