use crate::checkpoint::put_chain;
use crate::place::{Area, row_key};
use crate::store::{after, read_row};
use crate::{EngineError, Snapshot, StoreError, Table, TableWrite};
use bytes::{Bytes, BytesMut};
use turnbuckle_core::{Chain, Key, Wire};

/// Some rows of a table in the order of [`crate::compare_rows`].
#[derive(Debug, Clone)]
pub struct RowPage<M> {
    /// Keys and all their versions. They may share memory with the engine's blocks: do not keep them.
    pub rows: Vec<(Key, Chain<M>)>,
    /// Where to go on, or `None` if there are no more.
    pub next: Option<RowCursor>,
}

/// Where the next page of rows begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowCursor(Bytes);

/// Rows per page that are removed at once.
const CLEAR_ROWS: usize = 4096;
const CLEAR_BYTES: usize = 4 << 20;

/// Rows of a table's snapshot, i.e. of the last checkpoint: what a full copy sends. At least one if there is one, as
/// many as fit into `most_bytes`.
pub fn rows<M: Wire>(
    snapshot: &dyn Snapshot,
    from: Option<&RowCursor>,
    most_rows: usize,
    most_bytes: usize,
) -> Result<RowPage<M>, StoreError> {
    page(Area::Rows, snapshot, from, most_rows, most_bytes)
}

/// Writes rows of a full copy that is coming in beside those that count; a row staged before for the same key is
/// replaced. They are there after a restart if the engine persisted them.
pub fn stage<M: Wire>(table: &dyn Table, rows: &[(Key, Chain<M>)]) -> Result<(), EngineError> {
    let writes = rows.iter().map(|(key, chain)| {
        let mut row = BytesMut::new();
        put_chain(&mut row, key.as_ref(), chain);
        TableWrite::put(row_key(Area::Staged, key.as_ref()), row.freeze())
    });
    table.apply(writes.collect())
}

/// Rows that were staged, like [`rows`].
pub fn staged_rows<M: Wire>(
    snapshot: &dyn Snapshot,
    from: Option<&RowCursor>,
    most_rows: usize,
    most_bytes: usize,
) -> Result<RowPage<M>, StoreError> {
    page(Area::Staged, snapshot, from, most_rows, most_bytes)
}

/// Removes all staged rows. Not at once, but in batches; after a crash in between, some are left.
pub fn clear_staged(table: &dyn Table) -> Result<(), EngineError> {
    loop {
        let snapshot = table.snapshot()?;
        let rows = snapshot.range(
            &Area::Staged.start(),
            &Area::Staged.end(),
            CLEAR_ROWS,
            CLEAR_BYTES,
        )?;
        if rows.is_empty() {
            return Ok(());
        }
        table.apply(rows.into_iter().map(|(key, _)| TableWrite::delete(key)).collect())?;
    }
}

fn page<M: Wire>(
    area: Area,
    snapshot: &dyn Snapshot,
    from: Option<&RowCursor>,
    most_rows: usize,
    most_bytes: usize,
) -> Result<RowPage<M>, StoreError> {
    let from = from.map_or_else(|| area.start(), |cursor| cursor.0.clone());
    let found = snapshot.range(&from, &area.end(), most_rows, most_bytes)?;
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
