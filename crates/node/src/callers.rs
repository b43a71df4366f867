//! Requests that other nodes passed on to this one, and the frames that answer them.
use crate::{
    config::NodeId,
    frame::{ReceiptFrame, ResponseFrame},
    shared::Unsent,
    survey::Surveyed,
};
use bytes::BytesMut;
use std::collections::BTreeMap;
use turnbuckle_core::{BadFrame, Outcome, ServerId, Topology, Wire};

/// The most requests of other nodes that may be open at the same time.
const MAX_CALLERS: usize = 100_000;

/// The origin of a request that another node passed on: where its answer goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    /// The node that passed the request on.
    pub node: NodeId,
    pub id: u64,
    /// The server that was asked.
    pub server: ServerId,
    /// Whether the request is a write.
    pub writes: bool,
}

#[derive(Default)]
pub(crate) struct Callers {
    next: u64,
    waiting: BTreeMap<u64, Caller>,
}

impl Callers {
    /// Remembers a caller and returns its number. `None` if `MAX_CALLERS` are open already.
    pub fn insert(&mut self, caller: Caller) -> Option<u64> {
        if self.waiting.len() >= MAX_CALLERS {
            return None;
        }
        self.next += 1;
        self.waiting.insert(self.next, caller);
        Some(self.next)
    }

    pub fn take(&mut self, number: u64) -> Option<Caller> {
        self.waiting.remove(&number)
    }

    /// The link to this node is gone: its requests need no answer any more.
    pub fn forget(&mut self, node: NodeId) {
        self.waiting.retain(|_, caller| caller.node != node);
    }
}

impl ResponseFrame {
    pub fn answer<R: Wire>(id: u64, outcome: Outcome<R>) -> ResponseFrame {
        let mut frame = ResponseFrame {
            id,
            ..ResponseFrame::default()
        };
        match outcome {
            Outcome::Answered(response, receipt) => {
                let mut body = BytesMut::new();
                response.encode(&mut body);
                frame.body = body.freeze();
                frame.receipt = Some(ReceiptFrame::from(&*receipt));
            }
            Outcome::Refused(why) => frame.refused = Some(why),
            Outcome::Lost(why) => {
                frame.refused = Some(why);
                frame.maybe_done = true;
            }
        }
        frame
    }

    /// The short answer that is sent in place of this one, which cannot be sent.
    pub fn instead(&self, writes: bool, unsent: Unsent) -> ResponseFrame {
        let maybe_done = self.maybe_done || (writes && self.refused.is_none());
        ResponseFrame {
            id: self.id,
            refused: Some(format!(
                "the answer of the node that holds the partition cannot be sent: {unsent}"
            )),
            maybe_done,
            ..ResponseFrame::default()
        }
    }

    pub fn into_answer<R: Wire>(self, topology: &Topology) -> Result<Outcome<R>, BadFrame> {
        if let Some(why) = self.refused {
            return Ok(if self.maybe_done {
                Outcome::Lost(why)
            } else {
                Outcome::Refused(why)
            });
        }
        let receipt = self
            .receipt
            .ok_or_else(|| BadFrame::new("an answer with a receipt", "one without"))?;
        let response = R::decode(self.body)?;
        topology.check_replicas(response.replicas())?;
        Ok(Outcome::Answered(
            response,
            Box::new(receipt.into_forwarded(topology)?),
        ))
    }

    pub fn survey(id: u64, surveyed: Result<Surveyed, String>) -> ResponseFrame {
        let mut frame = ResponseFrame {
            id,
            ..ResponseFrame::default()
        };
        match surveyed {
            Ok(surveyed) => frame.survey = Some(surveyed.into()),
            Err(why) => frame.refused = Some(why),
        }
        frame
    }

    pub fn into_survey(self) -> Result<Result<Surveyed, String>, BadFrame> {
        match (self.refused, self.survey) {
            (Some(why), _) => Ok(Err(why)),
            (None, Some(surveyed)) => Ok(Ok(surveyed.into())),
            (None, None) => Err(BadFrame::new("the answer to a survey", "another answer")),
        }
    }
}
