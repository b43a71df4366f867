//! Users: which clients a node serves, and what each user may do. Without I/O: the server reads the file and replaces the users while it runs.
//!
//! ```text
//!   users.toml --(server)--> Users --> UserBook, one for each node: the users of now, and their generation
//!                                          |
//!   Connection: Login --- session ---------+   renewed if the generation has changed
//!                  |
//!                  +--> User::check(command, arguments, keyspace): carried out, or `Denied`
//! ```
//!
//! - The commands of a user are compiled into a bitset when the file is read ([`Rights`]). A check is one look into it, and one comparison for each key
//!   and prefix if the keys of the user are limited.
//! - A password is kept as HMAC-SHA256 with a salt ([`PasswordHash`]). It is compared in constant time. Every attempt costs the same number of hashes,
//!   whether the user exists or not.
//! - The connections and operations of a user are counted for each node ([`UserBook`]), over all of its connections.
//!
//! **Limits.** The hash is fast, so a password must be long and random: `turnbuckle user add` makes such a password. Rights are about whole commands, except
//! for the subcommands in [`rights::SUBCOMMANDS`]. A user that may write a key may also read it with a command such as `SET .. GET`. Channels belong to no
//! keyspace: a user whose keyspaces are limited, and not its keys, may listen to all channels.
use crate::channels::By;
use crate::commands::{self, Concerns, Keys, Spec};
use crate::{Arguments, refusal::Refusal};
use bytes::Bytes;
use std::{collections::BTreeMap, sync::Arc};

mod book;
pub(crate) use book::Seat;
pub use book::UserBook;
mod password;
pub(crate) use password::to_hex;
pub use password::{BadPasswordHash, PasswordHash};
pub(crate) mod rights;
pub use rights::{BadRight, Right, Rights};

/// The name of the user of a connection that has not authenticated.
pub const DEFAULT_USER: &str = "default";

/// The longest password that is looked at, in bytes. A longer one is wrong.
const MAX_PASSWORD_BYTES: usize = 1024;

/// All users of a node.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Users {
    users: BTreeMap<String, Arc<User>>,
    /// The number of hashes that each attempt costs: the most passwords that a user has, and at least 1.
    hashes: usize,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// The hashes of its passwords. Each of them is valid.
    pub passwords: Vec<PasswordHash>,
    /// Whether it needs no password. Only for `default`.
    pub anybody: bool,
    /// The keyspaces that it may access; `None` are all.
    pub keyspaces: Option<Vec<String>>,
    /// The prefixes of the keys and channels that it may access; `None` are all keys and channels.
    pub keys: Option<Vec<Bytes>>,
    /// The commands that it may run.
    pub rights: Rights,
    /// The most connections that it may have to this node.
    pub connections: Option<u64>,
    /// The most operations that it may begin at this node in a second.
    pub operations_per_second: Option<u64>,
    /// Whether it may authenticate.
    pub enabled: bool,
}

impl Users {
    /// These users. If two have the same name, the later one counts.
    pub fn new(users: impl IntoIterator<Item = User>) -> Users {
        let users: BTreeMap<String, Arc<User>> = users
            .into_iter()
            .map(|user| (user.name.clone(), Arc::new(user)))
            .collect();
        let hashes = users.values().map(|user| user.passwords.len()).max();
        Users {
            hashes: hashes.unwrap_or_default().max(1),
            users,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The user of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// All users, by name.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &User> {
        self.users.values().map(|user| &**user)
    }

    /// Checks a name and a password. Returns the user, and the password that was the right one, if it needed one.
    pub(crate) fn authenticate(
        &self,
        name: &[u8],
        password: &[u8],
    ) -> Option<(Arc<User>, Option<PasswordHash>)> {
        let user = std::str::from_utf8(name)
            .ok()
            .and_then(|name| self.users.get(name));
        let is_short_enough = password.len() <= MAX_PASSWORD_BYTES;
        let password = if is_short_enough { password } else { b"" };
        let mut right = None;
        // Whatever is wrong, the same number of hashes is computed.
        for place in 0..self.hashes.max(1) {
            let known = user.and_then(|user| user.passwords.get(place));
            let is_right = known.unwrap_or(PasswordHash::none()).verifies(password);
            right = known.filter(|_| is_right && is_short_enough).or(right);
        }
        let user = user.filter(|user| user.enabled)?;
        if user.anybody {
            return Some((Arc::clone(user), None));
        }
        right.map(|right| (Arc::clone(user), Some(right.clone())))
    }
}

/// Why a user may not run a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied<'a> {
    /// Not this command.
    Command(&'a str),
    /// Not in this keyspace.
    Keyspace(&'a str),
    /// Not with the key at this place of the command.
    Key(usize),
    /// Not with the channel, or the pattern of channels, at this place of the command.
    Channel(usize),
    /// Not this command, because it is about all keys.
    AllKeys(&'a str),
    /// Not this command, because it is about all keyspaces.
    AllKeyspaces(&'a str),
}

impl User {
    /// Whether it may run a command in a keyspace. Nothing of the command has been carried out.
    pub(crate) fn check<'a>(
        &self,
        spec: &'static Spec,
        arguments: &Arguments,
        keyspace: &'a str,
    ) -> Result<(), Denied<'a>> {
        if spec.is_open {
            return Ok(());
        }
        let right = rights::needed(spec, arguments);
        if !self.rights.has(right) {
            return Err(Denied::Command(rights::name(right)));
        }
        // Channels belong to no keyspace.
        let concerns_keyspace = !matches!(spec.concerns, Concerns::Nothing | Concerns::Channels(_));
        if (spec.keys.first > 0 || concerns_keyspace) && !self.may_access(keyspace) {
            return Err(Denied::Keyspace(keyspace));
        }
        if spec.concerns == Concerns::AllKeyspaces && self.keyspaces.is_some() {
            return Err(Denied::AllKeyspaces(spec.name));
        }
        let Some(prefixes) = &self.keys else {
            return Ok(());
        };
        if matches!(spec.concerns, Concerns::AllKeys | Concerns::AllKeyspaces) {
            return Err(Denied::AllKeys(spec.name));
        }
        let channels = match spec.concerns {
            Concerns::Publish => Some((By::Name, 2.min(arguments.len()))),
            Concerns::Channels(by) => Some((by, arguments.len())),
            _ => None,
        };
        if let Some((by, end)) = channels {
            let mut places = 1..end;
            return match places.find(|&place| !self.may_name(by, arguments.at(place))) {
                Some(place) => Err(Denied::Channel(place)),
                None => Ok(()),
            };
        }
        let may_access = |key: &[u8]| prefixes.iter().any(|prefix| key.starts_with(prefix));
        let mut places = spec.keys.places(keys_end(spec.keys, arguments));
        match places.find(|&place| !may_access(arguments.at(place))) {
            Some(place) => Err(Denied::Key(place)),
            None => Ok(()),
        }
    }

    /// Whether it may name a channel, or a pattern of channels. If its keys are limited to prefixes, channels are limited to the same ones. What a pattern
    /// matches begins with the pattern's beginning, up to its first special character: that must begin with a prefix.
    fn may_name(&self, by: By, name: &[u8]) -> bool {
        let Some(prefixes) = &self.keys else {
            return true;
        };
        let end = match by {
            By::Name => None,
            By::Pattern => name.iter().position(|byte| b"*?[\\".contains(byte)),
        };
        let literal = &name[..end.unwrap_or(name.len())];
        prefixes.iter().any(|prefix| literal.starts_with(prefix))
    }

    /// Whether it may listen to a channel, or to the channels that match a pattern.
    pub(crate) fn may_hear(&self, by: By, name: &[u8]) -> bool {
        let command = match by {
            By::Name => "subscribe",
            By::Pattern => "psubscribe",
        };
        let spec = commands::find(command.as_bytes());
        spec.is_some_and(|spec| self.rights.has(spec.place())) && self.may_name(by, name)
    }

    /// Whether it may access a keyspace.
    pub(crate) fn may_access(&self, keyspace: &str) -> bool {
        let names = self.keyspaces.as_ref();
        names.is_none_or(|names| names.iter().any(|name| name == keyspace))
    }
}

/// Where the keys of a command end: before a level at its end. All commands that take any number of keys take levels by one rule
/// ([`crate::call::Call::level_at_end`]): `AT` in capitals in the last place but one is never a key, if at least one key, or key and value, is before it.
fn keys_end(keys: Keys, arguments: &Arguments) -> usize {
    let (len, group) = (arguments.len(), keys.step.max(1) as usize);
    match keys.last < 0 && len >= 1 + group + 2 && arguments.at(len - 2) == b"AT" {
        true => len - 2,
        false => len,
    }
}

impl Denied<'_> {
    /// What the user is told, without the error's first word.
    pub(crate) fn text(self, user: &str) -> String {
        match self {
            Denied::Command(name) => {
                format!("User {user} has no permissions to run the '{name}' command")
            }
            Denied::Keyspace(name) => {
                format!("User {user} has no permissions to access the keyspace '{name}'")
            }
            Denied::Key(_) => "No permissions to access a key".into(),
            Denied::Channel(_) => "No permissions to access a channel".into(),
            Denied::AllKeys(name) => format!(
                "User {user} has no permissions to run the '{name}' command: it is about all keys of a keyspace, and the keys of the user are limited"
            ),
            Denied::AllKeyspaces(name) => format!(
                "User {user} has no permissions to run the '{name}' command: it is about all keyspaces, and those of the user are limited"
            ),
        }
    }

    pub(crate) fn refusal(self, user: &str) -> Refusal {
        Refusal(format!("NOPERM {}", self.text(user)))
    }

    pub(crate) fn reason(self) -> RefusedFor {
        match self {
            Denied::Command(_) => RefusedFor::Command,
            Denied::Keyspace(_) | Denied::AllKeyspaces(_) => RefusedFor::Keyspace,
            Denied::Key(_) | Denied::Channel(_) | Denied::AllKeys(_) => RefusedFor::Key,
        }
    }
}

/// Why something was refused because of the client's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedFor {
    /// The client has not authenticated.
    NoAuth,
    /// The password or the name is wrong, or the user is disabled.
    WrongPassword,
    /// The user may not run the command.
    Command,
    /// The user may not access the keyspace.
    Keyspace,
    /// The user may not access a key or a channel, or not all keys.
    Key,
    /// The user has its most connections.
    Connections,
    /// The user has begun its most operations.
    Operations,
    /// The node has no users, and the client is on another machine.
    Protected,
}

impl RefusedFor {
    /// All reasons, by their places.
    pub const ALL: [RefusedFor; 8] = [
        RefusedFor::NoAuth,
        RefusedFor::WrongPassword,
        RefusedFor::Command,
        RefusedFor::Keyspace,
        RefusedFor::Key,
        RefusedFor::Connections,
        RefusedFor::Operations,
        RefusedFor::Protected,
    ];

    /// The reason as one word.
    pub const fn label(self) -> &'static str {
        match self {
            RefusedFor::NoAuth => "noauth",
            RefusedFor::WrongPassword => "wrongpass",
            RefusedFor::Command => "command",
            RefusedFor::Keyspace => "keyspace",
            RefusedFor::Key => "key",
            RefusedFor::Connections => "connections",
            RefusedFor::Operations => "operations",
            RefusedFor::Protected => "protected",
        }
    }
}

/// Something that was refused because of the client's user, for the audit log. Its texts come from clients: escape them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<'a> {
    /// Why.
    pub why: RefusedFor,
    /// The client's address.
    pub client: &'a str,
    /// The name of the user, or what the client gave as a name.
    pub user: &'a [u8],
    /// The command; empty if there is no such command.
    pub command: &'a str,
    /// The keyspace.
    pub keyspace: &'a str,
    /// The key or the channel, if the refusal is about one.
    pub key: Option<&'a [u8]>,
}

#[cfg(test)]
mod tests;
