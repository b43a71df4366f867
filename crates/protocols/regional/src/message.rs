//! The messages between the replicas of a partition.
use crate::entry::Entry;
use crate::sites::{Place, Sites};
use bytes::{Bytes, BytesMut};
use turnbuckle_core::{Hlc, Record, ReplicaId, ReplicaSet};
use turnbuckle_raft::RaftMessage;

/// A message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// What it says.
    #[prost(oneof = "Body", tags = "1, 2, 3, 4, 5")]
    pub(crate) body: Option<Body>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Body {
    /// A message of the site's Raft group.
    #[prost(message, tag = "1")]
    Raft(RaftMessage),
    /// Of a forwarder: entries of its site, in order. Without entries it is a question how far the receiver is.
    #[prost(message, tag = "2")]
    Forward(Forward),
    /// The answer to a forwarder.
    #[prost(message, tag = "3")]
    Have(Have),
    /// Of a forwarder: the receiver lacks entries that are not kept any more, and needs a full copy of the sender, whose site is in this epoch.
    #[prost(fixed64, tag = "4")]
    Dropped(u64),
    /// The sender wants to lead its group.
    #[prost(message, tag = "5")]
    AskToLead(()),
}

/// Entries of the sender's site.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Forward {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
}

/// How far a site is.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Have {
    /// The leader of the sender's group, as its number and one; 0 if the sender knows none. Only if that is the sender itself, the rest counts.
    #[prost(uint32, tag = "1")]
    leader: u32,
    /// What the sender has applied: [`Sites`].
    #[prost(bytes = "bytes", tag = "2")]
    sites: Bytes,
    /// The place up to which the receiver's entries are in the log of the sender's group.
    #[prost(fixed64, tag = "3")]
    pub epoch: u64,
    #[prost(fixed64, tag = "4")]
    pub at: u64,
    /// Whether the entries that came last did not fit: those before them are missing.
    #[prost(bool, tag = "5")]
    pub is_gap: bool,
    /// Whether the sender's site has lost writes and begins an epoch. An epoch of which the receiver has only heard is lost with them.
    #[prost(bool, tag = "6")]
    pub begins: bool,
}

impl Have {
    pub fn of(leader: Option<ReplicaId>) -> Have {
        Have {
            leader: leader.map_or(0, |leader| u32::from(leader.0) + 1),
            ..Have::default()
        }
    }

    /// A leader has applied this of each site, and has this of the receiver's in its log.
    pub fn with(mut self, sites: &Sites, taken: Place, is_gap: bool) -> Have {
        let mut out = BytesMut::new();
        sites.put(&mut out);
        self.sites = out.freeze();
        (self.epoch, self.at) = (taken.epoch.0, taken.at.0);
        self.is_gap = is_gap;
        self
    }

    pub fn leader(&self) -> Option<ReplicaId> {
        let number = self.leader.checked_sub(1)?;
        Some(ReplicaId(number as u16))
    }

    /// What the sender has applied.
    pub fn sites(&self) -> Sites {
        // It was checked when it arrived.
        Sites::decode_from(&mut self.sites.clone()).unwrap_or_default()
    }
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
    const WHAT: &'static str = "a message of a regional keyspace: of a Raft group, or of a forwarder";

    fn check(&self) -> Result<(), String> {
        match self.body.as_ref().ok_or("none of these")? {
            Body::Raft(message) => message.check(),
            Body::Forward(forward) => forward.entries.iter().try_for_each(Entry::check),
            Body::Have(have) if have.leader > u32::from(ReplicaSet::MAX) => {
                Err(format!("replica {} where a leader is named", have.leader))
            }
            Body::Have(have) if have.sites.is_empty() => Ok(()),
            Body::Have(have) => {
                let sites = Sites::decode_from(&mut have.sites.clone());
                sites.map(drop).map_err(|bad| bad.to_string())
            }
            Body::Dropped(_) | Body::AskToLead(()) => Ok(()),
        }
    }

    fn newest(&self) -> Hlc {
        match &self.body {
            Some(Body::Raft(message)) => Record::newest(message),
            Some(Body::Forward(forward)) => {
                let stamps = forward.entries.iter().map(|entry| entry.link().place.at);
                stamps.max().unwrap_or_default()
            }
            Some(Body::Dropped(epoch)) => Hlc(*epoch),
            Some(Body::Have(have)) => have.sites().newest().max(Hlc(have.epoch)).max(Hlc(have.at)),
            _ => Hlc::ZERO,
        }
    }
}
