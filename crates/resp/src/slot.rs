use crate::Output;
use crate::long::Reads;
use crate::shape::{Shape, Writes};
use crate::transaction::Watching;
use turnbuckle_core::Receipt;

/// The place of one reply in the order of replies. It exists until this reply and all replies before it are answered.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The tag of its first operation, or of the next one if it has none. Invariant: it never falls from slot to slot.
    pub(crate) first_tag: u64,
    /// The bytes of the command on the wire. They stay in memory until it is answered.
    pub(crate) frame_bytes: usize,
    /// How many bytes it is expected to return, until it is answered.
    pub(crate) need: usize,
    pub(crate) state: SlotState,
}

#[derive(Debug)]
pub(crate) enum SlotState {
    /// It is answered, and its reply is written here.
    Ready(Box<ReadyReply>),
    /// Its reply is being written.
    Taken,
    /// It waits for one operation.
    One(Shape),
    /// It waits for several writes.
    Several(Box<Writes>),
    /// It waits for several reads.
    Parts(Box<Reads>),
    /// It waits for a walk over all keys.
    Walk,
    /// It waits for the versions of keys that are to be watched.
    Watch(Box<Watching>),
}

#[derive(Debug)]
pub(crate) struct ReadyReply {
    pub(crate) output: Output,
    /// What becomes the connection's last receipt: `None` if that stays, else this receipt or none.
    pub(crate) receipt: Option<Option<Box<Receipt>>>,
}
