//! The same numbers by site, by level and over time, and the contradictions counted.
//!
//! Each read is counted at the site that it was sent to, and at the level that it was promised.
use crate::{
    Finding, History, SessionViolations, Staleness, Verdicts, Zones, levels::Verdict,
    receipts::promised_level,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// The counts for a part of the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Part {
    /// The number of operations that count.
    pub operations: u64,
    /// Reads that missed a write that was over before they began.
    pub stale_reads: u64,
    /// The longest time for which such a write had been over.
    pub max_staleness_ns: i64,
    /// How many reads broke each session guarantee.
    pub session_violations: SessionViolations,
    /// Receipts of these operations, each as a whole. Receipts of operations that do not count are in no part.
    pub receipts: Verdicts,
}

impl Part {
    pub(crate) fn is_stale(&mut self, ns: i64) {
        let mut stale = Staleness {
            stale_reads: self.stale_reads,
            max_ns: self.max_staleness_ns,
        };
        stale.add(ns);
        (self.stale_reads, self.max_staleness_ns) = (stale.stale_reads, stale.max_ns);
    }
}

/// Parts by site and by level, while they are counted.
pub(crate) struct Parts {
    sites: Vec<Part>,
    levels: Vec<Part>,
    /// The level of each operation, from 1; 0 if it names none. Empty if no operation names a level.
    level_of: Vec<u32>,
}

impl Parts {
    /// Operations and receipts; `verdicts` go with [`History::promises`].
    pub(crate) fn of(history: &History, verdicts: &[Verdict]) -> Parts {
        let mut parts = Parts {
            sites: vec![Part::default(); history.sites.len()],
            levels: vec![Part::default(); history.levels.len()],
            level_of: Vec::new(),
        };
        if !history.promises.is_empty() {
            parts.level_of.resize(history.operations.len(), 0);
        }
        for promise in &history.promises {
            let level = promised_level(promise).map_or(0, |level| level + 1);
            for place in promise.operations.clone() {
                parts.level_of[place as usize] = level;
            }
        }
        for place in 0..history.recorded() {
            parts.each_of(history, place, |part| part.operations += 1);
        }
        for (promise, &verdict) in history.promises.iter().zip(verdicts) {
            if promise.receipt.is_some() && !promise.operations.is_empty() {
                let place = promise.operations.start as usize;
                parts.each_of(history, place, |part| part.receipts.add(verdict));
            }
        }
        parts
    }

    /// The parts that an operation belongs to.
    pub(crate) fn each_of(&mut self, history: &History, place: usize, each: impl Fn(&mut Part)) {
        each(&mut self.sites[usize::from(history.operations[place].site)]);
        let level = self.level_of.get(place).and_then(|level| level.checked_sub(1));
        if let Some(level) = level {
            each(&mut self.levels[level as usize]);
        }
    }

    /// The parts by site and by level that have operations.
    pub(crate) fn named(self, history: &History) -> (BTreeMap<String, Part>, BTreeMap<String, Part>) {
        let named = |names: &[String], parts: Vec<Part>| {
            let parts = names.iter().cloned().zip(parts);
            parts.filter(|(_, part)| part.operations > 0).collect()
        };
        (
            named(&history.sites, self.sites),
            named(&history.levels, self.levels),
        )
    }
}

/// Operations that began within one span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// The beginning of the span, in nanoseconds.
    pub from_ns: i64,
    /// The number of operations that count.
    pub operations: u64,
    /// How many of them are among those whose removal leaves the trace atomic.
    pub removed: u64,
}

/// The number of spans into which a trace is divided.
const MOMENTS: i128 = 60;

/// Operations and removed operations in spans of equal length, from the first start to the last. O(n + m log m).
pub(crate) fn over_time(history: &History, zones: &[Zones]) -> Vec<Moment> {
    let operations = &history.operations[..history.recorded()];
    let starts = || operations.iter().map(|operation| operation.start);
    let (Some(first), Some(last)) = (starts().min(), starts().max()) else {
        return Vec::new();
    };
    let since = |start: i64| i128::from(start) - i128::from(first);
    let span = since(last) / MOMENTS + 1;
    let moment = |number: i128| Moment {
        from_ns: i64::try_from(i128::from(first) + number * span).unwrap_or(i64::MAX),
        operations: 0,
        removed: 0,
    };
    let mut moments: Vec<Moment> = (0..=since(last) / span).map(moment).collect();
    let removed: Vec<Vec<crate::Value>> = zones.iter().map(|zones| zones.removal(0)).collect();
    for operation in operations {
        let moment = &mut moments[(since(operation.start) / span) as usize];
        let key = operation.key as usize;
        let is_removed = removed[key].binary_search(&operation.value).is_ok()
            || history.keys[key].is_phantom(operation.value);
        moment.operations += 1;
        moment.removed += u64::from(is_removed);
    }
    moments
}

/// How often records contradict each other. Each time is a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Findings {
    /// A value with two versions, or a version with two values.
    pub mixed_versions: u64,
    /// A snapshot that shows a key twice, and differently.
    pub torn_snapshots: u64,
    /// Reads of the value of a write that was certainly not done.
    pub failed_writes_seen: u64,
}

impl Findings {
    pub(crate) fn of(history: &History) -> Findings {
        let mut findings = Findings::default();
        for finding in &history.findings {
            match finding {
                Finding::TwoVersions { .. } | Finding::TwoValues { .. } => findings.mixed_versions += 1,
                Finding::TornSnapshot { .. } => findings.torn_snapshots += 1,
                Finding::FailedWriteSeen { .. } => findings.failed_writes_seen += 1,
            }
        }
        findings
    }

    /// All of them.
    pub fn all(&self) -> u64 {
        self.mixed_versions + self.torn_snapshots + self.failed_writes_seen
    }
}
