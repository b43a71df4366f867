use crate::engine::check_name;
use crate::{Engine, EngineError, Snapshot, Table, TableWrite};
use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// The engine that lies on a disk: one fjall database, one of its keyspaces per table.
///
/// fjall is a log-structured merge tree, so a checkpoint is sequential writing, and it runs compactions on threads of
/// its own. After a failed write or sync (a full disk is the commonest) it refuses all further writes: what it holds in memory may be
/// ahead of its files. So the next write closes it and opens it anew from its files, once no snapshot is left; until that succeeds every
/// use fails. What was applied and not persisted may be gone then, as after a crash: [`Engine::persist`] fails once to say so.
pub struct FjallEngine {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    options: FjallOptions,
    state: RwLock<State>,
}

struct State {
    /// `None` while it cannot be opened again.
    open: Option<Open>,
    /// The tables that are in use, open or not.
    names: BTreeSet<String>,
    /// A write has failed: what the database holds in memory may be ahead of its files.
    failed: bool,
    /// It has failed since anybody was last told that everything persists.
    unsaid: bool,
    /// Held by every snapshot, which keeps a database open.
    readers: Arc<()>,
}

struct Open {
    database: Database,
    tables: BTreeMap<String, Keyspace>,
}

/// How much of the machine a [`FjallEngine`] takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FjallOptions {
    /// The cache of blocks, for all tables, in bytes. The store has its own cache of keys: this one serves keys that
    /// do not fit there, and keeps indexes and filters.
    pub cache_bytes: u64,
    /// Threads that flush and compact; at least 1 is used.
    pub worker_threads: usize,
    /// How much each table collects in memory before it writes a file, in bytes.
    pub table_buffer_bytes: u64,
}

impl Default for FjallOptions {
    fn default() -> FjallOptions {
        FjallOptions {
            cache_bytes: 32 << 20,
            worker_threads: 1,
            table_buffer_bytes: 16 << 20,
        }
    }
}

impl FjallEngine {
    /// Opens the database in the directory `path`, which is created if it does not exist. Only one process can.
    pub fn open(path: impl AsRef<Path>, options: FjallOptions) -> Result<FjallEngine, EngineError> {
        let path = path.as_ref().to_path_buf();
        let state = State {
            open: Some(Open::new(&path, options, &BTreeSet::new())?),
            names: BTreeSet::new(),
            failed: false,
            unsaid: false,
            readers: Arc::new(()),
        };
        Ok(FjallEngine {
            shared: Arc::new(Shared {
                path,
                options,
                state: RwLock::new(state),
            }),
        })
    }
}

impl Open {
    fn new(path: &Path, options: FjallOptions, names: &BTreeSet<String>) -> Result<Open, EngineError> {
        let database = Database::builder(path)
            .cache_size(options.cache_bytes)
            .worker_threads(options.worker_threads.max(1))
            .open()
            .map_err(|error| EngineError::failed("opened its database", error))?;
        let mut open = Open {
            database,
            tables: BTreeMap::new(),
        };
        names.iter().try_for_each(|name| open.open_table(name, options))?;
        Ok(open)
    }

    fn open_table(&mut self, name: &str, options: FjallOptions) -> Result<(), EngineError> {
        let create = || KeyspaceCreateOptions::default().max_memtable_size(options.table_buffer_bytes);
        let rows = self
            .database
            .keyspace(name, create)
            .map_err(|error| EngineError::failed("opened a table", error))?;
        self.tables.insert(name.to_owned(), rows);
        Ok(())
    }

    fn rows(&self, name: &str) -> Result<&Keyspace, EngineError> {
        let gone = || EngineError::failed("looked for a table", "it was removed");
        self.tables.get(name).ok_or_else(gone)
    }
}

impl State {
    fn open(&self) -> Result<&Open, EngineError> {
        let closed = || {
            EngineError::failed(
                "was asked",
                "it has failed before and could not be opened again yet",
            )
        };
        self.open.as_ref().ok_or_else(closed)
    }

    fn is_sound(&self) -> bool {
        self.open.is_some() && !self.failed
    }

    fn fail(&mut self) {
        (self.failed, self.unsaid) = (true, true);
    }
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes, to a database that has not failed. If it fails now, the next write begins with a new one.
    fn write<T>(&self, write: impl FnOnce(&Open) -> Result<T, EngineError>) -> Result<T, EngineError> {
        self.mend()?;
        let result = write(self.read().open()?);
        if result.is_err() {
            self.change().fail();
        }
        result
    }

    /// If the database has failed: closes it, and opens it from its files.
    fn mend(&self) -> Result<(), EngineError> {
        if self.read().is_sound() {
            return Ok(());
        }
        let state = &mut *self.change();
        if state.is_sound() {
            return Ok(());
        }
        if Arc::strong_count(&state.readers) > 1 {
            let waits = "it has failed before, and will be opened again when nobody reads from it any more";
            return Err(EngineError::failed("was to write", waits));
        }
        // Its lock on the directory goes with it.
        state.open = None;
        state.open = Some(Open::new(&self.path, self.options, &state.names)?);
        state.failed = false;
        Ok(())
    }
}

impl Engine for FjallEngine {
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        check_name(name)?;
        self.shared.mend()?;
        let state = &mut *self.shared.change();
        if state.names.insert(name.to_owned()) {
            state.open()?;
            if let Some(open) = &mut state.open {
                open.open_table(name, self.shared.options)?;
            }
        }
        Ok(Arc::new(FjallTable {
            shared: Arc::clone(&self.shared),
            name: name.to_owned(),
        }))
    }

    fn remove_table(&self, name: &str) -> Result<(), EngineError> {
        self.shared.mend()?;
        let state = &mut *self.shared.change();
        state.names.remove(name);
        let Some(open) = &mut state.open else {
            return state.open().map(drop);
        };
        if check_name(name).is_err() || !open.database.keyspace_exists(name) {
            return Ok(());
        }
        if !open.tables.contains_key(name) {
            open.open_table(name, self.shared.options)?;
        }
        if let Some(rows) = open.tables.remove(name) {
            open.database
                .delete_keyspace(rows)
                .map_err(|error| EngineError::failed("removed a table", error))?;
        }
        Ok(())
    }

    fn table_names(&self) -> Result<Vec<String>, EngineError> {
        let names = self.shared.read().open()?.database.list_keyspace_names();
        let mut names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        names.sort();
        Ok(names)
    }

    fn persist(&self) -> Result<(), EngineError> {
        self.shared.write(|open| {
            open.database
                .persist(PersistMode::SyncAll)
                .map_err(|error| EngineError::failed("synced", error))
        })?;
        if std::mem::take(&mut self.shared.change().unsaid) {
            let lost = "it has failed since the last sync, and was opened again: what was applied in between may be lost";
            return Err(EngineError::failed("synced", lost));
        }
        Ok(())
    }
}

struct FjallTable {
    shared: Arc<Shared>,
    name: String,
}

impl Table for FjallTable {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let state = self.shared.read();
        let found = state.open()?.rows(&self.name)?.get(key);
        let found = found.map_err(|error| EngineError::failed("read a row", error))?;
        Ok(found.map(Bytes::from))
    }

    fn apply(&self, batch: Vec<TableWrite>) -> Result<(), EngineError> {
        batch.iter().try_for_each(TableWrite::check)?;
        // In a batch all writes have one sequence number, so a second write to a row would not surely win.
        let mut writes = batch;
        writes.sort_by(|one, other| one.key.cmp(&other.key));
        let mut writes = writes.into_iter().peekable();
        self.shared.write(|open| {
            let rows = open.rows(&self.name)?;
            let mut batch = open.database.batch();
            while let Some(TableWrite { key, value }) = writes.next() {
                if writes.peek().is_some_and(|later| later.key == key) {
                    continue;
                }
                match value {
                    Some(value) => batch.insert(rows, key, value),
                    None => batch.remove(rows, key),
                }
            }
            batch
                .commit()
                .map_err(|error| EngineError::failed("applied a batch", error))
        })
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, EngineError> {
        let state = self.shared.read();
        let open = state.open()?;
        Ok(Box::new(FjallSnapshot {
            instant: open.database.snapshot(),
            rows: open.rows(&self.name)?.clone(),
            _reader: Arc::clone(&state.readers),
        }))
    }
}

struct FjallSnapshot {
    instant: fjall::Snapshot,
    rows: Keyspace,
    _reader: Arc<()>,
}

impl Snapshot for FjallSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let found = self.instant.get(&self.rows, key);
        let found = found.map_err(|error| EngineError::failed("read a row", error))?;
        Ok(found.map(Bytes::from))
    }

    fn range(
        &self,
        from: &[u8],
        until: &[u8],
        most_rows: usize,
        most_bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
        let mut found = Vec::new();
        if from >= until {
            return Ok(found);
        }
        let mut bytes = 0;
        for row in self.instant.range(&self.rows, from..until) {
            if found.len() >= most_rows.max(1) {
                break;
            }
            let (key, value) = row
                .into_inner()
                .map_err(|error| EngineError::failed("read rows", error))?;
            bytes += key.len() + value.len();
            if bytes > most_bytes && !found.is_empty() {
                break;
            }
            found.push((key.into(), value.into()));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine_suite;

    #[test]
    fn passes_the_engine_suite() {
        engine_suite(|| {
            let folder = tempfile::tempdir().expect("a temporary directory can be made");
            let reopen: Box<dyn Fn() -> Arc<dyn Engine>> = Box::new(move || {
                let engine = FjallEngine::open(folder.path(), FjallOptions::default());
                Arc::new(engine.expect("the database opens"))
            });
            reopen
        });
    }

    #[test]
    fn a_directory_is_opened_only_once_at_a_time() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let first = FjallEngine::open(folder.path(), FjallOptions::default()).expect("it opens");
        assert!(FjallEngine::open(folder.path(), FjallOptions::default()).is_err());
        drop(first);
    }
}
