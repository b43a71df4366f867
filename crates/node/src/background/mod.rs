//! What happens in the background: fetches, checkpoints, and full copies that are put in place.
//!
//! All of it works in small steps under a lane's lock, and reads and writes disks between them, without it. What somebody else may do
//! between two steps is said where it matters; [`crate::steps`] has the mechanism.
mod checkpoint;
pub(crate) use checkpoint::Retention;
mod fetch;
mod placing;

/// How many bytes of rows are read at a time.
const PAGE_BYTES: usize = 1 << 20;
