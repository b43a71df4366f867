//! # Dacian: each partition is a Raft group, and each read says how fresh it must be
//!
//! **Guarantee.** Writes are *linearizable*: a majority of the partition's replicas has each acknowledged write on disk, and all replicas apply the writes in one order. Each
//! read chooses what it needs of that order, from `linearizable` to `eventual`. The less it needs, the more replicas can answer it without asking anybody.
//!
//! **Source.** Johnson, Hao: *Dacian: Variable Consistency and Bounded Staleness in Synchronously Replicated Systems*. The Raft group is that of [`turnbuckle_raft`].
//!
//! **Roles.** One replica of a partition leads. It takes all writes, gives each one a version above all earlier ones, and proposes it as an entry of the group's log. Every replica applies the
//! committed entries in order. The *index* of an entry is its place in the order of everything that happens in the partition. Each answer says at which index the replica was, and the session
//! remembers it. So a need is a number: "at least index 17".
//!
//! ```text
//!   client at a        leader b              c
//!     | - put x=1 ---->  |                   |
//!     |                  | -- append 7 ----> | on disk
//!     |                  |    on disk        |
//!     |                  | <- 7 is here ---- |            b and c are two of three: 7 is committed
//!     |                  |    applies 7      |
//!     | <- written @7 -- |                   |
//!     |                  | -- commit 7 ----> | applies 7
//! ```
//!
//! **Levels of reads** (the paper's figure 2, with indexes in place of versions):
//!
//! | level | what the answering replica must have applied |
//! |---|---|
//! | `linearizable` | everything that was committed when the read arrived. The leader knows that by a round or by its lease ([`turnbuckle_raft::reads`]), never because it believes to lead |
//! | `bounded(t)` | everything that was committed t ago. A replica asks its leader for the committed index; what it has then applied is as fresh as the *departure* of that question |
//! | `partition-sequential` | everything that the session has seen of the partition |
//! | `per-key-causal` | the last write of the key that the session has read or written |
//! | `monotonic-reads`, `read-your-writes` | the last one that it has read; the last one that it has written |
//! | `eventual` | nothing |
//!
//! A replica that is behind waits for [`DacianConfig::redirect`], and then says so. The session asks the leader instead (the paper's redirect).
//!
//! **Where this differs from the paper.** The paper's leader answers linearizable reads because it believes to lead. And it stamps heartbeats "now" for ever after it was deposed, so `bounded` is wrong at
//! its followers. Here both rest on a round. The paper's versions are the leader's wall clock; here they are hybrid timestamps, and a new leader's are above all in its log. "Causal" in the
//! paper is causal on each key alone, and so it is named here. `sequential` by the session's index holds within a partition, not across partitions: see the golden script of two partitions.
//!
//! **Effects, not commands.** The leader carries an operation out when it proposes it, on what is applied and what is proposed before. The entry has the effect: the version that is put, and what the
//! client is told. Replicas put it, whatever they have. So an entry may be applied to rows that are newer than itself, as they are after a full copy, and nothing goes wrong.
//!
//! **Expiry.** A value expires by the time of the partition, which the entries tell: see `expiry.rs`.
//!
//! **A write that is asked for again.** If an answer is lost, the session asks again, with the same number; and the first request may still come, to another leader. A leader's log has every entry that is or may be
//! committed. So the leader looks each write up there ([`turnbuckle_raft::sessions`]), and finds it, or knows that it never happened. A write is never carried out twice. If entries among which it may be are dropped already, it is
//! not carried out.
//!
//! **Caveats.** A data directory that is replaced by an old copy of itself is not noticed. docs/decisions/0012-raft.md has what is not built.
mod change;
mod config;
mod expiry;
mod message;
mod reads;
mod replica;
mod request;
mod session;
mod writes;
pub use config::{Bugs, DacianConfig};
pub use message::Message;
pub use replica::{Dacian, Line, Timer};
pub use request::{Outcome, Request, Response, Work};
pub use session::DacianSession;
