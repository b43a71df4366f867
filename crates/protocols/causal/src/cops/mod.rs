//! # COPS: every version names what it depends on
//!
//! **Guarantee.** Causal consistency: a client sees its own writes, never goes back, and never sees a version without all that
//! this version depends on; what is written at a site is seen there at once. There are no snapshots: that is COPS-GT, which is
//! not here.
//!
//! **Source.** Lloyd, Freedman, Kaminsky and Andersen, SOSP 2011; the dissertation's 3.2.1, and its baseline in 8.5, which
//! "implemented a simplified version of COPS without garbage collection". Here there is that: a dependency is dropped when all
//! sites have it.
//!
//! **Roles.** For each partition, one server at each site. A session keeps its *context*: the version it wrote last, and
//! what it has read since, the *nearest dependencies* of what it writes next. A version carries them. A server to
//! which a version comes from another site stores it, and shows it when each of them is visible in its site.
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
//! **Watermarks.** For each site a server knows a time up to which everything that this site stamped is visible here: below the
//! oldest version that waits, and up to the last mark ([`Heartbeat`]). Marks tell the peers. What is below the minimum of all
//! sites' watermarks is *never-depend*: nobody needs to name it.
//!
//! ```text
//!   for each origin o:   everywhere[o] <= visible[o] <= vv[o] = last mark of o  <=  what o's stream has brought
//!                                         kept[o] <= visible[o]
//! ```
//!
//! **Restarts.** What waits is in memory. The watermarks, and the versions above them that are visible, are written down every
//! second; a version above them of which a restarted server knows nothing is *looked after* when somebody asks for it: who reads
//! it waits, with a deadline. So no session goes back. In the background the site's partitions find out up to when everything is
//! here ([`recovery`]), and the watermarks follow marks again. The same holds for what a full copy brought.
//!
//! **Lost directories.** Sessions do not name what every site has visible, and rely on it. So a partition that begins with an empty directory
//! answers readers when it shows what its peers showed when it first heard of them (`replica::catch_up`). A new cluster waits in the same
//! way, for at most as long as a request may wait.
//!
//! # Caveats: where this differs from the texts, and why
//!
//! - **A newer version of the key is no proof.** Let b have k from a, which depends on w, and write x. A server that has neither
//!   w nor a's k, but a newer k of c, must not show x: a client would see x and miss w. It is a dependency's own version that
//!   must be visible. For the same reason a context keeps older versions of a key beside newer ones. A script shows it.
//! - Versions are stamped with hybrid logical clocks, not Lamport's: their times mean something.
//! - **A context is bounded**, as its token is: see [`CopsSession`].
//! - **Moving.** Clients of COPS stay at their site. Here a session can go on at another: each version of its context is
//!   confirmed there first.
//! - A delete depends on what it deletes: the client is told that there was something.
//! - **Memory is bounded.** While a site is away, what depends on it is hidden, and piles up. Of more than 65,536 hidden
//!   versions, or visible ones above a watermark, the server remembers nothing: they are looked after when they are asked for, as
//!   after a restart.
//! - After a restart a version that was hidden before is refused instead of passed over, until what it depends on is here:
//!   the server cannot know that nobody has seen it.
//! - Under `interval` and `none` a power loss may take acknowledged writes, and for as long as their givers-back need, what was
//!   seen to depend on them is seen without them.
//! - Level `eventual` shows the newest version that is here, and is no part of a context.
//! - SCAN, KEYS and DBSIZE look at what is here, visible or not.
mod message;
pub use message::{Dependencies, Dependency, Found, Heartbeat, Message, Reached, Request, Response};
pub mod recovery;
mod replica;
pub use replica::{Cops, CopsConfig};
mod session;
pub use session::CopsSession;
mod waiting;
