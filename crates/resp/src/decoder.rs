use crate::{Arguments, Limits, ProtocolError, arguments::Span, inline::split_line, number::parse_integer};
use bytes::{Buf, BytesMut};

/// The server's half of the codec: it takes commands from bytes, in whatever pieces they arrive.
///
/// It remembers how far it has looked, so a command that arrives in a thousand pieces is looked at once, and not a thousand times. It allocates for
/// bytes that have arrived, and never for a length that was only announced. Arguments are not copied.
///
/// ```text
///   *2 CR LF $3 CR LF GET CR LF $1 CR LF k CR LF      an array of bulk strings, as every client library sends it
///   GET k LF                                          a line, as a person types it
/// ```
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    stage: Stage,
    /// How many bytes at the front of the input have been looked at. Invariant: at most the input's length.
    scanned: usize,
    /// The arguments found so far, in the bytes looked at.
    spans: Vec<Span>,
}

/// The place in a command that the input has reached.
#[derive(Debug)]
enum Stage {
    /// Before a command.
    Between,
    /// In an array, with `left` arguments still to come. `body`: the length of an argument whose header was read; `None` before a header.
    Arguments { left: usize, body: Option<usize> },
    /// In a command that is too big, of which nothing is kept. `skip` more bytes of an argument and its CR LF are skipped first.
    Skip { left: usize, skip: u64, why: TooBig },
}

/// What [`Decoder::decode`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// The input ends before the command does.
    Incomplete,
    /// A command, never without a name.
    Command,
    /// A command that was over a limit. All of it has been skipped; the next one can be decoded.
    TooBig(TooBig),
}

/// The limit that a command exceeded, with the size that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooBig {
    /// The length of an argument in bytes, over [`Limits::max_bulk_bytes`].
    Argument(u64),
    /// At least this many bytes in all, over [`Limits::max_frame_bytes`].
    Frame(u64),
    /// The number of arguments, the name included, over [`Limits::max_arguments`].
    Arguments(u64),
}

/// The longest header of an array or argument that can be a number, in bytes: type, sign, 19 digits and some more.
const HEADER_BYTES: usize = 32;

impl Decoder {
    /// A decoder at the start of a connection.
    ///
    /// # Panics
    /// If `max_frame_bytes` is not less than 4 GiB. The configuration is checked before.
    pub fn new(limits: Limits) -> Decoder {
        assert!(
            u32::try_from(limits.max_frame_bytes).is_ok_and(|most| most < u32::MAX - 64),
            "a command of at most {} bytes, expected less than 4 GiB",
            limits.max_frame_bytes
        );
        Decoder {
            limits,
            stage: Stage::Between,
            scanned: 0,
            spans: Vec::new(),
        }
    }

    /// Takes other limits from now on.
    pub(crate) fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Whether the input begins with a command of which nothing was looked at.
    pub(crate) fn is_between(&self) -> bool {
        matches!(self.stage, Stage::Between) && self.scanned == 0
    }

    /// How many bytes the input must have at least for the command in it to be complete, as far as is known. Decoding a shorter input again finds
    /// nothing new.
    pub fn wanted_bytes(&self) -> usize {
        match self.stage {
            Stage::Arguments { body: Some(len), .. } => self.scanned + len + 2,
            _ => 0,
        }
    }

    /// Takes the next command off the front of `input` and puts it into `arguments`.
    ///
    /// Until the command is complete, its bytes stay in `input`, and the next call must bring the same input with more bytes after them. After an
    /// error the decoder cannot be used any more: close the connection.
    pub fn decode(
        &mut self,
        input: &mut BytesMut,
        arguments: &mut Arguments,
    ) -> Result<Decoded, ProtocolError> {
        loop {
            match self.stage {
                Stage::Between => match input.first() {
                    None => return Ok(Decoded::Incomplete),
                    Some(b'*') => {
                        if !self.start_array(input)? {
                            return Ok(Decoded::Incomplete);
                        }
                    }
                    Some(_) => {
                        if !self.take_line(input, arguments)? {
                            return Ok(Decoded::Incomplete);
                        }
                        if !arguments.is_empty() {
                            return Ok(Decoded::Command);
                        }
                    }
                },
                Stage::Arguments { left, body } => {
                    if !self.take_arguments(input, left, body)? {
                        return Ok(Decoded::Incomplete);
                    }
                    if let Stage::Arguments { .. } = self.stage {
                        self.finish(input, arguments);
                        return Ok(Decoded::Command);
                    }
                }
                Stage::Skip {
                    left: 0,
                    skip: 0,
                    why,
                } => {
                    self.stage = Stage::Between;
                    return Ok(Decoded::TooBig(why));
                }
                Stage::Skip { left, skip, why } => {
                    if !self.skip(input, left, skip, why)? {
                        return Ok(Decoded::Incomplete);
                    }
                }
            }
        }
    }

    /// Reads `*count`. Returns false if it has not arrived completely.
    fn start_array(&mut self, input: &mut BytesMut) -> Result<bool, ProtocolError> {
        let Some((count, end)) = header(input, 0, ProtocolError::ArrayLength, ProtocolError::ArrayHeader)?
        else {
            return Ok(false);
        };
        match usize::try_from(count) {
            // An empty command is skipped and gets no answer, as in Redis.
            Ok(0) | Err(_) => input.advance(end),
            Ok(count) if count <= self.limits.max_arguments => {
                self.scanned = end;
                self.stage = Stage::Arguments {
                    left: count,
                    body: None,
                };
            }
            Ok(count) if count <= self.limits.max_skipped_arguments => {
                let (left, why) = (count, TooBig::Arguments(count as u64));
                self.skip_from(input, end, Stage::Skip { left, skip: 0, why });
            }
            Ok(_) => return Err(ProtocolError::ArrayLength),
        }
        Ok(true)
    }

    /// Reads arguments until none is left, or one is too big. Returns false if they have not arrived completely.
    #[inline]
    fn take_arguments(
        &mut self,
        input: &mut BytesMut,
        mut left: usize,
        mut body: Option<usize>,
    ) -> Result<bool, ProtocolError> {
        while left > 0 {
            let len = match body {
                Some(len) => len,
                None => {
                    let Some((len, end)) = self.argument_header(input)? else {
                        self.stage = Stage::Arguments { left, body };
                        return Ok(false);
                    };
                    if let Some(why) = self.too_big(len, end) {
                        self.skip_from(
                            input,
                            end,
                            Stage::Skip {
                                left: left - 1,
                                skip: len + 2,
                                why,
                            },
                        );
                        return Ok(true);
                    }
                    self.scanned = end;
                    len as usize
                }
            };
            let end = self.scanned + len;
            match input.get(end..end + 2) {
                None => {
                    let body = Some(len);
                    self.stage = Stage::Arguments { left, body };
                    return Ok(false);
                }
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError::BulkEnd),
            }
            self.spans.push(Span {
                start: self.scanned as u32,
                end: end as u32,
            });
            self.scanned = end + 2;
            left -= 1;
            body = None;
        }
        Ok(true)
    }

    /// Whether an argument of `len` bytes that begins at `start` is over a limit.
    #[inline]
    fn too_big(&self, len: u64, start: usize) -> Option<TooBig> {
        let frame = start as u64 + len;
        if len > self.limits.max_bulk_bytes as u64 {
            Some(TooBig::Argument(len))
        } else if frame > self.limits.max_frame_bytes as u64 {
            Some(TooBig::Frame(frame))
        } else {
            None
        }
    }

    /// Drops what was read of a command, up to `end`.
    fn skip_from(&mut self, input: &mut BytesMut, end: usize, stage: Stage) {
        input.advance(end);
        self.scanned = 0;
        self.spans.clear();
        self.stage = stage;
    }

    #[inline]
    fn argument_header(&self, input: &BytesMut) -> Result<Option<(u64, usize)>, ProtocolError> {
        match input.get(self.scanned) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(&other) => return Err(ProtocolError::NotBulk(other)),
        }
        let Some((len, end)) = header(
            input,
            self.scanned,
            ProtocolError::BulkLength,
            ProtocolError::BulkHeader,
        )?
        else {
            return Ok(None);
        };
        match u64::try_from(len) {
            Ok(len) if len <= self.limits.max_skipped_bytes => Ok(Some((len, end))),
            _ => Err(ProtocolError::BulkLength),
        }
    }

    /// Returns the command that ends at `scanned`, in `arguments`.
    fn finish(&mut self, input: &mut BytesMut, arguments: &mut Arguments) {
        arguments.clear();
        arguments.frame = input.split_to(self.scanned).freeze();
        std::mem::swap(&mut arguments.spans, &mut self.spans);
        self.scanned = 0;
        self.stage = Stage::Between;
    }

    /// Drops a part of a command that is too big. Returns false if nothing is left to drop for now.
    fn skip(
        &mut self,
        input: &mut BytesMut,
        left: usize,
        skip: u64,
        why: TooBig,
    ) -> Result<bool, ProtocolError> {
        if skip > 2 {
            let gone = usize::try_from(skip - 2).unwrap_or(usize::MAX).min(input.len());
            input.advance(gone);
            let skip = skip - gone as u64;
            self.stage = Stage::Skip { left, skip, why };
            return Ok(skip == 2);
        }
        if skip == 2 {
            match input.get(..2) {
                None => return Ok(false),
                Some(b"\r\n") => input.advance(2),
                Some(_) => return Err(ProtocolError::BulkEnd),
            }
            self.stage = Stage::Skip { left, skip: 0, why };
            return Ok(true);
        }
        let Some((len, end)) = self.argument_header(input)? else {
            return Ok(false);
        };
        input.advance(end);
        self.stage = Stage::Skip {
            left: left - 1,
            skip: len + 2,
            why,
        };
        Ok(true)
    }

    /// Reads a line that was typed by hand. Returns false if it has not arrived completely. An empty line has no arguments.
    fn take_line(&mut self, input: &mut BytesMut, arguments: &mut Arguments) -> Result<bool, ProtocolError> {
        let found = input[self.scanned..].iter().position(|&byte| byte == b'\n');
        let len = found.map_or(input.len(), |place| self.scanned + place);
        if len > self.limits.max_inline_bytes {
            return Err(ProtocolError::InlineLength);
        }
        if found.is_none() {
            self.scanned = len;
            return Ok(false);
        }
        self.scanned = 0;
        let line = input.split_to(len + 1);
        let line = &line[..len];
        split_line(line.strip_suffix(b"\r").unwrap_or(line), arguments)?;
        Ok(true)
    }
}

/// The number between the type at `start` and CR LF, and the place where the line ends. `None` if the line has not arrived completely.
#[inline]
fn header(
    input: &[u8],
    start: usize,
    bad: ProtocolError,
    too_long: ProtocolError,
) -> Result<Option<(i64, usize)>, ProtocolError> {
    let line = &input[start + 1..];
    // A fast path for one or two digits, which most lengths have.
    match *line {
        [a @ b'1'..=b'9', b'\r', b'\n', ..] => return Ok(Some((i64::from(a - b'0'), start + 4))),
        [a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Ok(Some((i64::from(a - b'0') * 10 + i64::from(b - b'0'), start + 5)));
        }
        _ => {}
    }
    let Some(len) = line.iter().take(HEADER_BYTES).position(|&byte| byte == b'\r') else {
        return if line.len() < HEADER_BYTES {
            Ok(None)
        } else {
            Err(too_long)
        };
    };
    match line.get(len + 1) {
        None => Ok(None),
        Some(b'\n') => parse_integer(&line[..len])
            .map(|number| Some((number, start + 1 + len + 2)))
            .ok_or(bad),
        Some(_) => Err(bad),
    }
}
