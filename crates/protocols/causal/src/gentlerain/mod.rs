//! # GentleRain: causal by the clock on the wall
//!
//! **Guarantee.** Causal consistency, as long as no wall clock goes back: a client sees its own writes, never goes back, and never sees
//! a version without all that it depends on; what is written at a site is seen there at once. Reads of one key never block. A write
//! waits until its server's clock shows more than the client has seen, a read of several keys until the whole site has everything
//! that the client has seen.
//!
//! **Source.** Du et al. 2014, as the dissertation has it: section 3.2.2 (stamps, GST), Algorithm 8.1 (GET), Algorithm 8.2 (PUT), section
//! 5.5.5 (ROTX). It is here as what CausalSpartanX is measured against, and made as well as we can.
//!
//! **Roles.** For each partition, one server at each site. A version carries nothing but its stamp `ut` and its site `sr`. A client has
//! two numbers: `DT_c`, the newest stamp that it has seen, and `GST_c` ([`crate::stable::TimedSession`]). A site has one, GST: the least
//! time up to which any of its partitions has heard of any site ([`crate::stable`]).
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
//! **ROTX.** The server asked waits until GST has reached `DT_c`, takes GST for the snapshot's time, and asks each partition for the
//! newest version stamped up to that, of this site's own versions, too. Who reads what it has just written waits for the farthest
//! site. (The text's threshold, beyond which it would fall back on another protocol, was never needed there, and is not here.)
//!
//! # What it costs
//!
//! - One slow or absent site, or one slow partition, holds GST for all: nothing of any other site is seen, and no ROTX after a write.
//! - Clocks apart by x make whoever writes at the slower one what it has seen of the faster one wait for up to x.
//!
//! # When a clock goes back
//!
//! What is stamped then is below what was promised. Other sites believe to have it, and show what depends on it; a session that moves
//! does not find its own write. A site that restarts, or has taken a full copy, passes it over for good as something it has had.
//! Nothing here repairs that: it is what the text predicts (5.1.1), and what hybrid clocks are for.
//! A script and `scenarios/gentlerain-clock-goes-back.toml` show it. No two versions of a key get the same name, even so.
//!
//! # Caveats: where this differs from the text, and why
//!
//! - **A PUT names `GST_c`,** in the text `DT_c` alone. Otherwise: z@5 and y@8, which depends on it, come from another site. At partition 2
//!   GST is 8; a client reads y there, and writes x at partition 1, where GST is 4 yet. Another reads x at once, learns GST 4, and at
//!   partition 3, where it is 4 as well, does not find z, on which x depends. With `GST_c` raising GST before the write, whoever
//!   is shown x learns GST 8. With it, GST is written into the log, when it is higher than what is there, so that a restart keeps that.
//! - A version is visible with `ut <= GST`, as 8.1's code and C2 have it; the pseudocode prints `<`.
//! - Several stamps of one microsecond are told apart by a counter, and a heartbeat takes one as well.
//! - VV is raised by heartbeats alone ([`crate::stable`]).
//! - **Waiting.** Neither wait is for ever: after [`crate::stable::Intervals::patience`] the client is told by how much the clock, or the site,
//!   is behind.
//! - **Moving.** A token carries `DT_c`. At the new site the first requests wait until GST has reached it.
//! - **Collection** is by the least GST of the site's partitions and snapshots under way: of each key the newest version up to there is
//!   kept, and all newer ones.
//! - Under `interval` and `none` a power loss may take acknowledged writes, and for as long as their givers-back need, what was seen
//!   to depend on them is seen without them.
//! - Level `eventual` shows the newest version that is here, and is no part of the client's past.
//! - SCAN, KEYS and DBSIZE look at what is here, visible or not.
mod rules;
pub use rules::{GentleRainConfig, GentleRainRules};

/// A server of GentleRain.
pub type GentleRain = crate::stable::TimedReplica<GentleRainRules>;

/// A client of GentleRain.
pub type GentleRainSession = crate::stable::TimedSession<GentleRainRules>;
