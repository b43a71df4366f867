//! # GentleRain
mod replica;
pub use replica::{GentleRain, GentleRainConfig};

/// A client of GentleRain.
pub type GentleRainSession = crate::stable::TimedSession<GentleRain>;
