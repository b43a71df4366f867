/// The longest name of a cluster, site, node or keyspace, in bytes.
const MOST_BYTES: usize = 64;

/// What a name is, for messages.
pub(super) const EXPECTED: &str = "a name: a letter, then letters, digits, '-' or '_', at most 64 in all";

/// Whether it may be the name of a cluster, site, node or keyspace.
///
/// Names end up in session tokens, metrics, messages, file names and commands typed by people, so only what is
/// harmless in all of them. They begin with a letter so that a number in brackets is always a place in a list.
pub(crate) fn is_name(text: &str) -> bool {
    let of_name = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    text.len() <= MOST_BYTES
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(of_name)
}
