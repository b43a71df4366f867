//! A command whose reader has gone away ends with its own exit code, and without a panic.
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// Runs a command; whoever read what it says is gone already. Returns its exit code.
fn unheard(arguments: &[&str], errors_too: bool) -> Option<i32> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let errors = match errors_too {
        true => Stdio::from(writer.try_clone().expect("another end")),
        false => Stdio::null(),
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnbuckle"));
    let command = command
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .stdout(writer)
        .stderr(errors);
    drop(reader);
    command.status().expect("the program starts").code()
}

#[test]
fn whatever_a_command_has_found_is_its_exit_code_though_nobody_reads() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let empty = directory.path().join("empty.jsonl");
    std::fs::write(&empty, "").expect("it can be written");
    let empty = empty.to_str().expect("an ordinary path");
    let vector = "crates/check/tests/vectors/flip-flop.json";
    for (arguments, code) in [
        (&["check", vector][..], 0),
        (&["check", vector, vector, "--json"], 0),
        (&["check", vector, "--explain"], 0),
        (&["check", vector, "--require", "linearizable"], 1),
        (&["check", empty, "--require", "linearizable"], 2),
        (&["check", "no/such/file"], 3),
        (&["sim", "scenarios/calm.toml"], 0),
        (&["sim", "--plant", "no_such_bug"], 2),
        (&["sim", "no/such.toml"], 3),
        // Each seed that goes wrong is told at once.
        (
            &[
                "sim",
                "--protocol",
                "abd",
                "--plant",
                "reads_without_write_back",
                "--seeds",
                "1..3",
            ],
            1,
        ),
        (&["experiment", "list"], 0),
        (&["experiment", "run", "no/such"], 2),
        (&["bench", "--target", "127.0.0.1:1"], 3),
        (&["bench", "--help"], 0),
        (&["wan", "--admin", "127.0.0.1:1", "show"], 3),
        (&["start", "--config", "no/such.toml", "--node", "a1"], 3),
        (&["no-such-command"], 2),
    ] {
        for errors_too in [false, true] {
            let found = unheard(arguments, errors_too);
            assert_eq!(found, Some(code), "{arguments:?}, errors too: {errors_too}");
        }
    }
}
