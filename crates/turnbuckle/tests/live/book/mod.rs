//! The pages show what the program does.
//!
//! Each block in a page (what is between two lines of three backticks) has a comment above it that says where the block comes from. Tests run the block, or name who does:
//!
//! | comment | the block |
//! |---|---|
//! | `shell` | a transcript of `turnbuckle demo --shell`: the test types the lines behind the prompts |
//! | `run` | commands for bash: the test runs them, beside a demo with WAN delays; each must end with 0 |
//! | `output` | what the `run` block before it printed |
//! | `output of: COMMAND` | what this command prints, to standard output and standard error |
//! | `console` | commands behind `$ `, and what each of them prints |
//! | `file: NAME` | a file in the directory in which the commands of the page run |
//! | `commands` | commands that take long or go on until they are stopped: the test checks that the program has these options, and the Makefile these targets |
//! | `code: ..` | source code; `the_guide_shows_the_code.rs` compares it |
//! | `tested by: FILE` | another test, or a command that is no part of the tests, uses the block |
//! | `made by: COMMAND` | a command writes it into the page, or prints it; it takes too long for a test |
//! | `by hand` | needs something that a test here cannot do, such as a cut at the right moment |
//! | `shown` | a picture, a syntax, or a form: no command prints it |
//!
//! A line `...` in an output stands for any lines. `UPDATE_GOLDENFILES=1` writes transcripts and outputs into the pages, but not those with `...`. What a live
//! cluster prints differs in its numbers from run to run, so `shell` and `output` are compared without them, and are written only where more than numbers has
//! changed. The others are compared as they are.
mod commands;
mod page;
mod shell;

use page::Page;
use std::path::{Path, PathBuf};

/// The directory of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether the pages are to be written, not compared.
fn writes() -> bool {
    std::env::var("UPDATE_GOLDENFILES").is_ok_and(|value| value == "1")
}

/// The pages of the book, by their paths in the repository.
fn pages() -> Vec<String> {
    let mut pages: Vec<String> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
        .map(String::from)
        .into();
    for folder in ["docs", "docs/protocols", "docs/decisions"] {
        let entries = root().join(folder).read_dir().expect("the folder is there");
        let names = entries.map(|entry| entry.expect("it can be read").file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        pages.extend(
            names
                .filter(|name| name.ends_with(".md"))
                .map(|name| format!("{folder}/{name}")),
        );
    }
    pages
}

#[test]
fn every_block_says_where_it_comes_from() {
    let mut wrong = String::new();
    for name in pages() {
        for block in Page::read(&name).blocks() {
            let mark = block.mark.as_deref().unwrap_or_default();
            let (word, rest) = mark.split_once(": ").unwrap_or((mark, ""));
            let known = match word {
                "shell" | "run" | "output" | "console" | "commands" | "by hand" | "shown" => rest.is_empty(),
                "tested by" => root().join(rest).exists(),
                "output of" | "file" | "code" | "made by" => !rest.is_empty(),
                _ => false,
            };
            if !known {
                wrong += &format!(
                    "{name}:{}: {mark:?} above the block {:?}\n",
                    block.line,
                    block.text.lines().next()
                );
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "expected one of the comments that book/mod.rs lists:\n{wrong}"
    );
}

/// Signed causal contexts, which are another text each time, as one word.
fn without_contexts(text: &str) -> String {
    const MIN: usize = 36;
    let is_of_one = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
    let parts = text
        .split('"')
        .map(|part| match part.len() >= MIN && part.chars().all(is_of_one) {
            true => "context",
            false => part,
        });
    parts.collect::<Vec<_>>().join("\"")
}

/// The digits as one `0` for each number, its unit as `u`, and no columns: what stays the same from run to run.
fn without_numbers(text: &str) -> String {
    let text = without_contexts(text);
    let mut plain = String::new();
    let mut rest = &text[..];
    while let Some(character) = rest.chars().next() {
        let number = rest.trim_start_matches(|character: char| {
            character.is_ascii_digit() || matches!(character, '.' | ',')
        });
        if character.is_ascii_digit() {
            plain.push('0');
            let unit = ["us", "ms", "s"].into_iter().find(|unit| {
                let after = number
                    .strip_prefix(' ')
                    .and_then(|after| after.strip_prefix(unit));
                after.is_some_and(|after| {
                    !after.starts_with(|character: char| character.is_ascii_alphanumeric())
                })
            });
            rest = &number[unit.map_or(0, |unit| unit.len() + 1)..];
            plain += unit.map_or("", |_| " u");
            continue;
        }
        if !(character == ' ' && plain.ends_with([' ', '\n'])) {
            plain.push(character);
        }
        rest = &rest[character.len_utf8()..];
    }
    plain
}

#[test]
fn numbers_and_columns_do_not_count() {
    assert_eq!(without_numbers("  p50 1,246  1.48 ms\n"), " p0 0 0 u\n");
    assert_eq!(
        without_numbers("in 5.0 s: 500 per second"),
        "in 0 u: 0 per second"
    );
    assert_eq!(without_numbers("400 sites, 3 s"), "0 sites, 0 u");
}
