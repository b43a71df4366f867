//! # CausalSpartanX: nothing is seen before what it depends on
//!
//! **Guarantee.** Causal++ consistency: a client sees its own writes, never sees less than before, and never sees a version without everything that
//! the version depends on. What is written at a site is seen there at once. Writes never wait, reads never block. A read of several keys (ROTX) is a
//! snapshot that is causally consistent, in one round.
//!
//! **Source.** The dissertation's chapter 5: Algorithms 5.1 (the client: [`crate::stable::TimedSession`]), 5.2 and 5.4
//! (`rules.rs`, and what it shares with others in [`crate::stable::TimedReplica`]), 5.3 ([`crate::stable`]).
//!
//! **Roles.** For each partition, one server at each site. A version carries `ds`: for each site, the newest version of that site that the writer had
//! seen.
//!
//! ```text
//!    ds <= DSV and ut <= DSV[sr]:  a remote version is visible        (a local one: always)
//!
//!    client at b         server of y (partition 2)                 server of x (partition 1)
//!      | -- GET x, DSV_c ------------------------------------------> | x@a:17 is not yet stable: the older x
//!      | <----- x=old, ds {}, DSV [a:15] ----------------------------|
//!      |                        | <------- Down DSV [a:20] --------->|
//!      | -- GET y, [a:15] ----->| y@a:19, ds {a:17} is visible
//!      | <- y=new, {a:19}, DSV [a:20]
//!      | -- GET x, [a:20] -----------------------------------------> | DSV_c raises DSV here, if it must: x@a:17 is visible
//! ```
//!
//! **ROTX.** The server that is asked takes its DSV as the snapshot vector `sv`, and asks each partition for the newest version with `ds <= sv` and
//! `ut <= sv[sr]`. Each partition promises to stamp nothing more below `sv` (line 21).
//!
//! # Caveats: where this differs from the text, and why
//!
//! - **The algorithm as printed is not causal.** Line 3 of Algorithm 5.2 looks at a version's dependencies and not at its own time. Line 4 puts that
//!   time into the client's past, and line 7 puts that past into DSV, which then claims versions that have not arrived. Here a remote version is
//!   visible only if `maxDS(d.ds, {<d.sr, d.ut>}) <= DSV`. The printed algorithm runs as the protocol `causalspartanx-published`
//!   ([`Departures::PUBLISHED`]), and a script shows the anomaly.
//! - VV is raised by heartbeats alone ([`crate::stable`]).
//! - **Restarts.** VV and DSV are written down every second, in the log behind the versions that they speak of. VV is also written down with a write
//!   that depends on more of it. A restart goes on from there. If a partition has less than its site has shown, because it lost power or its
//!   directory, it waits until VV covers what is asked. Before a local version is returned, DSV is raised to its `ds`. The promise of line 21 is
//!   below the clock's bound, which is on disk.
//! - **Moving.** A token carries DS_c only. At the new site the first requests wait until the site covers it, or fail when their time is up.
//! - **Collection** by each server's own DSV would remove versions that snapshots must still show. So it is by the minimum over the site's partitions
//!   and snapshots.
//! - After a full copy, a server has only those versions that the copy's source had still kept: reads wait until the site has caught up with the
//!   source.
//! - Under `interval` and `none` a power loss may take acknowledged writes. Until peers have sent them back, versions that were seen to depend on
//!   them are seen without them.
//! - Level `eventual` shows the newest version that is here, and does not become part of the client's past.
//! - SCAN and DBSIZE look at all versions that are here, visible or not.
mod rules;
pub use rules::{CausalSpartanXConfig, CausalSpartanXRules, Departures};

/// A server of CausalSpartanX.
pub type CausalSpartanX = crate::stable::TimedReplica<CausalSpartanXRules>;

/// A client of CausalSpartanX.
pub type CausalSpartanXSession = crate::stable::TimedSession<CausalSpartanXRules>;
