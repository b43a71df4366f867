use super::{PLAIN, Spec};

pub(super) const TIME: Spec = Spec {
    name: "time",
    arity: 1,
    group: "server",
    summary: "The clock of this node: seconds since 1970, and microseconds of the second.",
    run: |call| {
        let now = call.backend.wall_time().0;
        call.reply(|writer| {
            writer.array(2);
            writer.bulk((now / 1_000_000).to_string().as_bytes());
            writer.bulk((now % 1_000_000).to_string().as_bytes());
        })
    },
    in_transactions: true,
    ..PLAIN
};
