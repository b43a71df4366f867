//! The words by which errors are counted, explained: in the report those that occurred, in `--help` all that are known.
//!
//! The first three are the benchmark's own. The others are first words of a server's errors (`docs/commands.md`).

use std::fmt::Write;

const WORDS: [(&str, &str); 8] = [
    (
        "CONNECTION",
        "the connection was lost while the operation was under way; it may have happened",
    ),
    (
        "NOREPLY",
        "no answer came within --timeout, and the connection was given up; it may have happened",
    ),
    (
        "UNSENT",
        "open loop: the operation was due before the end, and no client was free to send it",
    ),
    (
        "TIMEOUT",
        "the server had no answer in time; it may have happened",
    ),
    ("UNAVAILABLE", "the server refused it for now; it did not happen"),
    (
        "BADLEVEL",
        "the keyspace does not have the level that was asked for; it did not happen",
    ),
    (
        "TOOBIG",
        "a key, a value or a command is over a limit of the server; it did not happen",
    ),
    ("OTHER", "errors with further words, counted together"),
];

const ANY_WORD: &str = "the server refused it with an error that begins with this word; it did not happen";

/// Whether an operation that ended so may succeed when it is tried again: the server, the group or the network may be well by then.
pub(super) fn passes(word: &str) -> bool {
    ["TIMEOUT", "UNAVAILABLE", "LOADING"].contains(&word)
}

/// What a word in `errors` means.
pub(super) fn meaning(word: &str) -> &'static str {
    let known = WORDS.iter().find(|(known, _)| *known == word);
    known.map_or(ANY_WORD, |(_, meaning)| meaning)
}

/// A line for each of these words.
pub(super) fn explained<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut lines = String::new();
    for word in words {
        writeln!(lines, "  {word:<13}{}", meaning(word)).expect("writing to a string does not fail");
    }
    lines
}

/// The part of `--help` about them.
pub(super) fn help() -> String {
    let words = explained(WORDS.iter().map(|(word, _)| *word));
    format!("Words in the line 'errors':\n{words}  any other    {ANY_WORD}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_has_its_own_line_and_those_of_other_servers_have_one_too() {
        let lines = explained(["LOADING", "UNSENT"].into_iter());
        assert_eq!(
            lines,
            "  LOADING      the server refused it with an error that begins with this word; it did not happen\n  UNSENT       open \
             loop: the operation was due before the end, and no client was free to send it\n"
        );
        assert!(
            WORDS
                .iter()
                .all(|(word, meaning)| help().contains(&format!("  {word:<13}{meaning}\n")))
        );
    }
}
