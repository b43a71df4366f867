//! The file of the users: `users_file` of the configuration.
//!
//! ```toml
//! [users.default]                  # a client that has not authenticated; without `anybody = true` it may do nothing
//! anybody = true                   # no password is needed; only for `default`
//! keyspaces = ["causal"]           # names, or "*"
//! commands = ["read"]              # names and categories, see `turnbuckle_resp::Right`
//!
//! [users.ann]
//! passwords = ["sha256:SALT:HASH"] # as `turnbuckle user hash` prints them; each of them is valid
//! keyspaces = ["*"]
//! keys = ["session:", "{cart}"]    # prefixes; all keys without the field
//! commands = ["read", "write", "connection", "-incr"]
//! connections = 100                # the most connections to a node
//! operations_per_second = 1000     # the most operations at a node
//! enabled = true
//! ```
//!
//! The file is read at the start, and again when the process gets SIGHUP. It is parsed as the configuration is: one mistake refuses the whole file, with
//! line and field. Messages never show a hash, or what stands in its place.
use crate::config::{ClusterConfig, ConfigError, SecretText, read_text};
use serde::Deserialize;
use std::{collections::BTreeMap, os::unix::fs::PermissionsExt, path::Path, str::FromStr};
use toml::Spanned;
use turnbuckle_document::{Document, Misplaced, Name, Number, Word, quote};
use turnbuckle_resp::{DEFAULT_USER, PasswordHash, Right, Rights, User, Users};

/// The most passwords of a user. Each attempt to authenticate computes this many hashes, if one user has them.
const MAX_PASSWORDS: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsersTable {
    #[serde(default)]
    users: BTreeMap<Spanned<String>, Spanned<UserTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserTable {
    anybody: Option<Spanned<bool>>,
    #[serde(default)]
    passwords: Vec<Spanned<SecretText>>,
    #[serde(default)]
    keyspaces: Vec<Word<String>>,
    keys: Option<Vec<Word<Prefix>>>,
    #[serde(default)]
    commands: Vec<Word<Right>>,
    connections: Option<Number<0>>,
    operations_per_second: Option<Number<1>>,
    enabled: Option<bool>,
}

/// The beginning of keys.
struct Prefix;

impl FromStr for Prefix {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Prefix, &'static str> {
        (!text.is_empty())
            .then_some(Prefix)
            .ok_or("expected the first characters of keys; without keys, all keys are allowed")
    }
}

/// Reads the users of a cluster's file of users.
///
/// # Errors
/// If the file cannot be read, or has a mistake.
pub(crate) fn read(file: &Path, config: &ClusterConfig) -> Result<Users, ConfigError> {
    let text = read_text(file)?;
    let keyspaces: Vec<&str> = config
        .keyspaces()
        .map(|(_, keyspace)| keyspace.name.as_str())
        .collect();
    let document = Document::parse(file, &text)?;
    let table: UsersTable = document.decode()?;
    let users = check(&table, &keyspaces).map_err(|wrong| document.report(wrong))?;
    Ok(users)
}

/// Whether other users of the machine than the file's owner may read it.
pub(crate) fn is_readable_by_others(file: &Path) -> bool {
    let others = |found: std::fs::Metadata| found.permissions().mode() & 0o044 != 0;
    std::fs::metadata(file).is_ok_and(others)
}

fn check(table: &UsersTable, keyspaces: &[&str]) -> Result<Users, Misplaced> {
    if table.users.is_empty() {
        let expected = "at least one [users.NAME]; a node without users has no users_file";
        return Err(Misplaced::missing(0..0, "users", expected));
    }
    let users = table
        .users
        .iter()
        .map(|(name, user)| check_user(name, user, keyspaces));
    Ok(Users::new(users.collect::<Result<Vec<_>, _>>()?))
}

fn check_user(
    name: &Spanned<String>,
    table: &Spanned<UserTable>,
    keyspaces: &[&str],
) -> Result<User, Misplaced> {
    let (place, table) = (table.span(), table.get_ref());
    if let Err(bad) = name.get_ref().parse::<Name>() {
        let expected = bad.to_string();
        let expected = expected.strip_prefix("expected ").unwrap_or(&expected);
        return Err(Misplaced::at(name.span(), quote(name.get_ref()), expected));
    }
    let anybody = table.anybody.as_ref().filter(|anybody| *anybody.get_ref());
    if let Some(anybody) = anybody {
        let wrong = |found: &str, expected: &str| Err(Misplaced::at(anybody.span(), found, expected));
        if name.get_ref() != DEFAULT_USER {
            return wrong("true", "no such field: only the user default needs no password");
        }
        if !table.passwords.is_empty() {
            return wrong("anybody = true as well as passwords", "one of them");
        }
    }
    let enabled = table.enabled.unwrap_or(true);
    if enabled && table.passwords.is_empty() && name.get_ref() != DEFAULT_USER {
        let expected = "at least one hash of a password, or enabled = false";
        return Err(Misplaced::missing(place, "passwords", expected));
    }
    let number = |given: &Option<Number<1>>| given.as_ref().map(|given| **given);
    Ok(User {
        name: name.get_ref().clone(),
        passwords: check_passwords(&table.passwords)?,
        anybody: anybody.is_some(),
        keyspaces: check_keyspaces(&table.keyspaces, keyspaces)?,
        keys: table.keys.as_ref().map(|keys| {
            let keys = keys.iter().map(|key| key.text().to_owned().into());
            keys.collect()
        }),
        rights: Rights::of(table.commands.iter().map(|right| **right)),
        connections: table.connections.as_ref().map(|given| **given),
        operations_per_second: number(&table.operations_per_second),
        enabled,
    })
}

fn check_passwords(given: &[Spanned<SecretText>]) -> Result<Vec<PasswordHash>, Misplaced> {
    if let Some(first) = given.get(MAX_PASSWORDS) {
        let found = format!("{} passwords", given.len());
        return Err(Misplaced::at(
            first.span(),
            found,
            format!("at most {MAX_PASSWORDS}"),
        ));
    }
    let hash = |text: &Spanned<SecretText>| {
        let found = || format!("{} characters that are no hash", text.get_ref().0.chars().count());
        let hash = text.get_ref().0.parse::<PasswordHash>();
        hash.map_err(|_| Misplaced::at(text.span(), found(), PasswordHash::EXPECTED))
    };
    given.iter().map(hash).collect()
}

/// The keyspaces; `None` are all.
fn check_keyspaces(given: &[Word<String>], known: &[&str]) -> Result<Option<Vec<String>>, Misplaced> {
    let is_all = |word: &Word<String>| word.text() == "*";
    if let Some(word) = given
        .iter()
        .find(|word| !is_all(word) && !known.contains(&word.text()))
    {
        return Err(word.wrong(format!("\"*\", or one of the keyspaces {}", known.join(", "))));
    }
    let names = || given.iter().map(|word| word.text().to_owned()).collect();
    Ok((!given.iter().any(is_all)).then(names))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "sha256:00112233445566778899aabbccddeeff:ce3c3c4b3f3bd7dc0a58cc38fbe2c1c1b2ab29cc3bfa2b3f0d1ca7ee1b4e7f00";

    fn parse(text: &str) -> Result<Users, String> {
        let document = Document::parse(Path::new("users.toml"), text).map_err(|wrong| wrong.to_string())?;
        let table = document
            .decode::<UsersTable>()
            .map_err(|wrong| wrong.to_string())?;
        check(&table, &["carts", "likes"]).map_err(|wrong| document.report(wrong).to_string())
    }

    #[test]
    fn the_example_of_the_page_is_accepted() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
        let page = std::fs::read_to_string(page).expect("the page is there");
        let (_, rest) = page.split_once("```toml\n").expect("the page has an example");
        let (example, _) = rest.split_once("```").expect("the example ends");
        assert_eq!(parse(example).map(|users| users.len()), Ok(2));
    }

    #[test]
    fn a_file_has_users() {
        let text = format!(
            "[users.default]\nanybody = true\nkeyspaces = [\"likes\"]\ncommands = [\"@read\"]\n\
             [users.ann]\npasswords = [\"{HASH}\", \"{HASH}\"]\nkeyspaces = [\"carts\", \"*\"]\nkeys = [\"a:\", \"{{b}}\"]\n\
             commands = [\"*\", \"-incr\"]\nconnections = 100\noperations_per_second = 1_000\n\
             [users.off]\nenabled = false\n"
        );
        let hash: PasswordHash = HASH.parse().unwrap();
        let rights = |words: &[&str]| Rights::of(words.iter().map(|word| word.parse().unwrap()));
        let default = User {
            name: "default".into(),
            passwords: Vec::new(),
            anybody: true,
            keyspaces: Some(vec!["likes".into()]),
            keys: None,
            rights: rights(&["read"]),
            connections: None,
            operations_per_second: None,
            enabled: true,
        };
        let ann = User {
            name: "ann".into(),
            passwords: vec![hash.clone(), hash],
            anybody: false,
            keyspaces: None,
            keys: Some(vec!["a:".into(), "{b}".into()]),
            rights: rights(&["*", "-incr"]),
            connections: Some(100),
            operations_per_second: Some(1_000),
            enabled: true,
        };
        let off = User {
            name: "off".into(),
            anybody: false,
            keyspaces: Some(Vec::new()),
            rights: rights(&[]),
            enabled: false,
            ..default.clone()
        };
        assert_eq!(parse(&text), Ok(Users::new([default, ann, off])));
    }

    #[test]
    fn a_mistake_is_refused_with_its_line_and_field_and_without_passwords() {
        for (text, expected) in [
            (
                "",
                "users.toml:1: users: found nothing; expected at least one [users.NAME]",
            ),
            (
                "[users.a]\nsomething = 1",
                "users.toml:2: users.a.something: found unknown field `something`",
            ),
            (
                "[users.a]",
                "users.toml:1: users.a.passwords: found nothing; expected at least one hash of a password, or enabled = false",
            ),
            (
                "[users.a]\npasswords = [\"secret password\"]",
                "users.toml:2: users.a.passwords[1]: found 15 characters that are no hash; expected the hash",
            ),
            (
                "[users.a]\npasswords = 17",
                "users.toml:2: users.a.passwords: found",
            ),
            (
                "[users.a]\nanybody = true",
                "users.toml:2: users.a.anybody: found true; expected no such field",
            ),
            (
                "[users.\"a b\"]\nenabled = false",
                "users.toml:1: users.a b: found \"a b\"; expected a name",
            ),
            (
                "[users.a]\nenabled = false\nkeyspaces = [\"cart\"]",
                "users.toml:3: users.a.keyspaces[1]: found \"cart\"; expected \"*\", or one of the keyspaces carts, likes",
            ),
            (
                "[users.a]\nenabled = false\nkeys = [\"\"]",
                "users.toml:3: users.a.keys[1]: found \"\"; expected the first characters of keys",
            ),
            (
                "[users.a]\nenabled = false\ncommands = [\"read\", \"ste\"]",
                "users.toml:3: users.a.commands[2]: found \"ste\"; expected the name of a command",
            ),
            (
                "[users.a]\nenabled = false\noperations_per_second = 0",
                "users.toml:3: users.a.operations_per_second: found 0; expected a whole number, 1 or more",
            ),
            (
                "[users.a]\nenabled = \"yes\"",
                "users.toml:2: users.a.enabled: found string \"yes\"; expected true or false",
            ),
        ] {
            let found = parse(text).expect_err(text);
            assert!(found.starts_with(expected), "{text}: {found}");
            assert!(!found.contains("secret password"), "{found}");
        }
        let both = format!("[users.default]\nanybody = true\npasswords = [\"{HASH}\"]");
        let found = parse(&both).unwrap_err();
        assert!(
            found.contains("found anybody = true as well as passwords"),
            "{found}"
        );
        let many = format!("[users.a]\npasswords = [{}]", format!("\"{HASH}\", ").repeat(17));
        let found = parse(&many).unwrap_err();
        assert!(
            found.contains("found 17 passwords; expected at most 16"),
            "{found}"
        );
    }
}
