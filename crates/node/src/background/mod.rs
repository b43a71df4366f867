//! Background work: fetches, checkpoints, and full copies that are put in place.
//!
//! All of it works in small steps under a lane's lock. Between the steps it reads and writes disks, without the lock. What other threads
//! may do between two steps is said where it matters; [`crate::steps`] has the mechanism.
mod checkpoint;
pub(crate) use checkpoint::Retention;
mod fetch;
mod placing;

/// How many bytes of rows are read at a time.
const PAGE_BYTES: usize = 1 << 20;
