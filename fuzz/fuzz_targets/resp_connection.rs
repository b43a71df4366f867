//! Any bytes from a client, with answers at once or later and in any order: replies are well formed, nothing panics, and
//! nothing grows beyond the limits. The first byte says how long the pieces are, the second how answers come.
#![no_main]

#[path = "../../crates/resp/tests/world/mod.rs"]
mod world;

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use turnbuckle_resp::{Connection, Limits, ReplyDecoder};
use world::{World, greeting};

fuzz_target!(|data: &[u8]| {
    let [piece, chance, bytes @ ..] = data else {
        return;
    };
    let limits = Limits {
        max_key_bytes: 32,
        max_bulk_bytes: 64,
        max_skipped_bytes: 1_024,
        max_frame_bytes: 512,
        max_arguments: 16,
        max_inline_bytes: 256,
        max_reply_bytes: 4_096,
        max_output_bytes: 1_024,
        max_outstanding: 4,
        max_outstanding_bytes: 1_024,
        ..Limits::default()
    };
    let mut connection = Connection::new(greeting(limits));
    let mut world = World::default();
    world.deferring = chance & 1 == 1;
    let mut input = BytesMut::new();
    let mut replies = ReplyDecoder::new(1 << 20);
    let mut output = BytesMut::new();
    for piece in bytes.chunks(usize::from(*piece).max(1)) {
        input.extend_from_slice(piece);
        loop {
            let before = input.len();
            connection.handle_bytes(&mut input, &mut world);
            assert!(connection.outstanding() <= 5);
            assert!(connection.output().len() < 32_768);
            output.unsplit(connection.output().split());
            if !world.deferred.is_empty() {
                let place = usize::from(chance >> 1) % world.deferred.len();
                let (tag, _) = world.deferred[place];
                world.answer(tag, &mut connection);
            } else if input.len() == before {
                break;
            }
        }
        output.unsplit(connection.output().split());
        while replies
            .decode(&mut output)
            .expect("replies are well formed")
            .is_some()
        {}
        assert!(output.is_empty(), "a reply was cut short");
        if connection.is_closing() {
            break;
        }
        assert_eq!(connection.outstanding(), 0);
        assert!(connection.wants_input());
    }
    connection.close(&mut world);
    assert_eq!(world.open_doors(), 0);
});
