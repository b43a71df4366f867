use crate::{Output, number::put_integer, output::SHARED_BYTES};
use bytes::{BufMut, Bytes, BytesMut};

/// The version of the protocol that a connection speaks. `HELLO` changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Resp {
    /// RESP2: every connection begins with it.
    #[default]
    Two,
    /// RESP3.
    Three,
}

impl Resp {
    /// Its number: 2 or 3.
    pub fn number(self) -> u8 {
        match self {
            Resp::Two => 2,
            Resp::Three => 3,
        }
    }
}

/// Writes replies directly into the output. If RESP2 has no type for something, it is written as Redis does: a map as a flat array, a null as a null
/// bulk, a boolean as 1 or 0.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Output,
    resp: Resp,
}

impl<'a> Writer<'a> {
    /// A writer that appends to `out`.
    pub fn new(out: &'a mut Output, resp: Resp) -> Writer<'a> {
        Writer { out, resp }
    }

    /// The version that it writes.
    pub fn resp(&self) -> Resp {
        self.resp
    }

    /// How many bytes the output holds.
    pub fn written_bytes(&self) -> usize {
        self.out.len()
    }

    /// Makes room for this many bytes at once, so that a long reply does not grow by copying.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.out.end().reserve(bytes);
    }

    /// Drops everything after the output's first `len` bytes.
    pub(crate) fn undo(&mut self, len: usize) {
        self.out.truncate(len);
    }

    /// `+text`, for fixed words only: `text` must not contain a line break.
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']), "a simple string is one line");
        self.out.end().put_u8(b'+');
        self.line(text.as_bytes());
    }

    /// `-text`. Line breaks and other bytes below space, as a client may have sent them, become spaces.
    pub fn error(&mut self, text: &str) {
        self.out.end().put_u8(b'-');
        self.out
            .end()
            .extend(text.bytes().map(|byte| if byte < b' ' { b' ' } else { byte }));
        self.end();
    }

    /// `:value`.
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A boolean.
    pub fn boolean(&mut self, value: bool) {
        match self.resp {
            Resp::Two => self.integer(i64::from(value)),
            Resp::Three => self
                .out
                .end()
                .put_slice(if value { b"#t\r\n" } else { b"#f\r\n" }),
        }
    }

    /// Null: the reply for a key without a value.
    pub fn null(&mut self) {
        self.out.end().put_slice(match self.resp {
            Resp::Two => b"$-1\r\n",
            Resp::Three => b"_\r\n",
        });
    }

    /// A bulk string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.end().reserve(bytes.len() + 32);
        self.header(b'$', bytes.len() as i64);
        self.line(bytes);
    }

    /// A bulk string, or null.
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// A stored value, or null. A long value is not copied.
    #[inline]
    pub(crate) fn value(&mut self, value: Option<&Bytes>) {
        match value {
            Some(value) if value.len() >= SHARED_BYTES => {
                self.header(b'$', value.len() as i64);
                self.out.share(value.clone());
                self.end();
            }
            value => self.bulk_or_null(value.map(|value| &value[..])),
        }
    }

    /// A text for people to read, such as that of `INFO`.
    pub fn verbatim(&mut self, text: &str) {
        match self.resp {
            Resp::Two => self.bulk(text.as_bytes()),
            Resp::Three => {
                self.header(b'=', text.len() as i64 + 4);
                self.out.end().put_slice(b"txt:");
                self.line(text.as_bytes());
            }
        }
    }

    /// Null in the place of an array.
    pub fn null_array(&mut self) {
        self.out.end().put_slice(match self.resp {
            Resp::Two => b"*-1\r\n",
            Resp::Three => b"_\r\n",
        });
    }

    /// A reply that was written before.
    pub(crate) fn written(&mut self, reply: &[u8]) {
        self.out.end().put_slice(reply);
    }

    /// The header of an array; `len` elements follow.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// The header of a message that is not an answer; `len` elements follow.
    pub fn push(&mut self, len: usize) {
        match self.resp {
            Resp::Two => self.array(len),
            Resp::Three => self.header(b'>', len as i64),
        }
    }

    /// The header of a map; `len` pairs follow.
    pub fn map(&mut self, len: usize) {
        match self.resp {
            Resp::Two => self.header(b'*', 2 * len as i64),
            Resp::Three => self.header(b'%', len as i64),
        }
    }

    /// The header of a set; `len` elements follow.
    pub fn set(&mut self, len: usize) {
        match self.resp {
            Resp::Two => self.array(len),
            Resp::Three => self.header(b'~', len as i64),
        }
    }

    /// The header of an attribute, which comes before a reply; `len` pairs follow, and then the reply.
    ///
    /// # Panics
    /// On RESP2, which has none.
    pub fn attribute(&mut self, len: usize) {
        assert!(self.resp == Resp::Three, "RESP2 has no attributes");
        self.header(b'|', len as i64);
    }

    fn header(&mut self, kind: u8, number: i64) {
        self.out.end().put_u8(kind);
        if (0..10).contains(&number) {
            self.out.end().put_slice(&[b'0' + number as u8, b'\r', b'\n']);
        } else {
            put_integer(self.out.end(), number);
            self.end();
        }
    }

    fn line(&mut self, bytes: &[u8]) {
        self.out.end().put_slice(bytes);
        self.end();
    }

    fn end(&mut self) {
        self.out.end().put_slice(b"\r\n");
    }
}

/// Appends a command as client libraries send it: an array of bulk strings.
pub fn encode_command<A: AsRef<[u8]>>(arguments: &[A], out: &mut BytesMut) {
    let mut output = Output::from(std::mem::take(out));
    let mut writer = Writer::new(&mut output, Resp::Two);
    writer.array(arguments.len());
    for argument in arguments {
        writer.bulk(argument.as_ref());
    }
    *out = std::mem::take(output.end());
}
