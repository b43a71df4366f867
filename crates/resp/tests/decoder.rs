//! Compares the decoder with a simple one that looks at all bytes at once, over random ways to cut the bytes into pieces.
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use turnbuckle_resp::{
    Arguments, Decoded, Decoder, Limits, Output, ProtocolError, ReplyDecoder, Resp, TooBig, Value, Writer,
    encode_command,
};

fn limits() -> Limits {
    Limits {
        max_bulk_bytes: 20,
        max_skipped_bytes: 60,
        max_frame_bytes: 80,
        max_arguments: 6,
        max_skipped_arguments: 9,
        max_inline_bytes: 40,
        ..Limits::default()
    }
}

/// What is decoded from a stream of bytes: its commands, each as a list of arguments or the reason why it was skipped, and the error at its end.
#[derive(Debug, PartialEq, Default)]
struct Outcome {
    commands: Vec<Result<Vec<Vec<u8>>, TooBig>>,
    error: Option<ProtocolError>,
}

/// Feeds the pieces one after the other.
fn decode(pieces: &[Vec<u8>]) -> Outcome {
    let mut decoder = Decoder::new(limits());
    let mut input = BytesMut::new();
    let mut arguments = Arguments::default();
    let mut outcome = Outcome::default();
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut input, &mut arguments) {
                Ok(Decoded::Incomplete) => break,
                Ok(Decoded::Command) => outcome
                    .commands
                    .push(Ok(arguments.iter().map(<[u8]>::to_vec).collect())),
                Ok(Decoded::TooBig(why)) => outcome.commands.push(Err(why)),
                Err(error) => {
                    outcome.error = Some(error);
                    return outcome;
                }
            }
        }
        assert!(
            input.len() <= 2 * 80,
            "{} bytes are kept of a command of at most 80",
            input.len()
        );
    }
    outcome
}

/// The same with the simple decoder, which sees all bytes at once.
fn oracle(bytes: &[u8]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let step = if rest[0] == b'*' {
            oracle_array(rest)
        } else {
            oracle_line(rest)
        };
        match step {
            Ok(None) => break,
            Ok(Some((command, behind))) => {
                outcome.commands.extend(command);
                rest = behind;
            }
            Err(error) => {
                outcome.error = Some(error);
                break;
            }
        }
    }
    outcome
}

type Step<'a> = Result<Option<(Option<Result<Vec<Vec<u8>>, TooBig>>, &'a [u8])>, ProtocolError>;

fn oracle_number(
    bytes: &[u8],
    bad: ProtocolError,
    long: ProtocolError,
) -> Result<Option<(i64, usize)>, ProtocolError> {
    let text: Vec<u8> = bytes[1..]
        .iter()
        .copied()
        .take_while(|&byte| byte != b'\r')
        .collect();
    if text.len() >= 32 {
        return Err(long);
    }
    match bytes.get(1 + text.len() + 1) {
        None => Ok(None),
        Some(b'\n') => {
            let text = String::from_utf8_lossy(&text).into_owned();
            let number = text
                .parse::<i64>()
                .ok()
                .filter(|number| number.to_string() == text)
                .ok_or(bad)?;
            Ok(Some((number, 1 + text.len() + 2)))
        }
        Some(_) => Err(bad),
    }
}

fn oracle_array(bytes: &[u8]) -> Step<'_> {
    let limits = limits();
    let Some((count, mut place)) =
        oracle_number(bytes, ProtocolError::ArrayLength, ProtocolError::ArrayHeader)?
    else {
        return Ok(None);
    };
    if count <= 0 {
        return Ok(Some((None, &bytes[place..])));
    }
    if count > limits.max_skipped_arguments as i64 {
        return Err(ProtocolError::ArrayLength);
    }
    let mut arguments = Vec::new();
    let mut too_big = (count > limits.max_arguments as i64).then_some(TooBig::Arguments(count as u64));
    for _ in 0..count {
        match bytes.get(place) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(&other) => return Err(ProtocolError::NotBulk(other)),
        }
        let Some((len, header)) = oracle_number(
            &bytes[place..],
            ProtocolError::BulkLength,
            ProtocolError::BulkHeader,
        )?
        else {
            return Ok(None);
        };
        if len < 0 || len > limits.max_skipped_bytes as i64 {
            return Err(ProtocolError::BulkLength);
        }
        place += header;
        let end = place + len as usize;
        if len as usize > limits.max_bulk_bytes {
            too_big = too_big.or(Some(TooBig::Argument(len as u64)));
        } else if end > limits.max_frame_bytes {
            too_big = too_big.or(Some(TooBig::Frame(end as u64)));
        }
        match bytes.get(end..end + 2) {
            None => return Ok(None),
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::BulkEnd),
        }
        arguments.push(bytes[place..end].to_vec());
        place = end + 2;
    }
    let command = match too_big {
        Some(why) => Err(why),
        None => Ok(arguments),
    };
    Ok(Some((Some(command), &bytes[place..])))
}

fn oracle_line(bytes: &[u8]) -> Step<'_> {
    let len = bytes.iter().position(|&byte| byte == b'\n');
    if len.unwrap_or(bytes.len()) > limits().max_inline_bytes {
        return Err(ProtocolError::InlineLength);
    }
    let Some(len) = len else {
        return Ok(None);
    };
    // Quotes have tests of their own. The generator makes none.
    let words: Vec<Vec<u8>> = bytes[..len]
        .split(|byte| byte.is_ascii_whitespace() || *byte == 0x0b)
        .filter(|word| !word.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    let command = (!words.is_empty()).then_some(Ok(words));
    Ok(Some((command, &bytes[len + 1..])))
}

/// Streams of commands: mostly valid, and sometimes random bytes.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let argument = prop_oneof![
        8 => prop::collection::vec(any::<u8>().prop_map(unquoted), 0..12),
        1 => prop::collection::vec(Just(b'x'), 19..23),
        1 => prop::collection::vec(Just(b'x'), 58..63),
    ];
    let command = prop::collection::vec(argument, 0..12).prop_map(|arguments| {
        let mut out = BytesMut::new();
        encode_command(&arguments, &mut out);
        out.to_vec()
    });
    let line = "[a-z \t]{0,45}(\r)?\n".prop_map(String::into_bytes);
    let garbage = prop_oneof![
        "[*$0-9:\r\n -]{1,12}".prop_map(String::into_bytes),
        "[*][0-9]{30,34}".prop_map(String::into_bytes),
        Just(b"*1\r\n$99\r\n".to_vec()),
        Just(b"*2\r\n$-1\r\n".to_vec()),
        Just(b"*-1\r\n".to_vec()),
        Just(b"*1\r\n$1\r\nab\r\n".to_vec()),
        Just(b"*1\r\n*1\r\n".to_vec()),
    ];
    let part = prop_oneof![10 => command, 2 => line, 1 => garbage];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

/// Replaces quotes, because the simple decoder does not split lines at them as Redis does.
fn unquoted(byte: u8) -> u8 {
    if byte == b'"' || byte == b'\'' { b'q' } else { byte }
}

/// Cuts the bytes at these places.
fn cut(bytes: &[u8], places: &[prop::sample::Index]) -> Vec<Vec<u8>> {
    let mut places: Vec<usize> = places.iter().map(|place| place.index(bytes.len() + 1)).collect();
    places.sort_unstable();
    places.push(bytes.len());
    let mut pieces = Vec::new();
    let mut from = 0;
    for to in places {
        pieces.push(bytes[from..to].to_vec());
        from = to;
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn however_the_bytes_are_cut_the_commands_are_the_same(
        bytes in stream(),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let whole = oracle(&bytes);
        prop_assert_eq!(&decode(&cut(&bytes, &places)), &whole);
        let single: Vec<Vec<u8>> = bytes.iter().map(|&byte| vec![byte]).collect();
        prop_assert_eq!(&decode(&single), &whole);
    }

    #[test]
    fn any_bytes_at_all_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(std::slice::from_ref(&bytes));
        let mut input = BytesMut::from(&bytes[..]);
        let mut replies = ReplyDecoder::new(100);
        while let Ok(Some(_)) = replies.decode(&mut input) {}
    }

    #[test]
    fn a_reply_is_read_as_it_was_written_however_it_is_cut(
        values in prop::collection::vec(value(), 1..4),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut out = Output::default();
        for value in &values {
            write(value, &mut Writer::new(&mut out, Resp::Three));
        }
        let out = out.split();
        let mut replies = ReplyDecoder::new(1 << 20);
        let mut input = BytesMut::new();
        let mut read = Vec::new();
        for piece in cut(&out, &places) {
            input.extend_from_slice(&piece);
            while let Some(value) = replies.decode(&mut input).expect("it was written well") {
                read.push(value);
            }
        }
        prop_assert_eq!(read, values);
        prop_assert!(input.is_empty());
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        "[a-z ]{0,9}".prop_map(|text| Value::Simple(text.into())),
        "[A-Z]{1,9} [a-z ]{0,9}".prop_map(|text| Value::Error(text.into())),
        any::<i64>().prop_map(Value::Integer),
        any::<bool>().prop_map(Value::Boolean),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| Value::Bulk(bytes.into())),
        "[a-z\r\n]{0,9}".prop_map(|text| Value::Verbatim(Bytes::from_static(b"txt"), text.into())),
        Just(Value::Null),
    ];
    leaf.prop_recursive(4, 30, 5, |inner| {
        let pairs = || prop::collection::vec((inner.clone(), inner.clone()), 0..4);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Set),
            pairs().prop_map(Value::Map),
            (pairs(), inner.clone()).prop_map(|(pairs, value)| Value::Attribute(pairs, Box::new(value))),
        ]
    })
}

fn write(value: &Value, writer: &mut Writer<'_>) {
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).expect("the generator makes text");
    let pairs = |pairs: &[(Value, Value)], writer: &mut Writer<'_>| {
        for (key, value) in pairs {
            write(key, writer);
            write(value, writer);
        }
    };
    match value {
        Value::Simple(bytes) => writer.simple(&text(bytes)),
        Value::Error(bytes) => writer.error(&text(bytes)),
        Value::Integer(number) => writer.integer(*number),
        Value::Boolean(truth) => writer.boolean(*truth),
        Value::Bulk(bytes) => writer.bulk(bytes),
        Value::Verbatim(_, bytes) => writer.verbatim(&text(bytes)),
        Value::Null => writer.null(),
        Value::Array(values) => {
            writer.array(values.len());
            values.iter().for_each(|value| write(value, writer));
        }
        Value::Set(values) => {
            writer.set(values.len());
            values.iter().for_each(|value| write(value, writer));
        }
        Value::Map(map) => {
            writer.map(map.len());
            pairs(map, writer);
        }
        Value::Attribute(map, value) => {
            writer.attribute(map.len());
            pairs(map, writer);
            write(value, writer);
        }
        other => unreachable!("the generator makes no {other:?}"),
    }
}

#[test]
fn a_promised_length_is_not_allocated_for() {
    let mut decoder = Decoder::new(Limits::default());
    let mut input = BytesMut::from(&b"*65536\r\n$16777216\r\nx"[..]);
    let before = input.capacity();
    let mut arguments = Arguments::default();
    assert_eq!(
        decoder.decode(&mut input, &mut arguments),
        Ok(Decoded::Incomplete)
    );
    assert_eq!(input.capacity(), before);
    assert!(std::mem::size_of::<Decoder>() < 512);
}

#[test]
fn replies_nested_without_end_are_refused() {
    for part in [&b"*1\r\n"[..], b"|0\r\n", b"|1\r\n_\r\n", b"%1\r\n_\r\n"] {
        let mut input = BytesMut::from(&[&part.repeat(100_000)[..], b"_\r\n"].concat()[..]);
        let mut replies = ReplyDecoder::new(1 << 20);
        assert_eq!(replies.decode(&mut input), Err(ProtocolError::ReplyDepth));
    }
}

#[test]
fn replies_of_resp3_are_read() {
    let mut replies = ReplyDecoder::new(1 << 20);
    let mut input =
        BytesMut::from(&b",1.5\r\n(123456789012345678901\r\n!5\r\nERR x\r\n>1\r\n:1\r\n*-1\r\n"[..]);
    let expected = [
        Value::Double(1.5),
        Value::BigNumber("123456789012345678901".into()),
        Value::Error("ERR x".into()),
        Value::Push(vec![Value::Integer(1)]),
        Value::Null,
    ];
    for value in expected {
        assert_eq!(replies.decode(&mut input), Ok(Some(value)));
    }
    for bad in [
        "?1\r\n",
        "#x\r\n",
        ":x\r\n",
        "$x\r\n",
        "$-2\r\n",
        "=3\r\ntxt\r\n",
        "_x\r\n",
        "$99999999\r\n",
    ] {
        let mut input = BytesMut::from(bad.as_bytes());
        ReplyDecoder::new(1 << 20).decode(&mut input).expect_err(bad);
    }
}
