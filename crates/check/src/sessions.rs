//! The four session guarantees, from real time and session order alone.
//!
//! A trace has no order of versions, so a write is *known older* than another if it had certainly taken effect (some operation
//! of its cluster was over) before the other began. The initial value is older than every write. Reads of phantoms and from the
//! future are passed over.
use crate::{History, Kind, Operation, Value};
use serde::Serialize;
use std::collections::HashMap;

/// How many reads break each guarantee. A read may break several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SessionViolations {
    /// Read your writes: the client had written something newer to the key.
    pub ryw: u64,
    /// Monotonic reads: the client had read something newer of the key.
    pub mr: u64,
    /// Monotonic writes: the client had read a write of somebody who had written something newer to the key before.
    pub mw: u64,
    /// Writes follow reads: the client had read a write of somebody who had read something newer of the key before.
    pub wfr: u64,
}

/// When each value had certainly taken effect: per key, per value; `i64::MIN` for the initial one.
pub(crate) fn effects(history: &History) -> Vec<Vec<i64>> {
    let mut effects: Vec<Vec<i64>> = history
        .keys
        .iter()
        .map(|key| {
            let mut of_key = vec![i64::MAX; key.values.len()];
            of_key[Value::INITIAL.index()] = i64::MIN;
            of_key
        })
        .collect();
    for operation in &history.operations {
        if operation.kind != Kind::Read || is_sensible(history, operation) {
            let effect = &mut effects[operation.key as usize][operation.value.index()];
            *effect = (*effect).min(operation.finish);
        }
    }
    effects
}

/// A read that returned what had been written, or the initial value.
pub(crate) fn is_sensible(history: &History, read: &Operation) -> bool {
    match history.writer_of(read) {
        Some(write) => read.finish >= write.start,
        None => read.value == Value::INITIAL,
    }
}

/// One client's doings on one key, by position in its session.
#[derive(Default)]
struct OnKey {
    /// Of acknowledged writes: position, start. Both rise.
    writes: Vec<(usize, i64)>,
    /// Of reads: position, and the greatest start of a write read so far.
    reads: Vec<(usize, i64)>,
}

/// The last entry before a position.
fn last_before(entries: &[(usize, i64)], position: usize) -> Option<i64> {
    let place = entries.partition_point(|&(at, _)| at < position);
    Some(entries[place.checked_sub(1)?].1)
}

/// What a client knows while its session is gone through.
#[derive(Default)]
struct Knowledge {
    /// For each other client, the greatest position of a write of theirs that was read.
    of_client: HashMap<u32, usize>,
    /// The same for each of their keys.
    of_client_on_key: HashMap<(u32, u32), usize>,
}

/// Counts violations of the session guarantees. O(n · clients · log n).
pub fn session_violations(history: &History) -> SessionViolations {
    let sessions = history.sessions();
    let effects = effects(history);
    let mut positions = vec![0; history.operations.len()];
    let mut on_key: HashMap<(u32, u32), OnKey> = HashMap::new();
    let mut first_read: HashMap<(u32, u32, Value), usize> = HashMap::new();
    for session in &sessions {
        for (position, &place) in session.iter().enumerate() {
            positions[place] = position;
            let operation = &history.operations[place];
            let (client, key) = (operation.client, operation.key);
            let mine = on_key.entry((client, key)).or_default();
            match operation.kind {
                Kind::Write => mine.writes.push((position, operation.start)),
                Kind::UnknownWrite => {}
                Kind::Read if !is_sensible(history, operation) => {}
                Kind::Read => {
                    let start = history.writer_of(operation).map_or(i64::MIN, |write| write.start);
                    let before = mine.reads.last().map_or(i64::MIN, |&(_, start)| start);
                    mine.reads.push((position, before.max(start)));
                    first_read
                        .entry((client, key, operation.value))
                        .or_insert(position);
                }
            }
        }
    }
    let mut violations = SessionViolations::default();
    for session in &sessions {
        let mut known = Knowledge::default();
        for (position, &place) in session.iter().enumerate() {
            let read = &history.operations[place];
            if read.kind != Kind::Read || !is_sensible(history, read) {
                continue;
            }
            let (client, key) = (read.client, read.key);
            let effect = effects[key as usize][read.value.index()];
            // Whether the source is known older than a write that began then.
            let is_older = |start: Option<i64>| start.is_some_and(|start| effect < start);
            let mine = &on_key[&(client, key)];
            violations.ryw += u64::from(is_older(last_before(&mine.writes, position)));
            violations.mr += u64::from(is_older(last_before(&mine.reads, position)));
            let (mut mw, mut wfr) = (false, false);
            for (&other, &seen) in &known.of_client {
                let Some(theirs) = on_key.get(&(other, key)) else {
                    continue;
                };
                mw |= is_older(last_before(&theirs.writes, seen));
                wfr |= is_older(last_before(&theirs.reads, seen));
                // What was read is what the other had written or read, before it wrote something newer to the same key.
                let Some(&seen_here) = known.of_client_on_key.get(&(other, key)) else {
                    continue;
                };
                let is_before = |position: usize| position < seen_here;
                if let Some(writer) = history.keys[key as usize].writers[read.value.index()] {
                    let write = &history.operations[writer];
                    mw |= write.kind == Kind::Write && write.client == other && is_before(positions[writer]);
                    wfr |= first_read
                        .get(&(other, key, read.value))
                        .is_some_and(|&position| is_before(position));
                }
            }
            violations.mw += u64::from(mw);
            violations.wfr += u64::from(wfr);
            if let Some(writer) = history.keys[key as usize].writers[read.value.index()] {
                let other = history.operations[writer].client;
                if other != client {
                    let seen = known.of_client.entry(other).or_default();
                    *seen = (*seen).max(positions[writer]);
                    let seen = known.of_client_on_key.entry((other, key)).or_default();
                    *seen = (*seen).max(positions[writer]);
                }
            }
        }
    }
    violations
}
