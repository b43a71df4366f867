//! Commands that cluster-aware clients send by themselves. Every node answers reads and writes, so there is nothing to switch.
use super::{PLAIN, Spec};
use crate::{call::Call, refusal::Refusal};

pub(super) const READONLY: Spec = Spec {
    name: "readonly",
    arity: 1,
    group: "cluster",
    summary: "Does nothing: every node answers reads.",
    run,
    ..PLAIN
};

pub(super) const READWRITE: Spec = Spec {
    name: "readwrite",
    summary: "Does nothing: every node takes writes.",
    ..READONLY
};

pub(super) const ASKING: Spec = Spec {
    name: "asking",
    summary: "Does nothing: no slot ever moves from one node to another.",
    ..READONLY
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    call.reply_ok()
}
