use super::subscribe::channels;
use super::{Concerns, PLAIN, Spec, check_subcommand, reply_help, unknown_subcommand};
use crate::shape::{MATCH_STEPS, REPLY_BYTES, check_reply, matching};
use crate::{call::Call, refusal::Refusal};

pub(super) const PUBSUB: Spec = Spec {
    name: "pubsub",
    arity: -2,
    flags: &["pubsub", "loading", "stale"],
    group: "pubsub",
    syntax: "CHANNELS | NUMSUB | NUMPAT [argument ...]",
    summary: "Which channels clients of this node listen to.",
    waits: true,
    run,
    concerns: Concerns::AllKeys,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    match call.text(1).to_lowercase().as_str() {
        "channels" => {
            check_subcommand(call, "pubsub|channels", 2..=3)?;
            list(call)
        }
        "numsub" => count(call),
        "numpat" => {
            check_subcommand(call, "pubsub|numpat", 2..=2)?;
            let patterns = channels(call, &PUBSUB)?.count_patterns();
            call.reply(|writer| writer.integer(i64::try_from(patterns).unwrap_or(i64::MAX)))
        }
        "shardchannels" | "shardnumsub" => Err(Refusal::unsupported(format_args!(
            "PUBSUB {}: channels are not sharded; PUBSUB CHANNELS and PUBSUB NUMSUB",
            call.text(1).to_uppercase()
        ))),
        "help" => reply_help(call, "PUBSUB", &HELP),
        _ => Err(unknown_subcommand(call, "PUBSUB")),
    }
}

fn list(call: &mut Call<'_>) -> Result<(), Refusal> {
    let pattern = match call.len() {
        3 => Some(call.key(2)?.0),
        _ => None,
    };
    let names = channels(call, &PUBSUB)?.names();
    let mut steps = MATCH_STEPS;
    let found = matching(names, pattern.as_deref(), &mut steps)?;
    let bytes = found.iter().map(|name| name.len() + REPLY_BYTES).sum();
    check_reply(bytes, &call.connection.greeting.limits)?;
    if !call.connection.has_room_again(bytes, call.backend) {
        return Ok(());
    }
    call.reply(|writer| {
        writer.array(found.len());
        found.iter().for_each(|name| writer.bulk(name));
    })
}

/// Each channel, and how many clients of this node listen to it by its name.
fn count(call: &mut Call<'_>) -> Result<(), Refusal> {
    let channels = channels(call, &PUBSUB)?;
    let arguments = call.arguments;
    let names = || arguments.iter().skip(2);
    let bytes = names().map(|name| name.len() + 2 * REPLY_BYTES).sum();
    check_reply(bytes, &call.connection.greeting.limits)?;
    if !call.connection.has_room_again(bytes, call.backend) {
        return Ok(());
    }
    call.reply(|writer| {
        writer.array(2 * (arguments.len() - 2));
        for name in names() {
            writer.bulk(name);
            writer.integer(i64::try_from(channels.count_by_name(name)).unwrap_or(i64::MAX));
        }
    })
}

const HELP: [&str; 6] = [
    "CHANNELS [<pattern>]",
    "    Return the channels that clients of this node listen to by name and that match a <pattern> (default: '*').",
    "NUMPAT",
    "    Return how many different patterns clients of this node listen to.",
    "NUMSUB [<channel> ...]",
    "    Return how many clients of this node listen to each of the <channel>s by name.",
];
