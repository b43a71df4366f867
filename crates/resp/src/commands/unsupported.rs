//! Well-known commands of Redis that Turnbuckle does not have. They are refused by name and reason, so that nobody
//! looks for a spelling mistake.
use crate::refusal::Refusal;

/// Refuses the command if it is one of these.
pub(super) fn check(name: &[u8]) -> Result<(), Refusal> {
    let upper = name.to_ascii_uppercase();
    for (names, why) in UNSUPPORTED {
        if let Some(name) = names.iter().find(|name| name.as_bytes() == upper) {
            return Err(Refusal::unsupported(format_args!("{name}: {why}")));
        }
    }
    Ok(())
}

const UNSUPPORTED: [(&[&str], &str); 9] = [
    (
        &[
            "ACL", "DEBUG", "LATENCY", "MEMORY", "MODULE", "OBJECT", "SHUTDOWN", "SLOWLOG", "TOUCH",
        ],
        "this is for the inside of Redis, and the inside of Turnbuckle is another",
    ),
    (
        &[
            "EXPIRE",
            "EXPIREAT",
            "EXPIRETIME",
            "GETEX",
            "PERSIST",
            "PEXPIRE",
            "PEXPIREAT",
            "PEXPIRETIME",
            "PTTL",
            "TTL",
        ],
        "no keyspace tells or changes the expiry of a value that is already written",
    ),
    (&["MSETNX"], "no keyspace takes a condition on several keys"),
    (
        &[
            "APPEND",
            "COPY",
            "DECR",
            "DECRBY",
            "INCR",
            "INCRBY",
            "INCRBYFLOAT",
            "RENAME",
            "RENAMENX",
            "SETBIT",
            "SETRANGE",
        ],
        "reading and writing in one step is not in this kind of keyspace yet",
    ),
    (
        &["KEYS", "RANDOMKEY"],
        "it would look at every key at once; SCAN lists them some at a time",
    ),
    (
        &["FLUSHALL", "FLUSHDB", "SWAPDB", "MOVE"],
        "keyspaces are replicated between sites and cannot be emptied or swapped at once; delete keys with DEL",
    ),
    (
        &[
            "DISCARD", "EXEC", "MULTI", "UNWATCH", "WATCH", "EVAL", "EVALSHA", "FCALL", "SCRIPT",
        ],
        "transactions are not in this kind of keyspace yet",
    ),
    (
        &[
            "PSUBSCRIBE",
            "PUBLISH",
            "PUBSUB",
            "SSUBSCRIBE",
            "SUBSCRIBE",
            "UNSUBSCRIBE",
            "MONITOR",
        ],
        "there are no messages, only keys",
    ),
    (
        &[
            "BGREWRITEAOF",
            "BGSAVE",
            "FAILOVER",
            "LASTSAVE",
            "PSYNC",
            "REPLICAOF",
            "ROLE",
            "SAVE",
            "SLAVEOF",
            "SYNC",
            "WAIT",
            "WAITAOF",
        ],
        "replication and durability are set for each keyspace in the configuration",
    ),
];
