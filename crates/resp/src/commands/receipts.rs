use super::{PLAIN, Spec};
use crate::{Resp, call::Call, refusal::Refusal};

pub(super) const RECEIPTS: Spec = Spec {
    name: "receipts",
    arity: 2,
    syntax: "ON | OFF",
    summary: "Puts its receipt before each reply, as an attribute. RESP3 only.",
    waits: true,
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let on = call.arguments.is(1, "ON");
    if !on && !call.arguments.is(1, "OFF") {
        return Err(Refusal::usage("RECEIPTS ON | OFF"));
    }
    if on && call.connection.state.resp == Resp::Two {
        return Err(Refusal::err(
            "RECEIPTS ON needs RESP3: send HELLO 3 first, or send RECEIPT after each command",
        ));
    }
    call.connection.state.receipts = on;
    call.reply_ok()
}
