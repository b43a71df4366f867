use crate::{Document, Misplaced, Name, Number, Tagged, Word, number};
use serde::Deserialize;
use std::{collections::BTreeMap, path::Path};
use toml::Spanned;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Zoo {
    name: Word<Name>,
    #[serde(default)]
    rows: Vec<Number<1, 9>>,
    #[serde(default)]
    words: Vec<Word<Name>>,
    #[serde(default)]
    prices: BTreeMap<String, Number<1>>,
    #[serde(default)]
    cage: Vec<Cage>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cage {
    width: Option<Number<1, 9>>,
    kind: Spanned<Animal>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Animal {
    SeaLion {
        #[serde(deserialize_with = "number::<_, 0, 9>")]
        fish: u64,
    },
    Pair {
        a: Word<Name>,
        b: Word<Name>,
    },
}

const CAGES: Tagged = Tagged {
    list: "cage",
    tag: "kind",
    shared: &["width"],
};

/// A cage is not wider than its number of fish, and the two names of a pair differ.
fn check(zoo: &Zoo) -> Result<(), Misplaced> {
    for cage in &zoo.cage {
        match cage.kind.get_ref() {
            Animal::SeaLion { fish } => {
                let width = cage.width.clone();
                width.map(|width| width.within(1..=*fish)).transpose()?;
            }
            Animal::Pair { a, b } if a.text() == b.text() => {
                return Err(b.wrong("another name than that of a"));
            }
            Animal::Pair { .. } if cage.width.is_none() => {
                return Err(Misplaced::missing(cage.kind.span(), "width", "room for two"));
            }
            Animal::Pair { .. } => {}
        }
    }
    match zoo.prices.is_empty() {
        true => Ok(()),
        false => Err(Misplaced::of_field(
            0..0,
            &["prices", "ostrich"],
            "nothing",
            "a price",
        )),
    }
}

fn read(text: &str) -> Result<Zoo, String> {
    let document = Document::parse(Path::new("zoo.toml"), text).map_err(|wrong| wrong.to_string())?;
    let zoo: Zoo = document.decode_tagged(CAGES).map_err(|wrong| wrong.to_string())?;
    check(&zoo).map_err(|wrong| document.report(wrong).to_string())?;
    Ok(zoo)
}

#[test]
fn a_field_is_what_it_stands_for() {
    let text = "name = \"berlin\"\nrows = [1, 9]\nwords = [\"a-1\"]\n[[cage]]\nkind = \"sea-lion\"\nwidth = 2\nfish = 3\n\
                [[cage]]\nwidth = 1\nb = \"ada\"\na = \"bob\"\nkind = \"pair\"";
    let zoo = read(text).expect("a zoo");
    assert_eq!((zoo.name.text(), zoo.words[0].text()), ("berlin", "a-1"));
    assert_eq!(*zoo.rows[1], 9);
    assert!(matches!(zoo.cage[0].kind.get_ref(), Animal::SeaLion { fish: 3 }));
    assert!(matches!(zoo.cage[1].kind.get_ref(), Animal::Pair { a, .. } if a.text() == "bob"));
}

#[test]
fn what_is_wrong_is_said_with_line_and_field_found_and_expected() {
    const NAME: &str = "a name: a letter, then letters, digits, '-' or '_', at most 64 in all";
    for (text, expected) in [
        // Texts and numbers with wrong values, of another type, or missing.
        ("", format!("1: name: found nothing; expected {NAME}")),
        ("name = \"\"", format!("1: name: found \"\"; expected {NAME}")),
        (
            "\nname = 7",
            format!("2: name: found integer `7`; expected {NAME}, in quotes"),
        ),
        (
            "name = \"b\"\nrows = [\n  1,\n  10,\n]",
            "4: rows[2]: found 10; expected a whole number from 1 to 9".into(),
        ),
        (
            "name = \"b\"\nrows = [\"two\"]",
            "2: rows[1]: found string \"two\"; expected a whole number from 1 to 9".into(),
        ),
        (
            "name = \"b\"\nwords = [\n\"a\",\n\"0\"\n]",
            format!("4: words[2]: found \"0\"; expected {NAME}"),
        ),
        (
            "name = \"b\"\nrows = 5",
            "2: rows: found integer `5`; expected a list: [..]".into(),
        ),
        (
            "name = \"b\"\n[prices]\nape = -1",
            "3: prices.ape: found -1; expected a whole number, 1 or more".into(),
        ),
        // Tables with a tag.
        (
            "name = \"b\"\n[[cage]]\nkind = \"dodo\"\nfish = 1",
            "3: cage[1].kind: found unknown variant `dodo`; expected `sea-lion` or `pair`".into(),
        ),
        (
            "name = \"b\"\n[[cage]]\nfish = 1",
            "2: cage[1]: found nothing; expected `sea-lion` or `pair`".into(),
        ),
        (
            "name = \"b\"\n[[cage]]\nkind = 5",
            "3: cage[1].kind: found something else; expected the name of a kind, in quotes".into(),
        ),
        (
            "name = \"b\"\n[[cage]]\nkind = \"sea-lion\"\nfish = 1\na = \"x\"",
            "5: cage[1].a: found unknown field `a`; expected one of `fish`, `width`".into(),
        ),
        (
            "name = \"b\"\n[[cage]]\nkind = \"sea-lion\"",
            "2: cage[1].fish: found nothing; expected a value".into(),
        ),
        (
            "name = \"b\"\n[[cage]]\nkind = \"sea-lion\"\nfish = 10",
            "4: cage[1].fish: found 10; expected a whole number from 0 to 9".into(),
        ),
        (
            "name = \"b\"\n[[cage]]\nkind = \"pair\"\na = \"x\"",
            format!("2: cage[1].b: found nothing; expected {NAME}"),
        ),
        // Errors that depend on other fields.
        (
            "name = \"b\"\n[[cage]]\nkind = \"pair\"\na = \"x\"\nb = \"x\"",
            "5: cage[1].b: found \"x\"; expected another name than that of a".into(),
        ),
        (
            "name = \"b\"\n[[cage]]\nkind = \"pair\"\na = \"x\"\nb = \"y\"",
            "2: cage[1].width: found nothing; expected room for two".into(),
        ),
        (
            "name = \"b\"\n[[cage]]\nkind = \"sea-lion\"\nfish = 1\nwidth = 2",
            "5: cage[1].width: found 2; expected a whole number from 1 to 1".into(),
        ),
        (
            "name = \"b\"\n\n[prices]\nape = 1",
            "3: prices.ostrich: found nothing; expected a price".into(),
        ),
        (
            "name = \"b\"\n\n[prices]\nape = 1\nostrich = 2",
            "5: prices.ostrich: found nothing; expected a price".into(),
        ),
        // Texts that are not TOML.
        (
            "name = b",
            "1: found a word without quotes; expected true, false, a number, or text in quotes".into(),
        ),
        (
            "a = 1\na = 2",
            "2: found the key a twice; expected every key once".into(),
        ),
    ] {
        let error = read(text).expect_err(text);
        assert_eq!(error, format!("zoo.toml:{expected}"), "{text}");
    }
}

#[test]
fn what_was_found_is_cut_short() {
    let long = "x".repeat(1_000);
    for text in [format!("name = \"{long}\""), format!("name = \"b\"\n{long} = 1")] {
        let error = read(&text).expect_err("it is wrong");
        assert!(!error.contains(&"x".repeat(200)), "{error}");
    }
}
