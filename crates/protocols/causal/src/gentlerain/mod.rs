//! # GentleRain: causal by the clock on the wall
//!
//! **Guarantee.** Causal consistency, as long as no wall clock goes back: a client sees its own writes, never sees less than before, and never sees a
//! version without everything that the version depends on. What is written at a site is seen there at once. Reads of one key never block. A write
//! waits until its server's clock shows what the client has seen. A read of several keys waits until the whole site has everything that the
//! client has seen.
//!
//! **Source.** Du et al. 2014, as the dissertation has it: section 3.2.2 (stamps, GST), Algorithm 8.1 (GET), Algorithm 8.2 (PUT), section 5.5.5
//! (ROTX). It is here to measure CausalSpartanX against, and is made as well as we can.
//!
//! **Roles.** For each partition, one server at each site. A version carries only its stamp `ut` and its site `sr`. A client has two numbers: `DT_c`,
//! the newest stamp that it has seen, and `GST_c` ([`crate::stable::TimedSession`]). A site has one number, GST: the lowest time up to which any of
//! its partitions has heard from any site ([`crate::stable`]).
//!
//! ```text
//!    C1  a version's stamp is above those of all that it depends on: a PUT waits for the clock
//!    C2  everything stamped up to GST is at this site, in all partitions
//!    so: d.sr = m or d.ut <= GST:  the version may be seen
//!
//!    client at b                              server of x at b                 heartbeats of a: 10 ms old, of c: 40 ms old
//!      |                                        | x@a:700 arrives at 711           |
//!      | -- GET x, GST_c ---------------------> | GST = 685: what c has said       |
//!      | <----- x=old, ut, GST 685 -------------|                                  |
//!      |                                        | <---- Down, GST = 705 -----------|
//!      | -- GET x, GST_c ---------------------> | 700 <= 705                       |
//!      | <----- x=new, ut 700, GST 705 ---------|  DT_c = 700
//!      | -- PUT y, DT_c 700 ------------------> | if the clock here shows 690: wait 10 ms (and a microsecond)
//! ```
//!
//! **ROTX.** The server that is asked waits until GST has reached `DT_c`, takes GST as the snapshot's time, and asks each partition for the newest
//! version stamped up to that time. This site's own versions are no exception: a client that reads what it has just written waits for the farthest
//! site. (The text has a threshold, beyond which it would fall back on another protocol. It was never needed there, and is not here.)
//!
//! # What it costs
//!
//! - One slow or absent site, or one slow partition, holds GST back for all. Nothing newer of any other site is seen, and no ROTX after a write is
//!   answered.
//! - If clocks are apart by x, a client that has seen a version of the faster one and writes at the slower one waits for up to x.
//!
//! # When a clock goes back
//!
//! What is stamped then is below what was promised. Other sites count it as received, and show what depends on it. A session that moves does not find
//! its own write. A site that restarts, or has taken a full copy, skips it permanently, as something that it has had. Nothing here repairs that: it
//! is what the text predicts (5.1.1), and what hybrid clocks are for. A script and `scenarios/gentlerain-clock-goes-back.toml` show it. Even so, no
//! two versions of a key get the same name.
//!
//! # Caveats: where this differs from the text, and why
//!
//! - **A PUT names `GST_c`,** in the text `DT_c` alone. Without `GST_c` this can happen: z@5 and y@8, which depends on z, come from another site. At
//!   partition 2 GST is 8. A client reads y there, and writes x at partition 1, where GST is still 4. Another client reads x at once and learns GST
//!   4. At partition 3, where GST is 4 as well, it does not find z, on which x depends. Here `GST_c` raises GST before the write, so a client that is
//!   shown x learns GST 8. With the write, GST is written into the log, if it is higher than what is there, so that a restart keeps it.
//! - A version is visible with `ut <= GST`, as 8.1's code and C2 have it; the pseudocode prints `<`.
//! - Several stamps of one microsecond are told apart by a counter, and a heartbeat takes one as well. A write does not wait if the clock shows the
//!   microsecond of what the client has seen: the counter goes on behind that.
//! - A session goes on when its write has a stamp, and not only when that is durable ([`turnbuckle_core::Session::may_hear_ahead`]). If the write is
//!   lost with the machine, what follows it may survive it. It then never happened.
//! - VV is raised by heartbeats alone ([`crate::stable`]).
//! - **Waiting.** No wait is endless: after [`crate::stable::Intervals::patience`] the client is told by how much the clock, or the site, is behind.
//! - **Moving.** A token carries `DT_c`. At the new site the first requests wait until GST has reached it.
//! - **Collection** is by the lowest GST of the site's partitions and of the snapshots under way: of each key, the newest version up to that time is
//!   kept, and all newer ones.
//! - Under `interval` and `none` a power loss may take acknowledged writes. Until peers have sent them back, versions that were seen to depend on
//!   them are seen without them.
//! - Level `eventual` shows the newest version that is here, and does not become part of the client's past.
//! - SCAN and DBSIZE look at all versions that are here, visible or not.
mod rules;
pub use rules::{GentleRainConfig, GentleRainRules};

/// A server of GentleRain.
pub type GentleRain = crate::stable::TimedReplica<GentleRainRules>;

/// A client of GentleRain.
pub type GentleRainSession = crate::stable::TimedSession<GentleRainRules>;
