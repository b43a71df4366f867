//! What `turnbuckle check --explain` says of the paper's Figure 1 is what `docs/checking.md` shows.
use serde_json::Value;
use std::{fs, process::Command};

#[test]
fn the_documented_example_is_what_the_program_says() {
    let vector = include_str!("../../check/tests/vectors/seed-figure1.json");
    let vector: Value = serde_json::from_str(vector).expect("a vector");
    let records = vector["ops"].as_array().expect("operations");
    let lines: Vec<String> = records.iter().map(Value::to_string).collect();
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("figure1.jsonl"), lines.join("\n") + "\n").expect("a trace");
    let check = Command::new(env!("CARGO_BIN_EXE_turnbuckle"))
        .args(["check", "--explain", "--plots", "plots", "figure1.jsonl"])
        .current_dir(directory.path())
        .output()
        .expect("the program runs");
    let said = String::from_utf8(check.stdout).expect("text");
    assert!(said.contains("2/9"), "{said}");
    let page = include_str!("../../../docs/checking.md");
    assert!(
        page.contains(&format!("```text\n{said}```")),
        "docs/checking.md shows something else than:\n{said}"
    );
    for plot in ["gamma", "staleness", "visibility", "inconsistency"] {
        let path = directory.path().join(format!("plots/{plot}.svg"));
        let svg = fs::read_to_string(path).expect("the plot is there");
        assert!(svg.ends_with("</svg>\n"), "{svg}");
    }
}
