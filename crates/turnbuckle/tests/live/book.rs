//! The transcripts in the pages that newcomers read first: each block behind `<!-- shell -->` is what `turnbuckle demo --shell` prints for its lines.
//!
//! `UPDATE_GOLDENFILES=1` writes them into the pages. Numbers differ from run to run, so they are compared by their places alone. Whether a message has
//! arrived by the time of a read may differ, too, on a machine that stands still for long: a page is played up to ten times.
use crate::demo::shell;
use std::{fs, path::Path};

const BEGIN: &str = "<!-- shell -->\n```text\n";
const END: &str = "```\n";
const TRIES: usize = 10;

/// Before each block, as a person takes a while between two of them: messages that a slow way still holds arrive, and freshness can be proven. It is not
/// part of the page.
const PAUSE: &str = "wait 1600ms";

#[test]
fn the_readme_shows_what_the_shell_prints() {
    check("README.md");
}

#[test]
fn the_quick_start_shows_what_the_shell_prints() {
    check("docs/quickstart.md");
}

fn check(page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = fs::read_to_string(&path).expect("the page is there");
    let mut parts = text.split(BEGIN);
    let before = parts.next().expect("there is a part before the first block");
    let blocks: Vec<(&str, &str)> = parts
        .map(|part| part.split_once(END).expect("each block ends"))
        .collect();
    assert!(!blocks.is_empty(), "{page} has no transcript");
    // A comment before each block: the shell prints its line and nothing else.
    let script: String = blocks
        .iter()
        .map(|(block, _)| format!("{PAUSE}\n# block\n{}", lines_of(block)))
        .collect();
    let mut differs = String::new();
    for _ in 0..TRIES {
        let said = shell(&script, &[]);
        let printed = transcripts(&said);
        assert_eq!(printed.len(), blocks.len(), "{said}");
        if std::env::var("UPDATE_GOLDENFILES").is_ok_and(|value| value == "1") {
            let after = blocks.iter().zip(&printed);
            let written: String = after
                .map(|((_, rest), new)| format!("{BEGIN}{new}{END}{rest}"))
                .collect();
            fs::write(&path, format!("{before}{written}")).expect("the page can be written");
            return;
        }
        let differing = blocks
            .iter()
            .zip(&printed)
            .find(|((old, _), new)| without_numbers(old) != without_numbers(new));
        match differing {
            None => return,
            Some(((old, _), new)) => differs = format!("{page} shows\n{old}\nand the shell prints\n{new}"),
        }
    }
    panic!("{differs}");
}

/// What somebody typed: the lines behind a prompt.
fn lines_of(block: &str) -> String {
    let typed = block.lines().filter_map(typed);
    typed.map(|line| format!("{line}\n")).collect()
}

/// A line behind a prompt such as `a> `. The lines of an album are set in.
fn typed(line: &str) -> Option<&str> {
    let (site, line) = line.split_once("> ")?;
    (site.len() == 1).then_some(line)
}

/// What was printed for each block.
fn transcripts(said: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    for line in said.lines() {
        match (typed(line), blocks.last_mut()) {
            (Some("# block"), _) => blocks.push(String::new()),
            (Some(PAUSE), _) => {}
            (_, Some(block)) => *block += &format!("{line}\n"),
            (_, None) => {}
        }
    }
    blocks
}

/// Digits as one `0` for each number, and no columns.
fn without_numbers(text: &str) -> String {
    let mut plain = String::new();
    for character in text.chars() {
        match character {
            '0'..='9' if plain.ends_with('0') => {}
            '0'..='9' => plain.push('0'),
            ' ' if plain.ends_with(' ') => {}
            _ => plain.push(character),
        }
    }
    // A span may be a little more or less than a millisecond.
    plain.replace("0 us", "0 ms")
}
