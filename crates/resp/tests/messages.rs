//! Messages to connections: bounds, and clients that do not read.
mod world;

use bytes::{Buf, Bytes, BytesMut};
use std::sync::Arc;
use turnbuckle_core::Message;
use turnbuckle_resp::{By, Connection, Limits, Listener, encode_command};
use world::{World, greeting, send};

fn message(channel: &str, bytes: usize) -> Message {
    Message {
        channel: channel.to_owned().into(),
        text: vec![b'm'; bytes].into(),
    }
}

/// A connection that listens to `c`.
fn listening(limits: Limits) -> (Connection, World) {
    let (mut connection, mut world) = (Connection::new(greeting(limits)), World::default());
    let reply = send("SUBSCRIBE c\r\n", &mut connection, &mut world);
    assert_eq!(reply, &b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"[..]);
    connection.release_memory(true);
    (connection, world)
}

fn is_unheard(world: &World) -> bool {
    world.channels.names().is_empty() && world.channels.count_patterns() == 0
}

fn command(name: &str, names: impl IntoIterator<Item = String>) -> BytesMut {
    let mut out = BytesMut::new();
    let words: Vec<String> = [name.to_owned()].into_iter().chain(names).collect();
    encode_command(&words, &mut out);
    out
}

#[test]
fn a_client_that_does_not_read_its_messages_is_disconnected() {
    let (mut connection, mut world) = listening(Limits {
        max_output_hard_bytes: 100_000,
        ..Limits::default()
    });
    let mut delivered = 0;
    while world.deliver(message("c", 1_000), &mut connection) && !connection.is_closing() {
        delivered += 1;
        assert!(connection.output().len() <= 100_000);
    }
    assert!((90..100).contains(&delivered), "{delivered}");
    assert!(connection.is_closing() && connection.output().is_empty() && is_unheard(&world));
    assert!(!world.deliver(message("c", 1), &mut connection) && connection.output().is_empty());
    connection.close(&mut world);
}

#[test]
fn a_client_that_reads_is_not_disconnected_and_its_commands_wait_meanwhile() {
    let (mut connection, mut world) = listening(Limits::default());
    for _ in 0..3 {
        for _ in 0..20 {
            assert!(world.deliver(message("c", 100_000), &mut connection));
        }
        assert!(!connection.wants_input() && connection.memory_bytes() > 2_000_000);
        connection.output().clear();
        connection.release_memory(true);
        assert!(connection.wants_input() && connection.memory_bytes() < 1_000);
    }
}

#[test]
fn a_message_for_which_the_node_has_no_room_disconnects_and_says_so_unless_half_a_message_was_written() {
    for is_half in [false, true] {
        let (mut connection, mut world) = listening(Limits::default());
        world.room = Some(150_000);
        assert!(world.deliver(message("c", 100_000), &mut connection));
        if is_half {
            connection.output().advance(10);
            connection.release_memory(true);
        }
        assert!(world.deliver(message("c", 100_000), &mut connection));
        assert!(connection.is_closing() && is_unheard(&world));
        let output = connection.output().split();
        match is_half {
            true => assert!(output.is_empty()),
            false => assert!(output.starts_with(b"-UNAVAILABLE the node's memory for clients")),
        }
        assert!(!connection.handle_message(None, &"c".into(), &"m".into(), &mut world));
    }
}

#[test]
fn a_long_message_is_shared_by_all_that_hear_it() {
    let (mut connection, mut world) = listening(Limits::default());
    let message = message("c", 100_000);
    let text = message.text.clone();
    world.deliver(message, &mut connection);
    connection
        .output()
        .advance("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$100000\r\n".len());
    assert_eq!(connection.output().chunk().as_ptr(), text.as_ptr());
}

#[test]
fn a_connection_listens_to_no_more_than_its_bounds_allow_and_each_name_counts() {
    let (mut connection, mut world) = listening(Limits::default());
    let reply = send(
        command("SUBSCRIBE", (0..10_001).map(|number| number.to_string())),
        &mut connection,
        &mut world,
    );
    assert_eq!(
        reply,
        "-TOOBIG the command has 10002 arguments, its name included; at most 10001 are taken\r\n"
    );
    let reply = send(
        command("PSUBSCRIBE", (0..10_000).map(|number| number.to_string())),
        &mut connection,
        &mut world,
    );
    assert_eq!(
        reply,
        "-TOOBIG the connection would listen to 10001 channels and patterns; at most 10000 are possible\r\n"
    );
    let reply = send(
        command("SUBSCRIBE", (0..17).map(|number| format!("{number:065000}"))),
        &mut connection,
        &mut world,
    );
    assert_eq!(
        reply,
        "-TOOBIG the names of all channels and patterns of the connection would have 1105001 bytes; at most 1048576 are possible\r\n"
    );
    let too_long = "-TOOBIG the channel has 65537 bytes, at most 65536 are taken\r\n";
    for name in ["SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE"] {
        let long = command(name, ["x".repeat(65_537)]);
        assert_eq!(send(long, &mut connection, &mut world), too_long);
    }
    let publish = command("PUBLISH", ["x".repeat(65_537), String::new()]);
    assert_eq!(send(publish, &mut world::connection(), &mut world), too_long);
    connection.output().clear();
    connection.release_memory(true);
    let before = connection.memory_bytes();
    send(
        command("SUBSCRIBE", (0..9_999).map(|number| number.to_string())),
        &mut connection,
        &mut world,
    );
    connection.release_memory(true);
    let more = connection.memory_bytes() - before;
    assert!((9_999 * 400..9_999 * 405).contains(&more), "{more}");
    assert_eq!(world.channels.names().len(), 10_000);
    send("UNSUBSCRIBE\r\n", &mut connection, &mut world);
    connection.release_memory(true);
    assert!(is_unheard(&world) && connection.memory_bytes() < 1_000);
}

#[test]
fn a_subscription_waits_until_the_node_has_room_for_it() {
    let (mut connection, mut world) = (Connection::new(greeting(Limits::default())), World::default());
    world.room = Some(100_000);
    let mut input = command("SUBSCRIBE", (0..1_000).map(|number| number.to_string()));
    for _ in 0..3 {
        connection.handle_bytes(&mut input, &mut world);
        assert!(connection.output().is_empty() && connection.is_waiting() && is_unheard(&world));
    }
    world.room = None;
    connection.handle_bytes(&mut input, &mut world);
    assert_eq!(world.channels.names().len(), 1_000);
    assert!(!connection.output().is_empty() && !connection.is_waiting());
}

#[test]
fn however_a_connection_ends_its_subscriptions_end() {
    type End = fn(&mut Connection, &mut World);
    let ends: [End; 6] = [
        |connection, world| connection.close(world),
        |connection, _| connection.shed(),
        |connection, world| drop(send("RESET\r\n", connection, world)),
        |connection, world| drop(send("QUIT\r\n", connection, world)),
        |connection, world| drop(send("*x\r\n", connection, world)),
        |connection, _| *connection = world::connection(),
    ];
    for end in ends {
        let (mut connection, mut world) = listening(Limits::default());
        send("PSUBSCRIBE a* b*\r\n", &mut connection, &mut world);
        let other = Listener {
            event_loop: 1,
            number: 7,
        };
        world.channels.subscribe(other, By::Name, &Bytes::from("c"));
        assert!(connection.is_listening());
        end(&mut connection, &mut world);
        assert!(!connection.is_listening());
        // Those of other connections stay.
        assert_eq!((world.channels.count(b"c"), world.channels.count(b"a")), (1, 0));
        assert!(!world.channels.is_heard(0, b"c") && world.channels.is_heard(1, b"c"));
        assert_eq!(Arc::strong_count(&world.channels), 1);
    }
}
