//! Rows of a full copy, which arrives frame by frame.
use std::cmp::Ordering;
use turnbuckle_core::{BadFrame, Chain, Key, Meta, Version};
use turnbuckle_store::compare_rows;

/// The largest row of a copy, in bytes: all versions of a key.
const MAX_ROW_BYTES: usize = 1 << 30;

/// What a version counts beside its own bytes, in bytes.
const VERSION_BYTES: usize = 128;

/// The rows of a full copy, as they arrive.
pub(crate) struct RowsIn<M> {
    open: Option<OpenRow<M>>,
}

/// The last row so far. The next frame may have more versions of it.
struct OpenRow<M> {
    key: Key,
    versions: Vec<Version<M>>,
    bytes: usize,
}

impl<M: Meta> RowsIn<M> {
    pub fn new() -> RowsIn<M> {
        RowsIn { open: None }
    }

    /// Drops the open row: another copy begins, or none is under way any more.
    pub fn clear(&mut self) {
        self.open = None;
    }

    /// Takes the next version. If it begins another row, returns the row before it. Rows come in the engine's order, each once: a second
    /// part of a row would replace the part that is staged.
    ///
    /// # Errors
    /// If the rows are in another order, or a row is larger than any row may be.
    pub fn take(
        &mut self,
        key: Key,
        version: Version<M>,
        bytes: usize,
    ) -> Result<Option<(Key, Chain<M>)>, BadFrame> {
        let bytes = bytes + VERSION_BYTES;
        if let Some(open) = self.open.as_mut().filter(|open| open.key == key) {
            open.versions.push(version);
            open.bytes += bytes;
            return match open.bytes > MAX_ROW_BYTES {
                true => Err(BadFrame::new("a key whose versions take at most 1 GiB", "more")),
                false => Ok(None),
            };
        }
        let open = self.open.as_ref();
        let order = open.map(|open| compare_rows(open.key.as_ref(), key.as_ref()));
        if order.is_some_and(|order| order != Ordering::Less) {
            let found = key.to_string();
            return Err(BadFrame::new("rows of a full copy in their order", found));
        }
        let versions = vec![version];
        let before = self.open.replace(OpenRow { key, versions, bytes });
        Ok(before.map(OpenRow::close))
    }

    /// There are no more versions: returns the last row.
    pub fn end(&mut self) -> Option<(Key, Chain<M>)> {
        self.open.take().map(OpenRow::close)
    }
}

impl<M: Meta> OpenRow<M> {
    /// The row as it is stored.
    fn close(self) -> (Key, Chain<M>) {
        let OpenRow {
            key, mut versions, ..
        } = self;
        // Sorted oldest first, so that each version is put at the end of the chain.
        versions.sort_unstable_by_key(Version::rank);
        let mut versions = versions.into_iter();
        let mut chain = Chain::new(versions.next().expect("a row begins with a version"));
        for version in versions {
            chain.insert(version);
        }
        (key, chain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::{Content, Hlc, ReplicaId, VersionId};

    fn version(at: u64) -> Version<()> {
        let replica = ReplicaId(0);
        Version {
            id: VersionId { at: Hlc(at), replica },
            content: Content::DELETE,
            meta: (),
        }
    }

    #[test]
    fn a_row_may_go_on_in_the_next_frame_and_no_row_comes_twice() {
        let (mut rows, x, y) = (RowsIn::new(), Key::from("x"), Key::from("y"));
        let [first, second] = match compare_rows(x.as_ref(), y.as_ref()) {
            Ordering::Less => [x, y],
            _ => [y, x],
        };
        for at in [3, 5] {
            assert_eq!(rows.take(first.clone(), version(at), 1).expect("in order"), None);
        }
        let (key, chain) = rows
            .take(second.clone(), version(9), 1)
            .expect("in order")
            .expect("a row");
        assert_eq!((key, chain.newest().id.at), (first.clone(), Hlc(5)));
        assert!(rows.take(first, version(7), 1).is_err());
        assert_eq!(rows.end().expect("the last one").0, second);
    }
}
