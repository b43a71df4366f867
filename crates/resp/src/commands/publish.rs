use super::{Concerns, PLAIN, Spec, subscribe};
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::{Message, Operation};

pub(super) const PUBLISH: Spec = Spec {
    name: "publish",
    arity: 3,
    flags: &["pubsub", "loading", "stale", "fast"],
    group: "pubsub",
    syntax: "channel message",
    summary: "Sends a message to the clients that listen to a channel, at all sites. Returns how many times it is heard at this node.",
    waits: true,
    run,
    concerns: Concerns::Publish,
    ..PLAIN
};

/// The message is delivered later, also at this node: once a site has what the session has seen and written.
fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let channels = subscribe::channels(call, &PUBLISH)?;
    subscribe::check_name(call, 1)?;
    let heard = channels.count(call.arguments.at(1));
    let message = Message {
        channel: call.arguments.bytes(1),
        text: call.arguments.bytes(2),
    };
    call.operate(
        Shape::Published(heard),
        Operation::Publish {
            message: Box::new(message),
        },
    )
}
