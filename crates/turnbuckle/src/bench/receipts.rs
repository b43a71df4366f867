//! What the answers claimed about themselves.

use serde::Serialize;
use std::collections::BTreeMap;
use turnbuckle_resp::Value;
use turnbuckle_workload::{Claim, Latencies, Summary};

/// A receipt as it came before a reply, and the version it names.
pub(crate) type Received = (Claim, Option<String>);

/// Splits a reply from its receipt, if it has one.
pub(crate) fn split_receipt(reply: Value) -> (Value, Option<Received>) {
    match reply {
        Value::Attribute(fields, value) => (*value, read_receipt(&fields)),
        value => (value, None),
    }
}

/// The receipt in an attribute. Other attributes, which know no levels, are none; what a field does not say is left out.
fn read_receipt(fields: &[(Value, Value)]) -> Option<Received> {
    let find = |wanted: &str| {
        fields
            .iter()
            .find(|(name, _)| text(name).is_some_and(|name| name == wanted))
            .map(|(_, value)| value)
    };
    let word = |name| find(name).and_then(text);
    let number = |name| match find(name) {
        Some(Value::Integer(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let claim = Claim {
        asked: word("asked")?,
        given: word("given")?,
        site: word("site"),
        server: word("server"),
        route: word("route"),
        waited_us: number("waited_us").unwrap_or(0),
        staleness_us: number("staleness_us"),
        clock_bound_us: number("clock_bound_us").unwrap_or(0),
        siblings: find("siblings") == Some(&Value::Boolean(true)),
    };
    Some((claim, word("version")))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Bulk(text) | Value::Simple(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
}

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
    /// How many names are told apart. A server that makes up ever new ones fills no memory.
    const MOST_NAMES: usize = 64;

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
    let name = if counts.len() < Receipts::MOST_NAMES && name.len() <= 64 {
        name
    } else {
        "OTHER"
    };
    *counts.entry(name.to_owned()).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &'static str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn a_receipt_is_read_from_the_attribute_of_a_reply() {
        let fields = vec![
            (bulk("asked"), bulk("causal")),
            (bulk("given"), bulk("eventual")),
            (bulk("version"), bulk("17.0@a")),
            (bulk("site"), bulk("a")),
            (bulk("server"), bulk("a/0/1")),
            (bulk("route"), bulk("local")),
            (bulk("waited_us"), Value::Integer(3)),
            (bulk("staleness_us"), Value::Null),
            (bulk("clock_bound_us"), Value::Integer(500)),
            (bulk("siblings"), Value::Boolean(true)),
            (bulk("of a later version"), Value::Null),
        ];
        let reply = Value::Attribute(fields, Box::new(Value::Null));
        let (value, received) = split_receipt(reply);
        let (claim, version) = received.expect("a receipt");
        assert_eq!((value, version.as_deref()), (Value::Null, Some("17.0@a")));
        assert_eq!(
            claim,
            Claim {
                asked: "causal".into(),
                given: "eventual".into(),
                site: Some("a".into()),
                server: Some("a/0/1".into()),
                route: Some("local".into()),
                waited_us: 3,
                staleness_us: None,
                clock_bound_us: 500,
                siblings: true,
            }
        );
        let mut receipts = Receipts::default();
        receipts.add(&claim);
        let summary = receipts.summary();
        assert_eq!((summary.recorded, summary.weaker, summary.bounded), (1, 1, 0));
        assert_eq!(summary.given, BTreeMap::from([("eventual".into(), 1)]));
    }

    #[test]
    fn an_attribute_that_is_no_receipt_is_none() {
        let fields = vec![(bulk("key-popularity"), bulk("90"))];
        let reply = Value::Attribute(fields, Box::new(Value::Integer(1)));
        assert_eq!(split_receipt(reply), (Value::Integer(1), None));
    }

    #[test]
    fn ever_new_names_are_counted_together() {
        let mut counts = BTreeMap::new();
        for number in 0..1_000 {
            count(&mut counts, &format!("WORD{number}"));
        }
        count(&mut counts, "WORD0");
        assert_eq!(counts.len(), Receipts::MOST_NAMES + 1);
        assert_eq!((counts["WORD0"], counts["OTHER"]), (2, 936));
    }
}
