//! When values expire. Leaders write marks until all sites are beyond these times, so that what has expired can be forgotten ([`crate::epochs`]).
//!
//! Millions of values may expire, each at a time of its own. So the times are rounded up: by about a second, or by a sixteenth of the time for which the value is shown. Some hundred times are kept, however many values there are. At every site they are the same.
use std::collections::BTreeSet;
use turnbuckle_core::{Gone, Hlc, Version};

/// The times at which values expire, rounded up, as far as not all sites are beyond them.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    times: BTreeSet<Hlc>,
}

/// The times are rounded up to multiples of this: about a second.
const SECOND: u64 = 1 << 32;

impl Expiries {
    /// A value expires. The time is that of the last line that the store has for it, or later: once all sites are beyond it, the store forgets the value.
    pub fn add(&mut self, version: &Version<()>) {
        let gone = version.gone().filter(|_| version.content.until().is_some());
        if let Some(Gone { at: Hlc(gone_at), .. }) = gone {
            let at = version.id.at.about_after(gone_at.saturating_sub(version.id.at.0));
            self.insert(at);
        }
    }

    /// Values may expire at any time up to this one, which is a time that was kept. That is all that is known after a restart, or of a full copy.
    pub fn add_all(&mut self, newest: Hlc, now: Hlc) {
        let mut at = now;
        while at < newest {
            self.insert(at);
            let left = at.0 - now.0;
            at = Hlc(at.0.saturating_add((left / 16).max(SECOND)));
        }
        if newest > Hlc::ZERO {
            self.insert(newest);
        }
    }

    fn insert(&mut self, at: Hlc) {
        self.times
            .insert(Hlc(at.0.checked_next_multiple_of(SECOND).unwrap_or(u64::MAX)));
    }

    /// All sites have everything up to this time.
    pub fn forget(&mut self, settled: Hlc) {
        if self.times.first().is_some_and(|&first| first < settled) {
            self.times = self.times.split_off(&settled);
        }
    }

    /// Drops the times that have come, all but the latest: once all sites are beyond that, they are beyond the others.
    pub fn pass(&mut self, now: Hlc) {
        if let Some(due) = self.due(now) {
            self.times = self.times.split_off(&due);
        }
    }

    /// The latest of the times.
    pub fn newest(&self) -> Hlc {
        self.times.last().copied().unwrap_or_default()
    }

    /// The latest of the times that have come.
    pub fn due(&self, now: Hlc) -> Option<Hlc> {
        self.times.range(..=now).next_back().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_core::{Content, Micros, VersionId};

    const NOW: Micros = Micros(1_700_000_000_000_000);
    const MONTH: u64 = 30 * 86_400_000_000;

    fn expiring(stamped: Micros, shown: u64) -> Version<()> {
        let id = VersionId {
            at: Hlc::from_wall(stamped),
            ..VersionId::default()
        };
        Version {
            id,
            content: Content::new("v".into(), Some(stamped + Micros(shown))),
            meta: (),
        }
    }

    #[test]
    fn a_time_is_rounded_up_by_a_sixteenth_of_the_span_or_about_a_second() {
        for shown in [1, 999_999, 16_000_000, 60_000_000, MONTH] {
            let mut expiries = Expiries::default();
            expiries.add(&expiring(NOW, shown));
            let (until, rounded) = (NOW + Micros(shown), expiries.newest().wall());
            let late = rounded.since(until).0;
            assert!(
                rounded >= until && late <= (shown / 16).max(1_050_000),
                "{shown}: {late} late"
            );
            assert_eq!(expiries.due(Hlc(expiries.newest().0 - 1)), None);
            assert_eq!(expiries.due(expiries.newest()), Some(expiries.newest()));
        }
        let mut nothing = Expiries::default();
        nothing.add(&Version {
            content: Content::DELETE,
            ..expiring(NOW, 1)
        });
        assert_eq!(nothing.newest(), Hlc::ZERO, "a delete expires never");
    }

    #[test]
    fn few_times_are_kept_of_many_values_and_those_that_are_over_are_dropped() {
        let mut expiries = Expiries::default();
        for number in 0..1_000_000_u64 {
            // Short spans are as frequent as long ones.
            let (now, shown) = (NOW + Micros(number * 10_000), 1_000 << (number % 32));
            expiries.add(&expiring(now, shown.min(MONTH)));
            expiries.forget(Hlc::from_wall(now));
            assert!(expiries.times.len() < 1_000, "{} times", expiries.times.len());
        }
        // A site is away: nothing is settled.
        let newest = expiries.newest();
        expiries.pass(newest);
        assert_eq!(expiries.times.len(), 1);
        expiries.forget(newest);
        assert_eq!(expiries.newest(), newest, "not all sites are beyond it");
        expiries.forget(newest.next());
        assert!(expiries.times.is_empty());
    }

    #[test]
    fn after_a_restart_times_up_to_the_newest_are_known_and_it_does_not_move() {
        let mut expiries = Expiries::default();
        expiries.add(&expiring(NOW, MONTH));
        let newest = expiries.newest();
        for restart in 0..100 {
            let mut restarted = Expiries::default();
            restarted.add_all(newest, Hlc::from_wall(NOW + Micros(restart * MONTH / 50)));
            assert_eq!(restarted.newest(), newest, "also when it is over");
            assert!(restarted.times.len() < 300);
        }
        let mut nothing = Expiries::default();
        nothing.add_all(Hlc::ZERO, Hlc::from_wall(NOW));
        assert_eq!(nothing.newest(), Hlc::ZERO);
    }
}
