//! Messages that a connection hears.
use super::{Connection, Life};
use crate::channels::By;
use crate::{Backend, Resp, Writer, commands::Spec};
use bytes::Bytes;

/// About how many bytes a message takes beside its texts.
const MESSAGE_BYTES: usize = 128;

impl Connection {
    /// Whether the client listens to channels.
    pub fn is_listening(&self) -> bool {
        !self.state.subscriptions.is_empty()
    }

    /// Whether the client takes messages and no other replies: on RESP2 it cannot tell them apart.
    pub(crate) fn hears_only_messages(&self) -> bool {
        self.state.resp == Resp::Two && self.is_listening()
    }

    /// Whether a command may be run while the client listens.
    pub(super) fn may_run(&self, spec: &Spec) -> bool {
        !self.hears_only_messages()
            || matches!(
                spec.name,
                "subscribe" | "unsubscribe" | "psubscribe" | "punsubscribe" | "ping" | "quit" | "reset"
            )
    }

    /// Delivers a message, once for each way in which the client hears it: `pattern` is `None` for the channel's name ([`crate::Channels::listeners`]).
    /// Nothing is written if the client does not listen to it any more.
    ///
    /// The message is written behind the replies that are in the output, and so never inside a reply. It may come before the reply of an operation that is
    /// outstanding, as in Redis.
    ///
    /// **A client that does not read is disconnected**, as in Redis: if its output would hold more than [`crate::Limits::max_output_hard_bytes`], or if
    /// the node has no room for the message. A message cannot wait, and a client that misses one would not notice.
    ///
    /// If the users of the node were replaced, this is noticed here as well. If the user is gone, the connection ends. If the user may not hear the channel
    /// any more, the subscription ends, and the client is told so as if it had unsubscribed.
    ///
    /// Returns whether the connection is to be served now: it has output to write, or is to be closed. Then write, and call
    /// [`Connection::release_memory`].
    pub fn handle_message(
        &mut self,
        pattern: Option<&Bytes>,
        channel: &Bytes,
        text: &Bytes,
        backend: &mut dyn Backend,
    ) -> bool {
        let (by, name) = match pattern {
            None => (By::Name, channel),
            Some(pattern) => (By::Pattern, pattern),
        };
        // An ending or closed connection listens to nothing.
        if self.life != Life::Open || !self.state.subscriptions.of(by).contains(name) {
            return false;
        }
        if !self.may_hear(by, name, backend) {
            if self.life == Life::Open {
                self.state.subscriptions.remove(by, name);
                let left = self.state.subscriptions.len();
                let mut writer = Writer::new(&mut self.output, self.state.resp);
                write_subscription(unsubscribed(by), Some(name), left, &mut writer);
                self.check_output();
            }
            return true;
        }
        let bytes = pattern.map_or(0, Bytes::len) + channel.len() + text.len() + MESSAGE_BYTES;
        if self.output.len() + self.held_bytes + bytes > self.greeting.limits.max_output_hard_bytes {
            self.drop_everything();
            return true;
        }
        if !self.has_room(bytes, backend) {
            // It is told why, if it is not in the middle of a reply.
            self.shed();
            return true;
        }
        let mut writer = Writer::new(&mut self.output, self.state.resp);
        match pattern {
            None => {
                writer.push(3);
                writer.bulk(b"message");
            }
            Some(pattern) => {
                writer.push(4);
                writer.bulk(b"pmessage");
                writer.bulk(pattern);
            }
        }
        writer.bulk(channel);
        writer.value(Some(text));
        self.check_output();
        true
    }
}

/// What a client is told when it begins to listen.
pub(crate) fn subscribed(by: By) -> &'static str {
    match by {
        By::Name => "subscribe",
        By::Pattern => "psubscribe",
    }
}

/// What a client is told when it does not listen any more.
pub(crate) fn unsubscribed(by: By) -> &'static str {
    match by {
        By::Name => "unsubscribe",
        By::Pattern => "punsubscribe",
    }
}

/// Writes that the client listens to a channel or pattern, or does not any more. `count` is how many it listens to then.
pub(crate) fn write_subscription(what: &str, name: Option<&Bytes>, count: usize, writer: &mut Writer<'_>) {
    writer.push(3);
    writer.bulk(what.as_bytes());
    writer.bulk_or_null(name.map(|name| &name[..]));
    writer.integer(count as i64);
}
