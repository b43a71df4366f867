use super::{
    Concerns, PLAIN, Spec,
    keyspace::{described, write_levels},
    reply_help,
};
use crate::{call::Call, refusal::Refusal};

pub(super) const CONSISTENCY: Spec = Spec {
    name: "consistency",
    syntax: "[LIST | HELP | [READ level|DEFAULT] [WRITE level|DEFAULT]]",
    summary: "The levels at which the connection reads and writes.",
    waits: true,
    run,
    concerns: Concerns::Keyspace,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.len() {
        1 => show(call),
        2 if call.arguments.is(1, "LIST") => {
            let levels = described(call, &call.connection.state.keyspace)?.levels;
            call.reply(|writer| write_levels(levels.offered, writer))
        }
        2 if call.arguments.is(1, "HELP") => help(call),
        _ => change(call),
    }
}

fn usage() -> Refusal {
    Refusal::usage("CONSISTENCY [LIST | HELP | [READ level|DEFAULT] [WRITE level|DEFAULT]]")
}

fn help(call: &mut Call<'_>) -> Result<(), Refusal> {
    reply_help(
        call,
        "CONSISTENCY",
        &[
            "(no subcommand)",
            "    Return the keyspace and the levels of this connection's reads and writes that name none.",
            "LIST",
            "    Return the levels that the keyspace offers, its own default first.",
            "READ <level>|DEFAULT [WRITE <level>|DEFAULT]",
            "    Set the level of reads that name none, until another keyspace is selected. DEFAULT is the keyspace's own.",
            "WRITE <level>|DEFAULT [READ <level>|DEFAULT]",
            "    Set the level of writes that name none, likewise.",
        ],
    )
}

fn show(call: &mut Call<'_>) -> Result<(), Refusal> {
    let keyspace = described(call, &call.connection.state.keyspace)?;
    let state = &call.connection.state;
    let read = state.read.clone().unwrap_or(keyspace.levels.read.into());
    let write = state.write.clone().unwrap_or(keyspace.levels.write.into());
    call.reply(|writer| {
        writer.map(3);
        for (name, value) in [
            ("keyspace", keyspace.name),
            ("read", read.to_string()),
            ("write", write.to_string()),
        ] {
            writer.bulk(name.as_bytes());
            writer.bulk(value.as_bytes());
        }
    })
}

fn change(call: &mut Call<'_>) -> Result<(), Refusal> {
    if call.len().is_multiple_of(2) {
        return Err(usage());
    }
    let levels = described(call, &call.connection.state.keyspace)?.levels;
    let state = &call.connection.state;
    let (mut read, mut write) = (state.read.clone(), state.write.clone());
    for place in (1..call.len()).step_by(2) {
        // Each of the two words may be given once.
        if place > 3 || (place > 1 && call.arguments.is(place, &call.text(1))) {
            return Err(usage());
        }
        let (changed, is_write) = if call.arguments.is(place, "READ") {
            (&mut read, false)
        } else if call.arguments.is(place, "WRITE") {
            (&mut write, true)
        } else {
            return Err(usage());
        };
        *changed = if call.arguments.is(place + 1, "DEFAULT") {
            None
        } else {
            // If every later operation would be refused at this level, the level is refused now.
            let wanted = call.level(place + 1)?;
            let checked = levels.check(&wanted, is_write);
            checked.map_err(|failure| Refusal::from(&failure))?;
            Some(wanted)
        };
    }
    // Nothing is changed before the whole command is understood.
    call.connection.state.read = read;
    call.connection.state.write = write;
    call.reply_ok()
}
