use super::{PLAIN, Spec, check_subcommand, reply_help, unknown_subcommand};
use crate::{call::Call, glob, refusal::Refusal};

pub(super) const CONFIG: Spec = Spec {
    name: "config",
    arity: -2,
    flags: &["loading", "stale"],
    group: "server",
    syntax: "GET pattern [pattern ...]",
    summary: "The configuration of this node.",
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.text(1).to_lowercase().as_str() {
        "get" => {
            check_subcommand(call, "config|get", 3..=usize::MAX)?;
            show(call)
        }
        "set" | "rewrite" => Err(Refusal::unsupported(
            "CONFIG: the configuration is the node's file, and is read at its start",
        )),
        "resetstat" => Err(Refusal::unsupported(
            "CONFIG RESETSTAT: counters are for monitoring and never go back",
        )),
        "help" => reply_help(
            call,
            "CONFIG",
            &[
                "GET <pattern>",
                "    Return parameters matching the glob-like <pattern> and their values.",
            ],
        ),
        _ => Err(unknown_subcommand(call, "CONFIG")),
    }
}

fn show(call: &mut Call<'_>) -> Result<(), Refusal> {
    let mut steps = 1_000_000;
    let patterns: Vec<String> = (2..call.len())
        .map(|place| call.text(place).to_lowercase())
        .collect();
    let mut found = call.backend.config();
    found.retain(|(name, _)| {
        patterns.iter().any(|pattern| {
            glob::matches(pattern.as_bytes(), name.to_lowercase().as_bytes(), &mut steps) == Some(true)
        })
    });
    call.reply(|writer| {
        writer.map(found.len());
        for (name, value) in &found {
            writer.bulk(name.as_bytes());
            writer.bulk(value.as_bytes());
        }
    })
}
