//! The family of protocols in which every site takes writes and passes them on asynchronously.
//!
//! A write is acknowledged at once by the replica that takes it. It reaches the other sites through the durable stream, when they can be reached. The
//! protocols of the family differ in **when a version that has arrived may be seen**:
//!
//! | protocol | a remote version is visible | metadata |
//! |---|---|---|
//! | [`eventual`] | when it arrives | none |
//! | [`cops`] | when each version that it depends on is visible | a list of versions |
//! | [`causalspartanx`] | when its site's entry of DSV covers it, and the others what it depends on | a vector |
//! | [`gentlerain`] | when GST covers it, the lowest time up to which any partition has heard from any site | a number |
//!
//! What the protocols that go by time share is in [`stable`]: how a site knows up to when it has everything.
//!
//! In whatever order versions arrive, every site keeps the same version of a key in the end: the newest by `(timestamp, site)`. That is *last writer
//! wins*, decided by a hybrid logical clock: a write made after another was seen is always newer, whatever the wall clocks say.
mod bugs;
pub use bugs::Bugs;
pub mod causalspartanx;
pub use causalspartanx::{CausalSpartanX, CausalSpartanXConfig, CausalSpartanXSession};
pub mod cops;
pub use cops::{Cops, CopsConfig, CopsSession};
pub mod eventual;
pub use eventual::{Eventual, EventualConfig, EventualSession};
pub mod gentlerain;
pub use gentlerain::{GentleRain, GentleRainConfig, GentleRainSession};
mod metrics;
pub mod stable;
#[cfg(test)]
mod testing;
mod view;
pub use view::View;
mod wire;
