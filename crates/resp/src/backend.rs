use crate::{Channels, Listener, Refused};
use bytes::Bytes;
use std::{ops::RangeInclusive, sync::Arc};
use thiserror::Error;
use turnbuckle_core::{
    Answered, BadToken, DoorId, Failure, Key, KeyspaceLevels, Micros, Operation, SiteId, Transactions,
    Vector, Wanted,
};

/// What is behind a connection: keyspaces to open, and operations on them.
///
/// It is passed into every call and never kept, so one backend may serve many connections. It must not call back into
/// the connection that called it: answers that come later go to [`crate::Connection::handle_answer`].
pub trait Backend {
    /// Opens the client side of a keyspace's protocol: a new session.
    fn open(&mut self, keyspace: &str) -> Result<DoorId, SelectError>;

    /// Adds to the session what another session has seen. What it has seen itself stays. `token` is the signed bytes of [`Backend::token`]. No
    /// operation of the door is outstanding. After an error the session is unchanged.
    fn resume(&mut self, door: DoorId, token: &[u8]) -> Result<(), BadToken>;

    /// Closes a door. No operation of it is outstanding, except when the connection itself is closed.
    fn close(&mut self, door: DoorId);

    /// Begins an operation. `Some`: it was answered at once. `None`: the answer comes later, exactly once, through
    /// [`crate::Connection::handle_answer`] with the same tag. The connection chooses the tags and never uses one twice.
    ///
    /// Keys and values may share the memory that they were read into. Copy what is to be kept.
    fn operate(&mut self, door: DoorId, tag: u64, operation: Operation) -> Option<Answered>;

    /// Operations of the door are probably about these keys soon. It is a hint.
    fn look_ahead(&mut self, _door: DoorId, _keys: &[&[u8]]) {}

    /// Whether a read of several keys at this level may be divided into several reads, because the level promises no snapshot.
    fn divides_reads(&self, _door: DoorId, _level: Option<&Wanted>) -> bool {
        false
    }

    /// Why the keyspace takes no such operation, at any level; `None` if it does.
    fn refusal(&self, _door: DoorId, _operation: &Operation) -> Option<Failure> {
        None
    }

    /// Which transactions the keyspace carries out.
    fn transactions(&self, _door: DoorId) -> Transactions {
        Transactions::None
    }

    /// A command begins: the one at this place of [`crate::command_names`]. Operations until the next call belong to it.
    fn begin_command(&mut self, _place: usize) {}

    /// A long command that has begun before goes on. Operations until the next call belong to it.
    fn go_on_with_command(&mut self, _place: usize) {}

    /// The command that has begun last was refused before anything of it was carried out.
    fn refuse_command(&mut self, _place: usize) {}

    /// Something was refused because of the client's user. Nothing of it was carried out.
    fn note_refused(&mut self, _refused: &Refused<'_>) {}

    /// A clock that is never set back, for the limits of users.
    fn monotonic_time(&self) -> Micros {
        self.wall_time()
    }

    /// Fills the bytes with random ones that cannot be guessed. Returns false if there are none.
    fn fill_random(&mut self, _bytes: &mut [u8]) -> bool {
        false
    }

    /// The connection is about to hold this many bytes in all, of commands, expected answers and replies. Returns false if the node has no room for
    /// them. Then the connection waits, and asks again at its next call.
    fn grow_to(&mut self, _bytes: usize) -> bool {
        true
    }

    /// What the session has seen, signed. No operation of the door is outstanding.
    fn token(&mut self, door: DoorId) -> Bytes;

    /// The causal context of a key, signed. Only for keyspaces that keep siblings.
    fn seal_context(&self, _door: DoorId, _key: &Key, _context: &Vector) -> Bytes {
        Bytes::new()
    }

    /// The context in what [`Backend::seal_context`] returned for this key. `None` if it is something else.
    fn open_context(&self, _door: DoorId, _key: &Key, _sealed: &[u8]) -> Option<Vector> {
        None
    }

    /// All keyspaces.
    fn keyspaces(&self) -> Vec<Keyspace>;

    /// Whether `INFO`, `HELLO` and `CLUSTER` say that the site is a Redis cluster.
    fn cluster_mode(&self) -> bool {
        true
    }

    /// The nodes of this site that hold a keyspace's slots, for clients that route by themselves.
    fn cluster(&self, keyspace: &str) -> Vec<ClusterNode>;

    /// The clock of this node, in microseconds since 1970.
    fn wall_time(&self) -> Micros;

    /// The name of a site.
    fn site_name(&self, site: SiteId) -> &str;

    /// The site of that name.
    fn site_named(&self, name: &str) -> Option<SiteId>;

    /// What `INFO` shows besides what every connection knows by itself. If the connection has a section of the same title, the lines are appended to
    /// it.
    fn info(&self) -> Vec<InfoSection>;

    /// What `CONFIG GET` shows. If Redis has the same setting, the name is that of Redis.
    fn config(&self) -> Vec<(String, String)>;

    /// What the connection's socket has carried, and when.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    /// Who listens to which channels at this node. `None`: there are no messages here.
    fn channels(&self) -> Option<&Arc<Channels>> {
        None
    }

    /// The connection that is being served, as [`Backend::channels`] knows it. It stays the same for the connection's life.
    fn listener(&self) -> Listener {
        Listener {
            event_loop: 0,
            number: 0,
        }
    }

    /// What `CLIENT LIST` shows: one line for each connection. `own` is the line of the connection that asks.
    fn clients(&self, own: &str) -> String {
        own.to_owned()
    }
}

/// What a client's socket has carried, for `CLIENT INFO` and `CLIENT LIST`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Since it connected, in seconds.
    pub age_seconds: u64,
    /// Since its last command, in seconds.
    pub idle_seconds: u64,
    /// Received and not yet taken as commands, in bytes.
    pub queued_bytes: u64,
    /// Received so far, in bytes.
    pub received_bytes: u64,
    /// Sent so far, in bytes.
    pub sent_bytes: u64,
}

/// Why a keyspace could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectError {
    /// There is no keyspace of that name.
    #[error("no such keyspace")]
    NoKeyspace,
    /// The keyspace cannot be served now.
    #[error("{0}")]
    Unavailable(String),
}

/// The description of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyspace {
    /// Its name.
    pub name: String,
    /// Its kind: `causal`, `quorum`, ...
    pub kind: String,
    /// The protocol that it runs.
    pub protocol: String,
    /// The levels of its operations.
    pub levels: KeyspaceLevels,
    /// The number by which `SELECT` chooses it, beside its name.
    pub db: Option<u16>,
    /// How many partitions it has.
    pub partitions: u16,
    /// More about it, by name, such as `durability`.
    pub details: Vec<(String, String)>,
}

/// A node of the site that the client is connected to, as cluster-aware clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNode {
    /// Forty hexadecimal digits that stay the same for the node's life.
    pub id: String,
    /// The name or address at which clients reach it.
    pub host: String,
    /// Its RESP port.
    pub port: u16,
    /// The hash slots that it holds, in order.
    pub slots: Vec<RangeInclusive<u16>>,
    /// Whether the connection is to this node.
    pub is_me: bool,
    /// Whether it is that node, or the link to it is up.
    pub is_up: bool,
}

/// A section of `INFO`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfoSection {
    /// Its title, such as `Clients`.
    pub title: String,
    /// Its lines, `name:value`.
    pub lines: Vec<(String, String)>,
}
