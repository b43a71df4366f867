//! The order that receipts claim: each write at its version's timestamp, and each read at the cut as of which it was answered.
//!
//! To find an order that explains a trace is hard ([`crate::sequential()`]). To verify one that the store claims takes O(n log n):
//!
//! - A read as of a cut shows the newest version of its key that was stamped up to the cut.
//! - A session never goes back: a read is at or after everything that its session had read, written, or read at, and a write is after that.
//!
//! Writes at any level have their places in it. If a write of a key was acknowledged and its version is not known, reads of that key are not judged.
use crate::{History, Kind, Value};
use std::collections::{HashMap, HashSet};

/// What the trace says about the order that receipts claim.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    /// For each operation that has a place in the order and was judged: what is wrong with it.
    judged: HashMap<usize, Option<&'static str>>,
}

const WENT_BACK: &str = "it was read as of a moment before something that its session had seen";
const STAMPED_BELOW: &str =
    "it was written before something that its session had seen, in the order of timestamps";
const TOO_NEW: &str = "it shows a version that was stamped after the moment as of which it was read";
const MISSED: &str = "it misses a write that was stamped before the moment as of which it was read";

impl Cuts {
    /// Judges every read whose receipt names a cut, and every write at `sequential`. If no receipt names a cut, nothing is judged.
    pub fn of(history: &History) -> Cuts {
        let mut cuts: HashMap<usize, u64> = HashMap::new();
        let mut ordered: HashSet<usize> = HashSet::new();
        for promise in &history.promises {
            let Some(receipt) = promise.receipt else {
                continue;
            };
            let is_sequential = history.levels[receipt.given as usize] == "sequential";
            for place in promise.operations.clone() {
                if let Some(cut) = receipt.as_of {
                    cuts.insert(place as usize, cut);
                }
                if is_sequential {
                    ordered.insert(place as usize);
                }
            }
        }
        let mut found = Cuts::default();
        if cuts.is_empty() {
            return found;
        }
        let writes = Writes::of(history);
        for (&place, &cut) in &cuts {
            if let Some(verdict) = writes.judge(history, place, cut) {
                found.judged.insert(place, verdict);
            }
        }
        // A client that several recorders timed has no order.
        let sessions = history.sessions().into_iter().zip(&history.recorder_of);
        for session in sessions.filter_map(|(session, recorder)| recorder.map(|_| session)) {
            let mut position = 0;
            for place in session {
                let operation = &history.operations[place];
                let stamp = stamp_of(history, operation.key, operation.value);
                let at = match (operation.kind, cuts.get(&place)) {
                    (Kind::Read, Some(&cut)) => {
                        if cut < position {
                            found.judged.insert(place, Some(WENT_BACK));
                        }
                        Some(cut)
                    }
                    (Kind::Write, _) if ordered.contains(&place) => {
                        let is_below = stamp.is_some_and(|stamp| stamp <= position);
                        if stamp.is_some() {
                            found.judged.insert(place, is_below.then_some(STAMPED_BELOW));
                        }
                        stamp
                    }
                    (Kind::Read | Kind::Write, _) => stamp,
                    // It is not in its session's order.
                    (Kind::UnknownWrite, _) => None,
                };
                position = position.max(at.unwrap_or_default());
            }
        }
        found
    }

    /// What is said of an operation. `None` if it has no place in the order, or cannot be judged.
    pub fn verdict(&self, place: usize) -> Option<Option<&'static str>> {
        self.judged.get(&place).copied()
    }

    /// How many operations are not where their receipts place them.
    pub fn broken(&self) -> u64 {
        self.judged.values().flatten().count() as u64
    }
}

fn stamp_of(history: &History, key: u32, value: Value) -> Option<u64> {
    history.keys[key as usize].version(value)?.stamp()
}

/// The stamps of each key's writes, rising. `None` for a key of which some are not known.
struct Writes(Vec<Option<Vec<u64>>>);

impl Writes {
    fn of(history: &History) -> Writes {
        let mut writes = vec![Some(Vec::new()); history.keys.len()];
        for operation in &history.operations {
            let of_key = &mut writes[operation.key as usize];
            match (operation.kind, stamp_of(history, operation.key, operation.value)) {
                (Kind::Read, _) | (Kind::UnknownWrite, None) => {}
                (_, Some(stamp)) => of_key.iter_mut().for_each(|stamps| stamps.push(stamp)),
                (Kind::Write, None) => *of_key = None,
            }
        }
        writes
            .iter_mut()
            .flatten()
            .for_each(|stamps| stamps.sort_unstable());
        Writes(writes)
    }

    /// Whether a read as of a cut shows the newest version of its key up to then.
    fn judge(&self, history: &History, place: usize, cut: u64) -> Option<Option<&'static str>> {
        let read = &history.operations[place];
        let stamps = self.0[read.key as usize].as_ref()?;
        let until = stamps.partition_point(|&stamp| stamp <= cut);
        let newest = until.checked_sub(1).map(|place| stamps[place]);
        let shown = match read.value {
            Value::INITIAL => None,
            value => Some(stamp_of(history, read.key, value)?),
        };
        Some(if shown > Some(cut) {
            Some(TOO_NEW)
        } else if newest > shown {
            Some(MISSED)
        } else {
            None
        })
    }
}
