//! Which of two writes to a key is the older one, as far as that is known.
//!
//! | the trace names a stamp for every write of the key that was answered | a write is older if |
//! |---|---|
//! | yes | its stamp is less |
//! | no | it had certainly taken effect (some operation of its cluster was over) before the other began |
//!
//! Of a write of unknown outcome a stamp is known only if a read shows one (snapshots do not). Where stamps decide, a write without a stamp is neither older
//! nor newer than any other write. So what is not known is never counted as a violation.
//!
//! A value from before the trace has a stamp if a read names it. Without one its age follows from its reads alone.
//!
//! The initial value is older than every write. The two can differ: a store in which the last writer wins lets a write with a
//! slow clock lose against an earlier one. Both compare two numbers, so the caller need not know which rule decides: a
//! value's *effect* is compared with another value's *beginning*.
use crate::{History, Kind, Operation, Value};

/// An order of each key's values. O(n) time, 16 bytes for each value.
#[derive(Debug)]
pub struct Order {
    /// Per key, per value.
    effects: Vec<Vec<i64>>,
    begins: Vec<Vec<i64>>,
    /// Per key; `None` if no write of the key was answered, so that there is nothing to order.
    by_versions: Vec<Option<bool>>,
}

impl Order {
    /// Compares times as the clocks show them.
    pub fn of(history: &History) -> Order {
        Order::with_margin(history, 0)
    }

    /// Where time decides, it must do so by more than `margin` nanoseconds.
    pub fn with_margin(history: &History, margin: i64) -> Order {
        let by_versions = have_stamps(history);
        let blank = |no: i64| -> Vec<Vec<i64>> {
            let keys = history.keys.iter();
            keys.map(|key| {
                let mut values = vec![no; key.values.len()];
                values[Value::INITIAL.index()] = i64::MIN;
                values
            })
            .collect()
        };
        let (mut effects, mut begins) = (blank(i64::MAX), blank(i64::MIN));
        for operation in &history.operations {
            let (key, value) = (operation.key as usize, operation.value);
            if !is_sensible(history, operation) || value == Value::INITIAL {
                continue;
            }
            if by_versions[key] == Some(true) {
                // Without one: newer than the initial value, and older than none.
                let stamp = stamp_of(history, operation).map(signed);
                effects[key][value.index()] = stamp.unwrap_or(i64::MAX);
                begins[key][value.index()] = stamp.unwrap_or(MIN);
                continue;
            }
            let effect = &mut effects[key][value.index()];
            *effect = (*effect).min(operation.finish.saturating_add(margin));
            if operation.kind != Kind::Read {
                begins[key][value.index()] = operation.start;
            }
        }
        Order {
            effects,
            begins,
            by_versions,
        }
    }

    /// A value is older than those that begin later than this.
    pub fn effect(&self, operation: &Operation) -> i64 {
        self.effects[operation.key as usize][operation.value.index()]
    }

    /// See [`Order::effect`].
    pub fn begin(&self, operation: &Operation) -> i64 {
        self.begins[operation.key as usize][operation.value.index()]
    }

    /// Whether a key's versions decide, and not time.
    pub fn is_by_versions(&self, key: u32) -> bool {
        self.by_versions[key as usize] == Some(true)
    }

    /// Whether versions decide, and the version of what an operation read or wrote is known.
    pub(crate) fn has_version(&self, history: &History, operation: &Operation) -> bool {
        self.is_by_versions(operation.key) && stamp_of(history, operation).is_some()
    }

    /// What decides: `versions`, `real time`, or `mixed` if that differs between keys. Keys without writes do not count.
    pub fn name(&self) -> &'static str {
        let of_keys = || self.by_versions.iter().flatten();
        match of_keys().filter(|&&by_versions| by_versions).count() {
            0 => "real time",
            all if all == of_keys().count() => "versions",
            _ => "mixed",
        }
    }
}

/// For each key, whether every write that was answered has a stamp; none if there is no such write.
fn have_stamps(history: &History) -> Vec<Option<bool>> {
    let mut of_keys = vec![None; history.keys.len()];
    for write in &history.operations {
        if write.kind != Kind::Read && write.finish < i64::MAX {
            let all = of_keys[write.key as usize].get_or_insert(true);
            *all &= stamp_of(history, write).is_some();
        }
    }
    of_keys
}

fn stamp_of(history: &History, operation: &Operation) -> Option<u64> {
    let version = history.keys[operation.key as usize].version(operation.value)?;
    version.stamp()
}

/// Above the initial value.
const MIN: i64 = i64::MIN + 1;

/// In the same order, above the initial value.
fn signed(stamp: u64) -> i64 {
    ((stamp ^ 1 << 63) as i64).max(MIN)
}

/// A write, or a read that returned what had been written or the initial value: no phantom, and not from the future.
pub(crate) fn is_sensible(history: &History, operation: &Operation) -> bool {
    match history.writer_of(operation) {
        _ if operation.kind != Kind::Read => true,
        Some(write) => operation.finish >= write.start,
        None => operation.value == Value::INITIAL,
    }
}
