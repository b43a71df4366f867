//! What a lane keeps beside its versions: the protocol's journal, and its state by name. Also, how much of both the engine has.
//!
//! Memory has all of it. The log has every change. The engine has it as of the last checkpoint, one row for each entry and each name. A
//! checkpoint writes what has changed since the one before.
//!
//! ```text
//!   under the lock    append to the log | take the changes          (the checkpoint covers the log up to here)
//!   then              sync the log | write the changes, part by part | rows of versions | meta
//! ```
//!
//! **Rows may be newer than the last finished checkpoint** if the process stopped in the middle of a checkpoint. The log from the last
//! finished checkpoint on is then replayed over them. It has every change that they have, because it was synced first. So each name ends
//! with its last state. An entry that was appended, truncated and appended again ends as the last one of its index. Entries that were
//! purged are purged once more ([`JournalReplay`]).
use crate::record::Replayed;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use turnbuckle_core::{Journal, JournalReplay, Write};
use turnbuckle_store::{Beside as Rows, TableWrite, write_entry, write_named};

/// The approximate size of one write to the engine, in bytes.
const PART_BYTES: usize = 4 << 20;

/// The named state of a lane, and how much of it and of the journal the engine has.
pub(crate) struct Beside {
    named: BTreeMap<String, Bytes>,
    /// Names whose rows in the engine may be out of date.
    changed: BTreeSet<String>,
    /// The indexes of journal entries that may have rows in the engine. No other entry has one.
    stored: Range<u64>,
    /// The journal while records are replayed.
    replayed: JournalReplay,
}

impl Beside {
    /// The state as the engine has it. `journal_first` is the journal's first index according to the last finished checkpoint.
    pub fn open(rows: Rows, journal_first: u64) -> Beside {
        let indexes = || rows.journal.iter().map(|(index, _)| *index);
        let stored = indexes().min().map_or(0, |first| first)..indexes().max().map_or(0, |last| last + 1);
        Beside {
            named: rows.named.into_iter().collect(),
            changed: BTreeSet::new(),
            stored,
            replayed: JournalReplay::new(journal_first, rows.journal),
        }
    }

    /// Everything that is kept by name.
    pub fn named(&self) -> &BTreeMap<String, Bytes> {
        &self.named
    }

    /// Drops everything that is kept by name.
    pub fn clear_named(&mut self) {
        self.changed.extend(std::mem::take(&mut self.named).into_keys());
    }

    fn set_named(&mut self, name: String, bytes: Option<Bytes>) {
        self.changed.insert(name.clone());
        match bytes {
            Some(bytes) => drop(self.named.insert(name, bytes)),
            None => drop(self.named.remove(&name)),
        }
    }

    /// Takes note of a write that is appended to the log.
    pub fn logged<M>(&mut self, write: &Write<M>) {
        if let Write::Named { name, bytes } = write {
            self.set_named(name.to_string(), bytes.clone());
        }
    }

    /// Replays a write of a record. Returns the write if it does not concern named state or the journal.
    pub fn replay<M>(&mut self, write: Replayed<M>) -> Option<Replayed<M>> {
        match write {
            Replayed::Named { name, bytes } => self.set_named(name, bytes),
            Replayed::Append { index, entry } => self.replayed.append(index, entry),
            Replayed::Truncate(from) => self.replayed.truncate(from),
            Replayed::Purge(until) => self.replayed.purge(until),
            other => return Some(other),
        }
        None
    }

    /// Called when all records are replayed. Returns the journal, or the index of an entry that is missing in it.
    pub fn take_journal(&mut self) -> Result<Journal, u64> {
        std::mem::take(&mut self.replayed).finish()
    }

    /// Takes what has changed since the last checkpoint, to be written by the next one.
    pub fn take_changes(&mut self, journal: &mut Journal) -> Changes {
        let names = std::mem::take(&mut self.changed);
        let from = journal.take_changes();
        let changes = Changes {
            named: names
                .iter()
                .map(|name| (name.clone(), self.named.get(name).cloned()))
                .collect(),
            removed: self.stored.clone(),
            kept: journal.first()..journal.next(),
            from,
            entries: journal
                .from(from)
                .map(|(index, entry)| (index, entry.clone()))
                .collect(),
        };
        if !changes.kept.is_empty() {
            self.stored = match self.stored.is_empty() {
                true => changes.kept.clone(),
                false => self.stored.start.min(changes.kept.start)..self.stored.end.max(changes.kept.end),
            };
        }
        changes
    }

    /// The changes were written.
    pub fn wrote(&mut self, changes: &Changes) {
        self.stored = changes.kept.clone();
    }

    /// The changes were not written, or not all of them: the next checkpoint writes them.
    pub fn give_back(&mut self, changes: Changes, journal: &mut Journal) {
        self.changed
            .extend(changes.named.into_iter().map(|(name, _)| name));
        journal.give_changes_back(changes.from);
    }
}

/// What a checkpoint writes of the named state and of the journal.
pub(crate) struct Changes {
    named: Vec<(String, Option<Bytes>)>,
    /// The indexes of entries that may have rows in the engine.
    removed: Range<u64>,
    /// The indexes of entries that are to have rows after the checkpoint.
    kept: Range<u64>,
    from: u64,
    entries: Vec<(u64, Bytes)>,
}

impl Changes {
    /// The writes, in parts of at most `max_rows`. With the planted bug `keeps_truncated`, entries that were truncated keep their rows.
    pub fn parts(
        &self,
        max_rows: usize,
        keeps_truncated: bool,
    ) -> impl Iterator<Item = Vec<TableWrite>> + use<'_> {
        let named = self.named.iter();
        let named = named.map(|(name, bytes)| {
            (
                write_named(name, bytes.clone()),
                bytes.as_ref().map_or(0, Bytes::len),
            )
        });
        let before = self.removed.start..self.removed.end.min(self.kept.start);
        let behind = match keeps_truncated {
            false => self.removed.start.max(self.kept.end)..self.removed.end,
            true => 0..0,
        };
        let removed = before.chain(behind).map(|index| (write_entry(index, None), 0));
        let entries = self.entries.iter();
        let entries = entries.map(|(index, entry)| (write_entry(*index, Some(entry.clone())), entry.len()));
        let mut writes = named.chain(removed).chain(entries).peekable();
        std::iter::from_fn(move || {
            writes.peek()?;
            let (mut part, mut part_bytes) = (Vec::new(), 0);
            while part.len() < max_rows.max(1)
                && part_bytes < PART_BYTES
                && let Some((write, bytes)) = writes.next()
            {
                part.push(write);
                part_bytes += bytes;
            }
            Some(part)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_store::{Engine, MemoryEngine, Table};

    fn entry(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn write(table: &dyn Table, changes: &Changes) {
        for part in changes.parts(2, false) {
            table.apply(part).expect("memory works");
        }
    }

    #[test]
    fn a_checkpoint_writes_what_has_changed_and_what_failed_is_written_by_the_next() {
        let table = MemoryEngine::new().open_table("t").expect("memory works");
        let mut journal = Journal::default();
        let mut beside = Beside::open(Rows::default(), 0);
        for text in ["a", "b", "c", "d"] {
            journal.append(entry(text));
        }
        beside.set_named("vote".into(), Some(entry("1")));
        beside.set_named("gone".into(), Some(entry("1")));
        let changes = beside.take_changes(&mut journal);
        write(&*table, &changes);
        beside.wrote(&changes);
        assert_eq!(beside.take_changes(&mut journal).parts(9, false).count(), 0);
        journal.purge(2);
        journal.truncate(4);
        journal.append(entry("e"));
        journal.append(entry("f"));
        journal.truncate(5);
        beside.set_named("gone".into(), None);
        let failed = beside.take_changes(&mut journal);
        beside.give_back(failed, &mut journal);
        let changes = beside.take_changes(&mut journal);
        let writes: usize = changes.parts(9, false).map(|part| part.len()).sum();
        assert_eq!(writes, 1 + 1 + 1, "a name, a purged entry, an entry");
        write(&*table, &changes);
        beside.wrote(&changes);
        let rows = Rows::read(&*table).expect("it is whole");
        assert_eq!(rows.journal, [(2, entry("b")), (3, entry("c")), (4, entry("e"))]);
        assert_eq!(rows.named, [("vote".to_string(), entry("1"))]);
        let mut again = Beside::open(rows, 2);
        let mut again_journal = again.take_journal().expect("nothing is missing");
        assert_eq!(
            again_journal.from(0).collect::<Vec<_>>(),
            journal.from(0).collect::<Vec<_>>()
        );
        again_journal.purge(99);
        let changes = again.take_changes(&mut again_journal);
        write(&*table, &changes);
        assert!(Rows::read(&*table).expect("it is whole").journal.is_empty());
    }

    #[test]
    fn a_gap_is_an_error() {
        let rows = Rows {
            journal: vec![(1, entry("a")), (3, entry("c"))],
            named: Vec::new(),
        };
        assert_eq!(Beside::open(rows, 1).take_journal(), Err(2));
    }
}
