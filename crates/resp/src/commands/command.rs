use super::{COMMANDS, PLAIN, Spec, check_subcommand, find, reply_help, unknown_subcommand};
use crate::users::rights;
use crate::{Writer, call::Call, glob, refusal::Refusal};

pub(super) const COMMAND: Spec = Spec {
    name: "command",
    flags: &["loading", "stale"],
    group: "server",
    syntax: "[COUNT | LIST | INFO | DOCS | GETKEYS] [argument ...]",
    summary: "The commands there are.",
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    if call.len() == 1 {
        return info(call);
    }
    match call.text(1).to_lowercase().as_str() {
        "count" => {
            check_subcommand(call, "command|count", 2..=2)?;
            call.reply(|writer| writer.integer(COMMANDS.len() as i64))
        }
        "info" => info(call),
        "docs" => docs(call),
        "list" => list(call),
        "getkeys" => {
            check_subcommand(call, "command|getkeys", 3..=usize::MAX)?;
            keys(call)
        }
        "help" => reply_help(call, "COMMAND", &HELP),
        _ => Err(unknown_subcommand(call, "COMMAND")),
    }
}

const HELP: [&str; 12] = [
    "(no subcommand)",
    "    Return details about all commands.",
    "COUNT",
    "    Return the total number of commands in this server.",
    "LIST [FILTERBY PATTERN <pattern>]",
    "    Return a list of all commands in this server.",
    "INFO [<command-name> ...]",
    "    Return details about commands, all without names.",
    "DOCS [<command-name> ...]",
    "    Return documentation about commands, all without names.",
    "GETKEYS <full-command>",
    "    Return the keys from a full command.",
];

fn info(call: &mut Call<'_>) -> Result<(), Refusal> {
    let arguments = call.arguments;
    call.reply(|writer| {
        if arguments.len() <= 2 {
            writer.array(COMMANDS.len());
            COMMANDS.iter().for_each(|spec| write_info(spec, writer));
            return;
        }
        writer.array(arguments.len() - 2);
        for name in arguments.iter().skip(2) {
            match find(name) {
                Some(spec) => write_info(spec, writer),
                None => writer.null(),
            }
        }
    })
}

/// The ten fields of Redis 7. The last three (tips, key specifications, subcommands) add nothing to the others.
fn write_info(spec: &Spec, writer: &mut Writer<'_>) {
    writer.array(10);
    writer.bulk(spec.name.as_bytes());
    writer.integer(i64::from(spec.arity));
    write_words(spec.flags.iter().copied(), "", writer);
    for place in [spec.keys.first, spec.keys.last, spec.keys.step] {
        writer.integer(i64::from(place));
    }
    write_words(rights::categories(spec).into_iter(), "@", writer);
    writer.set(0);
    writer.set(0);
    writer.array(0);
}

fn write_words<'a>(words: impl ExactSizeIterator<Item = &'a str>, prefix: &str, writer: &mut Writer<'_>) {
    writer.set(words.len());
    for word in words {
        writer.simple(&format!("{prefix}{word}"));
    }
}

fn docs(call: &mut Call<'_>) -> Result<(), Refusal> {
    let arguments = call.arguments;
    let specs: Vec<&Spec> = if arguments.len() == 2 {
        COMMANDS.iter().collect()
    } else {
        arguments.iter().skip(2).filter_map(find).collect()
    };
    call.reply(|writer| {
        writer.map(specs.len());
        for spec in specs {
            writer.bulk(spec.name.as_bytes());
            writer.map(2);
            writer.bulk(b"summary");
            writer.bulk(format!("{} {}", spec.summary, spec.usage()).as_bytes());
            writer.bulk(b"group");
            writer.bulk(spec.group.as_bytes());
        }
    })
}

fn list(call: &mut Call<'_>) -> Result<(), Refusal> {
    let arguments = call.arguments;
    let filter = |word| arguments.len() == 5 && arguments.is(2, "FILTERBY") && arguments.is(3, word);
    let found: Vec<&str> = match arguments.len() {
        2 => COMMANDS.iter().map(|spec| spec.name).collect(),
        _ if filter("PATTERN") => {
            let (pattern, mut steps) = (arguments.at(4).to_ascii_lowercase(), 1_000_000);
            let names = COMMANDS.iter().map(|spec| spec.name);
            names
                .filter(|name| glob::matches(&pattern, name.as_bytes(), &mut steps) == Some(true))
                .collect()
        }
        _ if filter("ACLCAT") => rights::of_category(&call.text(4).to_lowercase()).collect(),
        _ if filter("MODULE") => {
            return Err(Refusal::unsupported("COMMAND LIST: there are no modules"));
        }
        _ => return Err(Refusal::syntax()),
    };
    call.reply(|writer| {
        writer.array(found.len());
        for name in found {
            writer.bulk(name.as_bytes());
        }
    })
}

fn keys(call: &mut Call<'_>) -> Result<(), Refusal> {
    let arguments = call.arguments;
    let spec = find(arguments.at(2)).ok_or_else(|| Refusal::err("Invalid command specified"))?;
    if spec.keys.first == 0 {
        return Err(Refusal::err("The command has no key arguments"));
    }
    check_subcommand(call, "command|getkeys", 4..=usize::MAX)?;
    let len = arguments.len() - 2;
    let wanted = spec.arity.unsigned_abs() as usize;
    if len < wanted || (spec.arity > 0 && len != wanted) {
        return Err(Refusal::err("Invalid number of arguments specified for command"));
    }
    let places: Vec<usize> = spec.keys.places(len).collect();
    if places.is_empty() {
        return Err(Refusal::err("The command has no key arguments"));
    }
    call.reply(|writer| {
        writer.array(places.len());
        for place in places {
            writer.bulk(arguments.at(place + 2));
        }
    })
}
