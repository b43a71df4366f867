use crate::doors::{AnyDoors, Doors};
use bytes::Bytes;
use std::sync::Arc;
use turnbuckle_core::{
    Answered, BadToken, ClusterSecret, DoorId, KeyspaceLevels, Micros, Now, Operation, Session, SiteId,
};
use turnbuckle_node::Keyspace;

/// Answers to operations, by door and tag.
pub(crate) type Answers = Vec<(DoorId, u64, Answered)>;

/// How a gateway is to be.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// The loop it belongs to: where its answers are delivered.
    pub loop_index: usize,
    /// The cluster's name, for tokens.
    pub cluster: String,
    /// The cluster's secret, for tokens.
    pub secret: ClusterSecret,
    /// A question that a server has not answered by then is given up, and an operation without any other fails.
    pub deadline: Micros,
    /// Where the numbers of its sessions come from. No other gateway has the same, in this life of the node or another.
    pub seed: u64,
}

/// What a client may know of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceAbout {
    /// Its name.
    pub name: String,
    /// The levels of its operations.
    pub levels: KeyspaceLevels,
    /// How many partitions it has.
    pub partitions: u16,
}

/// The doors of one event loop.
pub struct Gateway {
    home: SiteId,
    options: GatewayOptions,
    keyspaces: Vec<Box<dyn AnyDoors + Send>>,
}

impl Gateway {
    /// A gateway of a node at site `home`.
    pub fn new(home: SiteId, options: GatewayOptions) -> Gateway {
        Gateway {
            home,
            options,
            keyspaces: Vec::new(),
        }
    }

    /// Adds a keyspace whose clients are sessions of type `S`.
    pub fn add<S: Session>(&mut self, keyspace: Arc<Keyspace<S::Protocol>>, levels: KeyspaceLevels) {
        let index = self.keyspaces.len() as u32;
        self.keyspaces.push(Box::new(Doors::<S>::new(
            keyspace,
            levels,
            index,
            self.home,
            self.options.clone(),
        )));
    }

    /// The keyspaces, in the order in which they were added.
    pub fn keyspaces(&self) -> impl Iterator<Item = KeyspaceAbout> + '_ {
        self.keyspaces.iter().map(|doors| KeyspaceAbout {
            name: doors.name().to_string(),
            levels: doors.levels(),
            partitions: doors.partitions(),
        })
    }

    /// Opens a door to a keyspace, with a new session; none if there is no keyspace of this name.
    pub fn open(&mut self, keyspace: &str) -> Option<DoorId> {
        let index = self.keyspaces.iter().position(|doors| doors.name() == keyspace)?;
        let number = self.keyspaces[index].open();
        Some(DoorId {
            keyspace: index as u32,
            number,
        })
    }

    /// Lets the session take in what the one of the token had seen, besides what it has seen itself. No operation of the door is
    /// outstanding.
    pub fn resume(&mut self, door: DoorId, token: &[u8]) -> Result<(), BadToken> {
        self.keyspaces[door.keyspace as usize].resume(door.number, token)
    }

    /// Closes a door. Its operations are no longer answered; those under way may still happen.
    pub fn close(&mut self, door: DoorId) {
        self.keyspaces[door.keyspace as usize].close(door.number);
    }

    /// An operation enters; the tags of a door's operations rise. What can be answered now is appended to `answers`, of this operation and maybe of others.
    pub fn operate(
        &mut self,
        now: Now,
        door: DoorId,
        tag: u64,
        operation: Operation,
        answers: &mut Vec<(DoorId, u64, Answered)>,
    ) {
        self.keyspaces[door.keyspace as usize].operate(now, door.number, tag, operation, answers);
    }

    /// What has been answered meanwhile. Call it after each commit, and when the loop was woken.
    pub fn collect(&mut self, now: Now, answers: &mut Vec<(DoorId, u64, Answered)>) {
        for doors in &mut self.keyspaces {
            doors.collect(now, answers);
        }
    }

    /// When the first timer of a session is due, in monotonic time: then call [`Gateway::tick`].
    pub fn next_deadline(&self) -> Option<Micros> {
        self.keyspaces
            .iter()
            .filter_map(|doors| doors.next_deadline())
            .min()
    }

    /// Lets sessions go on whose timers are due.
    pub fn tick(&mut self, now: Now, answers: &mut Vec<(DoorId, u64, Answered)>) {
        for doors in &mut self.keyspaces {
            if doors.next_deadline().is_some_and(|due| due <= now.monotonic) {
                doors.tick(now, answers);
            }
        }
    }

    /// Fails operations whose time is up. Call it now and then: it decides how late a failure may come.
    pub fn expire(&mut self, now: Now, answers: &mut Vec<(DoorId, u64, Answered)>) {
        for doors in &mut self.keyspaces {
            doors.expire(now, answers);
        }
    }

    /// The session's token, signed.
    pub fn token(&mut self, door: DoorId) -> Bytes {
        self.keyspaces[door.keyspace as usize].token(door.number)
    }

    /// How many questions to servers wait for an answer.
    pub fn open_asks(&self) -> usize {
        self.keyspaces.iter().map(|doors| doors.open_asks()).sum()
    }
}
