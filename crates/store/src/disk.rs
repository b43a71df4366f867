use crate::engine::check_name;
use crate::{Engine, EngineError, Snapshot, Table, TableWrite};
use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use std::{path::Path, sync::Arc};

/// The engine that lies on a disk: one fjall database, one of its keyspaces per table.
///
/// fjall is a log-structured merge tree, so a checkpoint is sequential writing, and it runs compactions on threads of
/// its own. After a failed write or sync it refuses all further writes, which is right: what such a disk still says
/// cannot be trusted: [`EngineError::Broken`]. The process has to be restarted.
pub struct FjallEngine {
    database: Database,
    options: FjallOptions,
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
        let database = Database::builder(path.as_ref())
            .cache_size(options.cache_bytes)
            .worker_threads(options.worker_threads.max(1))
            .open()
            .map_err(|error| read_error("opened its database", error))?;
        Ok(FjallEngine { database, options })
    }
}

/// Tells what is damaged from what failed and may work the next time.
fn read_error(during: &'static str, error: fjall::Error) -> EngineError {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    let io = |error: &std::io::Error| matches!(error.kind(), InvalidData | UnexpectedEof);
    let is_damage = match &error {
        fjall::Error::Storage(fjall::LsmError::Io(error)) | fjall::Error::Io(error) => io(error),
        fjall::Error::Poisoned | fjall::Error::KeyspaceDeleted | fjall::Error::Locked => false,
        _ => true,
    };
    match is_damage {
        true => EngineError::damaged(during, error),
        false => EngineError::failed(during, error),
    }
}

impl Engine for FjallEngine {
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        check_name(name)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(self.options.table_buffer_bytes);
        let rows = self
            .database
            .keyspace(name, options)
            .map_err(|error| read_error("opened a table", error))?;
        Ok(Arc::new(FjallTable {
            database: self.database.clone(),
            rows,
        }))
    }

    fn remove_table(&self, name: &str) -> Result<(), EngineError> {
        if check_name(name).is_err() || !self.database.keyspace_exists(name) {
            return Ok(());
        }
        let rows = self
            .database
            .keyspace(name, KeyspaceCreateOptions::default)
            .map_err(|error| read_error("opened a table to remove it", error))?;
        self.database
            .delete_keyspace(rows)
            .map_err(|error| EngineError::failed("removed a table", error))
    }

    fn table_names(&self) -> Result<Vec<String>, EngineError> {
        let names = self.database.list_keyspace_names();
        let mut names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        names.sort();
        Ok(names)
    }

    fn persist(&self) -> Result<(), EngineError> {
        self.database
            .persist(PersistMode::SyncAll)
            .map_err(|error| EngineError::broken("synced", error))
    }
}

struct FjallTable {
    database: Database,
    rows: Keyspace,
}

impl Table for FjallTable {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let found = self.rows.get(key);
        let found = found.map_err(|error| read_error("read a row", error))?;
        Ok(found.map(Bytes::from))
    }

    fn apply(&self, batch: Vec<TableWrite>) -> Result<(), EngineError> {
        batch.iter().try_for_each(TableWrite::check)?;
        // In a batch all writes have one sequence number, so a second write to a row would not surely win.
        let mut writes = batch;
        writes.sort_by(|one, other| one.key.cmp(&other.key));
        let mut writes = writes.into_iter().peekable();
        let mut batch = self.database.batch();
        while let Some(TableWrite { key, value }) = writes.next() {
            if writes.peek().is_some_and(|later| later.key == key) {
                continue;
            }
            match value {
                Some(value) => batch.insert(&self.rows, key, value),
                None => batch.remove(&self.rows, key),
            }
        }
        batch
            .commit()
            .map_err(|error| EngineError::broken("applied a batch", error))
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, EngineError> {
        Ok(Box::new(FjallSnapshot {
            instant: self.database.snapshot(),
            rows: self.rows.clone(),
        }))
    }
}

struct FjallSnapshot {
    instant: fjall::Snapshot,
    rows: Keyspace,
}

impl Snapshot for FjallSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let found = self.instant.get(&self.rows, key);
        let found = found.map_err(|error| read_error("read a row", error))?;
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
                .map_err(|error| read_error("read rows", error))?;
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
