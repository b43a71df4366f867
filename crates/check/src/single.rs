//! The least number of single operations that must be removed until a trace looks like one copy.
//!
//! The proportion of the papers removes whole values ([`crate::Zones::removed`]); here a read may be removed while its write stays. The number is
//! smaller in about a quarter of small random traces, and is for information only: it must not be compared with the proportion.
//!
//! It is found by trying all sets, the smaller ones first, so only small keys are tried.
use crate::{History, Kind, Operation, Value, Zones};

/// Keys with more operations are not tried.
const MAX_OPERATIONS: usize = 16;

/// The least number of single operations whose removal leaves the trace atomic. None if some key is not atomic and has more than 16
/// operations.
pub fn removed_singly(history: &History, zones: &[Zones]) -> Option<u64> {
    let keys = history.by_key();
    let mut all = 0;
    for (places, zones) in keys.iter().zip(zones) {
        let max = zones.removed();
        if max > 0 {
            let operations: Vec<Operation> = places.iter().map(|&place| history.operations[place]).collect();
            all += removed_of_key(&operations, max)?;
        }
    }
    Some(all)
}

/// Removing whole values is possible, too, so the answer is at most `most`.
fn removed_of_key(operations: &[Operation], max: u64) -> Option<u64> {
    if operations.len() > MAX_OPERATIONS {
        return None;
    }
    let subsets = 0..1_u32 << operations.len();
    let sizes = subsets.filter(|removed| u64::from(removed.count_ones()) < max);
    let right = sizes.filter(|removed| is_atomic(operations, *removed));
    Some(
        right
            .map(|removed| u64::from(removed.count_ones()))
            .min()
            .unwrap_or(max),
    )
}

/// Whether one copy explains the operations without those of a set of places.
fn is_atomic(operations: &[Operation], removed: u32) -> bool {
    let kept = || {
        (0..operations.len())
            .filter(|place| removed & 1 << place == 0)
            .map(|place| &operations[place])
    };
    // By value: least finish, greatest start, and when it was written.
    let mut clusters: Vec<(Value, i64, i64, Option<i64>)> =
        vec![(Value::INITIAL, i64::MIN, i64::MIN, Some(i64::MIN))];
    for operation in kept() {
        let place = clusters.iter().position(|(value, ..)| *value == operation.value);
        let place = place.unwrap_or_else(|| {
            clusters.push((operation.value, i64::MAX, i64::MIN, None));
            clusters.len() - 1
        });
        let (_, f, s, written) = &mut clusters[place];
        *f = (*f).min(operation.finish);
        *s = (*s).max(operation.start);
        if operation.kind != Kind::Read {
            *written = Some(operation.start);
        }
    }
    let is_possible =
        |&(_, f, _, written): &(Value, i64, i64, Option<i64>)| written.is_some_and(|start| f >= start);
    clusters.iter().all(is_possible)
        && clusters
            .iter()
            .enumerate()
            .all(|(place, a)| clusters[..place].iter().all(|b| !(b.1 < a.2 && a.1 < b.2)))
}
