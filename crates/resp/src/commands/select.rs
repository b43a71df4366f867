use super::{PLAIN, Spec};
use crate::{call::Call, number::parse_integer, refusal::Refusal};

pub(super) const SELECT: Spec = Spec {
    name: "select",
    arity: 2,
    summary: "Chooses a keyspace by name; 0 is the one that the connection began in. The session of each keyspace is kept.",
    waits: true,
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let keyspace = resolve(call)?;
    if keyspace == call.connection.state.keyspace {
        // Clients select their keyspace again whenever they take a connection from their pool.
        return call.reply_ok();
    }
    call.enter(keyspace)?;
    call.reply_ok()
}

/// The keyspace that is meant. If a keyspace is named like a number, the name comes first.
fn resolve(call: &Call<'_>) -> Result<String, Refusal> {
    let asked = call.text(1).into_owned();
    let is_known = call.backend.keyspaces().iter().any(|known| known.name == asked);
    match parse_integer(call.arguments.at(1)) {
        _ if is_known => Ok(asked),
        Some(0) => Ok(call.connection.greeting.keyspace.clone()),
        Some(_) => {
            let mut refusal = call.no_keyspace(&asked);
            refusal.0 += ". Keyspaces have names; the only number is 0, for the default";
            Err(refusal)
        }
        None => Err(call.no_keyspace(&asked)),
    }
}
