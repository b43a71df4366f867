//! `MULTI`, `EXEC`, `DISCARD`. No keyspace has transactions, and every client must be able to find that out.
//!
//! `MULTI` is accepted, and the commands after it are answered `QUEUED`. `EXEC` refuses all of them and names the reason. **None of them is carried
//! out**, whether the client waits for each answer or sends everything at once. If `MULTI` itself were refused, the server could not distinguish two
//! clients: one that sent its transaction at once, and one that has read the refusal and goes on. Either a part of a transaction would be carried
//! out, or the connection could not be used any more.
use super::{PLAIN, Spec};
use crate::{call::Call, refusal::Refusal};

pub(super) const MULTI: Spec = Spec {
    name: "multi",
    arity: 1,
    group: "transactions",
    summary: "Begins a transaction. No keyspace has them: EXEC refuses it, and none of its commands is carried out.",
    run: |call| {
        if std::mem::replace(&mut call.connection.state.in_transaction, true) {
            return Err(Refusal::err("MULTI calls can not be nested"));
        }
        call.reply_ok()
    },
    ..PLAIN
};

pub(super) const EXEC: Spec = Spec {
    name: "exec",
    arity: 1,
    group: "transactions",
    summary: "Ends a transaction, which is refused: none of its commands was carried out.",
    run: |call| {
        if !std::mem::take(&mut call.connection.state.in_transaction) {
            return Err(Refusal::err("EXEC without MULTI"));
        }
        Err(Refusal(format!(
            "EXECABORT the keyspace '{}' has no transactions: none of the commands was carried out; send them without MULTI \
             (redis-py: pipeline(transaction=False))",
            call.connection.state.keyspace
        )))
    },
    ..PLAIN
};

pub(super) const DISCARD: Spec = Spec {
    name: "discard",
    arity: 1,
    group: "transactions",
    summary: "Ends a transaction. None of its commands was carried out.",
    run: |call| {
        if !std::mem::take(&mut call.connection.state.in_transaction) {
            return Err(Refusal::err("DISCARD without MULTI"));
        }
        call.reply_ok()
    },
    ..PLAIN
};

/// Executes a command between `MULTI` and `EXEC`.
pub(crate) fn run_in_transaction(spec: &Spec, call: &mut Call<'_>) -> Result<(), Refusal> {
    match spec.name {
        "multi" | "exec" | "discard" | "quit" | "reset" => spec.run(call),
        name if !spec.takes(call.arguments) => Err(Refusal::arity(name)),
        _ => call.reply(|writer| writer.simple("QUEUED")),
    }
}
