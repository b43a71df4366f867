/// The identifier of a door: one connection's way into one keyspace, with its session and its open operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DoorId {
    /// The keyspace's index among those of the gateway, from 0.
    pub keyspace: u32,
    /// The door's number among the doors into the keyspace.
    pub number: u64,
}
