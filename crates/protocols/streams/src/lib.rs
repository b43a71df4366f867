//! What protocols share whose replicas send every write to each other by durable streams.
//!
//! - [`Marks`]: up to which time a replica has everything that its peers have stamped.
//! - [`Replaced`]: what was lost, and cannot be sent back because something newer has replaced it.
//! - [`Deletes`]: which deletes may be forgotten, and whether a data directory is an old copy.
mod deletes;
mod mark;
mod marks;
mod replaced;
pub use deletes::{Deletes, Said};
pub use mark::{Mark, MarkRecord};
pub use marks::Marks;
pub use replaced::Replaced;

/// The bugs that can be planted here. None outside tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Planted {
    /// A delete is forgotten once every replica has stamped beyond it, whether it is shown there or not.
    pub forgets_deletes_early: bool,
    /// A delete is forgotten when another site reports that it may be, although changes of the expiry of what it deleted may be under way to here.
    pub forgets_by_hearsay: bool,
    /// An old copy of a data directory is served as if it were the latest.
    pub serves_an_old_directory: bool,
    /// A replica writes down what it shows while peers may still send back deletes that it lost.
    pub keeps_shown_while_taking_back: bool,
    /// A read at `bounded(t)` waits until one other replica was heard, and not every one.
    pub waits_for_one_site: bool,
    /// A version gets no floor over a key with shares that is over.
    pub adds_no_floors: bool,
}
