use crate::place::{Place, split_row_key};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use turnbuckle_core::{
    BadFrame, Chain, Hlc, Key, Meta, Micros, Rank, ReplicaId, ReplicaSet, SharesRecord, Version, VersionId,
};

/// The first byte of every row. If the format behind it changes, it becomes another number.
const FORMAT: u8 = 1;
/// The first byte of a row in which some value expires.
const EXPIRING: u8 = 2;
/// The first byte of a row in which the expiry of some value was changed.
const RETIMED: u8 = 3;
/// The first byte of a row in which some version is a count, or has seen counts.
const COUNTED: u8 = 4;

/// The content of a row, and what its key says.
pub(crate) struct Row<M> {
    pub place: Place,
    pub key: Key,
    pub chain: Chain<M>,
}

/// Appends the value of a row:
///
/// ```text
///   format | length of the key, 0 unless it is a long one | key
///   then for each version, newest first:
///   hlc, 8 bytes | site, 2 bytes | length of the value + 1, or 0 for a delete | value | length of the meta | meta
/// ```
///
/// In a row in which some value expires, each value is followed by when it expires: microseconds since 1970 + 1, or 0 for never. In a row in which the expiry
/// of some value was changed, that is followed by the hlc and site of the version that wrote the value, or by eight and two bytes of 0 if that is this version.
///
/// In a row with shares, all of that follows each version, also without a value; the site of a version that is its own base is then 65535. Behind it is what the version says of shares:
/// the length of its [`SharesRecord`], or 0, and the record.
///
/// Lengths and times of expiry are LEB128, the rest big endian.
pub(crate) fn put_row<'a, M: Meta>(
    out: &mut BytesMut,
    long_key: Option<&[u8]>,
    versions: impl Iterator<Item = &'a Version<M>> + Clone,
) {
    let mut contents = versions.clone().map(|version| &version.content);
    let format = if contents.clone().any(SharesRecord::is_needed) {
        COUNTED
    } else if contents.clone().any(|content| content.base().is_some()) {
        RETIMED
    } else if contents.any(|content| content.until().is_some()) {
        EXPIRING
    } else {
        FORMAT
    };
    out.put_u8(format);
    put_length(out, long_key.map_or(0, <[u8]>::len));
    out.put_slice(long_key.unwrap_or_default());
    let mut meta = BytesMut::new();
    for version in versions {
        put_id(out, version.id);
        let value = version.content.stored();
        put_length(out, value.map_or(0, |value| value.len() + 1));
        out.put_slice(value.map_or(&[][..], |value| value));
        let has_more = value.is_some() || format == COUNTED;
        if has_more && format >= EXPIRING {
            let until = version.content.until();
            put_number(out, until.map_or(0, |until| until.0 + 1));
        }
        if has_more && format >= RETIMED {
            let own = if format == COUNTED {
                OWN
            } else {
                VersionId::default()
            };
            put_id(out, version.content.base().unwrap_or(own));
        }
        if format == COUNTED {
            let shares = SharesRecord::encoded(&version.content, version.id);
            put_length(out, shares.len());
            out.put_slice(&shares);
        }
        meta.clear();
        version.meta.encode(&mut meta);
        put_length(out, meta.len());
        out.put_slice(&meta);
    }
}

/// Decodes a row. `row_key` is the key of the engine's row without the area.
///
/// With `own`, all bytes are copied into memory of their own: a row that stays in memory must not keep a block of the
/// engine.
pub(crate) fn take_row<M: Meta>(row_key: &Bytes, value: Bytes, own: bool) -> Result<Row<M>, BadFrame> {
    let (place, plain_key) = split_row_key(row_key)
        .ok_or_else(|| BadFrame::new("a row's key", format!("{} bytes", row_key.len())))?;
    let mut rest = value;
    let format = take_u8(&mut rest)?;
    if !(FORMAT..=COUNTED).contains(&format) {
        return Err(BadFrame::new(
            "a row of format 1 to 4",
            format!("format {format}"),
        ));
    }
    let long_key = take_slice(&mut rest)?;
    let key = match plain_key {
        Some(key) if long_key.is_empty() => key,
        None if !long_key.is_empty() => Key(long_key),
        _ => return Err(BadFrame::new("a key in one place", "a key in two or none")),
    };
    let key = if own { key.compact() } else { key };
    let newest = take_version(&mut rest, own, format)?;
    if rest.is_empty() {
        let chain = Chain::new(newest);
        return Ok(Row { place, key, chain });
    }
    let mut versions = vec![newest];
    while !rest.is_empty() {
        versions.push(take_version(&mut rest, own, format)?);
    }
    if !versions.is_sorted_by(|newer, older| newer.rank() > older.rank()) {
        return Err(BadFrame::new("versions from new to old", "another order"));
    }
    let chain = Chain::newest_first(versions).expect("a row has a version");
    Ok(Row { place, key, chain })
}

fn take_version<M: Meta>(rest: &mut Bytes, own: bool, format: u8) -> Result<Version<M>, BadFrame> {
    let id = take_id(rest)?;
    let value = match take_length(rest)? {
        0 => None,
        length => Some(take_bytes(rest, length - 1)?),
    };
    let has_more = value.is_some() || format == COUNTED;
    let until = match has_more && format >= EXPIRING {
        true => take_number(rest)?.checked_sub(1).map(Micros),
        false => None,
    };
    let base = match format {
        COUNTED => take_base(rest)?,
        RETIMED if has_more => Some(take_id(rest)?).filter(|base| *base != VersionId::default()),
        _ => None,
    };
    let shares = match format == COUNTED {
        true => Some(take_slice(rest)?).filter(|shares| !shares.is_empty()),
        false => None,
    };
    let shares = shares.map(SharesRecord::decoded).transpose()?;
    // A share's base is none of its own.
    let base = base.filter(|base| *base != Rank::SHARES);
    base.map_or(Ok(()), |base| base.check_base_of(id))?;
    let content = SharesRecord::content(shares, id, value, until, base)?;
    let meta = take_slice(rest)?;
    let (content, meta) = match own {
        true => (content.compact(), Bytes::copy_from_slice(&meta)),
        false => (content, meta),
    };
    let meta = M::decode(meta)?;
    let version = Version { id, content, meta };
    version.check()?;
    Ok(version)
}

fn put_id(out: &mut BytesMut, id: VersionId) {
    out.put_u64(id.at.0);
    out.put_u16(id.replica.0);
}

/// Stands for the base of a version that is its own, in a row with counts.
const OWN: VersionId = VersionId {
    at: Hlc::ZERO,
    replica: ReplicaId(u16::MAX),
};

/// The base of a version, in a row with counts.
fn take_base(rest: &mut Bytes) -> Result<Option<VersionId>, BadFrame> {
    let mut own = [0; 10];
    own[8..].copy_from_slice(&OWN.replica.0.to_be_bytes());
    match rest.starts_with(&own) {
        true => {
            rest.advance(own.len());
            Ok(None)
        }
        false => take_id(rest).map(Some),
    }
}

fn take_id(rest: &mut Bytes) -> Result<VersionId, BadFrame> {
    if rest.len() < 10 {
        return Err(BadFrame::new("a version", format!("{} bytes", rest.len())));
    }
    let id = VersionId {
        at: Hlc(rest.get_u64()),
        replica: ReplicaId(rest.get_u16()),
    };
    match id.replica.0 >= ReplicaSet::MAX {
        true => Err(BadFrame::replica(id.replica.0.into())),
        false => Ok(id),
    }
}

pub(crate) fn put_length(out: &mut BytesMut, length: usize) {
    put_number(out, length as u64);
}

fn put_number(out: &mut BytesMut, number: u64) {
    let mut rest = number;
    while rest >= 0x80 {
        out.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

fn take_u8(rest: &mut Bytes) -> Result<u8, BadFrame> {
    if rest.is_empty() {
        return Err(BadFrame::new("one more byte", "the end"));
    }
    Ok(rest.get_u8())
}

fn take_length(rest: &mut Bytes) -> Result<usize, BadFrame> {
    let length = take_number(rest)?;
    usize::try_from(length).map_err(|_| BadFrame::new("a length", length.to_string()))
}

fn take_number(rest: &mut Bytes) -> Result<u64, BadFrame> {
    let mut number = 0_u64;
    for shift in (0..63).step_by(7) {
        let byte = take_u8(rest)?;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(BadFrame::new("a number of at most 63 bits", "a longer one"))
}

fn take_bytes(rest: &mut Bytes, length: usize) -> Result<Bytes, BadFrame> {
    if length > rest.len() {
        return Err(BadFrame::new(
            "as many bytes as said",
            format!("{} of {length}", rest.len()),
        ));
    }
    Ok(rest.split_to(length))
}

fn take_slice(rest: &mut Bytes) -> Result<Bytes, BadFrame> {
    let length = take_length(rest)?;
    take_bytes(rest, length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{Area, row_key};
    use turnbuckle_core::Content;

    fn chain(versions: &[(u64, u16, Option<&'static [u8]>)]) -> Chain<Note> {
        let mut versions = versions.iter().map(|&(at, replica, value)| Version {
            id: VersionId {
                at: Hlc(at),
                replica: ReplicaId(replica),
            },
            content: value.map(Bytes::from_static).into(),
            meta: Note(at as u8),
        });
        let mut chain = Chain::new(versions.next().expect("a chain has a version"));
        versions.for_each(|version| {
            chain.insert(version);
        });
        chain
    }

    /// The same chain, with values that expire beside one that does not.
    fn expiring(chain: Chain<Note>) -> Chain<Note> {
        let mut versions = chain.iter().cloned().enumerate().map(|(place, version)| {
            let until = [Some(Micros(0)), Some(Micros(u64::MAX >> 1)), None][place % 3];
            let value = version.content.stored().cloned();
            let content = value.map_or(Content::DELETE, |value| Content::new(value, until));
            Version { content, ..version }
        });
        let mut chain = Chain::new(versions.next().expect("a chain has a version"));
        versions.for_each(|version| {
            chain.insert(version);
        });
        chain
    }

    /// Metadata that not every byte decodes to.
    #[derive(Debug, Clone, PartialEq)]
    struct Note(u8);

    impl Meta for Note {}

    impl turnbuckle_core::Wire for Note {
        fn encode(&self, out: &mut BytesMut) {
            out.put_u8(self.0);
        }

        fn decode(frame: Bytes) -> Result<Note, BadFrame> {
            match frame[..] {
                [note] => Ok(Note(note)),
                _ => Err(BadFrame::new("a note", format!("{} bytes", frame.len()))),
            }
        }

        fn newest(&self) -> Hlc {
            Hlc::ZERO
        }
    }

    /// The same chain, and a newest version that keeps a value of it for ever.
    fn retimed(chain: Chain<Note>) -> Chain<Note> {
        let mut chain = expiring(chain);
        let valued = chain.iter().find(|version| !version.content.is_delete());
        let valued = valued.expect("there is a value").clone();
        let value = valued.content.stored().cloned().unwrap_or_default();
        let at = Hlc(valued.id.at.0 + 0x50);
        chain.insert(Version {
            id: VersionId { at, ..valued.id },
            content: Content::with_base(value, None, Some(valued.id)),
            meta: Note(7),
        });
        chain
    }

    /// The same chain with two counts, below an expiry that has seen one of them.
    fn counted(mut chain: Chain<Note>) -> Chain<Note> {
        let at = chain.newest().id.at.0;
        let count = |total: &str, at: u64, replica: u16| Version {
            id: VersionId {
                at: Hlc(at),
                replica: ReplicaId(replica),
            },
            content: Content::sharing(turnbuckle_core::Share::from(turnbuckle_core::Count {
                since: Hlc(3),
                at: Hlc(at),
                total: total.parse().unwrap(),
            })),
            meta: Note(3),
        };
        let seen = turnbuckle_core::SeenCount {
            replica: ReplicaId(2),
            at: Hlc(at + 1),
            total: 12.into(),
        };
        chain.insert(count("12", at + 1, 2));
        chain.insert(count("-0.5", at + 3, 4));
        chain.insert(Version {
            id: VersionId {
                at: Hlc(at + 2),
                replica: ReplicaId(1),
            },
            content: Content::register(
                None,
                Some(Micros(9)),
                None,
                turnbuckle_core::Resets {
                    seen: vec![seen],
                    ..turnbuckle_core::Resets::default()
                },
            ),
            meta: Note(4),
        });
        chain
    }

    fn samples() -> Vec<(Vec<u8>, Chain<Note>)> {
        let several = chain(&[
            (9, 1, None),
            (8, 2, Some(b"two")),
            (8, 1, Some(b"")),
            (1, 1, Some(&[7; 200])),
        ]);
        vec![
            (b"key".to_vec(), chain(&[(5, 1, Some(b"value"))])),
            (Vec::new(), chain(&[(u64::MAX, ReplicaSet::MAX - 1, None)])),
            (b"key".to_vec(), several.clone()),
            (vec![b'k'; 2000], several.clone()),
            (b"key".to_vec(), expiring(several.clone())),
            (b"key".to_vec(), retimed(several.clone())),
            (b"key".to_vec(), counted(retimed(several))),
            (b"key".to_vec(), counted(chain(&[(0x40, 1, None)]))),
        ]
    }

    fn encoded(key: &[u8], chain: &Chain<Note>) -> (Bytes, Bytes) {
        let mut value = BytesMut::new();
        crate::checkpoint::put_chain(&mut value, key, chain);
        (row_key(Area::Rows, key).slice(1..), value.freeze())
    }

    #[test]
    fn a_row_comes_back_as_it_was() {
        for (key, chain) in samples() {
            let (row_key, value) = encoded(&key, &chain);
            for own in [false, true] {
                let row = take_row::<Note>(&row_key, value.clone(), own).expect("it was just encoded");
                assert_eq!((row.key.as_ref(), &row.chain), (&key[..], &chain));
                assert_eq!(row.place, Place::of(&key));
            }
        }
    }

    #[test]
    fn the_encoding_is_what_lies_on_disks() {
        let (row_key, value) = encoded(b"foo", &chain(&[(0x0102, 3, Some(b"ab")), (1, 1, None)]));
        // Slot 12182 as in Redis, then SipHash-1-3 of "foo" with the key zero.
        assert_eq!(row_key[..2], 12182_u16.to_be_bytes());
        assert_eq!(row_key[8..], *b"\0foo");
        let expected = b"\x01\0\0\0\0\0\0\0\x01\x02\0\x03\x03ab\x01\x02\0\0\0\0\0\0\0\x01\0\x01\0\x01\x01";
        assert_eq!(value, expected[..]);
        let (_, value) = encoded(
            b"foo",
            &expiring(chain(&[(0x0102, 3, Some(b"ab")), (1, 1, None)])),
        );
        let expected =
            b"\x02\0\0\0\0\0\0\0\x01\x02\0\x03\x03ab\x01\x01\x02\0\0\0\0\0\0\0\x01\0\x01\0\x01\x01";
        assert_eq!(value, expected[..]);
        let (_, value) = encoded(b"foo", &retimed(chain(&[(0x0102, 3, Some(b"ab"))])));
        let none = b"\0\0\0\0\0\0\0\0\0\0";
        let first = b"\x03\0\0\0\0\0\0\0\x01\x52\0\x03\x03ab\0\0\0\0\0\0\0\x01\x02\0\x03\x01\x07";
        let second = b"\0\0\0\0\0\0\x01\x02\0\x03\x03ab\x01";
        let expected = [&first[..], second, none, b"\x01\x02"].concat();
        assert_eq!(value, expected);
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_a_row_or_an_error() {
        let mut errors = 0;
        for (key, chain) in samples() {
            let (row_key, value) = encoded(&key, &chain);
            for length in 0..value.len() {
                // Cut between two versions, it is a row with fewer versions.
                let cut = take_row::<Note>(&row_key, value.slice(..length), true);
                errors += usize::from(cut.is_err());
                assert!(cut.is_err() || cut.is_ok_and(|row| row.chain.len() < chain.len()));
            }
            for bit in 0..value.len() * 8 {
                let mut flipped = value.to_vec();
                flipped[bit / 8] ^= 1 << (bit % 8);
                errors += usize::from(take_row::<Note>(&row_key, flipped.into(), false).is_err());
            }
            for length in 0..row_key.len().min(9) {
                assert!(take_row::<Note>(&row_key.slice(..length), value.clone(), true).is_err());
            }
        }
        assert!(errors > 1000, "only {errors} damaged rows were noticed");
    }

    #[test]
    fn a_length_beyond_the_row_is_an_error_and_allocates_nothing() {
        let mut row = BytesMut::from(&b"\x01\0\0\0\0\0\0\0\0\x01\0\x01"[..]);
        put_length(&mut row, usize::MAX / 2);
        let row_key = row_key(Area::Rows, b"key").slice(1..);
        assert!(take_row::<Note>(&row_key, row.freeze(), true).is_err());
    }
}
