use super::{Concerns, PLAIN, Spec};
use crate::{call::Call, connection::Walk, refusal::Refusal};

pub(super) const FLUSHDB: Spec = Spec {
    name: "flushdb",
    arity: -1,
    flags: &["write"],
    group: "server",
    syntax: "[ASYNC | SYNC] [AT level]",
    summary: "Deletes all keys of the keyspace, one by one. Writes that are made meanwhile may survive.",
    waits: true,
    run,
    concerns: Concerns::AllKeys,
    ..PLAIN
};

/// With `ASYNC` it waits, too: a reply means that all keys are deleted.
fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let has_mode = call.len() > 1 && ["ASYNC", "SYNC"].iter().any(|mode| call.arguments.is(1, mode));
    let level = call.level_behind(1 + usize::from(has_mode), "flushdb")?;
    let level = call.write_level(level);
    // Checked here, because an empty keyspace has no delete that would be refused.
    call.check_write_level(level.as_ref())?;
    let door = call.door()?;
    let frame_bytes = call.arguments.frame_bytes();
    call.connection
        .begin_walk(Walk::delete(door, level), frame_bytes, call.backend);
    Ok(())
}
