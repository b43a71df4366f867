//! Replication by durable streams: what a protocol that replicates every version to its peers stands on. Bytes only: no key, no version, no protocol, no
//! socket and no disk is known here.
//!
//! - `stream` is the source of a stream: what is sent to whom, from where on, and what a receiver that knows more gives back.
//! - `wire` is what the two ends say to each other and write down.
mod stream;
pub use stream::{
    Cursor, CursorState, Entry, Incarnation, Outgoing, Resumption, Step, StreamLimits, StreamPosition,
};
mod wire;
pub use wire::{
    CopyBeginFrame, CopyRowsFrame, CutFrame, EntriesFrame, IncarnationRecord, LAST_PLACE, MarkFrame,
    NamedRecord, PositionFrame, ReceivedRecord, ResumeFrame, ReturnedFrame, StreamBody, TakeBackFrame,
    add_named, check_lives, check_places, check_time, cut_from_frames, cut_to_frames, replica_number,
};
