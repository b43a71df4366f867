//! k-atomicity: how many versions back a read may have been.
//!
//! A key is k-atomic if its operations have an order that respects time in which every read returns one of the last k writes, the
//! initial value being the first (Aiyer, Alvisi and Bazzi, 2005). 1-atomic is atomic. To find the least k is hard in general;
//! three things bound it, two of them in O(m log m) for m values. Let `f` be when a value had certainly taken effect: the
//! least finish of its write and its reads.
//!
//! - **From below**: all writes that began after `f` of a read's source and were over before the read began lie
//!   between the two, in any order.
//! - **From above**: the order by `f` of the writes, reads as early as possible, respects time. So the least k is not more than it needs.
//! - If the two differ, a **search**: writes are tried one after the other. A read that fits is taken at once,
//!   because that never excludes a solution; and a value that still has reads to come must stay among the last k.
//!
//! # Caveats
//!
//! - With a phantom, or a read from the future, no k suffices: there is no answer.
//! - The search is done for keys with at most 64 operations, and gives up after a number of states. Then only the bound from below is
//!   known; in practice that is mostly the answer.
use crate::{History, Kind, Operation, Value, zones::Fenwick};
use std::collections::HashSet;

/// The most operations of a key that is searched: one bit for each.
const MAX_OPERATIONS: usize = 64;

/// The most states that are visited for one key, and for all keys together.
const MAX_STATES: usize = 20_000;
const MAX_TOTAL_STATES: usize = 2_000_000;

/// How many versions back the reads of a key were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KAtomicity {
    /// The least k is not less.
    pub at_least: u64,
    /// The least k, if it was found.
    pub exact: Option<u64>,
}

/// For each key, in the order of [`History::keys`]; none where a read saw a phantom or the future.
pub fn k_atomicity(history: &History) -> Vec<Option<KAtomicity>> {
    let mut states = MAX_TOTAL_STATES;
    let keys = history.by_key().into_iter().enumerate();
    keys.map(|(key, places)| {
        let operations: Vec<&Operation> = places.iter().map(|&place| &history.operations[place]).collect();
        let values = values(&operations, history.keys[key].values.len())?;
        let (at_least, at_most) = bounds(&values);
        let exact = if at_least == at_most {
            Some(at_least)
        } else if operations.len() <= MAX_OPERATIONS {
            let mut budget = states.min(MAX_STATES);
            states -= budget;
            let exact = search(&operations, at_least, at_most, &mut budget);
            states += budget;
            exact
        } else {
            None
        };
        Some(KAtomicity { at_least, exact })
    })
    .collect()
}

/// The times of a value that are needed. Times are wide, for the initial value is older than any.
#[derive(Clone, Copy)]
struct Written {
    start: i128,
    finish: i128,
    effect: i128,
    last_read: Option<i128>,
}

const BEFORE_ALL: i128 = i64::MIN as i128 - 1;

/// The values of a key, the initial one first; none if a read cannot be explained by any order.
fn values(operations: &[&Operation], count: usize) -> Option<Vec<Written>> {
    let mut values = vec![None; count];
    values[Value::INITIAL.index()] = Some(Written {
        start: BEFORE_ALL,
        finish: BEFORE_ALL,
        effect: BEFORE_ALL,
        last_read: None,
    });
    for write in operations.iter().filter(|operation| operation.kind != Kind::Read) {
        values[write.value.index()] = Some(Written {
            start: i128::from(write.start),
            finish: i128::from(write.finish),
            effect: i128::from(write.finish),
            last_read: None,
        });
    }
    for read in operations.iter().filter(|operation| operation.kind == Kind::Read) {
        let written = values[read.value.index()].as_mut()?;
        if i128::from(read.finish) < written.start {
            return None;
        }
        written.effect = written.effect.min(i128::from(read.finish));
        written.last_read = written.last_read.max(Some(i128::from(read.start)));
    }
    Some(values.into_iter().flatten().collect())
}

/// The least k is between these two.
fn bounds(values: &[Written]) -> (u64, u64) {
    let mut starts: Vec<i128> = values.iter().map(|value| value.start).collect();
    let mut writes: Vec<&Written> = values.iter().collect();
    let mut effects = values.to_vec();
    starts.sort_unstable();
    writes.sort_unstable_by_key(|value| value.finish);
    // Of values that took effect at the same time, the one that was read last comes last.
    effects.sort_unstable_by_key(|value| (value.effect, value.last_read));
    // The last reads of all values in order of time, with the source's place in the order by effect.
    let sources = effects.iter().enumerate();
    let mut reads: Vec<(i128, usize)> = sources
        .filter_map(|(place, value)| Some((value.last_read?, place)))
        .collect();
    reads.sort_unstable();
    let (mut over, mut taken) = (Fenwick::new(starts.len()), 0);
    let (mut below, mut above) = (0, 0);
    for (read, place) in reads {
        while taken < writes.len() && writes[taken].finish < read {
            over.add(starts.partition_point(|&start| start < writes[taken].start), 1);
            taken += 1;
        }
        let effect = effects[place].effect;
        below = below.max(over.from(starts.partition_point(|&start| start <= effect)));
        let before_read = effects.partition_point(|other| other.effect < read);
        above = above.max(before_read.saturating_sub(place + 1) as u64);
    }
    (below + 1, above + 1)
}

/// The least k from one number to another, where the other is known to suffice. `None` if that takes too many states.
fn search(operations: &[&Operation], from: u64, to: u64, states: &mut usize) -> Option<u64> {
    for k in from..to {
        let mut search = Search::new(operations, k as usize, *states);
        let found = search.explains(0, vec![Some(Value::INITIAL)]);
        *states = search.states;
        if found? {
            return Some(k);
        }
    }
    Some(to)
}

/// What is done, and the last k values, the newest last. Values without reads to come are forgotten.
type State = (u64, Vec<Option<Value>>);

struct Search<'a> {
    operations: &'a [&'a Operation],
    /// For each operation those that were over before it began.
    before: Vec<u64>,
    k: usize,
    states: usize,
    hopeless: HashSet<State>,
}

impl<'a> Search<'a> {
    fn new(operations: &'a [&'a Operation], k: usize, states: usize) -> Search<'a> {
        let before = operations.iter().map(|operation| {
            let is_before = |&place: &usize| operations[place].finish < operation.start;
            (0..operations.len())
                .filter(is_before)
                .fold(0, |all, place| all | 1 << place)
        });
        Search {
            operations,
            before: before.collect(),
            k,
            states,
            hopeless: HashSet::new(),
        }
    }

    /// Whether what is left can follow. None if the states are used up.
    fn explains(&mut self, done: u64, mut recent: Vec<Option<Value>>) -> Option<bool> {
        let done = self.with_reads(done, &recent);
        if done.count_ones() as usize == self.operations.len() {
            return Some(true);
        }
        for value in &mut recent {
            *value = value.filter(|&value| self.is_awaited(done, value));
        }
        let state = (done, recent);
        if self.hopeless.contains(&state) {
            return Some(false);
        }
        self.states = self.states.checked_sub(1)?;
        for place in 0..self.operations.len() {
            let operation = self.operations[place];
            if operation.kind == Kind::Read || !self.is_next(done, place) {
                continue;
            }
            let mut recent = state.1.clone();
            recent.push(Some(operation.value));
            let is_lost = recent.len() > self.k && recent.remove(0).is_some();
            if !is_lost && self.explains(done | 1 << place, recent)? {
                return Some(true);
            }
        }
        self.hopeless.insert(state);
        Some(false)
    }

    fn is_next(&self, done: u64, place: usize) -> bool {
        done & 1 << place == 0 && self.before[place] & !done == 0
    }

    /// Does all reads that fit.
    fn with_reads(&self, mut done: u64, recent: &[Option<Value>]) -> u64 {
        let fits = |done: u64, place: usize| {
            let operation = self.operations[place];
            operation.kind == Kind::Read
                && recent.contains(&Some(operation.value))
                && self.is_next(done, place)
        };
        while let Some(place) = (0..self.operations.len()).find(|&place| fits(done, place)) {
            done |= 1 << place;
        }
        done
    }

    fn is_awaited(&self, done: u64, value: Value) -> bool {
        let mut operations = self.operations.iter().enumerate();
        operations.any(|(place, operation)| {
            operation.kind == Kind::Read && operation.value == value && done & 1 << place == 0
        })
    }
}
