//! The family of protocols in which every site takes writes and passes them on asynchronously.
//!
//! A write is acknowledged by the replica at hand, at once; it reaches the other sites through the durable stream, when they can be
//! reached. What the family's members differ in is **when a version that has arrived may be seen**:
//!
//! | protocol | a remote version is visible | metadata |
//! |---|---|---|
//! | [`eventual`] | when it arrives | none |
//! | [`cops`] | when each version that it depends on is visible | a list of versions |
//! | [`causalspartanx`] | when its site's entry of DSV covers it, and the others what it depends on | a vector |
//! | [`gentlerain`] | when GST covers it, the least time that any partition has heard of from any site | a number |
//!
//! What those that go by time share, how a site knows what it has everything of, is in [`stable`].
//!
//! Whatever arrives in whatever order, every site keeps the same version of a key in the end: the newest by
//! `(timestamp, site)`. That is *last writer wins*, with a hybrid logical clock as the judge: a write made after another
//! was seen is always newer, whatever the wall clocks say.
mod bugs;
pub use bugs::Bugs;
pub mod causalspartanx;
pub use causalspartanx::{CausalSpartanX, CausalSpartanXConfig, CausalSpartanXSession};
pub mod cops;
pub use cops::{Cops, CopsConfig, CopsSession};
mod deletes;
pub mod eventual;
pub use eventual::{Eventual, EventualConfig, EventualSession};
pub mod gentlerain;
pub use gentlerain::{GentleRain, GentleRainConfig, GentleRainSession};
mod metrics;
pub mod stable;
#[cfg(test)]
mod testing;
mod wire;
