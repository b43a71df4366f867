//! Records become operations: names become numbers, and what does not count is left out.
use bytes::Bytes;
use indexmap::IndexMap;
use std::hash::RandomState;
use thiserror::Error;
use turnbuckle_workload::{Op, Record, Status};

/// What an operation did to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It read.
    Read,
    /// It wrote, and the client knows.
    Write,
    /// It wrote, and the client does not know; a read has shown it.
    UnknownWrite,
}

/// Which of a key's values: a place in [`KeyHistory::values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(u32);

impl Value {
    /// What the key had before everything: nothing.
    pub const INITIAL: Value = Value(0);

    pub(crate) fn at(place: u32) -> Value {
        Value(place)
    }

    /// The place in [`KeyHistory::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An operation that counts.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// Whose: a place in [`History::clients`].
    pub client: u32,
    /// On what: a place in [`History::keys`].
    pub key: u32,
    /// What it did.
    pub kind: Kind,
    /// What it read or wrote.
    pub value: Value,
    /// When it began, in nanoseconds.
    pub start: i64,
    /// When it was over; `i64::MAX` for a write of unknown outcome.
    pub finish: i64,
    /// Which record of the trace, from 0.
    pub record: u64,
}

/// What a trace says about one key.
#[derive(Debug, Clone)]
pub struct KeyHistory {
    /// The key.
    pub name: Bytes,
    /// The initial value (`None`), then those that were written or read, in the order in which they appeared.
    pub values: Vec<Option<Bytes>>,
    /// For each value, the operation that wrote it: a place in [`History::operations`]. None for the initial one and for
    /// phantoms.
    pub writers: Vec<Option<usize>>,
    /// Some write may or may not have happened, whether anybody has seen it or not.
    pub has_unknown_writes: bool,
}

impl KeyHistory {
    /// Whether nobody wrote a value, and yet it was read.
    pub fn is_phantom(&self, value: Value) -> bool {
        value != Value::INITIAL && self.writers[value.index()].is_none()
    }
}

/// A trace, normalised.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The clients' names.
    pub clients: Vec<String>,
    /// The keys.
    pub keys: Vec<KeyHistory>,
    /// The operations that count, in the order of the trace.
    pub operations: Vec<Operation>,
}

impl History {
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
}

/// A trace that cannot be judged. Records are counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadTrace {
    /// A value stands for its write: if two writes have the same one, nobody can say which of them a read has seen.
    #[error(
        "records {first} and {second}: expected values that differ within a key, found {value:?} written twice to {key:?} \
         (let the clients write something new each time, say a counter with the client's name, and record again; or judge \
         the part of the trace in which no value returns)"
    )]
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
    #[error(
        "records {first} and {second}: expected a client's operations one after the other, found two of {client:?} that overlap"
    )]
    Overlap {
        /// The client.
        client: String,
        /// One operation.
        first: u64,
        /// The other.
        second: u64,
    },
    /// A record that contradicts itself.
    #[error("record {record}: expected {expected}, found {found}")]
    BadRecord {
        /// Which.
        record: u64,
        /// What would be right.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// What is not understood yet.
    #[error("record {record}: {what} cannot be judged yet")]
    Unsupported {
        /// Which.
        record: u64,
        /// What it is.
        what: &'static str,
    },
}

/// Takes records in, in any order.
#[derive(Debug, Default)]
pub struct HistoryBuilder {
    clients: IndexMap<String, (), RandomState>,
    keys: IndexMap<Bytes, KeyBuilder, RandomState>,
    operations: Vec<Operation>,
    records: u64,
}

#[derive(Debug, Default)]
struct KeyBuilder {
    /// Behind the initial value.
    values: IndexMap<Bytes, Written, RandomState>,
    has_unknown_writes: bool,
}

/// What is known of a value's write so far.
#[derive(Debug, Default)]
struct Written {
    /// Its place among the operations, and whether the client knows that it happened.
    by: Option<(usize, bool)>,
    is_read: bool,
}

impl HistoryBuilder {
    /// Nothing yet.
    pub fn new() -> HistoryBuilder {
        HistoryBuilder::default()
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`BadTrace`], with this record's number.
    pub fn add(&mut self, record: &Record) -> Result<(), BadTrace> {
        let number = self.records;
        self.records += 1;
        let unsupported = |what| BadTrace::Unsupported { record: number, what };
        let is_read = match record.op {
            Op::Read => true,
            Op::Write => false,
            Op::Delete => return Err(unsupported("a delete")),
            Op::Snapshot => return Err(unsupported("a snapshot")),
        };
        let finish = match (record.status, record.finish_ns) {
            (Status::Fail, _) => return Ok(()),
            (Status::Unknown, _) if is_read => return Ok(()),
            (Status::Unknown, _) => i64::MAX,
            (Status::Ok, Some(finish)) => finish,
            (Status::Ok, None) => {
                return Err(BadTrace::BadRecord {
                    record: number,
                    expected: "the time at which an answered operation was over (finish_ns)",
                    found: "none".into(),
                });
            }
        };
        if finish < record.start_ns {
            return Err(BadTrace::BadRecord {
                record: number,
                expected: "an operation that is over after it began",
                found: format!("{} to {finish}", record.start_ns),
            });
        }
        let client = self.clients.insert_full(record.client.clone(), ()).0 as u32;
        let (key, about) = match self.keys.get_full_mut(&record.key.0) {
            Some((key, _, about)) => (key, about),
            None => {
                let key = self
                    .keys
                    .insert_full(record.key.0.clone(), KeyBuilder::default())
                    .0;
                (key, &mut self.keys[key])
            }
        };
        about.has_unknown_writes |= record.status == Status::Unknown;
        let place = self.operations.len();
        let value = match &record.value {
            None if is_read => Value::INITIAL,
            None => {
                return Err(BadTrace::BadRecord {
                    record: number,
                    expected: "the value that was written",
                    found: "null".into(),
                });
            }
            Some(value) => {
                let (index, written) = match about.values.get_full_mut(&value.0) {
                    Some((index, _, written)) => (index, written),
                    None => {
                        let index = about.values.insert_full(value.0.clone(), Written::default()).0;
                        (index, &mut about.values[index])
                    }
                };
                if is_read {
                    written.is_read = true;
                } else if let Some((first, _)) = written.by {
                    return Err(BadTrace::WrittenTwice {
                        key: lossy(&record.key.0),
                        value: lossy(&value.0),
                        first: self.operations[first].record,
                        second: number,
                    });
                } else {
                    written.by = Some((place, record.status == Status::Ok));
                }
                Value(index as u32 + 1)
            }
        };
        self.operations.push(Operation {
            client,
            key: key as u32,
            kind: match (is_read, record.status) {
                (true, _) => Kind::Read,
                (false, Status::Unknown) => Kind::UnknownWrite,
                (false, _) => Kind::Write,
            },
            value,
            start: record.start_ns,
            finish,
            record: number,
        });
        Ok(())
    }

    /// All records are in.
    ///
    /// # Errors
    /// [`BadTrace::Overlap`].
    pub fn finish(self) -> Result<History, BadTrace> {
        let HistoryBuilder {
            clients,
            keys,
            operations,
            ..
        } = self;
        // Writes that may have happened, and that nobody has seen, are left out.
        let counts = |operation: &Operation| {
            operation.kind != Kind::UnknownWrite
                || keys[operation.key as usize].values[operation.value.index() - 1].is_read
        };
        let mut moved = vec![None; operations.len()];
        let mut kept = Vec::with_capacity(operations.len());
        for (place, operation) in operations.into_iter().enumerate() {
            if counts(&operation) {
                moved[place] = Some(kept.len());
                kept.push(operation);
            }
        }
        let keys = keys.into_iter().map(|(name, about)| {
            let writers = about.values.values().map(|written| moved[written.by?.0]);
            KeyHistory {
                name,
                writers: std::iter::once(None).chain(writers).collect(),
                values: std::iter::once(None)
                    .chain(about.values.keys().cloned().map(Some))
                    .collect(),
                has_unknown_writes: about.has_unknown_writes,
            }
        });
        let history = History {
            clients: clients.into_keys().collect(),
            keys: keys.collect(),
            operations: kept,
        };
        history.check_sessions()?;
        Ok(history)
    }
}

impl History {
    fn check_sessions(&self) -> Result<(), BadTrace> {
        for (client, session) in self.sessions().into_iter().enumerate() {
            let mut answered = session
                .iter()
                .map(|&place| &self.operations[place])
                .filter(|operation| operation.kind != Kind::UnknownWrite);
            let Some(mut before) = answered.next() else {
                continue;
            };
            for operation in answered {
                if operation.start < before.finish {
                    return Err(BadTrace::Overlap {
                        client: self.clients[client].clone(),
                        first: before.record,
                        second: operation.record,
                    });
                }
                before = operation;
            }
        }
        Ok(())
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned()
}
