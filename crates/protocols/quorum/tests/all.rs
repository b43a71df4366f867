//! All tests of this crate in one program.
// The machine code of simulated worlds comes from that crate, and is not made here once more.
use turnbuckle_simulated as _;

mod distance;
mod goldens;
mod swarm;
