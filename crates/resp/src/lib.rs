//! RESP2 and RESP3: the protocols of clients, without sockets.
//!
//! ```text
//!                        +------------------ Connection -------------------+
//!   socket's bytes ----> | Decoder -> command -> Operation                 | ----> Backend::operate
//!                        |               |                                 |
//!                        |               v   slots: one reply each, in     |
//!   output's bytes <---- | Writer <- [ 1 | 2 | 3 ]  the order of commands  | <---- handle_answer, or at once
//!                        +-------------------------------------------------+
//! ```
//!
//! - A [`Connection`] is one client's connection without its socket: bytes in, operations out, answers in, bytes out. It
//!   has no clock, no thread and no I/O, so tests and the simulator drive it as the server does.
//! - A [`Backend`] is what is behind a connection: keyspaces to open, and operations on them.
//! - [`Decoder`] and [`Writer`] are the server's half of the codec, [`encode_command`] and [`ReplyDecoder`] the client's.
//!
//! ```
//! use bytes::BytesMut;
//! use turnbuckle_resp::{ReplyDecoder, Value, encode_command};
//!
//! let mut wire = BytesMut::new();
//! encode_command(&["GET", "k"], &mut wire);
//! assert_eq!(wire, &b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"[..]);
//!
//! let mut replies = ReplyDecoder::new(1 << 20);
//! let mut wire = BytesMut::from(&b"$5\r\nhello\r\n"[..]);
//! assert_eq!(replies.decode(&mut wire), Ok(Some(Value::Bulk("hello".into()))));
//! ```
//!
//! # What clients may do to us
//!
//! Whatever bytes a client sends, nothing panics, and memory stays within the connection's [`Limits`]. Memory is never allocated for a length that is
//! only announced. What is too long is skipped as it streams in. If a client does not read its replies, the connection stops reading from it.
//!
//! # Caveats: where we differ from Redis, and why
//!
//! - **Levels.** `AT level` may be at the end of every command that reads or writes keys (`docs/commands.md` names them). If a command takes any number of keys, its last two arguments are a level whenever the last but one is `AT` (in
//!   capitals) and at least one key, or key and value, is before it. Then a word that is not a level is refused and not taken for a key, because a
//!   misspelt level must not become a weaker read. A key named `AT` is written elsewhere in the list (`MGET AT k`), or with a level after it
//!   (`MGET k AT x AT causal`).
//! - **Several keys.** `MSET` and `DEL` are one write for each key, not a transaction. If some of the writes fail, the reply is an error that names
//!   the keys that were done. `MGET` and `EXISTS` are one read of several keys. It is a snapshot if the keyspace has them. Where keys may have hashes and
//!   sets, `EXISTS` is one read for each key, and no snapshot.
//! - **Hashes and sets.** `MGET` returns null for them, as in Redis. `HSCAN` and `SSCAN` return everything at once. `SINTER`, `SUNION` and `SDIFF` of several sets are
//!   a transaction that only reads: the keys must be in one partition, and its level is one of writes.
//! - **`SELECT`** takes a keyspace's name. `SELECT 0` is the keyspace that the connection began in; other numbers are those that the configuration gives to keyspaces. What the session of
//!   each keyspace has seen is kept until `RESET`.
//! - **What Turnbuckle does not have is refused** (`-UNSUPPORTED`), never ignored. To carry out a `SET` without its `NX` or `EX` would be worse than
//!   to refuse it. Whether a keyspace takes those options is decided by its protocol, not by the command.
//! - **`SET`** also takes `IF VERSION`: the write is carried out if the key still has the version that a receipt has named. An error of syntax says
//!   what was expected.
//! - **Messages.** A message goes to the clients of all sites, and belongs to the session of its publisher: a site delivers it once it has what the session
//!   has seen. So it comes after the reply to `PUBLISH`, also on the publisher's own connection. The reply says how often this node hears it, and `PUBSUB` is
//!   about this node, too. `PUBLISH` cannot be used between `MULTI` and `EXEC`. A connection listens to at most 10,000 channels and patterns, with names of at
//!   most 1 MiB together. A pattern that takes too many steps with a channel does not match it. A user whose keys are limited may name the channels that
//!   begin with one of its prefixes. If it may not hear a channel any more, the subscription ends, and the client is told so; Redis disconnects it.
//! - **`RECEIPTS ON`** needs a client that reads RESP3's attributes. redis-cli 7.0 does not: it ends with `Protocol error, got "|"`. There, and on
//!   RESP2, `RECEIPT` shows the same about the last command.
//! - An argument that is not followed by CR LF is a protocol error. Redis does not check this, and takes the following bytes for a command.
//! - A command of more than [`Limits::max_arguments`] is skipped and refused. Above a million arguments it is a protocol error
//!   (`invalid multibulk length`), as in Redis.

mod ahead;
mod arguments;
pub use arguments::Arguments;
mod backend;
pub use backend::{Backend, ClusterNode, InfoSection, Keyspace, SelectError, Traffic};
mod call;
mod channels;
pub use channels::{By, Channels, Listener};
mod commands;
pub use commands::command_names;
mod connection;
mod context;
pub use connection::{Connection, Greeting};
mod decoder;
mod element_shape;
pub use decoder::{Decoded, Decoder, TooBig};
mod error;
pub use error::ProtocolError;
mod glob;
mod inline;
pub use inline::split_words;
mod limits;
pub use limits::Limits;
mod long;
mod number;
mod output;
pub use output::Output;
mod pace;
mod part;
mod receipt;
mod refusal;
mod shape;
mod slot;
mod users;
pub use users::{
    BadPasswordHash, BadRight, DEFAULT_USER, PasswordHash, Refused, RefusedFor, Right, Rights, User,
    UserBook, Users,
};
mod value;
pub use value::{ReplyDecoder, Value};
mod transaction;
mod writer;
pub use writer::{Resp, Writer, encode_command};
