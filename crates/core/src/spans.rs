use crate::Micros;

/// A histogram of durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spans {
    counts: [u64; Spans::BOUNDS_MS.len() + 1],
    sum: Micros,
}

impl Spans {
    /// The upper bounds of the buckets, in milliseconds. There is one more bucket above the last bound. Between 10 ms and a second, where the delays
    /// of WANs are, each bound is about a tenth above the one before. So a median is known about as precisely as a WAN's delay is.
    pub const BOUNDS_MS: [u64; 64] = [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51,
        56, 62, 68, 75, 82, 91, 100, 110, 120, 130, 150, 160, 180, 200, 220, 240, 270, 300, 330, 360, 390,
        430, 470, 510, 560, 620, 680, 750, 820, 910, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000, 60_000,
    ];

    /// Adds one duration.
    pub fn add(&mut self, span: Micros) {
        let place = Self::BOUNDS_MS.partition_point(|&bound| bound * 1_000 < span.0);
        self.counts[place] += 1;
        self.sum = self.sum + span;
    }

    /// Adds the durations of another histogram.
    pub fn merge(&mut self, other: &Spans) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        self.sum = self.sum + other.sum;
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all durations.
    pub fn sum(&self) -> Micros {
        self.sum
    }

    /// For each bound, in milliseconds, the number of durations that are not longer.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = Self::BOUNDS_MS.iter().zip(&self.counts);
        counts.scan(0, |so_far, (&bound, &count)| {
            *so_far += count;
            Some((bound, *so_far))
        })
    }
}

impl Default for Spans {
    fn default() -> Spans {
        Spans {
            counts: [0; Spans::BOUNDS_MS.len() + 1],
            sum: Micros(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_span_counts_under_every_bound_that_it_keeps() {
        let mut spans = Spans::default();
        for us in [0, 1_000, 1_001, 59_999_999, 70_000_000] {
            spans.add(Micros(us));
        }
        let of = |bound| {
            spans
                .cumulative()
                .find(|&(of, _)| of == bound)
                .map(|(_, count)| count)
        };
        assert_eq!((of(1), of(2), of(60_000)), (Some(2), Some(3), Some(4)));
        assert_eq!(spans.count(), 5);
        let mut twice = spans.clone();
        twice.merge(&spans);
        assert_eq!((twice.count(), twice.sum().0), (10, 2 * spans.sum().0));
    }
}
