//! Checks that the code in `docs/writing-a-protocol.md` is that of the protocol. A line `<!-- code: FILE "BEGIN" -->` is above each piece of code; a
//! number after the name limits the lines that are shown. `UPDATE_GOLDENFILES=1` writes the code into the page.
use std::{fs, path::Path};

const MARK: &str = "<!-- code: ";

/// The code that a mark names: from the first line that begins so, with the comments and attributes above it, to where it ends.
fn code(root: &Path, mark: &str) -> String {
    let text = mark.trim_end_matches(" -->");
    let (file, rest) = text
        .split_once(" \"")
        .expect("a mark names a file and a line in quotes");
    let (begin, max) = rest.rsplit_once('"').expect("the line is in quotes");
    let max: usize = max.trim().parse().unwrap_or(usize::MAX);
    let source = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let lines: Vec<&str> = source.lines().collect();
    let place = lines.iter().position(|line| line.starts_with(begin));
    let place = place.unwrap_or_else(|| panic!("{file} has no line that begins with {begin:?}"));
    let indent = |line: &str| line.len() - line.trim_start().len();
    let outer = indent(lines[place]);
    let is_above = |line: &&&str| line.trim_start().starts_with("///") || line.trim_start().starts_with("#[");
    let above = lines[..place].iter().rev().take_while(is_above).count();
    let ends = |line: &&str| indent(line) == outer && line.trim_start().starts_with(['}', ']']);
    let last = match lines[place].ends_with([';', ',']) {
        true => place,
        false => place + lines[place..].iter().position(ends).expect("it ends"),
    };
    let shown = lines[place - above..=last].iter().take(max);
    shown
        .map(|line| line.get(outer..).unwrap_or_default().to_string() + "\n")
        .collect()
}

#[test]
fn the_guide_shows_the_code_as_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let page = root.join("docs/writing-a-protocol.md");
    let found = fs::read_to_string(&page).expect("the page is there");
    let mut expected = String::new();
    let mut lines = found.lines().peekable();
    let mut pieces = 0;
    while let Some(line) = lines.next() {
        expected += &format!("{line}\n");
        let Some(mark) = line.strip_prefix(MARK) else {
            continue;
        };
        pieces += 1;
        if lines.peek() == Some(&"```rust") {
            lines.by_ref().find(|line| *line == "```");
        }
        expected += &format!("```rust\n{}```\n", code(&root, mark));
    }
    assert!(pieces > 10, "{pieces} pieces of code are marked");
    if std::env::var("UPDATE_GOLDENFILES").is_ok_and(|value| value == "1") {
        fs::write(&page, expected).expect("it can be written");
    } else {
        assert!(
            found == expected,
            "the code has changed: UPDATE_GOLDENFILES=1 writes it into {}",
            page.display()
        );
    }
}
