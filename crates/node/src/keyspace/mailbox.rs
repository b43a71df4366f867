//! Answers that come later: each event loop has a mailbox of them.
use super::{Keyspace, route::SurveyOutcome};
use crate::{frame::ResponseFrame, shared::held};
use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use turnbuckle_core::{Outcome, Protocol, RequestId};

/// Answers that wait for a loop. The loop looks after each turn, and mostly finds nothing: so whether there is anything is known without the lock.
pub(super) struct Mailbox<P: Protocol> {
    waiting: Mutex<Vec<Delivery<P>>>,
    is_full: AtomicBool,
    /// The loop is about to look: it need not be woken.
    is_attended: AtomicBool,
}

impl<P: Protocol> Mailbox<P> {
    pub fn new() -> Mailbox<P> {
        Mailbox {
            waiting: Mutex::default(),
            is_full: AtomicBool::new(false),
            is_attended: AtomicBool::new(false),
        }
    }

    /// Puts an answer in. Returns whether the loop has to be woken.
    fn put(&self, delivery: Delivery<P>) -> bool {
        let mut waiting = held(&self.waiting);
        waiting.push(delivery);
        // Both here and in `take` what is said comes before what is asked: one of the two threads sees the other.
        self.is_full.store(true, SeqCst);
        waiting.len() == 1 && !self.is_attended.load(SeqCst)
    }

    fn take(&self, into: &mut Vec<Delivery<P>>) {
        self.is_attended.store(false, SeqCst);
        if self.is_full.load(SeqCst) {
            let mut waiting = held(&self.waiting);
            self.is_full.store(false, SeqCst);
            into.append(&mut waiting);
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
    Surveyed(SurveyOutcome),
}

impl<P: Protocol> Keyspace<P> {
    /// The loop will call [`Keyspace::take_deliveries`] by itself, next thing: until then nobody wakes it.
    pub fn attend(&self, loop_index: usize) {
        self.deliveries[loop_index].is_attended.store(true, SeqCst);
    }

    /// The answers that wait for a loop.
    pub fn take_deliveries(&self, loop_index: usize, into: &mut Vec<Delivery<P>>) {
        self.deliveries[loop_index].take(into);
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
        if self.deliveries[index].put(delivery) {
            self.shared().wake.wake_loop(index);
        }
    }
}
