//! `turnbuckle check`, as a person and as a script use it.
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn check(arguments: &[&str], trace: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .arg("check")
        .args(arguments)
        .arg(trace)
        .output()
        .expect("the program starts")
}

fn vector(name: &str) -> PathBuf {
    Path::new("../check/tests/vectors")
        .join(name)
        .with_extension("json")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_person_reads_what_held_and_what_did_not() {
    let output = check(&[], &vector("flip-flop"));
    assert_eq!(output.status.code(), Some(0), "it reports, and requires nothing");
    let text = out(&output);
    for expected in [
        "6 operations on 1 keys by 3 clients",
        "no: without 3 operations it would be (50.000 %",
        "3 of them if clocks are off by 1.000 ms",
        "17.000 ms (in all",
        "\"x\": Gamma 17.000 ms, 3 operations",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let text = out(&check(&[], &vector("sequential-ok")));
    assert!(text.contains("atomic              yes"), "{text}");
}

#[test]
fn a_script_reads_json_with_the_names_of_the_vectors() {
    let output = check(&["--json", "--skew", "1ms"], &vector("flip-flop"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["inconsistent_proportion"], "1/2");
    assert_eq!(report["gamma_per_value_ns"]["x"]["v1"], 17_000_000);
    assert_eq!(report["removed_ops_with_skew_ns"]["1000000"], 3);
}

#[test]
fn what_cannot_be_judged_is_named_with_file_and_place() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let line = |client: &str, value: &str, start: i64, finish: i64| {
        format!(
            "{{\"client\":\"{client}\",\"site\":\"a\",\"op\":\"write\",\"key\":\"k\",\"value\":\"{value}\",\"start_ns\":{start},\
             \"finish_ns\":{finish},\"status\":\"ok\"}}\n"
        )
    };
    for (text, code, expected) in [
        (
            "noise\n".to_owned(),
            2,
            "trace.jsonl:1: expected an operation as JSON",
        ),
        (
            line("c", "v", 0, 1) + &line("d", "v", 2, 3),
            2,
            "record 0 and record 1: expected values that differ within a key",
        ),
        (
            line("c", "v", 0, 5) + &line("c", "w", 2, 3),
            2,
            "record 0 and record 1: expected a client's operations one after the other",
        ),
        (
            line("c", "v", 9, 5),
            2,
            "trace.jsonl:1: expected an operation that is over after it began",
        ),
    ] {
        let file = directory.path().join("trace.jsonl");
        std::fs::write(&file, text).expect("it can be written");
        let output = check(&[], &file);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(expected), "{expected}\n{said}");
        assert_eq!(output.status.code(), Some(code), "{said}");
    }
    let output = check(&[], Path::new("no/such/file"));
    assert_eq!(output.status.code(), Some(3));
}
