//! # Eventual: every replica has everything in the end
//!
//! **Guarantee.** If writes stop, all sites answer the same. Until then a read may return anything that was once written, even something older than
//! what the same client read or wrote before, if the client moved to another site, or the node that holds the key at its site could not be reached. If two sites write one key at once, one of the writes wins, the
//! same one everywhere.
//!
//! **Source.** The baseline of the dissertation's chapters 5 and 8 (table 8.1, "Eventual": 95 lines of server, 32 of client).
//!
//! **Roles.** For each partition, one replica at each site. Sessions write at the replica of their own site only, and read there unless it cannot be reached.
//!
//! ```text
//!   session at a          replica at a               replica at b               session at b
//!      | -- Put x=1 -------> | stamp 10.0               |                            |
//!      |                     | replicate x=1@a ~~~~~~~> |                            |
//!      | <------ Written --- | (when durable at a)      | keep the newer of both     |
//!      |                     |                          | <------------- Get x ------|
//!      |                     | ~~ mark: up to 10.0 ~~~> | -- Value 1, at most 40ms --|
//! ```
//!
//! `~~>` is the durable stream: in order, exactly once, however long b is unreachable.
//!
//! **Freshness.** Every [`EventualConfig::heartbeat`] a replica *marks* its stream: everything that it has stamped up to the mark's promise is in
//! front of the mark, and the wall clock showed at least the time in the mark. A replica that has handled the marks of all other sites can prove how
//! old its answers may be: its receipts say so. The claim takes the wall-clock interval of both ends into account. It does not rest on the
//! timestamps, which may run ahead of the clock after a restart. A site that has lost versions, and cannot get them back because another site
//! has replaced them, says so in its marks. Until a replica has what may have replaced them, no mark proves more ([`turnbuckle_streams::Marks`]).
//! Until it has what may have replaced its own, it decides no condition ([`turnbuckle_streams::Replaced`]).
//!
//! **`bounded(t)`.** A read at this level waits until the marks prove that the answer reflects every write that was acknowledged more than t before
//! the read began. If that takes longer than [`EventualConfig::patience`], the read is refused, and is told what could be proven. While a site cannot be
//! reached, only bounds above the length of the cut can be given.
//!
//! **Deletes** are versions without a value. A delete is forgotten when every site has it, and everything older, on its disk. While a site is
//! unreachable, no delete is forgotten.
//!
//! ```text
//!   for each origin o:   settled[o] <= vv[o] = last mark handled  <=  what o's stream has brought  <=  what o has stamped
//! ```
//!
//! **Caveats.** A delete removes what the contacted replica has. If that is nothing, nothing is written, and a write that is still on its way
//! survives. MGET reads each key by itself. After a restart, a site marks nothing until every other site has reported how far it had received the
//! site's stream: under `interval` and `none` that may be further than the site itself remembers.
mod replica;
pub use replica::{Eventual, EventualConfig};
mod session;
pub use session::EventualSession;
