//! What a connection holds: it is counted, it is bounded by what the node grants, and it is released again.
mod world;

use bytes::{Buf, BytesMut};
use turnbuckle_resp::{Connection, Limits, encode_command};
use world::{World, greeting, send};

const VALUE_BYTES: usize = 100_000;

/// A connection to a world that has ten values of 100,000 bytes.
fn large() -> (Connection, World) {
    let (mut connection, mut world) = (Connection::new(greeting(Limits::default())), World::default());
    for number in 0..10 {
        let mut set = BytesMut::new();
        let key = format!("k{number}").into_bytes();
        encode_command(&[&b"SET"[..], &key, &[b'v'; VALUE_BYTES]], &mut set);
        send(set, &mut connection, &mut world);
    }
    connection.release_memory(true);
    world.operations = 0;
    (connection, world)
}

const MGET: &str = "MGET k0 k1 k2 k3 k4 k5 k6 k7 k8 k9\r\n";

#[test]
fn a_pipeline_of_large_reads_does_not_run_ahead_of_a_client_that_does_not_read() {
    for deferring in [false, true] {
        let (mut connection, mut world) = large();
        world.deferring = deferring;
        const ASKED: usize = 100;
        let mut input = BytesMut::from(MGET.repeat(ASKED).as_str());
        let mut bytes = 0;
        for _ in 0..2_500 {
            connection.handle_bytes(&mut input, &mut world);
            while let Some(&(tag, _)) = world.deferred.front() {
                world.answer(tag, &mut connection);
            }
            connection.release_memory(false);
            assert!(
                connection.memory_bytes() < 3 << 20,
                "{} bytes",
                connection.memory_bytes()
            );
            let output = connection.output();
            // The client reads a little at a time.
            let read = output.len().min(50_000);
            bytes += read;
            output.advance(read);
            connection.release_memory(read > 0);
        }
        let reply = "*10\r\n".len() + 10 * ("$100000\r\n".len() + VALUE_BYTES + 2);
        assert_eq!((bytes, input.len()), (ASKED * reply, 0));
    }
}

/// The same values in a keyspace that takes conditions.
fn large_and_ordered() -> (Connection, World) {
    let (mut connection, mut world) = (Connection::new(greeting(Limits::default())), World::default());
    send("SELECT ordered\r\n", &mut connection, &mut world);
    let mut set = BytesMut::new();
    encode_command(&[&b"SET"[..], b"k", &[b'v'; VALUE_BYTES]], &mut set);
    send(set, &mut connection, &mut world);
    connection.release_memory(true);
    world.operations = 0;
    (connection, world)
}

#[test]
fn puts_that_tell_a_large_value_are_paced_as_reads_are() {
    for (line, is_paced) in [("SET k x NX GET\r\n", true), ("SET k x NX\r\n", false)] {
        let (mut connection, mut world) = large_and_ordered();
        send(line, &mut connection, &mut world);
        connection.release_memory(true);
        world.deferring = true;
        let mut input = BytesMut::from(line.repeat(100).as_str());
        connection.handle_bytes(&mut input, &mut world);
        let begun = world.deferred.len();
        assert_eq!(begun < 50, is_paced, "{begun} of {line}");
    }
}

#[test]
fn a_put_is_done_once_also_if_there_is_no_room_for_the_value_that_it_tells() {
    for deferring in [false, true] {
        let (mut connection, mut world) = large_and_ordered();
        world.deferring = deferring;
        // The room is enough to begin with, and too little for the value.
        world.room = Some(VALUE_BYTES / 2);
        let mut input = BytesMut::from("GETSET k x\r\n");
        connection.handle_bytes(&mut input, &mut world);
        if deferring {
            world.answer(world.deferred[0].0, &mut connection);
        }
        connection.handle_bytes(&mut input, &mut world);
        assert_eq!(world.operations, 1);
        let reply = connection.output().split();
        assert!(reply.starts_with(b"$100000\r\nvvv"), "{deferring}");
    }
}

/// A hash with ten values of 100,000 bytes, and a short one.
fn large_hash() -> (Connection, World) {
    let (mut connection, mut world) = (Connection::new(greeting(Limits::default())), World::default());
    send("SELECT ordered\r\n", &mut connection, &mut world);
    for number in 0..10 {
        let mut set = BytesMut::new();
        let field = format!("f{number}").into_bytes();
        encode_command(&[&b"HSET"[..], b"h", &field, &[b'v'; VALUE_BYTES]], &mut set);
        send(set, &mut connection, &mut world);
    }
    send("HSET h short s\r\n", &mut connection, &mut world);
    connection.release_memory(true);
    world.operations = 0;
    (connection, world)
}

#[test]
fn a_pipeline_of_reads_of_a_large_hash_does_not_run_ahead_of_a_client_that_does_not_read() {
    for line in [
        "HGETALL h\r\n",
        "HVALS h\r\n",
        "HSCAN h 0\r\n",
        "HMGET h f0 f1 f2 f3 f4\r\n",
    ] {
        let (mut connection, mut world) = large_hash();
        let mut input = BytesMut::from(line.repeat(100).as_str());
        for _ in 0..10 {
            connection.handle_bytes(&mut input, &mut world);
            connection.release_memory(false);
        }
        assert!(
            connection.memory_bytes() < 3 << 20 && !input.is_empty(),
            "{line}: {} bytes, {} left",
            connection.memory_bytes(),
            input.len()
        );
    }
}

#[test]
fn a_field_needs_the_room_of_its_value_and_not_that_of_the_hash() {
    let (mut connection, mut world) = large_hash();
    world.room = Some(200_000);
    for (line, reply) in [("HGET h short\r\n", "$1\r\ns\r\n"), ("HLEN h\r\n", ":11\r\n")] {
        assert_eq!(send(line, &mut connection, &mut world), reply.as_bytes());
        connection.release_memory(true);
    }
    let mut input = BytesMut::from("HGETALL h\r\n");
    connection.handle_bytes(&mut input, &mut world);
    assert!(connection.output().is_empty() && connection.is_waiting());
    world.room = None;
    connection.handle_bytes(&mut input, &mut world);
    assert!(connection.output().len() > 10 * VALUE_BYTES);
}

#[test]
fn a_transaction_that_reads_a_large_hash_many_times_has_a_reply_of_bounded_length() {
    let (mut connection, mut world) = large_hash();
    let lines = format!("MULTI\r\n{}", "HGETALL h\r\n".repeat(100));
    send(lines, &mut connection, &mut world);
    let reply = send("EXEC\r\n", &mut connection, &mut world);
    assert!(
        reply.len() < Limits::default().max_reply_bytes + 10_000,
        "{} bytes",
        reply.len()
    );
    let end = String::from_utf8_lossy(&reply[reply.len().saturating_sub(200)..]);
    assert!(end.contains("-TOOBIG the reply has 1000026 bytes"), "{end}");
}

#[test]
fn the_depth_of_a_pipeline_of_small_reads_is_not_hurt() {
    let (mut connection, mut world) = large();
    world.deferring = true;
    let mut input = BytesMut::from("GET none\r\n".repeat(3_000).as_str());
    let mut deepest = 0;
    while !input.is_empty() || !world.deferred.is_empty() {
        connection.handle_bytes(&mut input, &mut world);
        deepest = deepest.max(world.deferred.len());
        if let Some(&(tag, _)) = world.deferred.front() {
            world.answer(tag, &mut connection);
        }
        connection.output().clear();
        connection.release_memory(true);
    }
    assert_eq!(deepest, Limits::default().max_outstanding);
}

#[test]
fn a_reply_waits_until_the_node_has_room_for_it() {
    let (mut connection, mut world) = large();
    world.room = Some(200_000);
    let mut input = BytesMut::from("MGET k0 k1 k2\r\nPING\r\n");
    for _ in 0..3 {
        connection.handle_bytes(&mut input, &mut world);
        assert!(connection.output().is_empty() && connection.is_waiting());
        assert!(!connection.wants_input() && connection.memory_bytes() < 1_000);
    }
    world.room = None;
    connection.handle_bytes(&mut input, &mut world);
    assert!(connection.memory_bytes() > 3 * VALUE_BYTES);
    let output = connection.output().split();
    assert!(output.starts_with(b"*3\r\n$100000\r\n"));
    assert!(output.ends_with(b"+PONG\r\n"));
    assert_eq!(connection.release_memory(true), Connection::FREE_BYTES);
    assert_eq!(connection.memory_bytes(), 0);
}

#[test]
fn a_reply_that_comes_later_and_finds_no_room_is_refused() {
    let (mut connection, mut world) = large();
    // How much it returns is not known: nothing large has been read.
    send("MGET a b c d e f g\r\n".repeat(20), &mut connection, &mut world);
    world.deferring = true;
    send(MGET, &mut connection, &mut world);
    world.room = Some(200_000);
    let (tag, _) = world.deferred[0];
    world.answer(tag, &mut connection);
    let reply = connection.output().split();
    assert!(
        reply.starts_with(b"-UNAVAILABLE the node's memory for clients (client_memory_mb)"),
        "{reply:?}"
    );
    connection.release_memory(true);
    assert!(connection.memory_bytes() < 1_000);
    // Now that is known, so the next one waits.
    let mut input = BytesMut::from(MGET);
    connection.handle_bytes(&mut input, &mut world);
    assert!(world.deferred.is_empty() && connection.is_waiting());
}

#[test]
fn without_room_a_connection_has_what_is_its_own() {
    let (mut connection, mut world) = large();
    world.room = Some(0);
    let mut input = BytesMut::from("ECHO 0123456789\r\n".repeat(2_000).as_str());
    connection.handle_bytes(&mut input, &mut world);
    let (left, held) = (input.len(), connection.memory_bytes());
    assert!(left > 0 && held <= Connection::FREE_BYTES + 512, "{held} bytes");
    assert!(connection.is_waiting() && !connection.wants_input());
    let mut replies = 0;
    while !connection.output().is_empty() {
        replies += connection
            .output()
            .split()
            .iter()
            .filter(|&&byte| byte == b'$')
            .count();
        connection.release_memory(true);
        connection.handle_bytes(&mut input, &mut world);
    }
    assert_eq!((replies, input.len()), (2_000, 0));
}

#[test]
fn who_is_shed_is_told_unless_half_a_reply_was_written() {
    let (mut connection, mut world) = large();
    send(MGET, &mut connection, &mut world);
    connection.release_memory(true);
    let mut input = BytesMut::from(MGET);
    connection.handle_bytes(&mut input, &mut world);
    connection.shed();
    assert!(
        connection
            .output()
            .split()
            .starts_with(b"-UNAVAILABLE the node's memory for clients")
    );
    assert!(connection.is_closing() && !connection.wants_input());

    let (mut connection, mut world) = large();
    let mut input = BytesMut::from(MGET);
    connection.handle_bytes(&mut input, &mut world);
    connection.output().advance(10);
    connection.release_memory(true);
    connection.shed();
    assert!(connection.output().is_empty() && connection.is_closing());
}
