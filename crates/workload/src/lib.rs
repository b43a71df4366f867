//! What clients do: workloads, when their operations begin, how long the operations took, and the traces of them.
//!
//! The same generator drives the live benchmark and the simulator. So this crate does no I/O of its own, reads no clock, and
//! has no randomness of its own: everything follows from a seed, times are nanoseconds that the caller passes in, and traces
//! are written to any `io::Write` of the caller. Only [`TraceReader`] opens a file.
//!
//! ```text
//!   Workload ----> Plan ----> Generator (one per client) ----> Step: read, update, insert, read-modify-write
//!   (a letter,     (a seed)       |        ^                       |
//!    a TOML file)       \         |        | the records           | done, and how long it took
//!                        \        |        | that exist            v
//!                         \       +-- Population <------ finish   Latencies ----> Summary
//!                          `--> Timetable: the intended starts    Record -------> TraceWriter
//! ```
//!
//! The loop of a caller, per client:
//!
//! 1. Wait for the next start. In an open loop it is [`Timetable::next_start_ns`]. In a closed loop it is after the last
//!    answer and the think time.
//! 2. Ask for the next [`Step`] and carry it out. A read-modify-write is a read and then a write.
//! 3. Record the latency *from the intended start*, and into the trace the times at which it was really sent and answered.
//! 4. After an insert, however it ended, call [`Population::finish`].
//!
//! # Values
//!
//! A checker can only tell which write a read has seen if no two writes have the same value. So each value begins with the
//! name of its write, and the padding up to its size follows from that name: see [`Values`]. A trace holds only the names
//! ([`label`]), which makes it a tenth of the size. A value that was damaged on its way has no name, so the damage shows.
//!
//! # Limits: where we differ from YCSB, and why
//!
//! - Keys are `user0`, `user1`, ..; YCSB hashes the number. Keys are hashed to slots here anyway, and people read traces.
//! - A record is one value, not ten fields.
//! - Records that a run inserts can be chosen by `zipfian` at once. YCSB must be told beforehand how many there will be. See
//!   [`Chooser`].
//! - Workload E is not supported: it scans ranges of keys.
//! - What a client does under `latest`, or with inserts, depends on when the inserts of other clients are over. In the
//!   simulator that follows from the seed, too. On a live cluster it does not.

mod arrival;
pub use arrival::{Arrival, BadRate, Rate, Schedule, Spacing};
mod chooser;
pub use chooser::{BadDistribution, Chooser, Distribution};
mod generator;
pub use generator::{Generator, Plan, Step, Timetable};
mod latency;
pub use latency::{Latencies, Summary};
mod mix;
pub use mix::{Action, BadMix, Mix};
mod octets;
pub use octets::Octets;
mod population;
pub use population::Population;
mod random;
pub use random::Random;
mod reader;
pub use reader::{BadTraceFile, TraceReader};
mod receipt;
pub use receipt::{Received, split_receipt};
mod trace;
pub use trace::{Claim, Op, Packing, Record, SnapshotRead, Status, TraceWriter};
mod value;
pub use value::{BadValueSize, ClientId, RunTag, ValueSize, Values, label};
mod workload;
pub use workload::{BadName, Workload, WorkloadTable};
mod zipfian;
pub use zipfian::Zipfian;
