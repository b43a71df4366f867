//! Reads that missed a write, and sites whose last reads differ.
use super::{Age, Case, Explanation, Fault, Look, age, edge, writer};
use crate::{
    Because, Edge, History, Kind, converged, each_stale_read, propagation,
    staleness::{is_late, last_reads},
    timeline::span,
};
use std::{cmp::Reverse, collections::BTreeMap};

/// For each key the read that missed a write for the longest time.
pub(super) fn stale_reads<'a>(look: &'a Look<'a>) -> Vec<Fault<'a>> {
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
        explain: Box::new(move || stale(look, read, 1)),
    });
    faults.collect()
}

/// Of the newer writes that were over before the read began, and that at least `covers` replicas had stored then, the one that was over first.
pub(super) fn missed(look: &Look<'_>, read: usize, covers: u8) -> Option<usize> {
    let is_missed = |&place: &usize| {
        look.at(place).kind != Kind::Read
            && look.is_older(read, place)
            && look.at(place).finish < look.at(read).start
            && (covers <= 1 || look.history.copies_of(place) >= covers)
    };
    let missed = look.on_key_of(read).iter().copied().filter(is_missed);
    missed.min_by_key(|&place| (look.at(place).finish, place))
}

/// `covers`: see [`missed`].
pub(super) fn stale(look: &Look<'_>, read: usize, covers: u8) -> Explanation {
    let history = look.history;
    let missed = missed(look, read, covers).expect("a stale read has missed a write");
    let ns = i128::from(look.at(read).start) - i128::from(look.at(missed).finish);
    let age = age(look, read, missed);
    let source = writer(history, read);
    let shown = age.into_iter().flat_map(Age::operations);
    let case = Case::of(history, shown.chain(source).chain([read, missed]));
    let key = case.key(read);
    let mut words = vec![format!(
        "{} {}, and was over at {}. {} later, at {}, {} began, and still read {}.",
        case.number(missed),
        case.did(missed),
        case.finish(missed),
        span(ns),
        case.start(read),
        case.number(read),
        case.value(read),
    )];
    words.extend(age.map(|age| format!("That is older: {}", age.words(&case))));
    if covers > 1 {
        words.push(format!(
            "{} replicas had stored {} when it was acknowledged.",
            history.copies_of(missed),
            case.number(missed),
        ));
    }
    let mut edges = vec![edge(missed, read, Because::RealTime)];
    edges.extend(age.map(Age::edge));
    Explanation::new(
        format!(
            "a read of {key} missed a write that was over {} before (stale read)",
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
pub(super) fn disagreements<'a>(history: &'a History, by_key: &'a [Vec<usize>]) -> Vec<Fault<'a>> {
    let propagation = propagation(history);
    let verdicts = converged(history, propagation);
    let at = |place: usize| &history.operations[place];
    let mut broken = Vec::new();
    for (key, (quiet, reads)) in last_reads(history).into_iter().enumerate() {
        if verdicts[key] != Some(false) {
            continue;
        }
        let is_late = |place: &usize| is_late(history, *place, quiet, propagation);
        let late = || reads.values().copied().filter(is_late);
        let latest = |place: &usize| (at(*place).start, Reverse(*place));
        let Some(one) = late().max_by_key(latest) else {
            continue;
        };
        let differs = |place: &usize| at(*place).value != at(one).value;
        let Some(other) = late().filter(differs).max_by_key(latest) else {
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
    let client = |place: usize| case.client(place);
    let calm = match quiet {
        Some(write) => format!(
            "No client wrote {key} after {} was over, at {}.",
            case.number(write),
            case.finish(write)
        ),
        None => format!("No client ever wrote {key}."),
    };
    let words = vec![format!(
        "{calm} But the last value that {} read is {} ({}), and the last value that {} read is {} ({}).",
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
        format!("the last reads of {key} by different clients differ (convergence)"),
        words,
        case.witness(edges),
    )
}
