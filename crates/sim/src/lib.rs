//! A world in one thread: the server's own nodes on a simulated network, with simulated disks and clocks.
//!
//! Bugs in replication show when a link breaks while a disk is slow and a process dies, and then once in a million runs. With real sockets
//! they are hopeless to find, and hopeless to find again. Here everything that the operating system does for a node is done by a calendar
//! of events and drawn from one seed: the same seed gives the same world, to the last byte.
//!
//! ```text
//!        clients (drawn, or a script)                     Judge: receipts, nothing undone, nothing lost
//!            | invoke          ^ answers ------------------^
//!            v                 |
//!   +-- machine a ----------------+      link: FIFO, delay + jitter, cut      +-- machine b --+
//!   |  Gateway                    |  <--------- frames in flight --------->   |  the same     |
//!   |  Node   (turnbuckle-node)   |                                           |               |
//!   |  SimulatedDisk MemoryEngine |   crash: the process goes, disks stay     |               |
//!   +-----------------------------+   power: and what was not synced, or not  +---------------+
//!                     calendar: (time, sequence) -> turn, tick, sync, work, pump, arrive, notice, connect
//! ```
//!
//! - [`World`] is a cluster that is driven by hand: [`World::invoke`], [`World::crash`], [`World::set_cut`], [`World::advance`].
//! - `Script` drives it from a golden script. Protocol crates keep their figures and rules as such scripts. It needs the feature `scripts`,
//!   which tests use.
//! - `gallery` runs scripts that show unwanted behaviour that clients may see, the same scripts for every protocol.
//! - A [`Scenario`] is a world, its clients and its faults as data: written in a file, or drawn from a seed ([`Draw`]). First there are
//!   clients and faults (safety), then neither (liveness): the cluster must come to rest with the same data at every site.
//! - [`Exhaust`] goes through every order of events of a small world, up to a depth.
//! - [`Diagram`] draws the messages between the nodes, as text or as a picture.
//! - [`Judge`] watches all of them. It knows true time and every answer, and nothing of what is inside a node.
//!
//! Bugs that are planted into the nodes show that the judge can see ([`turnbuckle_node::Planted`]). There is one for each rule that a node
//! follows.
//!
//! It is generic over the protocol's [`turnbuckle_core::Session`], and knows no protocol.
//!
//! # Limits
//!
//! - Each node is called by one thread. What another thread does between two steps of a fetch, a checkpoint or a copy is not seen here.
//!   Those steps hold the lane's lock, and have their own tests.
//! - A sync makes durable what was written when it *ends*. A real one may leave out what was written after it began.
//! - Monotonic time drifts with the wall clock: a fault in one is a fault in the other.
mod clock;
mod diagram;
mod element;
pub use diagram::Diagram;
#[cfg(feature = "scripts")]
mod gallery;
#[cfg(feature = "scripts")]
pub use gallery::{Anomaly, Verdict, gallery, goldens, prevents};
mod history;
pub use history::{OperationId, Record};
mod judge;
pub use judge::{Excuse, Judge, Judged, Rule, Violation, Witness};
mod keyspaces;
mod ledger;
mod link;
mod machine;
mod messages;
pub use messages::{Message, MessageLog, Note};
mod network;
mod number;
mod text;
pub use network::Jitter;
mod options;
pub use options::{Service, WorldOptions};
mod random;
pub use random::{Random, Span};
mod world;
pub use world::{BEGINNING, World};
mod exhaust;
mod fault;
mod file;
pub use exhaust::{
    Action, BadSchedule, BadSmallWorld, Broken, Exhaust, Explored, Found, Program, Replayed, Step,
};
pub use fault::{Fault, FaultKind, Loss};
pub use file::{Offset, ScenarioFile, ScenarioTable};
mod load;
pub use load::{Hot, Kind, LevelMix, Load, Mixed, OfSite, Tally};
mod scenario;
pub use scenario::{Failed, Keep, Outcome, Scenario};
mod space;
mod swarm;
pub use swarm::Draw;
mod plant;
pub use plant::plant;
#[cfg(feature = "scripts")]
mod script;
#[cfg(feature = "scripts")]
pub use script::Script;
mod trace;
mod twin;
pub use trace::Lost;
