//! Well-known commands of Redis that Turnbuckle does not have. The refusal has their name and a reason, so that the user does not look for a spelling
//! mistake.
use crate::refusal::Refusal;

/// Refuses the command if it is one of these.
pub(super) fn check(name: &[u8]) -> Result<(), Refusal> {
    let upper = name.to_ascii_uppercase();
    for (names, why) in UNSUPPORTED {
        if let Some(name) = names.iter().find(|name| name.as_bytes() == upper) {
            return Err(Refusal::unsupported(format_args!("{name}: {why}")));
        }
    }
    match OTHER_TYPES.iter().find(|name| name.as_bytes() == upper) {
        Some(name) => Err(Refusal::unsupported(format_args!("{name}: {NO_ORDER}"))),
        None => Ok(()),
    }
}

const NO_STEP: &str = "read the value, and write it with SET .. IF VERSION or between WATCH and EXEC, which keyspaces of kind consensus take";
const NO_ORDER: &str = "values are strings, hashes and sets; there is no type with an order, because sites that write at the same time would order it differently: \
     keep the elements in a hash or a set";

const UNSUPPORTED: [(&[&str], &str); 16] = [
    (
        &["DEBUG", "SHUTDOWN"],
        "this command is about the internals of Redis, and those of Turnbuckle differ",
    ),
    (&["COPY", "RENAME", "RENAMENX", "SETBIT"], NO_STEP),
    (
        &["BITFIELD_RO", "LCS"],
        "values are read with GET, GETRANGE, GETBIT, BITCOUNT and BITPOS",
    ),
    (
        &[
            "BITFIELD", "BITOP", "DUMP", "MIGRATE", "RESTORE", "SORT", "SORT_RO",
        ],
        "values are read with GET and written with SET; the server does not compute with them",
    ),
    (
        &["HRANDFIELD", "SPOP", "SRANDMEMBER"],
        "elements are not drawn at random; HKEYS and SMEMBERS list them, HDEL and SREM remove them",
    ),
    (
        &["SDIFFSTORE", "SINTERSTORE", "SMOVE", "SUNIONSTORE"],
        "a command writes the elements of one key, and only those that it names; read with SDIFF, SINTER, SUNION or SMEMBERS, and write with SADD and SREM",
    ),
    (
        &["SINTERCARD"],
        "SINTER returns the members, which can be counted",
    ),
    (
        &[
            "HEXPIRE",
            "HEXPIREAT",
            "HEXPIRETIME",
            "HGETEX",
            "HPERSIST",
            "HPEXPIRE",
            "HPEXPIREAT",
            "HPEXPIRETIME",
            "HPTTL",
            "HSETEX",
            "HTTL",
        ],
        "a field does not expire alone; EXPIRE is about the whole hash",
    ),
    (&["HGETDEL"], "HGET reads a field, and HDEL removes it"),
    (
        &["PFADD", "PFCOUNT", "PFMERGE"],
        "there are no HyperLogLogs; a set counts its members: SADD, SCARD",
    ),
    (&["RANDOMKEY"], "keys are not drawn at random; SCAN lists them"),
    (&["SWAPDB", "MOVE"], "a command is about the keys of one keyspace"),
    (
        &[
            "EVAL",
            "EVALSHA",
            "EVALSHA_RO",
            "EVAL_RO",
            "FCALL",
            "FCALL_RO",
            "FUNCTION",
            "SCRIPT",
        ],
        "no keyspace has scripts; keyspaces of kind consensus have transactions: WATCH, MULTI, EXEC",
    ),
    (
        &["SPUBLISH", "SSUBSCRIBE", "SUNSUBSCRIBE"],
        "channels are not sharded; SUBSCRIBE and PUBLISH",
    ),
    (&["MONITOR"], "no connection is shown what others send"),
    (
        &[
            "BGREWRITEAOF",
            "BGSAVE",
            "FAILOVER",
            "LASTSAVE",
            "PSYNC",
            "REPLICAOF",
            "SAVE",
            "SLAVEOF",
            "SYNC",
            "WAITAOF",
        ],
        "replication and durability are set for each keyspace in the configuration; WAIT tells how many sites have what was written",
    ),
];

/// The commands of Redis's lists, sorted sets and streams, and those of places, which are sorted sets.
const OTHER_TYPES: [&str; 80] = [
    "BLMOVE",
    "BLMPOP",
    "BLPOP",
    "BRPOP",
    "BRPOPLPUSH",
    "BZMPOP",
    "BZPOPMAX",
    "BZPOPMIN",
    "GEOADD",
    "GEODIST",
    "GEOHASH",
    "GEOPOS",
    "GEORADIUS",
    "GEORADIUSBYMEMBER",
    "GEOSEARCH",
    "GEOSEARCHSTORE",
    "HEXPIRE",
    "LINDEX",
    "LINSERT",
    "LLEN",
    "LMOVE",
    "LMPOP",
    "LPOP",
    "LPOS",
    "LPUSH",
    "LPUSHX",
    "LRANGE",
    "LREM",
    "LSET",
    "LTRIM",
    "RPOP",
    "RPOPLPUSH",
    "RPUSH",
    "RPUSHX",
    "XACK",
    "XADD",
    "XAUTOCLAIM",
    "XCLAIM",
    "XDEL",
    "XGROUP",
    "XINFO",
    "XLEN",
    "XPENDING",
    "XRANGE",
    "XREAD",
    "XREADGROUP",
    "XREVRANGE",
    "XTRIM",
    "ZADD",
    "ZCARD",
    "ZCOUNT",
    "ZDIFF",
    "ZDIFFSTORE",
    "ZINCRBY",
    "ZINTER",
    "ZINTERCARD",
    "ZINTERSTORE",
    "ZLEXCOUNT",
    "ZMPOP",
    "ZMSCORE",
    "ZPOPMAX",
    "ZPOPMIN",
    "ZRANDMEMBER",
    "ZRANGE",
    "ZRANGEBYLEX",
    "ZRANGEBYSCORE",
    "ZRANGESTORE",
    "ZRANK",
    "ZREM",
    "ZREMRANGEBYLEX",
    "ZREMRANGEBYRANK",
    "ZREMRANGEBYSCORE",
    "ZREVRANGE",
    "ZREVRANGEBYLEX",
    "ZREVRANGEBYSCORE",
    "ZREVRANK",
    "ZSCAN",
    "ZSCORE",
    "ZUNION",
    "ZUNIONSTORE",
];
