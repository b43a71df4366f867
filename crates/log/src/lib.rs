//! The node's commit log: one endless, append-only, checksummed sequence of records, shared by all replicas of a node.
//!
//! What is synced in it is durable. Replication streams read from it what they send to peers that lag. The log knows nothing of
//! keys or replicas: a record is some bytes.
//!
//! ```text
//!   positions   0 ............. 67108864 ............. 134217728 ..... 150000000  150000200
//!   segments   | purged          | kept, whole          | the last one, growing |
//!                                ^ start                        synced ^  written ^    ^ end
//!
//!   start <= synced <= written <= end
//! ```
//!
//! A [`Position`] is a byte offset in the endless log. Three things may happen at the same time, on any threads:
//!
//! - [`Log::append`] copies a record into a pending buffer: a checksum and a copy under a short lock, no I/O.
//! - [`Log::write`] hands all pending records to the operating system in one write, no matter which thread appended them. That is
//!   group commit: an event loop appends what a turn brought, writes once, and answers. What is written survives the end of the
//!   process (`kill -9`), but not of the machine.
//! - [`Log::sync`] makes what was written survive a power loss. Appends and writes go on while the disk works.
//!
//! If each write is synced, the last segment has zeros behind its records ([`Options::ahead_bytes`]): a sync then need not write the file's length.
//!
//! [`Log::read`] reads written records, [`Log::purge`] removes those that are not needed any more.
//!
//! ```
//! # use std::sync::Arc;
//! use turnbuckle_log::{Log, Options, Position, SimulatedDisk};
//!
//! let disk = Arc::new(SimulatedDisk::new());
//! let log = Log::open(disk.clone(), Options::default(), Position(0), |_, _| Ok(())).unwrap();
//! let end = log.append(&[b"set ", b"x"]);
//! assert!(log.written() < end);
//! log.write().unwrap();
//! assert_eq!((log.written(), log.synced()), (end, Position(0)));
//!
//! disk.crash_process();
//! let mut seen = Vec::new();
//! let log = Log::open(disk, Options::default(), Position(0), |_, record| { seen.push(record); Ok(()) }).unwrap();
//! assert_eq!(seen, ["set x"]);
//! assert_eq!(log.end(), end);
//! ```
//!
//! **Recovery.** Each record carries its own position, a CRC-32C salted with the log's identity, and the position that was known
//! to be synced when it was appended. The first place without an intact record ends the log, if it can be the torn end that a
//! crash leaves. It cannot if an intact record further on proves that the broken place was once safely on disk, or if the
//! caller's checkpoint relies on it. Then it is corruption: an error that names file and offset, and nothing is changed.
//!
//! **Failures.** A write that fails or is cut short (a full disk) is undone: the records stay pending, and the call may be
//! repeated. A sync that fails poisons the log. The kernel may have dropped the pages that it could not write, and the next sync
//! might succeed without them. So the log promises nothing more.
//!
//! **Order on disk.** A segment is created without a sync. Its header, its place in the directory and its records become durable
//! together with the next [`Log::sync`]. Until then, recovery treats it as a part of the torn end. An older segment is removed
//! only when something in the next one is synced.
//!
//! Limits:
//!
//! - The last records before a quiet time have no later record that proves that they were synced. That is noted beside the log a
//!   few times a second ([`Log::note_synced`]). If a disk damages what was synced after the last note, it looks like a torn end,
//!   and is lost here without an error. Peers still have it.
//! - One write goes into one segment. So a segment may be longer than `segment_bytes` by up to one group commit.
//! - The log is not encrypted. CRC-32C finds accidents, not forgeries by somebody who can write to the directory.
mod directory;
pub use directory::DirectoryDisk;
mod disk;
pub use disk::{Disk, DiskFile};
mod error;
pub use error::{LogError, OpenError, ReadError};
mod floor;
mod log;
pub use log::{Chunk, Log, Options};
#[cfg(test)]
mod planted;
mod reader;
mod record;
pub use record::Position;
mod recovery;
pub use recovery::newest_segment;
mod segment;
mod simulated;
pub use simulated::SimulatedDisk;
