use super::{PLAIN, Spec, check_subcommand, reply_help, unknown_subcommand};
use crate::{Keyspace, Writer, call::Call, refusal::Refusal};
use turnbuckle_core::Levels;

pub(super) const KEYSPACE: Spec = Spec {
    name: "keyspace",
    arity: -2,
    group: "server",
    syntax: "LIST | INFO [name]",
    summary: "The keyspaces there are.",
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.text(1).to_lowercase().as_str() {
        "list" => {
            check_subcommand(call, "keyspace|list", 2..=2)?;
            let mut keyspaces = call.backend.keyspaces();
            keyspaces.retain(|keyspace| call.connection.may_access(&keyspace.name));
            call.reply(|writer| {
                writer.array(keyspaces.len());
                for keyspace in keyspaces {
                    writer.bulk(keyspace.name.as_bytes());
                }
            })
        }
        "info" => {
            check_subcommand(call, "keyspace|info", 2..=3)?;
            let name = if call.len() == 3 {
                call.text(2).into_owned()
            } else {
                call.connection.state.keyspace.clone()
            };
            call.connection.check_keyspace(&name, call.backend)?;
            let keyspace = described(call, &name)?;
            call.reply(|writer| write_info(&keyspace, writer))
        }
        "help" => reply_help(
            call,
            "KEYSPACE",
            &[
                "LIST",
                "    Return the names of all keyspaces; SELECT <name> chooses one.",
                "INFO [<name>]",
                "    Return how a keyspace replicates and what it offers; the selected one without name.",
            ],
        ),
        _ => Err(unknown_subcommand(call, "KEYSPACE")),
    }
}

/// The keyspace of that name.
pub(super) fn described(call: &Call<'_>, name: &str) -> Result<Keyspace, Refusal> {
    let found = call
        .backend
        .keyspaces()
        .into_iter()
        .find(|known| known.name == name);
    found.ok_or_else(|| call.no_keyspace(name))
}

pub(super) fn write_levels(levels: Levels, writer: &mut Writer<'_>) {
    writer.array(levels.all().count());
    for level in levels.all() {
        writer.bulk(level.form().as_bytes());
    }
}

fn write_info(keyspace: &Keyspace, writer: &mut Writer<'_>) {
    writer.map(7 + usize::from(keyspace.db.is_some()) + keyspace.details.len());
    let text = |writer: &mut Writer<'_>, name: &str, value: &str| {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    };
    text(writer, "name", &keyspace.name);
    text(writer, "kind", &keyspace.kind);
    text(writer, "protocol", &keyspace.protocol);
    writer.bulk(b"levels");
    write_levels(keyspace.levels.offered, writer);
    text(writer, "read", &keyspace.levels.read.to_string());
    text(writer, "write", &keyspace.levels.write.to_string());
    if let Some(db) = keyspace.db {
        writer.bulk(b"db");
        writer.integer(i64::from(db));
    }
    writer.bulk(b"partitions");
    writer.integer(i64::from(keyspace.partitions));
    for (name, value) in &keyspace.details {
        text(writer, name, value);
    }
}
