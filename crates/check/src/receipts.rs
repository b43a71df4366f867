//! The audit of receipts and recorded levels: whether the claims of the answers were true.
//!
//! | claim | false if |
//! |---|---|
//! | `version` | the value had another version before, or the version another value |
//! | `asked` | the record says that another level was asked for: a downgrade that the receipt hides |
//! | `level` | the level that was given is broken ([`crate::levels`]) |
//! | `staleness` | a read missed a write of the key that the receipt covers, and that had been acknowledged for longer than the bound |
//!
//! A claim is *false*, *not contradicted* or *not auditable*, and all three are counted. Not auditable are: versions that are not
//! named, levels that a trace cannot judge, bounds of writes (a write shows nothing of what was there before), and claims about
//! a key that is not auditable. A receipt is false if one claim of it is; not auditable if all are.
//!
//! A receipt that openly gives less than was asked for is judged by what it gives, and counted as *weaker*: whether the caller had
//! allowed that is not in the trace.
//!
//! A record that names a level and has no receipt promises that level.
use crate::{
    History, Promised,
    levels::{LevelJudge, Verdict, nanoseconds},
};
use indexmap::IndexMap;
use serde::Serialize;
use std::collections::BTreeMap;
use std::hash::RandomState;
use turnbuckle_core::{Level, Promise};

/// How often each verdict was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Verdicts {
    /// Broken promises.
    #[serde(rename = "false")]
    pub broken: u64,
    /// Promises that the trace does not contradict.
    pub not_contradicted: u64,
    /// Promises that cannot be judged.
    pub not_auditable: u64,
}

impl Verdicts {
    pub(crate) fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::False(_) => self.broken += 1,
            Verdict::NotContradicted => self.not_contradicted += 1,
            Verdict::NotAuditable(_) => self.not_auditable += 1,
        }
    }

    /// All of them.
    pub fn all(&self) -> u64 {
        self.broken + self.not_contradicted + self.not_auditable
    }
}

/// A promise that the trace shows broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrokenPromise {
    /// The number of the record, from 0.
    pub record: u64,
    /// The level, or the claim of the receipt.
    pub promise: String,
    /// What happened instead.
    pub why: &'static str,
}

/// The verdicts on all receipts and recorded levels.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Audit {
    /// Receipts, each as a whole.
    pub receipts: Verdicts,
    /// Their claims one by one.
    pub claims: BTreeMap<&'static str, Verdicts>,
    /// Receipts that openly gave another level than was asked for.
    pub weaker: u64,
    /// Promised levels, by the level.
    pub levels: BTreeMap<String, Verdicts>,
    /// The reasons why promises could not be judged, and how often each.
    pub not_auditable: BTreeMap<&'static str, u64>,
    /// The first broken promises of the trace: at most [`Audit::MAX_BROKEN_LISTED`].
    pub broken: Vec<BrokenPromise>,
}

impl Audit {
    /// How many broken promises are named.
    pub const MAX_BROKEN_LISTED: usize = 100;

    /// Audits all promises of a trace. Beside the judge's work O(n) for each level that occurs.
    pub fn of(history: &History, judge: &LevelJudge<'_>) -> (Audit, Vec<Verdict>) {
        let levels = level_verdicts(history, judge);
        let mut audit = Audit::default();
        let mut overall = Vec::with_capacity(history.promises.len());
        for (promise, &level) in history.promises.iter().zip(&levels) {
            let by_name = promised_level(promise).map(|place| &history.levels[place as usize]);
            if let Some(name) = by_name {
                audit.levels.entry(name.clone()).or_default().add(level);
                audit.note(promise, name, level);
            }
            let claims = claims(history, judge, promise, level);
            for (claim, verdict) in claims.into_iter().flatten() {
                audit.claims.entry(claim).or_default().add(verdict);
                if claim != "level" {
                    audit.note(promise, claim, verdict);
                }
            }
            let verdict = whole(claims);
            if let Some(receipt) = promise.receipt {
                audit.receipts.add(verdict);
                audit.weaker += u64::from(receipt.asked != receipt.given);
            }
            overall.push(verdict);
        }
        (audit, overall)
    }

    /// Whether some promise was broken.
    pub fn is_broken(&self) -> bool {
        !self.broken.is_empty()
    }

    fn note(&mut self, promise: &Promised, name: &str, verdict: Verdict) {
        match verdict {
            Verdict::False(why) if self.broken.len() < Audit::MAX_BROKEN_LISTED => {
                self.broken.push(BrokenPromise {
                    record: promise.record,
                    promise: name.to_owned(),
                    why,
                })
            }
            Verdict::NotAuditable(why) => *self.not_auditable.entry(why).or_default() += 1,
            _ => {}
        }
    }
}

/// The level that an answer is held to: the one given, or asked for if it says nothing.
pub(crate) fn promised_level(promise: &Promised) -> Option<u32> {
    promise.receipt.map(|receipt| receipt.given).or(promise.level)
}

/// The worst of a record's operations; a record without some of its operations cannot be judged as a whole.
fn worst(promise: &Promised, verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let missing = match promise.operations.len() < promise.parts as usize {
        true => Verdict::NotAuditable("the operation does not count, or its key is not auditable"),
        false => Verdict::NotContradicted,
    };
    verdicts.fold(missing, Verdict::max)
}

/// Each promise, judged by its level.
fn level_verdicts(history: &History, judge: &LevelJudge<'_>) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::NotContradicted; history.operations.len()];
    let parsed: Vec<Option<Level>> = history.levels.iter().map(|level| level.parse().ok()).collect();
    // Levels with the same promise are judged together.
    let mut places: IndexMap<Promise, (Level, Vec<usize>), RandomState> = IndexMap::default();
    for promise in &history.promises {
        let level = promised_level(promise).and_then(|place| parsed[place as usize]);
        if let Some(level) = level {
            let operations = promise.operations.clone().map(|place| place as usize);
            let (_, places) = places.entry(level.promise()).or_insert((level, Vec::new()));
            places.extend(operations);
        }
    }
    for (level, places) in places.into_values() {
        for (&place, verdict) in places.iter().zip(judge.promised(level, &places)) {
            verdicts[place] = verdict;
        }
    }
    let judged = history.promises.iter().map(|promise| {
        match promised_level(promise).map(|place| parsed[place as usize]) {
            Some(None) => Verdict::NotAuditable("the name of the level is not known"),
            _ => worst(
                promise,
                promise.operations.clone().map(|place| verdicts[place as usize]),
            ),
        }
    });
    judged.collect()
}

type Claims = [Option<(&'static str, Verdict)>; 4];

fn claims(history: &History, judge: &LevelJudge<'_>, promise: &Promised, level: Verdict) -> Claims {
    let Some(receipt) = promise.receipt else {
        return [None; 4];
    };
    let version = match receipt.contradicts {
        Some(true) => Verdict::False("the value and its version are not one to one"),
        Some(false) => Verdict::NotContradicted,
        None => Verdict::NotAuditable("it names no version"),
    };
    let same = |one: u32, other: u32| {
        let parsed = [one, other].map(|place| history.levels[place as usize].parse::<Level>());
        one == other || matches!(parsed, [Ok(one), Ok(other)] if one == other)
    };
    let asked = promise.level.map(|level| match same(level, receipt.asked) {
        true => Verdict::NotContradicted,
        false => Verdict::False("another level was asked for"),
    });
    let staleness = receipt.staleness_us.map(|bound| {
        let reads = promise
            .operations
            .clone()
            .map(|place| match &history.operations[place as usize] {
                operation if operation.kind != crate::Kind::Read => {
                    Verdict::NotAuditable("a write does not show what it reflects")
                }
                operation if history.keys[operation.key as usize].is_phantom(operation.value) => {
                    Verdict::NotAuditable("it read a value that no client wrote, so its age is not known")
                }
                _ => judge.staleness(place as usize, nanoseconds(bound)),
            });
        worst(promise, reads)
    });
    [
        Some(("version", version)),
        asked.map(|asked| ("asked", asked)),
        Some(("level", level)),
        staleness.map(|staleness| ("staleness", staleness)),
    ]
}

/// A receipt as a whole.
fn whole(claims: Claims) -> Verdict {
    let verdicts = || claims.into_iter().flatten().map(|(_, verdict)| verdict);
    let broken = verdicts().find(|verdict| matches!(verdict, Verdict::False(_)));
    let held = verdicts().find(|verdict| *verdict == Verdict::NotContradicted);
    broken
        .or(held)
        .unwrap_or(Verdict::NotAuditable("none of its claims can be judged"))
}

const NOTHING_TO_JUDGE: &str = "there is nothing to judge: no read of the trace counts";

/// What a trace says about a level that is required of all its operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requirement {
    /// The trace does not contradict it.
    Kept,
    /// It was broken.
    Broken {
        /// How many operations break it.
        operations: u64,
        /// The first of them in the trace.
        first: BrokenPromise,
    },
    /// It cannot be judged.
    NotAuditable(&'static str),
}

/// Holds every operation of a trace to one level. A trace without a read that counts shows nothing, so it keeps no level.
pub fn require(history: &History, judge: &LevelJudge<'_>, level: Level) -> Requirement {
    let places: Vec<usize> = (0..history.recorded()).collect();
    let (mut broken, mut first, mut unknown) = (0, None, None);
    for (&place, verdict) in places.iter().zip(judge.level(level, &places)) {
        match verdict {
            Verdict::False(why) => {
                broken += 1;
                first.get_or_insert((place, why));
            }
            Verdict::NotAuditable(why) => unknown = Some(why),
            Verdict::NotContradicted => {}
        }
    }
    let some_key = (!history.not_auditable.is_empty()).then_some("some keys are not auditable");
    let some_read = (history.doubtful_reads > 0).then_some("some reads of nothing name no version");
    let nothing = history.has_nothing_to_judge().then_some(NOTHING_TO_JUDGE);
    match (first, nothing.or(unknown).or(some_key).or(some_read)) {
        (Some((place, why)), _) => Requirement::Broken {
            operations: broken,
            first: BrokenPromise {
                record: history.operations[place].record,
                promise: level.to_string(),
                why,
            },
        },
        (None, Some(why)) => Requirement::NotAuditable(why),
        (None, None) => Requirement::Kept,
    }
}
