use bytes::{Buf, BufMut, Bytes, BytesMut};
use turnbuckle_core::{BadFrame, Chain, Meta, Shown};

/// What the newest version of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    /// The key has no version.
    #[default]
    Nothing,
    Value,
    /// A value that expires at some time, or has expired: it may be forgotten, as a delete may.
    Expiring,
    Delete,
    /// A delete that is not to be forgotten, because a sibling of it is a value.
    DeleteBeside,
}

impl Kind {
    pub(crate) fn of<M: Meta>(chain: Option<&Chain<M>>) -> Kind {
        let Some(chain) = chain else {
            return Kind::Nothing;
        };
        if chain.concerns_shares() {
            return Kind::of_shares(&Shown::all(Some(chain)));
        }
        let newest = &chain.newest().content;
        if !newest.is_delete() {
            // Siblings never expire.
            return match newest.until().filter(|_| !M::SIBLINGS) {
                Some(_) => Kind::Expiring,
                None => Kind::Value,
            };
        }
        match M::SIBLINGS && chain.iter().any(|version| !version.content.is_delete()) {
            true => Kind::DeleteBeside,
            false => Kind::Delete,
        }
    }

    /// The kind of a key that has shares.
    fn of_shares<M: Meta>(shown: &Shown<'_, M>) -> Kind {
        match shown.gone() {
            None => Kind::Value,
            Some(gone) if gone.at > shown.stamped() && shown.has_value(shown.stamped()) => Kind::Expiring,
            Some(_) => Kind::Delete,
        }
    }

    /// Whether there is a line in the index of what may be forgotten.
    pub(crate) fn has_line(self) -> bool {
        matches!(self, Kind::Expiring | Kind::Delete)
    }

    /// A number below eight: see [`Kind::numbered`].
    pub(crate) fn number(self) -> u8 {
        self as u8
    }

    /// The kind of this number.
    pub(crate) fn numbered(number: u8) -> Kind {
        let all = [
            Kind::Nothing,
            Kind::Value,
            Kind::Expiring,
            Kind::Delete,
            Kind::DeleteBeside,
        ];
        all.get(usize::from(number)).copied().unwrap_or_default()
    }
}

/// The number of keys that have a value, the number of those whose value expires at some time or has expired, and the number of keys whose delete is
/// remembered.
///
/// The numbers saturate, because they begin with what was read from a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Census {
    pub live: u64,
    pub expiring: u64,
    pub deleted: u64,
}

impl Census {
    /// A key was of kind `was` and is now of kind `is`.
    pub(crate) fn change(&mut self, was: Kind, is: Kind) {
        if was == is {
            return;
        }
        for count in self.counts(was).into_iter().flatten() {
            *count = count.saturating_sub(1);
        }
        self.add(is);
    }

    pub(crate) fn add(&mut self, kind: Kind) {
        for count in self.counts(kind).into_iter().flatten() {
            *count = count.saturating_add(1);
        }
    }

    /// Subtracts keys that are gone.
    pub(crate) fn subtract(&mut self, gone: Census) {
        self.live = self.live.saturating_sub(gone.live);
        self.expiring = self.expiring.saturating_sub(gone.expiring);
        self.deleted = self.deleted.saturating_sub(gone.deleted);
    }

    fn counts(&mut self, kind: Kind) -> [Option<&mut u64>; 2] {
        match kind {
            Kind::Nothing | Kind::DeleteBeside => [None, None],
            Kind::Value => [Some(&mut self.live), None],
            Kind::Expiring => [Some(&mut self.live), Some(&mut self.expiring)],
            Kind::Delete => [Some(&mut self.deleted), None],
        }
    }

    pub(crate) fn encode(self) -> Bytes {
        let mut out = BytesMut::with_capacity(24);
        out.put_u64(self.live);
        out.put_u64(self.deleted);
        out.put_u64(self.expiring);
        out.freeze()
    }

    /// Decodes a row. Rows that were written before deletes were counted have one number, and those from before values expired have two.
    pub(crate) fn decode(mut row: Bytes) -> Result<Census, BadFrame> {
        let bytes = row.len();
        let mut next = || row.try_get_u64().unwrap_or(0);
        match bytes {
            8 | 16 | 24 => Ok(Census {
                live: next(),
                deleted: next(),
                expiring: next(),
            }),
            _ => Err(BadFrame::new(
                "counts of 8, 16 or 24 bytes",
                format!("{bytes} bytes"),
            )),
        }
    }
}

impl FromIterator<Kind> for Census {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Census {
        let mut census = Census::default();
        kinds.into_iter().for_each(|kind| census.add(kind));
        census
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_or_two_numbers_are_read_and_others_are_refused() {
        let census = Census {
            live: 3,
            deleted: 4,
            expiring: 2,
        };
        assert_eq!(Census::decode(census.encode()).ok(), Some(census));
        let (deleted, expiring) = (0, 0);
        let old = Census::decode(census.encode().slice(..16));
        assert_eq!(old.ok(), Some(Census { expiring, ..census }));
        let oldest = Census::decode(census.encode().slice(..8));
        assert_eq!(
            oldest.ok(),
            Some(Census {
                live: 3,
                deleted,
                expiring
            })
        );
        assert!(Census::decode(Bytes::from_static(b"123")).is_err());
    }
}
