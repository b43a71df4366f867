use serde::Deserialize;
use turnbuckle_core::Micros;
use turnbuckle_document::Number;

/// Declares the limits once: their names in the file, defaults, bounds and documentation.
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident = $default:expr, $min:literal ..= $max:expr;)+) => {
        /// The limits of a node: `[limits]` of the file. The unit is at the end of each name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Limits {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct LimitsTable {
            $($name: Option<Number<$min, { $max }>>,)+
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $($name: $default,)+ }
            }
        }

        impl LimitsTable {
            /// The limits of the table, with the defaults for those that it does not set.
            pub(super) fn limits(&self) -> Limits {
                Limits {
                    $($name: self.$name.as_ref().map_or($default, |given| **given),)+
                }
            }
        }

        impl Limits {
            /// All limits in the file's order: name, value, and description.
            pub fn entries(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![$((stringify!($name), self.$name, concat!($($doc),+).trim_ascii()),)+]
            }
        }
    };
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

/// A value travels in one frame. The frame must also have room for its key and for what the version depends on.
const _: () = assert!(65 * MIB * 2 <= turnbuckle_node::MAX_FRAME_BYTES as u64);

limits! {
    /// The longest key that a client may name, in bytes.
    max_key_bytes = 64 * KIB, 1..=MIB;
    /// The longest value that a client may write, in bytes.
    max_value_bytes = 16 * MIB, 1..=64 * MIB;
    /// How many arguments one command may have.
    max_arguments = 65_536, 16..=16_777_216;
    /// How many bytes one command may have in all.
    max_command_bytes = 64 * MIB, 1024..=1024 * MIB;
    /// How many clients may be connected to a node at once.
    max_clients = 10_000, 1..=1_000_000;
    /// How many bytes of replies may wait for a client that does not read. Beyond this, the node stops reading from the client.
    max_client_backlog_bytes = MIB, 1024..=1024 * MIB;
    /// How much memory all clients of a node may use together, for commands that are not done and replies that are not read, in MiB.
    client_memory_mb = 256, 16..=16_777_216;
    /// How many bytes may be on their way over one link to another node.
    max_link_backlog_bytes = 64 * MIB, 65_536..=4096 * MIB;
    /// How long an operation may take before it fails with TIMEOUT, in milliseconds.
    operation_deadline_ms = 5_000, 1..=DAY_MS;
    /// How much memory the newest versions of a node may take, in MiB. All keyspaces share it. What does not fit is read from disk.
    memory_limit_mb = 1_024, 16..=16_777_216;
    /// How much log a node keeps for peers that are away, in MiB. A peer that needs more than this gets a full copy.
    retained_log_mb = 1_024, 16..=16_777_216;
    /// The growth of the log, in MiB, at which the next checkpoint begins.
    checkpoint_log_mb = 256, 1..=1_048_576;
    /// If anything was written, the next checkpoint begins at most this long after the last one, in milliseconds.
    checkpoint_interval_ms = MINUTE_MS, 100..=DAY_MS;
    /// While the disk has less free space than this, in MiB, writes are refused and reads are served. With 0 there is no such limit.
    min_free_disk_mb = 64, 0..=16_777_216;
    /// How far ahead of this node's clock a peer's timestamp may be before it is refused, in milliseconds.
    max_clock_ahead_ms = 60_000, 1..=DAY_MS;
    /// How far a node's clock may be from true time, in milliseconds. Every staleness bound assumes this.
    clock_bound_ms = 10, 0..=DAY_MS;
    /// How long a node that is told to stop waits for operations to finish, in milliseconds.
    shutdown_grace_ms = 5_000, 0..=DAY_MS;
}

impl Limits {
    /// [`Limits::operation_deadline_ms`] as a span.
    pub fn operation_deadline(&self) -> Micros {
        Micros::from_millis(self.operation_deadline_ms)
    }

    /// [`Limits::max_clock_ahead_ms`] as a span.
    pub fn max_clock_ahead(&self) -> Micros {
        Micros::from_millis(self.max_clock_ahead_ms)
    }

    /// [`Limits::clock_bound_ms`] as a span.
    pub fn clock_bound(&self) -> Micros {
        Micros::from_millis(self.clock_bound_ms)
    }

    /// [`Limits::min_free_disk_mb`] in bytes.
    pub fn min_free_disk_bytes(&self) -> u64 {
        self.min_free_disk_mb * MIB
    }

    /// [`Limits::memory_limit_mb`] in bytes.
    pub fn memory_limit_bytes(&self) -> u64 {
        self.memory_limit_mb * MIB
    }

    /// [`Limits::client_memory_mb`] in bytes.
    pub fn client_memory_bytes(&self) -> u64 {
        self.client_memory_mb * MIB
    }

    /// [`Limits::retained_log_mb`] in bytes.
    pub fn retained_log_bytes(&self) -> u64 {
        self.retained_log_mb * MIB
    }

    /// [`Limits::checkpoint_log_mb`] in bytes.
    pub fn checkpoint_log_bytes(&self) -> u64 {
        self.checkpoint_log_mb * MIB
    }
}
