//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH`: see [`crate::transaction`].
//!
//! In a keyspace without transactions `MULTI` is accepted as well, and the commands after it are answered `QUEUED`. `EXEC` refuses all of them and names the reason.
//! **None of them is carried out**, whether the client waits for each answer or sends everything at once. If `MULTI` itself were refused, the server could not
//! distinguish two clients: one that sent its transaction at once, and one that has read the refusal and goes on. Either a part of a transaction would be carried
//! out, or the connection could not be used any more.
use super::{Keys, PLAIN, Spec};
use crate::transaction::Queue;
use crate::{call::Call, refusal::Refusal};
use turnbuckle_core::{Key, Transaction, Transactions};

pub(super) const MULTI: Spec = Spec {
    name: "multi",
    arity: 1,
    group: "transactions",
    summary: "Begins a transaction: the commands until EXEC are carried out as one. Their keys must be in one partition.",
    run: |call| {
        if call.connection.state.transaction.is_some() {
            return Err(Refusal::err("MULTI calls can not be nested"));
        }
        call.connection.state.transaction = Some(Queue::default());
        call.reply_ok()
    },
    ..PLAIN
};

pub(super) const EXEC: Spec = Spec {
    name: "exec",
    arity: 1,
    group: "transactions",
    summary: "Carries out the commands since MULTI, all or none. The reply is null, and nothing was carried out, if a watched key was changed.",
    waits: true,
    run: exec,
    ..PLAIN
};

fn exec(call: &mut Call<'_>) -> Result<(), Refusal> {
    let state = &mut call.connection.state;
    let Some(queue) = state.transaction.take() else {
        return Err(Refusal::err("EXEC without MULTI"));
    };
    let watched = std::mem::take(&mut state.watched);
    let aborted = |why: &str| Err(Refusal(format!("EXECABORT {why}")));
    if call.transactions()? == Transactions::None {
        return aborted(&format!(
            "the keyspace '{}' has no transactions: none of the commands was carried out; send them without MULTI \
             (redis-py: pipeline(transaction=False))",
            call.connection.state.keyspace
        ));
    }
    if let Some(why) = queue.broken() {
        return aborted(&format!(
            "Transaction discarded because of previous errors: {why}"
        ));
    }
    match watched.into_conditions() {
        Err(why) => aborted(&format!("Transaction discarded because WATCH failed: {why}")),
        Ok(conditions) => {
            let bytes = queue.held_bytes();
            let (shape, operation) = queue.into_operation(conditions);
            call.operate_holding(shape, operation, bytes)
        }
    }
}

pub(super) const DISCARD: Spec = Spec {
    name: "discard",
    arity: 1,
    group: "transactions",
    summary: "Ends a transaction. None of its commands is carried out, and no key is watched any more.",
    waits: true,
    run: |call| {
        let state = &mut call.connection.state;
        if state.transaction.take().is_none() {
            return Err(Refusal::err("DISCARD without MULTI"));
        }
        state.watched = Default::default();
        call.reply_ok()
    },
    ..PLAIN
};

pub(super) const WATCH: Spec = Spec {
    name: "watch",
    arity: -2,
    flags: &["noscript", "loading", "stale", "fast"],
    keys: Keys::ALL,
    group: "transactions",
    summary: "Watches keys: the next transaction is carried out only if none of them has changed by then.",
    syntax: "key [key ...]",
    waits: true,
    run: watch,
    ..PLAIN
};

fn watch(call: &mut Call<'_>) -> Result<(), Refusal> {
    if call.connection.state.transaction.is_some() {
        return Err(Refusal::err("WATCH inside MULTI is not allowed"));
    }
    let what = match call.transactions()? {
        Transactions::All => None,
        Transactions::None => Some("transactions"),
        Transactions::WithoutConditions => Some("transactions with conditions"),
    };
    if let Some(what) = what {
        return Err(Refusal::unsupported(format_args!(
            "WATCH: the keyspace '{}' has no {what}",
            call.connection.state.keyspace
        )));
    }
    if call.level_at_end(1)?.0.is_some() {
        return Err(Refusal::usage(
            "WATCH key [key ...]: its reads are at linearizable, and it takes no level",
        ));
    }
    let mut keys: Vec<Key> = Vec::new();
    for place in 1..call.len() {
        let key = call.key(place)?;
        // Whoever watches a key twice means the first time.
        if !call.connection.state.watched.watches(&key) && !keys.contains(&key) {
            keys.push(key);
        }
    }
    let count = call.connection.state.watched.len() + keys.len();
    if count > Transaction::MAX {
        return Err(Refusal(format!(
            "TOOBIG {count} keys would be watched; at most {} are possible",
            Transaction::MAX
        )));
    }
    match keys.is_empty() {
        true => call.reply_ok(),
        false => call.watch(keys),
    }
}

pub(super) const UNWATCH: Spec = Spec {
    name: "unwatch",
    arity: 1,
    group: "transactions",
    summary: "Watches no key any more. Between MULTI and EXEC it changes nothing.",
    in_transactions: true,
    waits: true,
    run: |call| {
        if !call.is_queued {
            call.connection.state.watched = Default::default();
        }
        call.reply_ok()
    },
    ..PLAIN
};

/// Executes a command between `MULTI` and `EXEC`: it is parsed, and kept.
pub(crate) fn run_in_transaction(spec: &Spec, call: &mut Call<'_>) -> Result<(), Refusal> {
    match spec.name {
        "multi" | "exec" | "discard" | "quit" | "reset" | "watch" => spec.run(call),
        name if !spec.takes(call.arguments) => Err(Refusal::arity(name)),
        // Nothing will be carried out.
        _ if call.transactions()? == Transactions::None || call.is_transaction_broken() => {
            call.reply_queued()
        }
        _ if spec.in_transactions => {
            call.is_queued = true;
            (spec.run)(call)
        }
        name => Err(Refusal::err(format_args!(
            "'{name}' cannot be used between MULTI and EXEC"
        ))),
    }
}
