//! One key: clusters, zones, and the measures that follow from them.
use crate::{History, Kind, Value};
use std::cmp::Reverse;

const NEVER: i64 = i64::MIN;

/// A value's write and reads, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cluster {
    /// The value.
    pub value: Value,
    /// How many operations count.
    pub weight: u64,
    /// The least finish of them; `i64::MIN` for the initial value.
    pub f: i64,
    /// The greatest start of them; `i64::MIN` for the initial value if no operation read it.
    pub s: i64,
    /// When the write began; `i64::MIN` for the initial value.
    write_start: i64,
    /// The least finish of a read, and the greatest start of one.
    reads: Option<(i64, i64)>,
}

impl Cluster {
    /// Some read was over before the write began.
    pub fn is_future(&self) -> bool {
        self.reads
            .is_some_and(|(least_finish, _)| least_finish < self.write_start)
    }

    fn is_forward(&self) -> bool {
        self.f < self.s
    }

    /// No order of the two explains what was read.
    pub fn conflicts(&self, other: &Cluster) -> bool {
        other.f < self.s && self.f < other.s
    }

    /// The same cluster, if every operation may have begun earlier and ended later by this many nanoseconds.
    fn stretched(&self, by: i64) -> Cluster {
        // What lies at infinity stays there.
        let earlier = |time: i64| {
            if time == NEVER {
                NEVER
            } else {
                time.saturating_sub(by)
            }
        };
        let later = |time: i64| {
            if time == NEVER {
                NEVER
            } else {
                time.saturating_add(by)
            }
        };
        Cluster {
            f: later(self.f),
            s: earlier(self.s),
            write_start: earlier(self.write_start),
            reads: self.reads.map(|(finish, start)| (later(finish), earlier(start))),
            ..*self
        }
    }
}

/// The clusters of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zones {
    /// One for each value that counts, the initial one first; none for phantoms.
    pub clusters: Vec<Cluster>,
    /// The number of reads that returned a value that no client wrote.
    pub phantom_reads: u64,
    /// How many reads were over before their write began.
    pub future_reads: u64,
}

impl Zones {
    /// The zones of every key, in the order of [`History::keys`].
    pub fn of(history: &History) -> Vec<Zones> {
        Zones::of_some(history, |_| true)
    }

    /// The zones of the operations that were promised something, given by place. Of the other operations, reads are left out, and writes may take
    /// effect at any time after they began.
    pub fn of_some(history: &History, counts: impl Fn(usize) -> bool) -> Vec<Zones> {
        let mut all: Vec<Vec<Cluster>> = history
            .keys
            .iter()
            .map(|key| (0..key.values.len()).map(|index| empty(index as u32)).collect())
            .collect();
        for (place, operation) in history.operations.iter().enumerate() {
            if operation.kind == Kind::Read && !counts(place) {
                continue;
            }
            let cluster = &mut all[operation.key as usize][operation.value.index()];
            cluster.weight += u64::from(!operation.is_from_before());
            if counts(place) {
                cluster.f = cluster.f.min(operation.finish);
            }
            cluster.s = cluster.s.max(operation.start);
            match (operation.kind, &mut cluster.reads) {
                (Kind::Read, Some((finish, start))) => {
                    (*finish, *start) = ((*finish).min(operation.finish), (*start).max(operation.start));
                }
                (Kind::Read, none) => *none = Some((operation.finish, operation.start)),
                (Kind::Write | Kind::UnknownWrite, _) => cluster.write_start = operation.start,
            }
        }
        let future = |&(place, operation): &(usize, &crate::Operation)| {
            operation.kind == Kind::Read
                && counts(place)
                && history
                    .writer_of(operation)
                    .is_some_and(|write| operation.finish < write.start)
        };
        let mut zones: Vec<Zones> = all
            .into_iter()
            .zip(&history.keys)
            .map(|(clusters, key)| {
                let phantom = |cluster: &Cluster| key.is_phantom(cluster.value);
                Zones {
                    phantom_reads: clusters
                        .iter()
                        .filter(|cluster| phantom(cluster))
                        .map(|cluster| cluster.weight)
                        .sum(),
                    future_reads: 0,
                    clusters: clusters
                        .iter()
                        .filter(|cluster| !phantom(cluster))
                        .copied()
                        .collect(),
                }
            })
            .collect();
        for (_, operation) in history.operations.iter().enumerate().filter(future) {
            zones[operation.key as usize].future_reads += 1;
        }
        zones
    }

    /// How many operations count.
    pub fn operations(&self) -> u64 {
        self.phantom_reads + self.clusters.iter().map(|cluster| cluster.weight).sum::<u64>()
    }

    /// Whether one copy of the key explains all that was read.
    pub fn is_atomic(&self) -> bool {
        self.phantom_reads == 0 && self.removed() == 0
    }

    /// The least number of operations, whole values at a time, whose removal leaves the key atomic.
    pub fn removed(&self) -> u64 {
        self.phantom_reads + lightest_removal(self.clusters.iter().copied()).weight
    }

    /// Values, one cluster each, whose removal leaves the key atomic if every clock may be off by `skew` nanoseconds, and that
    /// have the fewest operations of all such sets. Phantoms must be removed as well.
    pub fn removal(&self, skew: i64) -> Vec<Value> {
        let mut values = lightest_removal(self.clusters.iter().map(|cluster| cluster.stretched(skew))).values;
        values.sort_unstable();
        values
    }

    /// The same if every clock may be off by `skew` nanoseconds: what is left is certain.
    pub fn removed_with_skew(&self, skew: i64) -> u64 {
        self.phantom_reads
            + lightest_removal(self.clusters.iter().map(|cluster| cluster.stretched(skew))).weight
    }

    /// For each cluster, by how much every operation has to be stretched until it is in no conflict. O(m log m).
    pub fn gammas(&self) -> Vec<i64> {
        let own = |cluster: &Cluster| match cluster.reads {
            Some((finish, _)) if cluster.write_start != NEVER => cluster.write_start.saturating_sub(finish),
            _ => 0,
        };
        let pairs = self.pair_gammas().into_iter().zip(&self.clusters);
        pairs.map(|(gamma, cluster)| gamma.max(own(cluster))).collect()
    }

    /// The same for conflicts with others alone: reads from the future are left aside.
    fn pair_gammas(&self) -> Vec<i64> {
        let clusters = &self.clusters;
        let mut order: Vec<usize> = (0..clusters.len()).collect();
        order.sort_by_key(|&place| (clusters[place].f, place));
        // The two greatest `s` among the first so many: one of them is not the cluster itself.
        let mut best: Vec<[Option<usize>; 2]> = Vec::with_capacity(order.len());
        let s_of = |place: Option<usize>| place.map_or(NEVER, |place| clusters[place].s);
        for &place in &order {
            let [first, second] = best.last().copied().unwrap_or_default();
            best.push(if first.is_none() || clusters[place].s > s_of(first) {
                [Some(place), first]
            } else if second.is_none() || clusters[place].s > s_of(second) {
                [first, Some(place)]
            } else {
                [first, second]
            });
        }
        (0..clusters.len())
            .map(|me| {
                let cluster = &clusters[me];
                // Over the partners up to rank k: the first term falls with k, the second rises.
                let terms = |rank: usize| {
                    let [first, second] = best[rank];
                    let partner = if first == Some(me) { second } else { first };
                    (
                        cluster.s.saturating_sub(clusters[order[rank]].f),
                        partner.map_or(NEVER, |partner| clusters[partner].s.saturating_sub(cluster.f)),
                    )
                };
                let (mut low, mut high) = (0, order.len());
                while low < high {
                    let middle = (low + high) / 2;
                    let (falling, rising) = terms(middle);
                    if rising >= falling {
                        high = middle;
                    } else {
                        low = middle + 1;
                    }
                }
                let at = |rank: usize| {
                    // The rank's own cluster gives no first term for itself; the one before does.
                    let (falling, rising) = terms(rank);
                    if order[rank] == me {
                        NEVER
                    } else {
                        falling.min(rising)
                    }
                };
                let around = low.saturating_sub(2)..(low + 2).min(order.len());
                around.map(at).max().unwrap_or(0).max(0)
            })
            .collect()
    }

    /// The two clusters in the worst conflict, and the Gamma of the two. None if no two are in conflict. O(m log m).
    pub fn worst_pair(&self) -> Option<(i64, usize, usize)> {
        let gammas = self.pair_gammas();
        let worst = |&place: &usize| (gammas[place], Reverse(place));
        let me = (0..gammas.len()).max_by_key(worst).filter(|&me| gammas[me] > 0)?;
        let with = |other: usize| {
            let (one, other) = (&self.clusters[me], &self.clusters[other]);
            one.s.saturating_sub(other.f).min(other.s.saturating_sub(one.f))
        };
        let others = (0..gammas.len()).filter(|&other| other != me);
        let partner = others.max_by_key(|&other| (with(other), Reverse(other)))?;
        Some((gammas[me], me.min(partner), me.max(partner)))
    }

    /// The same for the key.
    pub fn gamma(&self) -> i64 {
        self.gammas().into_iter().max().unwrap_or(0)
    }

    /// The least time by which reads would have to begin earlier for the key to be atomic. `None` if a read is from the
    /// future: no such shift helps. Looks at pairs whose zones touch: quadratic if all do.
    pub fn delta(&self) -> Option<i64> {
        if self.clusters.iter().any(Cluster::is_future) {
            return None;
        }
        // In nanoseconds; None if a before b is impossible however early reads are.
        let before = |a: &Cluster, b: &Cluster| match a.reads {
            _ if a.write_start > b.f => None,
            Some((_, start)) => Some(start.saturating_sub(b.f).max(0)),
            None => Some(0),
        };
        let pairs = self.conflicts();
        let deltas = pairs.into_iter().map(|(a, b)| {
            let (a, b) = (&self.clusters[a], &self.clusters[b]);
            [before(a, b), before(b, a)].into_iter().flatten().min()
        });
        deltas
            .map(|delta| delta.expect("one of two writes can be the first"))
            .max()
            .or(Some(0))
    }

    /// All pairs of clusters in conflict.
    pub fn conflicts(&self) -> Vec<(usize, usize)> {
        let mut order: Vec<usize> = (0..self.clusters.len()).collect();
        order.sort_by_key(|&place| (self.clusters[place].f, place));
        let mut pairs = Vec::new();
        for (rank, &a) in order.iter().enumerate() {
            let later = order[rank + 1..]
                .iter()
                .take_while(|&&b| self.clusters[b].f < self.clusters[a].s);
            pairs.extend(
                later
                    .filter(|&&b| self.clusters[a].conflicts(&self.clusters[b]))
                    .map(|&b| (a, b)),
            );
        }
        pairs
    }
}

fn empty(value: u32) -> Cluster {
    let value_is_initial = value == 0;
    Cluster {
        value: Value::at(value),
        weight: 0,
        f: if value_is_initial { NEVER } else { i64::MAX },
        s: NEVER,
        write_start: NEVER,
        reads: None,
    }
}

/// Clusters whose removal leaves no conflict.
struct Removal {
    weight: u64,
    values: Vec<Value>,
}

/// The lightest clusters whose removal leaves no conflict: what is kept is the heaviest set of forward zones that are apart, each
/// charged with the backward zones inside it. O(m log m).
fn lightest_removal(clusters: impl Iterator<Item = Cluster>) -> Removal {
    let (mut removed, mut forward, mut backward) = (Vec::new(), Vec::new(), Vec::new());
    for cluster in clusters.filter(|cluster| cluster.weight > 0) {
        if cluster.is_future() {
            removed.push(cluster);
        } else if cluster.is_forward() {
            forward.push(cluster);
        } else {
            backward.push(cluster);
        }
    }
    forward.sort_by_key(|cluster| (cluster.s, cluster.f));
    backward.sort_by_key(|cluster| cluster.f);
    let kept = heaviest_apart(&forward, &backward, &mut removed);
    // Those that are kept are apart, so a backward zone is inside the last that begins before it, or inside none.
    let is_lost = |zone: &&Cluster| {
        let before = kept.partition_point(|other| other.f < zone.s);
        before > 0 && zone.f < kept[before - 1].s
    };
    removed.extend(backward.iter().filter(is_lost));
    Removal {
        weight: removed.iter().map(|cluster| cluster.weight).sum(),
        values: removed.iter().map(|cluster| cluster.value).collect(),
    }
}

/// The forward zones to keep, in order; the others are added to `removed`.
fn heaviest_apart(forward: &[Cluster], backward: &[Cluster], removed: &mut Vec<Cluster>) -> Vec<Cluster> {
    let mut left_ends: Vec<i64> = backward.iter().map(|cluster| cluster.s).collect();
    left_ends.sort_unstable();
    let mut inside = Fenwick::new(left_ends.len());
    // The best weight with the first so many zones, and, if the last of them is kept for it, how many are left to choose from.
    let (mut taken, mut best) = (0, vec![(0_i128, None)]);
    for (place, zone) in forward.iter().enumerate() {
        while taken < backward.len() && backward[taken].f < zone.s {
            let rank = left_ends.partition_point(|&end| end < backward[taken].s);
            inside.add(rank, backward[taken].weight);
            taken += 1;
        }
        // Those whose left end is behind the zone's.
        let charge = inside.from(left_ends.partition_point(|&end| end <= zone.f));
        let before = forward[..place].partition_point(|other| other.s <= zone.f);
        let with = best[before].0 + i128::from(zone.weight) - i128::from(charge);
        let without = best[place].0;
        best.push(if with > without {
            (with, Some(before))
        } else {
            (without, None)
        });
    }
    let (mut left, mut kept) = (forward.len(), Vec::new());
    while left > 0 {
        let before = best[left].1.inspect(|_| kept.push(forward[left - 1]));
        let next = before.unwrap_or(left - 1);
        removed.extend(&forward[next..left - usize::from(before.is_some())]);
        left = next;
    }
    kept.reverse();
    kept
}

/// Sums over a range of places that changes.
pub(crate) struct Fenwick {
    sums: Vec<u64>,
    total: u64,
}

impl Fenwick {
    pub(crate) fn new(places: usize) -> Fenwick {
        Fenwick {
            sums: vec![0; places + 1],
            total: 0,
        }
    }

    pub(crate) fn add(&mut self, place: usize, weight: u64) {
        self.total += weight;
        let mut at = place + 1;
        while at < self.sums.len() {
            self.sums[at] += weight;
            at += at & at.wrapping_neg();
        }
    }

    /// The sum from a place on.
    pub(crate) fn from(&self, place: usize) -> u64 {
        let (mut at, mut before) = (place, 0);
        while at > 0 {
            before += self.sums[at];
            at &= at - 1;
        }
        self.total - before
    }
}
