//! The times when entries became ready, from which lag is measured.
use std::collections::VecDeque;
use turnbuckle_core::Micros;

/// The resolution with which lag is measured, and the number of times that are kept: they reach back 82 seconds (4,096 times 20 ms) or more. A longer
/// lag is shown as the time back to the oldest of them.
const LAG_RESOLUTION: Micros = Micros::from_millis(20);
const MAX_TIMES: usize = 4096;

/// (n, t): entry n was ready at t, in monotonic time. Sparse, rising.
#[derive(Default)]
pub(super) struct ReadyTimes(VecDeque<(u64, Micros)>);

impl ReadyTimes {
    /// Notes that an entry is ready now, and so are all before it.
    pub fn note(&mut self, entry: u64, monotonic: Micros) {
        let last = self.0.back();
        if last.is_none_or(|&(_, at)| monotonic.since(at) >= LAG_RESOLUTION) {
            self.0.push_back((entry, monotonic));
            if self.0.len() > MAX_TIMES {
                self.0.pop_front();
            }
        }
    }

    /// How long ago an entry became ready.
    pub fn passed_since(&self, entry: u64, monotonic: Micros) -> Micros {
        let place = self.0.partition_point(|&(number, _)| number < entry);
        let noted = self.0.get(place).or(self.0.back());
        noted.map_or(Micros(0), |&(_, at)| monotonic.since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_counts_from_the_first_time_noted_at_or_behind_it() {
        let mut times = ReadyTimes::default();
        times.note(3, Micros::from_millis(100));
        times.note(5, Micros::from_millis(110));
        times.note(9, Micros::from_millis(130));
        let passed = |entry| times.passed_since(entry, Micros::from_millis(150));
        assert_eq!(passed(3), Micros::from_millis(50));
        assert_eq!(
            passed(4),
            Micros::from_millis(20),
            "5 came too soon after 3 to be noted"
        );
        assert_eq!(passed(99), Micros::from_millis(20), "the last that is known");
    }
}
