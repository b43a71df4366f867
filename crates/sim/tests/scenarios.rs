//! The scenarios of the repository, one for each kind of fault: no rule may be broken in them, and each fault must have an effect.
use std::{
    fs,
    path::{Path, PathBuf},
};
use turnbuckle_causal::eventual::{Eventual, EventualSession};
use turnbuckle_core::Micros;
use turnbuckle_document::{Document, WrongFile};
use turnbuckle_sim::{Keep, Kind, Outcome, Scenario, ScenarioFile, Span, WorldOptions};
use turnbuckle_workload::{Op, Workload};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn read(name: &str) -> Scenario {
    let path = folder().join(name).with_extension("toml");
    let text = fs::read_to_string(&path).expect("the scenario is there");
    let file = Document::parse(&path, &text).and_then(|document| ScenarioFile::read(&document));
    file.unwrap_or_else(|error| panic!("{error}")).scenario
}

fn read_text(text: &str) -> Result<ScenarioFile, WrongFile> {
    ScenarioFile::read(&Document::parse(Path::new("t.toml"), text)?)
}

fn run(scenario: &Scenario) -> Outcome {
    let config = scenario.parameters.config::<Eventual>();
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
        if outcome.trusts_clocks {
            assert_eq!(
                report.audit.receipts.broken, 0,
                "{name}: {:?}",
                report.audit.broken
            );
        }
    }
}

/// The number of operations that failed with this first word.
fn failed(outcome: &Outcome, word: &str) -> u64 {
    outcome.tally.failures.get(word).copied().unwrap_or(0)
}

fn max_stale_ms(outcome: &Outcome) -> i64 {
    outcome.check().expect("a trace").max_staleness_ns / 1_000_000
}

#[test]
fn cuts_and_slow_links_make_reads_staler() {
    let calm = max_stale_ms(&run(&read("calm")));
    assert!(calm < 100, "{calm} ms");
    for name in ["cut", "one-way-cut", "isolate", "slow-link"] {
        let stale = max_stale_ms(&run(&read(name)));
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
        // So a client always waits for an answer: these scenarios wait for syncs.
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
    assert!(run(&read("clocks")).trusts_clocks);
    assert!(!run(&read("lying-clock")).trusts_clocks);
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
    let (thin, wide) = (max_stale_ms(&run(&thin)), max_stale_ms(&run(&wide)));
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

/// One site, one core, a millisecond of work for each operation: at most a thousand operations a second. Clients beyond that wait.
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
        ("", "1: sites: found nothing; expected 1 to 64 names of sites"),
        (
            "sites = []",
            "1: sites: found nothing; expected 1 to 64 names of sites",
        ),
        (
            "sites = [\"a\",\n\"a\"]",
            "2: sites[2]: found \"a\"; expected a name that no other site has",
        ),
        (
            "sites = [\"a\", \"b c\"]",
            "1: sites[2]: found \"b c\"; expected a name: a letter, then",
        ),
        (
            "sites = [\"a\"]\nsite = 1",
            "2: site: found unknown field `site`; expected one of `protocol`",
        ),
        (
            "sites = [\"a\"]\npartitions = 0",
            "2: partitions: found 0; expected a whole number from 1 to 1024",
        ),
        (
            "sites = [\"a\", \"b\"]\nnodes_per_site = 16\nmembers = 9",
            "3: members: found 9; expected a whole number from 1 to 8",
        ),
        (
            "sites = [\"a\", \"b\", \"c\", \"d\", \"e\"]\nnodes_per_site = 13",
            "2: nodes_per_site: found 13; expected a whole number from 1 to 12",
        ),
        (
            "sites = [\"a\"]\nduration = \"5\"",
            "2: duration: found \"5\"; expected a number and s, ms or us, such as 250ms",
        ),
        (
            "sites = [\"a\"]\nduration = 5",
            "2: duration: found integer `5`; expected a number and s, ms or us, such as 250ms, in quotes",
        ),
        (
            "sites = [\"a\"]\n[parameters]\ntheta = \"0ms\"",
            "3: parameters.theta: found \"0ms\"; expected a time in quotes, such as \"5ms\", or a whole number",
        ),
        (
            "sites = [\"a\", \"b\"]\n[[fault]]\nkind = \"cut\"\na = \"a\"\nb = \"c\"",
            "5: fault[1].b: found \"c\"; expected one of the nodes a, b",
        ),
        (
            "sites = [\"a\", \"b\"]\n[[fault]]\nkind = \"cut\"\na = \"a\"",
            "2: fault[1].b: found nothing; expected text in quotes",
        ),
        (
            "sites = [\"a\", \"b\"]\n[[fault]]\nkind = \"cut\"\na = \"a\"\nb = \"a\"",
            "5: fault[1].b: found \"a\"; expected another node than the first",
        ),
        (
            "sites = [\"a\"]\n[[fault]]\nkind = \"pause\"\nnode = \"a\"",
            "2: fault[1].for: found nothing; expected how long it lasts",
        ),
        (
            "sites = [\"a\"]\n[[fault]]\nkind = \"pause\"\nnode = \"a\"\nfor = \"1s\"\nat = \"5s\"",
            "6: fault[1].at: found \"5s\"; expected less than the duration, 5s",
        ),
        (
            "sites = [\"a\"]\n[[fault]]\nkind = \"pause\"\nnode = \"a\"\nloss = \"power\"",
            "5: fault[1].loss: found unknown field `loss`; expected one of `node`, `at`, `for`",
        ),
        (
            "sites = [\"a\"]\n[[fault]]\nkind = \"crash\"\nnode = \"a\"\nloss = \"hope\"",
            "5: fault[1].loss: found \"hope\"; expected process, power, lost or old",
        ),
        (
            "sites = [\"a\"]\n[[fault]]\nkind = \"flood\"",
            "3: fault[1].kind: found unknown variant `flood`; expected one of `crash`, `crash-within-write`,",
        ),
        (
            "sites = [\"a\"]\n[[fault]]\nkind = \"slow-disk\"\nnode = \"a\"\npercent = 0",
            "5: fault[1].percent: found 0; expected a whole number from 1 to 1000000",
        ),
        (
            "sites = [\"a\"]\n[[fault]]\nkind = \"slow-partition\"\npercent = 1\npartition = 1",
            "5: fault[1].partition: found 1; expected a partition below 1",
        ),
        (
            "sites = [\"a\"]\n[[fault]]\nkind = \"left-out\"\nnode = \"a\"\nkeyspace = 2",
            "5: fault[1].keyspace: found 2; expected a keyspace from 1 to 1",
        ),
        (
            "sites = [\"a\"]\n[network]\njitter = { uniform = \"1ms\", normal = \"1ms\" }",
            "3: network.jitter: found several fields; expected one field",
        ),
        (
            "sites = [\"a\"]\n[network]\njitter = { triangular = \"1ms\" }",
            "3: network.jitter.triangular: found unknown variant `triangular`; expected one of `uniform`, `exponential`",
        ),
        (
            "sites = [\"a\"]\n[network]\njitter = { spikes = { by = \"5\", one_in = 3 } }",
            "3: network.jitter.spikes.by: found \"5\"; expected a number and s, ms or us",
        ),
        (
            "sites = [\"a\"]\n[network]\ndelays = { \"a->x\" = \"1ms\" }",
            "3: network.delays.a->x: found \"a->x\"; expected two sites, such as",
        ),
        (
            "sites = [\"a\"]\n[load]\nworkload = \"e\"",
            "3: load.workload: found \"e\"; expected mixed, ping-pong, or a workload of YCSB",
        ),
        (
            "sites = [\"a\"]\n[load]\nat = [\"b\"]",
            "3: load.at[1]: found \"b\"; expected one of the nodes a",
        ),
        (
            "sites = [\"a\"]\n[load]\nworkload = \"a\"\n[load.hot]",
            "4: load.hot: found more than one of them; expected one of load.workload, load.hot",
        ),
        (
            "sites = [\"a\"]\n[workload]\nread_proportion = 0.5",
            "3: workload.read_proportion: found proportions that add up to 0.5; expected 1",
        ),
        (
            "sites = [\"a\"]\n[workload]\nread_proportion = 1\nrecord_count = 10_000_001",
            "4: workload.record_count: found 10000001; expected at most 10000000 in a world in memory",
        ),
        (
            "sites = [\"a\"]\npartitions = 2\n[load.hot]\nmany_keys = 3",
            "4: load.hot.many_keys: found 3; expected a whole number from 1 to 2",
        ),
        (
            "sites = [\"a\"]\n[load.hot]\nwriters_per_node = 3",
            "3: load.hot.writers_per_node: found 3; expected a whole number from 0 to 2",
        ),
        (
            "sites = [\"a\"]\n[load.hot]\napart = 1",
            "3: load.hot.apart: found 1; expected a whole number from 0 to 0",
        ),
        (
            "sites = [\"a\"]\n[[fault]]\nkind = \"late\"\nnode = \"a\"\nby = \"-1ms\"\nfor = \"1s\"",
            "5: fault[1].by: found \"-1ms\"; expected a number and s, ms or us",
        ),
        (
            "sites = [\"a\"]\n[load]\nread = \"strong\"",
            "3: load.read: found \"strong\"; expected",
        ),
    ] {
        let error = read_text(text).expect_err(text).to_string();
        assert!(
            error.starts_with(&format!("t.toml:{expected}")),
            "{text}\n  expected {expected}\n  found    {error}"
        );
    }
}

#[test]
fn a_workload_may_stand_in_the_scenario() {
    let text =
        "sites = [\"a\"]\n[workload]\nrecord_count = 7\nread_proportion = 0.8\nupdate_proportion = 0.2";
    let file = read_text(text).expect("a scenario");
    assert!(
        matches!(file.scenario.load.kind, Kind::Workload { workload, .. } if workload.records.get() == 7)
    );
}

fn parse(text: &str) -> Scenario {
    read_text(text)
        .unwrap_or_else(|error| panic!("{text}\n{error}"))
        .scenario
}

/// Two partitions, each at one node. The clients are at a third node, which holds none.
const APART: &str = "sites = [\"a\"]\nnodes_per_site = 3\npartitions = 2\nduration = \"2s\"\ndurability = \"none\"\n\
                     [load]\nafter = \"200ms\"\nat = [\"a3\"]\nclients_per_node = 2\n[load.hot]\nkeys_per_partition = 2\n\
                     writers_per_node = 1\nmany_percent = 50\nmany_keys = 2\napart = 1\n";

#[test]
fn hot_keys_are_written_partition_after_partition_and_read_one_by_one_or_together() {
    let scenario = parse(APART);
    let outcome = run(&scenario);
    let topology = turnbuckle_core::Topology::new(["a"], 2, 1);
    let written = outcome.trace.iter().filter(|record| record.op == Op::Write);
    let partitions: Vec<u16> = written
        .map(|record| topology.partition_of_slot(turnbuckle_core::hash_slot(&record.key.0)))
        .collect();
    assert!(partitions.len() > 100);
    assert!(
        partitions.windows(2).all(|pair| pair[0] != pair[1]),
        "{partitions:?}"
    );
    let tally = outcome.tally;
    let (many, apart) = (tally.many.count(), tally.many_apart.count());
    // Four keys make six pairs. One pair is only of the other partition.
    assert!(many > 0 && apart > 3 * many, "{many} and {apart}");
    assert!(tally.reads.count() > many + apart, "{tally:?}");
}

#[test]
fn who_asks_a_late_node_waits_so_much_longer_and_nobody_else_does() {
    let late = "[[fault]]\nkind = \"late\"\nnode = \"a2\"\nby = \"100ms\"\nfor = \"30s\"";
    let longer = APART.replace("2s", "30s");
    let tally = run(&parse(&format!("{longer}{late}"))).tally;
    let (many, apart) = (tally.many.summary(), tally.many_apart.summary());
    assert!(tally.many.count() > 0 && many.max < 5_000.0, "{many:?}");
    assert!(apart.p50 > 100_000.0 && apart.max < 110_000.0, "{apart:?}");
}

#[test]
fn a_run_ends_after_so_many_requests() {
    let text = APART.replace("at =", "requests = 50\nat =");
    let tally = run(&parse(&text)).tally;
    // The other client's last request may be over at the same moment, or after it.
    assert!((50..=51).contains(&tally.requests.count()), "{tally:?}");
    assert!(tally.took < Micros::from_millis(2_000), "{:?}", tally.took);
    assert_eq!(run(&parse(APART)).tally.took, Micros::from_millis(2_000));
}

#[test]
fn a_turn_is_seen_by_the_other_player_after_the_way_to_it() {
    let text = "sites = [\"a\", \"b\", \"c\"]\nduration = \"5s\"\ndurability = \"none\"\n[network]\ndelay = \"20ms\"\n\
                [load]\nafter = \"200ms\"\nworkload = \"ping-pong\"\nat = [\"a\", \"b\"]\nclients_per_node = 1\nthink = \"1ms\"";
    let tally = run(&parse(text)).tally;
    let seen = tally.visibility.summary();
    assert!(seen.p50 > 20_000.0 && seen.max < 26_000.0, "{seen:?}");
    // The last turn may not have been seen yet.
    let (written, seen) = (tally.writes.count(), tally.visibility.count());
    assert!(seen > 50 && written - seen <= 1, "{written} and {seen}");
}

#[test]
fn clocks_that_nobody_has_set_are_off_by_what_the_seed_says() {
    let of = |seed: u64| {
        let text = format!(
            "sites = [\"a\", \"b\", \"c\"]\nseed = {seed}\nclock_offsets = [\"7ms\"]\nclock_spread = \"2ms\""
        );
        parse(&text).world.clock_offsets_us
    };
    let offsets = of(1);
    assert_eq!((offsets.len(), offsets[0]), (3, 7_000));
    assert!(
        offsets[1..].iter().all(|offset| offset.abs() <= 2_000),
        "{offsets:?}"
    );
    assert!(offsets == of(1) && offsets != of(2));
}
