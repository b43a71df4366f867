//! Says why: for each promise that a trace broke, the smallest set of operations that shows it, and words for people who have
//! never read a paper.
//!
//! | property | what is shown |
//! |---|---|
//! | what the trace promised: levels, receipts | the operation, and what contradicts it |
//! | what records say about versions, snapshots and failures | the records that contradict each other |
//! | one copy (atomicity) | how many operations have to go until the trace looks like one copy, and which |
//! | the same | two values of a key between which no order is possible: three to six operations |
//! | the same | a read of what nobody wrote; a read that was over before its write began |
//! | causal consistency | the read, the write that it missed and how it could have been known; or a circle (CC, CCv, CM) |
//! | sequential consistency | the same; or that all orders were tried |
//! | session guarantees | the read, what its client knew that is newer, and how it knew |
//! | staleness | the read that missed a write for the longest time, that write, and the one that it saw |
//! | convergence | two last reads that disagree, and the writes |
//!
//! What is wrong is decided by the analyses themselves, and nowhere here: see [`crate::Zones`], [`crate::Orders`],
//! [`crate::each_session_violation`], [`crate::each_stale_read`], [`crate::converged`] and [`crate::Audit`]. They hand over a read;
//! the few operations that show what is wrong with it are looked for only then, in O(n), for the worst keys of each property. So
//! what is said is bounded however long the trace is, and so is the work beside that of the analyses.
//!
//! Where versions order the writes of a key ([`Order`]), it is they that show what is older; else time does.
//!
//! # Two values in conflict
//!
//! Values `a` and `b` are in conflict if `a.f < b.s` and `b.f < a.s` (see the crate's words on clusters and zones): some
//! operation of `a` was over before some operation of `b` began, so `a` was there first; and some operation of `b` was over
//! before some operation of `a` began, so `b` was. These are four operations at most, and one can play two parts: of all
//! choices the one with the fewest operations is taken, the two writes included, and among those the one with the widest gaps.
//! In the trace of Figure 1 (McKenzie, Fan and Golab 2015) that leaves what its authors say: `W(b)` before `W(a)` before `R(b)`.
//!
//! Of a key's pairs the one with the greatest Gamma is shown, and of keys those with the greatest, so that what no error of
//! clocks explains comes first. O(n + m log m) for n operations and m values: pairs are not enumerated.
use crate::{
    Audit, Because, Broken, BrokenPromise, Cluster, Edge, Finding, Fraction, History, Kind, Operation, Order,
    Orders, Promise, Sequential, Value, Verdict, Witness, Zones, converged, each_session_violation,
    each_stale_read,
    levels::{Judge, Rule},
    order::is_sensible,
    staleness::last_reads,
    timeline::{Clock, did, draw, key_name, readable, span, value_name, wrap},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// How many keys are explained for each property, unless somebody asks for more.
pub const WORST_KEYS: usize = 3;
/// How many values are named when some have to go.
const MOST_NAMED: usize = 5;

/// Why something is not as promised.
///
/// Other analyses make theirs with [`Explanation::new`]. In words `[1]` is the first operation of the witness, and so on; a
/// [`Clock`] of the witness's operations says times as the drawing does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What is broken, in one line.
    pub title: String,
    /// The argument, a paragraph each.
    pub words: Vec<String>,
    /// The operations that show it; none where words are all there is.
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
    let mut judge = Judge::new(history, None);
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

/// Where operations are looked for.
struct Look<'a> {
    history: &'a History,
    by_key: &'a [Vec<usize>],
    order: &'a Order,
    sessions: Vec<Vec<usize>>,
    /// Of each operation in its session; the reads of a snapshot share theirs.
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

/// The worst, explained; the last of them says how many are left out.
fn worst(mut faults: Vec<Fault<'_>>, keys: usize) -> Vec<Explanation> {
    faults.sort_by_key(|fault| (Reverse(fault.severity), fault.key));
    let left_out = faults.len().saturating_sub(keys);
    let mut explained: Vec<Explanation> = faults.iter().take(keys).map(|it| (it.explain)()).collect();
    if let Some(last) = explained.last_mut().filter(|_| left_out > 0) {
        let keys = plural(left_out as u64, "key");
        last.words
            .push(format!("The same is true, and no worse, of {keys} more."));
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

    /// Those of a witness, in its order.
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
            let operation = self.operation(to);
            let writer = self.history.keys[operation.key as usize].writers[operation.value.index()];
            if let Some(from) =
                writer.filter(|from| operation.kind == Kind::Read && self.places.contains(from))
            {
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

/// How many operations have to go, of which values.
fn distance(history: &History, zones: &[Zones]) -> Option<Explanation> {
    let removed: u64 = zones.iter().map(Zones::removed).sum();
    let counted: u64 = zones.iter().map(Zones::operations).sum();
    if removed == 0 {
        return None;
    }
    let mut gone: Vec<(u64, u32, Value)> = Vec::new();
    for (key, zones) in zones.iter().enumerate() {
        let weight = |value: &Value| {
            let place = zones
                .clusters
                .binary_search_by_key(value, |cluster| cluster.value);
            place.map_or(0, |place| zones.clusters[place].weight)
        };
        let removal = zones.removal(0).into_iter();
        gone.extend(removal.map(|value| (weight(&value), key as u32, value)));
    }
    gone.sort_by_key(|&(weight, key, value)| (Reverse(weight), key, value));
    let named = gone.iter().take(MOST_NAMED).map(|&(weight, key, value)| {
        let name = key_name(history, key);
        let all = |noun: &str| match weight {
            1 => format!("the one {noun}"),
            _ => format!("all {weight} {noun}s"),
        };
        match &history.keys[key as usize].values[value.index()] {
            None if value != Value::INITIAL => format!("{} on a deletion of {name}", all("operation")),
            Some(value) => format!("{} on value {} of {name}", all("operation"), readable(value, 32)),
            None => format!("{} that returned nothing for {name}", all("read")),
        }
    });
    let mut named: Vec<String> = named.collect();
    if let Some(more) = gone.len().checked_sub(MOST_NAMED).filter(|&more| more > 0) {
        named.push(format!("those on {} more", plural(more as u64, "value")));
    }
    let phantoms: u64 = zones.iter().map(|zones| zones.phantom_reads).sum();
    if phantoms > 0 {
        named.push(format!("{} of what nobody wrote", plural(phantoms, "read")));
    }
    let fraction = Fraction::new(removed, counted);
    let percent = 100.0 * fraction.as_f64();
    let in_lowest_terms = match fraction.denominator == counted {
        true => String::new(),
        false => format!(" = {fraction}"),
    };
    let words = format!(
        "Operations on a value are left out all together or not at all: a write, and every read of what it wrote. To make \
         this trace look like a single copy of the data, at least {removed} of its {} have to go \
         ({removed}/{counted}{in_lowest_terms}, {percent:.3} %): {}. Other choices may do as well, but none of fewer operations.",
        plural(counted, "operation"),
        named.join("; "),
    );
    let title = format!(
        "How far from one copy: {removed} of {}",
        plural(counted, "operation")
    );
    Some(Explanation::new(title, vec![words], Witness::default()))
}

/// For each key the pair of values that is furthest from any order.
fn conflicts<'a>(history: &'a History, zones: &[Zones], by_key: &'a [Vec<usize>]) -> Vec<Fault<'a>> {
    let mut broken = Vec::new();
    for (key, zones) in zones.iter().enumerate() {
        let Some((gamma, one, other)) = zones.worst_pair() else {
            continue;
        };
        let (one, other) = (zones.clusters[one], zones.clusters[other]);
        broken.push(Fault {
            severity: gamma.into(),
            key: key as u32,
            explain: Box::new(move || conflict(history, &by_key[key], one, other, gamma)),
        });
    }
    broken
}

/// The operations of a cluster that can decide a conflict with another.
struct Sides {
    write: Option<usize>,
    candidates: Vec<usize>,
}

impl Sides {
    fn of(history: &History, of_key: &[usize], me: &Cluster, other: &Cluster) -> Sides {
        let at = |place: usize| &history.operations[place];
        let mine = of_key
            .iter()
            .copied()
            .filter(|&place| at(place).value == me.value);
        let mine: Vec<usize> = mine.collect();
        let write = mine.iter().copied().find(|&place| at(place).kind != Kind::Read);
        let first_over = mine
            .iter()
            .copied()
            .min_by_key(|&place| (at(place).finish, place));
        let last_begun = mine
            .iter()
            .copied()
            .max_by_key(|&place| (at(place).start, Reverse(place)));
        // One that comes behind the other value and before it at once.
        let between = mine.iter().copied().filter(|&place| at(place).start > other.f);
        let between = between.min_by_key(|&place| (at(place).finish, place));
        let mut candidates: Vec<usize> = [write, first_over, last_begun, between]
            .into_iter()
            .flatten()
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        Sides { write, candidates }
    }

    /// Each choice of two. The initial value was there from the beginning, and no operation needs to show it.
    fn stays(&self, is_initial: bool) -> Vec<Stay> {
        let early: Vec<Option<usize>> = match is_initial {
            true => vec![None],
            false => self.candidates.iter().copied().map(Some).collect(),
        };
        let with = |early| self.candidates.iter().map(move |&late| Stay { early, late });
        early.into_iter().flat_map(with).collect()
    }
}

/// Two operations of a value, or one in both parts: once the early one was over the value had been there, and when the late one
/// began it was still to be.
#[derive(Clone, Copy)]
struct Stay {
    /// None for the initial value.
    early: Option<usize>,
    late: usize,
}

impl Stay {
    /// From when to when the value certainly was there; none if it need not have been there for more than a moment.
    fn certain(&self, history: &History) -> Option<(i64, i64)> {
        let over = |early: usize| history.operations[early].finish;
        let from = self.early.map_or(i64::MIN, over);
        let to = history.operations[self.late].start;
        (from < to).then_some((from, to))
    }

    /// How long before the other's late operation this one's early operation was over.
    fn gap_before(&self, other: &Stay, history: &History) -> i128 {
        let start = i128::from(history.operations[other.late].start);
        let over = |early: usize| i128::from(history.operations[early].finish);
        self.early.map_or(i128::MAX, |early| start - over(early))
    }

    fn operations(&self) -> impl Iterator<Item = usize> {
        self.early.into_iter().chain([self.late])
    }
}

fn conflict(history: &History, of_key: &[usize], one: Cluster, other: Cluster, gamma: i64) -> Explanation {
    let mine = Sides::of(history, of_key, &one, &other);
    let theirs = Sides::of(history, of_key, &other, &one);
    let operations = |a: &Stay, b: &Stay| {
        let writes = mine.write.into_iter().chain(theirs.write);
        let all = a.operations().chain(b.operations()).chain(writes);
        all.collect::<BTreeSet<usize>>()
    };
    let gap = |a: &Stay, b: &Stay| a.gap_before(b, history).min(b.gap_before(a, history));
    let is_initial = |cluster: &Cluster| cluster.value == Value::INITIAL;
    let theirs_all = theirs.stays(is_initial(&other));
    let mine_all = mine.stays(is_initial(&one)).into_iter();
    let (a, b) = mine_all
        .flat_map(|a| theirs_all.iter().map(move |&b| (a, b)))
        .filter(|(a, b)| gap(a, b) > 0)
        .min_by_key(|(a, b)| (operations(a, b).len(), Reverse(gap(a, b))))
        .expect("clusters in conflict have operations that show it");
    let case = Case::of(history, operations(&a, &b));
    let edges = [(a.early, b.late), (b.early, a.late)];
    let edges = edges
        .into_iter()
        .filter_map(|(early, late)| Some(edge(early?, late, Because::RealTime)));
    let words = vec![
        presence(&case, a),
        presence(&case, b),
        contradiction(&case, a, b),
        format!(
            "If every operation had taken {} more (Gamma), half of it on either side, these two values could have followed \
             one another.",
            span(gamma.into())
        ),
    ];
    let title = format!(
        "{} does not look like one copy (Gamma {})",
        case.key(a.late),
        span(gamma.into())
    );
    Explanation::new(title, words, case.witness(edges))
}

/// When a value was there, as two of its operations show.
fn presence(case: &Case<'_>, stay: Stay) -> String {
    let late = stay.late;
    let key = case.key(late);
    let its = |place: usize| match case.operation(place).kind {
        Kind::Read => format!("its read {}", case.number(place)),
        _ if case.is_deleted(place) => format!("its deletion {}", case.number(place)),
        Kind::Write | Kind::UnknownWrite => format!("its write {}", case.number(place)),
    };
    let Some(early) = stay.early else {
        return format!(
            "{key} had no value at first, and still none at {}, when {} began, which read nothing.",
            case.start(late),
            case.number(late),
        );
    };
    let (has, certainly_has) = match case.is_deleted(late) {
        true => (
            format!("{key} had no value"),
            format!("{key} certainly had no value"),
        ),
        false => {
            let value = case.value(late);
            (
                format!("{value} was the value of {key}"),
                format!("{value} certainly was the value of {key}"),
            )
        }
    };
    if stay.certain(case.history).is_some() {
        return format!(
            "{certainly_has} from {}, when {} was over, to {}, when {} began.",
            case.finish(early),
            its(early),
            case.start(late),
            its(late),
        );
    }
    let during = match early == late {
        true => format!("during {}", its(early)),
        false => format!("after {} began and before {} was over", its(late), its(early)),
    };
    let (from, to) = (case.start(late), case.finish(early));
    match from == to {
        true => format!("{has} at {from}, {during}."),
        false => format!("{has} at some moment between {from} and {to}, {during}."),
    }
}

/// Why both cannot be.
fn contradiction(case: &Case<'_>, a: Stay, b: Stay) -> String {
    let key = case.key(a.late);
    let certain = |stay: Stay| stay.certain(case.history);
    if let (Some((a_from, a_to)), Some((b_from, b_to))) = (certain(a), certain(b)) {
        let (from, to) = (a_from.max(b_from), a_to.min(b_to));
        return format!(
            "So from {} to {} {key} would have had both values at once. One copy has one.",
            case.clock.time(from),
            case.clock.time(to)
        );
    }
    let (outer, inner) = if certain(a).is_some() { (a, b) } else { (b, a) };
    let (outer_value, inner) = (case.state(outer.late), case.state(inner.late));
    if outer.early.is_none() {
        return format!(
            "So {key} would have had the value {inner}, and then none again, though nobody took it away."
        );
    }
    format!(
        "So {key} would have gone from {outer_value} to {inner} and back to {outer_value}. Each value is written once: one \
         copy does not return to what was overwritten."
    )
}

/// For each key the first read of what nobody wrote.
fn phantoms(history: &History) -> Vec<Fault<'_>> {
    let mut of_key: Vec<Option<(usize, u64)>> = vec![None; history.keys.len()];
    for (place, read) in history.operations.iter().enumerate() {
        let key = &history.keys[read.key as usize];
        if key.is_phantom(read.value) {
            let (_, reads) = of_key[read.key as usize].get_or_insert((place, 0));
            *reads += 1;
        }
    }
    let found = of_key.into_iter().enumerate();
    let found = found.filter_map(|(key, found)| Some((key as u32, found?)));
    let broken = found.map(|(key, (place, reads))| Fault {
        severity: reads.into(),
        key,
        explain: Box::new(move || phantom(history, place, reads)),
    });
    broken.collect()
}

fn phantom(history: &History, read: usize, reads: u64) -> Explanation {
    let case = Case::of(history, [read]);
    let (key, value) = (case.key(read), case.value(read));
    let mut words = vec![format!(
        "{} read {value} from {key}. No write of it is in the trace, or it failed: it came from nowhere, and no order of the \
         operations explains it.",
        case.number(read)
    )];
    if reads > 1 {
        words.push(format!("{} of {key} are like that.", plural(reads, "read")));
    }
    Explanation::new(
        format!("{key} was read with a value that nobody wrote"),
        words,
        case.witness([]),
    )
}

/// For each key the read that was over longest before its write began.
fn futures(history: &History) -> Vec<Fault<'_>> {
    let mut of_key: Vec<Option<(i128, usize, usize)>> = vec![None; history.keys.len()];
    for (place, read) in history.operations.iter().enumerate() {
        let writer = history.keys[read.key as usize].writers[read.value.index()];
        let Some(writer) = writer.filter(|_| read.kind == Kind::Read) else {
            continue;
        };
        let early = i128::from(history.operations[writer].start) - i128::from(read.finish);
        let worst = &mut of_key[read.key as usize];
        if early > 0 && worst.is_none_or(|(most, ..)| early > most) {
            *worst = Some((early, place, writer));
        }
    }
    let found = of_key.into_iter().enumerate();
    let found = found.filter_map(|(key, found)| Some((key as u32, found?)));
    let broken = found.map(|(key, (early, read, write))| Fault {
        severity: early,
        key,
        explain: Box::new(move || future(history, early, read, write)),
    });
    broken.collect()
}

fn future(history: &History, early: i128, read: usize, write: usize) -> Explanation {
    let case = Case::of(history, [read, write]);
    let (key, value) = (case.key(read), case.value(read));
    let words = vec![format!(
        "{} had read {value} and was over at {}. {} wrote it, and began {} later, at {}. Nobody can read what is not yet \
         written: either a clock is off by so much, or the store made it up.",
        case.number(read),
        case.finish(read),
        case.number(write),
        span(early),
        case.start(write),
    )];
    Explanation::new(
        format!("{key} was read with a value before anybody began to write it"),
        words,
        case.witness([edge(read, write, Because::RealTime)]),
    )
}

/// A promise to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Guarantee {
    ReadYourWrites,
    MonotonicReads,
    MonotonicWrites,
    WritesFollowReads,
}

/// Those that a read breaks.
fn guarantees(broken: Broken) -> impl Iterator<Item = Guarantee> {
    let all = [
        (broken.ryw, Guarantee::ReadYourWrites),
        (broken.mr, Guarantee::MonotonicReads),
        (broken.mw, Guarantee::MonotonicWrites),
        (broken.wfr, Guarantee::WritesFollowReads),
    ];
    all.into_iter()
        .filter_map(|(is_broken, guarantee)| is_broken.then_some(guarantee))
}

/// For each guarantee, for each key how many reads break it, and the first that did.
fn sessions<'a>(look: &'a Look<'a>) -> Vec<Vec<Fault<'a>>> {
    let mut found: BTreeMap<(Guarantee, u32), (u64, usize)> = BTreeMap::new();
    each_session_violation(look.history, look.order, |place, broken| {
        for guarantee in guarantees(broken) {
            let key = look.at(place).key;
            let (reads, first) = found.entry((guarantee, key)).or_insert((0, place));
            *reads += 1;
            *first = (*first).min(place);
        }
    });
    let mut faults: BTreeMap<Guarantee, Vec<Fault<'a>>> = BTreeMap::new();
    for ((guarantee, key), (reads, first)) in found {
        faults.entry(guarantee).or_default().push(Fault {
            severity: reads.into(),
            key,
            explain: Box::new(move || {
                let known = known(look, guarantee, first, false);
                let known = known.expect("a read that breaks a guarantee is older than some operation");
                let mut explained = session(look, guarantee, first, known);
                if reads > 1 {
                    let (reads, key) = (plural(reads, "read"), key_name(look.history, key));
                    explained
                        .words
                        .push(format!("{reads} of {key} are like that; this is the first."));
                }
                explained
            }),
        });
    }
    faults.into_values().collect()
}

/// What a client had known when it read something older.
#[derive(Clone, Copy)]
struct Known {
    /// Done before, by itself or by somebody whose write it had read: a read or write of something newer; or of the same, if what
    /// was written after it is newer.
    newer: usize,
    /// How it had come to know the other's session: its read, and the write that it saw.
    seen: Option<(usize, usize)>,
}

/// Looks for what shows that a read breaks a guarantee, perhaps within its key; what has the newest value, where there are several.
/// O(n).
fn known(look: &Look<'_>, guarantee: Guarantee, read: usize, within_key: bool) -> Option<Known> {
    let wants = match guarantee {
        Guarantee::ReadYourWrites | Guarantee::MonotonicWrites => Kind::Write,
        Guarantee::MonotonicReads | Guarantee::WritesFollowReads => Kind::Read,
    };
    let counts = |&place: &usize| look.at(place).kind == wants && is_sensible(look.history, look.at(place));
    let newest = |places: &mut dyn Iterator<Item = usize>| {
        let newer = places.filter(|&place| counts(&place) && look.is_older(read, place));
        newer.max_by_key(|&place| (look.order.begin(look.at(place)), Reverse(place)))
    };
    if matches!(guarantee, Guarantee::ReadYourWrites | Guarantee::MonotonicReads) {
        let newer = newest(&mut look.before(read))?;
        return Some(Known { newer, seen: None });
    }
    let same = |mut places: Box<dyn Iterator<Item = usize> + '_>| {
        let (key, value) = (look.at(read).key, look.at(read).value);
        let is_same = |place: &usize| (look.at(*place).key, look.at(*place).value) == (key, value);
        places.find(|place| counts(place) && is_same(place))
    };
    // For each other client the last of its writes that were read, of all and of the key alone.
    let mut last: BTreeMap<(u32, bool), (usize, usize)> = BTreeMap::new();
    for by in look
        .before(read)
        .filter(|&by| is_sensible(look.history, look.at(by)))
    {
        let Some(write) = writer(look.history, by).filter(|_| look.at(by).kind == Kind::Read) else {
            continue;
        };
        if look.at(write).client == look.at(read).client {
            continue;
        }
        let is_here = look.at(write).key == look.at(read).key;
        for narrow in [false, true].into_iter().filter(|narrow| is_here || !narrow) {
            let last = last.entry((look.at(write).client, narrow)).or_insert((by, write));
            if look.positions[write] > look.positions[last.1] {
                *last = (by, write);
            }
        }
    }
    let through = |(&(_, is_here), &seen): (&(u32, bool), &(usize, usize))| {
        let before = || look.before(seen.1);
        if within_key && !is_here {
            return None;
        }
        let newer = newest(&mut before()).or_else(|| same(Box::new(before())).filter(|_| is_here))?;
        Some(Known {
            newer,
            seen: Some(seen),
        })
    };
    let found = last.iter().filter_map(through);
    found.min_by_key(|known| (known.seen, known.newer))
}

fn session(look: &Look<'_>, guarantee: Guarantee, read: usize, known: Known) -> Explanation {
    let history = look.history;
    let key = key_name(history, look.at(read).key);
    let client = readable(history.clients[look.at(read).client as usize].as_bytes(), 32);
    let title = match guarantee {
        Guarantee::ReadYourWrites => {
            format!("{client} did not read its own write of {key} (read your writes)")
        }
        Guarantee::MonotonicReads => {
            format!("{client} read {key} and then something older (monotonic reads)")
        }
        Guarantee::MonotonicWrites => {
            format!("{client} saw a write, and not what was written to {key} before it (monotonic writes)")
        }
        Guarantee::WritesFollowReads => {
            format!("{client} saw a write, and not what its client had read of {key} (writes follow reads)")
        }
    };
    let Known { newer, seen } = known;
    let mut places = vec![read, newer];
    places.extend(writer(history, read));
    places.extend(writer(history, newer));
    places.extend(seen.into_iter().flat_map(|(by, write)| [by, write]));
    let age = age(look, read, newer);
    places.extend(age.into_iter().flat_map(Age::operations));
    let case = Case::of(history, places);
    let knew = match seen {
        None => {
            let (did, number) = (case.did(newer), case.number(newer));
            format!("{client} had {}: {number}.", past(&did))
        }
        Some(seen) => acquaintance(&case, seen, newer),
    };
    let words = vec![knew, too_old(&case, read, seen, age)];
    let mut edges = vec![edge(seen.map_or(newer, |(by, _)| by), read, Because::Session)];
    edges.extend(seen.map(|(_, write)| edge(newer, write, Because::Session)));
    edges.extend(age.map(Age::edge));
    Explanation::new(title, words, case.witness(edges))
}

/// `had written` of what `wrote` said.
fn past(did: &str) -> String {
    match did.strip_prefix("wrote ") {
        Some(what) => format!("written {what}"),
        None => did.to_owned(),
    }
}

/// How a client came to know what another one had done.
fn acquaintance(case: &Case<'_>, (by, write): (usize, usize), newer: usize) -> String {
    let (me, other) = (case.client(by), case.client(write));
    format!(
        "{other} {} ({}) and then {} ({}), which {me} read ({}). So {me} could count on both.",
        case.did(newer),
        case.number(newer),
        case.did(write),
        case.number(write),
        case.number(by),
    )
}

/// What the read returned, and why that was too old.
fn too_old(case: &Case<'_>, read: usize, seen: Option<(usize, usize)>, age: Option<Age>) -> String {
    let (value, number) = (case.value(read), case.number(read));
    match (age, seen) {
        (Some(age), _) => format!(
            "But then {number} read {value}, which is older: {}",
            age.words(case)
        ),
        (None, Some((_, write))) if case.operation(read).value != Value::INITIAL => {
            format!(
                "But then {number} read {value}, which {} had replaced.",
                case.number(write)
            )
        }
        (None, _) => format!("But then {number} read nothing, as if there had been no write at all."),
    }
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
    /// Versions say so; else the one was over before the other began.
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
    // The value's own write says it best.
    let is_before = |place: &usize| look.at(*place).finish < look.at(write).start;
    [source, first].into_iter().find(is_before).map(age)
}

/// For each key the read that missed a write for the longest time.
fn stale_reads<'a>(look: &'a Look<'a>) -> Vec<Fault<'a>> {
    let mut worst: BTreeMap<u32, (i64, usize)> = BTreeMap::new();
    each_stale_read(look.history, look.order, |read, ns| {
        let worst = worst.entry(look.at(read).key).or_insert((ns, read));
        if ns > worst.0 {
            *worst = (ns, read);
        }
    });
    let faults = worst.into_iter().map(|(key, (ns, read))| Fault {
        severity: ns.into(),
        key,
        explain: Box::new(move || stale(look, read)),
    });
    faults.collect()
}

/// The newer write that was over first, before the read began.
fn missed(look: &Look<'_>, read: usize) -> Option<usize> {
    let is_missed = |&place: &usize| {
        look.at(place).kind != Kind::Read
            && look.is_older(read, place)
            && look.at(place).finish < look.at(read).start
    };
    let missed = look.on_key_of(read).iter().copied().filter(is_missed);
    missed.min_by_key(|&place| (look.at(place).finish, place))
}

fn stale(look: &Look<'_>, read: usize) -> Explanation {
    let history = look.history;
    let missed = missed(look, read).expect("a stale read has missed a write");
    let ns = i128::from(look.at(read).start) - i128::from(look.at(missed).finish);
    let age = age(look, read, missed);
    let source = writer(history, read);
    let shown = age.into_iter().flat_map(Age::operations);
    let case = Case::of(history, shown.chain(source).chain([read, missed]));
    let key = case.key(read);
    let mut words = vec![format!(
        "{} {}, and was over at {}. {} later, at {}, {} began, and read {} all the same.",
        case.number(missed),
        case.did(missed),
        case.finish(missed),
        span(ns),
        case.start(read),
        case.number(read),
        case.value(read),
    )];
    words.extend(age.map(|age| format!("That is older: {}", age.words(&case))));
    let mut edges = vec![edge(missed, read, Because::RealTime)];
    edges.extend(age.map(Age::edge));
    Explanation::new(
        format!(
            "a read of {key} missed what had been written {} before (stale read)",
            span(ns)
        ),
        words,
        case.witness(edges),
    )
}

/// Two clients' last reads of a key that differ, and the write that was over last.
#[derive(Clone, Copy)]
struct Disagreement {
    one: usize,
    other: usize,
    quiet: Option<usize>,
}

/// For each key that has not converged two last reads that disagree: the latest, and the latest that does not agree with it.
fn disagreements<'a>(history: &'a History, by_key: &'a [Vec<usize>]) -> Vec<Fault<'a>> {
    let verdicts = converged(history);
    let at = |place: usize| &history.operations[place];
    let mut broken = Vec::new();
    for (key, (quiet, reads)) in last_reads(history).into_iter().enumerate() {
        if verdicts[key] != Some(false) {
            continue;
        }
        let latest = |place: &usize| (at(*place).start, Reverse(*place));
        let Some(one) = reads.values().copied().max_by_key(latest) else {
            continue;
        };
        let differs = |place: &usize| at(*place).value != at(one).value;
        let Some(other) = reads.values().copied().filter(differs).max_by_key(latest) else {
            continue;
        };
        let last_write = |&place: &usize| at(place).kind != Kind::Read && at(place).finish == quiet;
        let found = Disagreement {
            one,
            other,
            quiet: by_key[key].iter().copied().find(last_write),
        };
        broken.push(Fault {
            severity: i128::from(at(other).start) - i128::from(quiet),
            key: key as u32,
            explain: Box::new(move || disagreement(history, found)),
        });
    }
    broken
}

fn disagreement(history: &History, found: Disagreement) -> Explanation {
    let Disagreement { one, other, quiet } = found;
    let writers = [writer(history, one), writer(history, other), quiet];
    let case = Case::of(history, writers.into_iter().flatten().chain([one, other]));
    let key = case.key(one);
    let client = |place: usize| {
        let client = case.operation(place).client as usize;
        readable(history.clients[client].as_bytes(), 32)
    };
    let calm = match quiet {
        Some(write) => format!(
            "Nobody wrote {key} any more after {} was over, at {}.",
            case.number(write),
            case.finish(write)
        ),
        None => format!("Nobody ever wrote {key}."),
    };
    let words = vec![format!(
        "{calm} And yet the last that {} read is {} ({}), and the last that {} read is {} ({}).",
        client(other),
        case.value(other),
        case.number(other),
        client(one),
        case.value(one),
        case.number(one),
    )];
    let after = quiet.into_iter().flat_map(|write| [(write, one), (write, other)]);
    let edges: Vec<Edge> = after
        .map(|(write, read)| edge(write, read, Because::RealTime))
        .collect();
    Explanation::new(
        format!("{key} did not become the same for everybody (convergence)"),
        words,
        case.witness(edges),
    )
}

/// Why no order explains the whole trace.
fn whole_orders(history: &History, orders: &Orders) -> Vec<Explanation> {
    let causal = &orders.causal;
    let mut all = Vec::new();
    if let Verdict::Broken(witness) = &causal.cc {
        all.push(not_causal(history, witness, causal.violations.unwrap_or(0)));
    } else {
        for (verdict, is_memory) in [(&causal.ccv, false), (&causal.cm, true)] {
            if let Verdict::Broken(witness) = verdict {
                all.push(not_explained(history, witness, is_memory));
            }
        }
    }
    if orders.sequential == Sequential::No(None) {
        let words = vec![
            "No order of all operations keeps each session's own and explains every read. There is no short argument: the \
             trace is causally consistent in all three meanings, and all orders were tried in vain."
                .into(),
        ];
        let title = "this trace is not sequentially consistent";
        all.push(Explanation::new(title, words, Witness::default()));
    }
    all
}

const SO_NOT: &str = "So the trace is not sequentially consistent either.";

/// Weak causal consistency is broken: an overwritten read, a circle, or a read of what nobody wrote.
fn not_causal(history: &History, witness: &Witness, reads: u64) -> Explanation {
    let case = Case::as_argued(history, witness);
    let missed = witness
        .edges
        .iter()
        .find(|edge| edge.because == Because::Overwritten);
    let is_phantom = witness.operations.len() == 1 && missed.is_none();
    let why = match missed {
        Some(edge) => overwritten(&case, edge),
        None if is_phantom => "Somebody has read what nobody wrote: see above. Nothing that could have been known explains it.".into(),
        None => "Each of these operations comes before the next, because the same client did it before or because it wrote \
                 what the next read; and the last comes before the first. Somebody has read what was yet to be done."
            .into(),
    };
    let reads = match reads {
        1 => "1 read breaks causality".into(),
        _ => format!("{reads} reads break causality"),
    };
    let rest = format!("{reads}, over all keys. None of CC, CCv and CM holds. {SO_NOT}");
    let witness = if is_phantom {
        Witness::default()
    } else {
        witness.clone()
    };
    Explanation::new("causality is broken (CC)", vec![why, rest], witness)
}

/// A read, and the write that it should have known.
fn overwritten(case: &Case<'_>, edge: &Edge) -> String {
    let Edge {
        from: read,
        to: write,
        ..
    } = *edge;
    let (client, value, number) = (case.client(read), case.value(read), case.number(write));
    let older = match writer(case.history, read).filter(|source| case.places.contains(source)) {
        Some(source) => format!(
            "And {number} was done in knowledge of {}, so {value} had been replaced.",
            case.number(source)
        ),
        None => format!(
            "What {read} returned was there before every write.",
            read = case.number(read)
        ),
    };
    let is_with =
        |&&other: &&usize| other != read && case.operation(other).record == case.operation(read).record;
    let snapshot = case.places.iter().find(is_with).map(|&other| {
        format!(
            " {} and {} are one snapshot, so both have the same past.",
            case.number(other),
            case.number(read)
        )
    });
    let snapshot = snapshot.unwrap_or_default();
    format!(
        "{} {}. But {number} {}, and {client} could have known it: follow the steps below from {number} to {}. {older}{snapshot}",
        case.number(read),
        case.did(read),
        case.did(write),
        case.number(read),
    )
}

/// CCv or CM is broken, and CC is not.
fn not_explained(history: &History, witness: &Witness, is_memory: bool) -> Explanation {
    let case = Case::as_argued(history, witness);
    let conflicts = witness
        .edges
        .iter()
        .filter(|edge| edge.because == Because::Conflict);
    let mut words: Vec<String> = conflicts
        .take(MOST_NAMED)
        .map(|edge| {
            format!(
                "{} must be older than {}: somebody who could have known {} read what {} wrote.",
                case.number(edge.from),
                case.number(edge.to),
                case.number(edge.from),
                case.number(edge.to)
            )
        })
        .collect();
    let nothing = witness
        .edges
        .iter()
        .find(|edge| edge.because == Because::Overwritten);
    words.push(match nothing {
        Some(edge) => format!(
            "So {} comes before {}, which read nothing all the same.",
            case.number(edge.to),
            case.number(edge.from)
        ),
        None => "Together with what the same client did before, and with who read whose writes, that goes in a circle: follow \
                 the steps below."
            .into(),
    });
    let (title, means) = match is_memory {
        true => (
            "one client's reads fit no order of what it could have known (CM)",
            "Each read alone can be explained, but not all reads of one client together.",
        ),
        false => (
            "clients have seen writes in orders that do not fit together (CCv)",
            "Each read alone can be explained. But a store in which one order of the writes wins everywhere, as where the last \
             writer wins, does not show this.",
        ),
    };
    words.insert(0, means.into());
    words.push(SO_NOT.into());
    Explanation::new(title, words, witness.clone())
}

/// Levels and claims of receipts that were broken: for each how often, among the first that were found, and the first of all.
fn promises<'a>(look: &'a Look<'a>, zones: &'a [Zones], audit: &'a Audit) -> Vec<Fault<'a>> {
    let mut kinds: Vec<(&BrokenPromise, u64)> = Vec::new();
    for broken in &audit.broken {
        let same = |(first, _): &&mut (&BrokenPromise, u64)| {
            (&first.promise, first.why) == (&broken.promise, broken.why)
        };
        match kinds.iter_mut().find(same) {
            Some((_, times)) => *times += 1,
            None => kinds.push((broken, 1)),
        }
    }
    let faults = kinds
        .into_iter()
        .enumerate()
        .map(|(kind, (broken, times))| Fault {
            severity: times.into(),
            key: kind as u32,
            explain: Box::new(move || broken_promise(look, zones, broken, times)),
        });
    faults.collect()
}

fn broken_promise(look: &Look<'_>, zones: &[Zones], broken: &BrokenPromise, times: u64) -> Explanation {
    let history = look.history;
    let name = readable(broken.promise.as_bytes(), 32);
    let at = history
        .promises
        .binary_search_by_key(&broken.record, |promise| promise.record);
    let promise = at.ok().map(|at| &history.promises[at]);
    let is_claim = matches!(broken.promise.as_str(), "version" | "asked" | "staleness");
    let title = match (is_claim, promise.is_some_and(|promise| promise.receipt.is_some())) {
        (true, _) => format!("a receipt is false ({name})"),
        (false, true) => format!("a receipt is false: {name} was not given"),
        (false, false) => format!("{name} was promised and not kept"),
    };
    let shown = promise.and_then(|promise| shows(look, zones, promise, &broken.promise));
    let mut words = vec![format!("Record {}: {}.", broken.record, broken.why)];
    words.extend(promise.and_then(|promise| receipt(history, promise)));
    let witness = match shown {
        Some(shown) => {
            words.extend(shown.words);
            shown.witness
        }
        None => {
            let operations = promise.map_or(0..0, |promise| promise.operations.clone());
            Case::of(history, operations.map(|place| place as usize).take(MOST_NAMED)).witness([])
        }
    };
    if times > 1 {
        let most = match times as usize {
            Audit::MOST_BROKEN => " or more",
            _ => "",
        };
        words.push(format!("This was found {times} times{most}; it is the first."));
    }
    Explanation::new(title, words, witness)
}

/// What a receipt says, if that can be shown beside what happened.
fn receipt(history: &History, promise: &Promise) -> Option<String> {
    let receipt = promise.receipt?;
    let level = |place: u32| readable(history.levels[place as usize].as_bytes(), 32);
    let mut says = format!(
        "Its receipt says: {} asked, {} given",
        level(receipt.asked),
        level(receipt.given)
    );
    if let Some(staleness) = receipt.staleness_us {
        says += &format!(", not older than {}", span(i128::from(staleness) * 1_000));
    }
    if let Some(asked) = promise.level.filter(|&asked| asked != receipt.asked) {
        says += &format!("; the record itself asked for {}", level(asked));
    }
    Some(says + ".")
}

/// The argument against a promise, if one of the analyses has it.
fn shows(look: &Look<'_>, zones: &[Zones], promise: &Promise, name: &str) -> Option<Explanation> {
    let operations = || promise.operations.clone().map(|place| place as usize);
    let reads = || {
        operations()
            .filter(|&place| look.at(place).kind == Kind::Read && is_sensible(look.history, look.at(place)))
    };
    let missed_most = || {
        let late = reads().filter_map(|read| Some((look.at(missed(look, read)?).finish, read)));
        late.min().map(|(_, read)| stale(look, read))
    };
    if name == "staleness" {
        return missed_most();
    }
    match Rule::of(name.parse().ok()?) {
        Rule::Bounded(_) => missed_most(),
        Rule::Session { ryw, mr, mw, wfr } => {
            let bound = Broken {
                ryw,
                mr,
                mw,
                wfr,
                ..Broken::default()
            };
            let mut each = reads().flat_map(|read| guarantees(bound).map(move |guarantee| (read, guarantee)));
            each.find_map(|(read, guarantee)| {
                let known = known(look, guarantee, read, true)?;
                Some(session(look, guarantee, read, known))
            })
        }
        Rule::OneCopy => operations().find_map(|place| {
            let key = look.at(place).key as usize;
            let clusters = &zones[key].clusters;
            let mine = clusters
                .iter()
                .find(|cluster| cluster.value == look.at(place).value)?;
            let other = clusters
                .iter()
                .find(|other| other.value != mine.value && other.weight > 0 && mine.conflicts(other))?;
            let gamma = (mine.s.saturating_sub(other.f)).min(other.s.saturating_sub(mine.f));
            Some(conflict(look.history, &look.by_key[key], *mine, *other, gamma))
        }),
        Rule::RealValues | Rule::Ordering(_) | Rule::Procedure => None,
    }
}

/// Records that contradict each other: for each sort of contradiction the first, and how many there are.
fn findings(history: &History) -> Vec<Explanation> {
    let sort = |finding: &Finding| match finding {
        Finding::TwoVersions { .. } => 0_u8,
        Finding::TwoValues { .. } => 1,
        Finding::TornSnapshot { .. } => 2,
        Finding::FailedWriteSeen { .. } => 3,
    };
    let mut sorts: BTreeMap<u8, (&Finding, u64)> = BTreeMap::new();
    for finding in &history.findings {
        sorts.entry(sort(finding)).or_insert((finding, 0)).1 += 1;
    }
    let explained = sorts.into_values().map(|(first, times)| {
        let mut explained = finding(history, first);
        if times > 1 {
            explained
                .words
                .push(format!("This was found {times} times; it is the first."));
        }
        explained
    });
    explained.collect()
}

fn finding(history: &History, finding: &Finding) -> Explanation {
    let name = |key: &[u8]| readable(key, 32);
    let (title, words, key, records) = match finding {
        Finding::TwoVersions { key, first, second } => (
            format!("one value of {} has two versions", name(key)),
            format!(
                "Records {first} and {second} name different versions for the same value. A version is given once, to one write."
            ),
            key,
            [*first, *second],
        ),
        Finding::TwoValues { key, first, second } => (
            format!("one version of {} has two values", name(key)),
            format!(
                "Records {first} and {second} name the same version for different values. Who has one cannot tell it from the other."
            ),
            key,
            [*first, *second],
        ),
        Finding::TornSnapshot { key, record } => (
            format!("a snapshot shows {} twice, and differently", name(key)),
            format!("Record {record} is one look at the data. It cannot show one key in two states."),
            key,
            [*record, *record],
        ),
        Finding::FailedWriteSeen { key, write, read } => (
            format!("a write to {} that was reported as not done was read", name(key)),
            format!("Record {write} says that nothing was written. Record {read} has read it."),
            key,
            [*write, *read],
        ),
    };
    let shown = (0..history.operations.len()).filter(|&place| {
        let operation = &history.operations[place];
        records.contains(&operation.record) && history.keys[operation.key as usize].name == *key
    });
    let witness = Case::of(history, shown.take(MOST_NAMED)).witness([]);
    Explanation::new(title, vec![words], witness)
}
