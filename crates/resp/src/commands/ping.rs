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
    if call.connection.hears_only_messages() && arguments.len() <= 2 {
        let text = if arguments.len() == 2 {
            arguments.at(1)
        } else {
            b""
        };
        return call.reply(|writer| {
            writer.array(2);
            writer.bulk(b"pong");
            writer.bulk(text);
        });
    }
    match arguments.len() {
        1 => call.reply(|writer| writer.simple("PONG")),
        2 => call.reply(|writer| writer.bulk(arguments.at(1))),
        _ => Err(Refusal::arity("ping")),
    }
}
