use crate::census::{Census, Kind};
use crate::dirty::{DirtySet, Walk};
use crate::entry::Entry;
use crate::place::{Area, LONGEST_PLAIN_KEY_BYTES, put_row_key};
use crate::row::put_row;
use crate::store::place_at;
use crate::tombstone::LineId;
use crate::{EngineError, Store, Table, TableWrite};
use bytes::{BufMut, Bytes, BytesMut};
use turnbuckle_core::{Chain, Key, Meta, Micros, Version};

/// A checkpoint that is under way.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// Written with the last chunk. `None` once it was given out.
    meta: Option<Bytes>,
    /// Written in one batch with the meta: the removals of collected tombstones' rows. If such a row were gone and the
    /// meta not there yet, a replay would find an older version in the log, and no newer tombstone.
    buried: Vec<TableWrite>,
    /// The keys of those rows, and what kind of row each was.
    buried_keys: Vec<(Key, Kind)>,
    walk: Walk,
    /// The last chunk that was given out, until the next one is asked for: it may not be written yet.
    last: Option<LastChunk>,
}

/// What is undone if a chunk was not written.
#[derive(Debug)]
struct LastChunk {
    /// The chunk begins here and has this many keys.
    from: Walk,
    keys: usize,
    /// The counts of rows in the engine before the chunk.
    rows: Census,
}

/// The rows of some keys, on their way to the table. They are owned, so that they are written without the store's lock.
pub struct Chunk<M> {
    writes: Vec<TableWrite>,
    large: Vec<(Key, Chain<M>)>,
}

/// The lists of a finished checkpoint. Freeing them takes a moment: drop it without the store's lock.
#[derive(Debug)]
#[must_use = "freeing it takes a moment: drop it where nobody waits"]
pub struct Spent(
    #[allow(dead_code, reason = "it is held only to be dropped")] DirtySet,
    #[allow(dead_code, reason = "it is held only to be dropped")] Option<Checkpoint>,
);

/// The most bytes of rows that a chunk encodes under the lock.
const MAX_CHUNK_BYTES: usize = 1 << 20;

/// Versions up to this size, in bytes, are copied under the lock. Sharing them would cost an allocation each, too, and
/// one more for every value for its whole life: a `Bytes` that was ever cloned has a counter.
const LARGE_BYTES: usize = 4096;

impl<M: Meta> Store<M> {
    /// Begins a checkpoint of at least everything that is dirty now. `meta` is written last. It says from where a log
    /// has to be replayed on top, i.e. it is a position before which everything is in this store by now.
    ///
    /// ```text
    ///   begin_checkpoint                                         under the lock
    ///     next_chunk -> Some(chunk)                              under the lock, again and again
    ///       chunk.write(table)                                   without
    ///     next_chunk -> None                                     under the lock
    ///   engine.persist()                                         without
    ///   finish_checkpoint                                        under the lock; or, if anything failed:
    ///   abort_checkpoint                                         under the lock
    /// ```
    ///
    /// # Panics
    /// If one is under way.
    pub fn begin_checkpoint(&mut self, meta: Bytes) {
        assert!(self.checkpoint.is_none(), "a checkpoint began inside another one");
        self.checkpoint = Some(Checkpoint {
            meta: Some(meta),
            buried: Vec::new(),
            buried_keys: Vec::new(),
            walk: Walk::default(),
            last: None,
        });
        // This is more than a swap only if an aborted checkpoint has left something.
        let dirty = std::mem::take(&mut self.dirty);
        self.taking.append(dirty, |index| place_at(&self.entries, index));
        self.taking_bytes += std::mem::take(&mut self.dirty_bytes);
        self.generation += 1;
    }

    /// The next rows to write, of about `max_keys` keys and not much more than a megabyte, or `None` after the last
    /// chunk. Versions that no request can ask for any more are dropped on the way: all that are older than the newest
    /// version that is `covered`. Chunks must be written in order, each before the next is asked for. The last one has
    /// the meta.
    ///
    /// # Panics
    /// If no checkpoint is under way.
    pub fn next_chunk(&mut self, max_keys: usize, covered: impl Fn(&Version<M>) -> bool) -> Option<Chunk<M>> {
        self.last_is_written();
        let rows = self.rows;
        let checkpoint = self.running_checkpoint();
        checkpoint.meta.as_ref()?;
        let from = checkpoint.walk;
        let mut walk = from;
        let mut chunk = Chunk {
            writes: Vec::new(),
            large: Vec::new(),
        };
        let mut arena = BytesMut::new();
        let mut keys = 0;
        let mut bytes = 0;
        let mut finished = false;
        while keys < max_keys.max(1) && bytes < MAX_CHUNK_BYTES && !finished {
            // In small steps: the limit in bytes is checked only between steps.
            let step = self.taking.walk(&mut walk, (max_keys.max(1) - keys).min(64));
            finished = step.is_empty();
            keys += step.len();
            for index in step {
                bytes += self.take_entry(index as usize, &covered, &mut arena, &mut chunk);
            }
        }
        let checkpoint = self.running_checkpoint();
        checkpoint.walk = walk;
        checkpoint.last = Some(LastChunk { from, keys, rows });
        if finished && let Some(meta) = checkpoint.meta.take() {
            chunk.writes.append(&mut checkpoint.buried);
            chunk.writes.push(TableWrite::put(Area::Meta.start(), meta));
            let gone = checkpoint.buried_keys.iter().map(|&(_, row)| row).collect();
            self.rows.subtract(gone);
        }
        chunk
            .writes
            .push(TableWrite::put(Area::Count.start(), self.rows.encode()));
        Some(chunk)
    }

    /// The last chunk is in the engine.
    fn last_is_written(&mut self) {
        let checkpoint = self.running_checkpoint();
        let Some(mut last) = checkpoint.last.take() else {
            return;
        };
        for index in self.taking.walk(&mut last.from, last.keys) {
            self.entries[index as usize].marks_mut().keep_row();
        }
    }

    /// Everything is written and persisted: what was taken is clean now, unless it has changed since.
    ///
    /// # Panics
    /// If no checkpoint is under way, or not all of it was taken.
    pub fn finish_checkpoint(&mut self) -> Spent {
        let checkpoint = self.running_checkpoint();
        assert!(
            checkpoint.meta.is_none(),
            "a checkpoint finished before its last chunk was taken"
        );
        let checkpoint = self.checkpoint.take();
        self.clean_below = self.generation;
        self.taking_bytes = 0;
        self.epoch += 1;
        Spent(std::mem::take(&mut self.taking), checkpoint)
    }

    /// A step failed: everything that was dirty when the checkpoint began is dirty again, and the next checkpoint takes
    /// it. This walks over everything that was taken.
    ///
    /// # Panics
    /// If no checkpoint is under way.
    pub fn abort_checkpoint(&mut self) {
        let Some(checkpoint) = self.checkpoint.take() else {
            return;
        };
        let Checkpoint {
            meta,
            walk,
            last,
            buried_keys,
            ..
        } = checkpoint;
        let has_all = meta.is_none() && last.is_none();
        if let Some(mut last) = last {
            self.rows = last.rows;
            for index in self.taking.walk(&mut last.from, last.keys) {
                self.entries[index as usize].marks_mut().take_row_back();
            }
        }
        for (key, row) in buried_keys.into_iter().filter(|_| !has_all) {
            if let Some(entry) = self.entries.get_mut(key.as_ref()) {
                entry.marks_mut().set_row(row);
            }
        }
        for index in self.taking.until(walk) {
            self.entries[index as usize].marks_mut().set_taken(false);
        }
    }

    /// Whether a checkpoint began, and neither finished nor was aborted.
    pub fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_some()
    }

    fn running_checkpoint(&mut self) -> &mut Checkpoint {
        self.checkpoint.as_mut().expect("no checkpoint is under way")
    }

    fn take_entry(
        &mut self,
        index: usize,
        covered: &impl Fn(&Version<M>) -> bool,
        arena: &mut BytesMut,
        chunk: &mut Chunk<M>,
    ) -> usize {
        let (key, entry) = self
            .entries
            .get_index_mut(index)
            .expect("what is dirty is never removed, and moves together with its index");
        // An aborted checkpoint can leave a key in the lists twice. A key that has changed since it was taken is for
        // the next checkpoint.
        if entry.marks().is_taken() || entry.generation() == self.generation {
            return 0;
        }
        let before_bytes = entry.cost_bytes(key);
        if let Some(chain) = entry.chain_mut() {
            chain.collect(covered);
        }
        let after_bytes = entry.cost_bytes(key);
        let (was, is) = (entry.marks().row(), entry.kind());
        entry.marks_mut().set_taken(true);
        let taken_bytes = match entry {
            Entry::Absent { was: Some(id), .. } => {
                let checkpoint = self.checkpoint.as_mut().expect("a checkpoint takes");
                let rows = [row_in(arena, key), tombstone_in(arena, *id, key)];
                checkpoint.buried.extend(rows.map(TableWrite::delete));
                let owned = Key(Bytes::copy_from_slice(key));
                checkpoint.buried_keys.push((owned, was));
                entry.marks_mut().set_row(Kind::Nothing);
                key.len()
            }
            Entry::Absent { was: None, marks, .. } => {
                marks.change_row(Kind::Nothing);
                self.rows.change(was, Kind::Nothing);
                chunk.writes.push(TableWrite::delete(row_in(arena, key)));
                key.len()
            }
            Entry::Held { chain, marks, .. } => {
                marks.change_row(is);
                self.rows.change(was, is);
                chunk.take(key, chain, self.options.short_lived, arena)
            }
        };
        self.recount_memory(before_bytes, after_bytes);
        taken_bytes
    }
}

impl<M: Meta> Chunk<M> {
    /// Encodes the rest and applies everything as one batch. After an error the batch may have been applied or not, and
    /// the checkpoint must be aborted.
    pub fn write(mut self, table: &dyn Table) -> Result<(), EngineError> {
        for (key, chain) in std::mem::take(&mut self.large) {
            let mut row = BytesMut::new();
            put_chain(&mut row, key.as_ref(), &chain);
            self.writes.push(TableWrite::put(
                crate::place::row_key(Area::Rows, key.as_ref()),
                row.freeze(),
            ));
        }
        table.apply(self.writes)
    }

    /// Takes over the versions of a key. Returns about how many bytes that took.
    fn take(&mut self, key: &[u8], chain: &Chain<M>, short_lived: Micros, arena: &mut BytesMut) -> usize {
        let line = LineId::of(chain, short_lived).filter(|_| Kind::of(Some(chain)).has_line());
        if let Some(line) = line {
            self.writes.push(tombstone_line(arena, line, key));
        }
        let values = chain
            .iter()
            .map(|version| version.content.stored().map_or(0, Bytes::len));
        let bytes = key.len() + values.map(|value_bytes| 16 + value_bytes).sum::<usize>();
        if bytes > LARGE_BYTES {
            self.large.push((Key(Bytes::copy_from_slice(key)), chain.clone()));
            return key.len();
        }
        let row = row_in(arena, key);
        put_chain(arena, key, chain);
        self.writes.push(TableWrite::put(row, arena.split().freeze()));
        bytes
    }
}

pub(crate) fn put_chain<M: Meta>(out: &mut BytesMut, key: &[u8], chain: &Chain<M>) {
    let long_key = (key.len() > LONGEST_PLAIN_KEY_BYTES).then_some(key);
    put_row(out, long_key, chain.iter());
}

/// The key of a key's row, allocated together with its neighbours in the chunk.
fn row_in(arena: &mut BytesMut, key: &[u8]) -> Bytes {
    reserve(arena);
    arena.put_u8(Area::Rows as u8);
    put_row_key(arena, key);
    arena.split().freeze()
}

/// The key of a tombstone's line in the index.
fn tombstone_in(arena: &mut BytesMut, id: LineId, key: &[u8]) -> Bytes {
    reserve(arena);
    arena.put_u8(Area::Tombstones as u8);
    arena.put_u64(id.at.0);
    arena.put_u16(id.replica.0);
    put_row_key(arena, key);
    arena.split().freeze()
}

/// A tombstone's line in the index.
pub(crate) fn tombstone_line(arena: &mut BytesMut, id: LineId, key: &[u8]) -> TableWrite {
    let line = tombstone_in(arena, id, key);
    let long_key = if key.len() > LONGEST_PLAIN_KEY_BYTES {
        key
    } else {
        &[]
    };
    TableWrite::put(line, Bytes::copy_from_slice(long_key))
}

/// Reserves in big steps: a `BytesMut` whose memory was all split off begins a new allocation.
fn reserve(arena: &mut BytesMut) {
    if arena.capacity() < LARGE_BYTES {
        arena.reserve(64 << 10);
    }
}
