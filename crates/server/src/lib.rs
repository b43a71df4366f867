//! The only crate with sockets: it runs a node.
//!
//! Everything below it (protocols, sessions, the store, the log) is free of I/O or at least of networks. These parts have the I/O:
//!
//! ```text
//!   cluster.toml --config--> ClusterConfig ---+
//!                                             |
//!   clients ==RESP==> event loops <===========+===> peer transport ==frames==> other nodes
//!                         |                   |          |
//!                      metrics  <-- counts ---+       wan: DelayLine, WanMatrix
//!                         |                              |
//!   people, Prometheus ==HTTP==> admin ------------------+  delays and cuts, changed while it runs
//! ```
//!
//! - [`admin`]: HTTP for operators and monitoring, and a client for it.
//! - [`config`]: the cluster's file, resolved and checked, or refused with file, line and field.
//! - [`metrics`] and [`status`]: what a node counts, and what it says about itself.
//! - [`wan`]: one-way delays, jitter and cuts between sites on one machine.

pub mod admin;
mod audit;
mod clock;
pub use clock::Clock;
pub mod config;
pub mod metrics;
mod peer;
mod run;
pub use run::{IdentityError, OpenAnewError, Running, StartError, StartOptions, start, start_with};
mod seldom;
pub mod status;
mod test_faults;
mod tls;
pub use test_faults::{BadTestFaults, TestFaults};
pub use tls::{Link, Tls, TlsAuthority, TlsError};
mod users;
pub mod wan;
