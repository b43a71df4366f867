//! # ABD: every key is one register, kept by a majority of the sites
//!
//! **Guarantee.** Each key is *linearizable*: every operation takes effect at one moment between its call and its answer, whichever site is asked,
//! whatever any clock says. Keys that are linearizable each are linearizable together, so a client needs no session.
//!
//! **Source.** Attiya, Bar-Noy, Dolev: *Sharing memory robustly in message-passing systems*, J. ACM 42(1), 1995, with the tags of several
//! writers of Lynch and Shvartsman: *Robust emulation of shared memory using dynamic quorum-acknowledged broadcasts*, FTCS 1997.
//!
//! **Roles.** For each partition, one replica at each site. The replica at the client's site *coordinates*: it asks all replicas, and goes on when a
//! majority, itself included, has answered. Any two majorities share a replica: that is the whole idea.
//!
//! ```text
//!   client          coordinator a            replica b          replica c (slow)
//!     | - put x=2 --->  |                        |                   |
//!     |                 | -- query x ----------> |                   |      1: what is the newest version?
//!     |                 | -- query x --------------------------------|-->
//!     |                 | <- found x@10 -------- |                   |      a and b are two of three
//!     |                 | stamps x@11, on disk   |                   |
//!     |                 | -- store x@11 -------> | on disk           |      2: a majority shall have it
//!     |                 | -- store x@11 -----------------------------|-->
//!     |                 | <- stored ------------ |                   |
//!     | <- written ---- |                        |                   |
//! ```
//!
//! A **write** is stamped above the newest version of a majority, so above every write that was acknowledged before it began. A **read** returns the
//! newest version of a majority, after it has *written that version back* to a majority. Otherwise a write that has reached one replica could be seen
//! by this read and not by the next one. If the whole majority has that version already, nothing need be written back, and the read takes one round
//! trip.
//!
//! **Freshness.** An answer reflects every write that was acknowledged before the operation began: the receipt's staleness is 0 and
//! rests on no clock.
//!
//! **Failures.** What a replica has acknowledged as stored is on its disk, under every durability: a minority may lose power, or be unreachable, at
//! any time. A message that is lost is sent again every [`AbdConfig::retry`]. A message that arrives twice does nothing twice. After
//! [`AbdConfig::patience`] the client is told that no majority was reached. A replica that lost its data directory takes a full copy of each of the
//! other replicas before it answers ([`turnbuckle_core::Replication::Majority`]).
//!
//! **Caveats.** Every operation crosses the WAN. A delete is kept permanently: it could be forgotten only when all replicas have it and no message of
//! an older write is under way. If a data directory is replaced by an old copy of itself, that is not noticed, and breaks the guarantee. Keys are not
//! listed or counted (SCAN, DBSIZE): no replica has all of them.
mod message;
pub use message::{Body, Message};
mod replica;
pub use replica::{Abd, AbdConfig, Timer};

/// A client of an ABD keyspace.
pub type AbdSession = turnbuckle_core::PlainSession<Abd>;
