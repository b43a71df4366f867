//! What a connection holds, and what it may hold.
//!
//! Everything that a client can make a connection hold counts: commands that wait or are not answered, what reads are expected to return, values that
//! a long read has gathered, names of channels, and replies and messages. [`Connection::FREE_BYTES`] of it are the connection's own. For more, the connection asks the node
//! ([`Backend::grow_to`]), some kilobytes at a time, before it takes a command and before it writes a long reply. Once the client has taken its
//! replies, [`Connection::release_memory`] returns what is not needed.
use super::{Connection, Life};
use crate::refusal::{NO_ROOM_FOR_REPLY, Refusal};
use crate::shape::{REPLY_BYTES, Shape};
use crate::transaction::Queue;
use crate::{Backend, Writer, long::Long};
use bytes::Bytes;
use turnbuckle_core::{Answer, Failure, Siblings};

/// How many bytes an operation takes until it is answered, beside its arguments and its answer.
pub(super) const PART_BYTES: usize = 400;

/// How many bytes more than needed are asked for at a time.
const STEP_BYTES: usize = 16 << 10;

/// A reply that is longer than this, in bytes, asks for room before it is written.
const SHORT_BYTES: usize = 4 << 10;

impl Connection {
    /// How many bytes every connection may hold without asking.
    pub const FREE_BYTES: usize = 16 << 10;

    /// How many bytes it holds, approximately.
    pub fn memory_bytes(&self) -> usize {
        let waiting = self.waiting.as_ref().map_or(0, |waiting| waiting.held_bytes());
        self.output.held_bytes()
            + self.held_bytes
            + self.outstanding_bytes
            + self.open_parts * PART_BYTES
            + self.pace.expected()
            + self.gathered_bytes
            + self.long.as_ref().map_or(0, Long::spans_bytes)
            + self.walk.as_ref().map_or(0, |walk| walk.held_bytes())
            + self.state.transaction.as_ref().map_or(0, Queue::held_bytes)
            + self.state.watched.held_bytes()
            + self.state.subscriptions.held_bytes()
            + waiting
    }

    /// Releases memory that is not needed. Call it after output was written, or bytes were handled. `written`: whether some output was written.
    /// Returns how many of the bytes that the node has granted are still in use.
    pub fn release_memory(&mut self, written: bool) -> usize {
        self.output_begun = !self.output.is_empty() && (self.output_begun || written);
        self.output.release_memory(Self::FREE_BYTES);
        self.granted = self.memory_bytes().max(Self::FREE_BYTES);
        self.granted
    }

    /// Called if the node needs the memory of this connection. Drops everything. The client is told why, unless it has been sent a part of a reply.
    pub fn shed(&mut self) {
        let tell = !self.output_begun && self.life != Life::Closed;
        self.drop_everything();
        if tell {
            Writer::new(&mut self.output, self.state.resp).error(&Refusal::shed().0);
        }
    }

    /// Whether it may hold this many bytes more.
    pub(super) fn has_room(&mut self, more: usize, backend: &mut dyn Backend) -> bool {
        let bytes = self.memory_bytes() + more;
        if bytes <= self.granted {
            return true;
        }
        let asked = [bytes + STEP_BYTES, bytes];
        match asked.into_iter().find(|&bytes| backend.grow_to(bytes)) {
            Some(granted) => {
                self.granted = granted;
                true
            }
            None => false,
        }
    }

    /// The same, for a command that is being executed. If there is no room, the command is executed again when there is.
    pub(crate) fn has_room_again(&mut self, more: usize, backend: &mut dyn Backend) -> bool {
        let has_room = self.has_room(more, backend);
        self.again |= !has_room;
        has_room
    }

    /// Learns from an answer how much reads return.
    pub(super) fn measure(&mut self, shape: &Shape, answer: &Answer) {
        match answer {
            Answer::Value(value) | Answer::Replaced(value) => self.pace.learn(1, len_of(value)),
            Answer::Unmet(unmet) => self.pace.learn(1, len_of(&unmet.value)),
            Answer::Values(values) => self.pace.learn(values.len(), bytes_of(values)),
            Answer::Elements(elements) => self.pace.learn(1, shape.bytes_of(elements)),
            Answer::Siblings(siblings) => self.pace.learn(1, bytes_of_siblings(siblings)),
            Answer::Transacted(Some(steps)) => steps.iter().for_each(|step| self.measure(shape, step)),
            _ => {}
        }
    }

    /// Whether there is room for the reply that an answer becomes. True also if the reply will be refused for its length.
    pub(super) fn has_room_for(&mut self, shape: &Shape, answer: &Answer, backend: &mut dyn Backend) -> bool {
        let (bytes, values) = match answer {
            Answer::Value(Some(value)) => (value.len(), 1),
            Answer::Values(values) => (bytes_of(values), values.len()),
            Answer::Siblings(siblings) => (bytes_of_siblings(siblings), siblings.versions.len()),
            Answer::Elements(elements) => (shape.bytes_of(elements), 0),
            Answer::Transacted(Some(sets)) => {
                let bytes = sets.iter().map(|set| match set {
                    Answer::Elements(set) => shape.bytes_of(set),
                    _ => 0,
                });
                (bytes.sum(), 0)
            }
            _ => return true,
        };
        let bytes_of_reply = bytes + REPLY_BYTES * values;
        bytes > self.greeting.limits.max_reply_bytes
            || bytes_of_reply <= SHORT_BYTES
            || self.has_room(bytes_of_reply, backend)
    }
}

fn bytes_of_siblings(siblings: &Siblings) -> usize {
    siblings.versions.iter().map(|(_, value)| len_of(value)).sum()
}

fn len_of(value: &Option<Bytes>) -> usize {
    value.as_ref().map_or(0, Bytes::len)
}

fn bytes_of(values: &[Option<Bytes>]) -> usize {
    values.iter().flatten().map(Bytes::len).sum()
}

/// The answer if there is no room for the real one.
pub(super) fn no_room_for_reply() -> Answer {
    Answer::Failed(Failure::Unavailable(NO_ROOM_FOR_REPLY.into()))
}
