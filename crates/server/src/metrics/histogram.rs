use super::Counter;
use turnbuckle_core::Micros;

/// The upper bounds of the buckets, in microseconds: 1, 2.5 and 5 in each power of ten, from a local read to a timeout. A last bucket counts
/// everything above.
pub(super) const BOUNDS_US: [u64; 20] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// The number of durations in each bucket. It has one writer.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    pub(super) fn record(&self, took: Micros) {
        let bucket = BOUNDS_US.partition_point(|&bound| bound < took.0);
        self.buckets[bucket].add(1);
        self.sum_us.add(took.0);
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        for (sum, bucket) in snapshot.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.value();
        }
        snapshot.sum_us += self.sum_us.value();
    }
}

/// The counts of one or more histograms, as they were read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// By bucket, not cumulative.
    pub(super) buckets: [u64; BOUNDS_US.len() + 1],
    pub(super) sum_us: u64,
}
