//! Answers that come later: each event loop has a mailbox of them.
use crate::{shared::lock, survey::SurveyOutcome};
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

    /// The loop will look by itself, next thing: until then it need not be woken.
    pub fn attend(&self) {
        self.is_attended.store(true, SeqCst);
    }

    /// Puts an answer in. Returns whether the loop has to be woken.
    pub fn put(&self, delivery: Delivery<P>) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.push(delivery);
        // Both here and in `take` what is said comes before what is asked: one of the two threads sees the other.
        self.is_full.store(true, SeqCst);
        waiting.len() == 1 && !self.is_attended.load(SeqCst)
    }

    /// Moves what waits into `into`.
    pub fn take(&self, into: &mut Vec<Delivery<P>>) {
        self.is_attended.store(false, SeqCst);
        if self.is_full.load(SeqCst) {
            let mut waiting = lock(&self.waiting);
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
