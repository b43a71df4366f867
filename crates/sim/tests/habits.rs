//! What clients do besides asking one thing after the other: the load really does it, and the checker can read it.
use std::{collections::BTreeMap, path::Path};
use turnbuckle_causal::{CausalSpartanX, CausalSpartanXSession};
use turnbuckle_document::{Document, WrongFile};
use turnbuckle_sim::{Keep, Outcome, ScenarioFile};
use turnbuckle_workload::{Op, Record, Status};

fn read(text: &str) -> Result<ScenarioFile, WrongFile> {
    ScenarioFile::read(&Document::parse(Path::new("habits.toml"), text)?)
}

fn run(duration: &str, load: &str, rest: &str) -> Outcome {
    let text = format!(
        "duration = \"{duration}\"\nsites = [\"a\", \"b\", \"c\"]\n[load]\nthink = \"5ms\"\n{load}\n{rest}"
    );
    let scenario = read(&text).expect("it is right").scenario;
    let config = scenario.parameters.config::<CausalSpartanX>();
    let outcome = scenario.run::<CausalSpartanXSession>(config, Keep::JUDGE_AND_TRACE);
    assert!(outcome.tally.answered() > 200, "{:?}", outcome.tally);
    let report = outcome.check().expect("a trace that the checker can read");
    assert_eq!(report.causally_consistent, Some(true));
    outcome
}

/// The records of each session, in the order of their starts.
fn sessions(outcome: &Outcome) -> BTreeMap<&str, Vec<&Record>> {
    let mut sessions: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in &outcome.trace {
        sessions.entry(&record.client).or_default().push(record);
    }
    sessions
}

#[test]
fn a_pipeline_has_as_many_operations_open_as_it_may_and_no_more() {
    let outcome = run(
        "1s",
        "pipeline = 4\namplification = 10",
        "[load.mixed]\ndeletes = 0",
    );
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    let mut max = 0;
    for records in sessions(&outcome).values() {
        for (place, record) in records.iter().enumerate() {
            let before = records[..place].iter();
            let open = before.filter(|before| before.finish_ns.is_none_or(|finish| finish > record.start_ns));
            let open = open.count();
            assert_eq!(open > 0, record.pipelined, "{record:?}");
            max = max.max(open + 1);
        }
    }
    // Counts and lists of keys are operations, too, but are not in the trace.
    assert_eq!(max, 4);
}

#[test]
fn a_crash_leaves_several_operations_of_a_client_without_an_answer() {
    let crash = "[load.mixed]\nwrites = 100\ndeletes = 0\n[[fault]]\nkind = \"crash\"\nnode = \"a\"\nat = \"100ms\"\nfor = \"50ms\"";
    let outcome = run(
        "200ms",
        "at = [\"a\"]\npipeline = 16\namplification = 200\nclients_per_node = 4",
        crash,
    );
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    let unanswered =
        |records: &Vec<&Record>| records.iter().filter(|it| it.status == Status::Unknown).count();
    let max = sessions(&outcome).values().map(unanswered).max();
    assert!(max > Some(1), "{max:?}");
}

#[test]
fn an_errand_begins_with_what_was_written_and_ends_at_home() {
    let outcome = run("2s", "visits = 50", "[load.mixed]\nwrites = 50\ndeletes = 30");
    let mut visits = 0;
    for records in sessions(&outcome).values() {
        for three in records.windows(4) {
            let [write, read, _, home] = three else { continue };
            let is_write = matches!(write.op, Op::Write | Op::Delete);
            let is_away = read.site != write.site && read.key == write.key && read.op == Op::Read;
            visits += u64::from(is_write && is_away && home.site == write.site);
        }
    }
    assert!(visits > 20, "{visits}");
}

#[test]
fn all_clients_are_after_the_hot_key_and_delete_what_they_have_read() {
    let outcome = run(
        "1s",
        "clients_per_node = 3",
        "[load.mixed]\nkeys = 1000\nhot = 40\nwrites = 40\ndeletes = 50\ndeletes_of_read = 100\nmany_keys = 30",
    );
    let hot = outcome.trace.iter().filter(|record| record.key.0 == "k0").count();
    assert!(hot * 5 > outcome.trace.len(), "{hot} of {}", outcome.trace.len());
    let many = outcome
        .trace
        .iter()
        .filter_map(|record| Some(record.reads.as_ref()?.len()));
    assert!(many.max() > Some(15));
    let of_read = |records: &Vec<&Record>| {
        let pairs = records.windows(2);
        pairs
            .filter(|pair| pair[0].op == Op::Read && pair[0].value.is_some() && pair[1].op == Op::Delete)
            .filter(|pair| pair[0].key == pair[1].key)
            .count()
    };
    let of_read: usize = sessions(&outcome).values().map(of_read).sum();
    assert!(of_read > 10, "{of_read}");
}

#[test]
fn what_is_wrong_with_a_load_is_said() {
    for (load, expected) in [
        (
            "pipeline = 0",
            "load.pipeline: found 0; expected a whole number from 1",
        ),
        (
            "visits = 101",
            "load.visits: found 101; expected a whole number from 0 to 100",
        ),
        (
            "workload = \"a\"\n[load.mixed]\nkeys = 3",
            "load.mixed: found more than one of them",
        ),
        (
            "[load.mixed]\nkeys = 0",
            "load.mixed.keys: found 0; expected a whole number from 1",
        ),
        (
            "[load.mixed]\nhot = 200",
            "load.mixed.hot: found 200; expected a whole number from 0",
        ),
        (
            "[load.mixed]\n[load.hot]",
            "load.mixed: found more than one of them",
        ),
        (
            "read_mix = \"10% eventual, 80% linearizable\"",
            "expected levels with percentages that add up to 100",
        ),
        (
            "read_mix = \"100% evntual\"",
            "expected levels with percentages that add up to 100",
        ),
        ("[load.mixed]\nwhat = 1", "unknown field"),
    ] {
        let text = format!("sites = [\"a\"]\n[load]\n{load}");
        let error = read(&text).expect_err(load).to_string();
        assert!(error.contains(expected), "{load}: {error}");
    }
}
