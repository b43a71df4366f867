//! The keys of commands that have arrived and have not begun yet.
//!
//! A client that sends many commands at once lets the server know which keys it will ask for. If all of them are looked at one right behind the other, the
//! processor fetches them from memory at the same time, and the commands that follow do not wait for memory one by one. It is a hint: where the input looks
//! odd, nothing is said about the rest of it.

/// The number of commands that are looked at together.
pub(crate) const AHEAD: usize = 16;

/// A command with more arguments ends the look ahead, which so costs little.
const MOST_ARGUMENTS: usize = 8;

/// The first argument of each command at the front of `input`, where most commands have their key: those of up to [`AHEAD`] complete arrays of bulk strings.
pub(crate) fn keys(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = input;
    std::iter::from_fn(move || command(&mut rest)).take(AHEAD)
}

/// Takes a command off the front. Returns its first argument: that is its name if it has no other one.
fn command<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let count = number(rest, b'*')?;
    if !(1..=MOST_ARGUMENTS).contains(&count) {
        return None;
    }
    let mut key = None;
    for place in 0..count {
        let len = number(rest, b'$')?;
        let (argument, after) = rest.split_at_checked(len)?;
        *rest = after.strip_prefix(b"\r\n")?;
        if place <= 1 {
            key = Some(argument);
        }
    }
    key
}

/// Takes a header off the front: a type and a number.
fn number(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let (&found, mut digits) = rest.split_first()?;
    let mut number = 0_usize;
    loop {
        let (&byte, after) = digits.split_first()?;
        digits = after;
        match byte {
            b'0'..=b'9' => number = number.checked_mul(10)?.checked_add(usize::from(byte - b'0'))?,
            b'\r' => break,
            _ => return None,
        }
    }
    *rest = digits.strip_prefix(b"\n")?;
    (found == kind).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arguments, Decoded, Decoder, Limits};
    use bytes::BytesMut;
    use proptest::prelude::*;

    fn keys_of(input: &[u8]) -> Vec<&[u8]> {
        keys(input).collect()
    }

    #[test]
    fn the_keys_of_complete_commands_are_found() {
        let input = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n\r\n\r\n\r\n*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n*2\r\n$3\r\nGET\r\n$2\r\nx";
        assert_eq!(keys_of(input), [b"a".as_slice(), b"PING", b""]);
    }

    #[test]
    fn what_looks_odd_ends_it() {
        for odd in [
            "GET a\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*1\r\n$-1\r\n",
            "*9999999999999999999999\r\n",
            "*9\r\n",
            "\r\n",
        ] {
            let input = format!("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n{odd}*2\r\n$3\r\nGET\r\n$1\r\nl\r\n");
            assert_eq!(keys_of(input.as_bytes()), [b"k"], "{odd:?}");
        }
    }

    proptest! {
        /// What the decoder finds in the same input.
        #[test]
        fn they_are_those_that_the_decoder_finds(
            commands in proptest::collection::vec(proptest::collection::vec("[a-z*$\r\n0-9]{0,9}", 1..10), 0..20),
            cut in 0_usize..40,
        ) {
            let mut input = BytesMut::new();
            for command in &commands {
                input.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
                for argument in command {
                    input.extend_from_slice(format!("${}\r\n{argument}\r\n", argument.len()).as_bytes());
                }
            }
            input.truncate(input.len().saturating_sub(cut));
            let found: Vec<Vec<u8>> = keys(&input).map(<[u8]>::to_vec).collect();
            let (mut decoder, mut arguments) = (Decoder::new(Limits::default()), Arguments::default());
            let mut expected = Vec::new();
            while expected.len() < AHEAD
                && matches!(decoder.decode(&mut input, &mut arguments), Ok(Decoded::Command))
                && arguments.len() <= MOST_ARGUMENTS
            {
                expected.push(arguments.at(1.min(arguments.len() - 1)).to_vec());
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_bytes_are_looked_at(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            prop_assert!(keys(&bytes).count() <= AHEAD);
        }
    }
}
