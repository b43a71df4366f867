//! One node of a cluster, without sockets, threads or clocks: what the server and the simulator both drive.
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
//! **Order** (the seam's second rule). Whatever a replica emits is handed on in emission order, under its lane's lock: into the
//! inbox of a lane here, a link's queue, a loop's mailbox, or the log. Nobody holds two lanes' locks. A lane's
//! batches reach the log in the order in which they were staged.
//!
//! **Streams**, with incarnations and take-backs, are in [`turnbuckle_replication`]; **full copies** are a checkpoint, streamed, and are put in
//! place in `background`, replacing what they cover. **Checkpoints** write dirty versions into the engine, a chunk at a time, after the
//! log has been synced up to them: what the engine has, the log has too, or has had.
//!
//! **Recovery**: the engine's last checkpoint, then the log from where that checkpoint says; then a new incarnation of every stream, synced
//! before anything else. What the log has of a keyspace that the configuration leaves out is set aside first (`left_out`).
//!
//! **Links** serve the keyspaces that both of their nodes have; for each other keyspace the peer is away (`agreement`).
//!
//! Caveats: a lane's replay reads keys one by one from the engine if they do not fit into memory.
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
mod keyspace;
pub use keyspace::{Delivered, Delivery, Keyspace};
mod lane;
mod left_out;
mod node;
pub use node::{Node, NodeBuilder};
mod record;
mod shared;
pub use shared::{NO_ROOM, Wake};
mod status;
pub use status::{CheckpointCounts, KeyspaceStatus, StreamStatus};
mod steps;
pub use steps::Work;
mod survey;
mod table;
pub use survey::{Survey, SurveyOutcome, Surveyed, first_cursor_of};
pub use turnbuckle_replication::{StreamLimits, StreamPosition};
