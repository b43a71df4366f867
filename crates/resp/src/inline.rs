//! Commands typed by hand, as over telnet: words between spaces, with quotes.
use crate::{Arguments, ProtocolError, arguments::Span};
use bytes::{BufMut, Bytes, BytesMut};

/// Splits a line into words as Redis does:
///
/// - in `"..."`, `\n \r \t \b \a \xHH` are escapes, and a backslash before any other byte means that byte;
/// - in `'...'`, only `\'` is an escape;
/// - a closing quote must be followed by a space or the end of the line.
pub(crate) fn split_line(line: &[u8], arguments: &mut Arguments) -> Result<(), ProtocolError> {
    let mut words = BytesMut::with_capacity(line.len());
    let mut rest = line;
    arguments.clear();
    loop {
        while let [space, tail @ ..] = rest
            && is_space(*space)
        {
            rest = tail;
        }
        if rest.is_empty() {
            break;
        }
        let start = words.len() as u32;
        rest = take_word(rest, &mut words)?;
        arguments.spans.push(Span {
            start,
            end: words.len() as u32,
        });
    }
    arguments.frame = words.freeze();
    Ok(())
}

/// The words of a line that was typed by hand, split the way Redis splits inline commands: between spaces, with quotes.
///
/// # Errors
/// If a quote is not closed, or a closing quote is followed at once by something else.
pub fn split_words(line: &[u8]) -> Result<Vec<Bytes>, ProtocolError> {
    let mut arguments = Arguments::default();
    split_line(line, &mut arguments)?;
    Ok((0..arguments.len()).map(|place| arguments.bytes(place)).collect())
}

/// Appends the word at the front of `rest` to `words`. Returns what is after it.
fn take_word<'a>(mut rest: &'a [u8], words: &mut BytesMut) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [] => return Ok(rest),
            [space, ..] if is_space(*space) => return Ok(rest),
            [b'"', tail @ ..] => return close(take_double(tail, words)?),
            [b'\'', tail @ ..] => return close(take_single(tail, words)?),
            [byte, tail @ ..] => {
                words.put_u8(*byte);
                tail
            }
        };
    }
}

fn close(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest {
        [] => Ok(rest),
        [space, ..] if is_space(*space) => Ok(rest),
        _ => Err(ProtocolError::Quotes),
    }
}

fn take_double<'a>(mut rest: &'a [u8], words: &mut BytesMut) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [] => return Err(ProtocolError::Quotes),
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                words.put_u8(hex_digit(*high) << 4 | hex_digit(*low));
                tail
            }
            [b'\\', escaped, tail @ ..] => {
                words.put_u8(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                tail
            }
            [byte, tail @ ..] => {
                words.put_u8(*byte);
                tail
            }
        };
    }
}

fn take_single<'a>(mut rest: &'a [u8], words: &mut BytesMut) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [] => return Err(ProtocolError::Quotes),
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'\'', tail @ ..] => {
                words.put_u8(b'\'');
                tail
            }
            [byte, tail @ ..] => {
                words.put_u8(*byte);
                tail
            }
        };
    }
}

/// `isspace` in the C locale, which Redis uses.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn hex_digit(digit: u8) -> u8 {
    char::from(digit)
        .to_digit(16)
        .expect("the caller saw a hex digit") as u8
}
