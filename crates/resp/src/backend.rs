use bytes::Bytes;
use std::ops::RangeInclusive;
use thiserror::Error;
use turnbuckle_core::{Answered, BadToken, DoorId, KeyspaceLevels, Level, Operation, SiteId};

/// What is behind a connection: keyspaces to open, and operations on them.
///
/// It is passed into every call and never kept, so one backend may serve many connections. It must not call back into
/// the connection that called it: answers that come later go to [`crate::Connection::handle_answer`].
pub trait Backend {
    /// Opens the client side of a keyspace's protocol: a new session.
    fn open(&mut self, keyspace: &str) -> Result<DoorId, SelectError>;

    /// Lets the session take in what another one had seen, besides what it has seen itself. `token` is the signed bytes of
    /// [`Backend::token`]. No operation of the door is outstanding. After an error the session is as it was.
    fn resume(&mut self, door: DoorId, token: &[u8]) -> Result<(), BadToken>;

    /// Closes a door. No operation of it is outstanding, except when the connection itself is closed.
    fn close(&mut self, door: DoorId);

    /// Begins an operation. `Some`: it was answered at once. `None`: the answer comes later, exactly once, through
    /// [`crate::Connection::handle_answer`] with the same tag. Tags are the connection's and never used twice.
    ///
    /// Keys and values may share the memory that they were read into: what is kept is better copied.
    fn operate(&mut self, door: DoorId, tag: u64, operation: Operation) -> Option<Answered>;

    /// Whether a read of several keys at this level may be made as several reads of some of them: it promises no snapshot.
    fn divides_reads(&self, _door: DoorId, _level: Option<Level>) -> bool {
        false
    }

    /// The connection is about to hold so many bytes in all, of commands, expected answers and replies. False if the node has no room for
    /// that: the connection waits, and asks again at its next call.
    fn grow_to(&mut self, _bytes: usize) -> bool {
        true
    }

    /// What the session knows, signed. No operation of the door is outstanding.
    fn token(&mut self, door: DoorId) -> Bytes;

    /// All keyspaces.
    fn keyspaces(&self) -> Vec<Keyspace>;

    /// The nodes of this site that hold a keyspace's slots, for clients that route by themselves.
    fn cluster(&self, keyspace: &str) -> Vec<ClusterNode>;

    /// The name that people know a site by.
    fn site_name(&self, site: SiteId) -> &str;

    /// The site of that name.
    fn site_named(&self, name: &str) -> Option<SiteId>;

    /// What `INFO` tells besides what every connection knows by itself. A section that the connection has too is
    /// appended to it.
    fn info(&self) -> Vec<InfoSection>;

    /// What `CONFIG GET` tells: names as Redis has them where it has the same thing.
    fn config(&self) -> Vec<(String, String)>;

    /// What `CLIENT LIST` tells: one line for each connection. `own` is the line of the one that asks.
    fn clients(&self, own: &str) -> String {
        own.to_owned()
    }
}

/// Why a keyspace could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectError {
    /// There is none of that name.
    #[error("no such keyspace")]
    NoKeyspace,
    /// It cannot be served now.
    #[error("{0}")]
    Unavailable(String),
}

/// What is to be known about a keyspace.
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
    /// How many partitions it has.
    pub partitions: u16,
    /// More about it, by name: `durability`, for one.
    pub details: Vec<(String, String)>,
}

/// A node of the contacted site, as cluster-aware clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNode {
    /// Forty hexadecimal digits that stay the same for the node's life.
    pub id: String,
    /// Where clients reach it: a name or an address.
    pub host: String,
    /// Its RESP port.
    pub port: u16,
    /// The hash slots that it holds, in order.
    pub slots: Vec<RangeInclusive<u16>>,
    /// Whether it is the node that the connection is to.
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
