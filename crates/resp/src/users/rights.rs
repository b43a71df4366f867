//! The commands that a user may run: words such as `read`, `-incr` or `*`, compiled into a bitset.
use crate::Arguments;
use crate::commands::{COMMANDS, Spec};
use std::{fmt, str::FromStr};
use thiserror::Error;

/// Subcommands with a right of their own. They are in the category `admin`, and not in the categories of their command. A user whose commands name the
/// command itself has them, too.
pub(crate) static SUBCOMMANDS: [&str; 5] = [
    "acl|dryrun",
    "acl|getuser",
    "acl|list",
    "acl|users",
    "client|list",
];

/// The categories. A category that Redis has too has Redis's name.
pub(crate) const CATEGORIES: [&str; 15] = [
    "admin",
    "all",
    "bitmap",
    "connection",
    "dangerous",
    "fast",
    "hash",
    "keyspace",
    "pubsub",
    "read",
    "set",
    "slow",
    "string",
    "transaction",
    "write",
];

const WORDS: usize = 2;

/// The rights of a user: a bit for each command, and behind them one for each subcommand with a right of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights {
    bits: [u64; WORDS],
    words: Vec<Right>,
}

/// A word that gives or takes rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    gives: bool,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Category(&'static str),
    /// The place of a command or a subcommand.
    One(usize),
}

/// A word that is no right.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "expected the name of a command, a category (\"@{}\"), of which only \"@keyspace\", \"@pubsub\" and \"@set\" need their \"@\", or \"*\" for all; \"-\" before it takes it away",
    CATEGORIES.join("\", \"@")
)]
pub struct BadRight;

impl FromStr for Right {
    type Err = BadRight;

    /// `read`, `@read`, `+@read`, `incr`, `acl|list`, `*`, and the same with `-` before it. In any case.
    fn from_str(text: &str) -> Result<Right, BadRight> {
        let text = text.to_ascii_lowercase();
        let (gives, rest) = match text.strip_prefix('-') {
            Some(rest) => (false, rest),
            None => (true, text.strip_prefix('+').unwrap_or(&text)),
        };
        let (is_category, name) = match rest.strip_prefix('@') {
            Some(name) => (true, name),
            None => (false, rest),
        };
        let name = match name {
            "*" => "all",
            "transactions" => "transaction",
            name => name,
        };
        let category = CATEGORIES.iter().find(|known| **known == name);
        let one = (0..count()).find(|&place| self::name(place) == name);
        let what = match (category, one) {
            // A category of sets came later than the command, and `set` stays what it was.
            (Some(_), Some(place)) if !is_category && name == "set" => What::One(place),
            // `keyspace` and `pubsub`: the two give very different rights.
            (Some(_), Some(_)) if !is_category => return Err(BadRight),
            (Some(category), _) => What::Category(category),
            (None, Some(place)) if !is_category => What::One(place),
            (None, _) => return Err(BadRight),
        };
        Ok(Right { gives, what })
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.gives { "+" } else { "-" })?;
        match self.what {
            What::Category(category) => write!(f, "@{category}"),
            What::One(place) => f.write_str(name(place)),
        }
    }
}

impl Right {
    /// Whether it is about the right at this place.
    fn is_about(self, place: usize) -> bool {
        match self.what {
            What::Category(category) => is_in(category, place),
            // A command with all of its subcommands.
            What::One(one) => {
                let of_command = name(place).split_once('|');
                one == place || of_command.is_some_and(|(command, _)| command == name(one))
            }
        }
    }
}

impl Rights {
    /// The rights that these words give, evaluated from left to right.
    pub fn of(words: impl IntoIterator<Item = Right>) -> Rights {
        let mut rights = Rights {
            words: words.into_iter().collect(),
            ..Rights::default()
        };
        for right in &rights.words {
            for place in (0..count()).filter(|&place| right.is_about(place)) {
                let (word, bit) = (place / 64, 1 << (place % 64));
                match right.gives {
                    true => rights.bits[word] |= bit,
                    false => rights.bits[word] &= !bit,
                }
            }
        }
        rights
    }

    /// All rights.
    pub fn everything() -> Rights {
        Rights::of([Right {
            gives: true,
            what: What::Category("all"),
        }])
    }

    /// Whether the right at this place is among them.
    pub(crate) fn has(&self, place: usize) -> bool {
        self.bits[place / 64] >> (place % 64) & 1 == 1
    }

    /// The words, as Redis writes them: `+@read -incr`.
    pub(crate) fn text(&self) -> String {
        let words: Vec<String> = self.words.iter().map(Right::to_string).collect();
        match words.is_empty() {
            true => "-@all".into(),
            false => words.join(" "),
        }
    }
}

/// How many rights there are.
pub(crate) fn count() -> usize {
    const {
        assert!(
            COMMANDS_AND_SUBCOMMANDS <= 64 * WORDS,
            "the bitset has a place for each right"
        );
    }
    COMMANDS_AND_SUBCOMMANDS
}

const COMMANDS_AND_SUBCOMMANDS: usize = crate::commands::COUNT + SUBCOMMANDS.len();

/// The name of the right at this place: `get`, `acl|list`.
pub(crate) fn name(place: usize) -> &'static str {
    match COMMANDS.get(place) {
        Some(spec) => spec.name,
        None => SUBCOMMANDS[place - COMMANDS.len()],
    }
}

/// The place of the right that a command needs.
pub(crate) fn needed(spec: &'static Spec, arguments: &Arguments) -> usize {
    // Almost all commands have no subcommands, and this is done for each command.
    if !matches!(spec.name, "acl" | "client") || arguments.len() < 2 {
        return spec.place();
    }
    let own = |name: &&str| {
        let (command, subcommand) = name.split_once('|').unwrap_or_default();
        command == spec.name && arguments.at(1).eq_ignore_ascii_case(subcommand.as_bytes())
    };
    match SUBCOMMANDS.iter().position(own) {
        Some(place) => COMMANDS.len() + place,
        None => spec.place(),
    }
}

/// Whether the right at this place is in a category.
pub(crate) fn is_in(category: &str, place: usize) -> bool {
    match COMMANDS.get(place) {
        Some(spec) => category == "all" || categories(spec).contains(&category),
        None => matches!(category, "all" | "admin" | "dangerous" | "slow"),
    }
}

/// The categories of a command, without `all`.
pub(crate) fn categories(spec: &Spec) -> Vec<&'static str> {
    let has = |flag| spec.flags.contains(&flag);
    let mut categories = Vec::new();
    if has("readonly") {
        categories.push("read");
    }
    if has("write") {
        categories.push("write");
    }
    categories.extend(match (spec.group, spec.name) {
        ("string", _) => Some("string"),
        ("bitmap", _) => Some("bitmap"),
        ("hash", _) => Some("hash"),
        ("set", _) => Some("set"),
        ("pubsub", _) => Some("pubsub"),
        ("generic", _) | (_, "dbsize" | "flushdb" | "flushall") => Some("keyspace"),
        ("transactions", _) => Some("transaction"),
        // These tell a client library how to use the node.
        ("connection" | "cluster", _) | (_, "acl" | "command" | "keyspace" | "time") => Some("connection"),
        ("server", _) if !has("readonly") && !has("write") => Some("admin"),
        _ => None,
    });
    if categories.contains(&"admin") || matches!(spec.name, "flushdb" | "flushall" | "keys") {
        categories.push("dangerous");
    }
    categories.push(if has("fast") { "fast" } else { "slow" });
    categories
}

/// The names of the commands of a category, in order.
pub(crate) fn of_category(category: &str) -> impl Iterator<Item = &'static str> {
    let category = CATEGORIES.iter().find(|known| **known == category).copied();
    (0..count())
        .filter(move |&place| category.is_some_and(|category| is_in(category, place)))
        .map(name)
}
