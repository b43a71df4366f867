//! Why a trace does not look like one copy: how far it is from it, values in conflict, and reads that nothing explains.
//!
//! # Two values in conflict
//!
//! Values `a` and `b` are in conflict if `a.f < b.s` and `b.f < a.s` (clusters and zones are defined at the top of the crate): some
//! operation of `a` was over before some operation of `b` began, so `a` was there first; and some operation of `b` was over
//! before some operation of `a` began, so `b` was. These are at most four operations, and one operation can have two of these roles. Of all
//! choices the one with the fewest operations is taken, the two writes included, and among those the one with the widest gaps.
//! For the trace of Figure 1 (McKenzie, Fan and Golab 2015) this gives the argument of its authors: `W(b)` before `W(a)` before `R(b)`.
//!
//! Of a key's pairs the one with the greatest Gamma is shown, and of all keys those with the greatest Gamma. So conflicts that no error of
//! clocks explains come first. O(n + m log m) for n operations and m values: pairs are not enumerated.
use super::{Case, Explanation, Fault, MAX_NAMED, edge, plural};
use crate::{
    Because, Cluster, Fraction, History, Kind, Value, Witness, Zones,
    timeline::{key_name, readable, span},
};
use std::{cmp::Reverse, collections::BTreeSet};

/// How many operations must be removed, and on which values.
pub(super) fn distance(history: &History, zones: &[Zones]) -> Option<Explanation> {
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
    let named = gone.iter().take(MAX_NAMED).map(|&(weight, key, value)| {
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
    if let Some(more) = gone.len().checked_sub(MAX_NAMED).filter(|&more| more > 0) {
        named.push(format!("those on {} more", plural(more as u64, "value")));
    }
    let phantoms: u64 = zones.iter().map(|zones| zones.phantom_reads).sum();
    if phantoms > 0 {
        named.push(format!(
            "{} of values that no client wrote",
            plural(phantoms, "read")
        ));
    }
    let fraction = Fraction::new(removed, counted);
    let percent = 100.0 * fraction.as_f64();
    let in_lowest_terms = match fraction.denominator == counted {
        true => String::new(),
        false => format!(" = {fraction}"),
    };
    let words = format!(
        "The operations on a value (its write, and every read of it) are removed together or not at all. To make this trace look like a \
         single copy of the data, at least {removed} of its {} must be removed ({removed}/{counted}{in_lowest_terms}, {percent:.3} %): \
         {}. There may be other choices of the same size.",
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
pub(super) fn conflicts<'a>(
    history: &'a History,
    zones: &[Zones],
    by_key: &'a [Vec<usize>],
) -> Vec<Fault<'a>> {
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
        // An operation that comes after the other value and also before it.
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

/// Two operations of a value, or one operation in both roles: when the early one was over, the value had been there, and when the late one
/// began, the value was still there or was to come.
#[derive(Clone, Copy)]
struct Stay {
    /// `None` for the initial value.
    early: Option<usize>,
    late: usize,
}

impl Stay {
    /// The span in which the value certainly was there. `None` if it need not have been there for more than a moment.
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

pub(super) fn conflict(
    history: &History,
    of_key: &[usize],
    one: Cluster,
    other: Cluster,
    gamma: i64,
) -> Explanation {
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

/// Why the two cannot both be true.
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
            "So {key} would have had the value {inner}, and then none again, although no client deleted it."
        );
    }
    format!(
        "So {key} would have gone from {outer_value} to {inner} and back to {outer_value}. Each value is written once: one \
         copy does not return to what was overwritten."
    )
}

/// For each key the first read of a value that no client wrote.
pub(super) fn phantoms(history: &History) -> Vec<Fault<'_>> {
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
        "{} read {value} from {key}. No write of it is in the trace, or the write failed. So no order of the operations explains this read.",
        case.number(read)
    )];
    if reads > 1 {
        words.push(format!("{} of {key} are like that.", plural(reads, "read")));
    }
    Explanation::new(
        format!("{key} was read with a value that no client wrote"),
        words,
        case.witness([]),
    )
}

/// For each key the read that was over longest before its write began.
pub(super) fn futures(history: &History) -> Vec<Fault<'_>> {
    let mut of_key: Vec<Option<(i128, usize, usize)>> = vec![None; history.keys.len()];
    for (place, read) in history.operations.iter().enumerate() {
        let writer = history.keys[read.key as usize].writers[read.value.index()];
        let Some(writer) = writer.filter(|_| read.kind == Kind::Read) else {
            continue;
        };
        let early = i128::from(history.operations[writer].start) - i128::from(read.finish);
        let worst = &mut of_key[read.key as usize];
        if early > 0 && worst.is_none_or(|(max, ..)| early > max) {
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
        "{} had read {value} and was over at {}. {} wrote it, and began {} later, at {}. A value cannot be read before its write begins: \
         either a clock is wrong by at least that time, or the store made the value up.",
        case.number(read),
        case.finish(read),
        case.number(write),
        span(early),
        case.start(write),
    )];
    Explanation::new(
        format!("{key} was read with a value before its write began"),
        words,
        case.witness([edge(read, write, Because::RealTime)]),
    )
}
