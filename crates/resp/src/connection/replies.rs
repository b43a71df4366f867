//! Replies, in the order of their commands, in whatever order the answers come.
use super::{Connection, Life};
use crate::channels::Subscriptions;
use crate::pace::Pace;
use crate::shape::Style;
use crate::slot::{ReadyReply, Slot, SlotState};
use crate::transaction::Watched;
use crate::{Output, Writer, refusal::Refusal};
use std::collections::VecDeque;
use turnbuckle_core::Receipt;

impl Connection {
    /// Writes a reply that is not about keys: at once, or in its place in the order.
    #[inline]
    pub(crate) fn reply(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        if self.slots.is_empty() {
            write(&mut Writer::new(&mut self.output, self.state.resp));
            return;
        }
        let mut output = Output::default();
        write(&mut Writer::new(&mut output, self.state.resp));
        self.held_bytes += output.len();
        let reply = ReadyReply {
            output,
            receipt: None,
        };
        self.push(self.next_tag, 0, 0, SlotState::Ready(Box::new(reply)));
    }

    pub(crate) fn refuse(&mut self, refusal: &Refusal) {
        self.reply(|writer| writer.error(&refusal.0));
    }

    /// Writes the reply of a command on keys, at once or in its place. `write` returns the receipt that goes with it.
    #[inline]
    pub(super) fn reply_about_keys(
        &mut self,
        first_tag: u64,
        write: impl FnOnce(Style<'_>, &mut Writer<'_>) -> Option<Box<Receipt>>,
    ) {
        if self.slots.is_empty() {
            let style = Style::of(&self.greeting, &self.state);
            let mut writer = Writer::new(&mut self.output, self.state.resp);
            self.state.receipt = write(style, &mut writer);
        } else {
            let reply = self.ready(write);
            self.push(first_tag, 0, 0, SlotState::Ready(Box::new(reply)));
        }
    }

    /// Writes the reply of the command in a slot: at once if it is the next one, as it mostly is, or to be kept until the replies before it are written.
    pub(super) fn reply_in(
        &mut self,
        place: usize,
        write: impl FnOnce(Style<'_>, &mut Writer<'_>) -> Option<Box<Receipt>>,
    ) {
        if place > 0 {
            let reply = self.ready(write);
            self.slots[place].state = SlotState::Ready(Box::new(reply));
        } else if let Some(slot) = self.slots.pop_front() {
            self.outstanding_bytes -= slot.frame_bytes;
            let style = Style::of(&self.greeting, &self.state);
            let mut writer = Writer::new(&mut self.output, self.state.resp);
            self.state.receipt = write(style, &mut writer);
        }
    }

    /// Writes a reply that is kept until the replies before it are written.
    pub(super) fn ready(
        &mut self,
        write: impl FnOnce(Style<'_>, &mut Writer<'_>) -> Option<Box<Receipt>>,
    ) -> ReadyReply {
        let mut output = Output::default();
        let style = Style::of(&self.greeting, &self.state);
        let receipt = write(style, &mut Writer::new(&mut output, self.state.resp));
        self.held_bytes += output.len();
        ReadyReply {
            output,
            receipt: Some(receipt),
        }
    }

    /// Adds a slot. `open` of its operations have begun and are not answered.
    pub(super) fn push(&mut self, first_tag: u64, frame_bytes: usize, open: usize, state: SlotState) {
        let need = match &state {
            SlotState::One(_) => std::mem::take(&mut self.need),
            _ => 0,
        };
        self.pace.begin(need);
        self.open_parts += open;
        self.outstanding_bytes += frame_bytes;
        self.slots.push_back(Slot {
            first_tag,
            frame_bytes,
            need,
            state,
        });
    }

    /// Moves the replies that are next to the output.
    pub(super) fn drain(&mut self) {
        while let Some(Slot {
            state: SlotState::Ready(reply),
            frame_bytes,
            ..
        }) = self.slots.front_mut()
        {
            self.held_bytes -= reply.output.len();
            self.output.append(std::mem::take(&mut reply.output));
            self.outstanding_bytes -= *frame_bytes;
            if let Some(receipt) = reply.receipt.take() {
                self.state.receipt = receipt;
            }
            self.slots.pop_front();
        }
        self.check_output();
    }

    /// Closes the connection if the client does not read what it asked for.
    pub(super) fn check_output(&mut self) {
        self.output.measure();
        if self.output.len() + self.held_bytes > self.greeting.limits.max_output_hard_bytes {
            self.drop_everything();
        }
    }

    pub(super) fn drop_everything(&mut self) {
        self.life = Life::Closed;
        self.output = Output::default();
        self.slots = VecDeque::new();
        self.waiting = None;
        self.long = None;
        self.walk = None;
        self.state.transaction = None;
        self.state.watched = Watched::default();
        self.state.subscriptions = Subscriptions::default();
        self.pace = Pace::new(&self.greeting.limits);
        self.held_bytes = 0;
        self.outstanding_bytes = 0;
        self.open_parts = 0;
        self.gathered_bytes = 0;
        (self.tired, self.starved, self.is_repeated) = (false, false, false);
    }
}
