//! The checker: it reads traces of operations, and gives verdicts.
//!
//! A trace says what each client did and when, and nothing about the store inside ([`turnbuckle_workload::Record`]). That is
//! enough to judge whether the store looked like one copy of the data, how far it was from that, and which promises it broke.
//!
//! ```text
//!   records --> HistoryBuilder --> History --+--> Zones (one per key) --> atomic? removed, Gamma, Delta, k
//!               (interns, normalises)        +--> Order --> session guarantees, staleness, t-visibility
//!                                            +--> convergence
//!                                            +--> LevelJudge --> receipts, recorded and required levels
//!                                            +--> Cuts: the order that receipts claim, verified
//!                                            +--> causal consistency (CC, CCv, CM), sequential consistency
//!                                            +--> explain: why, as a Witness with words, drawn as a timeline
//!                                            +--> figures: what a number does not say, as plots
//! ```
//!
//! # What is counted
//!
//! | record | treatment |
//! |---|---|
//! | a write that failed | left out; a read of its value read a *phantom* |
//! | a write that may have happened | counted, and never over, if some read returned its value; else left out |
//! | a read without an answer | left out |
//! | a read of nothing | read the key's *initial* value, which was there before everything |
//! | a delete | a write of a tombstone, told apart by its version; a read if it found no value to delete |
//! | a delete that says that there was a value | it has seen the put of that value, if only one put can have written it |
//! | a read of nothing whose source cannot be known | left out, and counted |
//! | a key for which it cannot be known which delete was read | *not auditable*, and left out |
//! | a snapshot | several reads at the same time, with one record |
//! | a read of a value that no client wrote to the key | a phantom: the key is not atomic, and the read must be removed |
//! | the same, where the keyspace may have had data ([`HistoryBuilder::on_existing_data`]) | read a value *from before the trace*, whose write took effect at an unknown time |
//! | a read that was over before its write began | a read from the *future*: the same for all reads of the value |
//!
//! One operation precedes another if it was over, strictly, before the other began. Written values must differ within a key,
//! and a client's operations must not overlap, unless they were pipelined; else [`BadTrace`] names the two records.
//!
//! # Clusters and zones
//!
//! A write and all reads of its value are a *cluster*. With `f` the least finish and `s` the greatest start in it, the value
//! certainly was the key's from `f` to `s` if `f < s` (a *forward* zone); else the whole cluster can have happened at one point
//! between `s` and `f` (a *backward* zone). A key is atomic if no two clusters are in conflict (Gibbons and Korach, 1997):
//!
//! ```text
//!   A and B are in conflict  <=>  B.f < A.s and A.f < B.s
//! ```
//!
//! Everything per key follows from the clusters alone ([`Zones`]), so memory is a few dozen bytes for each value.
//!
//! # Units
//!
//! Times are nanoseconds. **Gamma** is the total stretch of each operation after which the trace is atomic, half of it at
//! either side; papers that count one side have half our number. Proportions are exact fractions.

mod builder;
pub use builder::HistoryBuilder;
mod causal;
pub use causal::{Causal, Verdict, causal, causal_within};
mod cuts;
mod explain;
pub use explain::{Explanation, WORST_KEYS, explain, explain_keys};
mod figures;
pub use figures::figures;
mod history;
pub use history::{
    BadTrace, Finding, History, KeyHistory, Kind, NotAuditable, Operation, Promised, Receipt, Value,
};
pub mod levels;
mod order;
pub use order::Order;
mod orders;
pub use orders::Orders;
mod breakdown;
pub use breakdown::{Findings, Moment, Part};
mod receipts;
pub use receipts::{Audit, BrokenPromise, Requirement, Verdicts, require};
mod k_atomicity;
pub use k_atomicity::{KAtomicity, k_atomicity};
mod plot;
pub use plot::{Axis, Plot, Scale, Series, Shape};
mod report;
pub use report::{Causality, Fraction, Report};
mod sequential;
pub use sequential::{Sequential, sequential};
mod sessions;
pub use sessions::{Broken, SessionViolations, each_session_violation, session_violations};
mod single;
pub use single::removed_singly;
mod staleness;
pub use staleness::{
    Quantiles, Staleness, Visibility, converged, each_stale_read, propagation, staleness, visibility,
};
mod svg;
pub use svg::Svg;
mod taken_away;
mod timeline;
pub use timeline::{Clock, draw, readable, span};
mod witness;
pub use witness::{Because, Edge, Witness};
mod version;
pub use version::{Version, VersionNames};
mod zones;
pub use zones::{Cluster, Zones};
