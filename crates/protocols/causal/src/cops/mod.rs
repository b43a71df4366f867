//! # COPS: every version names what it depends on
//!
//! **Guarantee.** Causal consistency: a client sees its own writes, never sees less than before, and never sees a version without everything that the
//! version depends on. What is written at a site is seen there at once. There are no snapshots: those are COPS-GT, which is not here.
//!
//! **Source.** Lloyd, Freedman, Kaminsky and Andersen, SOSP 2011; the dissertation's 3.2.1, and its baseline in 8.5, which "implemented a simplified
//! version of COPS without garbage collection". Here there is garbage collection: a dependency is dropped when all sites have it.
//!
//! **Roles.** For each partition, one server at each site. A session keeps its *context*: the version that it wrote last, and what it has read since.
//! These are the *nearest dependencies* of its next write. A version carries its nearest dependencies. When a version arrives from another site, the
//! server stores it, and shows it when each of its dependencies is visible at the server's site.
//!
//! ```text
//!   client at a         a1 (photo)   a0 (comment)                 b0 (comment)              b1 (photo)
//!      | -- PUT photo ---> |            |                            |                         |
//!      | <-- photo@a:17 -- | ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~>  | visible: depends on nothing
//!      | -- PUT comment {photo@a:17} -> | ~~~ comment@a:18 ~~~~~~~>  | hidden                  |
//!      |                                |                            | -- DepCheck photo@a:17->|
//!      |                                |                            | <----- Visible ---------| at once, or when it is
//!      |                                |                            | visible                 |
//! ```
//!
//! **Watermarks.** For each site, a server knows a time up to which everything that the site stamped is visible here. That time is below the oldest
//! version that waits, and at most that of the last mark ([`Heartbeat`]). Marks tell it to the peers. What is below the minimum of all sites'
//! watermarks is *never-depend*: no version needs to name it. A mark also tells the wall time, and what is visible up to its promise
//! proves freshness up to that wall time, unless something was lost and replaced meanwhile ([`turnbuckle_streams::Replaced`]).
//!
//! ```text
//!   for each origin o:   everywhere[o] <= visible[o] <= vv[o] = last mark of o  <=  what o's stream has brought
//!                                         kept[o] <= visible[o]
//! ```
//!
//! **Restarts.** What waits is in memory. The watermarks, and the visible versions above them, are written down every second. A restarted server may
//! know nothing of a version above the watermarks. It *looks after* such a version when a request asks for it: the reader waits, with a deadline. So
//! no session sees less than before. In the background the site's partitions find out up to when everything is here ([`recovery`]), and the
//! watermarks follow marks again. The same holds for what a full copy brought.
//!
//! **Lost directories.** Sessions do not name what every site shows, and rely on it. So a partition that begins with an empty directory answers
//! readers only when it shows what its peers showed when it first heard from them (`replica::catch_up`). A new cluster waits in the same way, for at
//! most as long as a request may wait.
//!
//! # Caveats: where this differs from the texts, and why
//!
//! - **A newer version of the key is no proof.** Suppose that a session at b has seen a's version of k, which depends on w, and writes x. A server
//!   that has neither w nor a's version of k, but a newer one from c, must not show x: a client would see x and miss w. A dependency's own version
//!   must be visible. For the same reason a context keeps older versions of a key beside newer ones. A script shows it.
//! - Versions are stamped with hybrid logical clocks, not with Lamport clocks: their times mean something.
//! - **A context is bounded**, as its token is: see [`CopsSession`].
//! - **Moving.** Clients of COPS stay at their site. Here a session can go on at another site: each version of its context is confirmed there first.
//! - A delete depends on the version that it deletes, because the client is told that there was something.
//! - **Memory is bounded.** While a site is unreachable, what depends on it is hidden, and piles up. The server remembers up to 65,536 hidden
//!   versions, and as many visible ones above the watermarks. The others are looked after when they are asked for, as after a restart.
//! - After a restart, a read of a version that was hidden before is refused until everything that the version depends on is here. Without the
//!   restart, the read would skip the version. The server cannot know that no client has seen it.
//! - Under `interval` and `none` a power loss may take acknowledged writes. Until peers have sent them back, versions that were seen to depend on
//!   them are seen without them.
//! - Level `eventual` shows the newest version that is here, and is no part of a context.
//! - SCAN and DBSIZE look at all versions that are here, visible or not.
mod message;
pub use message::{Dependencies, Dependency, Found, Heartbeat, Message, Reached, Request, Response};
pub mod recovery;
mod replica;
pub use replica::{Cops, CopsConfig};
mod session;
pub use session::CopsSession;
mod waiting;
