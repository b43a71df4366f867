//! `ACL`: what the users are, and what they may do. Users are changed in the file `users.toml` alone, so there is no `ACL SETUSER`.
//!
//! At a node without users, the answers are those of Redis about its user `default`: it needs no password and may do everything.
use super::{PLAIN, Spec, check_subcommand, find, reply_help, unknown_subcommand};
use crate::users::{DEFAULT_USER, Rights, User, Users, rights};
use crate::{Arguments, Writer, call::Call, refusal::Refusal};
use std::sync::Arc;

pub(super) const ACL: Spec = Spec {
    name: "acl",
    arity: -2,
    flags: &["loading", "stale"],
    group: "server",
    syntax: "WHOAMI | CAT [category] | LIST | USERS | GETUSER user | DRYRUN user command [argument ...] | GENPASS [bits]",
    summary: "The users, and what they may do. They are changed in the file of the users (users_file).",
    run,
    ..PLAIN
};

/// How many bits `GENPASS` makes, if no other number is given, and at most: as in Redis.
const BITS: i64 = 256;
const MAX_BITS: i64 = 4_096;

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let name = call.text(1).to_lowercase();
    let full = format!("acl|{name}");
    let check = |call: &Call<'_>, len| check_subcommand(call, &full, len);
    match name.as_str() {
        "whoami" => {
            check(call, 2..=2)?;
            let user = call.connection.user().to_owned();
            call.reply(|writer| writer.bulk(user.as_bytes()))
        }
        "cat" => {
            check(call, 2..=3)?;
            categories(call)
        }
        "list" => {
            check(call, 2..=2)?;
            let lines: Vec<String> = users(call).iter().map(line).collect();
            reply_texts(call, lines)
        }
        "users" => {
            check(call, 2..=2)?;
            let names = users(call).iter().map(|user| user.name.clone()).collect();
            reply_texts(call, names)
        }
        "getuser" => {
            check(call, 3..=3)?;
            let name = call.text(2).into_owned();
            let user = users(call).get(&name).cloned();
            call.reply(|writer| match user {
                Some(user) => write_user(&user, writer),
                None => writer.null(),
            })
        }
        "dryrun" => {
            check(call, 4..=usize::MAX)?;
            dry_run(call)
        }
        "genpass" => {
            check(call, 2..=3)?;
            generate(call)
        }
        "help" => reply_help(call, "ACL", &HELP),
        "deluser" | "load" | "log" | "save" | "setuser" => Err(Refusal::unsupported(format_args!(
            "ACL {}: users are in the file that users_file names; the node reads it again on SIGHUP, and writes refusals to its log",
            name.to_uppercase()
        ))),
        _ => Err(unknown_subcommand(call, "ACL")),
    }
}

const HELP: [&str; 14] = [
    "CAT [<category>]",
    "    List all categories, or the commands of one.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Return whether the user may run the command, without running it.",
    "GENPASS [<bits>]",
    "    Return a random password.",
    "GETUSER <username>",
    "    Return what a user may do.",
    "LIST",
    "    Return all users with what they may do, a line for each.",
    "USERS",
    "    Return the names of all users.",
    "WHOAMI",
    "    Return the user of this connection.",
];

/// The users of the node. A node without users has `default`, which may do everything.
fn users(call: &Call<'_>) -> Arc<Users> {
    let everything = || User {
        name: DEFAULT_USER.into(),
        passwords: Vec::new(),
        anybody: true,
        keyspaces: None,
        keys: None,
        rights: Rights::everything(),
        connections: None,
        operations_per_second: None,
        enabled: true,
    };
    let users = call.connection.users();
    users.unwrap_or_else(|| Arc::new(Users::new([everything()])))
}

fn reply_texts(call: &mut Call<'_>, texts: Vec<String>) -> Result<(), Refusal> {
    call.reply(|writer| {
        writer.array(texts.len());
        texts.iter().for_each(|text| writer.bulk(text.as_bytes()));
    })
}

fn categories(call: &mut Call<'_>) -> Result<(), Refusal> {
    let names: Vec<&str> = match call.len() {
        2 => rights::CATEGORIES.to_vec(),
        _ => rights::of_category(&call.text(2).to_lowercase()).collect(),
    };
    if names.is_empty() {
        let short: String = call.text(2).chars().take(128).collect();
        return Err(Refusal::err(format_args!(
            "Unknown category '{short}'; expected one of {}",
            rights::CATEGORIES.join(", ")
        )));
    }
    reply_texts(call, names.into_iter().map(String::from).collect())
}

/// The prefixes of keys as patterns of Redis.
fn keys(user: &User) -> String {
    let Some(prefixes) = &user.keys else {
        return "~*".into();
    };
    let pattern = |prefix| format!("~{}*", String::from_utf8_lossy(prefix));
    prefixes
        .iter()
        .map(|prefix| pattern(prefix))
        .collect::<Vec<String>>()
        .join(" ")
}

fn keyspaces(user: &User) -> String {
    user.keyspaces
        .as_ref()
        .map_or_else(|| "*".into(), |names| names.join(","))
}

/// A line of `ACL LIST`: as in Redis, and then what Redis does not have. Hashes of passwords are not shown.
fn line(user: &User) -> String {
    let mut words = vec!["user".to_owned(), user.name.clone()];
    words.push(if user.enabled { "on" } else { "off" }.into());
    if user.anybody {
        words.push("nopass".into());
    }
    words.extend(user.passwords.iter().map(|_| "#(hidden)".into()));
    words.extend([keys(user), user.rights.text()]);
    words.push(format!("keyspaces={}", keyspaces(user)));
    words.extend(user.connections.map(|most| format!("connections={most}")));
    words.extend(
        user.operations_per_second
            .map(|most| format!("operations_per_second={most}")),
    );
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

fn write_user(user: &User, writer: &mut Writer<'_>) {
    let text = |writer: &mut Writer<'_>, name: &str, value: &str| {
        writer.bulk(name.as_bytes());
        writer.bulk(value.as_bytes());
    };
    let limits = [
        ("connections", user.connections),
        ("operations_per_second", user.operations_per_second),
    ];
    writer.map(5 + limits.iter().filter(|(_, most)| most.is_some()).count());
    writer.bulk(b"flags");
    writer.set(1 + usize::from(user.anybody));
    writer.bulk(if user.enabled { b"on" } else { b"off" });
    if user.anybody {
        writer.bulk(b"nopass");
    }
    writer.bulk(b"passwords");
    writer.array(user.passwords.len());
    user.passwords.iter().for_each(|_| writer.bulk(b"(hidden)"));
    text(writer, "commands", &user.rights.text());
    text(writer, "keys", &keys(user));
    text(writer, "keyspaces", &keyspaces(user));
    for (name, most) in limits {
        if let Some(most) = most {
            writer.bulk(name.as_bytes());
            writer.integer(i64::try_from(most).unwrap_or(i64::MAX));
        }
    }
}

/// Says whether a user might run a command in the selected keyspace. Its limits are not looked at.
fn dry_run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let name: String = call.text(2).chars().take(64).collect();
    let users = users(call);
    let user = users
        .get(&name)
        .ok_or_else(|| Refusal::err(format_args!("User '{name}' not found")))?;
    let spec = find(call.arguments.at(3)).ok_or_else(|| {
        let short: String = call.text(3).chars().take(128).collect();
        Refusal::err(format_args!("Command '{short}' not found"))
    })?;
    let command = Arguments {
        frame: call.arguments.frame.clone(),
        spans: call.arguments.spans[3..].to_vec(),
    };
    if !spec.takes(&command) {
        return Err(Refusal::arity(spec.name));
    }
    match user.check(spec, &command, &call.connection.state.keyspace) {
        Ok(()) => call.reply_ok(),
        Err(denied) => {
            let text = denied.text(&user.name);
            call.reply(|writer| writer.bulk(text.as_bytes()))
        }
    }
}

fn generate(call: &mut Call<'_>) -> Result<(), Refusal> {
    let bits = if call.len() == 3 { call.integer(2)? } else { BITS };
    if !(1..=MAX_BITS).contains(&bits) {
        return Err(Refusal::err(format_args!(
            "ACL GENPASS argument must be the number of bits for the output password, a positive number up to {MAX_BITS}"
        )));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    if !call.backend.fill_random(&mut bytes) {
        return Err(Refusal::unsupported(
            "ACL GENPASS: there are no random numbers here",
        ));
    }
    let mut text = crate::users::to_hex(&bytes);
    text.truncate(digits);
    call.reply(|writer| writer.bulk(text.as_bytes()))
}
