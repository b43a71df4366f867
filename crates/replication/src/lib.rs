//! Replication by durable streams, for protocols that replicate every version to their peers. This crate handles bytes only: it knows no key, no
//! version, no protocol, no socket and no disk. What entries and marks decode to is a type parameter, and decoding is left to the driver.
//!
//! - `stream` is the source of a stream: what is sent to which receiver, from which position on, and what a receiver that has more sends back.
//! - `incoming` is the receiver of its peers' streams, and `copy` is the full copy that arrives from one of them.
//! - `take_back` is what a replica may have lost of earlier incarnations, and `startup_wait` what it must hear of that from its peers before it answers.
//! - `row_request` is the rows that peers have asked for, and `repair` the rows that are missing here.
//! - `wire` is the frames that the two ends exchange and the records that they write down.
mod copy;
pub use copy::{CopyIn, CopyState};
mod row_request;
pub use row_request::{Lacks, Purpose, RowRequest, RowRequests, TakeBack};
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
pub use take_back::EarlierIncarnations;
mod startup_wait;
pub use startup_wait::StartupWait;
mod wire;
pub use wire::{
    CopyBeginFrame, CopyRowsFrame, CutFrame, EntriesFrame, IncarnationRecord, LAST_PLACE, MarkFrame,
    NamedRecord, PositionFrame, ReceivedRecord, ResumeFrame, ReturnedFrame, StreamBody, TakeBackFrame,
    add_named, check_lives, check_places, check_time, cut_from_frames, cut_to_frames, replica_number,
};
