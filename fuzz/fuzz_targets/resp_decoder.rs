//! Any bytes as commands and as replies, in one piece and in pieces: the same comes out, and nothing is kept beyond the
//! limits. The first byte says how long the pieces are.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use turnbuckle_resp::{Arguments, Decoded, Decoder, Limits, ProtocolError, ReplyDecoder, TooBig, Value};

fuzz_target!(|data: &[u8]| {
    let Some((&piece, bytes)) = data.split_first() else {
        return;
    };
    let piece = usize::from(piece).max(1);
    assert_eq!(commands(bytes, bytes.len().max(1)), commands(bytes, piece));
    let (whole, cut) = (replies(bytes, bytes.len().max(1)), replies(bytes, piece));
    // A reply may hold a number that is none (`,nan`), which is not equal to itself.
    assert_eq!(format!("{whole:?}"), format!("{cut:?}"));
});

type Outcome<T> = (Vec<T>, Option<ProtocolError>);

fn limits() -> Limits {
    Limits {
        max_bulk_bytes: 64,
        max_skipped_bytes: 256,
        max_frame_bytes: 256,
        max_arguments: 16,
        max_inline_bytes: 128,
        ..Limits::default()
    }
}

fn commands(bytes: &[u8], piece: usize) -> Outcome<Result<Vec<Vec<u8>>, TooBig>> {
    let mut decoder = Decoder::new(limits());
    let mut arguments = Arguments::default();
    let mut input = BytesMut::new();
    let mut found = Vec::new();
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut input, &mut arguments) {
                Ok(Decoded::Incomplete) => break,
                Ok(Decoded::Command) => {
                    assert!(!arguments.is_empty());
                    found.push(Ok(arguments.iter().map(<[u8]>::to_vec).collect()));
                }
                Ok(Decoded::TooBig(why)) => found.push(Err(why)),
                Err(error) => return (found, Some(error)),
            }
        }
        // A command, the header behind it and a CR LF: what is incomplete is never longer.
        assert!(input.len() <= 256 + 64, "{} bytes are kept", input.len());
    }
    (found, None)
}

fn replies(bytes: &[u8], piece: usize) -> Outcome<Value> {
    let mut decoder = ReplyDecoder::new(1 << 16);
    let mut input = BytesMut::new();
    let mut found = Vec::new();
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut input) {
                Ok(None) => break,
                Ok(Some(value)) => found.push(value),
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}
