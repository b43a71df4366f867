//! Answers as `redis-cli` shows them, and receipts in words.
use bytes::Bytes;
use std::num::NonZeroU8;
use turnbuckle_core::Micros;
use turnbuckle_resp::Value;
use turnbuckle_workload::{Claim, split_receipt};

/// How many levels of a nested answer are shown.
const MAX_DEPTH: usize = 16;

/// An answer, without its receipt.
pub(super) fn answer_in_words(reply: &Value) -> String {
    show(reply, 0)
}

fn show(value: &Value, depth: usize) -> String {
    if depth == MAX_DEPTH {
        return "..".to_string();
    }
    match value {
        Value::Simple(text) => printable(text),
        Value::Error(why) => format!("(error) {}", printable(why)),
        Value::Integer(number) => format!("(integer) {number}"),
        Value::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        // A text for people, such as that of `INFO`.
        Value::Verbatim(_, text) => printable(text).trim_end().to_string(),
        Value::Null => "(nil)".to_string(),
        Value::Double(number) => format!("(double) {number}"),
        Value::Boolean(is_true) => format!("({is_true})"),
        Value::BigNumber(digits) => printable(digits),
        Value::Array(values) | Value::Set(values) | Value::Push(values) => {
            let lines = values
                .iter()
                .enumerate()
                .map(|(place, value)| format!("{}) {}", place + 1, show(value, depth + 1)));
            or_empty(lines.collect(), depth)
        }
        Value::Map(fields) => {
            let lines = fields.iter().enumerate().map(|(place, (name, value))| {
                // The lines of a map in a map begin below their name.
                let below = match is_list(value) {
                    true => format!("\n{}", "   ".repeat(depth + 1)),
                    false => " ".to_string(),
                };
                let (name, value) = (show(name, depth + 1), show(value, depth + 1));
                format!("{}# {name} =>{below}{value}", place + 1)
            });
            or_empty(lines.collect(), depth)
        }
        Value::Attribute(_, value) => show(value, depth),
    }
}

/// Whether a value is shown as several lines.
fn is_list(value: &Value) -> bool {
    match value {
        Value::Array(values) | Value::Set(values) | Value::Push(values) => !values.is_empty(),
        Value::Map(fields) => !fields.is_empty(),
        Value::Attribute(_, value) => is_list(value),
        _ => false,
    }
}

/// The lines of a list. All lines except the first are indented by the depth of the list.
fn or_empty(lines: Vec<String>, depth: usize) -> String {
    match lines.is_empty() {
        true => "(empty)".to_string(),
        false => lines.join(&format!("\n{}", "   ".repeat(depth))),
    }
}

/// A text of the server, with its line ends and without other control characters, which could move the cursor.
fn printable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars()
        .filter(|character| !character.is_control() || *character == '\n')
        .collect()
}

/// The receipt of a reply, if it has one, in at most seven lines.
pub(super) fn receipt_in_words(reply: &Value, command: &[Bytes], site: &str, now_us: u64) -> Vec<String> {
    let (_, Some((claim, version))) = split_receipt(reply.clone()) else {
        return Vec::new();
    };
    let done = Done::of(command, reply);
    let is_write = done != Done::Read;
    let mut first = claim.given.clone();
    if claim.given != claim.asked {
        first += &format!(" ('{}' was asked for)", claim.asked);
    }
    let replica = claim.server.as_deref().unwrap_or("unknown");
    first += &format!(": {} at {}", done.words(), claim.site.as_deref().unwrap_or(site));
    first += &match is_write {
        true => format!(", by replica {replica}"),
        false => format!(", from replica {replica}"),
    };
    if claim.route.as_deref() == Some("forwarded") {
        first += " (another node, to which the operation was forwarded)";
    }
    first += &match (&version, done) {
        (Some(version), Done::Nothing(_)) => {
            format!(", which has version {version}{}", written(version, now_us))
        }
        (Some(version), Done::Written | Done::CarriedOut | Done::Perhaps(_)) => {
            format!(", as version {version}")
        }
        (Some(version), Done::Read) => format!(": version {version}{}", written(version, now_us)),
        (None, _) => String::new(),
    };
    let mut lines = vec![first];
    if claim.waited_us > 0 {
        lines.push(format!(
            "it waited {} before it could be answered",
            span(claim.waited_us)
        ));
    }
    if !is_write {
        lines.push(match claim.staleness_us {
            Some(staleness) => reflected(&claim, staleness),
            None => "nothing is proven about how fresh it is".to_string(),
        });
    }
    if let Some(at) = claim.as_of.as_deref().and_then(|as_of| since(as_of, now_us)) {
        lines.push(format!("it shows the data as of {at} ago, and nothing newer"));
    }
    if let Some(base) = &claim.base {
        lines.push(format!("it has the value of version {base}"));
    }
    if let Some(until_us) = claim.until_us {
        lines.push(match until_us.checked_sub(now_us) {
            Some(left) => format!("it expires in {}", span(left)),
            None => format!("it expired {} ago", span(now_us - until_us)),
        });
    }
    let lists_them = command
        .first()
        .is_some_and(|name| name.eq_ignore_ascii_case(b"SIBLINGS"));
    if claim.siblings && !is_write && !lists_them {
        lines.push("there are values beside it that no write has replaced: SIBLINGS lists them".to_string());
    }
    if is_decided_at_site(reply) {
        lines.push(DECIDED_AT_SITE.to_string());
    }
    if let Some(hidden) = hidden(reply) {
        lines.push(hidden);
    }
    lines
}

/// How long ago a timestamp was given: `microseconds.counter`.
fn since(timestamp: &str, now_us: u64) -> Option<String> {
    let at: u64 = timestamp.split('.').next()?.parse().ok()?;
    Some(span(now_us.saturating_sub(at)))
}

/// Which writes an answer reflects. The claim may be about writes that some replicas have, and may rest on no clock.
fn reflected(claim: &Claim, staleness_us: u64) -> String {
    let by = match claim.covers.map_or(1, NonZeroU8::get) {
        1 => String::new(),
        replicas => format!(" by at least {replicas} replicas"),
    };
    let when = match staleness_us {
        0 => "before the read began".to_string(),
        staleness => format!("more than {} before the read began", span(staleness)),
    };
    let clocks = match claim.clock_bound_us {
        0 => String::new(),
        bound => format!(" (if clocks are within {})", span(bound)),
    };
    format!("it reflects every write that was acknowledged{by} {when}{clocks}")
}

/// What a command has done, as far as its answer tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    Read,
    Written,
    /// A transaction was.
    CarriedOut,
    /// Nothing was written, for this reason.
    Nothing(&'static str),
    /// It was written if this is so, which the answer does not tell.
    Perhaps(&'static str),
}

const UNMET: Done = Done::Nothing("not written: the condition did not hold");

impl Done {
    fn of(command: &[Bytes], reply: &Value) -> Done {
        let answer = match reply {
            Value::Attribute(_, answer) => answer,
            answer => answer,
        };
        let name = command.first().map_or(&b""[..], |name| name);
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let has = |word: &str| {
            let mut options = command.iter().skip(3);
            options.any(|option| option.eq_ignore_ascii_case(word.as_bytes()))
        };
        let is_null = *answer == Value::Null;
        match answer {
            Value::Null if is("EXEC") => Done::Nothing("not carried out: a watched key was changed"),
            _ if is("EXEC") => Done::CarriedOut,
            _ if !is_write(name) || is("GETEX") && command.len() == 2 => Done::Read,
            Value::Integer(0) if is("SETNX") || is("MSETNX") || is("HSETNX") => UNMET,
            Value::Integer(0) if is("HDEL") || is("SREM") => Done::Nothing("nothing was there to remove"),
            Value::Integer(0) if is("DEL") || is("UNLINK") => Done::Nothing("nothing was there to delete"),
            Value::Null if is("GETDEL") => Done::Nothing("nothing was there to delete"),
            Value::Integer(0) if is("PERSIST") => {
                Done::Nothing("not changed: there is no value that expires")
            }
            Value::Integer(0)
                if name.to_ascii_uppercase().ends_with(b"EXPIRE") || is("EXPIREAT") || is("PEXPIREAT") =>
            {
                Done::Nothing("not changed: there is no value, or the change is not one that was asked for")
            }
            Value::Null if is("GETEX") => Done::Nothing("not changed: there is no value"),
            _ if is("GETEX")
                && command
                    .get(2)
                    .is_some_and(|word| word.eq_ignore_ascii_case(b"PERSIST")) =>
            {
                Done::Perhaps("written if the value would have expired")
            }
            // The answer is the value before.
            _ if is("SET") && has("GET") => match (has("NX"), has("XX"), has("IF")) {
                (true, _, _) if !is_null => UNMET,
                (_, true, _) if is_null => UNMET,
                (_, _, true) => Done::Perhaps("written if the condition held"),
                _ => Done::Written,
            },
            Value::Null if is("SET") => UNMET,
            _ => Done::Written,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Done::Read => "read",
            Done::Written => "written",
            Done::CarriedOut => "carried out",
            Done::Nothing(why) => why,
            Done::Perhaps(why) => why,
        }
    }
}

fn is_write(name: &[u8]) -> bool {
    const WRITES: [&str; 31] = [
        "SET",
        "DEL",
        "UNLINK",
        "MSET",
        "SETNX",
        "SETEX",
        "PSETEX",
        "GETSET",
        "GETDEL",
        "INCR",
        "DECR",
        "INCRBY",
        "DECRBY",
        "INCRBYFLOAT",
        "APPEND",
        "SETRANGE",
        "MSETNX",
        "EXPIRE",
        "PEXPIRE",
        "EXPIREAT",
        "PEXPIREAT",
        "PERSIST",
        "GETEX",
        "HSET",
        "HMSET",
        "HSETNX",
        "HINCRBY",
        "HINCRBYFLOAT",
        "HDEL",
        "SADD",
        "SREM",
    ];
    WRITES
        .iter()
        .any(|write| name.eq_ignore_ascii_case(write.as_bytes()))
}

/// Where and when a version was written, from its name: `timestamp.counter@site`.
fn written(version: &str, now_us: u64) -> String {
    let Some((at, site)) = version.split_once('@') else {
        return String::new();
    };
    match since(at, now_us) {
        Some(time) => format!(", written at {site} {time} ago"),
        None => String::new(),
    }
}

const DECIDED_AT_SITE: &str = "conditional: decided at this site alone; a write at another site may win";

/// Whether a receipt says that one site has decided alone.
fn is_decided_at_site(reply: &Value) -> bool {
    let Value::Attribute(fields, _) = reply else {
        return false;
    };
    let is = |value: &Value, known: &str| matches!(value, Value::Bulk(text) | Value::Simple(text) if *text == known);
    fields
        .iter()
        .any(|(name, value)| is(name, "conditional") && is(value, "site"))
}

/// A line about the versions that a causal keyspace has and does not show yet.
fn hidden(reply: &Value) -> Option<String> {
    let Value::Attribute(fields, _) = reply else {
        return None;
    };
    let is_hidden =
        |name: &Value| matches!(name, Value::Bulk(name) | Value::Simple(name) if *name == "hidden");
    let count = fields
        .iter()
        .find(|(name, _)| is_hidden(name))
        .map(|(_, count)| count);
    match count {
        Some(Value::Integer(1)) => Some(
            "1 newer version has arrived and is not shown yet: a write that it depends on has not arrived"
                .to_string(),
        ),
        Some(Value::Integer(count @ 2..)) => Some(format!(
            "{count} newer versions have arrived and are not shown yet: writes that they depend on have not arrived"
        )),
        _ => None,
    }
}

/// A span in a unit that is easy to read: microseconds, milliseconds below ten seconds, or whole seconds.
fn span(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..10_000_000 => format!("{} ms", us / 1_000),
        _ => Micros(us / 1_000_000 * 1_000_000).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &'static str) -> Value {
        Value::Bulk(text.into())
    }

    fn with_receipt(more: Vec<(Value, Value)>) -> Value {
        let mut fields = vec![
            (bulk("asked"), bulk("causal")),
            (bulk("given"), bulk("causal")),
            (bulk("version"), bulk("5000000.3@b")),
            (bulk("site"), bulk("a")),
            (bulk("server"), bulk("a/0/0")),
            (bulk("route"), bulk("local")),
            (bulk("waited_us"), Value::Integer(0)),
            (bulk("clock_bound_us"), Value::Integer(10_000)),
        ];
        fields.extend(more);
        Value::Attribute(fields, Box::new(bulk("hello")))
    }

    fn words(reply: &Value, command: &'static str) -> Vec<String> {
        receipt_in_words(reply, &[command.into(), "k".into()], "a", 5_312_000)
    }

    #[test]
    fn a_text_for_people_is_shown_line_by_line() {
        let text = Value::Verbatim(
            "txt".into(),
            "# Stats\r\na:1\r\n\r\n# CPU\r\nb:\x1b[2J\r\n".into(),
        );
        assert_eq!(answer_in_words(&text), "# Stats\na:1\n\n# CPU\nb:[2J");
    }

    #[test]
    fn a_write_says_that_one_site_has_decided() {
        let reply = with_receipt(vec![(bulk("conditional"), bulk("site"))]);
        let said = |reply: &Value, command| words(reply, command).contains(&DECIDED_AT_SITE.to_string());
        assert!(said(&reply, "set"));
        let other = with_receipt(vec![(bulk("conditional"), bulk("majority"))]);
        assert!(!said(&other, "set"));
        assert!(!said(&with_receipt(Vec::new()), "set"));
    }

    #[test]
    fn a_read_says_which_version_and_how_fresh_it_is() {
        let reply = with_receipt(vec![(bulk("staleness_us"), Value::Integer(121_400))]);
        assert_eq!(
            words(&reply, "get"),
            [
                "causal: read at a, from replica a/0/0: version 5000000.3@b, written at b 312 ms ago",
                "it reflects every write that was acknowledged more than 121 ms before the read began (if clocks are within 10 ms)"
            ]
        );
        assert_eq!(answer_in_words(&reply), "\"hello\"");
    }

    #[test]
    fn a_claim_about_writes_that_two_replicas_have_says_so() {
        let claim = |covers: u8, clock_bound_us| Claim {
            covers: NonZeroU8::new(covers),
            clock_bound_us,
            ..Claim::default()
        };
        assert_eq!(
            reflected(&claim(2, 0), 0),
            "it reflects every write that was acknowledged by at least 2 replicas before the read began"
        );
        assert_eq!(
            reflected(&claim(1, 10_000), 121_400),
            "it reflects every write that was acknowledged more than 121 ms before the read began (if clocks are within 10 ms)"
        );
    }

    #[test]
    fn a_read_of_the_past_says_how_long_ago_that_was() {
        let reply = with_receipt(vec![
            (bulk("staleness_us"), Value::Integer(0)),
            (bulk("as_of"), bulk("5288000.0")),
        ]);
        assert_eq!(
            words(&reply, "get")[2],
            "it shows the data as of 24 ms ago, and nothing newer"
        );
    }

    #[test]
    fn a_map_in_a_map_is_below_its_name() {
        let cut = Value::Map(vec![(bulk("a"), bulk("1.0")), (bulk("b"), bulk("2.0"))]);
        let reply = Value::Map(vec![(bulk("cut"), cut), (bulk("none"), Value::Map(vec![]))]);
        assert_eq!(
            answer_in_words(&reply),
            "1# \"cut\" =>\n   1# \"a\" => \"1.0\"\n   2# \"b\" => \"2.0\"\n2# \"none\" => (empty)"
        );
    }

    #[test]
    fn what_is_hidden_or_not_proven_is_said() {
        let reply = with_receipt(vec![
            (bulk("staleness_us"), Value::Null),
            (bulk("hidden"), Value::Integer(2)),
        ]);
        let words = words(&reply, "GET");
        assert_eq!(words[1], "nothing is proven about how fresh it is");
        assert!(words[2].starts_with("2 newer versions have arrived"), "{words:?}");
    }

    #[test]
    fn a_write_says_what_it_wrote_and_nothing_of_freshness() {
        let reply = with_receipt(vec![(bulk("staleness_us"), Value::Integer(1))]);
        assert_eq!(
            words(&reply, "SET"),
            ["causal: written at a, by replica a/0/0, as version 5000000.3@b"]
        );
    }

    #[test]
    fn a_condition_that_did_not_hold_wrote_nothing() {
        let Value::Attribute(fields, _) = with_receipt(vec![(bulk("staleness_us"), Value::Integer(0))])
        else {
            panic!("an attribute")
        };
        let reply = |answer| Value::Attribute(fields.clone(), Box::new(answer));
        let words = |reply: &Value, line: &str| {
            let command: Vec<Bytes> = line
                .split(' ')
                .map(|word| Bytes::copy_from_slice(word.as_bytes()))
                .collect();
            receipt_in_words(reply, &command, "a", 5_000_001)[0].clone()
        };
        for (answer, line) in [(Value::Null, "set k v nx"), (Value::Integer(0), "SETNX k v")] {
            assert!(
                words(&reply(answer), line)
                    .starts_with("causal: not written: the condition did not hold at a")
            );
        }
        for (answer, line) in [(Value::Null, "SET k v NX GET"), (Value::Integer(1), "SETNX k v")] {
            assert!(words(&reply(answer), line).starts_with("causal: written at a"));
        }
        for (answer, line, done) in [
            (
                bulk("there"),
                "SET k v NX GET",
                "not written: the condition did not hold",
            ),
            (
                Value::Null,
                "SET k v XX GET",
                "not written: the condition did not hold",
            ),
            (bulk("there"), "SET k v XX GET", "written"),
            (
                Value::Null,
                "SET k v IF VERSION 1.0@a GET",
                "written if the condition held",
            ),
            (Value::Null, "GETDEL k", "nothing was there to delete"),
            (Value::Integer(0), "DEL k", "nothing was there to delete"),
            (Value::Null, "EXEC", "not carried out: a watched key was changed"),
            (Value::Array(Vec::new()), "EXEC", "carried out"),
        ] {
            let words = words(&reply(answer), line);
            assert!(
                words.starts_with(&format!("causal: {done} at a")),
                "{line}: {words}"
            );
        }
    }

    #[test]
    fn a_reply_without_a_receipt_has_no_words() {
        assert!(words(&Value::Integer(1), "GET").is_empty());
    }

    #[test]
    fn lists_are_numbered_and_control_characters_are_not_shown() {
        let list = Value::Array(vec![
            bulk("a\n"),
            Value::Array(vec![Value::Null, Value::Integer(2)]),
        ]);
        assert_eq!(
            answer_in_words(&list),
            "1) \"a\\n\"\n2) 1) (nil)\n   2) (integer) 2"
        );
        assert_eq!(
            answer_in_words(&Value::Error(Bytes::from_static(b"ERR \x1b[2Jx"))),
            "(error) ERR [2Jx"
        );
        let mut deep = Value::Null;
        for _ in 0..100 {
            deep = Value::Array(vec![deep]);
        }
        assert!(answer_in_words(&deep).ends_with(".."));
    }
}
