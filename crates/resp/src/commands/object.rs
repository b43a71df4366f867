use super::{Keys, PLAIN, Reads, Spec, check_subcommand, reply_help, unknown_subcommand};
use crate::part::Part;
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::Operation;

pub(super) const OBJECT: Spec = Spec {
    name: "object",
    arity: -2,
    flags: &["readonly"],
    keys: Keys::SECOND,
    group: "generic",
    syntax: "ENCODING | REFCOUNT key [AT level]",
    summary: "How Redis would hold the value of a key.",
    reads: Reads::Always,
    run,
    in_transactions: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.text(1).to_lowercase().as_str() {
        "encoding" => about_key(call, "object|encoding", Part::Encoding),
        "refcount" => about_key(call, "object|refcount", Part::One),
        "freq" => {
            check_subcommand(call, "object|freq", 3..=3)?;
            Err(Refusal::err(
                "An LFU maxmemory policy is not selected, access frequency not tracked. No keyspace evicts keys.",
            ))
        }
        "idletime" => Err(Refusal::unsupported(
            "OBJECT IDLETIME: it is not noted when a key was last used",
        )),
        "help" => reply_help(call, "OBJECT", &HELP),
        _ => Err(unknown_subcommand(call, "OBJECT")),
    }
}

fn about_key(call: &mut Call<'_>, name: &str, part: Part) -> Result<(), Refusal> {
    check_subcommand(call, name, 3..=5)?;
    let level = call.level_behind(3, name)?;
    let get = Operation::get(call.key(2)?).wanting(call.read_level(level));
    call.operate(Shape::Part(part), get)
}

const HELP: [&str; 6] = [
    "ENCODING <key>",
    "    Return how Redis would hold the value: int, embstr, raw or hashtable.",
    "REFCOUNT <key>",
    "    Return 1 for every key that has a value.",
    "FREQ <key>",
    "    Return an error, as Redis does without an LFU policy: no keyspace evicts keys.",
];
