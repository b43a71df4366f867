use super::{
    PLAIN, Spec,
    keyspace::{described, write_levels},
    reply_help,
};
use crate::{call::Call, refusal::Refusal};
use std::mem::discriminant;
use turnbuckle_core::Level;

pub(super) const CONSISTENCY: Spec = Spec {
    name: "consistency",
    summary: "The connection's levels: CONSISTENCY [LIST | HELP | [READ level|DEFAULT] [WRITE level|DEFAULT]].",
    waits: true,
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.len() {
        1 => show(call),
        2 if call.arguments.is(1, "LIST") => {
            let levels = described(call, &call.connection.state.keyspace)?.levels;
            call.reply(|writer| write_levels(&levels, writer))
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
    let read = call.connection.state.read.unwrap_or(keyspace.read);
    let write = call.connection.state.write.unwrap_or(keyspace.write);
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
    let offered = described(call, &call.connection.state.keyspace)?.levels;
    let (mut read, mut write) = (call.connection.state.read, call.connection.state.write);
    for place in (1..call.len()).step_by(2) {
        let changed = if call.arguments.is(place, "READ") {
            &mut read
        } else if call.arguments.is(place, "WRITE") {
            &mut write
        } else {
            return Err(usage());
        };
        *changed = if call.arguments.is(place + 1, "DEFAULT") {
            None
        } else {
            Some(offered_level(call.level(place + 1)?, &offered)?)
        };
    }
    // Nothing is changed before everything is understood.
    call.connection.state.read = read;
    call.connection.state.write = write;
    call.reply_ok()
}

/// Refuses here and now what every later operation would be refused for. A level with an argument is offered with any.
fn offered_level(level: Level, offered: &[Level]) -> Result<Level, Refusal> {
    if offered
        .iter()
        .any(|known| discriminant(known) == discriminant(&level))
    {
        return Ok(level);
    }
    Err(Refusal::level_not_offered(level, offered))
}
