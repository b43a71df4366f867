//! Receipts: what an answer says about itself, separated from the reply with which it comes.
use crate::Claim;
use std::num::NonZeroU8;
use turnbuckle_resp::Value;

/// A receipt that came before a reply, and the version that it names.
pub type Received = (Claim, Option<String>);

/// Splits a reply from its receipt, if it has one.
pub fn split_receipt(reply: Value) -> (Value, Option<Received>) {
    match reply {
        Value::Attribute(fields, value) => (*value, read_receipt(&fields)),
        value => (value, None),
    }
}

/// The receipt in an attribute. `None` if the attribute has no levels, since it is no receipt then. Missing fields stay
/// empty.
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
    // A reply may name any number of replicas. Above 255 the exact number is of no use.
    let answered = match find("answered") {
        Some(Value::Array(names)) => Some(u8::try_from(names.len()).unwrap_or(u8::MAX)),
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
        covers: number("covers").and_then(|covers| NonZeroU8::new(u8::try_from(covers).ok()?)),
        copies: answered.and_then(NonZeroU8::new),
        clock_bound_us: number("clock_bound_us").unwrap_or(0),
        siblings: find("siblings") == Some(&Value::Boolean(true)),
        as_of: word("as_of"),
        until_us: number("until_us"),
        base: word("base"),
    };
    Some((claim, word("version")))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Bulk(text) | Value::Simple(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
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
                covers: None,
                copies: None,
                clock_bound_us: 500,
                siblings: true,
                as_of: None,
                until_us: None,
                base: None,
            }
        );
    }

    #[test]
    fn a_receipt_of_a_quorum_keyspace_says_how_many_replicas_answered_and_what_it_covers() {
        let with = |answered: Vec<Value>, covers: Value| {
            let fields = vec![
                (bulk("asked"), bulk("one")),
                (bulk("given"), bulk("one")),
                (bulk("staleness_us"), Value::Integer(5_000)),
                (
                    bulk("asked_replicas"),
                    Value::Array(vec![bulk("a"), bulk("b"), bulk("c")]),
                ),
                (bulk("answered"), Value::Array(answered)),
                (bulk("covers"), covers),
            ];
            let (_, received) = split_receipt(Value::Attribute(fields, Box::new(Value::Null)));
            let (claim, _) = received.expect("a receipt");
            (claim.copies.map(NonZeroU8::get), claim.covers.map(NonZeroU8::get))
        };
        let two = vec![bulk("a"), bulk("b")];
        assert_eq!(with(two.clone(), Value::Integer(2)), (Some(2), Some(2)));
        assert_eq!(with(two, Value::Integer(1)), (Some(2), Some(1)));
        // No number of replicas is 0, below 0, or a word.
        assert_eq!(with(vec![], Value::Integer(0)), (None, None));
        assert_eq!(with(vec![], Value::Integer(-1)), (None, None));
        assert_eq!(with(vec![bulk("a"); 300], bulk("2")), (Some(255), None));
    }

    #[test]
    fn an_attribute_that_is_no_receipt_is_none() {
        let fields = vec![(bulk("key-popularity"), bulk("90"))];
        let reply = Value::Attribute(fields, Box::new(Value::Integer(1)));
        assert_eq!(split_receipt(reply), (Value::Integer(1), None));
    }
}
