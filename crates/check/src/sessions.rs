//! The four session guarantees, from session order and the order of each key's writes ([`Order`]).
//!
//! A read `r` of a key `x` by client `c` breaks
//!
//! - **read your writes** if `c` had written something newer to `x`;
//! - **monotonic reads** if `c` had read something newer of `x`;
//! - **monotonic writes** if `c` had read a write of another client that had, before it, written something newer to `x`, or written
//!   what `r` returned if the write that `c` had read is on `x` too;
//! - **writes follow reads** in the same way, if the other client had read it before its write.
//!
//! In these two, a delete that removed the value of a write has read it ([`History::taken_away`]). The last two reach across keys. Stores that promise them within a key only are judged by variants in which the write that `c` had
//! read is on `x`. Both are promises of the write that the reader had read, so only where that one promises them ([`Level::promise`]) are they broken; a write that names no level, or one that says only how
//! it is carried out, counts as promising both. Reads of phantoms and from the future are skipped. The reads of a snapshot are at one place of the session:
//! none of them comes before another.
//!
//! For the last two, every other client must be checked, which takes most of the time. This is skipped for a read of the write that
//! began last: every write that the reader had seen, and everything before it in the session of its client, had begun by then.
use crate::receipts::promised_level;
use crate::{History, Kind, Operation, Order, Value, order::is_sensible};
use serde::Serialize;
use std::collections::HashMap;
use turnbuckle_core::{Level, Promise};

/// How many reads break each guarantee. A read may break several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SessionViolations {
    /// Read your writes: the client had written something newer to the key.
    pub ryw: u64,
    /// Monotonic reads: the client had read something newer of the key.
    pub mr: u64,
    /// Monotonic writes: the client had read a write of another client that had written something newer to the key before.
    pub mw: u64,
    /// Writes follow reads: the client had read a write of another client that had read something newer of the key before.
    pub wfr: u64,
}

impl SessionViolations {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == SessionViolations::default()
    }

    pub(crate) fn add(&mut self, broken: Broken) {
        self.ryw += u64::from(broken.ryw);
        self.mr += u64::from(broken.mr);
        self.mw += u64::from(broken.mw);
        self.wfr += u64::from(broken.wfr);
    }
}

/// What one read breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Broken {
    /// Read your writes.
    pub ryw: bool,
    /// Monotonic reads.
    pub mr: bool,
    /// Monotonic writes.
    pub mw: bool,
    /// Writes follow reads.
    pub wfr: bool,
    /// Monotonic writes within the key.
    pub mw_within_key: bool,
    /// Writes follow reads within the key.
    pub wfr_within_key: bool,
    /// Monotonic writes within the key, as a write promised them that the client had read.
    pub mw_promised: bool,
    /// Writes follow reads within the key, as a write promised them that the client had read.
    pub wfr_promised: bool,
}

/// One client's operations on one key, by position in its session.
#[derive(Default)]
struct OnKey {
    /// Of acknowledged writes: position, and the newest so far.
    writes: Vec<(u32, i64)>,
    /// Of reads: position, and the newest write read so far.
    reads: Vec<(u32, i64)>,
}

/// The last entry before a position.
fn last_before(entries: &[(u32, i64)], position: u32) -> Option<i64> {
    let place = entries.partition_point(|&(at, _)| at < position);
    Some(entries[place.checked_sub(1)?].1)
}

fn push(entries: &mut Vec<(u32, i64)>, position: u32, begin: i64) {
    let newest = entries.last().map_or(i64::MIN, |&(_, begin)| begin);
    entries.push((position, newest.max(begin)));
}

/// What a client knows at the current position of its session.
#[derive(Default)]
struct Knowledge {
    /// For each other client, the greatest position of a write of that client that was read.
    of_client: HashMap<u32, u32>,
    /// The same for each key of that client.
    of_client_on_key: HashMap<(u32, u32), SeenOnKey>,
}

/// The greatest position of a write on a key that was read: of all, and of those that promise monotonic writes, or writes follow reads.
#[derive(Debug, Clone, Copy, Default)]
struct SeenOnKey {
    any: u32,
    mw: Option<u32>,
    wfr: Option<u32>,
}

/// The indexes that are used while sessions are checked.
struct Doings<'a> {
    history: &'a History,
    order: &'a Order,
    /// The position of each operation in its session. The reads of a snapshot have the same position.
    positions: Vec<u32>,
    /// By client and key.
    on_key: HashMap<(u32, u32), OnKey>,
    first_read: HashMap<(u32, u32, Value), u32>,
    /// For each key its writes by start: start, value, and the newest so far.
    writes: Vec<Vec<(i64, Value, i64)>>,
    /// Some operation began before its client's last one was over: what came before it in its session may have begun after it.
    is_untimed: bool,
    /// Of each operation: whether its level promises monotonic writes, and writes follow reads.
    promises: Vec<(bool, bool)>,
}

/// Of each operation: whether its level promises monotonic writes, and writes follow reads. One without a level, or with one that says nothing of it, counts as promising both.
fn promises(history: &History) -> Vec<(bool, bool)> {
    let levels = history
        .levels
        .iter()
        .map(|name| match name.parse::<Level>().map(Level::promise) {
            Ok(Promise::RealValues) => (false, false),
            Ok(Promise::Session { mw, wfr, .. }) => (mw, wfr),
            _ => (true, true),
        });
    let levels: Vec<(bool, bool)> = levels.collect();
    let mut promises = vec![(true, true); history.operations.len()];
    for promise in &history.promises {
        if let Some(level) = promised_level(promise) {
            let operations = promise.operations.clone();
            operations.for_each(|place| promises[place as usize] = levels[level as usize]);
        }
    }
    promises
}

impl<'a> Doings<'a> {
    fn of(history: &'a History, order: &'a Order, sessions: &[Vec<usize>]) -> Doings<'a> {
        let mut doings = Doings {
            history,
            order,
            positions: vec![0; history.operations.len()],
            on_key: HashMap::new(),
            first_read: HashMap::new(),
            writes: vec![Vec::new(); history.keys.len()],
            is_untimed: false,
            promises: promises(history),
        };
        for session in sessions {
            let (mut position, mut before, mut busy_until) = (0, None, i64::MIN);
            for &place in session {
                let operation = &history.operations[place];
                let record = Some(operation.record);
                doings.is_untimed |= before != record && operation.start < busy_until;
                if operation.kind != Kind::UnknownWrite {
                    busy_until = busy_until.max(operation.finish);
                }
                position += u32::from(before.is_some() && before != record);
                before = record;
                doings.note(place, position);
            }
        }
        for of_key in &mut doings.writes {
            of_key.sort_unstable();
            let mut newest = i64::MIN;
            for (_, _, begin) in of_key {
                newest = newest.max(*begin);
                *begin = newest;
            }
        }
        doings
    }

    fn note(&mut self, place: usize, position: u32) {
        self.positions[place] = position;
        let operation = &self.history.operations[place];
        let (client, key) = (operation.client, operation.key);
        if operation.kind != Kind::Read {
            let write = (operation.start, operation.value, self.order.begin(operation));
            self.writes[key as usize].push(write);
        }
        let mine = self.on_key.entry((client, key)).or_default();
        match operation.kind {
            Kind::Write => push(&mut mine.writes, position, self.order.begin(operation)),
            Kind::UnknownWrite => {}
            Kind::Read if !is_sensible(self.history, operation) => {}
            Kind::Read => {
                push(&mut mine.reads, position, self.order.begin(operation));
                let first = (client, key, operation.value);
                self.first_read.entry(first).or_insert(position);
            }
        }
    }

    /// Whether another write than the one that was read had begun by then, and is newer or began later.
    fn may_have_been_replaced(&self, read: &Operation, effect: i64) -> bool {
        let writes = &self.writes[read.key as usize];
        let begun = &writes[..writes.partition_point(|&(start, _, _)| start <= read.start)];
        let Some(&(_, last, newest)) = begun.last() else {
            return self.is_untimed;
        };
        let source = self.history.writer_of(read).map_or(i64::MIN, |write| write.start);
        let is_tied = begun.len() > 1 && begun[begun.len() - 2].0 >= source;
        self.is_untimed || effect < newest || last != read.value || is_tied
    }

    fn judge(&self, place: usize, known: &Knowledge) -> Broken {
        let read = &self.history.operations[place];
        let (position, key) = (self.positions[place], read.key);
        let effect = self.order.effect(read);
        let is_older = |begin: Option<i64>| begin.is_some_and(|begin| effect < begin);
        let mine = &self.on_key[&(read.client, key)];
        let mut broken = Broken {
            ryw: is_older(last_before(&mine.writes, position)),
            mr: is_older(last_before(&mine.reads, position)),
            ..Broken::default()
        };
        if !self.may_have_been_replaced(read, effect) {
            return broken;
        }
        let writer = self.history.keys[key as usize].writers[read.value.index()];
        for (&other, &seen) in &known.of_client {
            let Some(theirs) = self.on_key.get(&(other, key)) else {
                continue;
            };
            broken.mw |= is_older(last_before(&theirs.writes, seen));
            broken.wfr |= is_older(last_before(&theirs.reads, seen));
            let Some(&seen_here) = known.of_client_on_key.get(&(other, key)) else {
                continue;
            };
            // What was read is older than what the other had written or read before; or it is that, and the other then wrote something newer to the same key.
            let their_write = writer.filter(|&writer| {
                let write = &self.history.operations[writer];
                write.kind == Kind::Write && write.client == other
            });
            let their_read = writer.and_then(|_| self.first_read.get(&(other, key, read.value)));
            let mw = |seen: u32| {
                is_older(last_before(&theirs.writes, seen))
                    || their_write.is_some_and(|writer| self.positions[writer] < seen)
            };
            let wfr = |seen: u32| {
                is_older(last_before(&theirs.reads, seen))
                    || their_read.is_some_and(|&position| position < seen)
            };
            broken.mw_within_key |= mw(seen_here.any);
            broken.wfr_within_key |= wfr(seen_here.any);
            broken.mw_promised |= seen_here.mw.is_some_and(mw);
            broken.wfr_promised |= seen_here.wfr.is_some_and(wfr);
        }
        broken.mw |= broken.mw_within_key;
        broken.wfr |= broken.wfr_within_key;
        broken
    }

    fn learn(&self, place: usize, known: &mut Knowledge) {
        let Some(writer) = self.history.seen_by(place) else {
            return;
        };
        let read = &self.history.operations[place];
        let other = self.history.operations[writer].client;
        if other != read.client {
            let seen = known.of_client.entry(other).or_default();
            *seen = (*seen).max(self.positions[writer]);
            let seen = known.of_client_on_key.entry((other, read.key)).or_default();
            let position = self.positions[writer];
            let (mw, wfr) = self.promises[writer];
            seen.any = seen.any.max(position);
            seen.mw = seen.mw.max(mw.then_some(position));
            seen.wfr = seen.wfr.max(wfr.then_some(position));
        }
    }
}

/// Passes every read that breaks a guarantee to `each`, with its place among the operations. O(n · clients · log n).
pub fn each_session_violation(history: &History, order: &Order, mut each: impl FnMut(usize, Broken)) {
    let sessions = history.sessions();
    let doings = Doings::of(history, order, &sessions);
    let counts = |&&place: &&usize| {
        let operation = &history.operations[place];
        operation.kind == Kind::Read && is_sensible(history, operation)
    };
    for session in &sessions {
        let mut known = Knowledge::default();
        // All operations of a position are judged before the client learns from them.
        for together in session.chunk_by(|&one, &other| doings.positions[one] == doings.positions[other]) {
            for &place in together.iter().filter(counts) {
                let broken = doings.judge(place, &known);
                if broken != Broken::default() {
                    each(place, broken);
                }
            }
            let has_seen =
                |&&place: &&usize| counts(&&place) || history.operations[place].kind == Kind::Write;
            for &place in together.iter().filter(has_seen) {
                doings.learn(place, &mut known);
            }
        }
    }
}

/// Counts violations of the session guarantees. O(n · clients · log n).
pub fn session_violations(history: &History) -> SessionViolations {
    let mut violations = SessionViolations::default();
    each_session_violation(history, &Order::of(history), |_, broken| violations.add(broken));
    violations
}
