//! The connection: order, bounds, and what happens to clients that exceed the bounds.
mod world;

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use turnbuckle_core::{Answer, Answered, BadToken, Failure, Key, Operation};
use turnbuckle_resp::{
    Backend, Connection, DEFAULT_USER, Limits, ReplyDecoder, Rights, SelectError, User, UserBook, Users,
    Value, encode_command,
};
use world::{World, greeting, send};

fn encode(arguments: &[&[u8]]) -> BytesMut {
    let mut out = BytesMut::new();
    encode_command(arguments, &mut out);
    out
}

fn small() -> Limits {
    Limits {
        max_key_bytes: 8,
        max_bulk_bytes: 64,
        max_skipped_bytes: 1 << 40,
        max_frame_bytes: 256,
        max_reply_bytes: 100,
        max_output_bytes: 200,
        max_output_hard_bytes: 1_000,
        max_outstanding: 4,
        max_outstanding_bytes: 200,
        ..Limits::default()
    }
}

#[test]
fn a_key_that_is_too_long_is_refused_and_the_connection_goes_on() {
    let (mut connection, mut world) = (Connection::new(greeting(small())), World::default());
    for command in [
        &b"GET"[..],
        b"DEL",
        b"STRLEN",
        b"EXISTS",
        b"HGETALL",
        b"SMEMBERS",
        b"SINTER",
    ] {
        let reply = send(encode(&[command, b"123456789"]), &mut connection, &mut world);
        assert_eq!(
            reply,
            &b"-TOOBIG the key has 9 bytes, at most 8 are taken\r\n"[..]
        );
    }
    let reply = send(
        encode(&[b"MSET", b"k", b"1", b"123456789", b"2"]),
        &mut connection,
        &mut world,
    );
    assert!(reply.starts_with(b"-TOOBIG"), "{reply:?}");
    assert_eq!(world.operations, 0);
    assert_eq!(
        send("GET 12345678\r\n", &mut connection, &mut world),
        &b"$-1\r\n"[..]
    );
}

#[test]
fn a_value_that_is_too_long_is_skipped_as_it_streams_in() {
    let (mut connection, mut world) = (Connection::new(greeting(small())), World::default());
    let mut input = BytesMut::from(&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n"[..]);
    for _ in 0..1_000 {
        input.extend_from_slice(&[b'x'; 1_000]);
        connection.handle_bytes(&mut input, &mut world);
        assert!(input.is_empty(), "nothing of it is kept");
        assert!(connection.output().is_empty());
    }
    input.extend_from_slice(b"\r\n*1\r\n$4\r\nPING\r\n");
    connection.handle_bytes(&mut input, &mut world);
    let expected = b"-TOOBIG the value has 1000000 bytes, at most 64 are taken\r\n+PONG\r\n";
    assert_eq!(connection.output().split(), &expected[..]);
    assert_eq!(world.operations, 0);
}

#[test]
fn a_command_that_is_too_long_in_all_is_skipped() {
    let (mut connection, mut world) = (Connection::new(greeting(small())), World::default());
    let value = [b'x'; 60];
    let command = encode(&[b"MSET", b"a", &value, b"b", &value, b"c", &value, b"d", &value]);
    let reply = send([&command[..], b"PING\r\n"].concat(), &mut connection, &mut world);
    assert!(reply.starts_with(b"-TOOBIG the command has"), "{reply:?}");
    assert!(reply.ends_with(b"\r\n+PONG\r\n"), "{reply:?}");
}

#[test]
fn a_reply_that_is_too_long_is_refused() {
    let (mut connection, mut world) = (Connection::new(greeting(small())), World::default());
    send(encode(&[b"SET", b"k", &[b'x'; 60]]), &mut connection, &mut world);
    let reply = send("MGET k k\r\n", &mut connection, &mut world);
    assert_eq!(
        reply,
        &b"-TOOBIG the reply has 120 bytes, at most 100 are taken\r\n"[..]
    );
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let (mut connection, mut world) = (Connection::new(greeting(small())), World::default());
    let mut input = BytesMut::from("PING 0123456789\r\n".repeat(1_000).as_str());
    connection.handle_bytes(&mut input, &mut world);
    assert!(!connection.wants_input());
    assert!((200..250).contains(&connection.output().len()));
    let left = input.len();
    connection.handle_bytes(&mut input, &mut world);
    assert_eq!(input.len(), left, "nothing is taken while nothing is read");
    let mut replies = 0;
    while !connection.output().is_empty() {
        let read = connection.output().split();
        replies += read.iter().filter(|&&byte| byte == b'$').count();
        connection.handle_bytes(&mut input, &mut world);
    }
    assert_eq!(replies, 1_000);
    assert!(connection.wants_input() && input.is_empty());
}

#[test]
fn no_more_is_taken_than_may_be_outstanding() {
    let (mut connection, mut world) = (Connection::new(greeting(small())), World::default());
    world.deferring = true;
    let mut input = BytesMut::from("GET k\r\n".repeat(10).as_str());
    connection.handle_bytes(&mut input, &mut world);
    assert_eq!((connection.outstanding(), world.operations), (4, 4));
    world.answer(3, &mut connection);
    connection.handle_bytes(&mut input, &mut world);
    assert_eq!(
        world.operations, 4,
        "a later answer makes no room: its reply is held"
    );
    world.answer(0, &mut connection);
    connection.handle_bytes(&mut input, &mut world);
    assert_eq!(world.operations, 5);
}

#[test]
fn no_more_bytes_are_taken_than_may_be_outstanding() {
    let (mut connection, mut world) = (Connection::new(greeting(small())), World::default());
    world.deferring = true;
    let mut input = BytesMut::new();
    for _ in 0..4 {
        encode_command(&[&b"SET"[..], b"k", &[b'x'; 60]], &mut input);
    }
    connection.handle_bytes(&mut input, &mut world);
    assert_eq!(world.operations, 3, "three of 90 bytes are over 200");
}

#[test]
fn answers_that_nobody_reads_close_the_connection_in_the_end() {
    let limits = Limits {
        max_outstanding: 100,
        max_outstanding_bytes: 1 << 20,
        max_output_bytes: 500,
        ..small()
    };
    let (mut connection, mut world) = (Connection::new(greeting(limits)), World::default());
    send(encode(&[b"SET", b"k", &[b'x'; 60]]), &mut connection, &mut world);
    // The connection has read nothing large yet. So all of these reads begin at once.
    send("GET none\r\n".repeat(5), &mut connection, &mut world);
    world.deferring = true;
    send("GET k\r\n".repeat(30), &mut connection, &mut world);
    for tag in 6..=35 {
        if !connection.is_closing() {
            assert!(connection.output().len() <= 1_000);
        }
        world.answer(tag, &mut connection);
    }
    assert!(connection.is_closing() && connection.output().is_empty() && !connection.wants_input());
    connection.close(&mut world);
    assert_eq!(world.open_doors(), 0);
}

#[test]
fn answers_after_the_end_are_dropped() {
    let (mut connection, mut world) = (world::connection(), World::default());
    world.deferring = true;
    send("GET a\r\nGET b\r\nSELECT quorum\r\n", &mut connection, &mut world);
    assert_eq!(connection.outstanding(), 3);
    connection.close(&mut world);
    assert_eq!(world.open_doors(), 0);
    world.answer(0, &mut connection);
    world.answer(1, &mut connection);
    assert!(connection.is_closing() && connection.output().is_empty());
    assert_eq!(send("PING\r\n", &mut connection, &mut world), Bytes::new());
}

#[test]
fn what_came_before_garbage_is_still_answered() {
    let (mut connection, mut world) = (world::connection(), World::default());
    world.deferring = true;
    let reply = send("GET a\r\n*1\r\n+x\r\nPING\r\n", &mut connection, &mut world);
    assert!(reply.is_empty() && !connection.is_closing() && !connection.wants_input());
    world.answer(0, &mut connection);
    let expected = b"$-1\r\n-ERR Protocol error: expected '$', got '+'\r\n";
    assert_eq!(connection.output().split(), &expected[..]);
    assert!(connection.is_closing());
}

#[test]
#[should_panic(expected = "no operation with tag 5 is outstanding")]
fn an_answer_to_nothing_is_our_mistake() {
    let (mut connection, mut world) = (world::connection(), World::default());
    connection.handle_answer(5, (Answer::Count(0), None), &mut world);
}

#[test]
fn an_answer_to_another_question_is_an_error_that_says_what_is_known() {
    let (mut connection, mut world) = (world::connection(), World::default());
    world.deferring = true;
    send("GET a\r\n", &mut connection, &mut world);
    connection.handle_answer(0, (Answer::Count(0), None), &mut world);
    let reply = connection.output().split();
    let reply = String::from_utf8_lossy(&reply);
    assert!(
        reply.starts_with("-TIMEOUT a server sent an answer that does not fit"),
        "{reply}"
    );
}

#[test]
fn a_command_of_too_many_arguments_is_refused_by_number_and_the_next_is_answered() {
    let limits = Limits {
        max_arguments: 3,
        ..Limits::default()
    };
    let mut connection = Connection::new(greeting(limits));
    let mut input = BytesMut::new();
    encode_command(&["ROTX", "a", "b", "c"], &mut input);
    encode_command(&["PING"], &mut input);
    let refusal = "-TOOBIG the command has 4 arguments, its name included; at most 3 are taken\r\n";
    assert_eq!(
        send(&input, &mut connection, &mut World::default()),
        format!("{refusal}+PONG\r\n")
    );
}

/// A backend whose keyspaces cannot be opened.
struct Shut;

impl Backend for Shut {
    fn open(&mut self, _: &str) -> Result<turnbuckle_core::DoorId, SelectError> {
        Err(SelectError::Unavailable("the node is shutting down".into()))
    }

    fn resume(&mut self, _: turnbuckle_core::DoorId, _: &[u8]) -> Result<(), BadToken> {
        unreachable!("no door is open")
    }

    fn close(&mut self, _: turnbuckle_core::DoorId) {}

    fn operate(&mut self, _: turnbuckle_core::DoorId, _: u64, _: Operation) -> Option<Answered> {
        unreachable!("no door is open")
    }

    fn token(&mut self, _: turnbuckle_core::DoorId) -> Bytes {
        unreachable!("no door is open")
    }

    fn keyspaces(&self) -> Vec<turnbuckle_resp::Keyspace> {
        Vec::new()
    }

    fn cluster(&self, _: &str) -> Vec<turnbuckle_resp::ClusterNode> {
        Vec::new()
    }

    fn wall_time(&self) -> turnbuckle_core::Micros {
        turnbuckle_core::Micros(0)
    }

    fn site_named(&self, _: &str) -> Option<turnbuckle_core::SiteId> {
        None
    }

    fn site_name(&self, _: turnbuckle_core::SiteId) -> &str {
        "a"
    }

    fn info(&self) -> Vec<turnbuckle_resp::InfoSection> {
        Vec::new()
    }

    fn config(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

#[test]
fn a_keyspace_that_cannot_be_opened_says_so_at_each_operation() {
    let mut connection = world::connection();
    let mut input =
        BytesMut::from("PING\r\nGET k\r\nDEL a b\r\nSESSION TOKEN\r\nCLUSTER MYID\r\nUNSUBSCRIBE\r\n");
    connection.handle_bytes(&mut input, &mut Shut);
    let refusal = "-UNAVAILABLE the node is shutting down\r\n";
    let no_messages = "-UNSUPPORTED UNSUBSCRIBE: there are no messages here, only keys\r\n";
    assert_eq!(
        connection.output().split(),
        &format!("+PONG\r\n{refusal}{refusal}{refusal}$-1\r\n{no_messages}")
    );
}

/// A command of the random pipelines. Its reply is known.
#[derive(Debug, Clone)]
enum Step {
    Set(u8, u8),
    Get(u8),
    Delete(Vec<u8>),
    Exists(Vec<u8>),
    SetFields(u8, Vec<u8>),
    RemoveFields(u8, Vec<u8>),
    Fields(u8),
    AddMembers(u8, Vec<u8>),
    Members(u8),
    Ping,
    Publish(u8),
    Count,
    Flush,
    Keys,
    Token,
    Unknown,
    Protocol(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..4_u8;
    prop_oneof![
        4 => (key(), any::<u8>()).prop_map(|(key, value)| Step::Set(key, value)),
        4 => key().prop_map(Step::Get),
        2 => prop::collection::vec(key(), 1..4).prop_map(Step::Delete),
        1 => prop::collection::vec(key(), 1..4).prop_map(Step::Exists),
        2 => (key(), prop::collection::vec(key(), 1..4)).prop_map(|(key, fields)| Step::SetFields(key, fields)),
        1 => (key(), prop::collection::vec(key(), 1..4)).prop_map(|(key, fields)| Step::RemoveFields(key, fields)),
        1 => key().prop_map(Step::Fields),
        2 => (key(), prop::collection::vec(key(), 1..4)).prop_map(|(key, members)| Step::AddMembers(key, members)),
        1 => key().prop_map(Step::Members),
        1 => Just(Step::Ping),
        1 => key().prop_map(Step::Publish),
        1 => Just(Step::Count),
        1 => Just(Step::Flush),
        1 => Just(Step::Keys),
        1 => Just(Step::Token),
        1 => Just(Step::Unknown),
        1 => (2..4_u8).prop_map(Step::Protocol),
    ]
}

impl Step {
    fn encode(&self, out: &mut BytesMut) {
        let key = |key: &u8| format!("k{key}");
        let keys = |name: &str, keys: &[u8]| {
            let mut words = vec![name.to_owned()];
            words.extend(keys.iter().map(key));
            words
        };
        let words = match self {
            Step::Set(k, value) => vec!["SET".into(), key(k), value.to_string()],
            Step::Get(k) => vec!["GET".into(), key(k)],
            Step::Delete(list) => keys("DEL", list),
            Step::Exists(list) => keys("EXISTS", list),
            Step::SetFields(k, fields) => {
                let mut words = vec!["HSET".into(), key(k)];
                words.extend(fields.iter().flat_map(|field| [key(field), field.to_string()]));
                words
            }
            Step::RemoveFields(k, fields) => keys("HDEL", &[&[*k], &fields[..]].concat()),
            Step::Fields(k) => vec!["HGETALL".into(), key(k)],
            Step::AddMembers(k, members) => keys("SADD", &[&[*k], &members[..]].concat()),
            Step::Members(k) => vec!["SMEMBERS".into(), key(k)],
            Step::Ping => vec!["PING".into()],
            Step::Publish(k) => vec!["PUBLISH".into(), key(k), "message".into()],
            Step::Count => vec!["DBSIZE".into()],
            Step::Flush => vec!["FLUSHDB".into()],
            Step::Keys => vec!["KEYS".into(), "*".into()],
            Step::Token => vec!["SESSION".into(), "TOKEN".into()],
            Step::Unknown => vec!["NONSENSE".into()],
            Step::Protocol(number) => vec!["HELLO".into(), number.to_string()],
        };
        encode_command(&words, out);
    }
}

/// Sends all steps at once to a world that answers in the order that `chances` draw, and returns the replies.
fn pipeline(steps: &[Step], chances: &[prop::sample::Index], deferring: bool) -> (Vec<Value>, World) {
    let limits = Limits {
        max_outstanding: 5,
        ..Limits::default()
    };
    let mut connection = Connection::new(greeting(limits));
    let mut world = World::default();
    world.deferring = deferring;
    let mut input = BytesMut::new();
    steps.iter().for_each(|step| step.encode(&mut input));
    let mut chances = chances.iter().cycle();
    let mut output = BytesMut::new();
    loop {
        connection.handle_bytes(&mut input, &mut world);
        output.unsplit(connection.output().split());
        if world.deferred.is_empty() {
            if !connection.is_waiting() && !connection.wants_turn() {
                break;
            }
            // The command waited until the replies before it were written, or has more to do.
            continue;
        }
        let chance = chances.next().expect("there is at least one");
        let (tag, _) = world.deferred[chance.index(world.deferred.len())];
        world.answer(tag, &mut connection);
    }
    assert!(input.is_empty() && connection.outstanding() == 0);
    let mut replies = ReplyDecoder::new(1 << 20);
    let read = std::iter::from_fn(|| replies.decode(&mut output).expect("replies are well formed")).collect();
    (read, world)
}

proptest! {
    #[test]
    fn replies_are_the_same_in_whatever_order_the_answers_come(
        steps in prop::collection::vec(step(), 1..30),
        chances in prop::collection::vec(any::<prop::sample::Index>(), 1..30),
    ) {
        let (at_once, world) = pipeline(&steps, &chances, false);
        let (later, other) = pipeline(&steps, &chances, true);
        prop_assert_eq!(at_once.len(), steps.len());
        prop_assert_eq!(at_once, later);
        prop_assert_eq!(world::keys_of(&world, "causal"), world::keys_of(&other, "causal"));
    }

    #[test]
    fn a_user_with_few_rights_reaches_only_its_own_keys(
        lines in prop::collection::vec(words(), 1..12),
        transaction: bool,
    ) {
        let user = User {
            name: "ann".into(),
            passwords: Vec::new(),
            anybody: true,
            keyspaces: Some(vec!["causal".into(), "ordered".into()]),
            keys: Some(vec!["k".into(), "A".into()]),
            rights: Rights::everything(),
            connections: None,
            operations_per_second: None,
            enabled: true,
        };
        let book = UserBook::new(Users::new([User { name: DEFAULT_USER.into(), ..user }]));
        let (connection, mut world) = (world::connection(), World::default());
        let mut connection = connection.with_users(book);
        send("SELECT ordered\r\n", &mut connection, &mut world);
        if transaction {
            send("MULTI\r\n", &mut connection, &mut world);
        }
        for words in lines {
            let mut input = BytesMut::new();
            encode_command(&words, &mut input);
            connection.handle_bytes(&mut input, &mut world);
            while connection.wants_turn() {
                connection.handle_bytes(&mut input, &mut world);
            }
            connection.output().split();
        }
        send("EXEC\r\n", &mut connection, &mut world);
        let channels = world.channels.names().into_iter();
        world.touched.extend(channels.map(|channel| ("causal".to_owned(), Key(channel))));
        for (keyspace, key) in &world.touched {
            prop_assert!(keyspace != "quorum" && (key.0.starts_with(b"k") || key.0.starts_with(b"A")), "{keyspace} {key:?}");
        }
    }

    #[test]
    fn whatever_is_sent_nothing_panics(
        lines in prop::collection::vec(words(), 1..12),
        resp in 2..4,
    ) {
        let (mut connection, mut world) = (world::connection(), World::default());
        world.failing.insert(Key::from("gone"), Failure::Unavailable("gone".into()));
        send(format!("HELLO {resp}\r\n"), &mut connection, &mut world);
        let mut replies = ReplyDecoder::new(1 << 20);
        for words in lines {
            let mut input = BytesMut::new();
            encode_command(&words, &mut input);
            connection.handle_bytes(&mut input, &mut world);
            while connection.wants_turn() {
                connection.handle_bytes(&mut input, &mut world);
            }
            let mut output = connection.output().split();
            let reply = replies.decode(&mut output).expect("the reply is well formed");
            prop_assert!(reply.is_some() || connection.is_closing(), "no reply to {:?}", words);
            // Only these are answered by several messages.
            if !words[0].ends_with("SUBSCRIBE") {
                prop_assert!(output.is_empty(), "more than one reply to {:?}", words);
            }
            while !output.is_empty() {
                let message = replies.decode(&mut output).expect("the message is well formed");
                prop_assert!(message.is_some(), "half a message to {:?}", words);
            }
            let heard = world.sent.pop_front().is_some_and(|message| world.deliver(message, &mut connection));
            let mut output = connection.output().split();
            prop_assert_eq!(heard, !output.is_empty());
            while !output.is_empty() {
                let message = replies.decode(&mut output).expect("the message is well formed");
                prop_assert!(message.is_some(), "half a message");
            }
        }
    }
}

/// Commands of meaningful words, in any order.
fn words() -> impl Strategy<Value = Vec<&'static str>> {
    let first = prop::sample::select(vec![
        "ASKING",
        "AUTH",
        "CLIENT",
        "CLUSTER",
        "COMMAND",
        "CONFIG",
        "CONSISTENCY",
        "DBSIZE",
        "DEL",
        "ECHO",
        "EXISTS",
        "GET",
        "HELLO",
        "ACL",
        "INFO",
        "KEYSPACE",
        "MGET",
        "MSET",
        "PING",
        "READONLY",
        "RECEIPT",
        "RECEIPTS",
        "RESET",
        "SCAN",
        "SELECT",
        "SESSION",
        "SET",
        "STRLEN",
        "TYPE",
        "UNLINK",
        "INCR",
        "BITCOUNT",
        "BITPOS",
        "GETBIT",
        "GETRANGE",
        "TTL",
        "PEXPIRETIME",
        "KEYS",
        "FLUSHDB",
        "LATENCY",
        "MEMORY",
        "MODULE",
        "OBJECT",
        "ROLE",
        "SLOWLOG",
        "TIME",
        "TOUCH",
        "HDEL",
        "HEXISTS",
        "HGET",
        "HGETALL",
        "HINCRBY",
        "HINCRBYFLOAT",
        "HKEYS",
        "HLEN",
        "HMGET",
        "HMSET",
        "HSCAN",
        "HSET",
        "HSETNX",
        "HSTRLEN",
        "HVALS",
        "SADD",
        "SCARD",
        "SDIFF",
        "SINTER",
        "SISMEMBER",
        "SMEMBERS",
        "SMISMEMBER",
        "SREM",
        "SSCAN",
        "SUNION",
        "PUBLISH",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "PSUBSCRIBE",
        "PUNSUBSCRIBE",
        "PUBSUB",
        "",
    ]);
    let more = prop::sample::select(vec![
        "k",
        "gone",
        "AT",
        "causal",
        "quorum",
        "eventual",
        "0",
        "2",
        "3",
        "-1",
        "GET",
        "SET",
        "READ",
        "WRITE",
        "LIST",
        "INFO",
        "TOKEN",
        "RESUME",
        "RESET",
        "MATCH",
        "COUNT",
        "TYPE",
        "*",
        "[",
        "\\",
        "ON",
        "OFF",
        "SETNAME",
        "NX",
        "XX",
        "IF",
        "VERSION",
        "1000001.0@a",
        "EX",
        "KEEPTTL",
        "GETKEYS",
        "DOCS",
        "NODES",
        "SHARDS",
        "SLOTS",
        "HELP",
        "KEYSLOT",
        "ID",
        "",
        "\r\n",
        "LIB-NAME",
        "SETINFO",
        "AUTH",
        "default",
        "FILTERBY",
        "PATTERN",
        "bounded(1s)",
        "BIT",
        "ENCODING",
        "LATEST",
        "USAGE",
        "SAMPLES",
        "MAINT_NOTIFICATIONS",
        "NOVALUES",
        "CHANNELS",
        "NUMSUB",
        "NUMPAT",
    ]);
    (first, prop::collection::vec(more, 0..6)).prop_map(|(first, mut words)| {
        words.insert(0, first);
        words
    })
}
