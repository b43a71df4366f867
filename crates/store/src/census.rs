use bytes::{Buf, BufMut, Bytes, BytesMut};
use turnbuckle_core::{BadFrame, Chain, Meta};

/// What the newest version of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    /// The key has no version.
    #[default]
    Nothing,
    Value,
    Delete,
    /// A delete that is not to be forgotten yet, because a sibling of it is a value.
    DeleteBeside,
}

impl Kind {
    pub(crate) fn of<M: Meta>(chain: Option<&Chain<M>>) -> Kind {
        match chain {
            None => Kind::Nothing,
            Some(chain) if chain.newest().value.is_some() => Kind::Value,
            Some(chain) if M::SIBLINGS && chain.iter().any(|version| version.value.is_some()) => {
                Kind::DeleteBeside
            }
            Some(_) => Kind::Delete,
        }
    }
}

/// The number of keys that have a value, and the number of keys whose delete is remembered.
///
/// Both numbers saturate, because they begin with what was read from a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Census {
    pub live: u64,
    pub deleted: u64,
}

impl Census {
    /// A key was of kind `was` and is now of kind `is`.
    pub(crate) fn change(&mut self, was: Kind, is: Kind) {
        if was == is {
            return;
        }
        if let Some(count) = self.count(was) {
            *count = count.saturating_sub(1);
        }
        self.add(is);
    }

    pub(crate) fn add(&mut self, kind: Kind) {
        if let Some(count) = self.count(kind) {
            *count = count.saturating_add(1);
        }
    }

    /// Subtracts keys that are gone.
    pub(crate) fn subtract(&mut self, gone: Census) {
        self.live = self.live.saturating_sub(gone.live);
        self.deleted = self.deleted.saturating_sub(gone.deleted);
    }

    fn count(&mut self, kind: Kind) -> Option<&mut u64> {
        match kind {
            Kind::Nothing | Kind::DeleteBeside => None,
            Kind::Value => Some(&mut self.live),
            Kind::Delete => Some(&mut self.deleted),
        }
    }

    pub(crate) fn encode(self) -> Bytes {
        let mut out = BytesMut::with_capacity(16);
        out.put_u64(self.live);
        out.put_u64(self.deleted);
        out.freeze()
    }

    /// Decodes a row. Rows that were written before deletes were counted have only one number.
    pub(crate) fn decode(mut row: Bytes) -> Result<Census, BadFrame> {
        let bytes = row.len();
        let mut next = || row.try_get_u64().unwrap_or(0);
        match bytes {
            8 | 16 => Ok(Census {
                live: next(),
                deleted: next(),
            }),
            _ => Err(BadFrame::new("counts of 8 or 16 bytes", format!("{bytes} bytes"))),
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
    fn a_row_of_one_number_is_read_and_others_are_refused() {
        let census = Census { live: 3, deleted: 4 };
        assert_eq!(Census::decode(census.encode()).ok(), Some(census));
        let old = Bytes::copy_from_slice(&3_u64.to_be_bytes());
        assert_eq!(Census::decode(old).ok(), Some(Census { live: 3, deleted: 0 }));
        assert!(Census::decode(Bytes::from_static(b"123")).is_err());
    }
}
