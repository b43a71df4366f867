//! Values from before the trace: no record wrote them, and yet they may be right.
mod common;

use std::collections::HashSet;
use turnbuckle_check::{
    BadTrace, History, HistoryBuilder, Orders, Report, Requirement, explain, levels::LevelJudge, require,
};
use turnbuckle_core::Level;
use turnbuckle_workload::{Claim, Octets, Op, Record, SnapshotRead, Status};

const TRACES: u64 = 10_000;

fn build(mut builder: HistoryBuilder, records: &[Record]) -> Result<History, BadTrace> {
    for record in records {
        builder.add(record)?;
    }
    builder.finish()
}

/// The keyspace may have had data.
fn history(records: &[Record]) -> History {
    build(HistoryBuilder::new().on_existing_data(), records).expect("a right trace")
}

fn report(records: &[Record]) -> Report {
    Report::of(&history(records), &[])
}

fn record(client: &str, op: Op, value: Option<&str>, times: (i64, i64)) -> Record {
    Record {
        client: client.into(),
        site: "a".into(),
        op,
        key: "x".into(),
        value: value.map(Octets::from),
        start_ns: times.0,
        finish_ns: Some(times.1),
        status: Status::Ok,
        version: None,
        level: None,
        receipt: None,
        recorder: None,
        pipelined: false,
        existed: false,
        reads: None,
    }
}

fn write(client: &str, value: &str, times: (i64, i64)) -> Record {
    record(client, Op::Write, Some(value), times)
}

fn read(client: &str, value: &str, times: (i64, i64)) -> Record {
    record(client, Op::Read, Some(value), times)
}

fn version(record: Record, version: &str) -> Record {
    Record {
        version: Some(version.into()),
        ..record
    }
}

/// With a receipt that claims a staleness of at most `staleness_us` microseconds.
fn claims(record: Record, staleness_us: u64) -> Record {
    Record {
        receipt: Some(Claim {
            asked: "eventual".into(),
            given: "eventual".into(),
            staleness_us: Some(staleness_us),
            ..Claim::default()
        }),
        ..record
    }
}

#[test]
fn a_read_of_what_was_there_is_no_violation_and_no_level_is_judged_by_it() {
    let records = [
        claims(read("c1", "old", (0, 10)), 5),
        claims(write("c2", "new", (20, 30)), 5),
        claims(read("c1", "new", (40, 50)), 5),
    ];
    let found = report(&records);
    assert_eq!(
        (
            found.phantom_reads,
            found.reads_from_before,
            found.values_from_before
        ),
        (0, 1, 1)
    );
    assert_eq!((found.counted_ops, found.atomic, found.removed_ops), (3, true, 0));
    assert_eq!(
        (found.causal.cc, found.causal.ccv, found.causal.cm),
        (Some(true), Some(true), Some(true))
    );
    assert_eq!(found.sequentially_consistent, Some(true));
    assert_eq!((found.stale_reads, found.session_violations.is_none()), (0, true));
    assert_eq!(found.k_atomicity_per_key["x"], Some(1));
    assert_eq!((found.audit.receipts.broken, found.audit.is_broken()), (0, false));
    assert_eq!(
        found.audit.levels["eventual"].not_auditable, 1,
        "{:?}",
        found.audit
    );
    assert_eq!(
        found.audit.claims["staleness"].not_auditable, 2,
        "{:?}",
        found.audit
    );
    assert_eq!(found.per_site["a"].operations, 3);
    assert_eq!(
        found
            .over_time
            .iter()
            .map(|moment| moment.operations)
            .sum::<u64>(),
        3
    );
    assert_eq!(found.over_time[0].from_ns, 0);
    // How fresh it was cannot be said.
    assert_eq!(
        found.t_visibility.iter().map(|bucket| bucket.reads).sum::<u64>(),
        1
    );
    let history = history(&records);
    assert_eq!((history.recorded(), history.named_clients()), (3, 2));
    // If the keyspace was empty, the store made it up.
    let empty = build(HistoryBuilder::new(), &records).expect("a right trace");
    let found = Report::of(&empty, &[]);
    assert_eq!(
        (found.phantom_reads, found.reads_from_before, found.removed_ops),
        (1, 0, 1)
    );
    assert!(found.audit.is_broken());
}

#[test]
fn a_level_that_is_required_cannot_be_judged_by_it_unless_it_is_broken() {
    let judged = |records: &[Record], level: Level| {
        let history = history(records);
        let orders = Orders::of(&history);
        let mut judge = LevelJudge::new(&history, None);
        orders.teach(&history, &mut judge);
        require(&history, &judge, level)
    };
    let right = [
        read("c1", "old", (0, 10)),
        write("c1", "new", (20, 30)),
        read("c1", "new", (40, 50)),
    ];
    for level in [
        Level::Eventual,
        Level::Session,
        Level::Causal,
        Level::Linearizable,
    ] {
        let found = judged(&right, level);
        assert!(
            matches!(found, Requirement::NotAuditable(why) if why.contains("from before the trace")),
            "{level}: {found:?}"
        );
    }
    // It was there, was replaced, and is there again.
    let back = [&right[..], &[read("c1", "old", (60, 70))]].concat();
    for level in [Level::Session, Level::Causal, Level::Linearizable] {
        let found = judged(&back, level);
        assert!(matches!(found, Requirement::Broken { .. }), "{level}: {found:?}");
    }
    let found = report(&back);
    assert_eq!(
        (found.removed_ops, found.stale_reads, found.session_violations.mr),
        (2, 1, 1)
    );
}

#[test]
fn versions_show_that_it_is_older_than_a_write_that_it_must_reflect() {
    let stale = |us| {
        [
            version(write("c1", "new", (0, 1_000)), "9.0@a"),
            version(claims(read("c2", "old", (9_000, 9_500)), us), "3.0@a"),
        ]
    };
    assert_eq!(report(&stale(7)).audit.claims["staleness"].broken, 1);
    assert_eq!(report(&stale(8)).audit.claims["staleness"].not_contradicted, 1);
    assert_eq!(report(&stale(8)).stale_reads, 1);
    // Without its version nothing is known of its age.
    let mut bare = stale(7);
    bare[1].version = None;
    let found = report(&bare);
    assert_eq!(
        (found.audit.claims["staleness"].not_auditable, found.stale_reads),
        (1, 0)
    );
    // A newer one is fresh.
    let mut newer = stale(0);
    newer[1].version = Some("10.0@a".into());
    assert_eq!(report(&newer).audit.claims["staleness"].not_contradicted, 1);
}

#[test]
fn a_write_that_failed_is_no_value_from_before() {
    let mut failed = write("c1", "v", (0, 10));
    failed.status = Status::Fail;
    let found = report(&[failed, read("c2", "v", (20, 30))]);
    assert_eq!((found.phantom_reads, found.reads_from_before), (1, 0));
    assert_eq!(found.findings.failed_writes_seen, 1);
}

#[test]
fn a_delete_from_before_was_read_if_its_version_says_so() {
    let gone = |client: &str, of: &str, times| version(record(client, Op::Read, None, times), of);
    let found = report(&[
        gone("c1", "3.0@b", (0, 10)),
        version(write("c1", "v", (20, 30)), "5.0@a"),
        gone("c2", "3.0@b", (12, 40)),
    ]);
    assert_eq!(
        (found.phantom_reads, found.reads_from_before, found.atomic),
        (0, 2, true)
    );
    // A delete of unknown outcome began after its tombstone was read: it is another one.
    let mut unknown = record("c3", Op::Delete, None, (50, 60));
    (unknown.status, unknown.finish_ns) = (Status::Unknown, None);
    let records = [gone("c1", "3.0@b", (0, 10)), unknown.clone()];
    let found = report(&records);
    assert_eq!(
        (found.future_reads, found.reads_from_before, found.atomic),
        (0, 1, true)
    );
    // It may be the one that was read.
    let found = report(&[unknown, gone("c1", "3.0@b", (55, 70))]);
    assert_eq!((found.reads_from_before, found.atomic), (0, true));
}

#[test]
fn last_reads_that_differ_are_not_judged_where_one_is_from_before() {
    let records = [
        write("c1", "v", (0, 10)),
        read("c1", "v", (20, 30)),
        read("c2", "old", (20, 30)),
    ];
    assert_eq!(report(&records).converged_per_key["x"], None);
    let agreed = [
        write("c1", "v", (0, 10)),
        read("c4", "old", (1, 2)),
        read("c2", "v", (20, 30)),
        read("c3", "v", (20, 30)),
    ];
    assert_eq!(report(&agreed).converged_per_key["x"], Some(true));
}

#[test]
fn snapshots_read_it_too() {
    let mut snapshot = record("c1", Op::Snapshot, None, (0, 10));
    let of = |key: &str, value: &str| SnapshotRead {
        key: key.into(),
        value: Some(value.into()),
        version: None,
    };
    snapshot.reads = Some(vec![of("x", "old"), of("y", "older")]);
    let found = report(&[snapshot]);
    assert_eq!(
        (
            found.reads_from_before,
            found.values_from_before,
            found.counted_ops
        ),
        (2, 2, 2)
    );
    assert_eq!(found.causal.cc, Some(true));
}

#[test]
fn what_it_contradicts_is_explained_without_a_time_of_its_write() {
    let records = [
        read("c1", "old", (0, 10)),
        write("c2", "new", (20, 30)),
        read("c1", "new", (40, 50)),
        read("c1", "old", (60, 70)),
    ];
    let history = history(&records);
    let texts: Vec<String> = explain(&history)
        .iter()
        .map(|it| it.text(&history, 100))
        .collect();
    let text = texts.join("\n\n");
    assert!(
        text.contains("before the trace, a client wrote old to x (no record)"),
        "{text}"
    );
    assert!(
        !text.contains("922337203685") && !text.contains("no client wrote"),
        "{text}"
    );
}

/// The same trace with a record for each value that no record wrote: a write by a client of its own that began before everything
/// and was never answered.
fn with_writes(records: &[Record]) -> Vec<Record> {
    let written: HashSet<(Octets, Octets)> = records
        .iter()
        .filter(|record| record.op == Op::Write)
        .filter_map(|record| Some((record.key.clone(), record.value.clone()?)))
        .collect();
    let mut all = records.to_vec();
    let mut added = HashSet::new();
    for record in records
        .iter()
        .filter(|record| record.op == Op::Read && record.status == Status::Ok)
    {
        let Some(value) = &record.value else {
            continue;
        };
        let name = (record.key.clone(), value.clone());
        if !written.contains(&name) && added.insert(name) {
            all.push(Record {
                client: format!("before {}", added.len()),
                op: Op::Write,
                start_ns: i64::MIN,
                finish_ns: None,
                status: Status::Unknown,
                ..record.clone()
            });
        }
    }
    all
}

#[test]
fn such_a_value_is_judged_like_that_of_a_write_that_was_never_answered() {
    let mut with_values = 0;
    for seed in 0..TRACES {
        let mut records = common::records(seed);
        if seed % 2 == 1 {
            // Versions in another order than that of the writes.
            for record in &mut records {
                let number = record
                    .value
                    .as_ref()
                    .and_then(|value| String::from_utf8_lossy(&value.0)[1..].parse::<u64>().ok());
                record.version = number.map(|number| format!("{}.0@a", 1 + number * 5 % 13));
            }
        }
        let Ok(history) = build(HistoryBuilder::new().on_existing_data(), &records) else {
            continue;
        };
        let told = build(HistoryBuilder::new(), &with_writes(&records)).expect("it was right without them");
        with_values += u64::from(history.recorded() < history.operations.len());
        let [found, expected] = [&history, &told].map(|history| Report::of(history, &[1, 2]));
        let said = |report: &Report| {
            (
                (report.phantom_reads, report.future_reads),
                (
                    report.atomic_per_key.clone(),
                    report.gamma_per_key_ns.clone(),
                    report.delta_per_key_ns.clone(),
                ),
                (
                    report.session_violations,
                    report.session_violations_within_key,
                    report.session_order,
                ),
                (report.stale_reads, report.max_staleness_ns),
                (
                    report.causal,
                    report.causal_violations,
                    report.sequentially_consistent,
                ),
                (
                    report.k_atomicity_per_key.clone(),
                    report.k_lower_bound_per_key.clone(),
                ),
            )
        };
        assert_eq!(said(&found), said(&expected), "seed {seed}: {records:?}");
    }
    assert!(with_values > TRACES / 10, "{with_values}");
}
