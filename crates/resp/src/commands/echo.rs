use super::{PLAIN, Spec};
use crate::{call::Call, refusal::Refusal};

pub(super) const ECHO: Spec = Spec {
    name: "echo",
    arity: 2,
    syntax: "message",
    summary: "Returns its argument.",
    run,
    in_transactions: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let arguments = call.arguments;
    call.reply(|writer| writer.bulk(arguments.at(1)))
}
