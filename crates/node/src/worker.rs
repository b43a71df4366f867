//! What happens in the background: fetches, checkpoints, and putting full copies in place.
//!
//! All of it works in small steps under the lane's lock and does its reading and writing of disks outside.
use crate::{
    incoming::CopyIn,
    keyspace::{Keyspace, LaneCell},
    lane::Lane,
    shared::held,
};
use bytes::Bytes;
use prost::Message;
use std::{
    cmp::Ordering,
    collections::VecDeque,
    sync::{MutexGuard, atomic::Ordering::Relaxed},
};
use turnbuckle_core::{Chain, Hlc, Input, Key, Now, Protocol, SiteId, VersionId, Versions};
use turnbuckle_log::{LogError, Position};
use turnbuckle_store::{
    Engine, EngineError, RowCursor, RowPage, Snapshot, Store, StoreError, Table, TombstonePage, clear_staged,
    compare_rows, rows, staged_rows,
};

/// How many keys are taken into one chunk of a checkpoint, or looked at in one step of a copy.
const CHUNK_KEYS: usize = 512;
const PAGE_BYTES: usize = 1 << 20;

/// How many keys are evicted under one lock.
const EVICT_KEYS: usize = 256;

/// How many keys one fetch brings into memory.
const FETCH_KEYS: usize = 32;

/// How many deletes are looked at under one lock, and how often in one checkpoint.
const TOMBSTONE_KEYS: usize = 256;
const MOST_TOMBSTONE_PAGES: usize = 64;

/// Background work that could not be done. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The commit log failed.
    #[error("the commit log: {0}")]
    Log(#[from] LogError),
    /// The engine failed.
    #[error("the engine: {0}")]
    Engine(#[from] EngineError),
    /// A row could not be read.
    #[error("the store: {0}")]
    Store(#[from] StoreError),
}

impl WorkError {
    /// Whether trying again is of no use: the node has to be opened again.
    pub fn is_final(&self) -> bool {
        match self {
            WorkError::Log(error) => matches!(error, LogError::Poisoned(_)),
            WorkError::Engine(error) | WorkError::Store(StoreError::Engine(error)) => error.is_final(),
            WorkError::Store(StoreError::BadRow { .. }) => false,
        }
    }
}

impl<P: Protocol> Keyspace<P> {
    // ---- fetches --------------------------------------------------------------------------------------------

    /// Brings some keys that inputs wait for into memory, and lets those inputs run. Returns whether there was anything to do.
    pub(crate) fn fetch(&self, now: Now) -> bool {
        let mut any = false;
        for cell in self.lanes() {
            let keys = {
                let mut lane = held(&cell.lane);
                lane.cold.take_wanted(FETCH_KEYS)
            };
            if keys.is_empty() {
                continue;
            }
            any = true;
            for key in keys {
                let result = self.make_resident(cell, &key);
                let mut lane = held(&cell.lane);
                match result {
                    // Evicted again already, by another thread: once more.
                    Ok(()) if !lane.store.is_resident(key.as_ref()) => {
                        lane.cold.fetched(&key);
                        lane.cold.want(&key);
                    }
                    Ok(()) => lane.fetched(self, now, &key),
                    Err(error) => {
                        tracing::error!(keyspace = self.name(), "a key cannot be read from disk: {error}");
                        lane.fetch_failed(self, &key, &error);
                    }
                }
                self.done(cell, lane);
            }
        }
        any
    }

    /// Reads a key from the engine without the lane's lock, and brings it in.
    fn make_resident(&self, cell: &LaneCell<P>, key: &Key) -> Result<(), StoreError> {
        loop {
            let (table, epoch) = {
                let lane = held(&cell.lane);
                if lane.store.is_resident(key.as_ref()) {
                    return Ok(());
                }
                (lane.store.table(), lane.store.epoch())
            };
            let fetched = Store::fetch(&*table, key, epoch)?;
            if held(&cell.lane).store.admit(fetched).is_ok() {
                return Ok(());
            }
        }
    }

    /// Runs `with` on a lane in which `key` is resident.
    fn with_resident<R>(
        &self,
        cell: &LaneCell<P>,
        key: &Key,
        with: impl FnOnce(&mut Lane<P>) -> R,
    ) -> Result<R, StoreError> {
        loop {
            self.make_resident(cell, key)?;
            let mut lane = held(&cell.lane);
            if lane.store.is_resident(key.as_ref()) {
                let result = with(&mut lane);
                self.done(cell, lane);
                return Ok(result);
            }
        }
    }

    /// Takes versions out of memory that are in the engine, until the rest is under the limit.
    pub(crate) fn trim(&self) {
        for cell in self.lanes() {
            while held(&cell.lane).store.evict(EVICT_KEYS) > 0 {}
        }
    }

    // ---- checkpoints ----------------------------------------------------------------------------------------

    /// Writes what changed since the last checkpoint of each lane into the engine. The caller makes the engine persist
    /// before the log is purged.
    pub(crate) fn checkpoint(&self, engine: &dyn Engine, only_wanted: bool) -> Result<bool, WorkError> {
        let mut any = false;
        for cell in self.lanes() {
            if only_wanted && !held(&cell.lane).wants_row_checkpoint() {
                continue;
            }
            any = true;
            self.checkpoint_lane(engine, cell)?;
        }
        Ok(any)
    }

    fn checkpoint_lane(&self, engine: &dyn Engine, cell: &LaneCell<P>) -> Result<(), WorkError> {
        self.collect_deletes(cell)?;
        let (table, meta) = {
            let mut lane = held(&cell.lane);
            lane.append(self);
            cell.set_waiting();
            let meta = lane.meta(self.shared().log().end());
            lane.store.begin_checkpoint(meta.encode_to_vec().into());
            lane.row_checkpoint_done();
            (lane.store.table(), meta)
        };
        let mut result = self
            .write_chunks(cell, &*table)
            .and_then(|()| Ok(engine.persist()?));
        let mut lane = held(&cell.lane);
        let spent = match &result {
            Ok(()) => {
                lane.checkpointed = Some(meta);
                Some(lane.store.finish_checkpoint())
            }
            Err(_) => {
                lane.store.abort_checkpoint();
                None
            }
        };
        let wanted = std::mem::take(&mut lane.rows_wanted);
        for (site, purpose) in wanted
            .into_iter()
            .flat_map(|(site, purposes)| purposes.into_iter().map(move |purpose| (site, purpose)))
        {
            let begun = match &result {
                Ok(()) => lane.begin_rows(self, site, purpose).map_err(WorkError::from),
                Err(_) => {
                    lane.want_rows(self, site, purpose);
                    continue;
                }
            };
            if let Err(error) = begun {
                lane.want_rows(self, site, purpose);
                result = Err(error);
            }
        }
        self.done(cell, lane);
        drop(spent);
        result
    }

    fn write_chunks(&self, cell: &LaneCell<P>, table: &dyn Table) -> Result<(), WorkError> {
        loop {
            let chunk = {
                let mut lane = held(&cell.lane);
                // What is in the store but not in the log yet goes to the log first.
                lane.append(self);
                cell.set_waiting();
                lane.next_chunk(CHUNK_KEYS)
            };
            let Some(chunk) = chunk else { return Ok(()) };
            // A row in the engine whose record the log then loses would never reach the peers: the log is synced first.
            let log = self.shared().log();
            log.write()?;
            log.sync()?;
            chunk.write(table)?;
        }
    }

    /// Drops deletes that nobody needs any more.
    fn collect_deletes(&self, cell: &LaneCell<P>) -> Result<(), WorkError> {
        let (table, below) = {
            let lane = held(&cell.lane);
            (lane.store.table(), lane.settled())
        };
        let mut from = None;
        for _ in 0..MOST_TOMBSTONE_PAGES {
            let page = TombstonePage::read(&*table, below, from.as_ref(), TOMBSTONE_KEYS)?;
            for key in page.keys() {
                self.make_resident(cell, key)?;
            }
            let mut lane = held(&cell.lane);
            let (_, stale) = lane.store.collect_tombstones(&page);
            self.done(cell, lane);
            stale.erase(&*table)?;
            match page.next() {
                Some(next) => from = Some(next.clone()),
                None => break,
            }
        }
        Ok(())
    }

    // ---- full copies ----------------------------------------------------------------------------------------

    /// Puts full copies in place that have arrived whole. Returns whether there was one.
    pub(crate) fn place_copies(&self, engine: &dyn Engine, now: Now) -> Result<bool, WorkError> {
        let mut any = false;
        for cell in self.lanes() {
            let complete = |lane: &MutexGuard<'_, Lane<P>>| {
                let whole = lane
                    .incoming
                    .iter()
                    .filter_map(|(&site, incoming)| Some((site, incoming.copy.clone()?)));
                whole.filter(|(_, copy)| copy.complete).collect::<Vec<_>>()
            };
            let copies = complete(&held(&cell.lane));
            for (site, copy) in copies {
                any = true;
                if !copy.placed {
                    // So that the engine holds everything, and rows can be compared in their order.
                    self.checkpoint_lane(engine, cell)?;
                    self.place_copy(now, cell, site, &copy)?;
                }
                self.finish_copy(cell, site, &copy)?;
            }
        }
        Ok(any)
    }

    /// The copy replaces what it covers, row by row in the engine's order:
    ///
    /// - a version of the copy comes in, unless this side covers it and does not have it: then it was here, and was
    ///   superseded or collected;
    /// - a version here goes, if the copy's cut covers it and the copy does not have it: then it was there, and was superseded
    ///   or collected.
    ///
    /// A mere union would bring back what was deleted while this side was away.
    fn place_copy(
        &self,
        now: Now,
        cell: &LaneCell<P>,
        site: SiteId,
        copy: &CopyIn<P::Meta>,
    ) -> Result<(), WorkError> {
        let from = self.topology().peer_at(cell.me, site);
        let table = {
            let mut lane = held(&cell.lane);
            let copied = copy.copied.clone();
            lane.step(self, now, Input::Copying { from, copied });
            self.done(cell, lane);
            held(&cell.lane).store.table()
        };
        let snapshot = table.snapshot()?;
        let mut ours = RowReader::<P>::new(&*snapshot, rows);
        let mut theirs = RowReader::<P>::new(&*snapshot, staged_rows);
        let mut placed = 0_u64;
        loop {
            let mut part = Vec::new();
            while part.len() < CHUNK_KEYS
                && let Some(pair) = next_pair(&mut ours, &mut theirs)?
            {
                part.push(pair);
            }
            if part.is_empty() {
                break;
            }
            placed += part.len() as u64;
            self.place_rows(now, cell, copy, part)?;
        }
        let mut lane = held(&cell.lane);
        let copied = copy.copied.clone();
        lane.step(self, now, Input::Copied { from, copied });
        lane.cover(&copy.copied.cut);
        lane.placed(site);
        self.done(cell, lane);
        self.shared().copies_placed.fetch_add(1, Relaxed);
        tracing::info!(
            keyspace = self.name(),
            partition = cell.me.partition,
            rows = placed,
            "a full copy is in place"
        );
        Ok(())
    }

    /// Removes the staged rows of a copy that is in place, and only then lets the next copy begin. In the other order the rows that are
    /// removed would be those of the next copy, and what it lacks is deleted here.
    fn finish_copy(&self, cell: &LaneCell<P>, site: SiteId, copy: &CopyIn<P::Meta>) -> Result<(), WorkError> {
        let late = self.shared().config.planted.copies_cleared_late;
        let table = held(&cell.lane).store.table();
        if !late {
            clear_staged(&*table)?;
        }
        let mut lane = held(&cell.lane);
        lane.copied(self, site, copy.resume);
        self.done(cell, lane);
        if late {
            clear_staged(&*table)?;
        }
        Ok(())
    }

    fn place_rows(
        &self,
        now: Now,
        cell: &LaneCell<P>,
        copy: &CopyIn<P::Meta>,
        part: Vec<Pair<P>>,
    ) -> Result<(), WorkError> {
        for (key, ours, theirs) in part {
            self.with_resident(cell, &key, |lane| {
                self.place_row(now, lane, copy, &key, ours.as_ref(), theirs.as_ref());
            })?;
        }
        self.append();
        self.shared().log().write()?;
        self.release(now);
        Ok(())
    }

    fn place_row(
        &self,
        now: Now,
        lane: &mut Lane<P>,
        copy: &CopyIn<P::Meta>,
        key: &Key,
        ours: Option<&Chain<P::Meta>>,
        theirs: Option<&Chain<P::Meta>>,
    ) {
        let merges = self.shared().config.planted.copy_merges;
        let our_cut = lane.cut();
        for version in theirs.into_iter().flat_map(Chain::iter) {
            let here = lane
                .store
                .chain(key.as_ref())
                .is_some_and(|chain| holds(chain, version.id));
            if here || !merges && covers(&our_cut, version.id) {
                continue;
            }
            let (key, version) = (key.compact(), version.clone());
            let input = if version.id.site == lane.me.site {
                // Lost here in a power cut: the other sites may not have it either.
                Input::Replicated {
                    from: lane.me,
                    key,
                    version,
                    encoded: Bytes::new(),
                }
            } else {
                Input::CopiedRow { key, version }
            };
            lane.step(self, now, input);
        }
        let gone =
            |id: VersionId| covers(&copy.copied.cut, id) && !theirs.is_some_and(|chain| holds(chain, id));
        for version in ours
            .into_iter()
            .flat_map(Chain::iter)
            .filter(|version| !merges && gone(version.id))
        {
            if lane.store.remove(key.as_ref(), version.id) {
                lane.step(
                    self,
                    now,
                    Input::Dropped {
                        key: key.compact(),
                        id: version.id,
                    },
                );
            }
        }
    }
}

fn holds<M>(chain: &Chain<M>, id: VersionId) -> bool {
    chain.iter().any(|version| version.id == id)
}

fn covers(cut: &[(SiteId, Hlc)], id: VersionId) -> bool {
    cut.iter().any(|&(site, until)| site == id.site && id.at <= until)
}

/// A key with its chain here and its chain in the copy.
type Pair<P> = (
    Key,
    Option<Chain<<P as Protocol>::Meta>>,
    Option<Chain<<P as Protocol>::Meta>>,
);

/// Rows in the engine's order, read ahead in pages.
struct RowReader<'a, P: Protocol> {
    snapshot: &'a dyn Snapshot,
    read: ReadPage<P::Meta>,
    next: Option<RowCursor>,
    page: VecDeque<(Key, Chain<P::Meta>)>,
    done: bool,
}

type ReadPage<M> = fn(&dyn Snapshot, Option<&RowCursor>, usize, usize) -> Result<RowPage<M>, StoreError>;

impl<'a, P: Protocol> RowReader<'a, P> {
    fn new(snapshot: &'a dyn Snapshot, read: ReadPage<P::Meta>) -> Self {
        RowReader {
            snapshot,
            read,
            next: None,
            page: VecDeque::new(),
            done: false,
        }
    }

    fn peek(&mut self) -> Result<Option<&Key>, StoreError> {
        if self.page.is_empty() && !self.done {
            let page = (self.read)(self.snapshot, self.next.as_ref(), CHUNK_KEYS, PAGE_BYTES)?;
            self.done = page.next.is_none();
            self.next = page.next;
            self.page.extend(page.rows);
        }
        Ok(self.page.front().map(|(key, _)| key))
    }

    fn take(&mut self) -> Option<Chain<P::Meta>> {
        self.page.pop_front().map(|(_, chain)| chain)
    }
}

/// The next key that either side has.
fn next_pair<P: Protocol>(
    ours: &mut RowReader<'_, P>,
    theirs: &mut RowReader<'_, P>,
) -> Result<Option<Pair<P>>, StoreError> {
    let (our, their) = (ours.peek()?, theirs.peek()?);
    let order = match (our, their) {
        (None, None) => return Ok(None),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (Some(our), Some(their)) => compare_rows(our.as_ref(), their.as_ref()),
    };
    let key = if order == Ordering::Greater { their } else { our }
        .cloned()
        .expect("one side has a key");
    let our = if order == Ordering::Greater {
        None
    } else {
        ours.take()
    };
    let their = if order == Ordering::Less {
        None
    } else {
        theirs.take()
    };
    Ok(Some((key, our, their)))
}

/// Where the log must be kept from.
pub(crate) struct Retention {
    /// For peers that are being fed, or for a copy on its way: whatever the limit.
    pub fed: Option<Position>,
    /// For peers that are away: up to the limit.
    pub absent: Option<Position>,
}

impl<P: Protocol> Keyspace<P> {
    pub(crate) fn retention(&self) -> Retention {
        let mut retention = Retention {
            fed: None,
            absent: None,
        };
        let earlier = |a: Option<Position>, b: Option<Position>| [a, b].into_iter().flatten().min();
        for cell in self.lanes() {
            let lane = held(&cell.lane);
            retention.fed = earlier(retention.fed, lane.outgoing.needed(false));
            retention.absent = earlier(retention.absent, lane.outgoing.needed(true));
        }
        retention
    }

    pub(crate) fn purged(&self, start: Position) {
        for cell in self.lanes() {
            held(&cell.lane).outgoing.purged(start);
        }
    }
}
