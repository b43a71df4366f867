//! The results so far, as numbers and in the trace.

use super::{
    clock::Clock,
    receipts::{Receipts, count},
};
use bytes::Bytes;
use std::{collections::BTreeMap, fs::File, io};
use turnbuckle_workload::{Latencies, Octets, Op, Received, Record, Status, TraceWriter, label};

/// One operation that is over.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) session: String,
    pub(crate) site: String,
    pub(crate) op: Op,
    pub(crate) key: Bytes,
    /// What was written; of a read, what was found.
    pub(crate) value: Option<Bytes>,
    /// The level that the command line asks for.
    pub(crate) level: Option<String>,
    pub(crate) sent_ns: u64,
    /// `None` if there was no answer.
    pub(crate) answered_ns: Option<u64>,
    pub(crate) status: Status,
    pub(crate) receipt: Option<Received>,
}

/// The numbers of a run, or of its load phase.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) reads: Latencies,
    pub(crate) writes: Latencies,
    pub(crate) errors: BTreeMap<String, u64>,
    /// How many operations were tried again after an error that begins with this word. They are not in `errors`.
    pub(crate) retries: BTreeMap<String, u64>,
    pub(crate) receipts: Receipts,
    /// Traced reads of values that this run did not write.
    pub(crate) reads_from_before: u64,
}

impl Numbers {
    /// How many operations were carried out.
    pub(crate) fn operations(&self) -> u64 {
        self.reads.count() + self.writes.count()
    }
}

/// Numbers and trace.
pub(crate) struct Tally {
    pub(crate) numbers: Numbers,
    clock: Clock,
    recorder: String,
    /// The tag of this run's values.
    run: String,
    trace: Option<TraceWriter<File>>,
    /// Why the trace could not be written.
    trace_error: Option<io::Error>,
}

impl Tally {
    pub(crate) fn new(
        clock: Clock,
        recorder: String,
        run: String,
        trace: Option<TraceWriter<File>>,
    ) -> Tally {
        Tally {
            numbers: Numbers::default(),
            clock,
            recorder,
            run,
            trace,
            trace_error: None,
        }
    }

    /// Whether operations are recorded one by one.
    pub(crate) fn is_tracing(&self) -> bool {
        self.trace.is_some()
    }

    /// An operation was answered, this long after its intended start.
    pub(crate) fn done(&mut self, op: Op, latency_ns: u64) {
        match op {
            Op::Read | Op::Snapshot => self.numbers.reads.record_ns(latency_ns),
            Op::Write | Op::Delete => self.numbers.writes.record_ns(latency_ns),
        }
    }

    /// An operation ended with an error whose first word is this.
    pub(crate) fn error(&mut self, word: &str) {
        count(&mut self.numbers.errors, word);
    }

    /// An operation is tried again after an error whose first word is this.
    pub(crate) fn retry(&mut self, word: &str) {
        count(&mut self.numbers.retries, word);
    }

    /// This number of operations of an open loop were due and were not sent.
    pub(crate) fn unsent(&mut self, operations: u64) {
        if operations > 0 {
            *self.numbers.errors.entry("UNSENT".into()).or_default() += operations;
        }
    }

    /// Puts an operation into the trace, if there is one.
    ///
    /// False if it could not be written, once: a trace with a gap is of no use, so the caller ends the run, and
    /// [`Tally::finish_trace`] says why.
    pub(crate) fn record(&mut self, finished: Finished) -> bool {
        if let Some((claim, _)) = &finished.receipt {
            self.numbers.receipts.add(claim);
        }
        let Some(trace) = &mut self.trace else {
            return true;
        };
        let is_from_before = |value: &Bytes| finished.op == Op::Read && !is_of_run(value, &self.run);
        self.numbers.reads_from_before += u64::from(finished.value.as_ref().is_some_and(is_from_before));
        let (claim, version) = finished.receipt.unzip();
        let asked = claim.as_ref().map(|claim| claim.asked.clone());
        let record = Record {
            client: finished.session,
            site: finished.site,
            op: finished.op,
            key: Octets(finished.key),
            value: finished.value.map(name),
            start_ns: self.clock.trace_ns(finished.sent_ns),
            finish_ns: finished.answered_ns.map(|at_ns| self.clock.trace_ns(at_ns)),
            status: finished.status,
            version: version.flatten(),
            level: asked.or(finished.level),
            receipt: claim,
            recorder: Some(self.recorder.clone()),
            pipelined: false,
            existed: false,
            reads: None,
        };
        if let Err(error) = trace.write(&record) {
            self.trace = None;
            self.trace_error = Some(error);
            return false;
        }
        true
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// If it could not be written, now or earlier.
    pub(crate) fn finish_trace(&mut self) -> io::Result<()> {
        if let Some(error) = self.trace_error.take() {
            return Err(error);
        }
        match self.trace.take() {
            Some(trace) => trace.finish().map(|_| ()),
            None => Ok(()),
        }
    }
}

/// Whether a value is one that this run wrote: its label ends in the run's tag.
pub(crate) fn is_of_run(value: &[u8], run: &str) -> bool {
    label(value).and_then(|label| label.rsplit('.').next()) == Some(run)
}

/// The label of a value that a benchmark has written; of any other value, all of it.
fn name(value: Bytes) -> Octets {
    match label(&value) {
        Some(label) => Octets::from(label),
        None => Octets(value),
    }
}
