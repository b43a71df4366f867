//! Transcripts of `turnbuckle demo --shell`. Whether a message has arrived by the time of a read may differ on a machine that stands still for long: a page is
//! played up to ten times.
use super::{page::Page, without_numbers, writes};
use crate::demo::shell;

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

#[test]
fn the_page_on_commands_shows_what_the_shell_prints() {
    check("docs/commands.md");
}

#[test]
fn the_page_on_clients_shows_what_the_shell_prints() {
    check("docs/clients.md");
}

#[test]
fn the_page_on_siblings_shows_what_the_shell_prints() {
    check("docs/protocols/quorum-siblings.md");
}

#[test]
fn the_page_on_dacian_shows_what_the_shell_prints() {
    check("docs/protocols/dacian.md");
}

#[test]
fn the_page_on_nukv_shows_what_the_shell_prints() {
    check("docs/protocols/nukv.md");
}

/// What the demo of a page has that others do not.
fn options(name: &str) -> &'static [&'static str] {
    match name {
        "docs/protocols/quorum-siblings.md" => &["--keyspace", "carts=quorum-siblings"],
        _ => &[],
    }
}

fn check(name: &str) {
    let mut page = Page::read(name);
    let shown = page
        .blocks()
        .filter(|block| block.mark.as_deref() == Some("shell"));
    let shown: Vec<String> = shown.map(|block| block.text.clone()).collect();
    assert!(!shown.is_empty(), "{name} has no transcript");
    // A comment before each block: the shell prints its line and nothing else.
    let script = shown
        .iter()
        .map(|block| format!("{PAUSE}\n# block\n{}", lines_of(block)));
    let script: String = script.collect();
    let mut differs = String::new();
    for _ in 0..TRIES {
        let said = shell(&script, options(name));
        let printed = transcripts(&said);
        assert_eq!(printed.len(), shown.len(), "{said}");
        if writes() {
            let blocks = page
                .blocks_mut()
                .filter(|block| block.mark.as_deref() == Some("shell"));
            for (block, new) in blocks.zip(printed) {
                block.text = new;
            }
            return page.write();
        }
        let mut both = shown.iter().zip(&printed);
        match both.find(|(old, new)| without_numbers(old) != without_numbers(new)) {
            None => return,
            Some((old, new)) => differs = format!("{name} shows\n{old}\nand the shell prints\n{new}"),
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
