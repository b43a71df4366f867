//! The node's commit log: one endless, append-only, checksummed sequence of records, shared by all replicas of a node.
//!
//! What is in it is durable; what replication streams send to peers that lag is read from it. It knows nothing of keys or
//! replicas: a record is some bytes.
//!
//! ```text
//!   positions   0 ............. 67108864 ............. 134217728 ..... 150000000  150000200
//!   segments   | purged          | kept, whole          | the last one, growing |
//!                                ^ start                        synced ^  written ^    ^ end
//!
//!   start <= synced <= written <= end
//! ```
//!
//! A [`Position`] is a byte offset in the endless log. Three things may happen at a time, on any threads:
//!
//! - [`Log::append`] copies a record into a pending buffer: a checksum and a copy under a short lock, no I/O.
//! - [`Log::write`] hands everything pending to the operating system in one write, whoever appended it. That is group
//!   commit: an event loop appends what a turn brought, writes once, and answers. What is written survives the end of
//!   the process (`kill -9`), not of the machine.
//! - [`Log::sync`] makes what was written survive a power loss, and holds nobody up while the disk works.
//!
//! [`Log::read`] gives written records back, [`Log::purge`] drops what nobody needs.
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
//! to be synced when it was appended. The first place without an intact record ends the log, if it can be the torn
//! end that a crash leaves. If an intact record further on proves that what is broken was once safely on disk, or if
//! the caller's checkpoint relies on it, that is corruption: an error that names file and offset, and nothing is changed.
//!
//! **Failures.** A write that fails or is cut short (a full disk) is taken back: what was pending stays pending, and the
//! call may be repeated. A sync that fails poisons the log: the kernel may have dropped the pages it could not write
//! and call the next sync a success, so nothing more is promised.
//!
//! **Order on disk.** A segment is created without a sync: its header, its place in the directory and its records become
//! durable together with the next [`Log::sync`], and until then recovery takes it for a part of the torn end. An older segment
//! is removed only when something in the next one is synced.
//!
//! Caveats:
//!
//! - The last records before a quiet time have no later record that proves them. That they were synced is noted beside the log a few times a
//!   second ([`Log::note_synced`]). What a disk damages of what was synced after the last note looks like a torn end, and is lost here without an
//!   error; peers still have it.
//! - One write goes into one segment: a segment is longer than asked for by up to one group commit.
//! - The log is not encrypted, and CRC-32C finds accidents, not forgers who can write to the directory.
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
