use crate::census::{Census, Kind};
use crate::checkpoint::Checkpoint;
use crate::dirty::DirtySet;
use crate::entries::Entries;
use crate::entry::{Entry, insert_and_count, make_room_and_count, remove_and_count};
use crate::place::{Area, row_key};
use crate::row::{Row, take_row};
use crate::salvage::Pages;
use crate::tombstone::LineId;
use crate::{EngineError, Place, Snapshot, Table};
use bytes::Bytes;
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use thiserror::Error;
use turnbuckle_core::{BadFrame, Chain, Key, Meta, Micros, Placed, Rank, Version, Versions, hash_slot};

/// The options of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The memory that keys and versions may take, in bytes, before [`Store::evict`] evicts any. When the store is opened, this much is loaded. Keys that changed
    /// since the last checkpoint stay in memory, however many there are.
    pub memory_limit_bytes: u64,
    /// Whether versions older than the newest are ever asked for. If not, they are dropped at once.
    pub history: bool,
    /// Values that are shown for less than twice this have one line in the index of tombstones ([`crate::SHORT_LIVED`]).
    pub short_lived: Micros,
    /// The seed of the map in memory. It must be random, so that clients cannot prepare keys that collide. In the
    /// simulator it is fixed, because the order of evictions must repeat.
    pub hash_seed: u64,
}

/// Something read from a table could not be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A row is damaged, or of a newer format.
    #[error("row {row} of the store is not readable: {source}")]
    BadRow {
        /// The row's key, escaped and cut to a length fit for a log line.
        row: String,
        /// What was expected, and what was found.
        source: BadFrame,
    },
}

impl StoreError {
    /// Whether what is on the disk is damaged: reading it again does not help.
    pub fn is_damage(&self) -> bool {
        match self {
            StoreError::Engine(error) => error.is_damage(),
            StoreError::BadRow { .. } => true,
        }
    }

    pub(crate) fn bad_row(row: &[u8], source: BadFrame) -> StoreError {
        let row = row[..row.len().min(80)].escape_ascii().to_string();
        StoreError::BadRow { row, source }
    }
}

/// The number of finished checkpoints. A read of the table without the lock counts only if no checkpoint finished since
/// before the read: until then, what the table lacked is dirty in memory. Afterwards it may be in neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch(pub(crate) u64);

/// A checkpoint finished during a read without the lock: take a new [`Epoch`], read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a checkpoint finished meanwhile; read again")]
pub struct Retry;

/// What was read from the table for one key, to be brought into memory by [`Store::admit`].
#[derive(Debug, Clone)]
pub struct Fetched<M> {
    pub(crate) key: Key,
    pub(crate) chain: Option<Chain<M>>,
    pub(crate) epoch: Epoch,
}

impl<M> Fetched<M> {
    /// The key's versions in the engine. Memory may have newer ones.
    pub fn chain(&self) -> Option<&Chain<M>> {
        self.chain.as_ref()
    }
}

/// The versions of one replica's keys.
pub struct Store<M> {
    pub(crate) table: Arc<dyn Table>,
    pub(crate) options: Options,
    pub(crate) entries: Entries<M>,
    /// Whether everything that exists is in memory: a key that is not in the map does not exist.
    pub(crate) complete: bool,
    /// The counts of all keys, in memory or not.
    pub(crate) keys: Census,
    /// The counts of the rows in the engine, with the changes that the running checkpoint has taken.
    pub(crate) rows: Census,
    /// The number of entries without a chain.
    pub(crate) absent: usize,
    pub(crate) memory_bytes: u64,
    /// The keys that became dirty since the last checkpoint began.
    pub(crate) dirty: DirtySet,
    pub(crate) dirty_bytes: u64,
    /// The keys that became dirty before that, while the checkpoint runs or after it was aborted.
    pub(crate) taking: DirtySet,
    pub(crate) taking_bytes: u64,
    /// Entries that become dirty now get this number. Invariant: `clean_below <= generation`. An entry is dirty if its
    /// generation is at least `clean_below`. It is then in `dirty` (if its generation is `generation`) or in `taking`.
    pub(crate) generation: u32,
    pub(crate) clean_below: u32,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) epoch: u64,
    /// The position of the clock's hand.
    pub(crate) hand: usize,
    /// The index of the entry that was last looked up: an input looks several times for the same key.
    recent: AtomicUsize,
}

/// The meta of the last finished checkpoint in a table, without opening its store.
pub fn read_meta(table: &dyn Table) -> Result<Option<Bytes>, EngineError> {
    table.get(&Area::Meta.start())
}

/// The most rows, and bytes, of a table that are read at a time.
const PAGE_ROWS: usize = 4096;
const PAGE_BYTES: usize = 4 << 20;

impl<M: Meta> Store<M> {
    /// Opens what the table holds, and loads keys until the memory limit. Also returns the meta of the last checkpoint
    /// that finished, if there was one. Rows may be newer than the meta says, so replaying a log over them must be
    /// idempotent.
    pub fn open(table: Arc<dyn Table>, options: Options) -> Result<(Store<M>, Option<Bytes>), StoreError> {
        let snapshot = table.snapshot()?;
        let meta = snapshot.get(&Area::Meta.start())?;
        let keys = snapshot.get(&Area::Count.start())?.map(Census::decode);
        let keys = keys.transpose();
        let keys = keys.map_err(|source| StoreError::bad_row(&Area::Count.start(), source))?;
        let keys = match (keys, &meta) {
            (Some(keys), _) => keys,
            (None, None) => Census::default(),
            // A salvaged table has no counts.
            (None, Some(_)) => count_rows::<M>(&*snapshot)?,
        };
        let mut store = Store {
            table,
            options,
            entries: Entries::new(options.hash_seed),
            complete: false,
            keys,
            rows: keys,
            absent: 0,
            memory_bytes: 0,
            dirty: DirtySet::default(),
            dirty_bytes: 0,
            taking: DirtySet::default(),
            taking_bytes: 0,
            generation: 1,
            clean_below: 1,
            checkpoint: None,
            epoch: 0,
            hand: 0,
            recent: AtomicUsize::new(0),
        };
        store.load_all(&*snapshot)?;
        Ok((store, meta))
    }

    fn load_all(&mut self, snapshot: &dyn Snapshot) -> Result<(), StoreError> {
        let mut from = Area::Rows.start();
        while self.memory_bytes < self.options.memory_limit_bytes {
            let rows = snapshot.range(&from, &Area::Rows.end(), PAGE_ROWS, PAGE_BYTES)?;
            let Some((last, _)) = rows.last() else {
                self.complete = true;
                // Counted again, which also corrects a count that is wrong after an engine's failure.
                self.keys = self.entries.values().map(Entry::kind).collect();
                self.rows = self.keys;
                break;
            };
            from = after(last);
            for (key, value) in rows {
                let row = read_row::<M>(&key, value, true)?;
                let _index = self.insert_clean(&row.key, row.place.slot(), Some(row.chain));
            }
        }
        Ok(())
    }

    /// Reads one key from the table, without the store's lock. `epoch` is [`Store::epoch`] from before the call.
    pub fn fetch(table: &dyn Table, key: &Key, epoch: Epoch) -> Result<Fetched<M>, StoreError> {
        let row_key = row_key(Area::Rows, key.as_ref());
        let chain = match table.get(&row_key)? {
            None => None,
            Some(value) => {
                let row = read_row::<M>(&row_key, value, true)?;
                // Two long keys with one SHA-256 do not happen in practice. A damaged row does.
                if row.key != *key {
                    let source = BadFrame::new("a row of the key asked for", "another key");
                    return Err(StoreError::bad_row(&row_key, source));
                }
                Some(row.chain)
            }
        };
        Ok(Fetched {
            key: key.clone(),
            chain,
            epoch,
        })
    }

    /// Makes resident what was fetched, including that the key has no version. The key stays resident at least until
    /// the next [`Store::evict`]. Nothing happens if the key is resident by now: memory is never behind the table. If
    /// it is not, and a checkpoint finished meanwhile, what was fetched may be too old.
    pub fn admit(&mut self, fetched: Fetched<M>) -> Result<(), Retry> {
        if self.is_resident(fetched.key.as_ref()) {
            return Ok(());
        }
        if fetched.epoch != self.epoch() {
            return Err(Retry);
        }
        let slot = hash_slot(fetched.key.as_ref());
        self.insert_clean(&fetched.key, slot, fetched.chain);
        Ok(())
    }

    /// Makes a key resident: [`Store::fetch`] and [`Store::admit`] in one, for callers that may read from the disk
    /// while they hold the lock (while a log is replayed, no other thread waits for it).
    pub fn load(&mut self, key: &Key) -> Result<(), StoreError> {
        if self.is_resident(key.as_ref()) {
            return Ok(());
        }
        let fetched = Store::fetch(&*self.table, key, self.epoch())?;
        self.admit(fetched)
            .expect("no checkpoint finishes between two lines that hold the store");
        Ok(())
    }

    fn insert_clean(&mut self, key: &Key, slot: u16, mut chain: Option<Chain<M>>) -> usize {
        if !self.options.history
            && !M::SIBLINGS
            && let Some(chain) = &mut chain
        {
            chain.drop_older();
        }
        let entry = Entry::clean(slot, chain);
        self.absent += usize::from(entry.chain().is_none());
        self.memory_bytes += entry.cost_bytes(key.as_ref());
        let index = self.entries.insert(key.as_ref(), entry);
        index.expect("a key that is resident is not read from the engine")
    }

    /// Whether the key's versions, or that it has none, are known without the table. If so, [`Versions::chain`] may be
    /// called.
    pub fn is_resident(&self, key: &[u8]) -> bool {
        self.complete || self.entries.contains_key(key)
    }

    /// The table below, for reads without the store's lock.
    pub fn table(&self) -> Arc<dyn Table> {
        Arc::clone(&self.table)
    }

    /// The epoch to take before a read without the store's lock.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    /// From now on, memory above this is freed: see [`Options::memory_limit_bytes`].
    pub fn set_memory_limit_bytes(&mut self, bytes: u64) {
        self.options.memory_limit_bytes = bytes;
    }

    /// The memory that keys and versions take, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// The part of it that cannot be evicted before a checkpoint finishes, in bytes. It says when to begin one.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes + self.taking_bytes
    }

    /// The number of keys that have a delete as their newest version, in memory or not.
    pub fn deleted_keys(&self) -> u64 {
        self.keys.deleted
    }

    /// The number of keys whose newest version is a value that expires at some time, or has expired; in memory or not.
    pub fn expiring_keys(&self) -> u64 {
        self.keys.expiring
    }

    /// The number of rows of the engine whose newest version is a delete or expires: they can be collected ([`Store::collect_tombstones`]) when it is time.
    pub fn collectable_rows(&self) -> u64 {
        self.rows.deleted.saturating_add(self.rows.expiring)
    }

    /// The number of keys about which memory knows something.
    pub fn resident_keys(&self) -> usize {
        self.entries.len()
    }

    /// Removes all versions of a key that are `gone`, and returns their ranks, newest first. They are versions that a
    /// full copy lacks, or that a stream took back.
    ///
    /// # Panics
    /// If the key is not resident.
    pub fn forget(&mut self, key: &[u8], gone: impl Fn(&Version<M>) -> bool) -> Vec<Rank> {
        self.assert_resident(key);
        let Some(index) = self.entries.get_index_of(key) else {
            return Vec::new();
        };
        let Some(chain) = self.entries[index].chain() else {
            return Vec::new();
        };
        let (removed, kept): (Vec<_>, Vec<_>) = chain.iter().partition(|version| gone(version));
        if removed.is_empty() {
            return Vec::new();
        }
        let was = LineId::of(chain, self.options.short_lived);
        let removed = removed.into_iter().map(Version::rank).collect();
        let kept = Chain::newest_first(kept.into_iter().cloned());
        self.change(index, |entry| entry.set_chain(kept, was));
        removed
    }

    /// Puts a version that is replayed from the log. If the key had no version before it, what its row still has was forgotten then, by a checkpoint that was not finished: it goes first. If the row has this version, it is
    /// from later.
    ///
    /// # Panics
    /// If the key is not resident.
    pub fn replay(&mut self, key: &Key, version: &Version<M>, is_first: bool) {
        let is_here = |chain: &Chain<M>| chain.holds_rank(version.rank());
        if is_first && !self.chain(key.as_ref()).is_some_and(is_here) {
            self.forget(key.as_ref(), |_| true);
        }
        self.put(key, version);
    }

    /// Removes one version of a key: a replay of what [`Store::forget`] did. Returns whether it was there. Replays remove versions one by one, and a chain
    /// can have many: so the chain is not copied. It is walked when the key becomes dirty, and with siblings each time.
    ///
    /// # Panics
    /// If the key is not resident.
    pub fn remove(&mut self, key: &[u8], rank: Rank) -> bool {
        self.assert_resident(key);
        let Some(index) = self.entries.get_index_of(key) else {
            return false;
        };
        let entry = &mut self.entries[index];
        let was = entry.kind();
        let Some(chain) = entry.chain_mut() else {
            return false;
        };
        if let Some((shrinks_bytes, grows_bytes)) = remove_and_count(chain, rank) {
            self.account(index, was, shrinks_bytes, grows_bytes);
            return true;
        }
        let is_the_only_one = chain.newest().rank() == rank;
        if is_the_only_one {
            let line = LineId::of(chain, self.options.short_lived);
            self.change(index, |entry| entry.set_chain(None, line));
        }
        is_the_only_one
    }

    /// Counts everything again and compares. For tests, because it walks over all of memory.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn validate(&self) {
        assert!(self.clean_below <= self.generation, "the future is clean");
        let cost: u64 = self
            .entries
            .iter()
            .map(|(key, entry)| entry.cost_bytes(key))
            .sum();
        assert_eq!(self.memory_bytes, cost, "memory is miscounted");
        let absent = self
            .entries
            .values()
            .filter(|entry| entry.chain().is_none())
            .count();
        assert_eq!(self.absent, absent, "absent keys are miscounted");
        let listed: BTreeSet<u32> = [&self.dirty, &self.taking]
            .into_iter()
            .flat_map(DirtySet::all)
            .collect();
        let dirty = self.entries.indexed().filter(|(_, entry)| self.is_dirty(entry));
        let dirty: BTreeSet<u32> = dirty.map(|(index, _)| index as u32).collect();
        assert_eq!(listed, dirty, "the lists of dirty keys are not the dirty keys");
        let cost_since = |generation: u32| {
            let since = self
                .entries
                .iter()
                .filter(|(_, entry)| entry.generation() >= generation);
            since.map(|(key, entry)| entry.cost_bytes(key)).sum::<u64>()
        };
        assert_eq!(
            self.dirty_bytes,
            cost_since(self.generation),
            "dirty memory is miscounted"
        );
        if self.complete {
            let keys = self.entries.values().map(Entry::kind).collect();
            assert_eq!(self.keys, keys, "keys are miscounted");
        }
    }

    pub(crate) fn assert_resident(&self, key: &[u8]) {
        assert!(
            self.is_resident(key),
            "the key {:?} is used but not resident: it was not named before the input was handled",
            key.escape_ascii().to_string()
        );
    }

    /// The index of a key's entry.
    fn find(&self, key: &[u8]) -> Option<usize> {
        let recent = self.recent.load(Ordering::Relaxed);
        let at_recent = self.entries.get_index(recent);
        if at_recent.is_some_and(|(stored, _)| stored.as_slice() == key) {
            return Some(recent);
        }
        let index = self.entries.get_index_of(key)?;
        self.recent.store(index, Ordering::Relaxed);
        Some(index)
    }

    /// Looks at keys that are needed soon, one right behind the other: so the processor fetches them from memory at the same time. Each put of a key mostly waits for that.
    pub fn look_ahead<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) {
        let glance = |key| Some(self.entries.get(key)?.chain()?.glance());
        std::hint::black_box(keys.filter_map(glance).sum::<usize>());
    }

    /// Changes one entry, and every count that depends on it. The entry becomes dirty.
    pub(crate) fn change(&mut self, index: usize, with: impl FnOnce(&mut Entry<M>)) {
        let (key, entry) = self
            .entries
            .get_index_mut(index)
            .expect("the index was just found");
        let before_bytes = entry.cost_bytes(key);
        let was = entry.kind();
        with(entry);
        let after_bytes = entry.cost_bytes(key);
        self.account(index, was, before_bytes, after_bytes);
    }

    /// Counts the change of an entry's kind and cost, and makes it dirty.
    fn account(&mut self, index: usize, was: Kind, before_bytes: u64, after_bytes: u64) {
        let is = self.entries[index].kind();
        self.keys.change(was, is);
        self.absent = self.absent + usize::from(is == Kind::Nothing) - usize::from(was == Kind::Nothing);
        self.recount_memory(before_bytes, after_bytes);
        self.touch(index, before_bytes, after_bytes);
    }

    pub(crate) fn recount_memory(&mut self, before_bytes: u64, after_bytes: u64) {
        self.memory_bytes = (self.memory_bytes + after_bytes)
            .checked_sub(before_bytes)
            .expect("an entry costs no more than all entries");
    }

    /// Makes an entry dirty, unless the running checkpoint will write its newest state anyway.
    fn touch(&mut self, index: usize, before_bytes: u64, after_bytes: u64) {
        let (key, entry) = self
            .entries
            .get_index_mut(index)
            .expect("the index was just found");
        if entry.generation() == self.generation {
            self.dirty_bytes = (self.dirty_bytes + after_bytes).saturating_sub(before_bytes);
            return;
        }
        if entry.generation() >= self.clean_below && !entry.marks().is_taken() {
            self.taking_bytes = (self.taking_bytes + after_bytes).saturating_sub(before_bytes);
            return;
        }
        self.dirty_bytes += entry.cost_bytes(key);
        entry.set_generation(self.generation);
        entry.marks_mut().set_taken(false);
        let slot = entry.slot();
        self.dirty
            .insert(slot, index as u32, |index| place_at(&self.entries, index));
    }

    pub(crate) fn is_dirty(&self, entry: &Entry<M>) -> bool {
        entry.generation() >= self.clean_below
    }
}

impl<M: Meta> Versions<M> for Store<M> {
    /// One lookup, no allocation.
    fn chain(&self, key: &[u8]) -> Option<&Chain<M>> {
        match self.find(key) {
            Some(index) => {
                let entry = &self.entries[index];
                entry.marks().warm();
                entry.chain()
            }
            None => {
                self.assert_resident(key);
                None
            }
        }
    }

    /// Copies key and value, so that they do not keep the buffer of a connection alive.
    ///
    /// Without history, a version older than the newest (or, if it is a count, a newer count of its replica) changes nothing and is not added, as if it had been there and
    /// been dropped. With siblings, that is so for a version that another one replaces. Then it must not go into the log either: if it were replayed onto a row from which the newer
    /// version has been forgotten meanwhile, it would have an effect.
    ///
    /// # Panics
    /// If the key is not resident: whether the version is new could not be known.
    fn put(&mut self, key: &Key, version: &Version<M>) -> Placed {
        let index = match self.find(key.as_ref()) {
            Some(index) => index,
            None => {
                self.assert_resident(key.as_ref());
                self.insert_clean(key, key.slot(), None)
            }
        };
        let version = Version {
            id: version.id,
            content: version.content.compact(),
            meta: version.meta.clone(),
        };
        let history = self.options.history;
        let entry = &mut self.entries[index];
        entry.marks().warm();
        let was = entry.kind();
        match entry.chain_mut() {
            Some(chain) if M::SIBLINGS => {
                if chain.covers(version.id) {
                    return Placed::Unwanted;
                }
                self.change(index, |entry| {
                    let chain = entry.chain_mut();
                    chain.expect("it was just there").insert(version);
                });
            }
            Some(chain) if history => {
                let Some(grows_bytes) = insert_and_count(chain, version) else {
                    return Placed::Unwanted;
                };
                self.account(index, was, 0, grows_bytes);
            }
            // Almost all that is not wanted is older than a newer value.
            Some(chain) if version.content.share().is_none() && version.rank() <= chain.newest().rank() => {
                return Placed::Unwanted;
            }
            _ => {
                let (mut is_wanted, is_first) = (false, entry.chain().is_none());
                self.change(index, |entry| is_wanted = entry.insert_latest(version));
                return match is_wanted {
                    true if is_first => Placed::First,
                    true => Placed::Added,
                    false => Placed::Unwanted,
                };
            }
        }
        Placed::Added
    }

    fn make_room(&mut self, key: &[u8], covered: &dyn Fn(&Version<M>) -> bool) {
        let Some(index) = self.find(key) else {
            return;
        };
        let entry = &mut self.entries[index];
        if !entry.chain().is_some_and(|chain| chain.has_doubled(LONG_CHAIN)) {
            return;
        }
        let was = entry.kind();
        let Some(chain) = entry.chain_mut() else {
            return;
        };
        let (before_bytes, after_bytes) = make_room_and_count(chain, covered);
        self.account(index, was, before_bytes, after_bytes);
    }

    fn live_keys(&self) -> u64 {
        self.keys.live
    }

    fn forgettable_keys(&self) -> u64 {
        self.keys.deleted.saturating_add(self.keys.expiring)
    }
}

/// A chain of at least this number of versions is searched, whenever its length has doubled, for versions that no
/// request can ask for any more. With two, a key that is written often keeps its newest version and the one before it.
const LONG_CHAIN: usize = 2;

pub(crate) fn place_at<M>(entries: &Entries<M>, index: u32) -> Place {
    let (key, _) = entries
        .get_index(index as usize)
        .expect("what is dirty is never removed, and moves together with its index");
    Place::of(key)
}

/// Counts all rows of a table.
fn count_rows<M: Meta>(snapshot: &dyn Snapshot) -> Result<Census, StoreError> {
    let mut census = Census::default();
    let mut pages = Pages::new(snapshot, &Area::Rows.start(), &Area::Rows.end()).stopping_at_gaps();
    while let Some(page) = pages.next()? {
        for (key, value) in page {
            let row = read_row::<M>(&key, value, false)?;
            census.add(Kind::of(Some(&row.chain)));
        }
    }
    Ok(census)
}

/// The smallest key behind `key`.
pub(crate) fn after(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// Decodes a row whose key still has its area in front.
pub(crate) fn read_row<M: Meta>(key: &Bytes, value: Bytes, own: bool) -> Result<Row<M>, StoreError> {
    take_row(&key.slice(1..), value, own).map_err(|source| StoreError::bad_row(key, source))
}
