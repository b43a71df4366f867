//! Promises that a trace records and shows broken, and records that contradict each other.
use super::{
    Case, Explanation, Fault, Look, MAX_NAMED,
    one_copy::conflict,
    sessions::{guarantees, known, session},
    staleness::{missed, stale},
};
use crate::{
    Audit, Broken, BrokenPromise, Finding, History, Kind, Promised, Zones,
    order::is_sensible,
    timeline::{readable, span},
};
use std::collections::BTreeMap;
use turnbuckle_core::{Level, Promise};

/// Levels and claims of receipts that were broken: for each its first violation, and the number of its violations among those that were listed.
pub(super) fn promises<'a>(look: &'a Look<'a>, zones: &'a [Zones], audit: &'a Audit) -> Vec<Fault<'a>> {
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
    words.extend(promise.and_then(|promise| receipt(history, promise, &broken.promise)));
    let witness = match shown {
        Some(shown) => {
            words.extend(shown.words);
            shown.witness
        }
        None => {
            let operations = promise.map_or(0..0, |promise| promise.operations.clone());
            Case::of(history, operations.map(|place| place as usize).take(MAX_NAMED)).witness([])
        }
    };
    if times > 1 {
        let max = match times as usize {
            Audit::MAX_BROKEN_LISTED => " or more",
            _ => "",
        };
        words.push(format!("This was found {times} times{max}; it is the first."));
    }
    Explanation::new(title, words, witness)
}

/// What a receipt says, if that can be shown beside what happened. `broken` is the promise that was broken.
fn receipt(history: &History, promise: &Promised, broken: &str) -> Option<String> {
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
    says += ".";
    if receipt.covers > 1 && is_about_age(broken) {
        says += &format!(
            " It covers only writes that at least {} replicas had stored when they were acknowledged.",
            receipt.covers
        );
    }
    Some(says)
}

/// Whether it is broken by a read that missed a write for too long.
fn is_about_age(promise: &str) -> bool {
    let level = promise.parse().ok().map(|level: Level| level.promise());
    promise == "staleness" || matches!(level, Some(Promise::Bounded(_)))
}

/// How many reads of one snapshot are searched for an argument.
const MAX_READS: usize = 64;

/// The argument against a promise, if one of the analyses has it.
fn shows(look: &Look<'_>, zones: &[Zones], promise: &Promised, name: &str) -> Option<Explanation> {
    let operations = || promise.operations.clone().map(|place| place as usize);
    let counts =
        |&place: &usize| look.at(place).kind == Kind::Read && is_sensible(look.history, look.at(place));
    let reads = || operations().filter(counts).take(MAX_READS);
    if is_about_age(name) {
        let covers = promise.receipt.map_or(1, |receipt| receipt.covers);
        let late = reads().filter_map(|read| Some((look.at(missed(look, read, covers)?).finish, read)));
        return late.min().map(|(_, read)| stale(look, read, covers));
    }
    match name.parse::<Level>().ok()?.promise() {
        Promise::Session { ryw, mr, mw, wfr } => {
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
        Promise::OneCopy => operations().take(MAX_READS).find_map(|place| {
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
        Promise::Bounded(_) | Promise::RealValues | Promise::Order(_) | Promise::Procedure => None,
    }
}

/// Records that contradict each other: for each sort of contradiction the first, and how many there are.
pub(super) fn findings(history: &History) -> Vec<Explanation> {
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
                "Records {first} and {second} name the same version for different values. A version belongs to one write."
            ),
            key,
            [*first, *second],
        ),
        Finding::TornSnapshot { key, record } => (
            format!("a snapshot shows {} twice, and differently", name(key)),
            format!("Record {record} is one snapshot. It cannot show one key in two states."),
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
    let witness = Case::of(history, shown.take(MAX_NAMED)).witness([]);
    Explanation::new(title, vec![words], witness)
}
