//! What comes for an event loop from other threads: each loop has mailboxes for it.
use crate::{shared::lock, survey::SurveyOutcome};
use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use turnbuckle_core::{Outcome, Protocol, RequestId};

/// What waits for a loop, such as answers. The loop looks after each turn and mostly finds nothing. So a flag says without the lock whether there is
/// anything.
pub(super) struct Mailbox<T> {
    waiting: Mutex<Vec<T>>,
    is_full: AtomicBool,
    /// Whether the loop is about to look: then it need not be woken.
    is_attended: AtomicBool,
}

impl<T> Mailbox<T> {
    pub fn new() -> Mailbox<T> {
        Mailbox {
            waiting: Mutex::default(),
            is_full: AtomicBool::new(false),
            is_attended: AtomicBool::new(false),
        }
    }

    /// The loop is about to look by itself. Until then it need not be woken.
    pub fn attend(&self) {
        self.is_attended.store(true, SeqCst);
    }

    /// Puts something in. Returns whether the loop has to be woken.
    pub fn put(&self, delivery: T) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.push(delivery);
        // Both here and in `take` the flag of this thread is stored before the flag of the other one is loaded: so at least one thread sees
        // the other's.
        self.is_full.store(true, SeqCst);
        waiting.len() == 1 && !self.is_attended.load(SeqCst)
    }

    /// Moves what waits into `into`.
    pub fn take(&self, into: &mut Vec<T>) {
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
    /// The request that it answers.
    pub id: RequestId,
    /// The answer.
    pub answer: Delivered<P>,
}

/// The kinds of answers.
pub enum Delivered<P: Protocol> {
    /// The answer to a request of a session.
    Response(Outcome<P::Response>),
    /// The answer that the session has heard ahead is durable ([`Keyspace::hear_ahead`](crate::Keyspace::hear_ahead)).
    Durable,
    /// The answer to a survey.
    Surveyed(SurveyOutcome),
}
