use crate::doors::{AnyDoors, Doors};
use crate::messages::Hears;
use bytes::Bytes;
use std::sync::Arc;
use turnbuckle_core::{
    Answered, BadToken, ClusterSecret, Conditional, DoorId, Failure, Key, KeyspaceLevels, Micros, Now,
    Operation, Session, SiteId, Transactions, Vector,
};
use turnbuckle_node::{Keyspace, Publication};

/// Answers to operations, by door and tag.
pub(crate) type Answers = Vec<(DoorId, u64, Answered)>;

/// The settings of a gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// The loop it belongs to: where its answers are delivered.
    pub loop_index: usize,
    /// The cluster's name, for tokens.
    pub cluster: String,
    /// The cluster's secret, for tokens.
    pub secret: ClusterSecret,
    /// A question that a server has not answered after this time is given up. An operation without any other open question then fails.
    pub deadline: Micros,
    /// The seed of its sessions' numbers. No other gateway may have the same seed, in this run of the node or another.
    pub seed: u64,
}

/// What a client may know of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceAbout {
    /// Its name.
    pub name: String,
    /// The levels of its operations.
    pub levels: KeyspaceLevels,
    /// The number of its partitions.
    pub partitions: u16,
    /// Whether it has transactions.
    pub transactions: Transactions,
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

    /// Adds a keyspace whose clients are sessions of type `S`. `conditional` is what it does with writes that its protocol cannot decide exactly.
    pub fn add<S: Session>(
        &mut self,
        keyspace: Arc<Keyspace<S::Protocol>>,
        levels: KeyspaceLevels,
        conditional: Conditional,
    ) {
        let index = self.keyspaces.len() as u32;
        self.keyspaces.push(Box::new(Doors::<S>::new(
            keyspace,
            (levels, conditional),
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
            transactions: doors.transactions(),
        })
    }

    /// Why the keyspace of a door takes no such operation, at any level; `None` if it does.
    pub fn refusal(&self, door: DoorId, operation: &Operation) -> Option<Failure> {
        self.keyspaces[door.keyspace as usize].refusal(operation)
    }

    /// Opens a door to a keyspace, with a new session. `None` if there is no keyspace of this name.
    pub fn open(&mut self, keyspace: &str) -> Option<DoorId> {
        let index = self.keyspaces.iter().position(|doors| doors.name() == keyspace)?;
        let number = self.keyspaces[index].open();
        Some(DoorId {
            keyspace: index as u32,
            number,
        })
    }

    /// Merges what the token's session had seen into what this door's session has seen. Call it while no operation of the door is open.
    pub fn resume(&mut self, door: DoorId, token: &[u8]) -> Result<(), BadToken> {
        self.keyspaces[door.keyspace as usize].resume(door.number, token)
    }

    /// Closes a door. Its operations are no longer answered; those under way may still happen.
    pub fn close(&mut self, door: DoorId) {
        self.keyspaces[door.keyspace as usize].close(door.number);
    }

    /// Begins an operation. The tags of a door's operations must rise. Answers that can be given now, to this operation and maybe to others, are
    /// appended to `answers`.
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

    /// Looks at keys that operations of the door are about soon, so that they are in the processor's cache then.
    pub fn look_ahead(&self, door: DoorId, keys: &[&[u8]]) {
        self.keyspaces[door.keyspace as usize].look_ahead(keys);
    }

    /// Appends the answers that have come meanwhile to `answers`. Call it after each commit, and when the loop was woken.
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

    /// Fires the timers of sessions that are due.
    pub fn tick(&mut self, now: Now, answers: &mut Vec<(DoorId, u64, Answered)>) {
        for doors in &mut self.keyspaces {
            if doors.next_deadline().is_some_and(|due| due <= now.monotonic) {
                doors.tick(now, answers);
            }
        }
    }

    /// Fails operations whose deadline has passed. Call it regularly: the time between two calls is the most by which a failure is late.
    pub fn expire(&mut self, now: Now, answers: &mut Vec<(DoorId, u64, Answered)>) {
        for doors in &mut self.keyspaces {
            doors.expire(now, answers);
        }
    }

    /// The session's token, signed.
    pub fn token(&mut self, door: DoorId) -> Bytes {
        self.keyspaces[door.keyspace as usize].token(door.number)
    }

    /// A key's causal context, signed.
    pub fn seal_context(&self, door: DoorId, key: &Key, context: &Vector) -> Bytes {
        self.keyspaces[door.keyspace as usize].seal_context(key, context)
    }

    /// The context in what [`Gateway::seal_context`] returned for this key. `None` if it is something else.
    pub fn open_context(&self, door: DoorId, key: &Key, sealed: &[u8]) -> Option<Vector> {
        self.keyspaces[door.keyspace as usize].open_context(key, sealed)
    }

    /// From now on, messages to the channels of which this is true are kept for [`Gateway::take_heard`]. Until the first call all are dropped.
    pub fn listen(&mut self, hears: Hears) {
        for doors in &mut self.keyspaces {
            doors.listen(Arc::clone(&hears));
        }
    }

    /// Moves the messages that clients of this loop may hear now into `into`, in their order. Call it after [`Gateway::collect`].
    pub fn take_heard(&mut self, into: &mut Vec<Arc<Publication>>) {
        for doors in &mut self.keyspaces {
            doors.take_heard(into);
        }
    }

    /// How many messages were lost here, because this site did not have in time what their publishers had seen, or because too many waited. One that was sent from here
    /// and could not be sent to another node counts once for each such node.
    pub fn lost_messages(&self) -> u64 {
        self.keyspaces.iter().map(|doors| doors.lost_messages()).sum()
    }

    /// The number of questions to servers that wait for an answer.
    pub fn open_asks(&self) -> usize {
        self.keyspaces.iter().map(|doors| doors.open_asks()).sum()
    }
}
