//! All tests of this crate in one program: it is linked once, and what the tests have in common is compiled once.
// The machine code of simulated worlds comes from that crate, and is not made here once more.
use turnbuckle_simulated as _;

mod conditions;
mod copies;
mod exhaust;
mod far_ahead;
mod gallery;
mod habits;
mod hashes;
mod hints;
mod journal;
mod keyspaces;
mod losses;
mod planted;
mod rolling;
mod scenarios;
mod sessions;
mod swarm;
mod written;
