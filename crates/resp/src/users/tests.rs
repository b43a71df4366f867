use super::*;
use crate::commands::{COMMANDS, find};
use crate::users::rights::{CATEGORIES, categories, is_in, name};
use crate::{Decoded, Decoder, Limits, encode_command};
use bytes::BytesMut;
use proptest::prelude::*;

fn user(name: &str, passwords: &[&str]) -> User {
    User {
        name: name.into(),
        passwords: passwords
            .iter()
            .map(|password| PasswordHash::of(password.as_bytes(), b"some salt"))
            .collect(),
        anybody: false,
        keyspaces: None,
        keys: None,
        rights: Rights::everything(),
        connections: None,
        operations_per_second: None,
        enabled: true,
    }
}

fn arguments(words: &[&[u8]]) -> Arguments {
    let (mut wire, mut arguments) = (BytesMut::new(), Arguments::default());
    encode_command(words, &mut wire);
    let decoded = Decoder::new(Limits::default()).decode(&mut wire, &mut arguments);
    assert_eq!(decoded, Ok(Decoded::Command));
    arguments
}

fn rights(words: &str) -> Rights {
    Rights::of(words.split_whitespace().map(|word| word.parse().expect(word)))
}

fn allowed(words: &str) -> Vec<&'static str> {
    let rights = rights(words);
    (0..rights::count())
        .filter(|&place| rights.has(place))
        .map(name)
        .collect()
}

#[test]
fn a_password_is_the_users_own_and_each_attempt_costs_the_same() {
    let mut disabled = user("off", &["a password of off"]);
    disabled.enabled = false;
    let mut anybody = user("default", &[]);
    anybody.anybody = true;
    let users = Users::new([
        user("ann", &["the first password", "the second password"]),
        user("bob", &[]),
        disabled,
        anybody,
    ]);
    let is_let_in = |name: &[u8], password: &[u8]| users.authenticate(name, password).is_some();
    assert!(is_let_in(b"ann", b"the first password") && is_let_in(b"ann", b"the second password"));
    assert!(is_let_in(b"default", b"any password"));
    for (name, password) in [
        (&b"ann"[..], &b"the third password"[..]),
        (b"ann", b""),
        (b"Ann", b"the first password"),
        (b"bob", b""),
        (b"nobody", b"the first password"),
        (b"\xff", b"the first password"),
        (b"off", b"a password of off"),
    ] {
        assert!(!is_let_in(name, password), "{}", name.escape_ascii());
    }
    assert_eq!(users.hashes, 2);
    // The right one of several is known, so that a connection ends if it is taken out of the file.
    let (_, used) = users.authenticate(b"ann", b"the second password").unwrap();
    assert_eq!(
        used,
        Some(user("ann", &["the second password"]).passwords[0].clone())
    );
    // A password that is too long is wrong, and costs no more.
    let empty = Users::new([user("ann", &[""])]);
    assert!(empty.authenticate(b"ann", b"").is_some() && empty.authenticate(b"ann", &[b'x'; 1025]).is_none());
}

#[test]
fn a_hash_is_hmac_sha256_and_parses_as_it_prints() {
    // RFC 4231, test case 1: key 20 times 0x0b, data "Hi There".
    let hash = PasswordHash::of(b"Hi There", &[0x0b; 20]);
    let text = format!(
        "sha256:{}:b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        "0b".repeat(20)
    );
    assert_eq!((hash.to_string(), text.parse()), (text.clone(), Ok(hash.clone())));
    assert_eq!(format!("{hash:?}"), "PasswordHash(..)");
    let short_salt = text.replacen("0b0b0b0b0b0b0b0b0b0b0b0b0b", "", 1);
    for bad in [
        "",
        "sha256:",
        &text[1..],
        &text[..text.len() - 1],
        &text.replace("b0", "g0"),
        &short_salt,
    ] {
        assert_eq!(bad.parse::<PasswordHash>(), Err(BadPasswordHash), "{bad}");
    }
}

#[test]
fn a_subcommand_needs_its_own_right_in_any_case() {
    for name in rights::SUBCOMMANDS {
        let (command, subcommand) = name.split_once('|').unwrap();
        let spec = find(command.as_bytes()).unwrap();
        for subcommand in [subcommand.to_owned(), subcommand.to_uppercase()] {
            let arguments = arguments(&[command.as_bytes(), subcommand.as_bytes()]);
            assert_eq!(rights::name(rights::needed(spec, &arguments)), name);
        }
        let alone = arguments(&[command.as_bytes()]);
        assert_eq!(rights::name(rights::needed(spec, &alone)), command);
    }
}

#[test]
fn words_are_evaluated_from_left_to_right() {
    assert_eq!(allowed("get set"), ["get", "set"]);
    assert_eq!(
        allowed("GET +@transactions -exec"),
        ["discard", "get", "multi", "unwatch", "watch"]
    );
    assert_eq!(allowed("-get get"), ["get"]);
    assert_eq!(allowed("* -@all"), [""; 0]);
    assert_eq!(allowed("*"), allowed("@all"));
    assert_eq!(allowed("*").len(), COMMANDS.len() + rights::SUBCOMMANDS.len());
    // A command has its subcommands, and a category only those that it names.
    assert_eq!(allowed("client"), ["client", "client|list"]);
    assert_eq!(allowed("client -client|list"), ["client"]);
    assert!(!allowed("connection").contains(&"client|list") && allowed("admin").contains(&"acl|users"));
    assert_eq!(rights("read -get").text(), "+@read -get");
    assert_eq!(Rights::default().text(), "-@all");
    for bad in [
        "",
        "-",
        "@",
        "@get",
        "nonsense",
        "--get",
        "acl|nonsense",
        "keyspace",
        "pubsub",
    ] {
        assert_eq!(bad.parse::<Right>(), Err(BadRight), "{bad}");
    }
}

/// If this fails, a new command needs a thought: does it read or write keys that it does not name (`concerns`)? May every client run it (`is_open`)?
/// A user with `commands = ["*", "-dangerous"]` may not delete everything.
#[test]
fn what_is_about_all_keys_and_writes_is_dangerous() {
    let about_all = COMMANDS
        .iter()
        .filter(|spec| matches!(spec.concerns, Concerns::AllKeys | Concerns::AllKeyspaces));
    let deletes = about_all.filter(|spec| spec.flags.contains(&"write"));
    for spec in deletes {
        let categories = categories(spec);
        assert!(categories.contains(&"dangerous"), "{}", spec.name);
        assert!(categories.contains(&"keyspace"), "{}", spec.name);
    }
}

#[test]
fn which_commands_name_no_keys_is_known() {
    let names = |of: fn(&Spec) -> bool| -> Vec<&str> {
        let specs = COMMANDS.iter().filter(|spec| of(spec));
        specs.map(|spec| spec.name).collect()
    };
    assert_eq!(names(|spec| spec.is_open), ["auth", "hello", "quit", "reset"]);
    assert_eq!(
        names(|spec| spec.concerns == Concerns::AllKeys),
        ["dbsize", "flushdb", "keys", "pubsub", "scan"]
    );
    assert_eq!(
        names(|spec| spec.concerns == Concerns::Keyspace),
        ["consistency", "session", "wait"]
    );
    assert_eq!(
        names(|spec| spec.concerns == Concerns::AllKeyspaces),
        ["flushall"]
    );
    assert_eq!(names(|spec| spec.concerns == Concerns::Publish), ["publish"]);
    assert_eq!(
        names(|spec| matches!(spec.concerns, Concerns::Channels(_))),
        ["psubscribe", "subscribe"]
    );
    let rest = names(|spec| spec.keys.first == 0 && spec.concerns == Concerns::Nothing && !spec.is_open);
    assert_eq!(
        rest,
        [
            "acl",
            "asking",
            "client",
            "cluster",
            "command",
            "config",
            "discard",
            "echo",
            "exec",
            "info",
            "keyspace",
            "latency",
            "module",
            "multi",
            "ping",
            "punsubscribe",
            "readonly",
            "readwrite",
            "receipt",
            "receipts",
            "role",
            "select",
            "slowlog",
            "time",
            "unsubscribe",
            "unwatch"
        ]
    );
}

/// The oracle: whether the last word about a command gives it, found by comparing texts.
fn oracle(words: &[String], command: &str) -> bool {
    let about = |word: &str| {
        let word = word.trim_start_matches(['-', '+']);
        let group = word.trim_start_matches('@');
        let place = (0..rights::count())
            .find(|&place| name(place) == command)
            .unwrap();
        let is_category = group != word || !matches!(word, "keyspace" | "pubsub");
        group == "*"
            || is_category && CATEGORIES.contains(&group) && is_in(group, place)
            || word == command
            || command.starts_with(&format!("{word}|"))
    };
    let last = words.iter().rfind(|word| about(word));
    last.is_some_and(|word| !word.starts_with('-'))
}

fn word() -> impl Strategy<Value = String> {
    let is_both = |name: &&str| CATEGORIES.contains(name);
    let names: Vec<&str> = (0..rights::count())
        .map(name)
        .filter(|name| !is_both(name))
        .collect();
    let names = prop::sample::select(names).prop_map(String::from);
    let categories = prop::sample::select(CATEGORIES.to_vec());
    let what = prop_oneof![3 => names, 2 => categories.clone().prop_map(|name| if matches!(name, "keyspace" | "pubsub" | "set") { format!("@{name}") } else { name.to_owned() }), 1 => categories.prop_map(|name| format!("@{name}")), 1 => Just("*".into())];
    (prop::sample::select(vec!["", "+", "-"]), what).prop_map(|(sign, what)| format!("{sign}{what}"))
}

/// The oracle: the keys of a command, told apart by its name and nothing else.
fn keys_of<'a>(words: &'a [&'a [u8]]) -> Vec<&'a [u8]> {
    let name = std::str::from_utf8(words[0]).unwrap();
    let pairs = matches!(name, "mset" | "msetnx");
    let is_many = pairs
        || matches!(
            name,
            "mget" | "del" | "exists" | "touch" | "unlink" | "watch" | "rotx" | "sdiff" | "sinter" | "sunion"
        );
    let has_level = is_many && words.len() >= if pairs { 5 } else { 4 } && words[words.len() - 2] == b"AT";
    let end = if has_level { words.len() - 2 } else { words.len() };
    match name {
        _ if pairs => words[1..end].iter().step_by(2).copied().collect(),
        _ if is_many => words[1..end].to_vec(),
        "object" | "memory" => words[2..3].to_vec(),
        _ => words[1..2].to_vec(),
    }
}

proptest! {
    #[test]
    fn compiled_rights_are_those_of_the_words(words in prop::collection::vec(word(), 0..12)) {
        let rights = Rights::of(words.iter().map(|word| word.parse().expect(word)));
        for place in 0..rights::count() {
            prop_assert_eq!(rights.has(place), oracle(&words, name(place)), "{} of {:?}", name(place), &words);
        }
    }

    #[test]
    fn a_command_is_denied_if_one_of_its_keys_has_no_prefix(
        place in 0..COMMANDS.len(),
        rest in prop::collection::vec(prop::sample::select(vec!["a:1", "b:1", "a", "AT", "at", "causal", "", "a:AT"]), 2..9),
        prefixes in prop::collection::vec(prop::sample::select(vec!["a:", "b", "AT", ""]), 0..3),
    ) {
        let spec = &COMMANDS[place];
        prop_assume!(spec.keys.first > 0);
        let mut words: Vec<&[u8]> = vec![spec.name.as_bytes()];
        words.extend(rest.iter().map(|word| word.as_bytes()));
        let arguments = arguments(&words);
        let user = User {
            keys: Some(prefixes.iter().map(|prefix| Bytes::from(*prefix)).collect()),
            ..user("ann", &[])
        };
        let has_prefix = |key: &&[u8]| prefixes.iter().any(|prefix| key.starts_with(prefix.as_bytes()));
        let expected = keys_of(&words).iter().all(has_prefix);
        let checked = user.check(find(spec.name.as_bytes()).unwrap(), &arguments, "causal");
        prop_assert_eq!(checked.is_ok(), expected, "{:?}", checked);
    }
}

#[test]
fn set_is_the_command_and_the_category_of_sets_needs_its_sign() {
    assert_eq!(allowed("set"), ["set"]);
    assert!(allowed("@set").contains(&"smembers") && !allowed("@set").contains(&"set"));
    assert_eq!(allowed("hash"), allowed("@hash"));
}
