//! All tests of this crate in one program.
mod distance;
mod goldens;
mod swarm;
