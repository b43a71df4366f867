//! A live campaign: real processes, real sockets, real files, clients that never stop, and faults drawn from a seed. In the end everything
//! is put right and judged.
//!
//! ```text
//!   Options --> Cluster (six processes) <---- Operator: faults, drawn from the seed
//!                 |         ^                    | losses, wrong clocks: what is excused
//!                 |         +---- Watch          |
//!              Clients -----> records -----------+--> Ledger: every key, at every site, when all is at rest
//!                                                +--> Trace:  receipts, levels, sessions, causality (turnbuckle-check)
//!                                                +--> Report
//! ```
//!
//! A campaign is made of rounds. A round begins with a cluster at rest. Clients work while faults come and go. Then everything is healed,
//! the clients end, the cluster must come to rest, and what it shows is judged. Data of earlier rounds stays for a while, and must not
//! change. Then it is deleted, and must stay deleted. After the last round all nodes are killed at once and started again, and the keys are
//! judged once more.
//!
//! The faults follow from the seed. What happens between them does not, because the timing of threads, sockets and disks varies.
//! docs/campaign.md says how to read a failure, and what a campaign cannot show.
mod campaign;
pub use campaign::{Failure, run};
mod clients;
mod cluster;
mod connection;
pub use connection::Connection;
mod directory;
mod ends;
pub mod fault;
mod keys;
mod ledger;
mod notes;
mod operator;
mod options;
pub use options::Options;
mod ports;
pub use ports::free_ports;
mod process;
pub use process::{Resident, resident_bytes};
mod recorder;
mod report;
pub use report::Report;
mod round;
mod stamp;
pub use stamp::Stamp;
mod trace;
mod watch;

use turnbuckle_workload::{Op, Record};

/// Whether a record is about a write.
fn is_write(record: &Record) -> bool {
    matches!(record.op, Op::Write | Op::Delete)
}
