//! What redis-server 7.0.15 answered to the same bytes, recorded in `tests/redis/answers.txt`: error texts, the shape of replies, and after which
//! bytes it closes the connection.
mod world;

use bytes::BytesMut;
use turnbuckle_resp::Connection;
use world::World;

/// The cases in which we differ, and the reasons.
const DIFFERENCES: [(&str, &str); 6] = [
    (
        r"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n",
        "a wrong length must not turn a value into commands",
    ),
    (
        r"*2\r\n$4\r\nSCAN\r\n$2\r\n-1\r\n",
        "no cursor is negative; Redis takes it for a large one",
    ),
    (
        r"*6\r\n$4\r\nSCAN\r\n$1\r\n0\r\n$5\r\nMATCH\r\n$1\r\n*\r\n$4\r\nTYPE\r\n$6\r\nstring\r\n",
        "it is not known which type a key has that is listed",
    ),
    (r"*2\r\n$6\r\nSELECT\r\n$2\r\n99\r\n", "keyspaces have names"),
    (r"*2\r\n$6\r\nSELECT\r\n$3\r\nabc\r\n", "keyspaces have names"),
    (
        r"*2\r\n$3\r\nfoo\r\n$3\r\na\x00b\r\n",
        "Redis shows an argument up to its first zero byte",
    ),
];

#[test]
fn the_answers_are_those_of_redis() {
    let recorded = std::fs::read_to_string("tests/redis/answers.txt").expect("it is beside this test");
    let mut compared = 0;
    let mut differing = Vec::new();
    let mut lines = recorded.lines().filter(|line| !line.starts_with('#'));
    while let Some(sent) = lines.next() {
        let expected = lines
            .next()
            .and_then(|line| line.strip_prefix("< "))
            .expect("an answer to each");
        let (resp, sent) = sent.split_at(2);
        let answer = answer(resp == "3 ", &unescape(sent));
        let is_known = DIFFERENCES.iter().any(|(known, _)| *known == sent);
        if is_known == is_same(&answer, expected) {
            differing.push(format!(
                "sent     {sent}\nexpected {expected}\nfound    {answer}\n"
            ));
        }
        compared += 1;
    }
    assert!(
        differing.is_empty(),
        "{} of {compared} differ:\n{}",
        differing.len(),
        differing.join("\n")
    );
    assert!(compared > 100, "only {compared} were compared");
}

/// Whether an answer is that of Redis. An error may say more behind the words of Redis: what was expected.
fn is_same(answer: &str, expected: &str) -> bool {
    let says_more = || {
        let words = expected.strip_suffix(r"\r\n")?;
        let more = answer.strip_prefix(words)?;
        Some(expected.starts_with('-') && more.starts_with("; "))
    };
    answer == expected || says_more() == Some(true)
}

fn answer(resp3: bool, sent: &[u8]) -> String {
    let (mut connection, mut world): (Connection, World) = (world::connection(), World::default());
    if resp3 {
        world::send("HELLO 3\r\n", &mut connection, &mut world);
    }
    let mut input = BytesMut::from(sent);
    connection.handle_bytes(&mut input, &mut world);
    let closed = if connection.is_closing() { " (closed)" } else { "" };
    escape(&connection.output().split()) + closed
}

fn escape(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|&byte| match byte {
            b'\r' => "\\r".into(),
            b'\n' => "\\n".into(),
            b'\\' => "\\\\".into(),
            b' '..=b'~' => char::from(byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        })
        .collect()
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b'x') => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                let digits = std::str::from_utf8(&digits).expect("two hex digits");
                u8::from_str_radix(digits, 16).expect("two hex digits")
            }
            other => other.expect("something is escaped"),
        });
    }
    bytes
}
