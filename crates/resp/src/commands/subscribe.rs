//! `SUBSCRIBE`, `PSUBSCRIBE`, `UNSUBSCRIBE`, `PUNSUBSCRIBE`. As in Redis, the reply is one message for each channel.
use super::{Concerns, PLAIN, Spec};
use crate::channels::{By, Channels, Subscriptions};
use crate::connection::{subscribed, unsubscribed, write_subscription};
use crate::shape::{REPLY_BYTES, check_reply};
use crate::{call::Call, refusal::Refusal};
use bytes::Bytes;
use std::sync::Arc;

pub(super) const SUBSCRIBE: Spec = Spec {
    name: "subscribe",
    arity: -2,
    flags: &["pubsub", "noscript", "loading", "stale"],
    group: "pubsub",
    syntax: "channel [channel ...]",
    summary: "Listens to channels.",
    waits: true,
    run: |call| begin(call, By::Name, &SUBSCRIBE),
    concerns: Concerns::Channels(By::Name),
    ..PLAIN
};

pub(super) const PSUBSCRIBE: Spec = Spec {
    name: "psubscribe",
    syntax: "pattern [pattern ...]",
    summary: "Listens to all channels that match patterns.",
    run: |call| begin(call, By::Pattern, &PSUBSCRIBE),
    concerns: Concerns::Channels(By::Pattern),
    ..SUBSCRIBE
};

/// A user need not be allowed to hear a channel that it does not want to hear.
pub(super) const UNSUBSCRIBE: Spec = Spec {
    name: "unsubscribe",
    arity: -1,
    syntax: "[channel ...]",
    summary: "Does not listen to these channels any more, or to none.",
    run: |call| end(call, By::Name, &UNSUBSCRIBE),
    concerns: Concerns::Nothing,
    ..SUBSCRIBE
};

pub(super) const PUNSUBSCRIBE: Spec = Spec {
    name: "punsubscribe",
    syntax: "[pattern ...]",
    summary: "Does not listen to the channels that match these patterns any more, or to none by a pattern.",
    run: |call| end(call, By::Pattern, &PUNSUBSCRIBE),
    ..UNSUBSCRIBE
};

/// Who listens to which channels at this node.
///
/// # Errors
/// If there are no messages.
pub(super) fn channels(call: &Call<'_>, spec: &Spec) -> Result<Arc<Channels>, Refusal> {
    let channels = call.backend.channels().cloned();
    channels.ok_or_else(|| {
        let name = spec.name.to_uppercase();
        Refusal::unsupported(format_args!("{name}: there are no messages here, only keys"))
    })
}

/// Refuses a channel or pattern at this place that is too long.
pub(super) fn check_name(call: &Call<'_>, place: usize) -> Result<(), Refusal> {
    let (bytes, max) = (
        call.arguments.at(place).len(),
        call.connection.greeting.limits.max_key_bytes,
    );
    match bytes > max {
        true => Err(Refusal::too_big("the channel", bytes as u64, max as u64)),
        false => Ok(()),
    }
}

/// Checks all names of a command before anything is done with one of them.
fn check_names(call: &Call<'_>) -> Result<(), Refusal> {
    let count = call.len() - 1;
    if count > Subscriptions::MAX {
        return Err(Refusal::too_many_arguments(
            call.len() as u64,
            Subscriptions::MAX + 1,
        ));
    }
    (1..call.len()).try_for_each(|place| check_name(call, place))
}

/// Whether there is room for a reply that names these channels, and for `more` bytes. If not, the command is to be executed again.
fn has_room<'a>(
    call: &mut Call<'_>,
    names: impl Iterator<Item = &'a [u8]>,
    more: usize,
) -> Result<bool, Refusal> {
    let bytes = names.map(|name| name.len() + SUBSCRIPTION_BYTES).sum::<usize>();
    check_reply(bytes, &call.connection.greeting.limits)?;
    Ok(call.connection.has_room_again(bytes + more, call.backend))
}

/// The most bytes that the message about a channel takes beside its name.
const SUBSCRIPTION_BYTES: usize = 2 * REPLY_BYTES;

fn begin(call: &mut Call<'_>, by: By, spec: &Spec) -> Result<(), Refusal> {
    let channels = channels(call, spec)?;
    check_names(call)?;
    let arguments = call.arguments;
    let subscriptions = &call.connection.state.subscriptions;
    let more = subscriptions.check(by, arguments.iter().skip(1))?;
    if !has_room(call, arguments.iter().skip(1), more)? {
        return Ok(());
    }
    let listener = call.backend.listener();
    let mut done = Vec::with_capacity(call.len() - 1);
    for place in 1..call.len() {
        let subscriptions = &mut call.connection.state.subscriptions;
        subscriptions.add(by, arguments.at(place), &channels, listener);
        done.push((arguments.bytes(place), subscriptions.len()));
    }
    reply(call, subscribed(by), &done)
}

fn end(call: &mut Call<'_>, by: By, spec: &Spec) -> Result<(), Refusal> {
    channels(call, spec)?;
    check_names(call)?;
    let names: Vec<Bytes> = match call.len() {
        1 => call
            .connection
            .state
            .subscriptions
            .of(by)
            .iter()
            .cloned()
            .collect(),
        len => (1..len).map(|place| call.arguments.bytes(place)).collect(),
    };
    if !has_room(call, names.iter().map(|name| &name[..]), 0)? {
        return Ok(());
    }
    let subscriptions = &mut call.connection.state.subscriptions;
    if names.is_empty() {
        // As in Redis, who listens to nothing is told so.
        let count = subscriptions.len();
        return call.reply(|writer| write_subscription(unsubscribed(by), None, count, writer));
    }
    let mut remove = |name: Bytes| {
        subscriptions.remove(by, &name);
        (name, subscriptions.len())
    };
    let done: Vec<(Bytes, usize)> = names.into_iter().map(&mut remove).collect();
    reply(call, unsubscribed(by), &done)
}

/// Tells what was done with each channel, and how many the client listens to after it.
fn reply(call: &mut Call<'_>, what: &str, done: &[(Bytes, usize)]) -> Result<(), Refusal> {
    call.reply(|writer| {
        for (name, count) in done {
            write_subscription(what, Some(name), *count, writer);
        }
    })
}
