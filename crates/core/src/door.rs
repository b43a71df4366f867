/// A door: one client's way into one keyspace, its session and its open operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DoorId {
    /// The place of the keyspace among those of the gateway.
    pub keyspace: u32,
    /// Which of the doors into it.
    pub number: u64,
}
