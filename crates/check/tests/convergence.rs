//! Whether sites agree in the end: what is still on its way does not count against them.
use turnbuckle_check::{HistoryBuilder, Report, explain};
use turnbuckle_workload::{Claim, Octets, Op, Record, Status};

const MS: i64 = 1_000_000;

/// One operation on a key at a site, which takes a millisecond.
fn record(site: &str, op: Op, key: &str, value: &str, start_ms: i64) -> Record {
    Record {
        client: format!("{site}{key}"),
        site: site.into(),
        op,
        key: key.into(),
        value: Some(Octets::from(value)),
        start_ns: start_ms * MS,
        finish_ns: Some((start_ms + 1) * MS),
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

fn write(site: &str, key: &str, value: &str, start_ms: i64) -> Record {
    record(site, Op::Write, key, value, start_ms)
}

fn read(site: &str, key: &str, value: &str, start_ms: i64) -> Record {
    record(site, Op::Read, key, value, start_ms)
}

/// `x` is written at a, missed at b 40 ms after that was over, and shown there later.
fn observed() -> Vec<Record> {
    vec![
        write("a", "x", "x1", 0),
        read("b", "x", "x1", 10),
        write("a", "x", "x2", 20),
        read("b", "x", "x1", 61),
        read("b", "x", "x2", 90),
    ]
}

/// `y` is written at a. It is read at a and at b `after_ms` milliseconds after the last write was over.
fn ends(after_ms: i64) -> Vec<Record> {
    vec![
        write("a", "y", "y1", 200),
        read("b", "y", "y1", 250),
        write("a", "y", "y2", 299),
        read("a", "y", "y2", 300 + after_ms),
        read("b", "y", "y1", 300 + after_ms),
    ]
}

fn report(records: &[Record]) -> (Report, String) {
    let mut builder = HistoryBuilder::new();
    for record in records {
        builder.add(record).expect("a right record");
    }
    let history = builder.finish().expect("a right trace");
    let explained: Vec<String> = explain(&history).into_iter().map(|it| it.title).collect();
    (Report::of(&history, &[]), explained.join("\n"))
}

#[test]
fn a_read_counts_from_twice_the_longest_observed_propagation_on() {
    for (after_ms, converged) in [(30, None), (80, None), (81, Some(false)), (5_000, Some(false))] {
        let (found, explained) = report(&[observed(), ends(after_ms)].concat());
        assert_eq!(found.propagation_ns, 40 * MS);
        assert_eq!(found.converged_per_key["y"], converged, "after {after_ms} ms");
        assert_eq!(
            explained.contains("the last reads of y by different clients differ"),
            converged.is_some(),
            "{explained}"
        );
    }
    // A write that was never shown says nothing about how long one takes.
    let (found, _) = report(&ends(30));
    assert_eq!(
        (found.propagation_ns, found.converged_per_key["y"]),
        (0, Some(false))
    );
    // At another site it was shown: that is another one.
    let elsewhere = [ends(30), vec![read("c", "y", "y2", 900)]].concat();
    assert_eq!(report(&elsewhere).0.propagation_ns, 0);
}

#[test]
fn those_that_agree_are_judged_whenever_they_read() {
    let mut agreed = [observed(), ends(30)].concat();
    agreed.push(read("b", "y", "y2", 340));
    assert_eq!(report(&agreed).0.converged_per_key["y"], Some(true));
    // A third one read too early, and nothing since.
    agreed.push(read("a", "y", "y2", 600));
    agreed.push(read("b", "y", "y2", 600));
    agreed.push(read("c", "y", "y1", 301));
    assert_eq!(report(&agreed).0.converged_per_key["y"], Some(true));
}

#[test]
fn a_read_that_says_how_stale_it_may_be_is_taken_at_its_word() {
    for (claimed_ms, converged) in [(None, Some(false)), (Some(99), Some(false)), (Some(100), None)] {
        let mut records = [observed(), ends(100)].concat();
        let last = records.last_mut().expect("a read");
        last.receipt = claimed_ms.map(|ms: u64| Claim {
            asked: "eventual".into(),
            given: "eventual".into(),
            staleness_us: Some(ms * 1_000),
            ..Claim::default()
        });
        assert_eq!(
            report(&records).0.converged_per_key["y"],
            converged,
            "{claimed_ms:?}"
        );
    }
}
