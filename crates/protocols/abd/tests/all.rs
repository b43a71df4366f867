//! All tests of this crate in one program: it is linked once, and what the tests have in common is compiled once.
// The machine code of simulated worlds comes from that crate, and is not made here once more.
use turnbuckle_simulated as _;

mod goldens;
mod metrics;
