//! Explanations: for each promise that a trace broke, the smallest set of operations that shows it, and an explanation in words that needs
//! no knowledge of the papers.
//!
//! | property | what is shown |
//! |---|---|
//! | what the trace promised: levels, receipts | the operation, and what contradicts it |
//! | what records say about versions, snapshots and failures | the records that contradict each other |
//! | one copy (atomicity) | how many operations must be removed until the trace looks like one copy, and which |
//! | the same | two values of a key between which no order is possible: three to six operations |
//! | the same | a read of a value that no client wrote; a read that was over before its write began |
//! | causal consistency | the read, the write that it missed and how the write precedes the read; or a cycle (CC, CCv, CM) |
//! | sequential consistency | the same; or that all orders were tried |
//! | session guarantees | the read, the newer operation that its client knew, and how it knew it |
//! | staleness | the read that missed a write for the longest time, that write, and the one that it saw |
//! | convergence | two last reads that disagree, and the writes |
//!
//! The analyses decide what is wrong, and this module does not: see [`crate::Zones`], [`crate::Orders`],
//! [`crate::each_session_violation`], [`crate::each_stale_read`], [`crate::converged`] and [`crate::Audit`]. They hand over a read.
//! Only then the few operations that show what is wrong with it are searched, in O(n), for the worst keys of each property. So the
//! output is bounded for a trace of any length, and so is the work besides that of the analyses.
//!
//! If versions order the writes of a key ([`Order`]), versions show what is older; otherwise time does.
use crate::{
    Audit, Because, Edge, History, Operation, Order, Orders, Witness, Zones,
    levels::LevelJudge,
    order::is_sensible,
    timeline::{Clock, did, draw, key_name, readable, value_name, wrap},
};
use std::cmp::Reverse;

mod one_copy;
mod orders;
mod promises;
mod sessions;
mod staleness;

use self::{
    one_copy::{conflicts, distance, futures, phantoms},
    orders::whole_orders,
    promises::{findings, promises},
    sessions::sessions,
    staleness::{disagreements, stale_reads},
};

/// How many keys are explained for each property by default.
pub const WORST_KEYS: usize = 3;
/// How many of the values that must be removed are named.
const MAX_NAMED: usize = 5;

/// The explanation of one broken promise.
///
/// Other analyses make their explanations with [`Explanation::new`]. In the words, `[1]` is the first operation of the witness, and so on. A
/// [`Clock`] of the witness's operations prints times as the drawing does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What is broken, in one line.
    pub title: String,
    /// The argument, a paragraph each.
    pub words: Vec<String>,
    /// The operations that show it; none if there are only words.
    pub witness: Witness,
}

impl Explanation {
    /// From its parts.
    pub fn new(title: impl Into<String>, words: Vec<String>, witness: Witness) -> Explanation {
        Explanation {
            title: title.into(),
            words,
            witness,
        }
    }

    /// As text: the title, the words, the drawing. No line of it is longer than `width` (62 at least).
    pub fn text(&self, history: &History, width: usize) -> String {
        let inner = width.max(60 + INDENT.len()) - INDENT.len();
        let mut lines = wrap(&self.title, width, INDENT);
        for words in &self.words {
            lines.extend(
                wrap(words, inner, "")
                    .iter()
                    .map(|line| format!("{INDENT}{line}")),
            );
        }
        if !self.witness.operations.is_empty() {
            lines.push(String::new());
            let drawing = draw(history, &self.witness, inner);
            lines.extend(drawing.lines().map(|line| format!("{INDENT}{line}")));
        }
        let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        lines.join("\n")
    }
}

const INDENT: &str = "  ";

/// Explains everything that is wrong with a trace: for each property the [`WORST_KEYS`] worst keys.
pub fn explain(history: &History) -> Vec<Explanation> {
    let orders = Orders::of(history);
    let mut judge = LevelJudge::new(history, None);
    orders.teach(history, &mut judge);
    let (audit, _) = Audit::of(history, &judge);
    explain_keys(history, &orders, &audit, WORST_KEYS)
}

/// The same for as many keys as are asked for, given what is known of the trace already.
pub fn explain_keys(history: &History, orders: &Orders, audit: &Audit, keys: usize) -> Vec<Explanation> {
    let (zones, by_key, order) = (Zones::of(history), history.by_key(), Order::of(history));
    let look = Look::of(history, &by_key, &order);
    let mut all: Vec<Explanation> = worst(promises(&look, &zones, audit), keys);
    all.extend(findings(history));
    all.extend(distance(history, &zones));
    all.extend(worst(conflicts(history, &zones, &by_key), keys));
    all.extend(worst(phantoms(history), keys));
    all.extend(worst(futures(history), keys));
    all.extend(whole_orders(history, orders));
    for faults in sessions(&look) {
        all.extend(worst(faults, keys));
    }
    all.extend(worst(stale_reads(&look), keys));
    all.extend(worst(disagreements(history, &by_key), keys));
    all
}

/// The trace, with indexes for finding operations.
struct Look<'a> {
    history: &'a History,
    by_key: &'a [Vec<usize>],
    order: &'a Order,
    sessions: Vec<Vec<usize>>,
    /// The position of each operation in its session. The reads of a snapshot have the same position.
    positions: Vec<u32>,
}

impl<'a> Look<'a> {
    fn of(history: &'a History, by_key: &'a [Vec<usize>], order: &'a Order) -> Look<'a> {
        let sessions = history.sessions();
        let mut positions = vec![0; history.operations.len()];
        for session in &sessions {
            let same = |&one: &usize, &other: &usize| {
                history.operations[one].record == history.operations[other].record
            };
            for (position, record) in session.chunk_by(same).enumerate() {
                record
                    .iter()
                    .for_each(|&place| positions[place] = position as u32);
            }
        }
        Look {
            history,
            by_key,
            order,
            sessions,
            positions,
        }
    }

    fn at(&self, place: usize) -> &'a Operation {
        &self.history.operations[place]
    }

    fn on_key_of(&self, place: usize) -> &'a [usize] {
        &self.by_key[self.at(place).key as usize]
    }

    /// What a client did before an operation of its own.
    fn before(&self, place: usize) -> impl Iterator<Item = usize> {
        let session = &self.sessions[self.at(place).client as usize];
        let is_before = move |&&other: &&usize| self.positions[other] < self.positions[place];
        session.iter().take_while(is_before).copied()
    }

    /// Whether what a read returned is older than what another operation on its key read or wrote.
    fn is_older(&self, read: usize, other: usize) -> bool {
        self.at(other).key == self.at(read).key
            && self.order.effect(self.at(read)) < self.order.begin(self.at(other))
    }
}

/// What is wrong with one key, and how badly. The explanation is made only if it is asked for.
struct Fault<'a> {
    severity: i128,
    key: u32,
    explain: Box<dyn Fn() -> Explanation + 'a>,
}

/// The explanations of the worst keys. The last one says how many keys are left out.
fn worst(mut faults: Vec<Fault<'_>>, keys: usize) -> Vec<Explanation> {
    faults.sort_by_key(|fault| (Reverse(fault.severity), fault.key));
    let left_out = faults.len().saturating_sub(keys);
    let mut explained: Vec<Explanation> = faults.iter().take(keys).map(|it| (it.explain)()).collect();
    if let Some(last) = explained.last_mut().filter(|_| left_out > 0) {
        let keys = plural(left_out as u64, "key");
        last.words
            .push(format!("The same is true of {keys} more; none is worse."));
    }
    explained
}

/// `1 key`, `2 keys`.
fn plural(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// A few operations in the order of time, their numbers and their clock.
struct Case<'a> {
    history: &'a History,
    places: Vec<usize>,
    clock: Clock,
}

impl<'a> Case<'a> {
    fn of(history: &'a History, places: impl IntoIterator<Item = usize>) -> Case<'a> {
        let mut places: Vec<usize> = places.into_iter().collect();
        places.sort_by_key(|&place| (history.operations[place].start, place));
        places.dedup();
        let clock = Clock::of(history, &places);
        Case {
            history,
            places,
            clock,
        }
    }

    /// The operations of a witness, in its order.
    fn as_argued(history: &'a History, witness: &Witness) -> Case<'a> {
        Case {
            history,
            clock: Clock::of(history, &witness.operations),
            places: witness.operations.clone(),
        }
    }

    fn operation(&self, place: usize) -> &'a Operation {
        &self.history.operations[place]
    }

    /// `wrote b to x`
    fn did(&self, place: usize) -> String {
        did(self.history, self.operation(place))
    }

    fn client(&self, place: usize) -> String {
        let client = self.operation(place).client as usize;
        readable(self.history.clients[client].as_bytes(), 32)
    }

    /// `[1]`
    fn number(&self, place: usize) -> String {
        let at = self.places.iter().position(|&other| other == place);
        at.map_or_else(String::new, |at| format!("[{}]", at + 1))
    }

    fn start(&self, place: usize) -> String {
        self.clock.time(self.operation(place).start)
    }

    fn finish(&self, place: usize) -> String {
        self.clock.time(self.operation(place).finish)
    }

    fn key(&self, place: usize) -> String {
        key_name(self.history, self.operation(place).key)
    }

    fn value(&self, place: usize) -> String {
        value_name(self.history, self.operation(place))
    }

    fn is_deleted(&self, place: usize) -> bool {
        let operation = self.operation(place);
        self.history.keys[operation.key as usize].is_tombstone(operation.value)
    }

    /// What the key had while it had what was read or written.
    fn state(&self, place: usize) -> String {
        if self.is_deleted(place) {
            return "no value".into();
        }
        self.value(place)
    }

    /// With an edge from each write to the reads of its value, besides those given.
    fn witness(self, edges: impl IntoIterator<Item = Edge>) -> Witness {
        let mut edges: Vec<Edge> = edges.into_iter().collect();
        for &to in &self.places {
            let seen = self.history.seen_by(to);
            if let Some(from) = seen.filter(|from| self.places.contains(from)) {
                edges.push(edge(from, to, Because::ReadsFrom));
            }
        }
        let place = |operation: usize| self.places.iter().position(|&other| other == operation);
        edges.sort_by_key(|edge| (place(edge.from), place(edge.to), edge.because));
        edges.dedup();
        Witness {
            operations: self.places,
            edges,
        }
    }
}

fn edge(from: usize, to: usize, because: Because) -> Edge {
    Edge { from, to, because }
}

fn writer(history: &History, read: usize) -> Option<usize> {
    let operation = &history.operations[read];
    history.keys[operation.key as usize].writers[operation.value.index()]
}

/// Why a value is older than that of a write.
#[derive(Clone, Copy)]
struct Age {
    /// One of its operations.
    first: usize,
    /// The write.
    write: usize,
    /// Whether versions show it. Otherwise one operation was over before the other began.
    by_versions: bool,
}

impl Age {
    fn operations(self) -> [usize; 2] {
        [self.first, self.write]
    }

    fn edge(self) -> Edge {
        let because = if self.by_versions {
            Because::Version
        } else {
            Because::RealTime
        };
        edge(self.first, self.write, because)
    }

    fn words(self, case: &Case<'_>) -> String {
        let Age { first, write, .. } = self;
        let (one, other) = (case.number(first), case.number(write));
        if !self.by_versions {
            let (finish, start) = (case.finish(first), case.start(write));
            return format!("{one} was over at {finish}, before {other} began, at {start}.");
        }
        let version = |place: usize| {
            let operation = case.operation(place);
            let version = case.history.keys[operation.key as usize].version(operation.value);
            version.map_or_else(String::new, |version| {
                readable(case.history.version_names.name(version).as_bytes(), 32)
            })
        };
        format!(
            "the version of {one} is {}, and that of {other} is {}.",
            version(first),
            version(write)
        )
    }
}

/// Two operations that show that what was read is older than a write: one of its value, and the write, which has a newer version, or
/// began after that one was over. Nothing is needed for the initial value.
fn age(look: &Look<'_>, read: usize, newer: usize) -> Option<Age> {
    let (source, write) = (writer(look.history, read)?, writer(look.history, newer)?);
    let by_versions = look.order.is_by_versions(look.at(read).key);
    let age = |first| Age {
        first,
        write,
        by_versions,
    };
    if by_versions {
        return look.is_older(read, write).then(|| age(source));
    }
    let of_value = |&place: &usize| {
        look.at(place).value == look.at(read).value && is_sensible(look.history, look.at(place))
    };
    let cluster = look.on_key_of(read).iter().copied().filter(of_value);
    let first = cluster.min_by_key(|&place| (look.at(place).finish, place))?;
    // The value's own write is preferred.
    let is_before = |place: &usize| look.at(*place).finish < look.at(write).start;
    [source, first].into_iter().find(is_before).map(age)
}
