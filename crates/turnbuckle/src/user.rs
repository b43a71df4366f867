//! `turnbuckle user`: passwords of the file of users.
//!
//! The file is changed as text, so that comments and order stay. A password is added beside those that are there: to rotate one, add the new password, give it to the
//! clients, and take the line of the old one away.
use crate::failure::{Failure, environment, say, tell, usage};
use clap::{Args, Subcommand};
use rand::{TryRng, rngs::SysRng};
use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};
use toml::de::DeTable;
use turnbuckle_document::Name;
use turnbuckle_resp::PasswordHash;

/// Makes passwords for the users of a cluster.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  turnbuckle user add ann --users users.toml\n  turnbuckle user hash < password\n\n\
                        The file is described in docs/security.md."
)]
pub(crate) struct User {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Gives a user a new random password, prints it once, and writes its hash into the file. A new user has no rights yet.
    Add {
        /// The name of the user.
        name: String,
        /// The file of the users. It is made if there is none.
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
    },
    /// Reads a password from standard input, and prints its hash for the file.
    Hash,
}

/// The longest password that is read, in bytes.
const MAX_PASSWORD_BYTES: u64 = 1024;

pub(crate) fn run(options: &User) -> Result<(), Failure> {
    match &options.command {
        Command::Add { name, users } => add(name, users),
        Command::Hash => hash(),
    }
}

fn hash() -> Result<(), Failure> {
    let mut password = Vec::new();
    let read = std::io::stdin()
        .take(MAX_PASSWORD_BYTES + 3)
        .read_to_end(&mut password);
    read.map_err(|error| environment(&format!("standard input: {error}")))?;
    while password.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        password.pop();
    }
    let (min, len) = (PasswordHash::MIN_PASSWORD_BYTES, password.len());
    if len < min || len as u64 > MAX_PASSWORD_BYTES {
        let found = match len as u64 > MAX_PASSWORD_BYTES {
            true => "more".to_owned(),
            false => len.to_string(),
        };
        return Err(usage(&format!(
            "found a password of {found} bytes; expected {min} to {MAX_PASSWORD_BYTES}: the hash is fast, so a short password can be guessed from it"
        )));
    }
    say(&PasswordHash::of(&password, &random()?).to_string())
}

fn add(name: &str, file: &Path) -> Result<(), Failure> {
    if let Err(bad) = name.parse::<Name>() {
        return Err(usage(&format!("found the name '{name}'; {bad}")));
    }
    let about = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| environment(&about(&error)))?,
    };
    let password: String = random()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let hash = PasswordHash::of(password.as_bytes(), &random()?);
    let (text, is_new) = with_password(&text, name, &hash).map_err(|why| usage(&about(&why)))?;
    write(file, &text).map_err(|error| environment(&about(&error)))?;
    say(&password)?;
    let file = file.display();
    tell(&match is_new {
        true => format!(
            "user {name} is in {file} with this password and without rights: write its keyspaces and commands there"
        ),
        false => {
            format!(
                "user {name} of {file} has this password, the first of its list, beside the others: remove those that are to end"
            )
        }
    });
    tell("a running node takes the change when it gets SIGHUP");
    Ok(())
}

/// Writes a file in place, so that its owner and mode stay. A new file has mode 0600.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn random() -> Result<[u8; 16], Failure> {
    let mut bytes = [0; 16];
    let filled = SysRng.try_fill_bytes(&mut bytes);
    filled.map_err(|error| environment(&format!("the system has no random numbers: {error}")))?;
    Ok(bytes)
}

/// The text of a file of users, with one more password of a user. Also returns whether the user is new.
fn with_password(text: &str, name: &str, hash: &PasswordHash) -> Result<(String, bool), String> {
    let changed = insert_password(text, name, hash)?;
    match DeTable::parse(&changed.0) {
        Ok(_) => Ok(changed),
        Err(_) => Err("found no tables [users.NAME]; expected a file of users".into()),
    }
}

/// The same. The result may be no TOML, if the file is something else than a file of users.
fn insert_password(text: &str, name: &str, hash: &PasswordHash) -> Result<(String, bool), String> {
    // The message does not quote the text, which has hashes.
    let table = DeTable::parse(text).map_err(|error| {
        let place = error.span().unwrap_or_default().start;
        let line = 1 + text[..place.min(text.len())].matches('\n').count();
        format!("line {line}: found something else; expected TOML")
    })?;
    let users = table.get_ref().get("users");
    let user = users.and_then(|users| users.get_ref().as_table()?.get(name));
    let Some(user) = user else {
        let gap = if text.is_empty() { "" } else { "\n" };
        let end = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        let new = format!("[users.{name}]\npasswords = [\"{hash}\"]\nkeyspaces = []\ncommands = []\n");
        return Ok((format!("{text}{end}{gap}{new}"), true));
    };
    let by_hand = || {
        format!(
            "the user {name} has another form than a table [users.{name}]: add this to its passwords: \"{hash}\""
        )
    };
    let passwords = user.get_ref().as_table().ok_or_else(by_hand)?.get("passwords");
    let insert = |at: usize, more: &str| format!("{}{more}{}", &text[..at], &text[at..]);
    match passwords {
        Some(passwords) if text[passwords.span()].starts_with('[') => {
            let more = format!("\"{hash}\", ");
            Ok((insert(passwords.span().start + 1, &more), false))
        }
        None if text[user.span()].starts_with('[') => {
            let end = text[user.span().start..]
                .find('\n')
                .map(|end| user.span().start + end + 1);
            let more = format!("passwords = [\"{hash}\"]\n");
            Ok(match end {
                Some(end) => (insert(end, &more), false),
                None => (format!("{text}\n{more}"), false),
            })
        }
        _ => Err(by_hand()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The passwords of a user of a text.
    fn passwords(text: &str, name: &str) -> Vec<String> {
        let table: toml::Table = text.parse().expect(text);
        let passwords = table["users"][name]["passwords"].as_array().expect("a list");
        passwords
            .iter()
            .map(|hash| hash.as_str().expect("text").to_owned())
            .collect()
    }

    #[test]
    fn a_password_is_added_and_all_else_stays() {
        let hash = PasswordHash::of(b"a password of 22 bytes", b"the salt");
        for (text, is_new) in [
            ("", true),
            ("# users\n[users.bob]\nenabled = false", true),
            ("[users.ann]\n", false),
            ("[users.ann]", false),
            ("[users.ann] # first\nkeyspaces = [\"*\"]\n[users.bob]\n", false),
            ("[users.ann]\npasswords = []\n", false),
            (
                "[users.ann]\npasswords = [\n  \"old\", # of march\n]\nenabled = true\n",
                false,
            ),
            ("[users]\nann = { passwords = [\"old\"] }\n", false),
        ] {
            let (after, found) = with_password(text, "ann", &hash).expect(text);
            assert_eq!(found, is_new, "{text}");
            let had = if text.contains("old") {
                vec!["old".to_owned()]
            } else {
                Vec::new()
            };
            assert_eq!(
                passwords(&after, "ann"),
                [vec![hash.to_string()], had].concat(),
                "{after}"
            );
            let mut rest = after.as_str();
            for line in text
                .lines()
                .filter(|line| !line.starts_with("passwords") && !line.contains('{'))
            {
                rest = rest.split_once(line).expect(line).1;
            }
        }
        for text in [
            "[users",
            "users = 1\n",
            "[users]\nann = {}\n",
            "[users]\nann = 17\n",
            "[users.ann]\npasswords = 17",
        ] {
            if let Ok((after, _)) = with_password(text, "ann", &hash) {
                panic!("{text:?} became {after:?}");
            }
        }
    }
}
