//! Versions, deletes and snapshots: what each rule says, and random traces against traces without them that mean the same.
use turnbuckle_check::{BadTrace, Finding, History, HistoryBuilder, Kind, Value, Zones};
use turnbuckle_workload::{Claim, Op, Random, Record, SnapshotRead, Status};

fn record(client: &str, op: Op, key: &str, value: Option<&str>, times: (i64, i64)) -> Record {
    Record {
        client: client.into(),
        site: "a".into(),
        op,
        key: key.into(),
        value: value.map(Into::into),
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

fn write(value: &str, version: &str, times: (i64, i64)) -> Record {
    named(record("w", Op::Write, "k", Some(value), times), version)
}

fn delete(client: &str, version: &str, times: (i64, i64)) -> Record {
    named(record(client, Op::Delete, "k", None, times), version)
}

/// A delete that was told that there was a value.
fn took(client: &str, version: &str, times: (i64, i64)) -> Record {
    Record {
        existed: true,
        ..delete(client, version, times)
    }
}

fn read(value: Option<&str>, version: &str, times: (i64, i64)) -> Record {
    named(record("r", Op::Read, "k", value, times), version)
}

fn named(record: Record, version: &str) -> Record {
    Record {
        version: (!version.is_empty()).then(|| version.into()),
        ..record
    }
}

fn unknown(record: Record) -> Record {
    Record {
        status: Status::Unknown,
        finish_ns: None,
        version: None,
        ..record
    }
}

fn snapshot(reads: &[(&str, Option<&str>, &str)], times: (i64, i64)) -> Record {
    let read = |&(key, value, version): &(&str, Option<&str>, &str)| SnapshotRead {
        key: key.into(),
        value: value.map(Into::into),
        version: (!version.is_empty()).then(|| version.into()),
    };
    Record {
        reads: Some(reads.iter().map(read).collect()),
        ..record("s", Op::Snapshot, "", None, times)
    }
}

fn build(records: &[Record]) -> Result<History, BadTrace> {
    let mut builder = HistoryBuilder::new();
    for record in records {
        builder.add(record)?;
    }
    builder.finish()
}

fn history(records: &[Record]) -> History {
    build(records).expect("a right trace")
}

#[test]
fn a_read_of_nothing_sees_the_delete_of_its_version() {
    let history = history(&[
        write("v", "1.0@a", (0, 1)),
        delete("w", "2.0@a", (2, 3)),
        read(None, "2.0@a", (4, 5)),
    ]);
    let zones = &Zones::of(&history)[0];
    assert!(zones.is_atomic() && zones.clusters.len() == 3, "{zones:?}");
    let read = history.operations[2];
    assert_eq!(history.writer_of(&read).map(|delete| delete.record), Some(1));
    assert!(history.keys[0].is_tombstone(read.value));
    let stamp = history.keys[0]
        .version(read.value)
        .and_then(|version| version.stamp());
    assert_eq!(stamp, Some(2 << 12));
}

#[test]
fn a_read_of_a_delete_that_nobody_did_is_a_phantom() {
    let history = history(&[write("v", "1.0@a", (0, 1)), read(None, "2.0@a", (4, 5))]);
    assert_eq!(Zones::of(&history)[0].phantom_reads, 1);
}

#[test]
fn a_read_of_nothing_before_the_first_write_sees_what_was_there_before() {
    let history = history(&[read(None, "", (0, 1)), write("v", "1.0@a", (2, 3))]);
    assert_eq!(history.operations[0].value, Value::INITIAL);
    assert!(Zones::of(&history)[0].is_atomic() && history.not_auditable.is_empty());
}

#[test]
fn a_read_of_nothing_without_version_is_left_out_once_its_key_was_deleted() {
    for trace in [
        vec![
            delete("w", "1.0@a", (0, 1)),
            read(None, "", (4, 5)),
            write("v", "2.0@a", (6, 7)),
        ],
        vec![
            delete("w", "1.0@a", (0, 3)),
            read(None, "", (2, 5)),
            snapshot(&[("k", None, "")], (2, 5)),
            write("v", "2.0@a", (6, 7)),
        ],
        vec![
            write("v", "", (6, 7)),
            read(None, "", (4, 5)),
            unknown(delete("w", "", (0, 1))),
        ],
    ] {
        let doubtful = trace
            .iter()
            .filter(|record| matches!(record.op, Op::Read | Op::Snapshot));
        let (doubtful, writes) = (doubtful.count() as u64, trace.iter());
        let writes = writes
            .filter(|record| record.version.is_some() || record.op == Op::Write)
            .count();
        let history = history(&trace);
        assert_eq!(history.doubtful_reads, doubtful, "{history:?}");
        assert_eq!((history.keys.len(), history.operations.len()), (1, writes));
        assert!(history.not_auditable.is_empty());
    }
    let before = history(&[read(None, "", (0, 1)), delete("w", "1.0@a", (2, 3))]);
    assert_eq!(
        (before.doubtful_reads, before.operations.len()),
        (0, 2),
        "there is no doubt"
    );
}

#[test]
fn what_is_left_of_a_key_with_a_read_in_doubt_is_judged() {
    let history = history(&[
        write("v", "1.0@a", (0, 1)),
        delete("w", "2.0@a", (2, 3)),
        write("new", "3.0@a", (4, 5)),
        read(None, "", (6, 7)),
        read(Some("new"), "3.0@a", (8, 9)),
        read(Some("v"), "1.0@a", (10, 11)),
    ]);
    let found = turnbuckle_check::session_violations(&history);
    assert_eq!((found.mr, history.doubtful_reads), (1, 1), "{found:?}");
}

#[test]
fn a_key_whose_delete_has_no_version_is_not_auditable() {
    let other = record("o", Op::Write, "other", Some("v"), (0, 9));
    let history = history(&[delete("w", "", (0, 1)), write("v", "", (6, 7)), other]);
    assert_eq!((history.keys.len(), history.operations.len()), (1, 1));
    assert_eq!(history.keys[0].name, "other");
    assert_eq!(history.operations[0].key, 0);
    assert_eq!(history.not_auditable.len(), 1);
    assert_eq!(history.not_auditable[0].key, "k");
    assert_eq!(history.not_auditable[0].operations, 2);
}

#[test]
fn operations_of_one_client_overlap_only_in_a_pipeline_and_follow_each_other_there() {
    let behind = |record: Record| Record {
        pipelined: true,
        ..record
    };
    let mine = |record: Record| Record {
        client: "w".into(),
        ..record
    };
    let first = write("v", "1.0@a", (0, 10));
    let second = mine(read(None, "", (1, 12)));
    assert!(matches!(
        build(&[first.clone(), second.clone()]),
        Err(BadTrace::Overlap {
            first: 0,
            second: 1,
            ..
        })
    ));
    let history = history(&[first, behind(second)]);
    let found = turnbuckle_check::session_violations(&history);
    assert_eq!(found.ryw, 1, "it follows the write: {found:?}");
}

#[test]
fn a_delete_that_found_nothing_has_read() {
    // The second was answered with the tombstone of the first.
    let history = history(&[
        delete("d", "2.0@a", (6, 7)),
        delete("w", "2.0@a", (2, 3)),
        delete("d", "2.0@a", (8, 9)),
    ]);
    let kinds = history.operations.iter().map(|operation| operation.kind);
    assert!(kinds.eq([Kind::Read, Kind::Write, Kind::Read]));
    assert_eq!(
        history
            .writer_of(&history.operations[0])
            .map(|delete| delete.record),
        Some(1)
    );
    // Nothing was ever there.
    let claims = Record {
        receipt: Some(Claim::default()),
        ..delete("d", "", (0, 1))
    };
    let history = self::history(&[claims, write("v", "1.0@a", (2, 3))]);
    assert_eq!(history.operations[0].kind, Kind::Read);
    assert_eq!(history.operations[0].value, Value::INITIAL);
    // The store names versions, and this delete has none.
    let history = self::history(&[delete("d", "", (0, 1)), write("v", "1.0@a", (2, 3))]);
    assert_eq!(history.operations[0].kind, Kind::Read);
}

#[test]
fn a_delete_that_may_have_happened_did_if_its_tombstone_was_read() {
    let lost = unknown(delete("w", "", (2, 3)));
    let history = history(&[
        lost.clone(),
        read(None, "2.0@a", (4, 5)),
        read(None, "2.0@a", (6, 7)),
    ]);
    assert_eq!(history.operations[0].kind, Kind::UnknownWrite);
    assert_eq!(
        history
            .writer_of(&history.operations[2])
            .map(|delete| delete.record),
        Some(0)
    );
    assert_eq!(Zones::of(&history)[0].phantom_reads, 0);
    // Nobody has seen it.
    let history = self::history(&[lost.clone(), write("v", "1.0@a", (4, 5))]);
    assert_eq!(history.operations.len(), 1);
    // It could be either.
    let other = unknown(delete("x", "", (2, 3)));
    let history = self::history(&[lost, other, read(None, "2.0@a", (4, 5))]);
    assert_eq!((history.operations.len(), history.not_auditable.len()), (0, 1));
}

#[test]
fn a_value_and_its_version_are_one_to_one() {
    let history = history(&[
        write("v", "1.0@a", (0, 1)),
        write("w", "2.0@a", (2, 3)),
        read(Some("v"), "2.0@a", (4, 5)),
        read(Some("w"), "2.0@a", (6, 7)),
        read(None, "1.0@a", (8, 9)),
    ]);
    let key = "k".into();
    let second = Finding::TwoValues {
        key: "k".into(),
        first: 0,
        second: 4,
    };
    assert_eq!(
        history.findings,
        [
            Finding::TwoVersions {
                key,
                first: 0,
                second: 2
            },
            second
        ]
    );
}

#[test]
fn a_failed_write_that_was_read_is_found_whichever_record_comes_first() {
    let failed = Record {
        status: Status::Fail,
        ..write("v", "", (0, 1))
    };
    let seen = read(Some("v"), "", (4, 5));
    for (records, write, read) in [([failed.clone(), seen.clone()], 0, 1), ([seen, failed], 1, 0)] {
        let history = history(&records);
        let key = "k".into();
        assert_eq!(history.findings, [Finding::FailedWriteSeen { key, write, read }]);
        assert_eq!(Zones::of(&history)[0].phantom_reads, 1);
    }
}

/// The records of deletes that took something away, and of what.
fn taken_away(records: &[Record]) -> Vec<(u64, u64)> {
    let history = history(records);
    let record = |place: usize| history.operations[place].record;
    let pairs = history.taken_away.iter();
    pairs
        .map(|&(delete, put)| (record(delete), record(put)))
        .collect()
}

#[test]
fn a_delete_took_away_the_only_put_that_it_can_have_been() {
    let put = || write("v", "1.0@a", (0, 5));
    assert_eq!(taken_away(&[put(), took("d", "2.0@a", (3, 9))]), [(1, 0)]);
    // Nobody knows whether it happened, and nobody has read it: it must have.
    let lost = [unknown(put()), took("d", "2.0@a", (3, 9))];
    assert_eq!(taken_away(&lost), [(1, 0)]);
    assert_eq!(history(&lost).operations[0].kind, Kind::UnknownWrite);
    // Another one may have been it; one that began when the delete was over cannot.
    let other = |start| Record {
        client: "o".into(),
        ..write("w", "3.0@a", (start, 20))
    };
    assert_eq!(taken_away(&[put(), other(9), took("d", "2.0@a", (3, 9))]), []);
    assert_eq!(
        taken_away(&[put(), other(10), took("d", "2.0@a", (3, 9))]),
        [(2, 0)]
    );
    // What its own client sent later, without waiting, was later.
    let later = Record {
        client: "d".into(),
        pipelined: true,
        ..other(4)
    };
    assert_eq!(taken_away(&[put(), later, took("d", "2.0@a", (3, 9))]), [(2, 0)]);
    // A write that was not done is none.
    let refused = Record {
        status: Status::Fail,
        ..other(1)
    };
    assert_eq!(
        taken_away(&[put(), refused, took("d", "2.0@a", (3, 9))]),
        [(2, 0)]
    );
    // What was read and never written may have been it, too.
    let phantom = read(Some("p"), "0.0@a", (0, 1));
    assert_eq!(taken_away(&[put(), phantom, took("d", "2.0@a", (3, 9))]), []);
    // It does not say that there was anything.
    assert_eq!(taken_away(&[put(), delete("d", "2.0@a", (3, 9))]), []);
    // Clocks that differ do not tell what began before what.
    let elsewhere = Record {
        recorder: Some("r2".into()),
        ..other(10)
    };
    assert_eq!(taken_away(&[put(), elsewhere, took("d", "2.0@a", (3, 9))]), []);
}

#[test]
fn a_snapshot_is_one_operation_of_its_client_and_several_of_the_keys() {
    let parts = [
        ("k", Some("v"), "1.0@a"),
        ("j", None, ""),
        ("k", Some("v"), "1.0@a"),
    ];
    let history = history(&[write("v", "1.0@a", (0, 1)), snapshot(&parts, (2, 9))]);
    assert_eq!(history.operations.len(), 3, "the same read twice is one");
    assert!(
        history.operations[1..]
            .iter()
            .all(|part| part.record == 1 && part.start == 2)
    );
    assert!(history.findings.is_empty());
    let torn = [("k", Some("v"), "1.0@a"), ("k", None, "")];
    let history = self::history(&[write("v", "1.0@a", (0, 1)), snapshot(&torn, (2, 9))]);
    let key = "k".into();
    assert_eq!(history.findings, [Finding::TornSnapshot { key, record: 1 }]);
    let parts = [("k", None, ""), ("j", None, "")];
    let overlapping = [snapshot(&parts, (2, 9)), snapshot(&parts, (5, 12))];
    let overlap = build(&overlapping).expect_err("two at once");
    assert!(matches!(
        overlap,
        BadTrace::Overlap {
            first: 0,
            second: 1,
            ..
        }
    ));
}

#[test]
fn what_contradicts_itself_is_refused_with_its_record() {
    let bad = |records: &[Record]| build(records).expect_err("a bad trace").to_string();
    assert_eq!(
        bad(&[read(None, "", (9, 5))]),
        "record 0: expected an operation that is over after it began, found 9 to 5"
    );
    assert!(bad(&[record("s", Op::Snapshot, "", None, (0, 1))]).contains("(reads)"));
    assert!(bad(&[record("s", Op::Write, "k", None, (0, 1))]).contains("the value that was written"));
    assert!(bad(&[write("v", "", (0, 1)), write("v", "", (2, 3))]).contains("written twice"));
    assert!(bad(&[read(None, "", (0, 5)), read(None, "", (4, 9))]).starts_with("record 0 and record 1"));
}

#[test]
fn the_ends_of_time_are_times() {
    let ends = (i64::MIN, i64::MAX);
    let stamp = "4503599627370495.4095@a";
    let history = history(&[
        write("v", stamp, ends),
        delete("d", "0.0@a", ends),
        read(None, "0.0@a", (i64::MAX, i64::MAX)),
    ]);
    let zones = &Zones::of(&history)[0];
    assert!(zones.is_atomic() && zones.gamma() == 0);
}

/// A trace with deletes and snapshots, and one in which every tombstone is a value.
fn twins(seed: u64) -> (Vec<Record>, Vec<Record>) {
    let mut random = Random::new(seed, 7);
    let keys = ["x", "y"];
    let mut free = [0_i64; 3];
    let (mut real, mut plain) = (Vec::new(), Vec::new());
    // Of each key: versions, and whether they have a value. The last two are never written.
    let mut known: [Vec<(u64, bool)>; 2] = [vec![(98, true), (99, false)], vec![(98, true), (99, false)]];
    for number in 0..4 + random.below(7) {
        let client = random.below(3) as usize;
        let start = free[client] + random.below(6) as i64;
        let times = (start, start + random.below(8) as i64);
        free[client] = times.1 + 1;
        let name = format!("c{client}");
        let at = random.below(2) as usize;
        let mut shown = |at: usize| {
            let (version, has_value) = known[at][random.below(known[at].len() as u64) as usize];
            (format!("{version}.0@a"), format!("v{version}"), has_value)
        };
        match number % 4 {
            0 | 1 => {
                let has_value = number % 4 == 0;
                let (version, value) = (format!("{number}.0@a"), format!("v{number}"));
                let op = if has_value { Op::Write } else { Op::Delete };
                let given = has_value.then_some(value.as_str());
                real.push(named(record(&name, op, keys[at], given, times), &version));
                plain.push(record(&name, Op::Write, keys[at], Some(&value), times));
                known[at].push((number, has_value));
            }
            2 => {
                let (version, value, has_value) = shown(at);
                let given = has_value.then_some(value.as_str());
                real.push(named(record(&name, Op::Read, keys[at], given, times), &version));
                plain.push(record(&name, Op::Read, keys[at], Some(&value), times));
            }
            _ => {
                let reads = [0, 1].map(|at| (keys[at], shown(at)));
                let parts = reads.each_ref().map(|(key, (version, value, has_value))| {
                    (*key, has_value.then_some(value.as_str()), version.as_str())
                });
                let together = snapshot(&parts, times);
                real.push(Record {
                    client: name.clone(),
                    ..together
                });
                for (key, (_, value, _)) in &reads {
                    // Two clients, since two reads of one would overlap.
                    let reader = format!("{name}.{key}");
                    plain.push(record(&reader, Op::Read, key, Some(value), times));
                }
            }
        }
    }
    (real, plain)
}

#[test]
fn a_trace_with_deletes_and_snapshots_means_what_one_without_means() {
    let (mut deletes, mut snapshots, mut broken) = (0, 0, 0);
    for seed in 0..20_000 {
        let (real, plain) = twins(seed);
        let (found, expected) = (history(&real), history(&plain));
        assert!(
            found.findings.is_empty() && found.not_auditable.is_empty(),
            "seed {seed}"
        );
        let judge = |history: &History| {
            let zones = Zones::of(history).into_iter().zip(&history.keys);
            let mut verdicts: Vec<_> = zones
                .map(|(zones, key)| {
                    let mut gammas = zones.gammas();
                    gammas.sort_unstable();
                    (
                        key.name.clone(),
                        zones.removed(),
                        zones.phantom_reads,
                        zones.future_reads,
                        gammas,
                    )
                })
                .collect();
            verdicts.sort();
            verdicts
        };
        assert_eq!(judge(&found), judge(&expected), "seed {seed}: {real:?}");
        deletes += real.iter().filter(|record| record.op == Op::Delete).count();
        snapshots += real.iter().filter(|record| record.op == Op::Snapshot).count();
        broken += judge(&found).iter().filter(|verdict| verdict.1 > 0).count();
    }
    println!("{deletes} deletes, {snapshots} snapshots, {broken} keys not atomic");
    assert!(deletes > 1_000 && snapshots > 1_000 && broken > 1_000);
}
