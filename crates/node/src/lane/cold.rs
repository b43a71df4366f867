//! Inputs whose keys are not in memory.
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use turnbuckle_core::Key;

/// Inputs that wait until their keys have been fetched, and the keys to fetch.
///
/// Order is kept per key: an input waits behind every earlier input that names one of its keys.
pub(crate) struct Cold<Input> {
    waiting: VecDeque<(Vec<Key>, Input)>,
    /// The number of waiting inputs that name each key.
    named: BTreeMap<Key, usize>,
    /// The keys to fetch, in the order in which they were asked for. In another order, keys that are asked for again and again would hold
    /// up all others.
    wanted: VecDeque<Key>,
    /// The keys in `wanted`, and those that are being fetched.
    asked: BTreeSet<Key>,
    /// Inputs whose keys could not be read. They are tried again.
    aside: Vec<Input>,
}

impl<Input> Cold<Input> {
    pub fn new() -> Cold<Input> {
        Cold {
            waiting: VecDeque::new(),
            named: BTreeMap::new(),
            wanted: VecDeque::new(),
            asked: BTreeSet::new(),
            aside: Vec::new(),
        }
    }

    /// Whether an input on this key would overtake one that waits.
    pub fn blocks(&self, key: &Key) -> bool {
        !self.named.is_empty() && self.named.contains_key(key)
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The number of keys that are to be fetched or are being fetched.
    pub fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Parks `input`, which names `keys`. Those that are not resident are to be fetched.
    pub fn park(&mut self, keys: Vec<Key>, input: Input, is_resident: impl Fn(&Key) -> bool) {
        self.name(&keys, is_resident);
        self.waiting.push_back((keys, input));
    }

    /// Counts the keys of an input that waits, and asks for those that are not resident.
    fn name(&mut self, keys: &[Key], is_resident: impl Fn(&Key) -> bool) {
        for key in keys {
            *self.named.entry(key.clone()).or_default() += 1;
            if !is_resident(key) {
                self.want(key);
            }
        }
    }

    /// The keys of the input that has waited longest.
    pub fn first_keys(&self) -> &[Key] {
        self.waiting.front().map_or(&[], |(keys, _)| keys)
    }

    /// Takes the input that has waited longest out, if it is one of these.
    pub fn take_first_if(&mut self, is_one: impl Fn(&Input) -> bool) -> Option<Input> {
        self.waiting.front().filter(|(_, input)| is_one(input))?;
        let (keys, input) = self.waiting.pop_front()?;
        self.forget(&keys);
        Some(input)
    }

    /// Asks again for the keys of the input that has waited longest: some may have been evicted while others were fetched. From now on none of
    /// them is evicted.
    pub fn want_first_again(&mut self, is_resident: impl Fn(&Key) -> bool) {
        let Some((keys, _)) = self.waiting.front() else {
            return;
        };
        for key in keys {
            if !is_resident(key) && self.asked.insert(key.clone()) {
                self.wanted.push_back(key.clone());
            }
        }
    }

    /// Asks for a key, to be fetched when its turn comes.
    pub fn want(&mut self, key: &Key) {
        if self.asked.insert(key.clone()) {
            self.wanted.push_back(key.clone());
        }
    }

    /// Keys that a stream waits for now, or will soon. They are fetched before all others. A stream names one key after the other, and each
    /// would otherwise wait behind everything that clients ask for.
    pub fn want_first<'a>(&mut self, keys: impl DoubleEndedIterator<Item = &'a Key>) {
        for key in keys.rev() {
            if !self.asked.insert(key.clone()) {
                let Some(place) = self.wanted.iter().position(|wanted| wanted == key) else {
                    // The key is being fetched.
                    continue;
                };
                self.wanted.remove(place);
            }
            self.wanted.push_front(key.clone());
        }
    }

    /// Takes keys to fetch now, at most `max`. [`Cold::fetched`] must be called for each.
    pub fn take_wanted(&mut self, max: usize) -> Vec<Key> {
        let count = max.min(self.wanted.len());
        self.wanted.drain(..count).collect()
    }

    pub fn fetched(&mut self, key: &Key) {
        self.asked.remove(key);
    }

    /// Takes the first input that may run: all its keys are resident, and no earlier input names any of them.
    ///
    /// What has been handled since an input was parked may have changed what it needs. So `keys_now` says again which keys the input names. If one
    /// of them is missing, the input keeps its place and waits for that key, too.
    pub fn take_runnable(
        &mut self,
        is_resident: impl Fn(&Key) -> bool,
        keys_now: impl Fn(&Input) -> Vec<Key>,
    ) -> Option<Input> {
        loop {
            let index = self.first_runnable(&is_resident)?;
            let (keys, input) = &self.waiting[index];
            let now = keys_now(input);
            if now == *keys {
                let (keys, input) = self.waiting.remove(index).expect("the index was just found");
                self.forget(&keys);
                return Some(input);
            }
            self.rename(index, now, &is_resident);
        }
    }

    fn first_runnable(&self, is_resident: impl Fn(&Key) -> bool) -> Option<usize> {
        let mut before: BTreeSet<&Key> = BTreeSet::new();
        self.waiting.iter().position(|(keys, _)| {
            let may_run = keys.iter().all(|key| is_resident(key) && !before.contains(key));
            before.extend(keys);
            may_run
        })
    }

    /// The input at `index` now names `keys`.
    fn rename(&mut self, index: usize, keys: Vec<Key>, is_resident: impl Fn(&Key) -> bool) {
        self.name(&keys, is_resident);
        let named_before = std::mem::replace(&mut self.waiting[index].0, keys);
        self.forget(&named_before);
    }

    /// Takes out every input that names `key`, which cannot be read.
    pub fn take_failed(&mut self, key: &Key) -> Vec<Input> {
        let (failed, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(keys, _)| keys.contains(key));
        self.waiting = kept;
        failed
            .into_iter()
            .map(|(keys, input)| {
                self.forget(&keys);
                input
            })
            .collect()
    }

    /// Keeps an input, of which a key could not be read, to be tried again later.
    pub fn set_aside(&mut self, input: Input) {
        self.aside.push(input);
    }

    /// Takes the inputs to try again now.
    pub fn take_aside(&mut self) -> Vec<Input> {
        std::mem::take(&mut self.aside)
    }

    fn forget(&mut self, keys: &[Key]) {
        for key in keys {
            let count = self
                .named
                .get_mut(key)
                .expect("a waiting input's keys are counted");
            *count -= 1;
            if *count == 0 {
                self.named.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_evicted_while_another_one_was_fetched_is_asked_for_again() {
        let mut cold = Cold::new();
        let (x, y): (Key, Key) = ("x".into(), "y".into());
        cold.park(vec![x.clone(), y.clone()], "both", |key| *key == x);
        assert_eq!(cold.first_keys(), [x.clone(), y.clone()]);
        assert_eq!(cold.take_wanted(9), std::slice::from_ref(&y));
        cold.fetched(&y);
        cold.want_first_again(|key| *key == y);
        assert_eq!(cold.take_wanted(9), std::slice::from_ref(&x));
    }

    #[test]
    fn inputs_on_one_key_keep_their_order_and_others_pass() {
        let mut cold = Cold::new();
        let (x, y): (Key, Key) = ("x".into(), "y".into());
        cold.park(vec![x.clone()], "get x", |_| false);
        cold.park(vec![x.clone(), y.clone()], "get x y", |key| *key == y);
        assert!(cold.blocks(&y) && cold.blocks(&x));
        assert_eq!(cold.take_wanted(9), std::slice::from_ref(&x));
        assert!(cold.take_wanted(9).is_empty(), "a key is fetched once");
        let keys_now = |input: &&str| -> Vec<Key> { input.split(' ').skip(1).map(Key::from).collect() };
        assert_eq!(cold.take_runnable(|key| *key == y, keys_now), None);
        cold.fetched(&x);
        assert_eq!(cold.take_runnable(|_| true, keys_now), Some("get x"));
        assert_eq!(cold.take_runnable(|_| true, keys_now), Some("get x y"));
        assert!(!cold.blocks(&x) && cold.len() == 0);
    }

    #[test]
    fn keys_are_fetched_in_the_order_in_which_they_were_asked_for() {
        let mut cold: Cold<()> = Cold::new();
        let key = |name: &str| -> Key { name.into() };
        ["y", "z", "x", "y"].iter().for_each(|name| cold.want(&key(name)));
        assert_eq!(cold.take_wanted(1), [key("y")]);
        cold.want(&key("y"));
        cold.fetched(&key("y"));
        cold.want(&key("y"));
        assert_eq!(cold.take_wanted(1), [key("z")], "it was asked for before");
        assert_eq!(cold.take_wanted(9), [key("x"), key("y")]);
    }

    #[test]
    fn what_a_stream_waits_for_comes_first() {
        let mut cold: Cold<()> = Cold::new();
        let key = |name: &str| -> Key { name.into() };
        ["a", "b", "c"].iter().for_each(|name| cold.want(&key(name)));
        assert_eq!(cold.take_wanted(1), [key("a")]);
        cold.want_first([key("a"), key("x"), key("c")].iter());
        assert_eq!(
            cold.take_wanted(9),
            [key("x"), key("c"), key("b")],
            "a is being fetched, and c was wanted already"
        );
    }

    #[test]
    fn a_key_that_cannot_be_read_fails_all_that_name_it() {
        let mut cold = Cold::new();
        let (x, y): (Key, Key) = ("x".into(), "y".into());
        cold.park(vec![x.clone()], 1, |_| false);
        cold.park(vec![y.clone()], 2, |_| false);
        cold.park(vec![y.clone(), x.clone()], 3, |_| false);
        assert_eq!(cold.take_failed(&x), [1, 3]);
        assert_eq!(cold.take_runnable(|_| true, |_| vec![y.clone()]), Some(2));
    }

    #[test]
    fn an_input_that_needs_another_key_by_then_waits_for_it_at_its_place() {
        let mut cold = Cold::new();
        let (x, y): (Key, Key) = ("x".into(), "y".into());
        cold.park(vec![x.clone()], 1, |_| false);
        cold.park(vec![x.clone()], 2, |_| false);
        assert_eq!(cold.take_wanted(9), std::slice::from_ref(&x));
        cold.fetched(&x);
        let keys_now = |input: &i32| match input {
            1 => vec![x.clone(), y.clone()],
            _ => vec![x.clone()],
        };
        assert_eq!(
            cold.take_runnable(|key| *key == x, keys_now),
            None,
            "the second one waits behind it"
        );
        assert_eq!(cold.take_wanted(9), std::slice::from_ref(&y));
        assert!(cold.blocks(&x) && cold.blocks(&y));
        cold.fetched(&y);
        assert_eq!(cold.take_runnable(|_| true, keys_now), Some(1));
        assert_eq!(cold.take_runnable(|_| true, keys_now), Some(2));
        assert!(!cold.blocks(&x) && !cold.blocks(&y) && cold.len() == 0);
    }
}
