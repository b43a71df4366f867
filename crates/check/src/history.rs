//! A trace, normalised: names are numbers, and what does not count is left out.
//!
//! Memory limits the traces that can be judged, so an operation has 40 bytes. Versions, levels and receipts, which few traces have, are kept
//! elsewhere: versions with the values that they belong to, the rest in [`History::promises`].
use crate::{Version, version::VersionNames};
use bytes::Bytes;
use std::{collections::HashSet, ops::Range};
use thiserror::Error;

/// What an operation did to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It read. A delete that found no value to delete, and wrote nothing, is a read, too.
    Read,
    /// It wrote, and was acknowledged. A delete writes a tombstone, which is a value of its own.
    Write,
    /// A write of unknown outcome whose value a read has returned.
    UnknownWrite,
}

/// A value of a key: a place in [`KeyHistory::values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(u32);

impl Value {
    /// The value before every write: nothing.
    pub const INITIAL: Value = Value(0);

    pub(crate) fn at(place: u32) -> Value {
        Value(place)
    }

    /// The place in [`KeyHistory::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An operation that counts. A snapshot is several of them, one after the other, with the same record.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// The client: a place in [`History::clients`].
    pub client: u32,
    /// The key: a place in [`History::keys`].
    pub key: u32,
    /// The value that it read or wrote.
    pub value: Value,
    /// The site that it was sent to: a place in [`History::sites`].
    pub site: u16,
    /// What it did.
    pub kind: Kind,
    /// When it began, in nanoseconds.
    pub start: i64,
    /// When it was over; `i64::MAX` for a write of unknown outcome.
    pub finish: i64,
    /// The number of its record in the trace, from 0; [`Operation::NO_RECORD`] for a write from before the trace.
    pub record: u64,
}

impl Operation {
    /// The record of a write that is not in the trace.
    pub const NO_RECORD: u64 = u64::MAX;

    /// Whether it stands for the write of a value from before the trace. Such a write began before everything, and it is not known
    /// when it was over. It does not count as an operation.
    pub fn is_from_before(&self) -> bool {
        self.record == Operation::NO_RECORD
    }
}

/// What a trace says about one key.
#[derive(Debug, Clone)]
pub struct KeyHistory {
    /// The key.
    pub name: Bytes,
    /// The initial value (`None`), then those that were written or read, in the order in which they appeared, then the
    /// tombstones (`None`).
    pub values: Vec<Option<Bytes>>,
    /// For each value, the operation that wrote it: a place in [`History::operations`]. None for the initial one and for
    /// phantoms.
    pub writers: Vec<Option<usize>>,
    /// For each value, its version where the trace names one. Empty if it names none for the whole key.
    pub versions: Vec<Option<Version>>,
    /// Whether the outcome of some write is unknown, also if no read has returned its value.
    pub has_unknown_writes: bool,
}

impl KeyHistory {
    /// Whether a value was read although no record wrote it.
    pub fn is_phantom(&self, value: Value) -> bool {
        value != Value::INITIAL && self.writers[value.index()].is_none()
    }

    /// Whether it is the tombstone of a delete.
    pub fn is_tombstone(&self, value: Value) -> bool {
        value != Value::INITIAL && self.values[value.index()].is_none()
    }

    /// The version of a value, if the trace names it.
    pub fn version(&self, value: Value) -> Option<Version> {
        self.versions.get(value.index()).copied().flatten()
    }
}

/// A key for which it cannot be known what its reads have seen. Its operations are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAuditable {
    /// The key.
    pub key: Bytes,
    /// The reason.
    pub reason: &'static str,
    /// How many operations were left out.
    pub operations: u64,
}

/// A contradiction between records, about versions, snapshots or failures. Each is a violation, whatever was promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// One value came with two versions.
    TwoVersions {
        /// The key.
        key: Bytes,
        /// The record that named the first.
        first: u64,
        /// The record that named the other.
        second: u64,
    },
    /// One version came with two values.
    TwoValues {
        /// The key.
        key: Bytes,
        /// The record with the first value.
        first: u64,
        /// The record with the other.
        second: u64,
    },
    /// A snapshot showed one key twice, and differently.
    TornSnapshot {
        /// The key.
        key: Bytes,
        /// The snapshot.
        record: u64,
    },
    /// A write that was reported as certainly not done was read.
    FailedWriteSeen {
        /// The key.
        key: Bytes,
        /// The write.
        write: u64,
        /// The read.
        read: u64,
    },
}

/// What a record was promised: the level it asked for, and its receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promised {
    /// The number of the record.
    pub record: u64,
    /// Its operations: places in [`History::operations`]. Empty if none of them counts, or their key is not auditable.
    pub operations: Range<u32>,
    /// How many operations it would have if all counted.
    pub parts: u32,
    /// The level of the record: a place in [`History::levels`].
    pub level: Option<u32>,
    /// What its answer claimed.
    pub receipt: Option<Receipt>,
}

/// A receipt, as far as a trace can judge it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The level asked for: a place in [`History::levels`].
    pub asked: u32,
    /// The level given: a place in [`History::levels`].
    pub given: u32,
    /// Whether what it says about the version contradicts an earlier record; none if it names none.
    pub contradicts: Option<bool>,
    /// The claim that every write which was acknowledged this many microseconds before the operation began is reflected.
    pub staleness_us: Option<u64>,
    /// The claim covers only writes that at least this many replicas had stored when they were acknowledged. 1: every write.
    pub covers: u8,
    /// How many replicas had stored the write when it was acknowledged. 1 if the receipt does not say it, or the outcome of the write is unknown.
    pub copies: u8,
    /// The cut as of which the key was read, as a stamp ([`Version::stamp`]), if the receipt names one.
    pub as_of: Option<u64>,
}

/// A trace, normalised.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The clients' names. If there are writes from before the trace, the last name stands for their clients.
    pub clients: Vec<String>,
    /// The recorder whose clock timed each client: a place in [`History::recorders`]. `None` if several recorders timed it.
    pub recorder_of: Vec<Option<u32>>,
    /// The recorders' names; empty for records that name none.
    pub recorders: Vec<String>,
    /// The sites' names.
    pub sites: Vec<String>,
    /// The levels' names, as they are in the trace.
    pub levels: Vec<String>,
    /// The keys that can be judged.
    pub keys: Vec<KeyHistory>,
    /// The keys that cannot, by name.
    pub not_auditable: Vec<NotAuditable>,
    /// How many reads of nothing were left out: they name no version, and a delete of their key had begun before they were over.
    pub doubtful_reads: u64,
    /// The operations that count, in the order of the trace. Behind them ([`History::recorded`]) a write for each value from before the
    /// trace.
    pub operations: Vec<Operation>,
    /// Deletes that removed a value, each with the only put that can have written the value: places in [`History::operations`], the deletes rising. A
    /// delete with several possible puts is not in it.
    pub taken_away: Vec<(usize, usize)>,
    /// The promises, in the order of the trace. Records without level and receipt have none.
    pub promises: Vec<Promised>,
    /// Where records contradict each other.
    pub findings: Vec<Finding>,
    /// The names of versions.
    pub version_names: VersionNames,
}

impl History {
    /// How many operations count. Those behind them are writes from before the trace.
    pub fn recorded(&self) -> usize {
        self.operations
            .partition_point(|operation| !operation.is_from_before())
    }

    /// Whether no read counts. Only reads can show that something is broken, so nothing can be said of such a trace.
    pub fn has_nothing_to_judge(&self) -> bool {
        self.operations
            .iter()
            .all(|operation| operation.kind != Kind::Read)
    }

    /// How many clients the trace names. The client of the writes from before the trace is not one of them.
    pub fn named_clients(&self) -> usize {
        self.clients.len() - usize::from(self.recorded() < self.operations.len())
    }

    /// Whether an operation read a value from before the trace.
    pub fn reads_from_before(&self, operation: &Operation) -> bool {
        operation.kind == Kind::Read && self.writer_of(operation).is_some_and(Operation::is_from_before)
    }

    /// The operations of each client in the order of its session.
    pub fn sessions(&self) -> Vec<Vec<usize>> {
        let mut sessions = vec![Vec::new(); self.clients.len()];
        for (place, operation) in self.operations.iter().enumerate() {
            sessions[operation.client as usize].push(place);
        }
        for session in &mut sessions {
            session.sort_by_key(|&place| (self.operations[place].start, self.operations[place].finish));
        }
        sessions
    }

    /// The operations on each key, in the order of the trace.
    pub fn by_key(&self) -> Vec<Vec<usize>> {
        let mut keys = vec![Vec::new(); self.keys.len()];
        for (place, operation) in self.operations.iter().enumerate() {
            keys[operation.key as usize].push(place);
        }
        keys
    }

    /// The operation that wrote what a read returned; none for the initial value and for phantoms.
    pub fn writer_of(&self, read: &Operation) -> Option<&Operation> {
        let writer = self.keys[read.key as usize].writers[read.value.index()]?;
        Some(&self.operations[writer])
    }

    /// What the record of an operation was promised.
    pub fn promise_of(&self, place: usize) -> Option<&Promised> {
        let place = u32::try_from(place).ok()?;
        // Their operations follow each other in the order of the trace.
        let behind = self
            .promises
            .partition_point(|promise| promise.operations.start <= place);
        let before = self.promises[..behind].iter().rev();
        let mut with_operations = before.filter(|promise| !promise.operations.is_empty());
        with_operations
            .next()
            .filter(|promise| promise.operations.contains(&place))
    }

    /// How many replicas had stored a write when it was acknowledged, as far as its receipt says it. At least 1.
    pub fn copies_of(&self, write: usize) -> u8 {
        let receipt = self.promise_of(write).and_then(|promise| promise.receipt);
        receipt.map_or(1, |receipt| receipt.copies)
    }

    /// The write that an operation has seen: the write of the value that a read returned, or that a delete removed.
    pub fn seen_by(&self, place: usize) -> Option<usize> {
        let operation = &self.operations[place];
        if operation.kind == Kind::Read {
            return self.keys[operation.key as usize].writers[operation.value.index()];
        }
        let found = self
            .taken_away
            .binary_search_by_key(&place, |&(delete, _)| delete);
        Some(self.taken_away[found.ok()?].1)
    }

    /// Whether all times are of one clock.
    pub fn has_one_clock(&self) -> bool {
        self.recorders.len() <= 1
    }

    /// Searches operations of one client that overlap and were not `pipelined`. `pipelined` has the records of those that were.
    pub(crate) fn check_sessions(&self, pipelined: &HashSet<u64>) -> Result<(), BadTrace> {
        for (client, session) in self.sessions().into_iter().enumerate() {
            let mut answered = session
                .iter()
                .map(|&place| &self.operations[place])
                .filter(|operation| operation.kind != Kind::UnknownWrite);
            let Some(mut before) = answered.next() else {
                continue;
            };
            for operation in answered {
                let overlaps = operation.start < before.finish && operation.record != before.record;
                if overlaps && !pipelined.contains(&operation.record) {
                    return Err(BadTrace::Overlap {
                        client: self.clients[client].clone(),
                        first: before.record,
                        second: operation.record,
                    });
                }
                if operation.finish >= before.finish {
                    before = operation;
                }
            }
        }
        Ok(())
    }
}

/// A trace that cannot be judged. Records are counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", self.located(&|record| format!("record {record}")))]
pub enum BadTrace {
    /// A value identifies its write: if two writes have the same value, it cannot be known which of them a read has seen.
    WrittenTwice {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// One write.
        first: u64,
        /// The other.
        second: u64,
    },
    /// A client is a session: one operation after the other.
    Overlap {
        /// The client.
        client: String,
        /// One operation.
        first: u64,
        /// The other.
        second: u64,
    },
    /// A record that contradicts itself.
    BadRecord {
        /// The number of the record.
        record: u64,
        /// What was expected.
        expected: &'static str,
        /// What was found.
        found: String,
    },
}

impl BadTrace {
    /// The message. `place` names a record, for example by file and line.
    pub fn located(&self, place: &dyn Fn(u64) -> String) -> String {
        match self {
            BadTrace::WrittenTwice {
                key,
                value,
                first,
                second,
            } => format!(
                "{} and {}: expected values that differ within a key, found {value:?} written twice to {key:?} \
                 (let the clients write something new each time, say a counter with the client's name, and record again; or \
                 judge the part of the trace in which no value returns)",
                place(*first),
                place(*second)
            ),
            BadTrace::Overlap {
                client,
                first,
                second,
            } => format!(
                "{} and {}: expected a client's operations one after the other, found two of {client:?} that overlap",
                place(*first),
                place(*second)
            ),
            BadTrace::BadRecord {
                record,
                expected,
                found,
            } => format!("{}: expected {expected}, found {found}", place(*record)),
        }
    }
}
