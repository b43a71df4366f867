//! The node's commit log: one endless, append-only, checksummed sequence of records, shared by all replicas of a node.
//!
//! What is in it is durable; what replication streams send to peers is read from it. It knows nothing of keys or replicas:
//! a record is some bytes.
//!
//! ```text
//!   positions   0 ............. 67108864 ............. 134217728 ..... 150000000  150000200
//!   segments   | purged          | kept, whole          | the last one, growing |
//!                                ^ start                        synced ^  written ^    ^ end
//! ```
//!
//! A **position** is a byte offset in the endless log; it never repeats. Three threads may be at work at a time:
//! [`Log::append`] copies a record into a pending buffer and returns (nothing but a checksum and a copy, under a short
//! lock); [`Log::write`] hands everything pending to the operating system in one write, whoever appended it, which
//! is group commit; [`Log::sync`] makes what was written survive a power loss, and holds nobody up while the disk works.
//!
//! ```text
//!   start <= synced <= written <= end
//! ```
//!
//! **Recovery.** Each record carries its own position, a CRC-32C, and the position that was known to be synced when it was
//! appended. When a log is opened, the first record that is not intact ends it, if it can be the torn end that a crash leaves; if an intact
//! record further on proves that the damage was once safely on disk, that is corruption, and an error that names the place.
//!
//! **Failures.** A write that fails or is cut short (a full disk) is taken back: what was pending stays pending, and the call
//! may be repeated. A sync that fails poisons the log: nobody can know what is on the disk then (the kernel may have
//! dropped the pages), so nothing more is promised.
//!
//! Caveat: the files' order relies on a rename-free scheme: a segment is created, its header is written and synced with the directory
//! before records go into it.
mod directory;
pub use directory::DirectoryDisk;
mod disk;
pub use disk::{Disk, DiskFile};
mod error;
pub use error::{LogError, OpenError, ReadError};
mod log;
pub use log::{Chunk, Log, Options};
mod reader;
mod record;
pub use record::Position;
mod recovery;
mod segment;
mod simulated;
pub use simulated::SimulatedDisk;
