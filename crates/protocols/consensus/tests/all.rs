//! All tests of this crate in one program.
// The machine code of worlds is taken from there, and not made here once more.
use turnbuckle_simulated as _;

mod goldens;
mod leaders;
mod swarm;
