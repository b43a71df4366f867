//! What clients asked and what they were told, with true times.
use turnbuckle_core::{Answer, Answered, Key, Micros, Operation, ServerId, VersionId};
use turnbuckle_node::NodeId;

/// An operation of a world by its place in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId(pub usize);

/// One operation.
#[derive(Debug, Clone)]
pub struct Record {
    /// Who asked.
    pub client: usize,
    /// The node that was asked.
    pub node: NodeId,
    /// What was asked.
    pub operation: Operation,
    /// When, in true time.
    pub invoked: Micros,
    /// The answer, and when it came. `None`: none came, or not yet; a write may have happened.
    pub returned: Option<(Micros, Answered)>,
    /// For operations on one key: the replica it goes to, and the newest version that this replica had shown anybody when the
    /// operation was invoked.
    pub floor: Option<(ServerId, Option<VersionId>)>,
}

impl Record {
    /// The answer.
    pub fn answer(&self) -> Option<&Answer> {
        self.returned.as_ref().map(|(_, (answer, _))| answer)
    }

    /// The key, of an operation on one.
    pub fn key(&self) -> Option<&Key> {
        match &self.operation {
            Operation::Get { key, .. } | Operation::Put { key, .. } => Some(key),
            _ => None,
        }
    }

    /// Whether it deletes.
    pub fn is_delete(&self) -> bool {
        matches!(self.operation, Operation::Put { value: None, .. })
    }
}
