//! A full copy is put in place.
//!
//! The copy replaces what it covers. A mere union would bring back what was deleted while this replica was away. The merge goes key by key,
//! in the engine's order, and version by version of each key:
//!
//! - A version of the copy comes in, unless this replica covers it and does not have it. Such a version was here before, and was superseded
//!   or collected. If it was a delete, the versions that it deleted stay out as well.
//! - A version of this replica is removed if the copy's cut covers it and the copy does not have it. Such a version was at the source, and
//!   was superseded or collected there.
//!
//! ```text
//!   Arriving --> Whole --> Placing ------------------------------------------> Placed ------------> (none)
//!                             checkpoint | snapshot | rows, 512 at a time | cover   | staged rows go  | the stream goes on
//! ```
//!
//! What other parts of the system may do meanwhile:
//!
//! - **Another site's stream** may bring a version that the copy covers. Before the snapshot it is a version like any other. After it, no
//!   pair of the merge would name it, and the delete that removes it is passed over once the copy's cut counts. So from `Placing` on such
//!   an entry waits in its stream until the cut counts, and is then passed over. Entries that the copy does not cover go on.
//! - **Another copy** may be offered. It is declined until no row of this one is staged any more: both are staged in the same place.
//! - **Clients** write and delete. Their writes are stamped above every cut.
use super::PAGE_BYTES;
use crate::{
    error::WorkError,
    keyspace::{Keyspace, LaneCell},
    lane::Lane,
    steps::Steps,
};
use bytes::Bytes;
use std::{
    cmp::Ordering,
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use turnbuckle_core::{
    Chain, Hlc, Input, Key, Meta, Now, Protocol, ReplicaId, Replication, Version, VersionId, Versions,
};
use turnbuckle_replication::{CopyIn, CopyState};
use turnbuckle_store::{
    Engine, RowCursor, RowPage, Snapshot, StoreError, Table, clear_some_staged, compare_rows, rows,
    staged_rows,
};

impl<P: Protocol> Keyspace<P> {
    /// Puts full copies in place that have arrived whole. Returns whether there was one.
    pub(crate) async fn place_copies(&self, engine: &dyn Engine, steps: &Steps) -> Result<bool, WorkError> {
        let mut any = false;
        for cell in self.lanes() {
            loop {
                let whole = cell.look().whole_copy();
                let Some(copy) = whole else { break };
                any = true;
                if copy.state != CopyState::Placed {
                    self.enter(cell)
                        .incoming
                        .set_copy_state(copy.from, CopyState::Placing);
                    // After this checkpoint the engine holds every row, and the rows can be compared in their order.
                    self.checkpoint_lane(engine, cell, steps).await?;
                    let placed = self.place_copy(cell, &copy, steps).await;
                    placed.inspect_err(|error| self.note_damage(cell, error))?;
                }
                let finished = self.finish_copy(cell, &copy, steps).await;
                finished.inspect_err(|error| self.note_damage(cell, error))?;
            }
        }
        Ok(any)
    }

    async fn place_copy(&self, cell: &LaneCell<P>, copy: &CopyIn, steps: &Steps) -> Result<(), WorkError> {
        let from = cell.me.peer(copy.from);
        let table = {
            let mut lane = self.enter(cell);
            let copied = copy.copied.clone();
            lane.hold_copied(copy);
            lane.step(steps.now(), Input::Copying { from, copied });
            lane.store.table()
        };
        let snapshot: Arc<dyn Snapshot> = Arc::from(table.snapshot()?);
        let batch_keys = self.shared().config.batch_keys;
        let mut ours = RowReader::<P>::new(snapshot.clone(), rows, batch_keys);
        let mut theirs = RowReader::<P>::new(snapshot, staged_rows, batch_keys);
        let mut placed = 0_u64;
        loop {
            let mut part = Vec::new();
            while part.len() < batch_keys
                && let Some(pair) = next_pair(&mut ours, &mut theirs)?
            {
                part.push(pair);
            }
            steps.next().await;
            if part.is_empty() {
                break;
            }
            placed += part.len() as u64;
            self.place_rows(cell, copy, part, steps).await?;
        }
        self.cover_copied(cell, copy, steps.now());
        self.shared().copies_placed.fetch_add(1, Relaxed);
        tracing::info!(
            keyspace = self.name(),
            partition = cell.me.partition,
            rows = placed,
            "a full copy is in place"
        );
        Ok(())
    }

    /// All rows are in place. From now on the copy's cut counts, and entries that waited for that are passed over.
    fn cover_copied(&self, cell: &LaneCell<P>, copy: &CopyIn, now: Now) {
        let from = cell.me.peer(copy.from);
        let mut lane = self.enter(cell);
        let copied = copy.copied.clone();
        lane.step(now, Input::Copied { from, copied });
        lane.incoming.cover(&copy.copied.cut);
        lane.incoming.set_copy_state(copy.from, CopyState::Placed);
        lane.retry_pending(now);
    }

    /// Removes the staged rows of a copy that is in place, and only then lets the next copy begin. In the other order, the rows of the next
    /// copy would be removed, and what that copy then lacks would be deleted here.
    async fn finish_copy(&self, cell: &LaneCell<P>, copy: &CopyIn, steps: &Steps) -> Result<(), WorkError> {
        let table = cell.look().store.table();
        let clears_late = self.shared().config.planted.copies_cleared_late;
        if !clears_late {
            self.clear_staged(&*table, steps).await?;
        }
        {
            let mut lane = self.enter(cell);
            lane.copied(copy);
        }
        if clears_late {
            self.clear_staged(&*table, steps).await?;
        }
        Ok(())
    }

    async fn clear_staged(&self, table: &dyn Table, steps: &Steps) -> Result<(), WorkError> {
        let max_rows = self.shared().config.batch_keys;
        steps.next().await;
        while clear_some_staged(table, max_rows).map_err(StoreError::from)? {
            steps.next().await;
        }
        Ok(())
    }

    async fn place_rows(
        &self,
        cell: &LaneCell<P>,
        copy: &CopyIn,
        part: Vec<Pair<P>>,
        steps: &Steps,
    ) -> Result<(), WorkError> {
        for (key, ours, theirs) in part {
            self.with_resident(cell, &key, steps, |lane| {
                self.place_row(steps.now(), lane, copy, &key, ours.as_ref(), theirs.as_ref());
            })
            .await?;
            steps.next().await;
        }
        self.append();
        self.shared().log().write()?;
        steps.next().await;
        self.release(steps.now());
        Ok(())
    }

    fn place_row(
        &self,
        now: Now,
        lane: &mut Lane<P>,
        copy: &CopyIn,
        key: &Key,
        ours: Option<&Chain<P::Meta>>,
        theirs: Option<&Chain<P::Meta>>,
    ) {
        let merges = self.shared().config.planted.copy_merges;
        let our_cut = lane.cut();
        // A delete has removed all older versions of its chain, except siblings. So has a value that has expired, once it was forgotten.
        let read_at = lane.replica.read_time(now);
        let deletes = theirs
            .into_iter()
            .flat_map(Chain::iter)
            .filter(|version| !P::Meta::SIBLINGS && version.gone().is_some_and(|gone| gone.at <= read_at));
        let deleted = deletes.max_by_key(|version| version.rank());
        let deleted = deleted.filter(|_| !self.shared().config.planted.returns_deleted_versions);
        let is_here = |lane: &Lane<P>, rank| {
            let chain = lane.store.chain(key.as_ref());
            chain.is_some_and(|chain| chain.holds_rank(rank))
        };
        // If a delete was here and was forgotten, the versions that it deleted were removed with it.
        let was_forgotten = |deleted: &&Version<P::Meta>| {
            !merges && covers(&our_cut, deleted.id) && !is_here(lane, deleted.rank())
        };
        let forgotten = deleted.filter(was_forgotten);
        // What is over in shares may be forgotten at the source, and then the copy does not name it. It is forgotten here as a whole, and later.
        let closed = lane.replica.protocol().closed();
        let floor_of = |chain: Option<&Chain<P::Meta>>| chain.map_or(Hlc::ZERO, |chain| chain.floor(closed));
        let (our_floor, their_floor) = (floor_of(ours), floor_of(theirs));
        // Removals come first: a store without history takes no version that is older than the one to be removed.
        let is_gone = |version: &Version<P::Meta>| {
            let was_here = ours.is_some_and(|chain| chain.holds_rank(version.rank()));
            let is_there = theirs.is_some_and(|chain| chain.holds_rank(version.rank()));
            let is_over = version.is_under(our_floor);
            !merges && was_here && covers(&copy.copied.cut, version.id) && !is_there && !is_over
        };
        for rank in lane.store.forget(key.as_ref(), is_gone) {
            let key = key.compact();
            lane.step(now, Input::Dropped { key, rank });
        }
        // The oldest first: each is put at the end of a long chain. And whoever has a sibling of a replica must have the earlier ones of that replica.
        let mut theirs: Vec<_> = theirs.into_iter().flat_map(Chain::iter).collect();
        theirs.reverse();
        for version in theirs {
            let was_here =
                covers(&our_cut, version.id) || forgotten.is_some_and(|forgotten| forgotten.removes(version));
            let (key, version) = (key.compact(), version.clone().under_floor(their_floor));
            let held = lane
                .store
                .chain(key.as_ref())
                .and_then(|chain| chain.iter().find(|held| held.rank() == version.rank()));
            if let Some(held) = held {
                // The source knows that it is over, and this replica does not.
                if version.content.floor() > held.content.floor() {
                    let held = version.rank();
                    for rank in lane.store.forget(key.as_ref(), |version| version.rank() == held) {
                        let key = key.clone();
                        lane.step(now, Input::Dropped { key, rank });
                    }
                    lane.step(now, Input::CopiedRow { key, version });
                }
                continue;
            }
            if !merges && was_here {
                continue;
            }
            let version = version.with_floor(floor_of(lane.store.chain(key.as_ref())));
            let has_stream = P::DESCRIPTOR.replication == Replication::Streams;
            let is_in_stream = !has_stream || lane.repair.as_ref().is_some_and(|repair| !repair.lost_stream);
            let is_deleted = deleted.is_some_and(|deleted| deleted.removes(&version));
            let is_news = version.id.replica == lane.id && !is_in_stream && !is_deleted;
            let input = if is_news {
                // A power loss took this version and its place in the stream from this replica, so the other sites may not have it either.
                // If it was deleted since, they need not have it, and some may have forgotten the delete.
                Input::Replicated {
                    from: lane.me,
                    key,
                    version,
                    encoded: Bytes::new(),
                }
            } else {
                Input::CopiedRow { key, version }
            };
            lane.step(now, input);
        }
    }
}

fn covers(cut: &[(ReplicaId, Hlc)], id: VersionId) -> bool {
    cut.iter()
        .any(|&(replica, until)| replica == id.replica && id.at <= until)
}

/// A key with its chain on this replica and its chain in the copy.
type Pair<P> = (
    Key,
    Option<Chain<<P as Protocol>::Meta>>,
    Option<Chain<<P as Protocol>::Meta>>,
);

/// Rows in the engine's order, read ahead in pages.
struct RowReader<P: Protocol> {
    snapshot: Arc<dyn Snapshot>,
    page_rows: usize,
    read: ReadPage<P::Meta>,
    next: Option<RowCursor>,
    page: VecDeque<(Key, Chain<P::Meta>)>,
    done: bool,
}

type ReadPage<M> = fn(&dyn Snapshot, Option<&RowCursor>, usize, usize) -> Result<RowPage<M>, StoreError>;

impl<P: Protocol> RowReader<P> {
    fn new(snapshot: Arc<dyn Snapshot>, read: ReadPage<P::Meta>, page_rows: usize) -> Self {
        RowReader {
            snapshot,
            page_rows,
            read,
            next: None,
            page: VecDeque::new(),
            done: false,
        }
    }

    fn peek(&mut self) -> Result<Option<&Key>, StoreError> {
        if self.page.is_empty() && !self.done {
            let page = (self.read)(&*self.snapshot, self.next.as_ref(), self.page_rows, PAGE_BYTES)?;
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
    ours: &mut RowReader<P>,
    theirs: &mut RowReader<P>,
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
