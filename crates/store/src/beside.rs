//! What a protocol keeps beside its versions: the entries of its journal, and state by name.
//!
//! ```text
//!   j  index (8 bytes, the highest first)  -> entry
//!   k  name                                -> state
//! ```
//!
//! Each has a row of its own, so that a checkpoint writes only what has changed. All of it is read when the table is
//! opened, and is in memory from then on. A store of versions does not use it.
use crate::place::Area;
use crate::salvage::Pages;
use crate::{EngineError, Snapshot, StoreError, Table, TableWrite};
use bytes::{BufMut, Bytes, BytesMut};
use turnbuckle_core::BadFrame;

/// Everything that a table has of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beside {
    /// The journal's entries, by index.
    pub journal: Vec<(u64, Bytes)>,
    /// The state, by name.
    pub named: Vec<(String, Bytes)>,
}

impl Beside {
    /// Reads all of it from a table.
    ///
    /// # Errors
    /// If the engine fails, or if a row was not written by [`write_entry`] or [`write_named`].
    pub fn read(table: &dyn Table) -> Result<Beside, StoreError> {
        let mut beside = Beside::default();
        for (key, value) in rows_beside(&*table.snapshot()?)? {
            let name = key.slice(1..);
            match key.first() {
                Some(&area) if area == Area::Journal as u8 => {
                    let index = <[u8; 8]>::try_from(&*name);
                    let index = index.map_err(|_| bad("the index of a journal's entry", &key))?;
                    beside.journal.push((u64::from_be_bytes(index), value));
                }
                _ => {
                    let name = String::from_utf8(name.to_vec());
                    let name = name.map_err(|_| bad("the name of a protocol's state", &key))?;
                    beside.named.push((name, value));
                }
            }
        }
        Ok(beside)
    }
}

fn bad(expected: &'static str, key: &Bytes) -> StoreError {
    let row = key.escape_ascii().to_string();
    let source = BadFrame::new(expected, row.clone());
    StoreError::BadRow { row, source }
}

/// The write that puts an entry of a journal under its index, or removes it.
pub fn write_entry(index: u64, entry: Option<Bytes>) -> TableWrite {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(Area::Journal as u8);
    key.put_u64(index);
    write(key, entry)
}

/// The write that puts a state under its name, or removes it.
pub fn write_named(name: &str, bytes: Option<Bytes>) -> TableWrite {
    let mut key = BytesMut::with_capacity(1 + name.len());
    key.put_u8(Area::Named as u8);
    key.put_slice(name.as_bytes());
    write(key, bytes)
}

fn write(key: BytesMut, value: Option<Bytes>) -> TableWrite {
    match value {
        Some(value) => TableWrite::put(key.freeze(), value),
        None => TableWrite::delete(key.freeze()),
    }
}

/// The rows of both areas as they are in the table. Damage is an error: half a journal is of no use.
pub(crate) fn rows_beside(snapshot: &dyn Snapshot) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
    let mut rows = Vec::new();
    for area in [Area::Journal, Area::Named] {
        let mut pages = Pages::new(snapshot, &area.start(), &area.end()).stopping_at_gaps();
        while let Some(page) = pages.next()? {
            rows.extend(page);
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, MemoryEngine};

    #[test]
    fn what_is_written_is_read_in_order_and_nothing_else_is() {
        let table = MemoryEngine::new().open_table("t").expect("memory works");
        let entry = |index: u64| Bytes::from(vec![1; index as usize % 7]);
        let mut writes: Vec<_> = (0..3000).rev().map(|n| write_entry(n, Some(entry(n)))).collect();
        writes.push(write_named("", Some(Bytes::from("empty"))));
        writes.push(write_named("vote", Some(Bytes::from("7"))));
        writes.push(write_named("gone", Some(Bytes::from("8"))));
        writes.push(TableWrite::put(Area::Meta.start(), Bytes::from("meta")));
        writes.push(TableWrite::put(Area::Rows.start(), Bytes::from("row")));
        table.apply(writes).expect("memory works");
        let removed = vec![write_entry(5, None), write_named("gone", None)];
        table.apply(removed).expect("memory works");
        let beside = Beside::read(&*table).expect("all of it is sound");
        let journal: Vec<_> = (0..3000).filter(|&n| n != 5).map(|n| (n, entry(n))).collect();
        assert_eq!(beside.journal, journal);
        let named =
            [("", "empty"), ("vote", "7")].map(|(name, bytes)| (name.to_string(), Bytes::from(bytes)));
        assert_eq!(beside.named, named);
    }

    #[test]
    fn a_row_that_is_none_of_them_is_an_error() {
        for (key, expected) in [(&b"jx"[..], "index"), (b"k\xff", "name")] {
            let table = MemoryEngine::new().open_table("t").expect("memory works");
            let write = TableWrite::put(Bytes::from_static(key), Bytes::new());
            table.apply(vec![write]).expect("memory works");
            let error = Beside::read(&*table).expect_err("it is none").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
