//! # Quorum: each operation says how many replicas must take part
//!
//! **Guarantee.** A key has N replicas. A write is acknowledged when W of them have it on disk, and a read returns the newest version that any of R
//! replicas has. If R + W > N, the two sets share a replica: the read returns that write, or a newer version. Each operation chooses:
//!
//! | level | a read asks | a write waits for |
//! |---|---|---|
//! | `one` | the replica at the client's site | that replica |
//! | `quorum` | a majority | a majority |
//! | `all` | every replica | every replica |
//! | `replicas(n)` | n replicas | n replicas |
//! | `atomic` | a majority, and stores there what it returns | a majority, stamped above the newest version of a majority |
//! | `cpq(p)` | like `quorum` with probability p, else like `one` | the same |
//! | `delay(t)` | one, after waiting t | one, and waits t before it answers |
//! | `bounded(t)` | one, if it can prove that no write of a majority is missing that was acknowledged more than t ago; else a majority | |
//! | `per-key-sequential` | one, which waits for the *statuses* of a majority; a majority if they are late | a majority |
//! | `sequential` | one, which shows the data as of a *cut* that it has reached | a majority |
//!
//! "Newer" is the order of versions: by timestamp, then by replica. Only `atomic` promises an order in real time. At the other levels, two writes at
//! two sites are ordered by their clocks: a write that began after another one was acknowledged may get a lower timestamp, and is then never read.
//!
//! **Sources.** Gifford: *Weighted voting for replicated data*, SOSP 1979. DeCandia et al.: *Dynamo*, SOSP 2007. The level `atomic`: Attiya, Bar-Noy,
//! Dolev, J. ACM 42(1), 1995, with the tags of Lynch and Shvartsman, FTCS 1997. The dials `cpq` and `delay`: McKenzie, Fan, Golab: *Fine-tuning the
//! consistency-latency trade-off in quorum-replicated distributed storage systems*, 2015. The level `bounded`: Cadidas; see `exchange.rs`.
//! The level `per-key-sequential`: MeteorShower; see `statuses.rs`. The level `sequential`: see `sequential.rs`.
//!
//! **Roles.** The replica that a client asks *coordinates* the operation. There is one at the client's site, or several.
//!
//! ```text
//!   client        coordinator a             replica b            replica c (slow)
//!     | - put x=2 ->  | x@10 on disk            |                     |
//!     |               | ~~ stream: x@10 ~~~~~~> | on disk             |
//!     |               | ~~ stream: x@10 ~~~~~~~~|~~~~~~~~~~~~~~~~~~~> |
//!     |               | <- stored up to 10 ---- |                     |
//!     | <- written -- |                         |                     |      W = 2: a and b
//!     | - get x ----> |                         |                     |
//!     |               | -- newer than 10? ----> |                     |
//!     |               | <- no ----------------- |                     |      R = 2: a and b
//!     | <- 2 -------- |                         |                     |
//! ```
//!
//! **One write path.** Every write goes to every replica through the coordinator's durable stream, at every level. The level decides how many
//! acknowledgements the coordinator waits for. So the stream is hinted handoff and anti-entropy together: whatever a replica missed while it was away arrives
//! when it is back, in order and exactly once, without any read. A replica that was away for longer than the log reaches back gets a full copy. There are no
//! hints at other replicas that could be counted by mistake.
//!
//! **Acknowledgements.** A replica that has put a version on its disk tells the version's coordinator up to which timestamp it has stored the coordinator's stream. One such
//! message acknowledges all earlier writes too. A version that more than one replica must acknowledge is synced before it is acknowledged, whatever the keyspace's durability.
//! A version at `one` is as durable as the keyspace says.
//!
//! **Reads.** The coordinator asks as many others as the level needs, the ones that usually answer first. If one of them is slow, it asks another one. The question
//! says which version the coordinator has, so that a value is sent only if it is newer. Before the answer leaves, the coordinator has stored what it returns. A replica that has
//! only an older version will usually get the newer one from a stream in a moment. If the version is so old that the stream must be stuck, the
//! coordinator sends it to that replica (*read repair*).
//!
//! **Which replicas count.** A replica whose data directory was lost has forgotten what it acknowledged. Until it has everything again that its peers have, it answers
//! no question of a coordinator and acknowledges nothing.
//!
//! **Deletes** are versions without a value. They are forgotten when every replica shows them ([`turnbuckle_streams::Deletes`]).
//!
//! **Caveats.** If a data directory is replaced by an old copy of itself, that is often noticed, but not always, and can break the guarantee. A write that reached too few replicas in time
//! is reported as such, and may take effect at any later time: it is on its coordinator's disk, and in its stream.
mod config;
pub use config::QuorumConfig;
mod conflicts;
pub use conflicts::{Conflicts, LastWriterWins};
mod exchange;
mod latency;
mod message;
pub use message::{Body, Copies, Message};
mod reads;
mod request;
pub use request::{Floor, Request};
mod replica;
pub use replica::{Quorum, Timer};
mod seen;
mod sequential;
mod session;
pub use session::{QuorumSession, SiblingsSession};
mod siblings;
pub use siblings::{Dotted, KeepSiblings};
mod statuses;
mod writes;
