//! Doors: where a client's operations enter a keyspace, without sockets.
//!
//! A **gateway** belongs to one event loop. For each keyspace it holds the **doors** that its connections have opened. Behind each door is the client
//! side of the keyspace's protocol, a [`turnbuckle_core::Session`].
//!
//! ```text
//!   operation --> door --> session --ask--> Keyspace (the lane here, or another node of the site)
//!   answer    <-- door <-- session <-response-- delivery
//! ```
//!
//! An operation that can be answered from the lane at hand is answered within [`Gateway::operate`]. Answers to the others come from
//! [`Gateway::collect`], which the loop calls once per turn, after the commit. Each operation is answered exactly once. If no answer comes in time,
//! the answer is a failure that says whether the operation may have happened.
//!
//! An operation may name several levels. The door tries one after the other (`attempts.rs`).
//!
//! An operation may wait until other sites have what its session has seen (`probes.rs`).
//!
//! Messages to channels wait at each site until it has what their publishers have seen (`messages.rs`).
//!
//! A session may set timers: the loop calls [`Gateway::tick`] when [`Gateway::next_deadline`] has come.
//!
//! Order: if the protocol's operations may overlap ([`Session::OVERLAPS`]), all of them are passed on when they come in, and the lane of a key keeps
//! the order of the key's operations. Otherwise each operation waits until the session has heard the outcome of the one before.
//!
//! An operation that names several levels, or one at a level at which replicas park requests, is waited for in any case.
//!
//! [`Session::OVERLAPS`]: turnbuckle_core::Session::OVERLAPS
mod attempts;
mod doors;
mod gateway;
mod messages;
mod probes;
mod shared_state;
pub use gateway::{Gateway, GatewayOptions, KeyspaceAbout};
pub use messages::Hears;
mod slab;
