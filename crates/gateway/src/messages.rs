//! Messages to channels, until they may be heard here.
//!
//! A message travels in one frame, and what its publisher had written travels in streams, which may be slower. So a message waits here until this site has
//! everything that the publisher had seen. That is what a probe of this site finds out ([`crate::probes`]): after it, any client that is woken by
//! the message finds the data.
//!
//! ```text
//!   ant:   SET order 7 -----stream------------------------------> bee has order 7
//!          PUBLISH orders 7 ----frame----> bee: probe, which waits for order 7 ---> clients that listen are told
//! ```
//!
//! Messages of one publisher are heard in the order in which they were sent. A message is heard once at most. It is lost if a link breaks, if this site does not have
//! everything within the deadline of operations, or if too many messages wait. A protocol whose sessions remember nothing has nothing to wait for.
use crate::{
    doors::{Door, Doors},
    gateway::Answers,
    probes::{Asker, Probe},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};
use turnbuckle_core::{Now, Protocol, Session, SessionId, Timers};
use turnbuckle_node::Publication;

/// The most bytes of messages that wait for one loop and keyspace, with their probes. While there are more, new messages are lost.
const MAX_BYTES: usize = 16 << 20;

/// Says whether a client of this loop listens to a channel.
pub type Hears = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// The messages of one loop and keyspace.
#[derive(Default)]
pub(crate) struct Messages {
    /// What clients listen to. `None`: to nothing.
    pub hears: Option<Hears>,
    /// Those that wait, by number.
    waiting: BTreeMap<u64, Waiting>,
    /// The numbers of the waiting ones of each publisher, in their order.
    queues: BTreeMap<SessionId, VecDeque<u64>>,
    /// When to give up each of them.
    pub ends: Timers<u64>,
    next_number: u64,
    bytes: usize,
    /// Those that may be heard.
    pub heard: Vec<Arc<Publication>>,
    /// How many were lost, because this site did not have everything in time, or too many waited. One that was sent from here and could not be sent to another node
    /// counts once for each such node.
    pub lost: u64,
}

struct Waiting {
    publication: Arc<Publication>,
    bytes: usize,
    /// How many probes are not answered.
    missing: usize,
    /// The doors of its probes, also of those that are done.
    probes: Vec<u64>,
}

impl<S: Session> Doors<S> {
    /// A message has arrived.
    pub(crate) fn on_publication(&mut self, now: Now, publication: Arc<Publication>, answers: &mut Answers) {
        let channel = &publication.message.channel;
        if !self.messages.hears.as_ref().is_some_and(|hears| hears(channel)) {
            return;
        }
        let publisher = publication.publisher;
        if publication.seen.is_empty() && !self.messages.queues.contains_key(&publisher) {
            return self.messages.heard.push(publication);
        }
        let partitions = usize::from(self.keyspace.topology().partitions());
        let probe_bytes = size_of::<Door<S>>() + publication.seen.len();
        let bytes = publication.bytes() + partitions * probe_bytes;
        if self.messages.bytes + bytes > MAX_BYTES {
            self.messages.lost += 1;
            return;
        }
        let number = self.messages.next_number;
        let mut probes = Vec::new();
        let has_seen = !publication.seen.is_empty() && !self.keyspace.planted().messages_overtake;
        for partition in 0..self.keyspace.topology().partitions() {
            if !has_seen {
                break;
            }
            let id = self.random_session();
            let topology = self.keyspace.topology().clone();
            let mut session = S::open(self.keyspace.protocol(), self.home, topology, id);
            let stays = S::Protocol::DESCRIPTOR.confirms_sites;
            let probe = Probe::new(self.home, partition, Asker::Message(number), stays);
            let opened = session.resume(publication.seen.clone()).ok();
            match opened.and_then(|()| self.doors.insert(Door::of(id, session, Some(probe)))) {
                Some(probe) => probes.push(probe),
                // It is no state of a session, or too many messages wait.
                None => {
                    probes.into_iter().for_each(|probe| self.forget(probe));
                    self.messages.lost += 1;
                    return;
                }
            }
        }
        let messages = &mut self.messages;
        messages.next_number += 1;
        messages.bytes += bytes;
        messages.queues.entry(publisher).or_default().push_back(number);
        messages.ends.set(number, now.monotonic + self.options.deadline);
        let missing = probes.len();
        let waiting = Waiting {
            publication,
            bytes,
            missing,
            probes: probes.clone(),
        };
        messages.waiting.insert(number, waiting);
        for probe in probes {
            self.ask_probe(now, probe, answers);
        }
        if missing == 0 {
            self.hear(publisher);
        }
    }

    /// One more probe of a message was answered.
    pub(crate) fn on_message_probed(&mut self, number: u64) {
        let Some(waiting) = self.messages.waiting.get_mut(&number) else {
            return;
        };
        waiting.missing -= 1;
        if waiting.missing == 0 {
            let publisher = waiting.publication.publisher;
            self.hear(publisher);
        }
    }

    /// The time of a message is over: it is lost.
    pub(crate) fn give_up_message(&mut self, number: u64) {
        let Some(waiting) = self.forget_message(number) else {
            return;
        };
        self.messages.lost += 1;
        let publisher = waiting.publication.publisher;
        if let Some(queue) = self.messages.queues.get_mut(&publisher) {
            queue.retain(|&other| other != number);
        }
        self.hear(publisher);
    }

    /// Hands out the messages of a publisher that may be heard, up to the first that may not.
    fn hear(&mut self, publisher: SessionId) {
        let next = |messages: &Messages| {
            messages
                .queues
                .get(&publisher)
                .and_then(|queue| queue.front())
                .copied()
        };
        while let Some(number) = next(&self.messages) {
            if self
                .messages
                .waiting
                .get(&number)
                .is_some_and(|waiting| waiting.missing > 0)
            {
                return;
            }
            if let Some(queue) = self.messages.queues.get_mut(&publisher) {
                queue.pop_front();
            }
            if let Some(waiting) = self.forget_message(number) {
                self.messages.heard.push(waiting.publication);
            }
        }
        self.messages.queues.remove(&publisher);
    }

    fn forget_message(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.messages.waiting.remove(&number)?;
        self.messages.ends.cancel(number);
        self.messages.bytes -= waiting.bytes;
        waiting.probes.iter().for_each(|&probe| self.forget(probe));
        Some(waiting)
    }
}
