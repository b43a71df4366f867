use bytes::{BufMut, Bytes, BytesMut};
use sha2::{Digest, Sha256};
use siphasher::sip::SipHasher13;
use std::cmp::Ordering;
use turnbuckle_core::{Key, hash_slot};

/// The place of a key in the order of rows: its hash slot, then 48 bits of a hash of the key.
///
/// The engine keeps rows in this order. So a slot is one range of rows, a scan's cursor is one integer, and the
/// neighbours of a key say nothing about it. Two keys may have the same place; a page never separates them.
///
/// The hash is SipHash-1-3 with the key zero. Its specification never changes, so it may be stored on disks (foldhash
/// and ahash promise nothing from one version to the next). Unlike xxh3 it cannot be inverted, so no client can make a
/// million keys with one place, which one scan would have to list together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place(pub u64);

impl Place {
    const HASH_BITS: u32 = 48;

    /// The place of a key.
    pub fn of(key: &[u8]) -> Place {
        let hash = SipHasher13::new().hash(key) >> (64 - Place::HASH_BITS);
        Place(u64::from(hash_slot(key)) << Place::HASH_BITS | hash)
    }

    /// The first place of a hash slot.
    pub fn first_of(slot: u16) -> Place {
        Place(u64::from(slot) << Place::HASH_BITS)
    }

    /// The hash slot.
    pub fn slot(self) -> u16 {
        (self.0 >> Place::HASH_BITS) as u16
    }
}

/// The part of a table that a row belongs to: the first byte of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Area {
    /// The mark that rows are missing since the table was salvaged: one row.
    Damaged = b'd',
    /// A protocol's journal: one row per entry, by its index.
    Journal = b'j',
    /// A protocol's own state: one row per name.
    Named = b'k',
    /// The opaque meta of the last finished checkpoint: one row.
    Meta = b'm',
    /// The numbers of rows that are values and that are deletes: one row, written in one batch with them.
    Count = b'n',
    /// One row per key.
    Rows = b'r',
    /// Rows of a full copy that is coming in.
    Staged = b's',
    /// One row without a value per tombstone: its timestamp, site, and row.
    Tombstones = b't',
}

impl Area {
    /// The key of an area's only row, or the beginning of its rows.
    pub(crate) fn start(self) -> Bytes {
        Bytes::copy_from_slice(&[self as u8])
    }

    /// The key behind the area's last row.
    pub(crate) fn end(self) -> [u8; 1] {
        [self as u8 + 1]
    }

    /// The beginning of the rows whose place is at least `place`.
    pub(crate) fn from(self, place: Place) -> Bytes {
        let mut start = BytesMut::with_capacity(9);
        start.put_u8(self as u8);
        start.put_u64(place.0);
        start.freeze()
    }
}

/// A longer key is stored in the row's value, and a digest of it in the row's key: engines take keys of 65,535 bytes at
/// most, and copy them into their indexes. In bytes.
pub(crate) const LONGEST_PLAIN_KEY_BYTES: usize = 1024;

/// Appends what orders a key's row: its place, then 0 and the key or, for a long key, 1 and its SHA-256.
pub(crate) fn put_row_key(out: &mut BytesMut, key: &[u8]) {
    out.put_u64(Place::of(key).0);
    if key.len() <= LONGEST_PLAIN_KEY_BYTES {
        out.put_u8(0);
        out.put_slice(key);
    } else {
        out.put_u8(1);
        out.put_slice(&Sha256::digest(key));
    }
}

/// The key of a key's row in an area that is ordered by place.
pub(crate) fn row_key(area: Area, key: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(10 + key.len().min(LONGEST_PLAIN_KEY_BYTES));
    out.put_u8(area as u8);
    put_row_key(&mut out, key);
    out.freeze()
}

/// The order in which rows of keys are stored in a table and returned by [`crate::rows`] and [`crate::staged_rows`].
pub fn compare_rows(one: &[u8], other: &[u8]) -> Ordering {
    Place::of(one)
        .cmp(&Place::of(other))
        .then_with(|| row_key(Area::Rows, one).cmp(&row_key(Area::Rows, other)))
}

/// The parts of a row's key behind the area: its place and, unless it is a long one, the key.
pub(crate) fn split_row_key(row: &Bytes) -> Option<(Place, Option<Key>)> {
    let place = Place(u64::from_be_bytes(row.get(..8)?.try_into().ok()?));
    match row.get(8)? {
        0 => Some((place, Some(Key(row.slice(9..))))),
        1 if row.len() == 9 + 32 => Some((place, None)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_on_disks() {
        // Computed by a Python implementation of the paper.
        for (key, expected) in [
            (&b"a"[..], 0x3C87_4074_48D2_B89B),
            (b"foo", 0x2F96_6A5C_DCAD_01C9),
            (b"123456789", 0x31C3_0FBC_0F00_0796),
        ] {
            assert_eq!(Place::of(key).0, expected, "{:?}", key.escape_ascii().to_string());
        }
    }

    #[test]
    fn rows_lie_in_the_order_that_is_told() {
        let keys = (0..300).map(|n| match n % 3 {
            0 => vec![b'x'; 1000 + n],
            1 => format!("{{tag}}{n}").into_bytes(),
            _ => format!("{n}").into_bytes(),
        });
        let mut keys: Vec<Vec<u8>> = keys.collect();
        keys.sort_by(|one, other| compare_rows(one, other));
        assert!(keys.is_sorted_by_key(|key| row_key(Area::Rows, key)));
        assert!(keys.is_sorted_by_key(|key| hash_slot(key)));
    }
}
