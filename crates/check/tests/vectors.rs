//! Small traces with answers that were found by exhaustive search.
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fs;
use turnbuckle_check::{HistoryBuilder, Report};
use turnbuckle_workload::Record;

#[derive(Deserialize)]
struct Vector {
    name: String,
    ops: Vec<Record>,
    expect: Map<String, Value>,
}

#[test]
fn every_vector_is_answered_as_expected() {
    let mut wrong = Vec::new();
    let mut judged = 0;
    for entry in fs::read_dir("tests/vectors").expect("the vectors are beside this test") {
        let path = entry.expect("the folder can be listed").path();
        let text = fs::read_to_string(&path).expect("it can be read");
        let vector: Vector = serde_json::from_str(&text).expect("a vector");
        let mut builder = HistoryBuilder::new();
        for record in &vector.ops {
            builder.add(record).expect("a right record");
        }
        let history = builder.finish().expect("a right trace");
        let report = Report::of(&history, &[1_000_000, 5_000_000]);
        let found = serde_json::to_value(report).expect("a report is JSON");
        for (name, expected) in &vector.expect {
            if found[name] != *expected {
                wrong.push(format!(
                    "{}: {name}: expected {expected}, found {}",
                    vector.name, found[name]
                ));
            }
        }
        judged += 1;
    }
    assert!(judged >= 50, "only {judged} vectors");
    assert!(
        wrong.is_empty(),
        "{} answers are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
