//! Texts: keys whose values clients write by appending to them and by overwriting parts of them, where one site decides what the value before was.
//!
//! ```text
//!   text-s2-0   appended to at site 2 alone: nothing that was appended may be lost
//!   text-m0     appended to and overwritten at all sites, deleted, and expiring
//! ```
//!
//! Each write has a token of its own, of eight bytes. So a value tells which writes it has. What must be true is in the judge (`judge/texts.rs`), what clients do is in `load/texts.rs`.
use bytes::Bytes;
use turnbuckle_core::{Key, SiteId};

/// The length of a token, in bytes.
pub(crate) const TOKEN_BYTES: usize = 8;
/// The number of appends to a key that one site writes.
pub(crate) const APPENDS: u64 = 30;
/// The number of tokens of a text that may be overwritten.
pub(crate) const PLACES: u64 = 6;

const NAME: &[u8] = b"text-";

/// The key of a text that one site writes, or that all do.
pub(crate) fn key(keyspace: usize, site: Option<SiteId>, number: u64) -> Key {
    let name = match site {
        Some(site) => format!("text-s{}-{number}", site.0),
        None => format!("text-m{number}"),
    };
    crate::keyspaces::key_in(keyspace, &name)
}

/// Whether a key is a text.
pub(crate) fn is_one(key: &Key) -> bool {
    of_name(key).is_some()
}

/// Whether one site alone writes a text.
pub(crate) fn is_of_one_site(key: &Key) -> bool {
    of_name(key) == Some(b's')
}

/// The letter behind the name.
fn of_name(key: &Key) -> Option<u8> {
    let mut parts = key.0.windows(NAME.len() + 1);
    parts
        .find(|part| part.starts_with(NAME))
        .map(|part| part[NAME.len()])
}

/// The token of this number, which is above 0.
pub(crate) fn token(number: u64) -> Bytes {
    format!("{number:07};").into()
}

/// The number of a token. 0: it is eight zero bytes, which fill a gap. `None`: it is none.
pub(crate) fn number(token: &[u8]) -> Option<u64> {
    if token == [0; TOKEN_BYTES] {
        return Some(0);
    }
    let digits = token.strip_suffix(b";").filter(|_| token.len() == TOKEN_BYTES)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The numbers of the tokens of a value. `None` if it is no text.
pub(crate) fn read(value: &[u8]) -> Option<Vec<u64>> {
    value.chunks(TOKEN_BYTES).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_tells_its_tokens() {
        let value = [token(7), Bytes::from_static(&[0; TOKEN_BYTES]), token(12)].concat();
        assert_eq!(read(&value), Some(vec![7, 0, 12]));
        assert_eq!(read(b""), Some(Vec::new()));
        assert_eq!(read(b"0000007"), None);
        assert_eq!(read(&value[1..]), None);
    }

    #[test]
    fn keys_are_told_apart() {
        let (one, all) = (key(0, Some(SiteId(2)), 3), key(1, None, 3));
        assert!(is_one(&one) && is_of_one_site(&one));
        assert!(is_one(&all) && !is_of_one_site(&all));
        assert!(!is_one(&Key::from("k3")));
    }
}
