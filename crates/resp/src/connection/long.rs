//! How a connection continues a command on many keys.
use super::{Connection, PART_BYTES, no_room_for_reply};
use crate::long::{Each, Long, Reads};
use crate::shape::Shape;
use crate::slot::SlotState;
use crate::{Arguments, Backend};
use turnbuckle_core::DoorId;
use turnbuckle_core::{Answer, Answered, Operation, Wanted};

impl Connection {
    /// Takes a command on many keys. It gets its place in the order of replies, and nothing of it begins yet.
    pub(crate) fn operate_long(
        &mut self,
        door: DoorId,
        each: Each,
        level: Option<Wanted>,
        arguments: Arguments,
        keys: usize,
        state: SlotState,
    ) {
        let first_tag = self.next_tag;
        let frame_bytes = arguments.frame_bytes();
        let long = Long::new(door, first_tag, each, level, arguments, keys);
        self.next_tag += long.parts() as u64;
        self.push(first_tag, frame_bytes, 0, state);
        self.long = Some(long);
    }

    /// Begins several reads that make one reply.
    pub(crate) fn operate_reads(
        &mut self,
        door: DoorId,
        mut reads: Reads,
        operations: impl Iterator<Item = Operation>,
        frame_bytes: usize,
        backend: &mut dyn Backend,
    ) {
        let first_tag = self.next_tag;
        let mut open = 0;
        for (part, operation) in operations.enumerate() {
            let tag = self.next_tag;
            self.next_tag += 1;
            match backend.operate(door, tag, operation) {
                Some((answer, receipt)) => {
                    self.measure(&Shape::Present, &answer);
                    reads.take(part, answer, receipt, &self.greeting.limits);
                }
                None => open += 1,
            }
        }
        if open == 0 {
            self.reply_about_keys(first_tag, |style, writer| {
                style.write_reads(&reads, backend, writer)
            });
        } else {
            self.push(first_tag, frame_bytes, open, SlotState::Parts(Box::new(reads)));
        }
    }

    /// Begins one share of the long command, if there is one, if it may go on, and if the node has room for what it returns.
    pub(super) fn go_on_with_long(&mut self, backend: &mut dyn Backend) {
        let Some(long) = self.long.as_ref().filter(|long| long.may_go_on()) else {
            return;
        };
        let (share, reads) = (long.next_share(), long.reads());
        let need = if reads {
            self.pace.need(share)
        } else {
            share * PART_BYTES
        };
        if !self.has_room(need, backend) {
            self.starved = true;
            return;
        }
        if let Some(place) = self.last_place {
            backend.go_on_with_command(place);
        }
        let mut keys = 0;
        while keys < share
            && let Some(long) = &mut self.long
        {
            let (part, operation, keys_of_part) = long.begin();
            let (door, tag) = (long.door, long.first_tag + part as u64);
            keys += keys_of_part;
            self.open_parts += 1;
            let was_last = long.unbegun() == 0;
            if let Some(answered) = backend.operate(door, tag, operation) {
                self.take_part(tag, answered, backend);
            }
            if was_last {
                self.long = None;
            }
        }
        self.drain();
    }

    /// Handles the answer to one of several operations. With the last answer the reply is ready.
    pub(super) fn take_part(&mut self, tag: u64, answered: Answered, backend: &mut dyn Backend) {
        let (place, part) = self.place_of(tag);
        let first_tag = self.slots[place].first_tag;
        let (answer, receipt) = answered;
        self.open_parts -= 1;
        let long = self.long.as_mut().filter(|long| long.first_tag == first_tag);
        if let Some(long) = long {
            long.answered();
        }
        let answer = self.fitting_part(place, answer, backend);
        let limits = &self.greeting.limits;
        let is_complete = match &mut self.slots[place].state {
            SlotState::Several(writes) => {
                writes.take(part, answer, receipt);
                writes.is_complete()
            }
            SlotState::Parts(reads) => {
                self.gathered_bytes -= reads.bytes();
                reads.take(part, answer, receipt, limits);
                self.gathered_bytes += reads.bytes();
                // Once the reply is an error, the reads that have not begun are not needed.
                if reads.is_refused()
                    && let Some(long) = self.long.take_if(|long| long.first_tag == first_tag)
                {
                    reads.forget(long.unbegun());
                }
                reads.is_complete()
            }
            SlotState::Watch(watching) => {
                watching.take(answer, &mut self.state.watched);
                true
            }
            SlotState::One(_) | SlotState::Walk | SlotState::Ready(_) | SlotState::Taken => {
                unreachable!("the caller has looked")
            }
        };
        if is_complete {
            self.finish_parts(place, backend);
        }
    }

    /// The answer, or a failure if the node has no room for it.
    fn fitting_part(&mut self, place: usize, answer: Answer, backend: &mut dyn Backend) -> Answer {
        let SlotState::Parts(reads) = &self.slots[place].state else {
            return answer;
        };
        let keeps = reads.keeps_values();
        self.measure(&Shape::Values, &answer);
        match keeps && !self.has_room_for(&Shape::Values, &answer, backend) {
            true => no_room_for_reply(),
            false => answer,
        }
    }

    fn finish_parts(&mut self, place: usize, backend: &dyn Backend) {
        let state = std::mem::replace(&mut self.slots[place].state, SlotState::Taken);
        let reply = match state {
            SlotState::Several(writes) => {
                self.ready(|style, writer| style.write_several(&writes, backend, writer))
            }
            SlotState::Parts(reads) => {
                self.gathered_bytes -= reads.bytes();
                self.ready(|style, writer| style.write_reads(&reads, backend, writer))
            }
            SlotState::Watch(watching) => self.ready(|_, writer| {
                watching.write(writer);
                None
            }),
            other => unreachable!("{other:?} has no parts"),
        };
        self.slots[place].state = SlotState::Ready(Box::new(reply));
    }
}
