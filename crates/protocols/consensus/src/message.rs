//! The messages between the replicas of a partition.
use turnbuckle_core::{Hlc, Record};
use turnbuckle_raft::RaftMessage;

/// A message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// What it says.
    #[prost(oneof = "Body", tags = "1, 2, 3, 4")]
    pub(crate) body: Option<Body>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Body {
    /// A message of the Raft group.
    #[prost(message, tag = "1")]
    Raft(RaftMessage),
    /// A question to the leader: up to which index is everything committed that was acknowledged before now? The number is the asker's.
    #[prost(uint64, tag = "2")]
    AskIndex(u64),
    /// The answer.
    #[prost(message, tag = "3")]
    Index(Index),
    /// The sender wants to lead.
    #[prost(message, tag = "4")]
    AskToLead(()),
}

/// The answer to a question with this number: the index.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Index {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint64, tag = "2")]
    pub index: u64,
}

impl From<RaftMessage> for Message {
    fn from(message: RaftMessage) -> Message {
        Body::Raft(message).into()
    }
}

impl From<Body> for Message {
    fn from(body: Body) -> Message {
        Message { body: Some(body) }
    }
}

impl Record for Message {
    const WHAT: &'static str =
        "a message of a consensus keyspace: of its Raft group, or about a committed index";

    fn check(&self) -> Result<(), String> {
        match self.body.as_ref().ok_or("none of these")? {
            Body::Raft(message) => message.check(),
            Body::AskIndex(_) | Body::Index(_) | Body::AskToLead(()) => Ok(()),
        }
    }

    fn newest(&self) -> Hlc {
        match &self.body {
            Some(Body::Raft(message)) => Record::newest(message),
            _ => Hlc::ZERO,
        }
    }
}
