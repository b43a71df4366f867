//! One node of a cluster, without sockets, threads or clocks. The server and the simulator both drive it.
//!
//! A node holds **lanes**: one replica each, of one partition of one keyspace, with everything around it.
//!
//! ```text
//!    requests (gateway)      frames of peers           one lane
//!          |                       |          +-----------------------------+
//!          v                       v          |  Replica<P>   the protocol, |
//!   Keyspace::ask          Node::handle_frame |               the barrier   |
//!          +-----------+-----------+--------->|  Store        versions      |
//!                      | lock                 |  Outgoing     its stream    |
//!                      |                      |  Incoming     peers' streams|
//!                      |                      +--------------+--------------+
//!   Node::commit: staged writes of all lanes -> one record each -> log -> release what waited
//!   Node::fill:   frames, stream entries, copies, as the link to a peer takes them
//!   Node::sync, fetch, maintain: what blocks on disks, on threads that the driver lends
//! ```
//!
//! **Order** (the seam's second rule). The outputs of a replica are handed on in the order in which it emits them, under its lane's lock:
//! into the inbox of a lane here, a link's queue, a loop's mailbox, or the log. No thread holds two lanes' locks. A lane's batches reach
//! the log in the order in which they were staged.
//!
//! **Streams**, with incarnations and take-backs, are in [`turnbuckle_replication`]. **Full copies** are a checkpoint, streamed. They are
//! put in place in `background`, and replace what they cover. **Checkpoints** write dirty versions into the engine, one chunk at a time,
//! after the log has been synced up to them. So everything that the engine has is in the log, or was there before the log was purged.
//!
//! **Recovery** takes the engine's last checkpoint, and then the log from the position that this checkpoint names. Then it begins a new
//! incarnation of every stream, synced before anything else. The log's records of a keyspace that the configuration leaves out are set
//! aside first (`left_out`).
//!
//! **Links** serve the keyspaces that both of their nodes have. For every other keyspace the peer counts as away (`agreement`).
//!
//! Limits: if a lane's keys do not fit into memory, its replay reads them one by one from the engine.
//!
mod agreement;
pub use agreement::{Agreement, Disagreement, KeyspaceTerms};
mod background;
mod callers;
mod config;
pub use config::{KeyspaceConfig, NodeConfig, NodeId, Placement, Planted};
mod durability;
pub use durability::{BadDurability, Durability};
mod entry;
pub use entry::Written;
mod environment;
mod error;
pub use error::{OpenError, ReplayError, WorkError};
mod frame;
pub use frame::{FrameAbout, MAX_FRAME_BYTES, WIRE_VERSION};
pub use publication::Publication;
mod keyspace;
pub use keyspace::{Delivered, Delivery, Keyspace};
mod lane;
mod left_out;
mod memory;
mod node;
mod publication;
pub use node::{Haste, Node, NodeBuilder};
mod record;
mod shared;
pub use shared::{NO_ROOM, SyncWish, Wake};
mod status;
pub use status::{CheckpointCounts, KeyspaceStatus, StreamStatus};
mod steps;
pub use steps::Work;
mod survey;
mod table;
pub use survey::{Survey, SurveyOutcome, Surveyed, first_cursor_of};
pub use turnbuckle_replication::{StreamLimits, StreamPosition};
