//! # A Raft group
//!
//! A [`Group`] is one replica's part in a Raft group: the replicas of a partition agree on one log, and a majority of them has each entry that is
//! *committed* on disk. Protocols put into entries what they like, and apply committed entries in their order.
//!
//! **Source.** Ongaro, Ousterhout: *In Search of an Understandable Consensus Algorithm*, USENIX ATC 2014; Ongaro's dissertation, *Consensus: Bridging Theory
//! and Practice*, 2014 (sections 6.4 on reads, 9.6 on pre-vote, 10.2.1 on writing to disks in parallel). The algorithm itself is the library
//! [raft-rs](https://docs.rs/raft); no other crate knows it.
//!
//! **What this adds.** raft-rs is a state machine, as a protocol is. What is added here:
//!
//! - *The log is the journal* ([`turnbuckle_core::Journal`]), with the same indexes. An entry is staged in the batch of the input that brought it. Everything that is emitted after
//!   it waits for the barrier, so raft-rs may be told at once that it is on disk. Entries, terms and votes are synced, whatever the keyspace's durability.
//! - *Time*: a tick is a timer, at multiples of [`Timing::heartbeat`] by the replica's clock. So all groups of a node send their heartbeats in one turn of the event loop, in one
//!   write for each peer. The election timeout is computed from the replica's seed and the term: a run is determined by its inputs.
//! - *Reads* ([`Group::begin_round`], [`Group::has_lease`]): see [`mod@reads`].
//! - *Entries that are dropped, and full copies* in the place of snapshots: see [`mod@copies`].
//! - *Replicas that have lost their directories* take part again, under their names: see [`mod@memory`].
//! - *Members* that change while the group serves: see [`mod@members`].
//! - *Writes that are asked for again* are found in the log: see [`mod@sessions`].
//! - *What protocols over a group have in common*: clients that wait for entries ([`mod@waiting`]), the entry that waits for its keys ([`mod@applying`]), and how sessions ask ([`mod@asking`]).
//! - *Messages are checked* before raft-rs sees them ([`Group::hear`]): it panics at some that a sound peer never sends.
//!
//! ```text
//!     input                 Group                          Context
//!   message ---> check ---> step  --+
//!   propose --------------> step  --+--> handle_ready ---> append, truncate, put_named, sync
//!   tick -----------------> tick  --+         |    +-----> send
//!                                             v
//!                                  committed entries, in order ---> the protocol applies them
//! ```
pub mod applying;
pub mod asking;
pub mod copies;
mod group;
mod log;
pub mod members;
pub mod memory;
mod message;
pub mod reads;
pub mod sessions;
mod status;
mod timing;
pub mod waiting;
pub use group::{Committed, Ended, Group, Planted, Proposed, Role};
pub use members::Members;
pub use message::{LogEntry, RaftMessage};
pub use sessions::{OperationName, Sessions};
pub use timing::Timing;
