/// The limits of one connection. Every limit is per connection, and everything that a client can make grow has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest key, channel or pattern of channels, in bytes. A longer one is refused with `-TOOBIG`.
    pub max_key_bytes: usize,
    /// The longest argument, and so the longest value, in bytes. A longer one is skipped as it streams in, never
    /// buffered, and refused with `-TOOBIG`.
    pub max_bulk_bytes: usize,
    /// The longest argument that is skipped, in bytes. A longer one is a protocol error, as in Redis.
    pub max_skipped_bytes: u64,
    /// The longest whole command, in bytes; less than 4 GiB. A longer one is skipped and refused with `-TOOBIG`.
    pub max_frame_bytes: usize,
    /// The most arguments that a command may have, its name included. A command with more is skipped as it streams in, never buffered, and refused
    /// with `-TOOBIG`.
    pub max_arguments: usize,
    /// The most arguments of a command that is skipped. More are a protocol error, as in Redis.
    pub max_skipped_arguments: usize,
    /// The longest line of a command typed by hand, in bytes. A longer one is a protocol error, as in Redis.
    pub max_inline_bytes: usize,
    /// The longest single reply, in bytes. `MGET` of more is refused with `-TOOBIG`.
    pub max_reply_bytes: usize,
    /// How many bytes of replies may wait for the client to read them. Beyond this, no further command is decoded.
    pub max_output_bytes: usize,
    /// How many bytes of replies may wait for the client to read them before the connection is closed. Beyond `max_output_bytes`, only answers that
    /// were already on their way, and messages to channels, can take a connection to this limit.
    pub max_output_hard_bytes: usize,
    /// The most commands that may wait for their answers. Beyond this, no further command is decoded.
    pub max_outstanding: usize,
    /// How many bytes of commands may wait for their answers. Beyond this, no further command is decoded.
    pub max_outstanding_bytes: usize,
    /// The most keys that one `SCAN` looks at. A greater `COUNT` counts as this.
    pub max_scan_count: u32,
    /// About how many keys one `KEYS` looks at. In a larger keyspace it is refused with `-TOOBIG`.
    pub max_keys_count: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_key_bytes: 64 << 10,
            max_bulk_bytes: 16 << 20,
            max_skipped_bytes: 512 << 20,
            max_frame_bytes: 64 << 20,
            max_arguments: 65_536,
            max_skipped_arguments: 1 << 20,
            max_inline_bytes: 64 << 10,
            max_reply_bytes: 64 << 20,
            max_output_bytes: 1 << 20,
            max_output_hard_bytes: 256 << 20,
            max_outstanding: 1_024,
            max_outstanding_bytes: 64 << 20,
            max_scan_count: 4_096,
            max_keys_count: 100_000,
        }
    }
}
