//! Commands on many keys: they are done a share at a time, and the reply and the order are the same as if done at once.
mod world;

use bytes::{Bytes, BytesMut};
use std::collections::BTreeSet;
use turnbuckle_core::Failure;
use turnbuckle_resp::{Connection, Limits, ReplyDecoder, Value, encode_command};
use world::{World, connection, keys_of};

const KEYS: usize = 1_000;

fn command(name: &str, pairs: bool) -> Vec<Vec<u8>> {
    let mut command = vec![name.as_bytes().to_vec()];
    for number in 0..KEYS {
        command.push(format!("k{number}").into_bytes());
        if pairs {
            command.push(format!("v{number}").into_bytes());
        }
    }
    command
}

/// Calls the connection until it has no more to do. Returns the number of calls, and the replies.
fn run(commands: &[Vec<Vec<u8>>], connection: &mut Connection, world: &mut World) -> (usize, Vec<Value>) {
    let mut input = BytesMut::new();
    commands
        .iter()
        .for_each(|command| encode_command(command, &mut input));
    let mut calls = 0;
    loop {
        let before = world.operations;
        connection.handle_bytes(&mut input, world);
        assert!(
            world.operations - before <= 256 + 4,
            "a call does no more than a share"
        );
        calls += 1;
        if !connection.wants_turn() {
            break;
        }
    }
    assert!(input.is_empty());
    (calls, replies(connection))
}

fn replies(connection: &mut Connection) -> Vec<Value> {
    let mut decoder = ReplyDecoder::new(1 << 20);
    let mut output = connection.output().split();
    std::iter::from_fn(|| decoder.decode(&mut output).expect("well formed")).collect()
}

fn word(text: &str) -> Vec<Vec<u8>> {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn many_keys_are_written_read_and_deleted_a_share_at_a_time() {
    let (mut connection, mut world) = (connection(), World::default());
    world.divides = true;
    let (calls, replies) = run(&[command("MSET", true)], &mut connection, &mut world);
    assert_eq!(replies, [Value::Simple("OK".into())]);
    assert!(calls > KEYS / 256, "{calls} calls");
    assert_eq!(keys_of(&world, "causal").len(), KEYS);

    let (_, replies) = run(&[command("MGET", false)], &mut connection, &mut world);
    let [Value::Array(values)] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!(values.len(), KEYS);
    for (number, value) in values.iter().enumerate() {
        assert_eq!(*value, Value::Bulk(format!("v{number}").into()));
    }

    let (_, replies) = run(&[command("EXISTS", false)], &mut connection, &mut world);
    assert_eq!(replies, [Value::Integer(KEYS as i64)]);
    let (_, replies) = run(&[command("DEL", false)], &mut connection, &mut world);
    assert_eq!(replies, [Value::Integer(KEYS as i64)]);
    assert!(keys_of(&world, "causal").is_empty());
}

#[test]
fn many_keys_are_counted_whatever_their_types_are() {
    for divides in [false, true] {
        let (mut connection, mut world) = (connection(), World::default());
        world.divides = divides;
        run(
            &["HSET k1 f v", "SADD k500 m", "SET k999 v"].map(word),
            &mut connection,
            &mut world,
        );
        let (_, replies) = run(&[command("EXISTS", false)], &mut connection, &mut world);
        assert_eq!(replies, [Value::Integer(3)]);
        run(&[word("SREM k500 m")], &mut connection, &mut world);
        let (_, replies) = run(&[command("EXISTS", false)], &mut connection, &mut world);
        assert_eq!(replies, [Value::Integer(2)]);
    }
}

#[test]
fn what_comes_behind_a_long_command_sees_all_of_it_and_answers_after_it() {
    let (mut connection, mut world) = (connection(), World::default());
    let commands = [
        word("GET k999"),
        command("MSET", true),
        word("GET k999"),
        command("DEL", false),
        word("GET k999"),
    ];
    let (_, replies) = run(&commands, &mut connection, &mut world);
    let expected = [
        Value::Null,
        Value::Simple("OK".into()),
        Value::Bulk(Bytes::from("v999")),
        Value::Integer(KEYS as i64),
        Value::Null,
    ];
    assert_eq!(replies, expected);
}

#[test]
fn a_snapshot_is_one_operation() {
    let (mut connection, mut world) = (connection(), World::default());
    let (_, replies) = run(&[command("MGET", false)], &mut connection, &mut world);
    assert_eq!(world.operations, 1);
    assert!(matches!(&replies[..], [Value::Array(values)] if values.len() == KEYS));
}

#[test]
fn no_more_parts_are_under_way_than_may_be() {
    let (mut connection, mut world) = (connection(), World::default());
    world.deferring = true;
    let mut input = BytesMut::new();
    encode_command(
        &[&command("DEL", false)[..], &command("DEL", false)[1..]].concat(),
        &mut input,
    );
    let mut calls = 0;
    loop {
        connection.handle_bytes(&mut input, &mut world);
        calls += 1;
        if !connection.wants_turn() {
            if world.deferred.is_empty() {
                break;
            }
            assert!(world.deferred.len() <= 1_024, "{}", world.deferred.len());
            // The newest operations are answered first.
            while let Some(&(tag, _)) = world.deferred.back() {
                world.answer(tag, &mut connection);
            }
        }
    }
    assert!(calls < 100, "{calls} calls");
    assert_eq!(world.operations, 2 * KEYS as u64);
    assert_eq!(replies(&mut connection), [Value::Integer(0)]);
    assert!(connection.wants_input() && connection.outstanding() == 0);
}

#[test]
fn where_some_fail_the_error_says_which() {
    let (mut connection, mut world) = (connection(), World::default());
    world
        .failing
        .insert("k500".into(), Failure::Unavailable("nobody is there".into()));
    let (_, replies) = run(&[command("MSET", true)], &mut connection, &mut world);
    let [Value::Error(error)] = &replies[..] else {
        panic!("{replies:?}")
    };
    let error = String::from_utf8_lossy(error);
    assert!(
        error.starts_with("UNAVAILABLE nobody is there; done: 'k0' 'k1'"),
        "{error}"
    );
    assert!(error.ends_with("; failed: 'k500'"), "{error}");
    world.divides = true;
    let (_, replies) = run(
        &[command("EXISTS", false), word("PING")],
        &mut connection,
        &mut world,
    );
    assert!(
        matches!(&replies[..], [Value::Error(_), Value::Simple(_)]),
        "{replies:?}"
    );
}

#[test]
fn a_key_that_is_too_long_is_found_before_anything_is_done() {
    let (mut connection, mut world) = (connection(), World::default());
    let mut long = command("DEL", false);
    long.push(vec![b'x'; 100_000]);
    let (_, replies) = run(&[long], &mut connection, &mut world);
    assert!(matches!(&replies[..], [Value::Error(error)] if error.starts_with(b"TOOBIG")));
    assert_eq!(world.operations, 0);
}

#[test]
fn many_commands_at_once_are_done_a_share_at_a_time() {
    let (mut connection, mut world) = (connection(), World::default());
    let mut input = BytesMut::new();
    (0..20_000).for_each(|_| encode_command(&["PING"], &mut input));
    let mut calls = 0;
    while !input.is_empty() {
        connection.handle_bytes(&mut input, &mut world);
        assert_eq!(connection.wants_turn(), !input.is_empty());
        calls += 1;
    }
    assert!((4..8).contains(&calls), "{calls} calls");
    assert_eq!(connection.output().len(), 20_000 * "+PONG\r\n".len());
}

#[test]
fn a_client_that_leaves_in_the_middle_leaves_nothing() {
    let (mut connection, mut world) = (connection(), World::default());
    world.deferring = true;
    let mut input = BytesMut::new();
    encode_command(&command("DEL", false), &mut input);
    connection.handle_bytes(&mut input, &mut world);
    connection.handle_bytes(&mut input, &mut world);
    connection.close(&mut world);
    assert!(!connection.wants_turn() && connection.is_closing());
    let deferred: Vec<u64> = world.deferred.iter().map(|(tag, _)| *tag).collect();
    assert!(!deferred.is_empty());
    for tag in deferred {
        world.answer(tag, &mut connection);
    }
    assert!(connection.memory_bytes() < 1_000, "{}", connection.memory_bytes());
}

#[test]
fn keys_looks_at_all_keys_a_share_at_a_time_and_commands_behind_it_wait() {
    let (mut connection, mut world) = (connection(), World::default());
    run(&[command("MSET", true)], &mut connection, &mut world);
    let commands = [word("KEYS k12?"), word("GET k1"), word("KEYS *")];
    let (calls, replies) = run(&commands, &mut connection, &mut world);
    assert!(calls >= 2 * KEYS / 256, "{calls} calls");
    let keys = |reply: &Value| match reply {
        Value::Array(keys) => keys.iter().map(|key| format!("{key:?}")).collect::<BTreeSet<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(keys(&replies[0]).len(), 10);
    assert_eq!(replies[1], Value::Bulk(Bytes::from("v1")));
    assert_eq!(keys(&replies[2]).len(), KEYS);
}

#[test]
fn keys_gives_up_where_there_are_too_many_keys_and_the_connection_goes_on() {
    let limits = Limits {
        max_keys_count: 300,
        ..Limits::default()
    };
    let (mut connection, mut world) = (Connection::new(world::greeting(limits)), World::default());
    run(&[command("MSET", true)], &mut connection, &mut world);
    let before = world.operations;
    let (_, replies) = run(&[word("KEYS k1"), word("PING")], &mut connection, &mut world);
    assert!(
        format!("{:?}", replies[0]).contains("TOOBIG KEYS looks at 300 keys at most"),
        "{:?}",
        replies[0]
    );
    assert_eq!(replies[1], Value::Simple("PONG".into()));
    assert_eq!(world.operations - before, 2, "it does not look at the others");
    assert!(connection.memory_bytes() < 1_000, "{}", connection.memory_bytes());
}

#[test]
fn keys_that_find_no_room_are_refused_and_hold_nothing() {
    let (mut connection, mut world) = (connection(), World::default());
    run(&[command("MSET", true)], &mut connection, &mut world);
    world.room = Some(Connection::FREE_BYTES);
    let mut connection = world::connection();
    let (_, replies) = run(&[word("KEYS *"), word("PING")], &mut connection, &mut world);
    assert!(
        format!("{:?}", replies[0]).contains("UNAVAILABLE the node's memory for clients"),
        "{replies:?}"
    );
    assert_eq!(replies[1], Value::Simple("PONG".into()));
    assert!(connection.memory_bytes() < 1_000, "{}", connection.memory_bytes());
}
