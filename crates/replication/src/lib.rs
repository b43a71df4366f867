//! Replication by durable streams: what a protocol that replicates every version to its peers stands on. Bytes only: no key, no version, no protocol, no
//! socket and no disk is known here. What entries and marks decode to is a type parameter, and decoding is left to who drives it.
//!
//! - `stream` is the source of a stream: what is sent to whom, from where on, and what a receiver that knows more gives back.
//! - `incoming` is the receiver of its peers' streams, and `copy` is the full copy that arrives from one of them.
//! - `take_back` is what a source may have lost in earlier lives, and `unheard` what it must hear of that before it answers.
//! - `errand` is what peers have asked for row by row, and `repair` what is missing here.
//! - `wire` is what the two ends say to each other and write down.
mod copy;
pub use copy::{CopyIn, CopyState};
mod errand;
pub use errand::{Errand, Errands, Lacks, Purpose, TakeBack};
mod incoming;
pub use incoming::{Incoming, PeerStream, Word};
mod pending;
pub use pending::Item;
mod repair;
pub use repair::{Repair, RepairRecord};
mod stream;
pub use stream::{
    Cursor, CursorState, Entry, Incarnation, Outgoing, Resumption, Step, StreamLimits, StreamPosition,
};
mod take_back;
pub use take_back::EarlierLives;
mod unheard;
pub use unheard::Unheard;
mod wire;
pub use wire::{
    CopyBeginFrame, CopyRowsFrame, CutFrame, EntriesFrame, IncarnationRecord, LAST_PLACE, MarkFrame,
    NamedRecord, PositionFrame, ReceivedRecord, ResumeFrame, ReturnedFrame, StreamBody, TakeBackFrame,
    add_named, check_lives, check_places, check_time, cut_from_frames, cut_to_frames, replica_number,
};
