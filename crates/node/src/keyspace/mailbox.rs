//! Answers that come later: each event loop has a mailbox of them.
use super::{Keyspace, route::SurveyOutcome};
use crate::{frame::ResponseFrame, shared::held, survey::Surveyed};
use turnbuckle_core::{Outcome, Protocol, RequestId};

/// Answers that wait for a loop.
pub(super) struct Mailbox<P: Protocol> {
    waiting: Vec<Delivery<P>>,
    /// The loop is about to look: it need not be woken.
    attended: bool,
}

impl<P: Protocol> Mailbox<P> {
    pub fn new() -> Mailbox<P> {
        Mailbox {
            waiting: Vec::new(),
            attended: false,
        }
    }
}

/// An answer for a loop's session.
pub struct Delivery<P: Protocol> {
    /// What it answers.
    pub id: RequestId,
    /// The answer.
    pub answer: Delivered<P>,
}

/// What an answer is to.
pub enum Delivered<P: Protocol> {
    /// A session's question.
    Response(Outcome<P::Response>),
    /// A survey.
    Surveyed(Result<Surveyed, String>),
}

impl<P: Protocol> Keyspace<P> {
    /// The loop will call [`Keyspace::take_deliveries`] by itself, next thing: until then nobody wakes it.
    pub fn attend(&self, loop_index: usize) {
        held(&self.deliveries[loop_index]).attended = true;
    }

    /// The answers that wait for a loop.
    pub fn take_deliveries(&self, loop_index: usize, into: &mut Vec<Delivery<P>>) {
        let mut mailbox = held(&self.deliveries[loop_index]);
        mailbox.attended = false;
        into.append(&mut mailbox.waiting);
    }

    /// An answer: to a loop's session, or back to the node that passed the request on.
    pub(crate) fn deliver(&self, id: RequestId, outcome: Outcome<P::Response>) {
        match id.loop_index() {
            Some(index) => self.hand_over(
                index,
                Delivery {
                    id,
                    answer: Delivered::Response(outcome),
                },
            ),
            None => self.answer_peer(id, |caller| ResponseFrame::answer(caller, outcome)),
        }
    }

    pub(crate) fn deliver_survey(&self, id: RequestId, surveyed: SurveyOutcome) {
        match id.loop_index() {
            Some(index) => self.hand_over(
                index,
                Delivery {
                    id,
                    answer: Delivered::Surveyed(surveyed),
                },
            ),
            None => self.answer_peer(id, |caller| ResponseFrame::survey(caller, surveyed)),
        }
    }

    fn hand_over(&self, index: usize, delivery: Delivery<P>) {
        let mut mailbox = held(&self.deliveries[index]);
        mailbox.waiting.push(delivery);
        let wake = mailbox.waiting.len() == 1 && !mailbox.attended;
        drop(mailbox);
        if wake {
            self.shared().wake.wake_loop(index);
        }
    }
}
