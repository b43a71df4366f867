//! # COPS
mod message;
pub use message::{Dependencies, Dependency, Found, Heartbeat, Message, Reached, Request, Response};
mod recovery;
mod replica;
pub use replica::{Cops, CopsConfig};
mod session;
pub use session::CopsSession;
mod waiting;
