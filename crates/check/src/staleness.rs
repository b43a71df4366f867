//! How old what was read was, and whether the sites agreed in the end.
//!
//! A read is **stale** if some write that is newer than what it returned ([`Order`]) was over before the read began; its staleness is
//! for how long the first such write had been over.
//!
//! **t-visibility** (Bailis et al., *Probabilistically bounded staleness*, 2012) asks the other way round: of the reads that began a
//! time t after the last write before them was over, how many returned that write or a newer one? It is counted in buckets of t that
//! grow by 1, 2, 5, so that it can be drawn on a logarithmic axis. A read of a value from before the trace counts only if versions say
//! whether it is newer than the write.
use crate::{History, Kind, Operation, Order, order::is_sensible};
use serde::Serialize;
use std::collections::BTreeMap;

/// Reads that missed a write that was over before they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Staleness {
    /// How many.
    pub stale_reads: u64,
    /// For how long, at most, what was missed had been over when the read began, in nanoseconds.
    pub max_ns: i64,
}

impl Staleness {
    pub(crate) fn add(&mut self, staleness: i64) {
        self.stale_reads += 1;
        self.max_ns = self.max_ns.max(staleness);
    }
}

/// For what is in the middle and at the ends of many times, in nanoseconds: the least one that so many of a hundred do not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// Half.
    pub p50: i64,
    /// 90.
    pub p90: i64,
    /// 99.
    pub p99: i64,
    /// All.
    pub max: i64,
}

impl Quantiles {
    /// None of nothing.
    pub fn of(mut times: Vec<i64>) -> Option<Quantiles> {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
        (!times.is_empty()).then(|| Quantiles {
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
        })
    }
}

/// The writes of some group of operations, for looking up what a read missed.
pub(crate) struct Missable {
    /// Per group its writes: where they begin in the order, and the least finish of those from there on.
    groups: Vec<Vec<(i64, i64)>>,
}

impl Missable {
    /// O(n log n).
    pub(crate) fn of(
        history: &History,
        order: &Order,
        group_of: impl Fn(&Operation) -> Option<usize>,
    ) -> Missable {
        let mut groups: Vec<Vec<(i64, i64)>> = Vec::new();
        for write in history
            .operations
            .iter()
            .filter(|operation| operation.kind != Kind::Read)
        {
            if let Some(group) = group_of(write) {
                groups.resize(groups.len().max(group + 1), Vec::new());
                groups[group].push((order.begin(write), write.finish));
            }
        }
        for group in &mut groups {
            group.sort_unstable();
            let mut min = i64::MAX;
            for (_, finish) in group.iter_mut().rev() {
                min = min.min(*finish);
                *finish = min;
            }
        }
        Missable { groups }
    }

    /// For how long the first write that the read missed had been over; none if it is fresh.
    pub(crate) fn missed(&self, group: usize, read: &Operation, order: &Order) -> Option<i64> {
        let effect = order.effect(read);
        let group = self.groups.get(group)?;
        let newer = group.partition_point(|&(begin, _)| begin <= effect);
        let &(_, finish) = group.get(newer)?;
        (finish < read.start).then(|| read.start.saturating_sub(finish))
    }
}

/// Hands every stale read to `each`: its place among the operations, and its staleness in nanoseconds. O(n log n).
pub fn each_stale_read(history: &History, order: &Order, mut each: impl FnMut(usize, i64)) {
    let writes = Missable::of(history, order, |operation| Some(operation.key as usize));
    for (place, read) in history.operations.iter().enumerate() {
        if read.kind == Kind::Read
            && is_sensible(history, read)
            && let Some(staleness) = writes.missed(read.key as usize, read, order)
        {
            each(place, staleness);
        }
    }
}

/// Counts stale reads. O(n log n).
pub fn staleness(history: &History) -> Staleness {
    let mut staleness = Staleness::default();
    each_stale_read(history, &Order::of(history), |_, ns| staleness.add(ns));
    staleness
}

/// Reads that began so long after the last write before them was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Visibility {
    /// At least so long, in nanoseconds.
    pub from_ns: i64,
    /// Less than that; `i64::MAX` in the last bucket there can be.
    pub to_ns: i64,
    /// How many there were.
    pub reads: u64,
    /// How many of them returned that write, or a newer one.
    pub fresh: u64,
}

/// The curve P(t), from the first bucket with a read to the last. Where several writes were over at the same time, the newest counts.
/// O(n log n).
pub fn visibility(history: &History, order: &Order) -> Vec<Visibility> {
    let mut writes: Vec<Vec<(i64, i64)>> = vec![Vec::new(); history.keys.len()];
    for write in history
        .operations
        .iter()
        .filter(|operation| operation.kind != Kind::Read)
    {
        writes[write.key as usize].push((write.finish, order.begin(write)));
    }
    writes.iter_mut().for_each(|of_key| of_key.sort_unstable());
    let mut buckets = buckets();
    for read in &history.operations {
        let is_known = !history.reads_from_before(read) || order.has_version(history, read);
        if read.kind != Kind::Read || !is_known || !is_sensible(history, read) {
            continue;
        }
        let of_key = &writes[read.key as usize];
        let over = of_key.partition_point(|&(finish, _)| finish < read.start);
        let Some(&(finish, begin)) = over.checked_sub(1).map(|last| &of_key[last]) else {
            continue;
        };
        let time = read.start.saturating_sub(finish);
        let bucket = buckets
            .partition_point(|bucket| bucket.to_ns <= time)
            .min(buckets.len() - 1);
        buckets[bucket].reads += 1;
        buckets[bucket].fresh += u64::from(order.effect(read) >= begin);
    }
    let used = |bucket: &Visibility| bucket.reads > 0;
    let first = buckets.iter().position(used).unwrap_or(buckets.len());
    let last = buckets.iter().rposition(used).map_or(first, |last| last + 1);
    buckets[first..last].to_vec()
}

/// 1, 2, 5, 10 nanoseconds and so on to the end of time.
fn buckets() -> Vec<Visibility> {
    let decades = (0..19).map(|power| 10_i64.pow(power));
    let mut edges: Vec<i64> = decades
        .flat_map(|decade| [1, 2, 5].map(|step| decade.saturating_mul(step)))
        .filter(|&edge| edge < i64::MAX)
        .collect();
    edges.push(i64::MAX);
    let bucket = |edges: &[i64]| Visibility {
        from_ns: edges[0],
        to_ns: edges[1],
        reads: 0,
        fresh: 0,
    };
    edges.windows(2).map(bucket).collect()
}

/// For each key when all its writes were over, and the last read of each client that began after that: a place in
/// [`History::operations`].
pub(crate) fn last_reads(history: &History) -> Vec<(i64, BTreeMap<u32, usize>)> {
    let mut last = vec![(i64::MIN, BTreeMap::new()); history.keys.len()];
    for write in history.operations[..history.recorded()]
        .iter()
        .filter(|operation| operation.kind != Kind::Read)
    {
        let (quiet, _) = &mut last[write.key as usize];
        *quiet = (*quiet).max(write.finish);
    }
    for (place, read) in history.operations.iter().enumerate() {
        let (quiet, reads) = &mut last[read.key as usize];
        if read.kind == Kind::Read && read.start > *quiet {
            let last = reads.entry(read.client).or_insert(place);
            if read.start >= history.operations[*last].start {
                *last = place;
            }
        }
    }
    last
}

/// Whether the last reads of all clients, after all writes were over, agree: for each key, in the order of [`History::keys`].
/// None if fewer than two clients read then, if a write may still happen, or if they differ and one of them is of a value from before
/// the trace.
pub fn converged(history: &History) -> Vec<Option<bool>> {
    let verdict = |(key, (_, reads)): (&crate::KeyHistory, (i64, BTreeMap<u32, usize>))| {
        let reads = || reads.values().map(|&read| &history.operations[read]);
        let first = reads().next()?.value;
        let agree = reads().all(|read| read.value == first);
        let is_told = agree || !reads().any(|read| history.reads_from_before(read));
        (reads().count() >= 2 && !key.has_unknown_writes && is_told).then_some(agree)
    };
    let keys = history.keys.iter().zip(last_reads(history));
    keys.map(verdict).collect()
}
