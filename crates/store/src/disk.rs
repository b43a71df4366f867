use crate::engine::check_name;
use crate::{Engine, EngineError, Salvage, Snapshot, Table, TableWrite, is_damaged, salvage_table};
use bytes::Bytes;
use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// The engine on a disk: one fjall database, with one of its keyspaces per table.
///
/// fjall is a log-structured merge tree: a checkpoint is sequential writing, and compactions run on threads of the
/// engine. After a failed write or sync it refuses all further writes ([`EngineError::Broken`]), because what such a
/// disk says cannot be trusted. The process has to be restarted.
///
/// **Damage.** fjall checks checksums when it reads, and it reads when it merges files. So a damaged block sooner or
/// later ends all writing, and does so again after each start. A caller that meets damage calls [`Engine::suspect`].
/// The engine itself does so when it breaks. A suspected database is looked through by [`FjallEngine::salvage`] before
/// it is opened the next time.
pub struct FjallEngine {
    database: Database,
    options: FjallOptions,
    suspicion: Arc<Suspicion>,
}

/// A file beside the database: if it exists, the database is to be looked through before it is opened.
struct Suspicion(PathBuf);

impl Suspicion {
    fn of(database: &Path) -> Suspicion {
        Suspicion(database.with_extension("suspect"))
    }

    fn raise(&self) -> io::Result<()> {
        fs::File::create(&self.0)?.sync_all()?;
        sync_folder(&self.0)
    }

    fn is_raised(&self) -> bool {
        self.0.exists()
    }

    fn drop(&self) -> io::Result<()> {
        fs::remove_file(&self.0)
    }

    /// The engine breaks: the next start finds out why. If this cannot be written down either, that start may break
    /// again.
    fn broken(&self, during: &'static str, error: fjall::Error) -> EngineError {
        let _ = self.raise();
        EngineError::broken(during, error)
    }
}

/// fjall's journals hold what its tables have only in memory. Once they have this number of bytes, the tables that keep
/// the oldest journal are written out. It is the least that fjall accepts. Each journal has this size.
const JOURNAL_BYTES: u64 = 64 << 20;

/// A larger table is not merged at once, because the node's other maintenance would have to wait. The engine merges it
/// by itself when enough has been written.
const MAX_MERGED_BYTES: u64 = 256 << 20;

/// A table that rests keeps less than this in its buffer, in bytes.
const MIN_FILE_BYTES: u64 = 2 << 20;

/// What a table's folder may have beside the table's files after a merge, in bytes.
const MAX_SPARE_BYTES: u64 = 1 << 20;

/// How often, and each time how long, `reclaim` waits for a table's memory to be written.
const FLUSH_LOOKS: u32 = 500;
const FLUSH_LOOK: Duration = Duration::from_millis(20);

fn sync_folder(of: &Path) -> io::Result<()> {
    match of.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => fs::File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

/// The share of the machine that a [`FjallEngine`] takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FjallOptions {
    /// The cache of blocks, for all tables, in bytes. The store has its own cache of keys: this one serves keys that
    /// do not fit there, and keeps indexes and filters.
    pub cache_bytes: u64,
    /// Threads that flush and compact; at least 1 is used.
    pub worker_threads: usize,
    /// The size of each table's buffer in memory before it is written as a file, in bytes.
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
    /// Opens the database in the directory `path`, which is created if it does not exist. Only one process can have it
    /// open.
    pub fn open(path: impl AsRef<Path>, options: FjallOptions) -> Result<FjallEngine, EngineError> {
        FjallEngine::open_with(path.as_ref(), options, options.worker_threads.max(1))
    }

    fn open_with(path: &Path, options: FjallOptions, workers: usize) -> Result<FjallEngine, EngineError> {
        let database = Database::builder(path)
            .cache_size(options.cache_bytes)
            .max_journaling_size(JOURNAL_BYTES)
            .worker_threads_unchecked(workers)
            .open()
            .map_err(|error| read_error("opened its database", error))?;
        let suspicion = Arc::new(Suspicion::of(path));
        Ok(FjallEngine {
            database,
            options,
            suspicion,
        })
    }

    /// Whether a database is to be looked through before it is opened.
    pub fn is_suspected(path: impl AsRef<Path>) -> bool {
        Suspicion::of(path.as_ref()).is_raised()
    }

    /// Looks through a database that is suspected. If there is damage, a new database with the rows that can be read
    /// takes its place. Returns the tables in which rows are missing.
    ///
    /// # Errors
    /// If it cannot be opened at all, or if [`salvage_table`] fails. Then nothing was changed.
    pub fn salvage(
        path: impl AsRef<Path>,
        options: FjallOptions,
    ) -> Result<Vec<(String, Salvage)>, EngineError> {
        let path = path.as_ref();
        let failed = |error: io::Error| EngineError::failed("replaced a damaged database", error);
        let (new, old) = (path.with_extension("new"), path.with_extension("damaged"));
        let suspicion = Suspicion::of(path);
        // An earlier salvage ended between the two renames below.
        if !path.exists() && new.exists() {
            fs::rename(&new, path).map_err(failed)?;
        }
        remove(&new).map_err(failed)?;
        if !path.exists() {
            suspicion.drop().map_err(failed)?;
            return Ok(Vec::new());
        }
        let salvages = FjallEngine::salvage_into(path, &new, options)?;
        if salvages.iter().any(|(_, salvage)| salvage.gaps > 0) {
            remove(&old).map_err(failed)?;
            fs::rename(path, &old).map_err(failed)?;
            fs::rename(&new, path).map_err(failed)?;
            sync_folder(path).map_err(failed)?;
        }
        suspicion.drop().map_err(failed)?;
        remove(&old).map_err(failed)?;
        remove(&new).map_err(failed)?;
        Ok(salvages
            .into_iter()
            .filter(|(_, salvage)| salvage.gaps > 0)
            .collect())
    }

    fn salvage_into(
        path: &Path,
        new: &Path,
        options: FjallOptions,
    ) -> Result<Vec<(String, Salvage)>, EngineError> {
        // Without threads that merge files: they would break the database while it is read.
        let from = FjallEngine::open_with(path, options, 0)?;
        let names = from.table_names()?;
        let mut damaged = false;
        for name in &names {
            damaged = damaged || is_damaged(&*from.open_table(name)?)?;
        }
        if !damaged {
            return Ok(Vec::new());
        }
        let to = FjallEngine::open(new, options)?;
        let mut salvages = Vec::new();
        for name in names {
            let salvage = salvage_table(&*from.open_table(&name)?, &*to.open_table(&name)?)?;
            salvages.push((name, salvage));
        }
        to.persist()?;
        Ok(salvages)
    }
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Tells damage from a failure that may not happen the next time.
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
            suspicion: Arc::clone(&self.suspicion),
            applied_bytes: AtomicU64::new(0),
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
            .map_err(|error| self.suspicion.broken("synced", error))
    }

    /// The removed rows are in files below the files that say that they are removed. They are merged here at once.
    /// fjall itself would merge them only after many more writes.
    fn reclaim(&self, table: &str, free_bytes: u64) -> Result<bool, EngineError> {
        let failed = |error| read_error("merged a table again", error);
        // A journal stays until all tables are in files, including those of which the journal has little.
        for name in self.database.list_keyspace_names() {
            let options = KeyspaceCreateOptions::default;
            let other = self.database.keyspace(&name, options).map_err(failed)?;
            other.rotate_memtable().map_err(failed)?;
        }
        let rows = self.database.keyspace(table, KeyspaceCreateOptions::default);
        let rows = rows.map_err(failed)?;
        // No request waits for this. If fjall has stopped writing, the flush never comes, and the next write gets the
        // error.
        for _ in 0..FLUSH_LOOKS {
            if rows.sealed_memtable_count() == 0 {
                break;
            }
            std::thread::park_timeout(FLUSH_LOOK);
        }
        if rows.sealed_memtable_count() > 0 {
            return Ok(false);
        }
        if rows.disk_space() >= free_bytes.min(MAX_MERGED_BYTES) {
            return Ok(true);
        }
        if rows.tree.tombstone_count() > 0 {
            rows.major_compact().map_err(failed)?;
        }
        // The files that were merged stay while a snapshot needs them, of whatever table. And fjall looks whether one does only when it writes the memory of some table: as a rule, the next call
        // finds them gone.
        let is_merged = rows.tree.tombstone_count() == 0;
        Ok(is_merged && files_bytes(rows.path()) <= rows.disk_space() + MAX_SPARE_BYTES)
    }

    fn suspect(&self) -> Result<(), EngineError> {
        self.suspicion
            .raise()
            .map_err(|error| EngineError::failed("noted that it is damaged", error))
    }
}

/// The size of all files below a folder. What is removed meanwhile counts nothing.
fn files_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => files_bytes(&entry.path()),
        found => found.map_or(0, |file| file.len()),
    };
    entries.map(bytes).sum()
}

struct FjallTable {
    database: Database,
    rows: Keyspace,
    suspicion: Arc<Suspicion>,
    /// The bytes of rows that were applied since the table last rested. Its buffer has no more than these, and what was there before.
    applied_bytes: AtomicU64,
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
        let mut bytes = 0;
        while let Some(TableWrite { key, value }) = writes.next() {
            if writes.peek().is_some_and(|later| later.key == key) {
                continue;
            }
            bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
            match value {
                Some(value) => batch.insert(&self.rows, key, value),
                None => batch.remove(&self.rows, key),
            }
        }
        self.applied_bytes.fetch_add(bytes as u64, Relaxed);
        batch
            .commit()
            .map_err(|error| self.suspicion.broken("applied a batch", error))
    }

    /// The buffer is written to a file, unless that would be a small one: many of them would have to be merged.
    fn rest(&self) -> Result<(), EngineError> {
        if self.applied_bytes.load(Relaxed) < MIN_FILE_BYTES {
            return Ok(());
        }
        self.applied_bytes.store(0, Relaxed);
        let rotated = self.rows.rotate_memtable();
        rotated
            .map(drop)
            .map_err(|error| self.suspicion.broken("wrote a buffer", error))
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
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
        let mut found = Vec::new();
        if from >= until {
            return Ok(found);
        }
        let mut bytes = 0;
        for row in self.instant.range(&self.rows, from..until) {
            if found.len() >= max_rows.max(1) {
                break;
            }
            let (key, value) = row.into_inner().map_err(|error| read_error("read rows", error))?;
            bytes += key.len() + value.len();
            if bytes > max_bytes && !found.is_empty() {
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

    /// Bytes that do not compress.
    fn noise(seed: u32) -> Bytes {
        let noise = std::iter::successors(Some(seed), |x| {
            Some(x.wrapping_mul(0x9E37_79B1).wrapping_add(7) ^ (x >> 7))
        });
        noise.take(1 << 10).map(|x| (x >> 11) as u8).collect()
    }

    #[test]
    fn a_table_that_rests_writes_its_buffer_unless_it_is_small() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let engine = FjallEngine::open(folder.path(), FjallOptions::default()).expect("it opens");
        let table = engine.open_table("k.0.0").expect("it opens");
        let rows = engine
            .database
            .keyspace("k.0.0", KeyspaceCreateOptions::default)
            .expect("it opens");
        // If there is nothing to write, nothing is written.
        let has_buffer = || rows.rotate_memtable().expect("it is written");
        let value = Bytes::from(vec![7; 1 << 10]);
        let rows_of = |range: std::ops::Range<u32>| {
            let write =
                |number: u32| TableWrite::put(Bytes::copy_from_slice(&number.to_be_bytes()), value.clone());
            range.map(write).collect::<Vec<_>>()
        };
        table.apply(rows_of(0..100)).expect("it is applied");
        table.rest().expect("it rests");
        assert!(has_buffer(), "a file of 100 KiB would be a small one");
        table.apply(rows_of(0..2_048)).expect("it is applied");
        table.rest().expect("it rests");
        assert!(!has_buffer());
        let read = table.get(&1_234_u32.to_be_bytes()).expect("it can be read");
        assert_eq!(read, Some(value.clone()));
    }

    /// While a snapshot is in use, also one of another table, a merge frees nothing. Another one must follow.
    #[test]
    fn a_merge_that_frees_no_files_is_followed_by_another_one() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let engine = FjallEngine::open(folder.path(), FjallOptions::default()).expect("it opens");
        let (table, other) = (engine.open_table("k.0.0"), engine.open_table("k.0.1"));
        let (table, other) = (table.expect("it opens"), other.expect("it opens"));
        let key = |number: u32| Bytes::copy_from_slice(&number.to_be_bytes());
        let remove = |range: std::ops::Range<u32>| {
            let removed = range.map(|number| TableWrite::delete(key(number)));
            table.apply(removed.collect()).expect("they are removed");
        };
        let puts = (0..2_000).map(|number| TableWrite::put(key(number), noise(number)));
        table.apply(puts.collect()).expect("they are written");
        let reclaim = || {
            // So that there is something to write: then fjall looks which snapshots are still in use.
            let put = TableWrite::put(key(1), noise(1));
            other.apply(vec![put]).expect("it is written");
            engine.reclaim("k.0.0", u64::MAX).expect("it is merged")
        };
        // fjall looks which files are needed before it merges, so the second call finds those gone that the first one has merged.
        assert!(reclaim() || reclaim(), "there is nothing to free");
        remove(0..1_000);
        let snapshot = other.snapshot().expect("it is taken");
        remove(1_000..2_000);
        let says = [reclaim(), reclaim()];
        assert_eq!(says, [false; 2], "the files that were merged are still there");
        drop(snapshot);
        assert!(reclaim() || reclaim());
        let left = files_bytes(&folder.path().join("keyspaces"));
        assert!(left < MAX_SPARE_BYTES, "{left} bytes are left");
    }

    /// The largest file below a folder.
    fn largest_file(folder: &Path) -> PathBuf {
        let (mut folders, mut files) = (vec![folder.to_path_buf()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("it can be listed") {
                let entry = entry.expect("it can be listed");
                let metadata = entry.metadata().expect("it is there");
                match metadata.is_dir() {
                    true => folders.push(entry.path()),
                    false => files.push((metadata.len(), entry.path())),
                }
            }
        }
        files.into_iter().max().expect("there are files").1
    }

    #[test]
    fn what_can_be_read_of_a_damaged_database_takes_its_place() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let path = folder.path().join("store");
        let options = FjallOptions::default();
        let key = |number: u32| crate::place::row_key(crate::place::Area::Rows, &number.to_be_bytes());
        // Rows that are no versions, with values that do not compress.
        let value = |number: u32| {
            let noise =
                std::iter::successors(Some(number | 1), |x| Some(x.wrapping_mul(0x9E37_79B1) ^ (x >> 7)));
            let noise: Vec<u8> = noise.take(200).map(|x| (x >> 11) as u8).collect();
            Bytes::from([&b"\x01\0\0\0\0\0\0\0\0\x01\0\x01\xc9\x01"[..], &noise, &[0]].concat())
        };
        {
            let engine = FjallEngine::open(&path, options).expect("it opens");
            let table = engine.open_table("k.0.0").expect("it opens");
            let meta = TableWrite::put(Bytes::from_static(b"m"), Bytes::from_static(b"meta"));
            table.apply(vec![meta]).expect("it is written");
            for page in 0..10 {
                let rows = (page * 1000..(page + 1) * 1000)
                    .map(|number| TableWrite::put(key(number), value(number)));
                table.apply(rows.collect()).expect("they are written");
            }
            let rows = engine
                .database
                .keyspace("k.0.0", KeyspaceCreateOptions::default)
                .expect("it is open");
            rows.rotate_memtable_and_wait().expect("it is flushed");
        }
        let file = largest_file(&path.join("keyspaces"));
        let mut bytes = fs::read(&file).expect("it can be read");
        let length = bytes.len();
        assert!(length > 1 << 20, "{file:?} has {length} bytes");
        for place in [length / 3, length / 2] {
            bytes[place] ^= 0x10;
        }
        fs::write(&file, bytes).expect("it can be written");
        let suspect = |engine: FjallEngine| engine.suspect().expect("it is written down");
        suspect(FjallEngine::open(&path, options).expect("blocks are not read before they are needed"));
        assert!(FjallEngine::is_suspected(&path));
        let salvages = FjallEngine::salvage(&path, options).expect("it can be read");
        let [(name, salvage)] = &salvages[..] else {
            panic!("{salvages:?}");
        };
        assert_eq!(name, "k.0.0");
        assert!(salvage.gaps >= 2 && salvage.rows > 9_000, "{salvage:?}");
        assert!(!FjallEngine::is_suspected(&path));
        let engine = FjallEngine::open(&path, options).expect("it opens");
        let table = engine.open_table("k.0.0").expect("it opens");
        assert!(crate::lacks_rows(&*table).expect("it can be read"));
        let mut there = 0;
        for number in 0..10_000 {
            if let Some(found) = table.get(&key(number)).expect("nothing is damaged") {
                assert_eq!(found, value(number));
                there += 1;
            }
        }
        assert_eq!(there, salvage.rows);
        drop((engine, table));
        // Suspected without damage.
        suspect(FjallEngine::open(&path, options).expect("it opens"));
        let salvages = FjallEngine::salvage(&path, options).expect("it can be read");
        assert!(salvages.is_empty(), "{salvages:?}");
    }

    #[test]
    fn a_directory_is_opened_only_once_at_a_time() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let first = FjallEngine::open(folder.path(), FjallOptions::default()).expect("it opens");
        assert!(FjallEngine::open(folder.path(), FjallOptions::default()).is_err());
        drop(first);
    }
}
