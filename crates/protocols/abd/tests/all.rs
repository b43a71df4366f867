//! All tests of this crate in one program: it is linked once, and what the tests have in common is compiled once.
mod goldens;
mod metrics;
