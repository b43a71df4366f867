//! `turnbuckle experiment`, as a person and as a script use it.
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

fn turnbuckle(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_figure_is_drawn_its_claims_are_judged_and_it_is_the_same_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_str().expect("a path");
    let run = ["experiment", "run", "causal/fig5.4", "--quick"];
    let output = turnbuckle(&[&run[..], &["--out", out]].concat());
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(printed.contains("held: with C in Singapore"), "{printed}");
    assert!(printed.contains("does not count: with C in Oregon"), "{printed}");
    // Nobody watches: no progress.
    assert_eq!(text(&output.stderr), "");
    let svg = fs::read_to_string(directory.path().join("causal/fig5.4/visibility.svg")).expect("a figure");
    assert!(svg.starts_with("<svg") && svg.contains("gentlerain"));
    let report = fs::read_to_string(directory.path().join("causal/fig5.4/report.txt")).expect("a report");
    assert_eq!(report, printed);
    let json = turnbuckle(&[&run[..], &["--json"]].concat());
    let found: Value = serde_json::from_slice(&json.stdout).expect("one object");
    assert_eq!(found["held"], true, "{found}");
    let experiment = &found["experiments"][0];
    assert_eq!(experiment["name"], "causal/fig5.4");
    assert_eq!(experiment["measures"][0]["curves"][1]["name"], "gentlerain");
    assert_eq!(json.stdout, turnbuckle(&[&run[..], &["--json"]].concat()).stdout);
}

#[test]
fn what_there_is_is_listed() {
    let output = turnbuckle(&["experiment", "list"]);
    assert_eq!(output.status.code(), Some(0));
    let printed = text(&output.stdout);
    assert!(
        printed.contains("causal/fig5.1  ") && printed.contains("causal/fig8.6  "),
        "{printed}"
    );
}

#[test]
fn wrong_usage_a_missing_file_and_a_claim_that_fails_are_told_apart() {
    let code = |arguments: &[&str], code: i32, words: &str| {
        let output = turnbuckle(arguments);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(words), "{said}");
    };
    let run = |name| ["experiment", "run", name];
    code(
        &run("causal/fig9"),
        2,
        "there is no experiment 'causal/fig9'; expected a file",
    );
    code(&run("causal/fig9"), 2, "causal/fig5.4");
    code(&run("nowhere.toml"), 3, "nowhere.toml: ");
    code(&["experiment", "run"], 2, "NAME");
    code(
        &["experiment", "nope"],
        2,
        "there is no command 'experiment nope'; expected 'experiment list', or 'experiment run' with one of causal/fig5.1, ",
    );
    code(
        &[
            "experiment",
            "run",
            "causal/fig5.4",
            "--out",
            "/dev/null",
            "--quick",
        ],
        3,
        "cannot write",
    );
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("own.toml");
    let name = path.to_str().expect("a path");
    let text = fs::read_to_string("../../experiments/causal/fig5.4.toml").expect("it is there");
    fs::write(&path, text.replace("[x]\n", "[y]\n")).expect("it can be written");
    code(&run(name), 2, "own.toml:");
    // A claim that nothing could hold.
    fs::write(&path, text.replace("least = 85", "least = 101")).expect("it can be written");
    code(
        &["experiment", "run", name, "--quick"],
        1,
        "claims or runs that failed: 1",
    );
}
