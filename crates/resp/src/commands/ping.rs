use super::{PLAIN, Spec};
use crate::{call::Call, refusal::Refusal};

pub(super) const PING: Spec = Spec {
    name: "ping",
    syntax: "[message]",
    summary: "Returns PONG, or its argument.",
    run,
    in_transactions: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let arguments = call.arguments;
    match arguments.len() {
        1 => call.reply(|writer| writer.simple("PONG")),
        2 => call.reply(|writer| writer.bulk(arguments.at(1))),
        _ => Err(Refusal::arity("ping")),
    }
}
