use super::{PLAIN, Spec};
use crate::{Keyspace, call::Call, number::parse_integer, refusal::Refusal};

pub(super) const SELECT: Spec = Spec {
    name: "select",
    arity: 2,
    syntax: "keyspace | number",
    summary: "Chooses a keyspace by its name or number; 0 is the one that the connection began in. The session of each keyspace is kept.",
    waits: true,
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (keyspace, db) = resolve(call)?;
    call.connection.check_keyspace(&keyspace, call.backend)?;
    if keyspace == call.connection.state.keyspace {
        // Clients select their keyspace again whenever they take a connection from their pool.
        return call.reply_ok();
    }
    call.enter(keyspace, db)?;
    call.reply_ok()
}

/// The keyspace that is meant, and its number. No keyspace is named like a number.
fn resolve(call: &Call<'_>) -> Result<(String, Option<u16>), Refusal> {
    let asked = call.text(1).into_owned();
    let keyspaces = call.backend.keyspaces();
    let number = parse_integer(call.arguments.at(1));
    if let Some(known) = keyspaces.iter().find(|known| known.name == asked) {
        return Ok((asked, known.db));
    }
    if number == Some(0) {
        return Ok((call.connection.greeting.keyspace.clone(), Some(0)));
    }
    let has_number = |known: &&Keyspace| known.db.is_some() && known.db.map(i64::from) == number;
    if let Some(known) = keyspaces.iter().find(has_number) {
        return Ok((known.name.clone(), known.db));
    }
    let mut refusal = call.no_keyspace(&asked);
    if number.is_some() {
        refusal.0 += ". Keyspaces have names; 0 is the default, and others have the number that the configuration gives them (`db = 1`)";
    }
    Err(refusal)
}
