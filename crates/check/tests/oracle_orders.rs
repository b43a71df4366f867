//! Dumb ways to the same answers, straight from the definitions, on random small traces: sequential consistency and k-atomicity.
mod common;

use common::{any_trace, with_taken_away};
use turnbuckle_check::{History, Kind, Operation, Sequential, Value, Zones, causal, k_atomicity, sequential};

const TRACES: u64 = 100_000;

/// Enough for all that is as small as these.
const STATES: usize = 10_000;

/// Whether some order explains all reads: tried one after the other.
fn is_sequential(history: &History, before: &[u32], done: u32, values: &mut Vec<Value>) -> bool {
    if done.count_ones() as usize == history.operations.len() {
        return true;
    }
    (0..before.len()).any(|place| {
        let operation = &history.operations[place];
        let key = operation.key as usize;
        let is_read = operation.kind == Kind::Read;
        let is_next = done & 1 << place == 0 && before[place] & !done == 0;
        if !is_next || is_read && values[key] != operation.value {
            return false;
        }
        let value = std::mem::replace(&mut values[key], operation.value);
        let found = is_sequential(history, before, done | 1 << place, values);
        values[key] = value;
        found
    })
}

/// For each operation what its session has done before.
fn before(history: &History) -> Vec<u32> {
    let mut before = vec![0; history.operations.len()];
    for session in history.sessions() {
        let mut done = 0;
        for place in session {
            before[place] = done;
            if history.operations[place].kind != Kind::UnknownWrite {
                done |= 1 << place;
            }
        }
    }
    for &(delete, put) in &history.taken_away {
        before[delete] |= 1 << put;
    }
    before
}

/// Whether some order that respects time lets each read return one of the last `k` values.
fn is_atomic(operations: &[&Operation], k: usize, done: u32, written: &mut Vec<Value>) -> bool {
    if done.count_ones() as usize == operations.len() {
        return true;
    }
    (0..operations.len()).any(|place| {
        let operation = operations[place];
        let is_next = done & 1 << place == 0
            && (0..operations.len())
                .all(|other| done & 1 << other != 0 || operations[other].finish >= operation.start);
        if !is_next {
            return false;
        }
        if operation.kind == Kind::Read {
            let last = &written[written.len().saturating_sub(k)..];
            return last.contains(&operation.value) && is_atomic(operations, k, done | 1 << place, written);
        }
        written.push(operation.value);
        let found = is_atomic(operations, k, done | 1 << place, written);
        written.pop();
        found
    })
}

fn min_k(history: &History, key: usize) -> Option<u64> {
    let operations = history.operations.iter();
    let operations: Vec<&Operation> = operations
        .filter(|operation| operation.key as usize == key)
        .collect();
    let ks = 1..=operations.len() + 1;
    let min = ks
        .into_iter()
        .find(|&k| is_atomic(&operations, k, 0, &mut vec![Value::INITIAL]));
    min.map(|k| k as u64)
}

#[test]
fn a_trace_is_sequential_if_some_order_explains_it() {
    let (mut yes, mut searched_yes, mut searched_no) = (0, 0, 0);
    for seed in 0..2 * TRACES {
        let Some(history) = any_trace(seed / 2) else {
            continue;
        };
        let history = match seed % 2 {
            0 => history,
            _ => with_taken_away(history, seed),
        };
        let values = &mut vec![Value::INITIAL; history.keys.len()];
        let expected = is_sequential(&history, &before(&history), 0, values);
        let zones = Zones::of(&history);
        let found = sequential(&history, &zones, &causal(&history), STATES);
        assert_eq!(found.holds(), Some(expected), "seed {seed}: {history:?}");
        let is_atomic = zones.iter().all(Zones::is_atomic);
        yes += u32::from(expected);
        searched_yes += u32::from(expected && !is_atomic);
        searched_no += u32::from(found == Sequential::No(None));
    }
    println!("{yes} are sequential; searched: {searched_yes} yes, {searched_no} no");
    assert!(searched_yes > 100 && searched_no > 100);
}

#[test]
fn a_key_is_k_atomic_if_some_order_lets_each_read_lag_by_less_than_k() {
    let mut counts = [0; 5];
    let (mut none, mut above_the_bound) = (0, 0);
    for history in (0..TRACES).filter_map(any_trace) {
        for (key, found) in k_atomicity(&history).into_iter().enumerate() {
            let expected = min_k(&history, key);
            let exact = found.map(|found| found.exact.expect("a small key is decided"));
            assert_eq!(exact, expected, "{key} of {history:?}");
            let Some(found) = found else {
                none += 1;
                continue;
            };
            assert!(Some(found.at_least) <= expected, "{key} of {history:?}");
            above_the_bound += u32::from(Some(found.at_least) < expected);
            counts[expected.map_or(0, |k| k.min(4) as usize)] += 1;
        }
    }
    println!("k: {counts:?}, none: {none}, more than the bound from below: {above_the_bound}");
    assert!(counts[2..].iter().all(|&count| count > 100) && none > 100 && above_the_bound > 100);
}
