use crate::{ProtocolError, number::parse_integer};
use bytes::{Bytes, BytesMut};

/// A reply as a client sees it, RESP2 and RESP3.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `+OK`.
    Simple(Bytes),
    /// `-ERR ..`, or RESP3's `!`: the first word and the rest.
    Error(Bytes),
    /// `:1`.
    Integer(i64),
    /// `$3 foo`.
    Bulk(Bytes),
    /// RESP2's `$-1` and `*-1`, RESP3's `_`.
    Null,
    /// `*2 ..`.
    Array(Vec<Value>),
    /// `%2 ..`, in the order sent.
    Map(Vec<(Value, Value)>),
    /// `~2 ..`.
    Set(Vec<Value>),
    /// `,1.5`.
    Double(f64),
    /// `#t`.
    Boolean(bool),
    /// `(123..`, in decimal.
    BigNumber(Bytes),
    /// `=7 txt:foo`: the format's three letters and the text.
    Verbatim(Bytes, Bytes),
    /// `>2 ..`: not an answer to anything.
    Push(Vec<Value>),
    /// `|1 ..` and the value it belongs to.
    Attribute(Vec<(Value, Value)>, Box<Value>),
}

/// The client's half of the codec: it takes replies from bytes, in whatever pieces they arrive.
///
/// Like [`crate::Decoder`], it looks at each byte once to find where a reply ends. Then it takes the reply apart. So it allocates only for what has
/// arrived.
#[derive(Debug)]
pub struct ReplyDecoder {
    max_reply_bytes: usize,
    scanned: usize,
    /// How many values are still missing at each depth.
    missing: Vec<u64>,
}

impl ReplyDecoder {
    /// How deeply replies may be nested.
    pub const MAX_DEPTH: usize = 32;

    /// A decoder at the start of a connection. It takes replies of at most `max_reply_bytes`.
    pub fn new(max_reply_bytes: usize) -> ReplyDecoder {
        ReplyDecoder {
            max_reply_bytes,
            scanned: 0,
            missing: vec![1],
        }
    }

    /// Takes the next reply off the front of `input`; `None` if it has not arrived completely. Until then its bytes stay in `input`, and the next
    /// call must bring the same input with more bytes after them.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Value>, ProtocolError> {
        if !self.scan(input)? {
            return Ok(None);
        }
        let mut reply = Reader {
            frame: input.split_to(self.scanned).freeze(),
            place: 0,
            depth: 0,
        };
        self.scanned = 0;
        self.missing.clear();
        self.missing.push(1);
        reply.value().map(Some)
    }

    /// Moves on to the end of the reply. Returns false if the end has not arrived.
    fn scan(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        while let Some(missing) = self.missing.last_mut() {
            if *missing == 0 {
                self.missing.pop();
                continue;
            }
            let Some(head) = Head::read(input, self.scanned)? else {
                return check_limit(input.len(), self.max_reply_bytes).map(|()| false);
            };
            // The input may still grow up to here. Beyond the limit, waiting for more is of no use.
            check_limit(head.end.saturating_add(head.body), self.max_reply_bytes)?;
            if head.body > 0 && input.len() < head.end + head.body {
                return Ok(false);
            }
            self.scanned = head.end + head.body;
            // An attribute does not count, but the value after it does.
            *missing -= u64::from(head.kind != b'|');
            if head.children > 0 {
                if self.missing.len() == Self::MAX_DEPTH {
                    return Err(ProtocolError::ReplyDepth);
                }
                self.missing.push(head.children);
            }
        }
        Ok(true)
    }
}

fn check_limit(bytes: usize, max: usize) -> Result<(), ProtocolError> {
    if bytes > max {
        return Err(ProtocolError::ReplyLength);
    }
    Ok(())
}

/// The first line of a value.
struct Head {
    kind: u8,
    /// The place of the line's text.
    text: std::ops::Range<usize>,
    /// The place where the line ends, with its CR LF.
    end: usize,
    /// How many bytes of a string follow, with its CR LF.
    body: usize,
    /// How many values follow.
    children: u64,
    /// Whether it is RESP2's null.
    null: bool,
}

impl Head {
    /// The longest line that is a value of its own, in bytes. Longer texts are bulk strings.
    const MAX_LINE_BYTES: usize = 64 << 10;

    /// The line at `start`; `None` if it has not arrived completely.
    fn read(input: &[u8], start: usize) -> Result<Option<Head>, ProtocolError> {
        let Some(&kind) = input.get(start) else {
            return Ok(None);
        };
        if !b"+-:$*_#,(!=%~>|".contains(&kind) {
            return Err(ProtocolError::ReplyType(kind));
        }
        let rest = &input[start + 1..];
        let window = &rest[..rest.len().min(Self::MAX_LINE_BYTES)];
        let Some(len) = window.iter().position(|&byte| byte == b'\r') else {
            return if window.len() == Self::MAX_LINE_BYTES {
                Err(ProtocolError::Reply("line"))
            } else {
                Ok(None)
            };
        };
        match rest.get(len + 1) {
            None => return Ok(None),
            Some(b'\n') => {}
            Some(_) => return Err(ProtocolError::Reply("line")),
        }
        let mut head = Head {
            kind,
            text: start + 1..start + 1 + len,
            end: start + 1 + len + 2,
            body: 0,
            children: 0,
            null: false,
        };
        head.measure(&rest[..len])?;
        Ok(Some(head))
    }

    /// Sets what follows the line, by its type and its number.
    fn measure(&mut self, text: &[u8]) -> Result<(), ProtocolError> {
        if !b"$!=*%~>|".contains(&self.kind) {
            return Ok(());
        }
        let number = parse_integer(text).ok_or(ProtocolError::Reply("length"))?;
        if number == -1 && (self.kind == b'$' || self.kind == b'*') {
            self.null = true;
            return Ok(());
        }
        let number = u64::try_from(number).map_err(|_| ProtocolError::Reply("length"))?;
        match self.kind {
            b'$' | b'!' | b'=' => {
                self.body = usize::try_from(number)
                    .ok()
                    .and_then(|len| len.checked_add(2))
                    .ok_or(ProtocolError::ReplyLength)?;
            }
            b'%' | b'|' => {
                self.children = number.checked_mul(2).ok_or(ProtocolError::ReplyLength)?;
            }
            _ => self.children = number,
        }
        Ok(())
    }
}

/// Takes a complete reply apart.
struct Reader {
    frame: Bytes,
    place: usize,
    /// How many values are being read that contain the next one, or have it as the value of their attribute.
    depth: usize,
}

impl Reader {
    fn value(&mut self) -> Result<Value, ProtocolError> {
        if self.depth > 2 * ReplyDecoder::MAX_DEPTH {
            return Err(ProtocolError::ReplyDepth);
        }
        self.depth += 1;
        let value = self.shallow_value();
        self.depth -= 1;
        value
    }

    fn shallow_value(&mut self) -> Result<Value, ProtocolError> {
        let head = Head::read(&self.frame, self.place)?.ok_or(ProtocolError::Reply("reply"))?;
        self.place = head.end + head.body;
        if head.null {
            return Ok(Value::Null);
        }
        let text = &self.frame[head.text.clone()];
        let number = || std::str::from_utf8(text).ok();
        Ok(match head.kind {
            b'+' => Value::Simple(self.frame.slice(head.text)),
            b'-' => Value::Error(self.frame.slice(head.text)),
            b':' => Value::Integer(parse_integer(text).ok_or(ProtocolError::Reply("integer"))?),
            b'_' if text.is_empty() => Value::Null,
            b'#' if text == b"t" => Value::Boolean(true),
            b'#' if text == b"f" => Value::Boolean(false),
            b',' => Value::Double(
                number()
                    .and_then(|text| text.parse().ok())
                    .ok_or(ProtocolError::Reply("double"))?,
            ),
            b'(' => Value::BigNumber(self.frame.slice(head.text)),
            b'$' => Value::Bulk(self.body(&head)?),
            b'!' => Value::Error(self.body(&head)?),
            b'=' => self.verbatim(&head)?,
            b'*' => Value::Array(self.values(head.children)?),
            b'~' => Value::Set(self.values(head.children)?),
            b'>' => Value::Push(self.values(head.children)?),
            b'%' => Value::Map(self.pairs(head.children)?),
            b'|' => {
                let attribute = self.pairs(head.children)?;
                Value::Attribute(attribute, Box::new(self.value()?))
            }
            _ => return Err(ProtocolError::Reply("null or boolean")),
        })
    }

    fn body(&self, head: &Head) -> Result<Bytes, ProtocolError> {
        let end = head.end + head.body - 2;
        if &self.frame[end..end + 2] != b"\r\n" {
            return Err(ProtocolError::BulkEnd);
        }
        Ok(self.frame.slice(head.end..end))
    }

    fn verbatim(&self, head: &Head) -> Result<Value, ProtocolError> {
        let body = self.body(head)?;
        if body.len() < 4 || body[3] != b':' {
            return Err(ProtocolError::Reply("verbatim string"));
        }
        Ok(Value::Verbatim(body.slice(..3), body.slice(4..)))
    }

    fn values(&mut self, count: u64) -> Result<Vec<Value>, ProtocolError> {
        (0..count).map(|_| self.value()).collect()
    }

    fn pairs(&mut self, values: u64) -> Result<Vec<(Value, Value)>, ProtocolError> {
        (0..values / 2)
            .map(|_| Ok((self.value()?, self.value()?)))
            .collect()
    }
}
