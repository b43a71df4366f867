use super::{Keys, PLAIN, Reads, Spec, check_subcommand, reply_help, unknown_subcommand};
use crate::part::Part;
use crate::{call::Call, refusal::Refusal, shape::Shape};
use turnbuckle_core::Operation;

pub(super) const MEMORY: Spec = Spec {
    name: "memory",
    arity: -2,
    flags: &["readonly"],
    keys: Keys::SECOND,
    group: "server",
    syntax: "USAGE key [SAMPLES count] [AT level]",
    summary: "How many bytes a key and its value have. What the store needs beside them is not counted.",
    reads: Reads::Always,
    run,
    in_transactions: true,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.text(1).to_lowercase().as_str() {
        "usage" => usage(call),
        "doctor" | "malloc-stats" | "purge" | "stats" => Err(Refusal::unsupported(
            "MEMORY: only USAGE is here; INFO memory and the node's metrics show its memory",
        )),
        "help" => reply_help(
            call,
            "MEMORY",
            &[
                "USAGE <key> [SAMPLES <count>]",
                "    Return how many bytes the key and its value have. SAMPLES does nothing: all elements are counted.",
            ],
        ),
        _ => Err(unknown_subcommand(call, "MEMORY")),
    }
}

fn usage(call: &mut Call<'_>) -> Result<(), Refusal> {
    check_subcommand(call, "memory|usage", 3..=7)?;
    let has_samples = call.len() > 4 && call.arguments.is(3, "SAMPLES");
    if has_samples && call.integer(4)? < 0 {
        return Err(Refusal::usage(&format!("MEMORY {}", MEMORY.syntax)));
    }
    let level = call.level_behind(if has_samples { 5 } else { 3 }, "memory|usage")?;
    let key = call.key(2)?;
    let part = Part::Size { key: key.0.len() };
    let get = Operation::get(key).wanting(call.read_level(level));
    call.operate(Shape::Part(part), get)
}
