//! A world in one thread: the server's own nodes on a simulated network, with simulated disks and clocks.
mod history;
pub use history::{OperationId, Record};
mod judge;
pub use judge::Judge;
mod link;
mod machine;
mod options;
pub use options::WorldOptions;
mod random;
pub use random::{Random, Span};
mod world;
pub use world::{BEGINNING, World};
mod swarm;
pub use swarm::{Draw, Outcome, run, swarm};
mod script;
pub use script::{Script, planted};
