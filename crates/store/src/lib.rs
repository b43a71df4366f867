//! The versions of one replica's keys: the newest in memory, and all of them in an engine after the next checkpoints.
//!
//! # What it is
//!
//! A replica answers reads from memory and acknowledges writes from the commit log. Neither waits for an engine. An
//! engine is needed for keys that do not fit into memory, and so that opening does not replay the log from its very
//! beginning. A [`Store`] is a map in memory with a table of an [`Engine`] below it:
//!
//! ```text
//!                    chain(key)                put(key, version)
//!                        |                            |
//!   under the     +------v----------------------------v-------+   dirty: lists of keys per hash slot
//!   lane's lock   |  map: key -> chain of versions, or none   |
//!                 +------^------------------+-----------------+   CLOCK evicts what is clean
//!            admit       |                  |  next_chunk
//!       - - - - - - - - -|- - - - - - - - - | - - - - - - - - - - - - - - - - - - - - - - - - - - - - - -
//!            fetch       |                  v  Chunk::write
//!   without       +------+------------------------------------+   m meta (log position)   r rows
//!   the lock      |  table of an engine: memory, or fjall     |   n number of live rows   s staged rows
//!                 +-------------------------------------------+   t tombstones by age   d rows are missing
//! ```
//!
//! The driver makes every key of an input resident before it takes the lock to handle the input: it asks
//! [`Store::is_resident`]. If that is false, it calls [`Store::fetch`] without the lock and [`Store::admit`] with it.
//! From there on nothing blocks and nothing fails, as the seam promises protocols ([`turnbuckle_core::Versions`]).
//!
//! # What is on the disk
//!
//! One row per key with all its versions. The row's key begins with the key's [`Place`]: hash slot, then 48 bits of a
//! hash. So a slot is a range of rows, and SCAN has a cursor that is one integer and survives restarts.
//!
//! A checkpoint writes dirty rows in chunks, then in one batch the meta, then syncs. A crash in between leaves rows
//! that are newer than the meta says. The log is replayed over them. Replaying is idempotent, because a version has a
//! name, and is either there or not. One thing is not idempotent: *removing* a tombstone. A replay would find an older
//! version in the log, and nothing that says that it is deleted. So rows of collected tombstones are removed in one
//! batch with the meta, and tombstones are collected only between checkpoints.
//!
//! # Work without the lock, and what can go wrong with it
//!
//! Reads of the table (fetch, scan, tombstones) and writes to it happen without the lock. So a read may be out of date
//! when it is used. While no checkpoint finishes, that does no harm: what the table lacked is dirty, so memory has it,
//! and memory wins. When a checkpoint finishes, keys become clean and may be evicted, and an old read would bring back
//! an old state. So reads carry an [`Epoch`], and are repeated if it has passed ([`Retry`]). Checkpoints are seconds
//! apart, reads take microseconds.
//!
//! # Numbers
//!
//! `cargo bench -p turnbuckle-store`, 1,000,000 keys of 16 bytes with values of 128, on two shared cores: 290 bytes of
//! resident memory per key (278 are counted, the lists of dirty keys not); 0.25 us for a hit in random order, which is
//! some misses of the processor's caches; 0.6 to 0.8 us for a put; 1.1 s to load everything from fjall, after 0.6 s in
//! which fjall opens itself; 10 us for a key that has to be read from there.
//!
//! # Limits
//!
//! - Dirty keys are never evicted: a store that is written faster than its engine takes the writes outgrows its limit.
//!   [`Store::dirty_bytes`] shows it, and the caller that feeds the store has to slow down.
//! - Without [`Options::history`], forgetting the newest version does not bring back the one before, which is gone.

mod beside;
pub use beside::{Beside, write_entry, write_named};
mod cache;
mod census;
mod checkpoint;
pub use checkpoint::{Chunk, Spent};
mod dirty;
mod disk;
pub use disk::{FjallEngine, FjallOptions};
mod engine;
pub use engine::{Engine, EngineError, Snapshot, Table, TableWrite};
mod entries;
mod entry;
mod memory;
pub use memory::MemoryEngine;
mod part;
mod place;
pub use place::{Place, compare_rows};
mod row;
mod salvage;
pub use salvage::{Salvage, forget_lack, is_damaged, lacks_rows, salvage_table};
mod scan;
pub use scan::{ScanRows, scan_rows};
mod stage;
pub use stage::{RowCursor, RowPage, clear_some_staged, clear_staged, rows, stage, staged_rows};
mod store;
pub use store::{Epoch, Fetched, Options, Retry, Store, StoreError, read_meta};
mod suite;
pub use suite::engine_suite;
mod tombstone;
pub use tombstone::{Collected, SHORT_LIVED, StaleTombstones, TombstoneCursor, TombstonePage};
