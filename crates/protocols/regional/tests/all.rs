//! All tests of this crate in one program.
mod goldens;
mod swarm;
