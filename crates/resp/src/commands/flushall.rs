use super::{Concerns, PLAIN, Spec};
use crate::{call::Call, connection::Walk, refusal::Refusal};
use turnbuckle_core::{DoorId, Operation};

pub(super) const FLUSHALL: Spec = Spec {
    name: "flushall",
    arity: -1,
    flags: &["write"],
    group: "server",
    syntax: "[ASYNC | SYNC]",
    summary: "Deletes all keys of all keyspaces, as FLUSHDB does in each of them.",
    waits: true,
    run,
    concerns: Concerns::AllKeyspaces,
    ..PLAIN
};

/// If one of the keyspaces cannot list its keys, nothing is deleted.
fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let has_mode = ["ASYNC", "SYNC"].iter().any(|mode| call.arguments.is(1, mode));
    if call.len() > 1 + usize::from(has_mode) {
        return Err(Refusal::arity("flushall"));
    }
    let mut doors: Vec<(String, DoorId)> = Vec::new();
    for keyspace in call.backend.keyspaces() {
        let door = call.door_to(&keyspace.name)?;
        if let Some(failure) = call.backend.refusal(door, &Operation::Count) {
            return Err(Refusal::unsupported(format_args!(
                "FLUSHALL: the keyspace '{}' cannot list its keys: {failure}; FLUSHDB deletes those of the selected keyspace",
                keyspace.name
            )));
        }
        doors.push((keyspace.name, door));
    }
    let frame_bytes = call.arguments.frame_bytes();
    call.connection
        .begin_walk(Walk::delete_all(doors), frame_bytes, call.backend);
    Ok(())
}
