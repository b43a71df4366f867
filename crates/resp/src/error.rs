use thiserror::Error;

/// Bytes that are not the protocol. The reply is `-ERR Protocol error: <this>`, in the words of Redis 7. Then the connection is closed, because it is
/// not known where the next command begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// An array's length is not a number, or over [`crate::Limits::max_skipped_arguments`].
    #[error("invalid multibulk length")]
    ArrayLength,
    /// An array's length is longer than any number can be.
    #[error("too big mbulk count string")]
    ArrayHeader,
    /// An argument's length is not a number, negative, or over [`crate::Limits::max_skipped_bytes`].
    #[error("invalid bulk length")]
    BulkLength,
    /// An argument's length is longer than any number can be.
    #[error("too big bulk count string")]
    BulkHeader,
    /// An argument of a command is not a bulk string but, for example, an array.
    #[error("expected '$', got '{}'", char::from(*.0).escape_default())]
    NotBulk(u8),
    /// An argument is not followed by CR LF. Redis does not check this, and takes the following bytes for a command. Here a wrong length cannot turn
    /// a value into commands.
    #[error("expected CRLF after the bulk string")]
    BulkEnd,
    /// A line typed by hand is over [`crate::Limits::max_inline_bytes`].
    #[error("too big inline request")]
    InlineLength,
    /// A line typed by hand opens a quote and does not close it.
    #[error("unbalanced quotes in request")]
    Quotes,
    /// A reply begins with a byte that no type of RESP has.
    #[error("expected the type of a reply, got '{}'", char::from(*.0).escape_default())]
    ReplyType(u8),
    /// A reply's header or line is not what its type says.
    #[error("malformed {0}")]
    Reply(&'static str),
    /// A reply is nested more deeply than [`crate::ReplyDecoder::MAX_DEPTH`].
    #[error("reply nested too deeply")]
    ReplyDepth,
    /// A reply is over the limit of the decoder.
    #[error("reply too big")]
    ReplyLength,
}
