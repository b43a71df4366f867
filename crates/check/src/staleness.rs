//! How old what was read was, and whether the sites agreed in the end.
use crate::{
    History, Kind,
    sessions::{effects, is_sensible},
};
use std::collections::BTreeMap;

/// Reads that missed a write that was over before they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Staleness {
    /// How many.
    pub stale_reads: u64,
    /// For how long, at most, what was missed had been over when the read began, in nanoseconds.
    pub max_ns: i64,
}

/// Counts stale reads. O(n log n).
pub fn staleness(history: &History) -> Staleness {
    let mut staleness = Staleness::default();
    for (_, ns) in stale_reads(history) {
        staleness.stale_reads += 1;
        staleness.max_ns = staleness.max_ns.max(ns);
    }
    staleness
}

/// Finds stale reads: places in [`History::operations`], and for how long what was missed had been over, in nanoseconds.
pub(crate) fn stale_reads(history: &History) -> Vec<(usize, i64)> {
    let effects = effects(history);
    // For each key its writes by start, and the least finish of those from there on.
    let mut writes: Vec<Vec<(i64, i64)>> = vec![Vec::new(); history.keys.len()];
    for operation in history
        .operations
        .iter()
        .filter(|operation| operation.kind != Kind::Read)
    {
        writes[operation.key as usize].push((operation.start, operation.finish));
    }
    for of_key in &mut writes {
        of_key.sort_unstable();
        let mut least = i64::MAX;
        for (_, finish) in of_key.iter_mut().rev() {
            least = least.min(*finish);
            *finish = least;
        }
    }
    let mut stale = Vec::new();
    for (place, read) in history.operations.iter().enumerate() {
        if read.kind != Kind::Read || !is_sensible(history, read) {
            continue;
        }
        let effect = effects[read.key as usize][read.value.index()];
        let of_key = &writes[read.key as usize];
        let newer = of_key.partition_point(|&(start, _)| start <= effect);
        if let Some(&(_, finish)) = of_key.get(newer)
            && finish < read.start
        {
            stale.push((place, read.start.saturating_sub(finish)));
        }
    }
    stale
}

/// Whether the last reads of all clients, after all writes were over, agree: for each key, in the order of [`History::keys`].
/// None if fewer than two clients read then, or if a write may still happen.
pub fn converged(history: &History) -> Vec<Option<bool>> {
    let mut quiet = vec![i64::MIN; history.keys.len()];
    for operation in history
        .operations
        .iter()
        .filter(|operation| operation.kind != Kind::Read)
    {
        let quiet = &mut quiet[operation.key as usize];
        *quiet = (*quiet).max(operation.finish);
    }
    let mut last: Vec<BTreeMap<u32, (i64, crate::Value)>> = vec![BTreeMap::new(); history.keys.len()];
    for operation in history
        .operations
        .iter()
        .filter(|operation| operation.kind == Kind::Read)
    {
        let key = operation.key as usize;
        if operation.start > quiet[key] {
            let last = last[key]
                .entry(operation.client)
                .or_insert((operation.start, operation.value));
            if operation.start >= last.0 {
                *last = (operation.start, operation.value);
            }
        }
    }
    let verdict = |(key, reads): (&crate::KeyHistory, BTreeMap<u32, (i64, crate::Value)>)| {
        let mut values = reads.values().map(|&(_, value)| value);
        let first = values.next()?;
        (reads.len() >= 2 && !key.has_unknown_writes).then(|| values.all(|value| value == first))
    };
    history.keys.iter().zip(last).map(verdict).collect()
}
