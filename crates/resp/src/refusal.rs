use crate::commands;
use std::fmt::Display;
use turnbuckle_core::{BadLevel, Failure, Level, Levels, NotComputed};

/// The failure of a large read that finds no room.
pub(crate) const NO_ROOM_FOR_REPLY: &str = "the node's memory for clients (client_memory_mb) has no room for the reply now; try again, or \
    ask for fewer keys at once";

const NO_ROOM_TO_STAY: &str = "UNAVAILABLE the node's memory for clients (client_memory_mb) is full, and this connection uses much of it: \
it is closed";

/// An error reply. Clients distinguish errors by the first word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) String);

impl Refusal {
    /// An error that Redis has, too, in its words.
    pub(crate) fn err(text: impl Display) -> Refusal {
        Refusal(format!("ERR {text}"))
    }

    pub(crate) fn syntax() -> Refusal {
        Refusal::err("syntax error")
    }

    /// A command of Turnbuckle's own with wrong arguments.
    pub(crate) fn usage(syntax: &str) -> Refusal {
        Refusal::err(format_args!("syntax error; expected {syntax}"))
    }

    pub(crate) fn not_an_integer() -> Refusal {
        Refusal::err("value is not an integer or out of range")
    }

    /// A command on a key that has a value of another type, in the words of Redis.
    pub(crate) fn wrong_type() -> Refusal {
        Refusal(format!("WRONGTYPE {}", NotComputed::WrongType))
    }

    /// A level of a command between `MULTI` and `EXEC`.
    pub(crate) fn level_in_transaction() -> Refusal {
        Refusal::err(
            "between MULTI and EXEC no command names a level: all of them are carried out at linearizable",
        )
    }

    /// A time that is not valid, in the words of Redis.
    pub(crate) fn invalid_expire_time(command: &str, min: i64, max: i64) -> Refusal {
        Refusal::err(format_args!(
            "invalid expire time in '{command}' command; expected a number from {min} to {max}"
        ))
    }

    /// A command on a RESP2 connection that listens to channels, in the words of Redis.
    pub(crate) fn not_while_listening(command: &str) -> Refusal {
        Refusal::err(format_args!(
            "Can't execute '{command}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
        ))
    }

    /// A wrong number of arguments: the words of Redis, and what was expected. Of `command|subcommand`, the command's `HELP` says it.
    pub(crate) fn arity(command: &str) -> Refusal {
        let expected = match (commands::find(command.as_bytes()), command.split_once('|')) {
            (Some(spec), _) => format!("; expected {}", spec.usage()),
            (None, Some((command, _))) => format!("; see {} HELP", command.to_uppercase()),
            (None, None) => String::new(),
        };
        Refusal::err(format_args!(
            "wrong number of arguments for '{command}' command{expected}"
        ))
    }

    /// Something that Redis has and Turnbuckle does not. It was not carried out.
    pub(crate) fn unsupported(what: impl Display) -> Refusal {
        Refusal(format!("UNSUPPORTED {what}"))
    }

    pub(crate) fn too_big(what: &str, found: u64, max: u64) -> Refusal {
        Refusal(format!(
            "TOOBIG {what} has {found} bytes, at most {max} are taken"
        ))
    }

    /// The message for a client that is disconnected so that other clients have room.
    pub(crate) fn shed() -> Refusal {
        Refusal(NO_ROOM_TO_STAY.into())
    }

    pub(crate) fn too_many_arguments(found: u64, max: usize) -> Refusal {
        Refusal(format!(
            "TOOBIG the command has {found} arguments, its name included; at most {max} are taken"
        ))
    }

    /// A level whose argument is wrong.
    pub(crate) fn bad_argument(bad: &BadLevel) -> Refusal {
        Refusal(format!("BADLEVEL {bad}"))
    }

    pub(crate) fn bad_level(found: &str, keyspace: &str, offered: &[String]) -> Refusal {
        Refusal(format!(
            "BADLEVEL '{found}' is no consistency level; the keyspace '{keyspace}' offers {}",
            offered.join(", ")
        ))
    }

    /// `AT` at the end of a command.
    pub(crate) fn no_level_behind_at(keyspace: &str, offered: &[String]) -> Refusal {
        Refusal::err(format_args!(
            "syntax error; found nothing behind AT, expected a level; the keyspace '{keyspace}' offers {}",
            offered.join(", ")
        ))
    }

    /// The refusal of a snapshot at a level that promises none.
    pub(crate) fn not_a_snapshot(asked: Level, offered: Levels) -> Refusal {
        let snapshots = offered
            .reads
            .iter()
            .filter(|level| level.promise().makes_snapshots());
        let snapshots: Vec<String> = snapshots.map(|level| level.form()).collect();
        let offers = match snapshots.is_empty() {
            true => "this keyspace has none".to_string(),
            false => format!("ROTX offers {}", snapshots.join(", ")),
        };
        Refusal(format!(
            "BADLEVEL a snapshot cannot be read at level {asked}; {offers}. MGET reads at every level of the keyspace"
        ))
    }
}

impl From<NotComputed> for Refusal {
    fn from(why: NotComputed) -> Refusal {
        match why {
            NotComputed::WrongType => Refusal::wrong_type(),
            why => Refusal::err(why),
        }
    }
}

impl From<&Failure> for Refusal {
    fn from(failure: &Failure) -> Refusal {
        Refusal(format!("{} {failure}", failure.word()))
    }
}
