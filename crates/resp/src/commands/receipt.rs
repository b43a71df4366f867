use super::{PLAIN, Spec};
use crate::{call::Call, receipt::write_map, refusal::Refusal};

pub(super) const RECEIPT: Spec = Spec {
    name: "receipt",
    arity: 1,
    summary: "What the last answer about keys proved: how fresh it was, and which replica gave it.",
    waits: true,
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let receipt = call.connection.state.receipt.clone();
    let backend = &*call.backend;
    call.connection.reply(|writer| match &receipt {
        Some(receipt) => write_map(receipt, backend, writer),
        None => writer.null(),
    });
    Ok(())
}
