//! Timers of replicas and sessions.
use crate::Micros;
use std::collections::{BTreeMap, BTreeSet};

/// When each timer is due, in monotonic time. There may be many timers, such as those of all sessions of a gateway: each step takes logarithmic time.
/// A replica is asked for the next due time after every input, so that time is kept.
#[derive(Debug)]
pub struct Timers<T> {
    due: BTreeMap<T, Micros>,
    /// The same timers, by time.
    queue: BTreeSet<(Micros, T)>,
    next: Option<Micros>,
}

impl<T: Copy + Ord> Timers<T> {
    /// Sets a timer, or sets it again.
    pub fn set(&mut self, timer: T, due: Micros) {
        if let Some(before) = self.due.insert(timer, due) {
            self.queue.remove(&(before, timer));
        }
        self.queue.insert((due, timer));
        self.find_next();
    }

    /// Forgets a timer, if it is set.
    pub fn cancel(&mut self, timer: T) {
        if let Some(due) = self.due.remove(&timer) {
            self.queue.remove(&(due, timer));
            self.find_next();
        }
    }

    /// When the first timer is due.
    pub fn next(&self) -> Option<Micros> {
        self.next
    }

    /// Takes the timer that is due first, if it is due at `now`. Of two that are due at the same time, it takes the lower one.
    pub fn take_due(&mut self, now: Micros) -> Option<T> {
        self.next.filter(|&next| next <= now)?;
        let (_, timer) = self.queue.pop_first()?;
        self.due.remove(&timer);
        self.find_next();
        Some(timer)
    }

    fn find_next(&mut self) {
        self.next = self.queue.first().map(|&(due, _)| due);
    }
}

impl<T> Default for Timers<T> {
    fn default() -> Timers<T> {
        Timers {
            due: BTreeMap::new(),
            queue: BTreeSet::new(),
            next: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares the timers with a list that is searched each time.
        #[test]
        fn the_next_one_is_known(steps in proptest::collection::vec((0u8..6, 0u64..20, any::<bool>()), 0..60)) {
            let (mut timers, mut list): (Timers<u8>, BTreeMap<u8, Micros>) = Default::default();
            for (timer, at, sets) in steps {
                let at = Micros(at);
                if sets {
                    timers.set(timer, at);
                    list.insert(timer, at);
                } else {
                    let due = list.iter().filter(|&(_, &due)| due <= at).min_by_key(|&(&timer, &due)| (due, timer));
                    let due = due.map(|(&timer, _)| timer);
                    prop_assert_eq!(timers.take_due(at), due);
                    due.map(|timer| list.remove(&timer));
                }
                prop_assert_eq!(timers.next(), list.values().copied().min());
            }
        }
    }
}
