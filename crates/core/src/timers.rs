//! The timers of a replica.
use crate::Micros;
use std::collections::BTreeMap;

/// When each timer is due, in monotonic time. A replica is asked for the next one after every input, and has few: the answer is kept, and found
/// anew when a timer is moved.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    due: BTreeMap<T, Micros>,
    next: Option<Micros>,
}

impl<T: Copy + Ord> Timers<T> {
    pub fn new() -> Timers<T> {
        Timers {
            due: BTreeMap::new(),
            next: None,
        }
    }

    pub fn set(&mut self, timer: T, due: Micros) {
        let before = self.due.insert(timer, due);
        match self.next {
            Some(next) if before == Some(next) && due > next => self.find_next(),
            next => self.next = Some(next.map_or(due, |next| next.min(due))),
        }
    }

    /// When the first one is due.
    pub fn next(&self) -> Option<Micros> {
        self.next
    }

    /// Takes the one that is due first, if it is by now; of two that are due together, the lower one.
    pub fn take_due(&mut self, now: Micros) -> Option<T> {
        self.next.filter(|&next| next <= now)?;
        let (&timer, _) = self.due.iter().min_by_key(|&(_, &due)| due)?;
        self.due.remove(&timer);
        self.find_next();
        Some(timer)
    }

    fn find_next(&mut self) {
        self.next = self.due.values().copied().min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Beside a list that is searched each time.
        #[test]
        fn the_next_one_is_known(steps in proptest::collection::vec((0u8..6, 0u64..20, any::<bool>()), 0..60)) {
            let (mut timers, mut list): (Timers<u8>, BTreeMap<u8, Micros>) = (Timers::new(), BTreeMap::new());
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
