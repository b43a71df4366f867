use super::{PLAIN, Spec};
use crate::{call::Call, receipt::write_map, refusal::Refusal};

pub(super) const RECEIPT: Spec = Spec {
    name: "receipt",
    arity: 1,
    summary: "How fresh the last answer about keys provably was, and who gave it.",
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
