use crate::census::Kind;
use crate::entry::Entry;
use crate::place::{Area, LONGEST_PLAIN_KEY_BYTES, split_row_key};
use crate::store::after;
use crate::{EngineError, Store, StoreError, Table, TableWrite};
use bytes::{Buf, Bytes};
use turnbuckle_core::{BadFrame, Hlc, Key, Meta, ReplicaId, VersionId};

/// Some tombstones from the table's index, oldest first: the half of a collection that is done without the store's
/// lock.
#[derive(Debug, Clone)]
pub struct TombstonePage {
    lines: Vec<Line>,
    next: Option<TombstoneCursor>,
}

/// Where the next page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TombstoneCursor(Bytes);

/// Lines of the index whose tombstones are gone already.
#[derive(Debug, Default)]
#[must_use = "lines that are not erased are read again and again"]
pub struct StaleTombstones(Vec<TableWrite>);

#[derive(Debug, Clone)]
struct Line {
    id: VersionId,
    key: Key,
    index_key: Bytes,
}

impl TombstonePage {
    /// Reads up to `max` lines of the index that are older than `below`, from the beginning or from where the page
    /// before ended.
    pub fn read(
        table: &dyn Table,
        below: Hlc,
        from: Option<&TombstoneCursor>,
        max: usize,
    ) -> Result<TombstonePage, StoreError> {
        let from = from.map_or_else(|| Area::Tombstones.start(), |cursor| cursor.0.clone());
        let mut until = Area::Tombstones.start().to_vec();
        until.extend_from_slice(&below.0.to_be_bytes());
        let rows = table.snapshot()?.range(&from, &until, max, usize::MAX)?;
        let next = rows.last().map(|(last, _)| TombstoneCursor(after(last)));
        let lines = rows.into_iter().map(|(key, value)| {
            let line = read_line(&key, value);
            line.map_err(|source| StoreError::bad_row(&key, source))
        });
        Ok(TombstonePage {
            lines: lines.collect::<Result<_, _>>()?,
            next,
        })
    }

    /// The keys to make resident before [`Store::collect_tombstones`]. It passes over keys that are not resident.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.lines.iter().map(|line| &line.key)
    }

    /// Each tombstone in a page of its own, with its key: where memory is scarce, not all keys of a page are resident
    /// at the same time.
    pub fn each(&self) -> impl Iterator<Item = (&Key, TombstonePage)> {
        self.lines.iter().map(|line| {
            let (lines, next) = (vec![line.clone()], None);
            (&line.key, TombstonePage { lines, next })
        })
    }

    /// Where the next page begins, or `None` if there are no more lines.
    pub fn next(&self) -> Option<&TombstoneCursor> {
        self.next.as_ref()
    }
}

fn read_line(line: &Bytes, value: Bytes) -> Result<Line, BadFrame> {
    let mut rest = line.clone();
    if rest.len() < 1 + 8 + 2 {
        return Err(BadFrame::new(
            "a tombstone's line",
            format!("{} bytes", rest.len()),
        ));
    }
    rest.advance(1);
    let id = VersionId {
        at: Hlc(rest.get_u64()),
        replica: ReplicaId(rest.get_u16()),
    };
    let key = match split_row_key(&rest) {
        Some((_, Some(key))) => key,
        Some((_, None)) if value.len() > LONGEST_PLAIN_KEY_BYTES => Key(value),
        _ => {
            return Err(BadFrame::new(
                "a row's key in a tombstone's line",
                "something else",
            ));
        }
    };
    Ok(Line {
        id,
        key: key.compact(),
        index_key: Bytes::copy_from_slice(line),
    })
}

impl StaleTombstones {
    /// Whether there is nothing to erase.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds these lines.
    pub fn add(&mut self, others: StaleTombstones) {
        self.0.extend(others.0);
    }

    /// Removes the lines. Only the task that makes the checkpoints may call it, and only between two of them: a line
    /// must not be removed after it was written again.
    pub fn erase(self, table: &dyn Table) -> Result<(), EngineError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            table.apply(self.0)
        }
    }
}

impl<M: Meta> Store<M> {
    /// Removes those tombstones of a page that are still their keys' newest versions, together with everything below
    /// them. A key with siblings of which one is a value stays as it is. The next checkpoint removes their rows and lines. Returns the number of removed tombstones, and the lines
    /// that were stale.
    ///
    /// The caller must know that they are not needed: no peer may still send what they delete, and no read asks for a
    /// time before them.
    ///
    /// Their rows are removed with the next checkpoint's last chunk, in one batch with the meta. So collect some
    /// thousands per checkpoint, not millions.
    ///
    /// # Panics
    /// If a checkpoint is under way. Its meta does not cover what arrived since it began, so a replay could bring back
    /// an older version of a key whose tombstone was removed with it.
    pub fn collect_tombstones(&mut self, page: &TombstonePage) -> (usize, StaleTombstones) {
        assert!(
            !self.is_checkpointing(),
            "tombstones are collected between checkpoints, not during one"
        );
        let mut collected = 0;
        let mut stale = Vec::new();
        for line in &page.lines {
            match self.judge(line) {
                Verdict::Skip => {}
                Verdict::Stale => stale.push(TableWrite::delete(line.index_key.clone())),
                Verdict::Bury(index) => {
                    collected += usize::from(self.entries[index].chain().is_some());
                    self.change(index, |entry| entry.set_chain(None, Some(line.id)));
                }
            }
        }
        (collected, StaleTombstones(stale))
    }

    fn judge(&self, line: &Line) -> Verdict {
        let Some(index) = self.entries.get_index_of(line.key.as_ref()) else {
            return if self.complete {
                Verdict::Stale
            } else {
                Verdict::Skip
            };
        };
        let entry = &self.entries[index];
        match entry {
            Entry::Held { chain, .. }
                if chain.newest().id == line.id && entry.kind() != Kind::DeleteBeside =>
            {
                Verdict::Bury(index)
            }
            // The row is to be removed by the next checkpoint, but without its line in the index.
            Entry::Absent { was, .. } if self.is_dirty(entry) && was.is_none() => Verdict::Bury(index),
            // The version that replaced it may be lost with the tail of a log. The line is removed once that version is
            // in the table.
            _ if self.is_dirty(entry) => Verdict::Skip,
            _ => Verdict::Stale,
        }
    }
}

enum Verdict {
    Skip,
    Stale,
    Bury(usize),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, MemoryEngine, Options};
    use std::sync::Arc;
    use turnbuckle_core::{Version, Versions};

    fn version(at: u64, value: Option<&'static str>) -> Version<()> {
        let id = VersionId {
            at: Hlc(at),
            replica: ReplicaId(0),
        };
        Version {
            id,
            value: value.map(|value| Bytes::from_static(value.as_bytes())),
            meta: (),
        }
    }

    #[test]
    fn a_replay_after_half_a_checkpoint_does_not_bring_back_what_a_collected_tombstone_deleted() {
        let engine = MemoryEngine::new();
        let table = engine.open_table("t").expect("memory works");
        let options = Options {
            memory_limit_bytes: 1 << 20,
            history: true,
            hash_seed: 1,
        };
        let (mut store, _) = Store::open(Arc::clone(&table), options).expect("memory works");
        let key = Key::from("key");
        store.put(&key, version(10, None));
        store.begin_checkpoint(Bytes::from_static(b"1"));
        while let Some(chunk) = store.next_chunk(1, |_| true) {
            chunk.write(&*table).expect("memory works");
        }
        engine.persist().expect("memory works");
        drop(store.finish_checkpoint());

        // An older version arrives late. It is in the log behind the checkpoint. After that, no older version can come
        // any more.
        let late = version(5, Some("deleted long ago"));
        store.put(&key, late.clone());
        let page = TombstonePage::read(&*table, Hlc(11), None, 10).expect("memory works");
        let (collected, stale) = store.collect_tombstones(&page);
        assert_eq!((collected, stale.is_empty()), (1, true));
        store.begin_checkpoint(Bytes::from_static(b"2"));
        let first = store.next_chunk(1, |_| true).expect("the key is dirty");
        first.write(&*table).expect("memory works");
        engine.crash_keeping(usize::MAX);

        let table = engine.open_table("t").expect("memory works");
        let (mut store, meta) = Store::open(table, options).expect("memory works");
        assert_eq!(meta.as_deref(), Some(&b"1"[..]));
        store.put(&key, late);
        assert_eq!(store.live_keys(), 0, "a deleted key is back");
    }
}
