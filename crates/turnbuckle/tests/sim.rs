//! `turnbuckle sim`, as a person and as a script use it.
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

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(arguments: &[&str]) -> Value {
    let output = turnbuckle(arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

#[test]
fn drawn_worlds_keep_their_promises_and_show_what_eventual_allows() {
    let found = json(&["sim", "--protocol", "eventual", "--seeds", "1..20", "--json"]);
    assert_eq!(
        (&found["seeds"], &found["protocol"]),
        (&20.into(), &"eventual".into())
    );
    assert_eq!(
        found["violations"],
        Value::Object(serde_json::Map::new()),
        "{found}"
    );
    assert_eq!(
        (&found["converged"], &found["receipts"]["false"]),
        (&true.into(), &0.into())
    );
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    assert!(
        count(&found["receipts"]["judged"]) > 1_000 && count(&found["receipts"]["audited"]) > 1_000,
        "{found}"
    );
    for anomaly in ["stale_reads", "read_your_writes", "monotonic_reads", "causal"] {
        assert!(
            count(&found["observed"][anomaly]) > 0,
            "{anomaly} was never observed: {found}"
        );
    }
}

/// Worlds of which the judge once said what is not so. In the first, one value after another gets a step nearer to its expiry: a count of checkpoints that began
/// with the first of them took that for values that are never removed. In the second, a value expires by a change that is not answered yet, and a later change
/// lets it live: the read between the two has not seen a delete. In the last two, keys with shares are over, and it takes longer until every site has reported their end as closed than until every
/// site shows it.
#[test]
fn the_judge_accuses_no_world_that_is_right() {
    for (protocol, seed) in [
        ("eventual", "293"),
        ("eventual", "814"),
        ("eventual", "1666"),
        ("gentlerain", "1875"),
    ] {
        keeps_its_promises(protocol, seed);
    }
}

fn keeps_its_promises(protocol: &str, seed: &str) {
    let found = json(&["sim", "--protocol", protocol, "--seed", seed, "--json"]);
    let none = Value::Object(serde_json::Map::new());
    assert_eq!(found["violations"], none, "{found}");
}

/// Of three replicas of a site, one does not vote. It and a voter lose their directories, and then both voters lose what they have. The replica that does not vote has the group's log again, but lacks
/// rows that only other sites have. The voters take full copies of it.
#[test]
fn a_replica_that_does_not_vote_is_copied_though_it_lacks_rows() {
    keeps_its_promises("nukv", "1544");
}

#[test]
fn a_seed_gives_the_same_hash_alone_and_again() {
    let run = || json(&["sim", "scenarios/crash.toml", "--seed", "7", "--json"]);
    let (first, second) = (run(), run());
    assert_eq!(first["trace_hash"], second["trace_hash"]);
    assert_ne!(
        first["trace_hash"],
        json(&["sim", "scenarios/crash.toml", "--seed", "8", "--json"])["trace_hash"]
    );
}

#[test]
fn each_protocol_says_how_much_it_keeps_with_a_version() {
    let of = |scenario, protocol| {
        let found = json(&["sim", scenario, "--protocol", protocol, "--json"]);
        let count = |name: &str| found[name].as_u64().unwrap_or(0);
        assert!(count("versions_written") > 100, "{found}");
        count("metadata_bytes") as f64 / count("versions_written") as f64
    };
    assert_eq!(of("scenarios/calm.toml", "eventual"), 0.0);
    assert!(of("scenarios/calm.toml", "cops") > 0.0);
    // A byte, and ten for each site: nearly always all three.
    let vectors = of("scenarios/crash.toml", "causal");
    assert!((21.0..=31.0).contains(&vectors), "{vectors}");
}

#[test]
fn its_trace_is_judged_by_check() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let trace = directory.path().join("run.jsonl.zst");
    let trace = trace.to_str().expect("a path in UTF-8");
    let output = turnbuckle(&["sim", "scenarios/cut.toml", "--trace", trace]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(out(&output).contains("violations  none"), "{}", out(&output));
    let report = json(&["check", trace, "--json"]);
    assert_eq!(report["audit"]["receipts"]["false"], 0, "{report}");
    assert!(report["stale_reads"].as_u64().unwrap_or(0) > 0);
    let required = turnbuckle(&["check", trace, "--require", "linearizable"]);
    assert_eq!(required.status.code(), Some(1), "eventual is not linearizable");
}

#[test]
fn what_nodes_said_is_drawn_as_text_and_as_a_picture() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (name, expected) in [("run.txt", "▶"), ("run.svg", "<svg")] {
        let file = directory.path().join(name);
        let path = file.to_str().expect("a path in UTF-8");
        let output = turnbuckle(&[
            "sim",
            "scenarios/calm.toml",
            "--diagram",
            path,
            "--window",
            "0s..300ms",
        ]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let drawn = fs::read_to_string(&file).expect("it was written");
        assert!(drawn.contains(expected) && drawn.contains("entries"), "{drawn}");
    }
}

/// Of what is drawn only those faults are left that the protocol claims to stand; what a file says is done.
#[test]
fn gentlerain_keeps_its_promises_unless_a_clock_goes_back() {
    let found = json(&["sim", "--protocol", "gentlerain", "--seeds", "1..20", "--json"]);
    assert_eq!(
        found["violations"],
        Value::Object(serde_json::Map::new()),
        "{found}"
    );
    let number = |found: &Value, name: &str| found[name].as_u64().expect("a number");
    assert!(number(&found, "faults_left_out") > 0, "{found}");
    let all = [
        "sim",
        "--protocol",
        "gentlerain",
        "--seeds",
        "1..20",
        "--all-faults",
        "--json",
    ];
    let all: Value = serde_json::from_slice(&turnbuckle(&all).stdout).expect("it prints JSON");
    assert_eq!(number(&all, "faults_left_out"), 0, "{all}");
    assert_eq!(
        number(&all, "faults"),
        number(&found, "faults") + number(&found, "faults_left_out")
    );

    let scenario = "scenarios/gentlerain-clock-goes-back.toml";
    // Which seed breaks what changes with every change of the draws: twenty of them break each promise several times.
    let broken = turnbuckle(&["sim", scenario, "--seeds", "1..20", "--json"]);
    assert_eq!(broken.status.code(), Some(1), "{broken:?}");
    let found: Value = serde_json::from_slice(&broken.stdout).expect("it prints JSON");
    for promise in ["read-your-writes", "causal-convergence"] {
        assert!(
            found["violations"][promise].as_u64().unwrap_or(0) > 0,
            "{promise} was kept: {found}"
        );
    }
    // A server whose clock lies proves nothing, so nothing that it says is false.
    assert_eq!(found["receipts"]["false"].as_u64(), Some(0), "{found}");
    let broken = turnbuckle(&["sim", scenario]);
    let said = String::from_utf8_lossy(&broken.stderr).into_owned();
    let line = format!(
        "SEE WHY WITH:   turnbuckle sim {scenario} --seed 1 --trace run.jsonl; turnbuckle check --began-empty --explain run.jsonl"
    );
    assert!(said.contains(&line) && !said.contains("judge"), "{said}");

    let protocol = ["--protocol", "causalspartanx"];
    let stands = turnbuckle(&[&["sim", scenario, "--seeds", "3..5"][..], &protocol].concat());
    assert_eq!(stands.status.code(), Some(0), "{}", out(&stands));
}

/// What a client read at level eventual is no part of what it has seen, whatever its keyspace could give it.
#[test]
fn reads_at_level_eventual_promise_nothing_to_their_clients() {
    for (protocol, what) in [
        ("causal", &["scenarios/roaming.toml"][..]),
        ("causal", &["--seeds", "1..10"]),
        ("gentlerain", &["--seeds", "1..10"]),
        ("cops", &["--seeds", "1..10"]),
    ] {
        let protocol = ["sim", "--protocol", protocol, "--level", "eventual", "--json"];
        let found = json(&[&protocol, what].concat());
        assert!(
            found["observed"]["monotonic_reads"].as_u64().unwrap_or(0) > 0,
            "{found}"
        );
    }
}

#[test]
fn nonsense_is_refused_with_what_was_expected() {
    for (arguments, code, expected) in [
        (
            &["sim", "--seeds", "5..1"][..],
            2,
            "expected two numbers, the smaller first",
        ),
        (
            &["sim", "--protocol", "paxos"],
            2,
            "--protocol: there is no protocol 'paxos'; expected one of abd, causal, causalspartanx, ",
        ),
        (
            &["sim", "--hunt", "--protocol", "paxos"],
            2,
            "--protocol: there is no protocol 'paxos'; expected one of abd, ",
        ),
        (
            &["sim", "--hunt", "--plant", "foo"],
            2,
            "--plant: 'foo' is not hunted; expected one of ",
        ),
        (
            &["sim", "--plant", "foo"],
            2,
            "--plant: there is no bug 'foo' in eventual; expected one of ",
        ),
        (
            &["sim", "--protocol", "nukv", "--plant", "foo"],
            2,
            "--plant: there is no bug 'foo' in nukv; expected one of keeps_no_votes, ",
        ),
        (
            &["sim", "--seed", "abc"],
            2,
            "'--seed <SEED>': expected a whole number from 0 to ",
        ),
        (
            &["sim", "--level", "linearizable"],
            2,
            "eventual cannot give linearizable; it offers eventual",
        ),
        (
            &["sim", "--seeds", "1..2", "--trace", "x"],
            2,
            "expected one seed; found several",
        ),
        (
            &["sim", "--window", "2s..1s"],
            2,
            "expected two times, the earlier first",
        ),
        (&["sim", "no/such.toml"], 3, "no/such.toml: "),
        (&["sim", "README.md"], 2, "README.md:"),
        (
            &["sim", "--trace", "no/such/folder/x"],
            3,
            "cannot write no/such/folder/x",
        ),
    ] {
        let output = turnbuckle(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
