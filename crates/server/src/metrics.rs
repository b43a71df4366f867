//! Metrics for Prometheus. The event loops count them, at a cost of about a nanosecond each.
//!
//! ```text
//!   loop 1 --&mut--> Recorder --+
//!                               +--> LoopCounts, one per loop: atomics with a single writer
//!   loop 2 --&mut--> Recorder --+         |
//!                                         | summed at each scrape
//!   Status (streams, links, log, ..) --> Metrics::render --> text of GET /metrics
//! ```
//!
//! Each loop has its own counts. Only this loop writes them, with a load and a store and no locked instruction. A scrape reads them while they
//! change: each number is right, but they are not all of one instant. States, as opposed to counts, come from the node's [`Status`] at the scrape.
//! Why not the `metrics` crates: `docs/decisions/0002-metrics.md`.
//!
//! Durations are in seconds and sizes in bytes, as Prometheus wants it. A level's argument is not in its label (`bounded`, not `bounded(2s)`), since
//! every distinct label is a series that is kept permanently.
use crate::status::Status;
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};
use turnbuckle_core::{Answer, Micros};

mod counts;
use counts::LoopCounts;
mod histogram;
use histogram::{BOUNDS_US, Histogram, Snapshot};
mod labels;
pub use labels::{LevelLabel, OperationKind, Outcome};
mod process;
pub(crate) use process::Process;
mod render;
mod text;
pub use text::{Exposition, Family, Kind};

/// All counts of a node.
pub struct Metrics {
    keyspaces: Vec<String>,
    /// The counts of all loops. The counts of loops that ended stay: a counter must not fall.
    loops: Mutex<Vec<Arc<LoopCounts>>>,
    /// When the process started, in seconds since 1970-01-01 UTC.
    start_time_seconds: f64,
}

impl Metrics {
    /// Counts for keyspaces of these names, in the order in which a [`Recorder`] will refer to them.
    pub fn new(keyspaces: impl IntoIterator<Item = impl Into<String>>) -> Arc<Metrics> {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Arc::new(Metrics {
            keyspaces: keyspaces.into_iter().map(Into::into).collect(),
            loops: Mutex::default(),
            start_time_seconds: since_1970.as_secs_f64(),
        })
    }

    /// A recorder for one event loop.
    pub fn recorder(&self) -> Recorder {
        let counts = Arc::new(LoopCounts::new(
            self.keyspaces.len(),
            turnbuckle_resp::command_names().len(),
        ));
        self.lock().push(Arc::clone(&counts));
        Recorder { counts }
    }

    /// How many clients are connected now.
    pub fn connected_clients(&self) -> u64 {
        self.lock().iter().map(|counts| counts.connected_clients()).sum()
    }

    /// What clients have done so far, at all loops.
    pub fn client_totals(&self) -> ClientTotals {
        let mut totals = ClientTotals::default();
        for counts in self.lock().iter() {
            totals.accepted += counts.clients_accepted.value();
            totals.refused += counts.clients_refused.value();
            totals.commands += counts.commands.value();
            totals.received_bytes += counts.received_bytes.value();
            totals.sent_bytes += counts.sent_bytes.value();
            totals.values_found += counts.values_found.value();
            totals.values_missing += counts.values_missing.value();
        }
        totals
    }

    /// What was counted of each command, in the order of [`turnbuckle_resp::command_names`].
    pub fn command_totals(&self) -> Vec<CommandTotals> {
        let mut totals = vec![CommandTotals::default(); turnbuckle_resp::command_names().len()];
        for counts in self.lock().iter() {
            for (total, counts) in totals.iter_mut().zip(&counts.by_command) {
                total.calls += counts.calls.value();
                total.refused += counts.refused.value();
                total.failed += counts.failed.value();
                total.micros += counts.micros.value();
            }
        }
        totals
    }

    /// How many operations have ended so far, whatever their outcome.
    pub fn operations_total(&self) -> u64 {
        self.lock()
            .iter()
            .map(|counts| counts.operations().map(|(.., count)| count).sum::<u64>())
            .sum()
    }

    /// Everything in the text format of Prometheus, version 0.0.4.
    pub fn render(&self, status: &Status) -> String {
        render::render(&self.keyspaces, &self.lock(), self.start_time_seconds, status)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<LoopCounts>>> {
        // No thread panics while it holds the lock in a way that would leave the list half changed.
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("keyspaces", &self.keyspaces)
            .finish_non_exhaustive()
    }
}

/// What clients have done since the node was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientTotals {
    /// Clients that have connected.
    pub accepted: u64,
    /// Clients that were refused because of `max_clients`.
    pub refused: u64,
    /// Commands that were executed, also those that were refused.
    pub commands: u64,
    /// Bytes that came from clients.
    pub received_bytes: u64,
    /// Bytes that went to clients.
    pub sent_bytes: u64,
    /// Values that were read.
    pub values_found: u64,
    /// Reads of keys without a value.
    pub values_missing: u64,
}

/// What a command has done since the node was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommandTotals {
    /// How often it was sent.
    pub calls: u64,
    /// How often it was refused before anything of it was carried out.
    pub refused: u64,
    /// Its operations that failed. A command on several keys may be several operations.
    pub failed: u64,
    /// How long its operations have taken together until they were answered, in microseconds.
    pub micros: u64,
}

/// What one event loop counts with. It cannot be cloned, and it counts through `&mut`, so each count has one writer.
#[derive(Debug)]
pub struct Recorder {
    counts: Arc<LoopCounts>,
}

impl Recorder {
    /// An operation of the keyspace at place `keyspace` ended after `took`.
    ///
    /// # Panics
    /// If there is no such keyspace.
    pub fn operation(
        &mut self,
        keyspace: usize,
        operation: OperationKind,
        level: LevelLabel,
        outcome: Outcome,
        took: Micros,
    ) {
        self.counts.operation(keyspace, operation, level, outcome).add(1);
        self.counts.duration(keyspace, operation, level).record(took);
    }

    /// A client connected.
    pub fn client_connected(&mut self) {
        self.counts.clients_accepted.add(1);
    }

    /// A connected client left.
    pub fn client_left(&mut self) {
        self.counts.clients_left.add(1);
    }

    /// A client was refused because of `max_clients`, or because the node has no users.
    pub fn client_refused(&mut self) {
        self.counts.clients_refused.add(1);
    }

    /// This many commands were executed.
    pub fn commands(&mut self, count: u64) {
        self.counts.commands.add(count);
    }

    /// The command at this place was sent.
    pub fn command(&mut self, place: usize) {
        self.counts.by_command[place].calls.add(1);
    }

    /// The command at this place was refused before anything of it was carried out.
    pub fn command_refused(&mut self, place: usize) {
        self.counts.by_command[place].refused.add(1);
    }

    /// An operation of the command at this place ended after `took`.
    pub fn command_operation(&mut self, place: usize, answer: &Answer, took: Micros) {
        let counts = &self.counts.by_command[place];
        counts.micros.add(took.0);
        self.values(answer);
        if matches!(answer, Answer::Failed(_) | Answer::NotComputed(_)) {
            counts.failed.add(1);
        }
    }

    /// Counts the values that were read, and the keys that had none.
    fn values(&self, answer: &Answer) {
        let (found, missing) = match answer {
            Answer::Value(value) | Answer::Replaced(value) => {
                (u64::from(value.is_some()), u64::from(value.is_none()))
            }
            Answer::Values(values) => {
                let found = values.iter().flatten().count();
                (found as u64, (values.len() - found) as u64)
            }
            Answer::Transacted(Some(steps)) => return steps.iter().for_each(|step| self.values(step)),
            _ => return,
        };
        self.counts.values_found.add(found);
        self.counts.values_missing.add(missing);
    }

    /// This many bytes were received from clients.
    pub fn received_bytes(&mut self, bytes: usize) {
        self.counts.received_bytes.add(bytes as u64);
    }

    /// This many messages to channels were sent to clients.
    pub fn messages(&mut self, messages: usize) {
        self.counts.messages.add(messages as u64);
    }

    /// This many messages to channels were lost at this node.
    pub fn lost_messages(&mut self, messages: u64) {
        self.counts.lost_messages.add(messages);
    }

    /// This many bytes were sent to clients.
    pub fn sent_bytes(&mut self, bytes: usize) {
        self.counts.sent_bytes.add(bytes as u64);
    }
}

/// A number that one thread counts and other threads read.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    /// Only the one writer may call this. It is a load and a store: two writers at once would lose counts.
    fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;
