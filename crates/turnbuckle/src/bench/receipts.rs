//! What the answers claimed about themselves.

use serde::Serialize;
use std::collections::BTreeMap;
use turnbuckle_workload::{Claim, Latencies, Summary};

/// All receipts of a run, in a few numbers.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    recorded: u64,
    weaker: u64,
    given: BTreeMap<String, u64>,
    routes: BTreeMap<String, u64>,
    staleness: Latencies,
}

/// As people and programs read them.
#[derive(Debug, Serialize)]
pub(crate) struct ReceiptSummary {
    /// How many there were.
    pub(crate) recorded: u64,
    /// How many gave another level than was asked for.
    pub(crate) weaker: u64,
    /// How many gave each level.
    pub(crate) given: BTreeMap<String, u64>,
    /// How many took each route.
    pub(crate) routes: BTreeMap<String, u64>,
    /// How many proved a bound on staleness.
    pub(crate) bounded: u64,
    /// Those bounds, in microseconds.
    pub(crate) staleness: Summary,
}

impl Receipts {
    /// The most names that are counted separately. So a server that invents names cannot fill the memory.
    const MAX_NAMES: usize = 64;

    /// One more.
    pub(crate) fn add(&mut self, claim: &Claim) {
        self.recorded += 1;
        self.weaker += u64::from(claim.asked != claim.given);
        count(&mut self.given, &claim.given);
        if let Some(route) = &claim.route {
            count(&mut self.routes, route);
        }
        if let Some(staleness_us) = claim.staleness_us {
            self.staleness.record_ns(staleness_us.saturating_mul(1_000));
        }
    }

    pub(crate) fn summary(&self) -> ReceiptSummary {
        ReceiptSummary {
            recorded: self.recorded,
            weaker: self.weaker,
            given: self.given.clone(),
            routes: self.routes.clone(),
            bounded: self.staleness.count(),
            staleness: self.staleness.summary(),
        }
    }
}

/// Counts a name that came over the network.
pub(crate) fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count += 1;
        return;
    }
    let name = if counts.len() < Receipts::MAX_NAMES && name.len() <= 64 {
        name
    } else {
        "OTHER"
    };
    *counts.entry(name.to_owned()).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_are_counted_by_what_they_gave_and_how() {
        let claim = Claim {
            asked: "causal".into(),
            given: "eventual".into(),
            route: Some("local".into()),
            ..Claim::default()
        };
        let mut receipts = Receipts::default();
        receipts.add(&claim);
        let summary = receipts.summary();
        assert_eq!((summary.recorded, summary.weaker, summary.bounded), (1, 1, 0));
        assert_eq!(summary.given, BTreeMap::from([("eventual".into(), 1)]));
    }

    #[test]
    fn ever_new_names_are_counted_together() {
        let mut counts = BTreeMap::new();
        for number in 0..1_000 {
            count(&mut counts, &format!("WORD{number}"));
        }
        count(&mut counts, "WORD0");
        assert_eq!(counts.len(), Receipts::MAX_NAMES + 1);
        assert_eq!((counts["WORD0"], counts["OTHER"]), (2, 936));
    }
}
