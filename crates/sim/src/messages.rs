//! What the nodes of a world said to each other, and when: the material of space-time diagrams.
use turnbuckle_core::Micros;
use turnbuckle_node::NodeId;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who sent it.
    pub from: NodeId,
    /// To whom.
    pub to: NodeId,
    /// When, in true time.
    pub sent: Micros,
    /// When it was taken in; `None`: lost, or still under way.
    pub arrived: Option<Micros>,
    /// What it is about.
    pub words: String,
}

/// Something that happened at one node: an operation, its answer, a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Where.
    pub node: NodeId,
    /// When, in true time.
    pub at: Micros,
    /// What.
    pub words: String,
}

/// Messages and notes in the order in which they were sent and happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageLog {
    /// What was sent.
    pub messages: Vec<Message>,
    /// What happened besides.
    pub notes: Vec<Note>,
    /// So many more are not kept.
    pub left_out: u64,
}

impl MessageLog {
    /// So many are kept; the rest is counted.
    pub const MAX: usize = 100_000;

    /// Returns the place of the message, if it is kept.
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
