use crate::Output;
use crate::long::Reads;
use crate::shape::{Shape, Writes};
use turnbuckle_core::Receipt;

/// The place of one reply in the order of replies, while something before it, or it, is not answered yet.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The tag of its first operation, or of the next one if it has none. Invariant: never falls from slot to slot.
    pub(crate) first_tag: u64,
    /// What the command took on the wire; it is not forgotten before it is answered.
    pub(crate) frame_bytes: usize,
    /// What it is expected to bring, until it is answered.
    pub(crate) need: usize,
    pub(crate) state: SlotState,
}

#[derive(Debug)]
pub(crate) enum SlotState {
    /// Answered, and written here.
    Ready(Box<ReadyReply>),
    /// Its reply is being written.
    Taken,
    /// Waiting for one operation.
    One(Shape),
    /// Waiting for several writes.
    Several(Box<Writes>),
    /// Waiting for several reads.
    Parts(Box<Reads>),
}

#[derive(Debug)]
pub(crate) struct ReadyReply {
    pub(crate) output: Output,
    /// What it does to the last receipt: nothing, or it becomes this one (or none).
    pub(crate) receipt: Option<Option<Receipt>>,
}
