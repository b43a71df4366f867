//! Tables in a document that are the command's own.
//!
//! ````text
//!   ### causal/fig5.4: ...        the heading begins with a name
//!   Words that people write.
//!   ```text
//!   ...                           what was found: replaced
//!   ```
//! ````
use crate::failure::{Failure, environment, usage};
use std::{fs, path::Path};

const BEGIN: &str = "```text\n";
const END: &str = "```";

/// Puts what was found into the document.
pub fn update(path: &Path, name: &str, findings: &str) -> Result<(), Failure> {
    let failed = |error| environment(&format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(failed)?;
    let Some(text) = put(&text, name, findings) else {
        return Err(usage(&format!(
            "{}: expected a heading '### {name}: ..' with a block '```text' below it",
            path.display()
        )));
    };
    fs::write(path, text).map_err(failed)
}

/// The document with another block. None if there is no place for it.
fn put(document: &str, name: &str, findings: &str) -> Option<String> {
    let heading = document.find(&format!("### {name}: "))?;
    let section = &document[heading..];
    let section = &section[..section.find("\n#").unwrap_or(section.len())];
    let begin = heading + section.find(BEGIN)? + BEGIN.len();
    let end = begin + document[begin..].find(END)?;
    // Tables are filled up with blanks, which have no place in a document.
    let lines: String = findings
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    Some(format!("{}{lines}{}", &document[..begin], &document[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "\
# Figures
```text
of none
```
### a/1: one
Words.
```text
old
```
More words.
### a/2: two
Nothing yet.
### a/3: three
```text
```
";

    #[test]
    fn the_block_below_its_heading_is_replaced_and_nothing_else() {
        let new = put(DOCUMENT, "a/1", "new  \n\nheld: it").expect("there is a place");
        assert_eq!(new, DOCUMENT.replace("old\n", "new\n\nheld: it\n"));
        assert_eq!(
            put(&new, "a/1", "old").as_deref(),
            Some(DOCUMENT),
            "again and again"
        );
        let filled = put(DOCUMENT, "a/3", "x").expect("there is a place");
        assert!(filled.ends_with("### a/3: three\n```text\nx\n```\n"));
    }

    #[test]
    fn a_section_without_a_block_or_none_at_all_is_no_place() {
        for name in ["a/2", "a/4", "a"] {
            assert_eq!(put(DOCUMENT, name, "x"), None, "{name}");
        }
    }

    #[test]
    fn every_experiment_has_its_place_in_our_own_document() {
        let document = include_str!("../../../docs/experiments.md");
        for (name, _) in crate::experiment::EXPERIMENTS {
            assert!(put(document, name, "x").is_some(), "{name}");
        }
    }

    #[test]
    fn so_have_the_bugs_that_are_hunted() {
        assert!(put(include_str!("../../../docs/simulation.md"), "planted", "x").is_some());
    }
}
