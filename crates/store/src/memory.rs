use crate::engine::check_name;
use crate::place::{Area, row_key};
use crate::{Engine, EngineError, Place, Snapshot, Table, TableWrite, salvage_table};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};
use turnbuckle_core::Room;

type Rows = BTreeMap<Bytes, Bytes>;

/// An engine whose disk is a part of memory. Tests use it, and the simulator, which crashes it.
///
/// The handle can be cloned; clones are the same engine. It is deterministic. Everything since the last
/// [`Engine::persist`] is remembered as a list of undos, one per batch, so that the cost of [`MemoryEngine::crash`]
/// depends only on what it takes back. Rows are copied on write, and only while a snapshot holds them.
///
/// If the engine is put on a [`Room`], its rows take space there. A batch is written before the space of what it
/// replaces is freed. A batch that does not fit breaks the engine, as it breaks a real one: it takes no more writes
/// until the next life.
#[derive(Clone, Default)]
pub struct MemoryEngine {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Default)]
struct Disk {
    tables: BTreeMap<String, Arc<Rows>>,
    /// How to undo each batch since the last persist, oldest first.
    undos: Vec<Vec<Undo>>,
    /// The number of crashes: handles of an earlier life are refused by it.
    life: u64,
    failing: bool,
    /// Rows that cannot be read, by table, until they are written again.
    damaged: BTreeMap<String, BTreeSet<Bytes>>,
    suspected: bool,
    /// The space of the disk on which the tables are.
    room: Room,
    /// The number of bytes that the rows take of it.
    used: u64,
    /// Whether a write has failed in this life.
    is_broken: bool,
}

enum Undo {
    Row {
        table: String,
        key: Bytes,
        before: Option<Bytes>,
    },
    Created(String),
    Removed(String, Arc<Rows>),
}

impl MemoryEngine {
    /// An empty engine.
    pub fn new() -> MemoryEngine {
        MemoryEngine::default()
    }

    /// A power loss: everything since the last persist is gone. Tables that were opened before return errors from now
    /// on, because a killed process would not be there to use them.
    pub fn crash(&self) {
        self.crash_keeping(0);
    }

    /// A power loss after which the first `kept_batches` batches since the last persist have reached the disk. The
    /// simulator draws that number, to see half a checkpoint.
    pub fn crash_keeping(&self, kept_batches: usize) {
        let mut disk = self.lock();
        while disk.undos.len() > kept_batches {
            let undos = disk.undos.pop().unwrap_or_default();
            undos.into_iter().rev().for_each(|undo| disk.take_back(undo));
        }
        disk.undos.clear();
        disk.life += 1;
        disk.is_broken = false;
    }

    /// Another engine on another disk with the same tables, as they are now, all of them persisted: like a snapshot of
    /// the file system.
    #[must_use]
    pub fn copied(&self) -> MemoryEngine {
        let disk = self.lock();
        let room = Room::default();
        room.add(disk.used);
        MemoryEngine {
            disk: Arc::new(Mutex::new(Disk {
                tables: disk.tables.clone(),
                undos: Vec::new(),
                life: disk.life,
                failing: disk.failing,
                damaged: disk.damaged.clone(),
                suspected: disk.suspected,
                room,
                used: disk.used,
                is_broken: false,
            })),
        }
    }

    /// Damages a key's row, in every table that has one. A read of the row, or of a range with it, returns an error
    /// until the row is written again. Returns the number of rows.
    pub fn damage_key(&self, key: &[u8]) -> usize {
        let row = row_key(Area::Rows, key);
        self.damage(|table| {
            table
                .contains_key(&row)
                .then(|| row.clone())
                .into_iter()
                .collect()
        })
    }

    /// Damages the row with exactly this key in every table that has one. `key` is a row's key, not a client's.
    #[cfg(test)]
    pub(crate) fn damage_row(&self, key: &[u8]) -> usize {
        self.damage(|table| {
            table
                .contains_key(key)
                .then(|| Bytes::copy_from_slice(key))
                .into_iter()
                .collect()
        })
    }

    /// Damages up to `max_rows` rows of keys that follow each other, from a place on, in every table, like a block of a
    /// file. Rows of a full copy that is coming in are in blocks, too.
    pub fn damage_block(&self, from: Place, max_rows: usize) -> usize {
        let block = |table: &Rows, area: Area| {
            let rows = table.range(area.from(from)..Bytes::copy_from_slice(&area.end()));
            let keys = rows.take(max_rows).map(|(key, _)| key.clone());
            keys.collect::<Vec<_>>()
        };
        self.damage(|table| [block(table, Area::Rows), block(table, Area::Staged)].concat())
    }

    /// Whether any row is damaged.
    pub fn is_damaged(&self) -> bool {
        self.lock().damaged.values().any(|rows| !rows.is_empty())
    }

    fn damage(&self, rows_of: impl Fn(&Rows) -> Vec<Bytes>) -> usize {
        let mut disk = self.lock();
        let Disk { tables, damaged, .. } = &mut *disk;
        let mut count = 0;
        for (name, table) in tables {
            let rows = rows_of(table);
            count += rows.len();
            damaged.entry(name.clone()).or_default().extend(rows);
        }
        count
    }

    /// If the engine was suspected: a new one with everything of it that can be read ([`salvage_table`]).
    pub fn salvaged(&self) -> Result<Option<MemoryEngine>, EngineError> {
        if !std::mem::take(&mut self.lock().suspected) {
            return Ok(None);
        }
        let new = MemoryEngine::new();
        for name in self.table_names()? {
            salvage_table(&*self.open_table(&name)?, &*new.open_table(&name)?)?;
        }
        new.persist()?;
        Ok(Some(new))
    }

    /// Puts the tables on this disk, where they take space.
    pub fn set_room(&self, room: &Room) {
        let mut disk = self.lock();
        disk.room.give(disk.used);
        room.add(disk.used);
        disk.room = room.clone();
    }

    /// Whether the engine takes no more writes, because one did not fit in this life.
    pub fn is_broken(&self) -> bool {
        self.lock().is_broken
    }

    /// The number of batches that a power loss could take back now.
    pub fn unpersisted_batches(&self) -> usize {
        self.lock().undos.len()
    }

    /// Makes every operation fail from now on, or none: a full disk, or a broken one.
    pub fn set_failing(&self, failing: bool) {
        self.lock().failing = failing;
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        // Nothing panics in the middle of a change to the disk: so a poisoned lock guards consistent data.
        self.disk.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Disk {
    fn check(&self, during: &'static str) -> Result<(), EngineError> {
        if self.failing {
            return Err(EngineError::failed(during, "the disk was told to fail"));
        }
        Ok(())
    }

    /// Called before something is written.
    fn check_write(&self, during: &'static str) -> Result<(), EngineError> {
        self.check(during)?;
        match self.is_broken {
            true => Err(EngineError::broken(during, "an earlier write found no room")),
            false => Ok(()),
        }
    }

    /// Takes space for rows that are about to be written.
    fn take_room(&mut self, bytes: u64) -> Result<(), EngineError> {
        if !self.room.take(bytes) {
            self.is_broken = true;
            let why = format!("no room for {bytes} bytes, {} are free", self.room.free());
            return Err(EngineError::broken("applied a batch", why));
        }
        self.used += bytes;
        Ok(())
    }

    /// Frees the space of rows that are gone.
    fn give_room(&mut self, bytes: u64) {
        self.used -= bytes;
        self.room.give(bytes);
    }

    /// Takes space for rows that an undo restores, also if there is not enough.
    fn add_room(&mut self, bytes: u64) {
        self.used += bytes;
        self.room.add(bytes);
    }

    fn table(&mut self, name: &str, life: u64) -> Result<&mut Arc<Rows>, EngineError> {
        if life != self.life {
            return Err(EngineError::failed(
                "used a table",
                "it was opened before a crash",
            ));
        }
        self.tables
            .get_mut(name)
            .ok_or_else(|| EngineError::failed("used a table", format!("{name:?} was removed")))
    }

    fn is_damaged(&self, table: &str, key: &[u8]) -> bool {
        self.damaged.get(table).is_some_and(|rows| rows.contains(key))
    }

    fn take_back(&mut self, undo: Undo) {
        match undo {
            Undo::Row { table, key, before } => {
                let Some(rows) = self.tables.get_mut(&table).map(Arc::make_mut) else {
                    return;
                };
                let back = before.as_ref().map_or(0, |value| row_bytes(&key, value));
                let gone = match before {
                    Some(value) => rows.insert(key.clone(), value),
                    None => rows.remove(&key),
                };
                let gone = gone.map_or(0, |value| row_bytes(&key, &value));
                self.add_room(back);
                self.give_room(gone);
            }
            Undo::Created(name) => {
                let gone = self.tables.remove(&name);
                self.give_room(gone.map_or(0, |rows| rows_bytes(&rows)));
            }
            Undo::Removed(name, rows) => {
                self.add_room(rows_bytes(&rows));
                self.tables.insert(name, rows);
            }
        }
    }
}

/// The number of bytes that a row takes.
fn row_bytes(key: &Bytes, value: &Bytes) -> u64 {
    (key.len() + value.len()) as u64
}

fn rows_bytes(rows: &Rows) -> u64 {
    rows.iter().map(|(key, value)| row_bytes(key, value)).sum()
}

impl Engine for MemoryEngine {
    fn open_table(&self, name: &str) -> Result<Arc<dyn Table>, EngineError> {
        check_name(name)?;
        let mut disk = self.lock();
        disk.check("opened a table")?;
        if !disk.tables.contains_key(name) {
            disk.check_write("created a table")?;
            disk.tables.insert(name.to_owned(), Arc::default());
            disk.undos.push(vec![Undo::Created(name.to_owned())]);
        }
        Ok(Arc::new(MemoryTable {
            engine: self.clone(),
            name: name.to_owned(),
            life: disk.life,
        }))
    }

    fn remove_table(&self, name: &str) -> Result<(), EngineError> {
        let mut disk = self.lock();
        disk.check_write("removed a table")?;
        disk.damaged.remove(name);
        if let Some(rows) = disk.tables.remove(name) {
            disk.give_room(rows_bytes(&rows));
            disk.undos.push(vec![Undo::Removed(name.to_owned(), rows)]);
        }
        Ok(())
    }

    fn table_names(&self) -> Result<Vec<String>, EngineError> {
        let disk = self.lock();
        disk.check("listed its tables")?;
        Ok(disk.tables.keys().cloned().collect())
    }

    fn persist(&self) -> Result<(), EngineError> {
        let mut disk = self.lock();
        disk.check_write("synced")?;
        disk.undos.clear();
        Ok(())
    }

    fn suspect(&self) -> Result<(), EngineError> {
        self.lock().suspected = true;
        Ok(())
    }
}

struct MemoryTable {
    engine: MemoryEngine,
    name: String,
    life: u64,
}

impl Table for MemoryTable {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let mut disk = self.engine.lock();
        disk.check("read a row")?;
        let found = disk.table(&self.name, self.life)?.get(key).cloned();
        match disk.is_damaged(&self.name, key) {
            true => Err(damaged_row("read a row")),
            false => Ok(found),
        }
    }

    fn apply(&self, batch: Vec<TableWrite>) -> Result<(), EngineError> {
        batch.iter().try_for_each(TableWrite::check)?;
        let mut disk = self.engine.lock();
        disk.check_write("applied a batch")?;
        disk.table(&self.name, self.life)?;
        let puts = batch
            .iter()
            .filter_map(|write| Some(row_bytes(&write.key, write.value.as_ref()?)));
        disk.take_room(puts.sum())?;
        let rows = Arc::make_mut(disk.table(&self.name, self.life)?);
        let mut undos = Vec::with_capacity(batch.len());
        let mut gone = 0;
        for TableWrite { key, value } in batch {
            // A copy, because rows that come in one batch may share an allocation, and are removed one by one.
            let key = Bytes::copy_from_slice(&key);
            let before = match value {
                Some(value) => rows.insert(key.clone(), Bytes::copy_from_slice(&value)),
                None => rows.remove(&key),
            };
            gone += before.as_ref().map_or(0, |value| row_bytes(&key, value));
            undos.push(Undo::Row {
                table: self.name.clone(),
                key,
                before,
            });
        }
        disk.give_room(gone);
        if let Some(damaged) = disk.damaged.get_mut(&self.name) {
            for undo in &undos {
                if let Undo::Row { key, .. } = undo {
                    damaged.remove(key);
                }
            }
        }
        disk.undos.push(undos);
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, EngineError> {
        let mut disk = self.engine.lock();
        disk.check("took a snapshot")?;
        let rows = Arc::clone(disk.table(&self.name, self.life)?);
        Ok(Box::new(MemorySnapshot {
            engine: self.engine.clone(),
            table: self.name.clone(),
            rows,
        }))
    }
}

fn damaged_row(during: &'static str) -> EngineError {
    EngineError::damaged(during, "a row was told to be damaged")
}

struct MemorySnapshot {
    engine: MemoryEngine,
    table: String,
    rows: Arc<Rows>,
}

impl Snapshot for MemorySnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let disk = self.engine.lock();
        disk.check("read a row")?;
        match disk.is_damaged(&self.table, key) {
            true => Err(damaged_row("read a row")),
            false => Ok(self.rows.get(key).cloned()),
        }
    }

    fn range(
        &self,
        from: &[u8],
        until: &[u8],
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, EngineError> {
        let disk = self.engine.lock();
        disk.check("read rows")?;
        if from >= until {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        let mut bytes = 0;
        for (key, value) in self.rows.range(Bytes::copy_from_slice(from)..) {
            bytes += key.len() + value.len();
            let full = found.len() >= max_rows || bytes > max_bytes;
            if &key[..] >= until || (full && !found.is_empty()) {
                break;
            }
            if disk.is_damaged(&self.table, key) {
                return Err(damaged_row("read rows"));
            }
            found.push((key.clone(), value.clone()));
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
            let engine = MemoryEngine::new();
            let reopen: Box<dyn Fn() -> Arc<dyn Engine>> = {
                let engine = engine.clone();
                Box::new(move || Arc::new(engine.clone()))
            };
            reopen
        });
    }

    fn put(table: &dyn Table, key: &'static str, value: &'static str) {
        let write = TableWrite::put(key.into(), value.into());
        table.apply(vec![write]).expect("the disk works");
    }

    #[test]
    fn a_crash_takes_back_everything_since_the_last_persist_and_nothing_else() {
        let engine = MemoryEngine::new();
        let table = engine.open_table("t").expect("the disk works");
        put(&*table, "a", "1");
        engine.persist().expect("the disk works");
        put(&*table, "a", "2");
        put(&*table, "b", "1");
        engine.open_table("u").expect("the disk works");
        engine.crash();
        assert!(
            table.get(b"a").is_err(),
            "a handle of an earlier life still works"
        );
        assert_eq!(engine.table_names().expect("the disk works"), ["t"]);
        let table = engine.open_table("t").expect("the disk works");
        assert_eq!(table.get(b"a").expect("the disk works"), Some("1".into()));
        assert_eq!(table.get(b"b").expect("the disk works"), None);
    }

    #[test]
    fn a_crash_may_keep_a_prefix_of_what_was_not_persisted() {
        let engine = MemoryEngine::new();
        let table = engine.open_table("t").expect("the disk works");
        engine.persist().expect("the disk works");
        put(&*table, "a", "1");
        put(&*table, "b", "1");
        put(&*table, "a", "2");
        assert_eq!(engine.unpersisted_batches(), 3);
        engine.crash_keeping(2);
        let table = engine.open_table("t").expect("the disk works");
        assert_eq!(table.get(b"a").expect("the disk works"), Some("1".into()));
        assert_eq!(table.get(b"b").expect("the disk works"), Some("1".into()));
    }

    #[test]
    fn a_damaged_row_is_an_error_until_it_is_written_again() {
        let engine = MemoryEngine::new();
        let table = engine.open_table("t").expect("the disk works");
        let rows = ["a", "b"].map(|key| TableWrite::put(row_key(Area::Rows, key.as_bytes()), "1".into()));
        table.apply(rows.to_vec()).expect("the disk works");
        assert_eq!(engine.damage_key(b"a"), 1);
        let [a, b] = rows.map(|row| row.key);
        assert!(table.get(&a).is_err_and(|error| error.is_damage()));
        assert_eq!(table.get(&b).expect("it is not damaged"), Some("1".into()));
        let range = || {
            let snapshot = table.snapshot().expect("the disk works");
            snapshot.range(&Area::Rows.start(), &Area::Rows.end(), 9, 999)
        };
        assert!(range().is_err_and(|error| error.is_damage()));
        table
            .apply(vec![TableWrite::put(a, "2".into())])
            .expect("the disk works");
        assert_eq!(range().expect("it was written again").len(), 2);
        assert_eq!(engine.damage_block(Place(0), 9), 2);
        assert!(range().is_err());
    }

    #[test]
    fn what_does_not_fit_breaks_it_until_the_next_life_and_what_is_taken_back_is_free_again() {
        let (engine, room) = (MemoryEngine::new(), Room::default());
        engine.set_room(&room);
        let table = engine.open_table("t").expect("the disk works");
        put(&*table, "a", "1234");
        engine.persist().expect("the disk works");
        room.set_free(Some(10));
        put(&*table, "a", "56");
        assert_eq!(room.free(), 12, "what was replaced is free again");
        put(&*table, "b", "12345");
        assert_eq!(room.free(), 6);
        let write = TableWrite::put("c".into(), "123456".into());
        let failed = table.apply(vec![write]);
        assert!(failed.is_err_and(|error| error.is_final()));
        room.set_free(None);
        let write = TableWrite::put("c".into(), "1".into());
        assert!(table.apply(vec![write]).is_err_and(|error| error.is_final()));
        assert_eq!(table.get(b"a").expect("it reads"), Some("56".into()));
        room.set_free(Some(6));
        engine.crash();
        assert!(!engine.is_broken());
        let table = engine.open_table("t").expect("the disk works");
        assert_eq!(room.free(), 10);
        put(&*table, "a", "1");
        let other = engine.copied();
        engine.set_room(&Room::default());
        assert_eq!(room.free(), 15);
        other.set_room(&room);
        assert_eq!(room.free(), 13);
    }

    #[test]
    fn a_failing_disk_answers_with_errors() {
        let engine = MemoryEngine::new();
        let table = engine.open_table("t").expect("the disk works");
        engine.set_failing(true);
        assert!(table.get(b"a").is_err());
        assert!(table.snapshot().is_err());
        assert!(engine.persist().is_err());
        engine.set_failing(false);
        assert_eq!(table.get(b"a").expect("the disk works"), None);
    }
}
