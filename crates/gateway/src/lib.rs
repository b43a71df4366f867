//! Doors: where a client's operations enter a keyspace, without sockets.
//!
//! A **gateway** belongs to one event loop. For each keyspace it holds the **doors** that its connections have opened; behind
//! each door stands the client side of the keyspace's protocol, a [`turnbuckle_core::Session`].
//!
//! ```text
//!   operation --> door --> session --ask--> Keyspace (the lane here, or another node of the site)
//!   answer    <-- door <-- session <-response-- delivery
//! ```
//!
//! An operation that can be answered from the lane at hand is answered within [`Gateway::operate`]; others come out of
//! [`Gateway::collect`], which the loop calls once per turn, after the commit. Each operation is answered exactly once; if nothing comes
//! back in time the answer is a failure that says whether the operation may have happened.
//!
//! A session may set timers: the loop calls [`Gateway::tick`] when [`Gateway::next_deadline`] has come.
//!
//! Order: where the protocol's operations may overlap ([`Session::OVERLAPS`]), all that come in are passed on at
//! once, and a key's own order is kept by its lane; otherwise each waits until the session has heard what came of the one before.
//!
//! [`Session::OVERLAPS`]: turnbuckle_core::Session::OVERLAPS
mod around;
mod doors;
mod gateway;
pub use gateway::{Gateway, GatewayOptions, KeyspaceAbout};
mod slab;
