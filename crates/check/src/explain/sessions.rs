//! Session guarantees that were broken.
use super::{Age, Case, Explanation, Fault, Look, age, edge, plural, writer};
use crate::{
    Because, Broken, Kind, Value, each_session_violation,
    order::is_sensible,
    timeline::{key_name, readable},
};
use std::{cmp::Reverse, collections::BTreeMap};

/// A promise to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Guarantee {
    ReadYourWrites,
    MonotonicReads,
    MonotonicWrites,
    WritesFollowReads,
}

/// The guarantees that a read breaks.
pub(super) fn guarantees(broken: Broken) -> impl Iterator<Item = Guarantee> {
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
pub(super) fn sessions<'a>(look: &'a Look<'a>) -> Vec<Vec<Fault<'a>>> {
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
pub(super) struct Known {
    /// An earlier operation, by this client or by a client whose write it had read: a read or write of something newer; or of the same, if the
    /// write after it is newer.
    newer: usize,
    /// How the client knows the other client's session: its read, and the write that this read saw.
    seen: Option<(usize, usize)>,
}

/// Searches the operation that shows that a read breaks a guarantee, perhaps within its key. If there are several, it is the one with the newest
/// value. O(n).
pub(super) fn known(look: &Look<'_>, guarantee: Guarantee, read: usize, within_key: bool) -> Option<Known> {
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
        let Some(write) = look.history.seen_by(by) else {
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

pub(super) fn session(look: &Look<'_>, guarantee: Guarantee, read: usize, known: Known) -> Explanation {
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
            format!(
                "{client} saw a client's write, and not that client's earlier write to {key} (monotonic writes)"
            )
        }
        Guarantee::WritesFollowReads => {
            format!(
                "{client} saw a client's write, and not what that client had read of {key} before (writes follow reads)"
            )
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
    let read = match case.operation(by).kind {
        Kind::Read => "read",
        Kind::Write | Kind::UnknownWrite => "deleted",
    };
    format!(
        "{other} {} ({}) and then {} ({}), which {me} {read} ({}). So {me} depends on both.",
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
