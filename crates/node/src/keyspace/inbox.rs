//! Messages between lanes of one node: each lane has an inbox, so that no thread holds two lanes' locks.
use crate::shared::lock;
use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use turnbuckle_core::{Protocol, ServerId};

/// Messages of other lanes of the node, oldest first.
pub(super) struct Inbox<P: Protocol> {
    messages: Mutex<VecDeque<(ServerId, P::Message)>>,
    /// Whether the lane is in the list of lanes whose inbox may not be empty.
    is_noted: AtomicBool,
}

impl<P: Protocol> Inbox<P> {
    pub fn new() -> Inbox<P> {
        Inbox {
            messages: Mutex::default(),
            is_noted: AtomicBool::new(false),
        }
    }

    pub fn push(&self, from: ServerId, message: P::Message) {
        lock(&self.messages).push_back((from, message));
    }

    pub fn pop(&self) -> Option<(ServerId, P::Message)> {
        lock(&self.messages).pop_front()
    }

    pub fn is_empty(&self) -> bool {
        lock(&self.messages).is_empty()
    }
}

/// The indexes of lanes whose inbox may not be empty. Each index is in the list once, however many messages wait.
#[derive(Default)]
pub(super) struct Busy {
    places: Mutex<VecDeque<usize>>,
}

impl Busy {
    /// A message is in the inbox of the lane at this index.
    pub fn note<P: Protocol>(&self, place: usize, inbox: &Inbox<P>) {
        if !inbox.is_noted.swap(true, Ordering::AcqRel) {
            lock(&self.places).push_back(place);
        }
    }

    /// Takes the next index. A message that comes into its inbox from here on adds it again.
    pub fn next<'a, P: Protocol>(&self, inbox_of: impl Fn(usize) -> &'a Inbox<P>) -> Option<usize> {
        let place = lock(&self.places).pop_front()?;
        inbox_of(place).is_noted.store(false, Ordering::Release);
        Some(place)
    }

    pub fn is_empty(&self) -> bool {
        lock(&self.places).is_empty()
    }
}
