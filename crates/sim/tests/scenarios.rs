//! The scenarios of the repository, one for each kind of fault: nothing may be broken in them, and each fault must be felt.
use std::{fs, path::PathBuf};
use turnbuckle_causal::eventual::{EventualConfig, EventualSession};
use turnbuckle_core::Micros;
use turnbuckle_sim::{Keep, Kind, Outcome, Scenario, ScenarioFile, Span, WorldOptions};
use turnbuckle_workload::Workload;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn read(name: &str) -> Scenario {
    let path = folder().join(name).with_extension("toml");
    let text = fs::read_to_string(&path).expect("the scenario is there");
    let file = ScenarioFile::parse(name, &text).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
    file.scenario
}

fn run(scenario: &Scenario) -> Outcome {
    let config = EventualConfig::paced(scenario.heartbeat, scenario.theta);
    scenario.run::<EventualSession>(config, Keep::JUDGE_AND_TRACE)
}

#[test]
fn nothing_is_broken_in_any_scenario() {
    let mut names: Vec<String> = fs::read_dir(folder())
        .expect("the scenarios are there")
        .map(|entry| entry.expect("it can be listed").path())
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.len() >= 20, "{names:?}");
    for name in names {
        let mut scenario = read(&name);
        scenario.safety = scenario.safety.min(Micros::from_millis(5_000));
        let outcome = run(&scenario);
        assert!(outcome.violations.is_empty(), "{name}: {:?}", outcome.violations);
        assert!(
            outcome.converged && outcome.tally.answered() > 100,
            "{name}: {:?}",
            outcome.tally
        );
        let report = outcome.check().unwrap_or_else(|error| panic!("{name}: {error}"));
        if outcome.excuses_nothing {
            assert_eq!(
                report.audit.receipts.broken, 0,
                "{name}: {:?}",
                report.audit.broken
            );
        }
    }
}

/// How many operations failed with a word.
fn failed(outcome: &Outcome, word: &str) -> u64 {
    outcome.tally.failures.get(word).copied().unwrap_or(0)
}

fn most_stale_ms(outcome: &Outcome) -> i64 {
    outcome.check().expect("a trace").max_staleness_ns / 1_000_000
}

#[test]
fn cuts_and_slow_links_make_reads_staler() {
    let calm = most_stale_ms(&run(&read("calm")));
    assert!(calm < 100, "{calm} ms");
    for name in ["cut", "one-way-cut", "isolate", "slow-link"] {
        let stale = most_stale_ms(&run(&read(name)));
        assert!(
            stale > 2 * calm,
            "{name}: {stale} ms, {calm} ms when nothing happens"
        );
    }
}

#[test]
fn crashes_and_disks_are_felt_by_clients_and_nobody_else_notices() {
    let calm = run(&read("calm"));
    assert_eq!(calm.tally.failed(), 0, "{:?}", calm.tally.failures);
    for name in ["crash", "blackout", "torn-write", "failing-disk"] {
        let mut scenario = read(name);
        // Somebody always waits for an answer: these scenarios wait for syncs.
        scenario.load.think = Span::us(0, 400);
        scenario.safety = Micros::from_millis(4_500);
        let outcome = run(&scenario);
        let lost = failed(&outcome, "CONNECTION");
        assert!(lost > 0, "{name}: {:?}", outcome.tally.failures);
    }
    let full = run(&read("full-disk"));
    assert!(failed(&full, "UNAVAILABLE") > 10, "{:?}", full.tally.failures);
}

#[test]
fn only_a_clock_that_lies_excuses_receipts() {
    assert!(run(&read("clocks")).excuses_nothing);
    assert!(!run(&read("lying-clock")).excuses_nothing);
}

#[test]
fn slow_disks_and_pauses_are_waited_for_and_a_thin_line_delays_what_others_read() {
    let usual = run(&read("calm")).tally.writes.summary();
    let slow = run(&read("slow-disk")).tally.writes.summary();
    assert!(slow.max > 10.0 * usual.max, "{slow:?} and {usual:?}");
    let paused = run(&read("pause")).tally.requests.summary();
    assert!(paused.max > 1_500_000.0, "{paused:?}");
    let (mut thin, mut wide) = (read("bandwidth"), read("bandwidth"));
    thin.world.bandwidth = Some(20_000);
    wide.world.bandwidth = None;
    let (thin, wide) = (most_stale_ms(&run(&thin)), most_stale_ms(&run(&wide)));
    assert!(thin > wide + 100, "{thin} ms and {wide} ms");
}

#[test]
fn a_slow_partition_delays_its_own_operations() {
    let slow = run(&read("slow-partition")).tally.requests.summary();
    let mut usual = read("slow-partition");
    usual.faults.clear();
    let usual = run(&usual).tally.requests.summary();
    assert!(slow.max > 5.0 * usual.max, "{slow:?} and {usual:?}");
}

/// One site, one core, a millisecond of work for each operation: a thousand a second and no more, and whoever is more than that waits.
#[test]
fn clients_queue_where_work_takes_time() {
    let measured = |clients: usize| {
        let mut world = WorldOptions::plain(["a"], Micros(0));
        world.cores = 1;
        world.service.read = Micros::from_millis(1);
        let mut scenario = Scenario {
            world,
            ..read("calm")
        };
        scenario.safety = Micros::from_millis(2_000);
        scenario.load.clients_per_node = clients;
        scenario.load.think = Span::fixed(Micros(0));
        scenario.load.kind = Kind::Workload {
            workload: Box::new(Workload::core("c").expect("a core workload")),
            load: false,
        };
        let tally = run(&scenario).tally;
        (tally.answered() / 2, tally.reads.summary().p50 / 1e3)
    };
    let (one, alone) = measured(1);
    let (ten, queued) = measured(10);
    assert!(
        (900..=1_001).contains(&one) && (900..=1_020).contains(&ten),
        "{one} and {ten} a second"
    );
    assert!(
        (0.9..1.2).contains(&alone) && (9.0..11.0).contains(&queued),
        "{alone} and {queued} ms"
    );
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_place() {
    for (text, expected) in [
        ("", "1:1: missing field `sites`"),
        ("sites = []", "1:9: sites: 0; expected 1 to 64 names"),
        ("sites = [\"a\", \"a\"]", "sites: 'a' twice"),
        (
            "sites = [\"a\"]\nsite = 1",
            "2:1: unknown field `site`, expected one of",
        ),
        (
            "sites = [\"a\"]\npartitions = 0",
            "2:14: partitions: 0; expected 1 to less than 1025",
        ),
        (
            "sites = [\"a\"]\nduration = \"5\"",
            "2:12: duration: '5': expected a number and s, ms or us",
        ),
        (
            "sites = [\"a\", \"b\"]\n[[fault]]\nkind = \"cut\"\na = \"a\"\nb = \"c\"",
            "5:5: b: there is no node 'c'; expected one of a, b",
        ),
        (
            "sites = [\"a\", \"b\"]\n[[fault]]\nkind = \"cut\"\na = \"a\"",
            "3:8: kind: cut needs 'b'",
        ),
        (
            "sites = [\"a\", \"b\"]\n[[fault]]\nkind = \"cut\"\na = \"a\"\nb = \"a\"",
            "3:8: kind: cut is between two nodes; found one",
        ),
        (
            "sites = [\"a\"]\n[[fault]]\nkind = \"pause\"\nnode = \"a\"\npower = true",
            "5:9: power: pause does not take it; expected node, at, for",
        ),
        (
            "sites = [\"a\"]\n[[fault]]\nkind = \"flood\"",
            "3:8: kind: 'flood'; expected crash,",
        ),
        (
            "sites = [\"a\"]\n[network]\njitter = { uniform = \"1ms\", normal = \"1ms\" }",
            "3:10: jitter: expected one of uniform",
        ),
        (
            "sites = [\"a\"]\n[network]\ndelays = { \"a->x\" = \"1ms\" }",
            "delays: 'a->x'; expected two sites",
        ),
        (
            "sites = [\"a\"]\n[load]\nworkload = \"e\"",
            "3:12: workload: workload e is not supported",
        ),
        (
            "sites = [\"a\"]\n[load]\nread = \"strong\"",
            "3:8: read: 'strong': 'strong' is no consistency level",
        ),
    ] {
        let error = ScenarioFile::parse("t", text).expect_err(text).to_string();
        assert!(
            error.contains(expected),
            "{text}\n  expected {expected}\n  found    {error}"
        );
    }
}

#[test]
fn a_workload_may_stand_in_the_scenario() {
    let text =
        "sites = [\"a\"]\n[workload]\nrecord_count = 7\nread_proportion = 0.8\nupdate_proportion = 0.2";
    let file = ScenarioFile::parse("t", text).expect("a scenario");
    assert!(
        matches!(file.scenario.load.kind, Kind::Workload { workload, .. } if workload.records.get() == 7)
    );
}
