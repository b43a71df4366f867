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
        "6 operations on 1 key by 3 clients",
        "no: without 3 of its 6 operations it would be (50.000 % ± ",
        "3 of them if clocks are off by 1.000 ms",
        "17.000 ms (in all",
        "\"x\": Gamma 17.000 ms, 3 operations",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let text = out(&check(&[], &vector("sequential-ok")));
    assert!(text.contains("atomic              yes"), "{text}");
}

/// Not in lowest terms: the counts can be found in the trace again.
#[test]
fn a_proportion_is_said_with_the_counts_of_the_trace() {
    let line = |key: u32, op: &str, value: u32, start: u32| {
        format!(
            "{{\"client\":\"c\",\"site\":\"a\",\"op\":\"{op}\",\"key\":\"k{key}\",\"value\":\"{value}\",\"start_ns\":{start},\
             \"finish_ns\":{},\"status\":\"ok\"}}\n",
            start + 1
        )
    };
    // Of two keys the value is read that was overwritten. What replaced it has to go.
    let of_key = |key: u32| {
        let at = 100 * key;
        let writes = line(key, "write", 1, at) + &line(key, "write", 2, at + 10);
        let last = if key < 2 { 1 } else { 2 };
        writes + &line(key, "read", last, at + 20)
    };
    let trace: String = (0..4).map(of_key).collect();
    let (_, text, _) = traced(&trace, &[]);
    let expected = "atomic              no: without 2 of its 12 operations it would be (16.667 % ± 10.758 %)";
    assert!(text.contains(expected), "{text}");
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
            line("c", "v", 0, 1)
                + &line("d", "w", 2, 3).replace("\"site\"", "\"level\":\"causal\",\"expires\":5,\"site\""),
            2,
            "trace.jsonl:2: expected an operation as JSON (client, site, op, key, value, start_ns, finish_ns, status), found something else \
             at column 40: unknown field `expires`, expected one of `client`",
        ),
        (
            line("c", "v", 0, 1) + &line("d", "v", 2, 3),
            2,
            "trace.jsonl:1 and {file}:2: expected values that differ within a key",
        ),
        (
            line("c", "v", 0, 5) + "\n" + &line("c", "w", 2, 3),
            2,
            "trace.jsonl:1 and {file}:3: expected a client's operations one after the other",
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
        let expected = expected.replace("{file}", &file.display().to_string());
        assert!(said.contains(&expected), "{expected}\n{said}");
        assert_eq!(output.status.code(), Some(code), "{said}");
    }
    let output = check(&[], Path::new("no/such/file"));
    assert_eq!(output.status.code(), Some(3));
}

fn traced(text: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("trace.jsonl");
    std::fs::write(&file, text).expect("it can be written");
    let output = check(arguments, &file);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), out(&output), said)
}

/// A client writes 1 and 2 and reads 1, long after. `extra` goes into the record of the read.
fn stale_read(extra: &str) -> String {
    let line = |op: &str, value: u32, start: u64, extra: &str| {
        format!(
            "{{\"client\":\"c\",\"site\":\"a\",\"op\":\"{op}\",\"key\":\"k\",\"value\":\"{value}\",\"start_ns\":{start},\
             \"finish_ns\":{},\"status\":\"ok\",\"version\":\"{value}.0@a\"{extra}}}\n",
            start + 1
        )
    };
    line("write", 1, 0, "") + &line("write", 2, 10, "") + &line("read", 1, 5_000_000, extra)
}

fn receipt(staleness_us: u64) -> String {
    format!(
        ",\"level\":\"eventual\",\"receipt\":{{\"asked\":\"eventual\",\"given\":\"eventual\",\"staleness_us\":{staleness_us}}}"
    )
}

#[test]
fn a_false_receipt_is_a_broken_promise() {
    let (code, text, _) = traced(&stale_read(&receipt(5_000)), &[]);
    assert_eq!(code, Some(0), "it is not older than it says");
    assert!(
        text.contains("receipts            0 false, 1 not contradicted"),
        "{text}"
    );
    let (code, text, said) = traced(&stale_read(&receipt(4_999)), &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("receipts            1 false"), "{text}");
    assert!(
        said.contains("trace.jsonl:3: staleness is promised and broken: it missed a write"),
        "{said}"
    );
    assert!(
        text.contains("if a clock was outside its server's bound"),
        "{text}"
    );
    assert!(
        said.contains("SEE WHY WITH: turnbuckle check --explain"),
        "{said}"
    );
    let (_, _, said) = traced(&stale_read(&receipt(4_999)), &["--explain"]);
    assert!(!said.contains("SEE WHY"), "{said}");
}

#[test]
fn a_level_that_the_trace_records_is_held_to() {
    let (code, _, said) = traced(&stale_read(",\"level\":\"read-your-writes\""), &[]);
    assert_eq!(code, Some(1));
    let expected =
        "trace.jsonl:3: read-your-writes is promised and broken: it did not read what its client had written";
    assert!(said.contains(expected), "{said}");
    for level in ["eventual", "one", "sequential", "of a later version"] {
        let (code, ..) = traced(&stale_read(&format!(",\"level\":\"{level}\"")), &[]);
        assert_eq!(code, Some(0), "{level}");
    }
}

/// The reader of a report must not take what a level allows for a fault.
#[test]
fn what_is_normal_at_a_level_is_said_for_each_that_the_trace_has() {
    let trace =
        stale_read(",\"level\":\"eventual\"").replace("\"write\",", "\"write\",\"level\":\"bounded(2s)\",");
    let (_, text, _) = traced(&trace, &["--require", "linearizable"]);
    for expected in [
        "  promised            bounded(2s): 0 false, 2 not contradicted, 0 not auditable\n                      \
         bounded(2s): reads that are stale for up to 2s are allowed; staler reads are not\n",
        "  promised            eventual: 0 false, 1 not contradicted, 0 not auditable\n                      \
         eventual: stale reads and reads that go back are allowed; lost acknowledged writes are not\n",
        "  required            linearizable: stale reads and reads that go back are not allowed\n",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let (_, text, _) = traced(&stale_read(""), &[]);
    assert!(!text.contains("allowed"), "no level is named: {text}");
}

#[test]
fn a_level_that_is_required_is_kept_broken_or_cannot_be_judged() {
    let trace = stale_read("");
    for (level, code, expected) in [
        ("eventual", 0, ""),
        ("bounded(5ms)", 0, ""),
        ("monotonic-reads", 0, ""),
        (
            "bounded(4ms)",
            1,
            "trace.jsonl:3: bounded(4ms) is required and broken",
        ),
        ("session", 1, "(1 operation in all)"),
        ("linearizable", 1, "linearizable is required and broken"),
        ("quorum", 2, "quorum cannot be judged from this trace"),
        ("strong", 2, "no consistency level"),
    ] {
        let (found, _, said) = traced(&trace, &["--require", level]);
        assert_eq!(found, Some(code), "{level}: {said}");
        assert!(said.contains(expected), "{said}");
    }
    let (_, text, _) = traced(&trace, &["--require", "session", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(answer["required"]["verdict"], "broken");
    assert_eq!(answer["session_order"], "versions");
    assert_eq!(answer["per_site"]["a"]["stale_reads"], 1);
}

#[test]
fn a_trace_without_a_read_that_counts_keeps_no_level() {
    let write = stale_read("")
        .lines()
        .next()
        .map(|line| format!("{line}\n"))
        .expect("a line");
    let failed = write.replace("\"ok\"", "\"fail\"");
    for trace in ["", "\n", &write, &failed] {
        for level in ["eventual", "session", "causal", "linearizable", "quorum"] {
            let (code, _, said) = traced(trace, &["--require", level]);
            assert_eq!(code, Some(2), "{trace} {level}: {said}");
            let expected = format!("{level} cannot be judged from this trace: there is nothing to judge");
            assert!(said.contains(&expected), "{said}");
        }
        let (code, text, _) = traced(trace, &[]);
        assert_eq!(code, Some(0), "nothing is required");
        assert!(
            text.contains("nothing was judged  no read of the trace counts"),
            "{text}"
        );
        assert!(!text.contains("CC yes") && !text.contains("atomic"), "{text}");
    }
    let (_, text, _) = traced("", &["--require", "linearizable", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(answer["required"]["verdict"], "not_auditable");
}

#[test]
fn keys_that_cannot_be_judged_are_named() {
    let delete = "{\"client\":\"d\",\"site\":\"a\",\"op\":\"delete\",\"key\":\"gone\",\"start_ns\":1,\"finish_ns\":2,\"status\":\"ok\"}\n";
    let (code, text, _) = traced(delete, &[]);
    assert_eq!(code, Some(0));
    assert!(text.contains("nothing was judged"), "{text}");
    assert!(
        text.contains("1 key left out; it is \"gone\": it was deleted"),
        "{text}"
    );
    for level in ["linearizable", "causal"] {
        let (code, _, said) = traced(delete, &["--require", level]);
        assert_eq!(code, Some(2));
        assert!(said.contains("there is nothing to judge"), "{said}");
    }
    // Beside keys that can be judged.
    let (code, text, _) = traced(&(stale_read("") + delete), &["--require", "partition-sequential"]);
    assert_eq!(code, Some(2));
    assert!(
        text.contains("CC no (1 read breaks it), CCv no, CM no, of what can be judged"),
        "{text}"
    );
    let right = stale_read("")
        .lines()
        .take(1)
        .map(|line| format!("{line}\n"))
        .collect::<String>();
    let right = right.clone()
        + &right
            .replace("\"write\"", "\"read\"")
            .replace("\"start_ns\":0,\"finish_ns\":1", "\"start_ns\":5,\"finish_ns\":6");
    let (_, text, _) = traced(&(right + delete), &[]);
    assert!(
        text.contains("atomic              yes, as far as it can be judged"),
        "{text}"
    );
    assert!(
        text.contains("sequential          yes, of what can be judged"),
        "{text}"
    );
}

#[test]
fn a_value_that_no_record_wrote_is_from_before_the_trace_unless_it_began_empty() {
    let old = "{\"client\":\"c\",\"site\":\"a\",\"op\":\"read\",\"key\":\"k\",\"value\":\"old\",\"start_ns\":1,\"finish_ns\":2,\
               \"status\":\"ok\",\"level\":\"eventual\"}\n";
    let (code, text, said) = traced(old, &[]);
    assert_eq!(code, Some(0), "{said}");
    for expected in [
        "1 operation on 1 key by 1 client",
        "before the trace    1 read returned 1 value that no record wrote",
        "eventual: 0 false, 0 not contradicted, 1 not auditable",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let (code, _, said) = traced(old, &["--require", "eventual"]);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("eventual cannot be judged from this trace: a value from before the trace was read"),
        "{said}"
    );
    let (code, text, said) = traced(old, &["--began-empty"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("impossible reads    1 of values that no client wrote"),
        "{text}"
    );
    assert!(
        said.contains("trace.jsonl:1: eventual is promised and broken: it read a value that no client wrote"),
        "{said}"
    );
}

#[test]
fn causal_and_sequential_consistency_are_said_and_can_be_required() {
    let text = out(&check(&[], &vector("cm-not-ccv")));
    assert!(
        text.contains("causal              CC yes, CCv no, CM yes"),
        "{text}"
    );
    assert!(text.contains("sequential          no"), "{text}");
    let text = out(&check(&[], &vector("non-monotonic-read")));
    assert!(text.contains("CC no (1 read breaks it), CCv no, CM no"), "{text}");
    assert!(text.contains("k                   2: each read"), "{text}");
    for (trace, level, code) in [
        ("cm-not-ccv", "causal", 0),
        ("cm-not-ccv", "sequential", 1),
        ("non-monotonic-read", "causal", 1),
        ("sequential-ok", "sequential", 0),
        ("sequential-ok", "per-key-sequential", 0),
        ("cm-not-ccv", "per-key-sequential", 2),
    ] {
        let output = check(&["--require", level], &vector(trace));
        assert_eq!(output.status.code(), Some(code), "{trace} {level}");
    }
}

#[test]
fn why_a_receipt_is_false_is_explained() {
    let (code, text, _) = traced(&stale_read(&receipt(4_999)), &["--explain=1"]);
    assert_eq!(code, Some(1));
    for expected in [
        "a receipt is false (staleness)",
        "not older than 4.999 ms",
        "the version of [1] is 1.0@a, and that of [2] is 2.0@a",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}
