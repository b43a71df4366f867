use super::{Concerns, PLAIN, Spec, keyspace::described};
use crate::connection::Walk;

pub(super) const KEYS: Spec = Spec {
    name: "keys",
    arity: 2,
    flags: &["readonly"],
    group: "generic",
    syntax: "pattern",
    summary: "All keys that match a pattern, in a keyspace of at most 100000 keys. SCAN lists the keys of larger ones.",
    waits: true,
    run: |call| {
        let door = call.door()?;
        let pattern = call.key(1)?.0;
        let frame_bytes = call.arguments.frame_bytes();
        let partitions = described(call, &call.connection.state.keyspace)?.partitions;
        let walk = Walk::list(door, pattern, partitions, &call.connection.greeting.limits);
        call.connection.begin_walk(walk, frame_bytes, call.backend);
        Ok(())
    },
    concerns: Concerns::AllKeys,
    ..PLAIN
};
