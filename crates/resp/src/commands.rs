//! The commands, one file each, and the table of them.
//!
//! To add one:
//!
//! 1. Copy `strlen.rs`. Say what its arguments are (for the refusal of wrong ones), and whether a transaction can have it.
//! 2. Add its `mod`, and its line in [`COMMANDS`], which is in order. If it reads or writes keys that it does not name, say so in `concerns`.
//! 3. If its reply has a new form, add a variant in `shape.rs`.
//! 4. If Redis has it, take its name out of `unsupported.rs`.
//! 5. Write a script in `tests/goldens`. `UPDATE_GOLDENFILES=1` writes the answers that list all commands (`tests/goldens/server`) again.
//! 6. Add it to the commands that `tests/connection.rs` draws.
//! 7. Name it in `docs/commands.md`. If some keyspaces refuse it, or if it was refused everywhere until now, change `docs/clients.md`, too.
//! 8. If Redis has it, run `make test-valkey-suite SUITE=.. UPDATE=yes`, with a checkout of Valkey: `clients/valkey/expected.txt` lists what is refused.
use crate::{Arguments, By, call::Call, refusal::Refusal};

mod acl;
mod append;
mod auth;
mod bits;
mod client;
mod cluster;
mod command;
mod config;
mod consistency;
mod dbsize;
mod del;
mod echo;
mod element_scan;
mod exists;
mod expire;
mod flushall;
mod flushdb;
mod get;
mod getdel;
mod getex;
mod getrange;
mod getset;
mod hashes;
mod hello;
mod incr;
mod info;
mod keys;
mod keyspace;
mod memory;
mod mget;
mod mset;
mod msetnx;
mod object;
mod observing;
mod ping;
mod publish;
mod pubsub;
mod quit;
mod readonly;
mod receipt;
mod receipts;
mod reset;
mod role;
mod rotx;
mod scan;
mod select;
mod session;
mod set;
mod setex;
mod setnx;
mod sets;
mod siblings;
mod strlen;
mod subscribe;
mod time;
mod transaction;
mod ttl;
mod r#type;
mod unknown;
mod unsupported;
mod wait;
pub(crate) use set::Unit;
pub(crate) use transaction::run_in_transaction;
pub(crate) use unknown::{is_http, run_unknown};

/// The description of a command, and the function that executes it.
pub(crate) struct Spec {
    /// Its name in lower case.
    pub(crate) name: &'static str,
    /// The number of its arguments, its name included. If negative: at least that many.
    pub(crate) arity: i32,
    /// As in `COMMAND INFO`: `readonly`, `write`, `fast`, ...
    pub(crate) flags: &'static [&'static str],
    /// The places of its keys.
    pub(crate) keys: Keys,
    /// Its group, as in `COMMAND DOCS`.
    pub(crate) group: &'static str,
    /// Its arguments, as a refusal of wrong ones shows them.
    pub(crate) syntax: &'static str,
    /// What it does, in one line.
    pub(crate) summary: &'static str,
    /// Whether it waits until all commands before it are answered.
    pub(crate) waits: bool,
    /// When it reads values. Their size is not known before.
    pub(crate) reads: Reads,
    /// Whether a transaction can have it.
    pub(crate) in_transactions: bool,
    /// What it is about, beside its keys.
    pub(crate) concerns: Concerns,
    /// Whether every client may run it, also before it has authenticated.
    pub(crate) is_open: bool,
    pub(crate) run: fn(&mut Call<'_>) -> Result<(), Refusal>,
}

/// What a command is about, beside the keys that it names. The rights of users are checked by this.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Concerns {
    /// No data, or its own keys only.
    Nothing,
    /// The session or the levels of the selected keyspace.
    Keyspace,
    /// All keys of the selected keyspace.
    AllKeys,
    /// All keys of all keyspaces.
    AllKeyspaces,
    /// The session of the selected keyspace, and the channel that is the first argument.
    Publish,
    /// The channels, or the patterns of channels, that are its arguments.
    Channels(By),
}

/// When a command reads values.
#[derive(Clone, Copy)]
pub(crate) enum Reads {
    /// It never reads values.
    Never,
    /// It always reads values.
    Always,
    /// It reads values if this word comes after its key and value.
    With(&'static str),
}

impl Reads {
    /// Whether a command with these arguments reads values.
    #[inline]
    pub(crate) fn reads(self, arguments: &Arguments) -> bool {
        match self {
            Reads::Never => false,
            Reads::Always => true,
            Reads::With(word) => (3..arguments.len()).any(|place| arguments.is(place, word)),
        }
    }
}

/// The places of a command's keys among its arguments, as Redis describes them; all 0 without keys.
#[derive(Clone, Copy)]
pub(crate) struct Keys {
    /// The first key's place.
    pub(crate) first: i32,
    /// The last key's place; negative: counted from the end.
    pub(crate) last: i32,
    /// The distance from one key to the next.
    pub(crate) step: i32,
}

impl Keys {
    pub(crate) const NONE: Keys = Keys::new(0, 0, 0);
    pub(crate) const ONE: Keys = Keys::new(1, 1, 1);
    pub(crate) const SECOND: Keys = Keys::new(2, 2, 1);
    pub(crate) const ALL: Keys = Keys::new(1, -1, 1);
    pub(crate) const PAIRS: Keys = Keys::new(1, -1, 2);

    const fn new(first: i32, last: i32, step: i32) -> Keys {
        Keys { first, last, step }
    }

    /// How many keys a command of `len` arguments has. A level at its end is counted as keys.
    pub(crate) fn count(self, len: usize) -> usize {
        match (self.first, self.last) {
            (0, _) => 0,
            (first, last) if first == last => 1,
            _ => (len - 1) / self.step as usize,
        }
    }

    /// The places of the keys in a command of `len` arguments.
    pub(crate) fn places(self, len: usize) -> impl Iterator<Item = usize> {
        let last = if self.last < 0 {
            len as i32 + self.last
        } else {
            self.last
        };
        let places = if self.first == 0 {
            0..0
        } else {
            self.first..last + 1
        };
        places
            .step_by(self.step.max(1) as usize)
            .map(|place| place as usize)
            // The subcommands of a command may have none: `OBJECT HELP`.
            .filter(move |&place| place < len)
    }
}

/// What most commands have in common: at least a name, no keys, no waiting.
const PLAIN: Spec = Spec {
    name: "",
    arity: -1,
    flags: &["loading", "stale", "fast"],
    keys: Keys::NONE,
    group: "connection",
    syntax: "",
    summary: "",
    waits: false,
    reads: Reads::Never,
    in_transactions: false,
    concerns: Concerns::Nothing,
    is_open: false,
    run: run_unknown,
};

/// How many commands there are.
pub(crate) const COUNT: usize = 110;

/// All commands, by name.
pub(crate) static COMMANDS: &[Spec; COUNT] = &[
    acl::ACL,
    append::APPEND,
    readonly::ASKING,
    auth::AUTH,
    bits::BITCOUNT,
    bits::BITPOS,
    client::CLIENT,
    cluster::CLUSTER,
    command::COMMAND,
    config::CONFIG,
    consistency::CONSISTENCY,
    dbsize::DBSIZE,
    incr::DECR,
    incr::DECRBY,
    del::DEL,
    transaction::DISCARD,
    echo::ECHO,
    transaction::EXEC,
    exists::EXISTS,
    expire::EXPIRE,
    expire::EXPIREAT,
    ttl::EXPIRETIME,
    flushall::FLUSHALL,
    flushdb::FLUSHDB,
    get::GET,
    bits::GETBIT,
    getdel::GETDEL,
    getex::GETEX,
    getrange::GETRANGE,
    getset::GETSET,
    hashes::HDEL,
    hello::HELLO,
    hashes::HEXISTS,
    hashes::HGET,
    hashes::HGETALL,
    hashes::HINCRBY,
    hashes::HINCRBYFLOAT,
    hashes::HKEYS,
    hashes::HLEN,
    hashes::HMGET,
    hashes::HMSET,
    element_scan::HSCAN,
    hashes::HSET,
    hashes::HSETNX,
    hashes::HSTRLEN,
    hashes::HVALS,
    incr::INCR,
    incr::INCRBY,
    incr::INCRBYFLOAT,
    info::INFO,
    keys::KEYS,
    keyspace::KEYSPACE,
    observing::LATENCY,
    memory::MEMORY,
    mget::MGET,
    observing::MODULE,
    mset::MSET,
    msetnx::MSETNX,
    transaction::MULTI,
    object::OBJECT,
    expire::PERSIST,
    expire::PEXPIRE,
    expire::PEXPIREAT,
    ttl::PEXPIRETIME,
    ping::PING,
    setex::PSETEX,
    subscribe::PSUBSCRIBE,
    ttl::PTTL,
    publish::PUBLISH,
    pubsub::PUBSUB,
    subscribe::PUNSUBSCRIBE,
    quit::QUIT,
    readonly::READONLY,
    readonly::READWRITE,
    receipt::RECEIPT,
    receipts::RECEIPTS,
    reset::RESET,
    role::ROLE,
    rotx::ROTX,
    sets::SADD,
    scan::SCAN,
    sets::SCARD,
    sets::SDIFF,
    select::SELECT,
    session::SESSION,
    set::SET,
    setex::SETEX,
    setnx::SETNX,
    append::SETRANGE,
    siblings::SIBLINGS,
    sets::SINTER,
    sets::SISMEMBER,
    observing::SLOWLOG,
    sets::SMEMBERS,
    sets::SMISMEMBER,
    sets::SREM,
    element_scan::SSCAN,
    strlen::STRLEN,
    subscribe::SUBSCRIBE,
    getrange::SUBSTR,
    sets::SUNION,
    time::TIME,
    exists::TOUCH,
    ttl::TTL,
    r#type::TYPE,
    del::UNLINK,
    subscribe::UNSUBSCRIBE,
    transaction::UNWATCH,
    wait::WAIT,
    transaction::WATCH,
];

/// The names of all commands, in order: the places by which [`crate::Backend::begin_command`] tells them apart.
pub fn command_names() -> impl ExactSizeIterator<Item = &'static str> {
    COMMANDS.iter().map(|spec| spec.name)
}

impl Spec {
    /// Its place among all commands.
    pub(crate) fn place(&self) -> usize {
        // Every description is one of the table: `find` is the only way to get one.
        let begin = COMMANDS.as_ptr().addr();
        (std::ptr::from_ref(self).addr() - begin) / size_of::<Spec>()
    }

    /// Executes the command, or refuses it if the number of its arguments is wrong.
    #[inline]
    pub(crate) fn run(&self, call: &mut Call<'_>) -> Result<(), Refusal> {
        if !self.takes(call.arguments) {
            return Err(Refusal::arity(self.name));
        }
        (self.run)(call)
    }

    /// The whole command, as a refusal of wrong arguments shows it: `GET key [AT level]`.
    pub(crate) fn usage(&self) -> String {
        let name = self.name.to_uppercase();
        // A command that has two forms names itself in both.
        let forms = self
            .syntax
            .split(", or ")
            .map(|form| format!("{name} {form}").trim_end().to_owned());
        forms.collect::<Vec<_>>().join(", or ")
    }

    pub(crate) fn takes(&self, arguments: &Arguments) -> bool {
        let wanted = self.arity.unsigned_abs() as usize;
        if self.arity < 0 {
            arguments.len() >= wanted
        } else {
            arguments.len() == wanted
        }
    }
}

/// The longest name of a command, in bytes.
const MAX_NAME_BYTES: usize = 16;

/// The command of that name, in any case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Spec> {
    // A fast path for almost all commands. Setting this bit makes an upper case letter lower case, and makes no other byte one of these letters.
    if let [a, b, c] = *name {
        match &[a | 0x20, b | 0x20, c | 0x20] {
            b"get" => return Some(&COMMANDS[GET]),
            b"set" => return Some(&COMMANDS[SET]),
            _ => {}
        }
    }
    let mut lower = [0; MAX_NAME_BYTES];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    COMMANDS
        .binary_search_by(|spec| spec.name.as_bytes().cmp(&*lower))
        .ok()
        .map(|place| &COMMANDS[place])
}

const GET: usize = place_of(b"get");
const SET: usize = place_of(b"set");

/// The place of a command with a name of three letters.
const fn place_of(name: &[u8; 3]) -> usize {
    let mut place = 0;
    loop {
        if let [a, b, c] = *COMMANDS[place].name.as_bytes()
            && a == name[0]
            && b == name[1]
            && c == name[2]
        {
            return place;
        }
        place += 1;
    }
}

/// The error for a subcommand that does not exist, in the words of Redis.
fn unknown_subcommand(call: &Call<'_>, command: &str) -> Refusal {
    let short: String = call.text(1).chars().take(128).collect();
    Refusal::err(format_args!("unknown subcommand '{short}'. Try {command} HELP."))
}

/// Refuses a subcommand with the wrong number of arguments, in the words of Redis. `len` counts all of them.
fn check_subcommand(
    call: &Call<'_>,
    name: &str,
    len: std::ops::RangeInclusive<usize>,
) -> Result<(), Refusal> {
    if len.contains(&call.len()) {
        Ok(())
    } else {
        Err(Refusal::arity(name))
    }
}

/// The reply of `HELP`, as Redis lays it out.
fn reply_help(call: &mut Call<'_>, command: &str, lines: &[&str]) -> Result<(), Refusal> {
    call.reply(|writer| {
        writer.array(lines.len() + 3);
        writer.simple(&format!(
            "{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
        ));
        for line in lines {
            writer.simple(line);
        }
        writer.simple("HELP");
        writer.simple("    Prints this help.");
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_every_name_is_found_in_any_case() {
        assert!(COMMANDS.is_sorted_by(|one, next| one.name < next.name));
        for spec in COMMANDS {
            assert!(spec.name.len() <= MAX_NAME_BYTES);
            let found = find(spec.name.to_uppercase().as_bytes()).expect("it is in the table");
            assert_eq!(found.name, spec.name);
            assert_eq!(command_names().nth(found.place()), Some(spec.name));
            assert!(
                !spec.summary.is_empty(),
                "{} says nothing about itself",
                spec.name
            );
        }
        assert!(find(b"").is_none() && find(b"nonsense").is_none() && find(&[b'g'; 99]).is_none());
    }
}
