use super::{PLAIN, Spec, check_subcommand, reply_help, unknown_subcommand};
use crate::{call::Call, refusal::Refusal};

pub(super) const CLIENT: Spec = Spec {
    name: "client",
    arity: -2,
    flags: &[],
    syntax: "subcommand [argument ...]",
    summary: "About this connection: its number, its name, its library.",
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let name = call.text(1).to_lowercase();
    let full = format!("client|{name}");
    let check = |call: &Call<'_>, len| check_subcommand(call, &full, len);
    match name.as_str() {
        "id" => {
            check(call, 2..=2)?;
            let id = call.connection.id();
            call.reply(|writer| writer.integer(id as i64))
        }
        "getname" => {
            check(call, 2..=2)?;
            let name = call.connection.state.name.clone();
            call.reply(|writer| writer.bulk_or_null((!name.is_empty()).then_some(&name[..])))
        }
        "setname" => {
            check(call, 3..=3)?;
            check_name(call.arguments.at(2))?;
            call.connection.state.name = call.arguments.at(2).to_vec();
            call.reply_ok()
        }
        "setinfo" => {
            check(call, 4..=4)?;
            set_info(call)
        }
        "info" => {
            check(call, 2..=2)?;
            let line = call.connection.describe(&call.backend.traffic()) + "\n";
            call.reply(|writer| writer.verbatim(&line))
        }
        "list" => {
            let own = call.connection.describe(&call.backend.traffic()) + "\n";
            let filter = Filter::of(call)?;
            let lines = call.backend.clients(&own);
            let wanted: String = lines
                .split_inclusive('\n')
                .filter(|line| filter.takes(line))
                .collect();
            call.reply(|writer| writer.verbatim(&wanted))
        }
        "no-evict" | "no-touch" => {
            check(call, 3..=3)?;
            // No connection is evicted because it is idle, so both settings always hold.
            if call.arguments.is(2, "ON") || call.arguments.is(2, "OFF") {
                return call.reply_ok();
            }
            Err(Refusal::syntax())
        }
        "maint_notifications" => {
            check(call, 3..=5)?;
            // Some libraries ask for it on each connection. Nodes announce no maintenance, so nothing is ever sent.
            if call.arguments.is(2, "ON") || call.arguments.is(2, "OFF") {
                return call.reply_ok();
            }
            Err(Refusal::syntax())
        }
        "reply" if call.len() == 3 && call.arguments.is(2, "ON") => call.reply_ok(),
        "tracking" if call.len() == 3 && call.arguments.is(2, "OFF") => call.reply_ok(),
        "getredir" => {
            check(call, 2..=2)?;
            call.reply(|writer| writer.integer(-1))
        }
        "caching" | "kill" | "pause" | "reply" | "tracking" | "trackinginfo" | "unblock" | "unpause" => {
            Err(Refusal::unsupported(format_args!(
                "CLIENT {} is not in Turnbuckle",
                name.to_uppercase()
            )))
        }
        "help" => reply_help(call, "CLIENT", &HELP),
        _ => Err(unknown_subcommand(call, "CLIENT")),
    }
}

/// The lines that `CLIENT LIST [TYPE type | ID id ..]` asks for. A line begins with `id=7 `.
enum Filter {
    All,
    /// No client is of this type.
    None,
    /// The clients that listen to channels, or all others.
    Listening(bool),
    Beginning(Vec<String>),
}

impl Filter {
    fn of(call: &Call<'_>) -> Result<Filter, Refusal> {
        if call.len() == 2 {
            return Ok(Filter::All);
        }
        if call.len() > 3 && call.arguments.is(2, "ID") {
            let ids = (3..call.len()).map(|place| match call.integer(place) {
                Ok(id) if id > 0 => Ok(format!("id={id} ")),
                _ => Err(Refusal::err("Invalid client ID")),
            });
            return Ok(Filter::Beginning(ids.collect::<Result<_, _>>()?));
        }
        if call.len() == 4 && call.arguments.is(2, "TYPE") {
            let is = |name: &&str| call.arguments.is(3, name);
            if is(&"NORMAL") {
                return Ok(Filter::Listening(false));
            }
            if is(&"PUBSUB") {
                return Ok(Filter::Listening(true));
            }
            if ["MASTER", "REPLICA", "SLAVE"].iter().any(is) {
                return Ok(Filter::None);
            }
            let name: String = call.text(3).chars().take(128).collect();
            return Err(Refusal::err(format_args!("Unknown client type '{name}'")));
        }
        Err(Refusal::syntax())
    }

    fn takes(&self, line: &str) -> bool {
        match self {
            Filter::All => true,
            Filter::None => false,
            // No text that a client chooses has a space in it.
            Filter::Listening(wanted) => line.contains(" sub=0 psub=0 ") != *wanted,
            Filter::Beginning(ids) => ids.iter().any(|id| line.starts_with(id)),
        }
    }
}

const HELP: [&str; 16] = [
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB) | ID id [id ...]]",
    "    Return information about client connections.",
    "MAINT_NOTIFICATIONS (ON|OFF) [moving-endpoint-type <type>]",
    "    Does nothing: there is no maintenance of which clients are told.",
    "NO-EVICT (ON|OFF)",
    "    Does nothing: connections are not evicted.",
    "SETINFO (LIB-NAME|LIB-VER) <value>",
    "    Remember which library the client uses.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
];

/// The longest name that a connection may give itself or its library, in bytes. Redis has no such limit. Here everything that a client can make grow
/// has one.
const MAX_NAME_BYTES: usize = 256;

/// Refuses what would break the lines of `CLIENT LIST`.
pub(super) fn check_name(name: &[u8]) -> Result<(), Refusal> {
    check_printable(name, "Client names")
}

fn check_printable(text: &[u8], what: &str) -> Result<(), Refusal> {
    if text.len() > MAX_NAME_BYTES {
        return Err(Refusal::too_big(
            "the name",
            text.len() as u64,
            MAX_NAME_BYTES as u64,
        ));
    }
    if text.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(());
    }
    Err(Refusal::err(format_args!(
        "{what} cannot contain spaces, newlines or special characters."
    )))
}

fn set_info(call: &mut Call<'_>) -> Result<(), Refusal> {
    let value = call.arguments.at(3);
    let library = &mut call.connection.state.library;
    if call.arguments.is(2, "LIB-NAME") {
        check_printable(value, "lib-name")?;
        library.0 = value.to_vec();
    } else if call.arguments.is(2, "LIB-VER") {
        check_printable(value, "lib-ver")?;
        library.1 = value.to_vec();
    } else {
        let option: String = call.text(2).chars().take(128).collect();
        return Err(Refusal::err(format_args!("Unrecognized option '{option}'")));
    }
    call.reply_ok()
}
