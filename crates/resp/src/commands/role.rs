use super::{PLAIN, Spec};

pub(super) const ROLE: Spec = Spec {
    name: "role",
    arity: 1,
    flags: &["loading", "stale", "fast"],
    group: "server",
    summary: "Always a master without replicas, in the words of Redis: every node takes writes.",
    run: |call| {
        call.reply(|writer| {
            writer.array(3);
            writer.bulk(b"master");
            writer.integer(0);
            writer.array(0);
        })
    },
    in_transactions: true,
    ..PLAIN
};
