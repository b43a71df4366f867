//! # NuKV: a Raft group inside each site, and asynchronous replication between sites
//!
//! **Guarantee.** An acknowledged write is on the disks of a majority of its partition's replicas *at its site*. So a site survives the loss of a machine without help from other sites, and no operation ever
//! waits for another site unless the session has been there. Between sites, the last writer wins. Sessions have the four session guarantees (Terry et al., 1994), on each key, wherever they go.
//!
//! **Source.** Roohitavaf's dissertation, chapter 4: *Session Guarantees Using Hybrid Logical Clocks*; the architecture is that of eBay's NuKV. The Raft group is that of [`turnbuckle_raft`].
//!
//! **Roles.** In each site, one replica of a partition leads. It takes the writes of the site, and it takes the writes of the other sites from their *forwarders*. Both become entries of the log of its group. Each replica
//! applies the committed entries in order. It counts how far it is with each site: that is the *stable vector* `sv`.
//!
//! ```text
//!   site a: replicas 0, 1, 2                      site b: replicas 0, 1, 2
//!   client --put x--> leader
//!                       |-- append --> followers
//!                       |   (a majority has it)
//!   client <--done----- |  sv[a] = 17
//!                       |-- forward: 17, before it 16 ---> leader
//!                                                           |-- append --> followers
//!                                                           |  applied: sv[a] = 17
//!                       | <------------------ has a: 17 --- |
//! ```
//!
//! **Places.** The paper names a write by its index in its site's log. Here a write is named by its timestamp: a leader stamps its writes in the order of the log, above everything in the log before it was elected, so timestamps
//! rise as indexes do. Then one vector says what a replica has, what a session needs, and what a full copy covers ([`sites::Sites`]).
//!
//! **Each entry names the one before it** from the same site. A replica applies an entry if it has exactly the one before. If it has the entry itself, it skips it: the paper's line 23 would set `sv` back. If it lacks the one
//! before, it does not apply the entry: in the paper `sv` would skip what a deposed leader of the destination has lost.
//!
//! **The forwarder** (the paper's XC) is the leader of the group at the origin. It keeps nothing on disk. When it begins, it asks the other site's leader how far that is, and goes on from there. If the log does not go back
//! that far any more, the destination takes a full copy.
//!
//! **Epochs.** If all replicas of a site lose their directories, the group begins a new log, and a new *epoch*. The epoch is the timestamp of the first entry, and each place names it. A session that
//! needs a place of an epoch that has ended is told if that write never arrived.
//!
//! **Reads** (Algorithm 4.2, lines 1-4). The session sends what it needs: for monotonic reads, the places of what it has read, for read-your-writes, of what it has written. A replica that lacks some of it waits for a short
//! time, and then says so; the session asks the leader.
//!
//! **Writes** (lines 5-21) never wait for other sites. The session sends its *dependency time*: the newest timestamp that it has read or written. The leader's clock follows it, and the write gets a later timestamp. So wherever both
//! are, the write wins. With [`NukvConfig::wait`] the leader waits for what the session needs, as a store without hybrid clocks must: that is the paper's variant for comparison.
//!
//! **Where this differs from the paper.** The version's own place is returned, and not `sv` (line 4 of the paper makes sessions wait for more than they have seen). Replies are sent after the commit (lines 12-13 print it before). A
//! write that is asked for again is carried out once.
mod apply;
mod config;
mod copies;
mod entry;
mod epochs;
mod expiries;
mod forwarder;
mod message;
mod reads;
mod replica;
mod request;
mod session;
pub mod sites;
mod writes;
pub use config::{Bugs, NukvConfig};
pub use message::Message;
pub use replica::{Line, Nukv, Timer};
pub use request::{Outcome, Request, Response};
pub use session::NukvSession;
