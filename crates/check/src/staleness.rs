//! How old what was read was, and whether the sites agreed in the end.
//!
//! A read is **stale** if some write that is newer than what it returned ([`Order`]) was over before the read began; its staleness is
//! for how long the first such write had been over.
//!
//! **t-visibility** (Bailis et al., *Probabilistically bounded staleness*, 2012) asks the opposite question: of the reads that began a
//! time t after the last write before them was over, how many returned that write or a newer one? It is counted in buckets of t that
//! grow by 1, 2, 5, so that it can be drawn on a logarithmic axis. A read of a value from before the trace counts only if versions say
//! whether it is newer than the write.
use crate::{History, Kind, Operation, Order, levels::nanoseconds, order::is_sensible};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Reads that missed a write that was over before they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Staleness {
    /// How many.
    pub stale_reads: u64,
    /// The longest time for which a missed write had been over when the read began, in nanoseconds.
    pub max_ns: i64,
}

impl Staleness {
    pub(crate) fn add(&mut self, staleness: i64) {
        self.stale_reads += 1;
        self.max_ns = self.max_ns.max(staleness);
    }
}

/// Percentiles of many times, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// The time that half of them do not exceed.
    pub p50: i64,
    /// The time that 90 % of them do not exceed.
    pub p90: i64,
    /// The time that 99 % of them do not exceed.
    pub p99: i64,
    /// The longest time.
    pub max: i64,
}

impl Quantiles {
    /// `None` if there are no times.
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

/// Writes in groups, for looking up what a read missed.
pub(crate) struct Missable {
    /// The writes of each group: the place in the order, and the least finish of the writes from that place on.
    groups: Vec<Vec<(i64, i64)>>,
}

impl Missable {
    /// `group_of` is asked for the group of each write, with its place. `None`: the write is in no group. O(n log n).
    pub(crate) fn of(
        history: &History,
        order: &Order,
        group_of: impl Fn(usize, &Operation) -> Option<usize>,
    ) -> Missable {
        let mut groups: Vec<Vec<(i64, i64)>> = Vec::new();
        let operations = history.operations.iter().enumerate();
        for (place, write) in operations.filter(|(_, operation)| operation.kind != Kind::Read) {
            if let Some(group) = group_of(place, write) {
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

    /// How long the first write that the read missed had been over, in nanoseconds. `None` if the read is fresh.
    pub(crate) fn missed(&self, group: usize, read: &Operation, order: &Order) -> Option<i64> {
        let finish = self.missed_since(group, read, order)?;
        Some(read.start.saturating_sub(finish))
    }

    /// When the first write that the read missed was over. `None` if the read is fresh.
    fn missed_since(&self, group: usize, read: &Operation, order: &Order) -> Option<i64> {
        let effect = order.effect(read);
        let group = self.groups.get(group)?;
        let newer = group.partition_point(|&(begin, _)| begin <= effect);
        let &(_, finish) = group.get(newer)?;
        (finish < read.start).then_some(finish)
    }
}

/// Passes every stale read to `each`: its place among the operations, and its staleness in nanoseconds. O(n log n).
pub fn each_stale_read(history: &History, order: &Order, mut each: impl FnMut(usize, i64)) {
    let writes = Missable::of(history, order, |_, write| Some(write.key as usize));
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

/// The reads that began within one range of times after the last write before them was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Visibility {
    /// The beginning of the range, in nanoseconds.
    pub from_ns: i64,
    /// The end of the range, which is not in it, in nanoseconds; `i64::MAX` in the last possible bucket.
    pub to_ns: i64,
    /// The number of reads in the range.
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

/// The longest observed propagation, in nanoseconds: the longest time from the end of a write to the beginning of a read of the key at some site
/// that missed the write, if a later read at that site did not miss it. 0 if there is no such pair of reads. A write that a site never showed does
/// not count: it may be on its way, or lost. O(n log n).
pub fn propagation(history: &History) -> i64 {
    let order = Order::of(history);
    let writes = Missable::of(history, &order, |_, write| Some(write.key as usize));
    // By key and site: when each read began, and when the first write that it missed was over.
    let mut reads: HashMap<(u32, u16), Vec<(i64, i64)>> = HashMap::new();
    for read in &history.operations {
        if read.kind == Kind::Read && is_sensible(history, read) {
            let missed = writes.missed_since(read.key as usize, read, &order);
            let of_site = reads.entry((read.key, read.site)).or_default();
            of_site.push((read.start, missed.unwrap_or(i64::MAX)));
        }
    }
    let mut longest = 0;
    for of_site in reads.values_mut() {
        of_site.sort_unstable();
        // If the first write that a later read missed was over later, the later read has seen the write that this one missed.
        let mut later = i64::MIN;
        for together in of_site.chunk_by(|one, other| one.0 == other.0).rev() {
            let missed = together.iter().filter(|(_, missed)| *missed < later);
            let longest_here = missed.map(|(start, missed)| start.saturating_sub(*missed)).max();
            longest = longest.max(longest_here.unwrap_or(0));
            later = together.iter().map(|&(_, missed)| missed).fold(later, i64::max);
        }
    }
    longest
}

/// Whether a read that began when it did should show the last write of its key, which was over at `quiet`. Before that time the write may be
/// on its way. A read is late enough if it began
///
/// - more than twice the longest [`propagation`] after `quiet`: a trace shows few propagations, and seldom the slowest; and
/// - later than the read's own receipt allows, if the receipt says how stale the answer may be.
pub(crate) fn is_late(history: &History, read: usize, quiet: i64, propagation: i64) -> bool {
    let promise = history.promise_of(read);
    let receipt = promise.and_then(|promise| promise.receipt?.staleness_us);
    let allowed = receipt.map_or(0, nanoseconds).max(propagation.saturating_mul(2));
    history.operations[read].start > quiet.saturating_add(allowed)
}

/// Whether the last reads of all clients, after all writes were over, agree: for each key, in the order of [`History::keys`].
///
/// Reads that differ count only if they are late enough, given the trace's [`propagation`]. None if fewer than two clients are left, if a
/// write may still happen, or if one of the reads that differ returned a value from before the trace.
pub fn converged(history: &History, propagation: i64) -> Vec<Option<bool>> {
    let verdict = |(key, (quiet, reads)): (&crate::KeyHistory, (i64, BTreeMap<u32, usize>))| {
        let all: Vec<&Operation> = reads.values().map(|&read| &history.operations[read]).collect();
        let late = reads
            .values()
            .filter(|&&read| is_late(history, read, quiet, propagation));
        let late: Vec<&Operation> = late.map(|&read| &history.operations[read]).collect();
        let agree = |reads: &[&Operation]| reads.iter().all(|read| read.value == reads[0].value);
        let is_told = |reads: &[&Operation]| !reads.iter().any(|read| history.reads_from_before(read));
        match key.has_unknown_writes {
            true => None,
            false if all.len() >= 2 && agree(&all) => Some(true),
            false if late.len() < 2 => None,
            false => Some(agree(&late)).filter(|&agree| agree || is_told(&late)),
        }
    };
    let keys = history.keys.iter().zip(last_reads(history));
    keys.map(verdict).collect()
}
