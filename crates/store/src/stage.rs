use crate::checkpoint::put_chain;
use crate::place::{Area, row_key};
use crate::store::{after, read_row};
use crate::{EngineError, Snapshot, StoreError, Table, TableWrite};
use bytes::{Bytes, BytesMut};
use turnbuckle_core::{Chain, Key, Meta};

/// Some rows of a table in the order of [`crate::compare_rows`].
#[derive(Debug, Clone)]
pub struct RowPage<M> {
    /// Keys and all their versions. They may share memory with the engine's blocks: do not keep them.
    pub rows: Vec<(Key, Chain<M>)>,
    /// Where the next page begins, or `None` if there are no more rows.
    pub next: Option<RowCursor>,
}

/// Where the next page of rows begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowCursor(Bytes);

/// The most rows, and bytes, that are removed in one batch.
const CLEAR_ROWS: usize = 4096;
const CLEAR_BYTES: usize = 4 << 20;

/// Rows of a table's snapshot, i.e. of the last checkpoint: a full copy sends them. As many as fit into `max_rows` and
/// `max_bytes`, but at least one if there is one.
pub fn rows<M: Meta>(
    snapshot: &dyn Snapshot,
    from: Option<&RowCursor>,
    max_rows: usize,
    max_bytes: usize,
) -> Result<RowPage<M>, StoreError> {
    page(Area::Rows, snapshot, from, max_rows, max_bytes)
}

/// Writes rows of a full copy that is coming in beside the table's own rows. A row that was staged before for the same
/// key is replaced. They are there after a restart if the engine has persisted them.
pub fn stage<M: Meta>(table: &dyn Table, rows: &[(Key, Chain<M>)]) -> Result<(), EngineError> {
    let writes = rows.iter().map(|(key, chain)| {
        let mut row = BytesMut::new();
        put_chain(&mut row, key.as_ref(), chain);
        TableWrite::put(row_key(Area::Staged, key.as_ref()), row.freeze())
    });
    table.apply(writes.collect())
}

/// Staged rows, in the same form as [`rows`].
pub fn staged_rows<M: Meta>(
    snapshot: &dyn Snapshot,
    from: Option<&RowCursor>,
    max_rows: usize,
    max_bytes: usize,
) -> Result<RowPage<M>, StoreError> {
    page(Area::Staged, snapshot, from, max_rows, max_bytes)
}

/// Removes all staged rows. It does so in batches: after a crash in between, some rows are left.
pub fn clear_staged(table: &dyn Table) -> Result<(), EngineError> {
    while clear_some_staged(table, CLEAR_ROWS)? {}
    Ok(())
}

/// Removes up to `max_rows` staged rows. Returns whether there are more.
pub fn clear_some_staged(table: &dyn Table, max_rows: usize) -> Result<bool, EngineError> {
    let (from, until) = (Area::Staged.start(), Area::Staged.end());
    let max_rows = max_rows.clamp(1, CLEAR_ROWS);
    let rows = table.snapshot()?.range(&from, &until, max_rows, CLEAR_BYTES)?;
    if rows.is_empty() {
        return Ok(false);
    }
    table.apply(rows.into_iter().map(|(key, _)| TableWrite::delete(key)).collect())?;
    Ok(true)
}

fn page<M: Meta>(
    area: Area,
    snapshot: &dyn Snapshot,
    from: Option<&RowCursor>,
    max_rows: usize,
    max_bytes: usize,
) -> Result<RowPage<M>, StoreError> {
    let from = from.map_or_else(|| area.start(), |cursor| cursor.0.clone());
    let found = snapshot.range(&from, &area.end(), max_rows, max_bytes)?;
    let next = found.last().map(|(last, _)| RowCursor(after(last)));
    let rows = found.into_iter().map(|(key, value)| {
        let row = read_row::<M>(&key, value, false)?;
        Ok((row.key, row.chain))
    });
    Ok(RowPage {
        rows: rows.collect::<Result<_, StoreError>>()?,
        next,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, MemoryEngine, Options, Store, compare_rows};
    use std::sync::Arc;
    use turnbuckle_core::{Hlc, ReplicaId, Version, VersionId};

    fn row(n: u64) -> (Key, Chain<()>) {
        let id = VersionId {
            at: Hlc(n),
            replica: ReplicaId(1),
        };
        let content = Bytes::from(vec![n as u8; 10]).into();
        let long = if n.is_multiple_of(7) {
            "x".repeat(2000)
        } else {
            String::new()
        };
        (
            Key::from(format!("{n}{long}").as_str()),
            Chain::new(Version {
                id,
                content,
                meta: (),
            }),
        )
    }

    #[test]
    fn staged_rows_come_back_in_order_are_no_keys_and_can_be_cleared() {
        let engine = MemoryEngine::new();
        let table = engine.open_table("t").expect("memory works");
        let mut staged: Vec<(Key, Chain<()>)> = (0..100).map(row).collect();
        stage(&*table, &staged).expect("memory works");
        staged.sort_by(|one, other| compare_rows(one.0.as_ref(), other.0.as_ref()));
        let snapshot = table.snapshot().expect("memory works");
        let mut found = Vec::new();
        let mut from = None;
        loop {
            let page = staged_rows::<()>(&*snapshot, from.as_ref(), 7, usize::MAX).expect("memory works");
            found.extend(page.rows);
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        assert_eq!(found, staged);
        assert!(
            rows::<()>(&*snapshot, None, 7, 999)
                .expect("memory works")
                .rows
                .is_empty()
        );
        let options = Options {
            memory_limit_bytes: 1 << 20,
            history: true,
            short_lived: crate::SHORT_LIVED,
            hash_seed: 1,
        };
        let (store, _) = Store::<()>::open(Arc::clone(&table), options).expect("memory works");
        assert_eq!(store.resident_keys(), 0);
        clear_staged(&*table).expect("memory works");
        let snapshot = table.snapshot().expect("memory works");
        assert!(
            staged_rows::<()>(&*snapshot, None, 7, 999)
                .expect("memory works")
                .rows
                .is_empty()
        );
    }

    #[test]
    fn a_damaged_row_is_an_error_wherever_it_is_met() {
        let engine = MemoryEngine::new();
        let table = engine.open_table("t").expect("memory works");
        let (key, _) = row(1);
        let damaged = TableWrite::put(row_key(Area::Rows, key.as_ref()), Bytes::from_static(b"\x01junk"));
        table.apply(vec![damaged]).expect("memory works");
        let options = Options {
            memory_limit_bytes: 1 << 20,
            history: true,
            short_lived: crate::SHORT_LIVED,
            hash_seed: 1,
        };
        let opened = Store::<()>::open(Arc::clone(&table), options).map(|_| ());
        assert!(matches!(opened, Err(StoreError::BadRow { .. })), "{opened:?}");
        let nothing = Options {
            memory_limit_bytes: 0,
            ..options
        };
        let (store, _) = Store::<()>::open(Arc::clone(&table), nothing).expect("it reads no rows");
        let fetched = Store::<()>::fetch(&*table, &key, store.epoch()).map(|_| ());
        assert!(matches!(fetched, Err(StoreError::BadRow { .. })), "{fetched:?}");
        let scanned =
            crate::scan_rows::<()>(&*table, 0..1 << 14, 0, 10, store.epoch(), Hlc::LATEST).map(|_| ());
        assert!(matches!(scanned, Err(StoreError::BadRow { .. })), "{scanned:?}");
        engine.set_failing(true);
        let fetched = Store::<()>::fetch(&*table, &key, store.epoch()).map(|_| ());
        assert!(matches!(fetched, Err(StoreError::Engine(_))), "{fetched:?}");
    }
}
