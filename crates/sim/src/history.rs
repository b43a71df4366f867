//! What clients asked and what they were told, with true times.
use std::collections::VecDeque;
use turnbuckle_core::{Answer, Answered, Computed, Key, Micros, Operation, Wanted};
use turnbuckle_node::NodeId;

/// An operation of a world, by its index in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OperationId(pub usize);

/// One operation.
#[derive(Debug, Clone)]
pub struct Record {
    /// The number of the client.
    pub client: usize,
    /// The number of the client's session. A session ends when its node does and its token was not kept.
    pub session: u32,
    /// The node that was asked.
    pub node: NodeId,
    /// The operation. Of one that names several levels: at the level that was given, and before that at none.
    pub operation: Operation,
    /// What it wants, if it names that.
    pub wanted: Option<Wanted>,
    /// When it was asked, in true time.
    pub invoked: Micros,
    /// When the answer came, in true time, and the answer. `None`: none came, or not yet; a write may have happened.
    pub returned: Option<(Micros, Answered)>,
    /// The number of questions and answers of any client at the same moment before its question, and before its answer.
    pub places: (u32, u32),
    /// The number of answers that any client had received when it was invoked.
    pub before: u64,
    /// Whether it was sent before the client's last operation was answered.
    pub pipelined: bool,
}

impl Record {
    /// The answer.
    pub fn answer(&self) -> Option<&Answer> {
        self.returned.as_ref().map(|(_, (answer, _))| answer)
    }

    /// The key of an operation on one key.
    pub fn key(&self) -> Option<&Key> {
        match &self.operation {
            Operation::Get { key, .. } | Operation::Siblings { key, .. } | Operation::Put { key, .. } => {
                Some(key)
            }
            _ => None,
        }
    }

    /// The operation, in a few words.
    pub(crate) fn words(&self) -> String {
        match &self.operation {
            Operation::Get { key, .. } => format!("get {key}"),
            Operation::Siblings { key, .. } => format!("get the siblings of {key}"),
            Operation::Put {
                key, value, options, ..
            } => {
                let computes = options.as_ref().and_then(|options| options.computes.as_ref());
                let words = match value {
                    None if computes.is_some() => format!("compute {key}"),
                    None if self.operation.retimes().is_some() => format!("change the expiry of {key}"),
                    None => format!("delete {key}"),
                    Some(value) => format!("put {key} {}", short(value)),
                };
                match options.as_ref().and_then(|options| options.condition) {
                    None => words,
                    Some(condition) => format!("{words} if {condition}"),
                }
            }
            Operation::Transact { transaction, .. } => {
                format!("transaction of {} steps", transaction.steps.len())
            }
            Operation::Watch { keys, .. } => format!("watch {} keys", keys.len()),
            Operation::ReadMany { keys, .. } => format!("get {} keys", keys.len()),
            Operation::Scan { .. } => "scan".into(),
            Operation::Count => "count".into(),
            Operation::Wait { sites, .. } => format!("wait for {sites} sites"),
            Operation::Publish { message } => format!("publish to {}", short(&message.channel)),
            Operation::First(_) => unreachable!("a record has the operation itself"),
        }
    }

    /// The answer, in a few words.
    pub(crate) fn answer_words(&self) -> String {
        match self.answer() {
            None => "nothing".into(),
            Some(Answer::Value(None)) => "that there is no value".into(),
            Some(Answer::Value(Some(value))) => short(value),
            Some(Answer::Written { .. } | Answer::Replaced(_)) => "that it is written".into(),
            Some(Answer::Unmet(_)) => "that its condition does not hold".into(),
            Some(Answer::Computed(Computed::Number(value))) => short(value),
            Some(Answer::Computed(Computed::Length(len))) => format!("the length {len}"),
            Some(Answer::Computed(Computed::Elements(count))) => {
                format!("that {count} elements have changed")
            }
            Some(Answer::Elements(elements)) => format!("a {} of {}", elements.kind().name(), elements.len()),
            Some(Answer::NotComputed(why)) => why.to_string(),
            Some(Answer::Transacted(None)) => "that a condition does not hold".into(),
            Some(Answer::Transacted(Some(_))) => "that it is carried out".into(),
            Some(Answer::Failed(failure)) => failure.word().into(),
            Some(_) => "the answer".into(),
        }
    }

    /// Whether it is a delete that found nothing that its context covers. That says nothing of what is there.
    pub(crate) fn replaced_nothing(&self) -> bool {
        let found_nothing = matches!(self.answer(), Some(Answer::Written { existed: false }));
        let Operation::Put { options, .. } = &self.operation else {
            return false;
        };
        let has_context = options.as_ref().is_some_and(|options| options.replaces.is_some());
        self.is_delete() && found_nothing && has_context
    }

    /// Whether it deletes a key.
    pub fn is_delete(&self) -> bool {
        let is_empty = matches!(self.operation, Operation::Put { value: None, .. });
        is_empty && !self.operation.computes() && self.operation.retimes().is_none()
    }
}

/// The records of a world, by their index. The oldest can be forgotten.
#[derive(Debug, Default)]
pub(crate) struct History {
    forgotten: usize,
    records: VecDeque<Record>,
}

impl History {
    /// The id that the next record gets.
    pub fn next(&self) -> OperationId {
        OperationId(self.forgotten + self.records.len())
    }

    pub fn push(&mut self, record: Record) {
        self.records.push_back(record);
    }

    /// # Panics
    /// If it was forgotten.
    pub fn get(&self, id: OperationId) -> &Record {
        &self.records[id.0 - self.forgotten]
    }

    pub fn get_mut(&mut self, id: OperationId) -> &mut Record {
        &mut self.records[id.0 - self.forgotten]
    }

    pub fn iter(&self) -> impl Iterator<Item = (OperationId, &Record)> {
        let places = (self.forgotten..).map(OperationId);
        places.zip(&self.records)
    }

    /// Forgets the records before this one.
    pub fn forget_before(&mut self, id: OperationId) {
        let count = id.0.saturating_sub(self.forgotten).min(self.records.len());
        self.records.drain(..count);
        self.forgotten += count;
    }
}

fn short(value: &[u8]) -> String {
    const MAX: usize = 24;
    value[..value.len().min(MAX)].escape_ascii().to_string()
}
