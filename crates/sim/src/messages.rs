//! The messages between the nodes of a world, with times: the material of space-time diagrams.
use turnbuckle_core::Micros;
use turnbuckle_node::NodeId;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The node that sent it.
    pub from: NodeId,
    /// The node that it is for.
    pub to: NodeId,
    /// When it was sent, in true time.
    pub sent: Micros,
    /// When it was taken in, in true time. `None`: it is lost, or still under way.
    pub arrived: Option<Micros>,
    /// What it is about, as text.
    pub words: String,
}

/// Something that happened at one node: an operation, its answer, a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The node.
    pub node: NodeId,
    /// When it happened, in true time.
    pub at: Micros,
    /// What happened, as text.
    pub words: String,
}

/// Messages and notes in the order in which they were sent and happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageLog {
    /// The messages that were sent.
    pub messages: Vec<Message>,
    /// What happened at nodes.
    pub notes: Vec<Note>,
    /// The number of messages and notes that are not kept.
    pub left_out: u64,
}

impl MessageLog {
    /// The most messages that are kept, and the most notes. The rest is only counted.
    pub const MAX: usize = 100_000;

    /// Returns the index of the message, if it is kept.
    pub(crate) fn sent(&mut self, message: Message) -> Option<usize> {
        if self.messages.len() >= MessageLog::MAX {
            self.left_out += 1;
            return None;
        }
        self.messages.push(message);
        Some(self.messages.len() - 1)
    }

    pub(crate) fn arrived(&mut self, place: usize, at: Micros) {
        self.messages[place].arrived = Some(at);
    }

    pub(crate) fn note(&mut self, node: NodeId, at: Micros, words: String) {
        if self.notes.len() >= MessageLog::MAX {
            self.left_out += 1;
            return;
        }
        self.notes.push(Note { node, at, words });
    }
}
