//! A window beside a report on just the records that are in it, on random streams.
use std::collections::BTreeMap;
use turnbuckle_check::{
    BadTrace, Fraction, HistoryBuilder, Limits, Report, SiteMetrics, Window, WindowMetrics,
};
use turnbuckle_workload::{Octets, Op, Random, Record, Status};

fn record(
    client: u64,
    op: Op,
    key: u64,
    value: Option<u64>,
    start: i64,
    finish: i64,
    status: Status,
) -> Record {
    Record {
        client: format!("c{client}"),
        site: format!("s{}", client % 2),
        op,
        key: format!("k{key}").as_str().into(),
        value: value.map(|value| format!("v{value}").as_str().into()),
        start_ns: start,
        finish_ns: (status != Status::Unknown).then_some(finish),
        status,
        version: None,
        level: None,
        receipt: None,
        recorder: None,
        pipelined: false,
        existed: false,
        reads: None,
    }
}

fn write(client: u64, key: u64, value: u64, start: i64, finish: i64) -> Record {
    record(client, Op::Write, key, Some(value), start, finish, Status::Ok)
}

fn read(client: u64, key: u64, value: Option<u64>, start: i64, finish: i64) -> Record {
    record(client, Op::Read, key, value, start, finish, Status::Ok)
}

/// What reads return.
#[derive(Clone, Copy, PartialEq)]
enum Store {
    /// What was the key's value at some moment of the read.
    Atomic,
    /// That, or something older, or of nobody.
    Sloppy,
}

/// A stream of records in the order in which they come in: roughly that of their finishes.
fn stream(seed: u64, operations: u64, store: Store) -> Vec<Record> {
    let mut random = Random::new(seed, 0);
    let (clients, keys) = (2 + random.below(4), 1 + random.below(3));
    let slowness = 1 + random.below(12);
    // When each client is free; what each of them does next happens at one moment in between.
    let mut free = vec![0_i64; clients as usize];
    let mut plans = Vec::new();
    for number in 0..operations {
        let client = random.below(clients);
        let start = free[client as usize] + random.below(6) as i64;
        let finish = start + random.below(slowness) as i64;
        let moment = start + random.below((finish - start + 1) as u64) as i64;
        // Operations of a session that touch could have happened in either order.
        free[client as usize] = finish + i64::from(store == Store::Atomic || random.below(4) > 0);
        plans.push((moment, random.below(1 << 30), number, client, start, finish));
    }
    plans.sort_unstable();
    let mut written: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut arrivals = Vec::new();
    for (_, _, number, client, start, finish) in plans {
        let key = random.below(keys);
        let of_key = written.entry(key).or_default();
        let arrival = finish + random.below(8) as i64;
        if random.below(5) < 2 {
            let status = match random.below(12) {
                0 => Status::Unknown,
                1 => Status::Fail,
                _ => Status::Ok,
            };
            // Others may read what failed only in a sloppy store.
            if status != Status::Fail || store == Store::Sloppy {
                of_key.push(number);
            }
            let late = if status == Status::Unknown { 30 } else { 0 };
            let record = record(client, Op::Write, key, Some(number), start, finish, status);
            arrivals.push((arrival + late, number, record));
            continue;
        }
        let back = match store {
            Store::Sloppy if random.below(4) == 0 => random.below(8) as usize,
            _ => 0,
        };
        let value = match random.below(25) {
            0 if store == Store::Sloppy => Some(1 << 40),
            _ => of_key.len().checked_sub(1 + back).map(|place| of_key[place]),
        };
        arrivals.push((arrival, number, read(client, key, value, start, finish)));
    }
    arrivals.sort_by_key(|&(arrival, number, _)| (arrival, number));
    arrivals.into_iter().map(|(_, _, record)| record).collect()
}

/// The records that are in the window, from the definition.
struct Expected<'a> {
    judged: Vec<&'a Record>,
    carried: u64,
    unexplained: u64,
}

fn expected<'a>(seen: &[&'a Record], cut: i64) -> Expected<'a> {
    let mut expected = Expected {
        judged: Vec::new(),
        carried: 0,
        unexplained: 0,
    };
    let mut chosen = vec![false; seen.len()];
    let answered = |record: &Record| record.status == Status::Ok;
    let is_inside =
        |record: &Record| answered(record) && record.finish_ns.is_some_and(|finish| finish >= cut);
    let is_writer = |write: &Record, read: &Record| {
        write.op == Op::Write && write.key == read.key && write.value == read.value
    };
    for (place, record) in seen.iter().enumerate().filter(|(_, record)| is_inside(record)) {
        let is_explained = record.op == Op::Write
            || record.value.is_none()
            || seen.iter().any(|write| is_writer(write, record));
        chosen[place] = is_explained;
        expected.unexplained += u64::from(!is_explained);
    }
    let inside: Vec<&Record> = (0..seen.len())
        .filter(|&place| chosen[place])
        .map(|place| seen[place])
        .collect();
    for read in inside
        .iter()
        .filter(|record| record.op == Op::Read && record.value.is_some())
    {
        for (place, write) in seen
            .iter()
            .enumerate()
            .filter(|(_, write)| is_writer(write, read))
        {
            expected.carried += u64::from(!chosen[place] && write.status != Status::Fail);
            chosen[place] = true;
        }
    }
    let mut keys: Vec<&Octets> = inside.iter().map(|record| &record.key).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let before = |record: &Record| {
            record.op == Op::Write && record.key == *key && answered(record) && !is_inside(record)
        };
        let writes = seen.iter().enumerate().filter(|(_, record)| before(record));
        let last = writes.max_by_key(|(place, record)| (record.finish_ns, record.start_ns, *place));
        if let Some((place, _)) = last {
            expected.carried += u64::from(!chosen[place]);
            chosen[place] = true;
        }
    }
    expected.judged = (0..seen.len())
        .filter(|&place| chosen[place])
        .map(|place| seen[place])
        .collect();
    expected
}

fn report(records: &[&Record]) -> Option<Report> {
    let mut builder = HistoryBuilder::new();
    for record in records {
        builder.add(record).expect("a right record");
    }
    Some(Report::of(&builder.finish().ok()?, &[]))
}

fn assert_equal(found: &WindowMetrics, expected: &Expected<'_>, report: &Report, context: &str) {
    assert_eq!(found.operations, report.counted_ops, "{context}");
    assert_eq!(found.carried, expected.carried, "{context}");
    assert_eq!(found.unexplained_reads, expected.unexplained, "{context}");
    assert_eq!(found.removed, report.removed_ops, "{context}");
    assert_eq!(found.proportion, report.inconsistent_proportion, "{context}");
    assert_eq!(found.atomic, report.atomic, "{context}");
    assert_eq!(found.gamma_max_ns, report.gamma_max_ns, "{context}");
    assert_eq!(found.stale_reads, report.stale_reads, "{context}");
    assert_eq!(found.max_staleness_ns, report.max_staleness_ns, "{context}");
    assert_eq!(found.phantom_reads, report.phantom_reads, "{context}");
    assert_eq!(found.future_reads, report.future_reads, "{context}");
    assert_eq!(found.ryw, report.session_violations.ryw, "{context}");
    assert_eq!(found.mr, report.session_violations.mr, "{context}");
    let of_sites = |value: fn(&SiteMetrics) -> u64| found.sites.values().map(value).sum::<u64>();
    assert_eq!(of_sites(|site| site.operations), found.operations, "{context}");
    assert_eq!(of_sites(|site| site.stale_reads), found.stale_reads, "{context}");
}

#[test]
fn a_window_says_what_a_report_on_its_records_says() {
    let (mut compared, mut carried, mut broken, mut phantoms, mut violations, mut late) = (0, 0, 0, 0, 0, 0);
    for seed in 0..1_000 {
        let mut random = Random::new(seed, 1);
        let span = 1 + random.below(if seed % 4 == 0 { 400 } else { 40 }) as i64;
        let mut window = Window::with_limits(
            span,
            Limits {
                memory_ns: i64::MAX,
                ..Limits::for_span(span)
            },
        );
        let records = stream(seed, 60, Store::Sloppy);
        let mut seen: Vec<&Record> = Vec::new();
        let mut newest = i64::MIN;
        for record in &records {
            match window.add(record) {
                Ok(()) => seen.push(record),
                Err(error) => panic!("seed {seed}: {error}"),
            }
            if record.status == Status::Ok {
                newest = newest.max(record.finish_ns.expect("it was answered"));
            }
            if random.below(6) > 0 {
                continue;
            }
            let found = window.metrics();
            let expected = expected(&seen, newest.saturating_sub(span));
            let report = report(&expected.judged).expect("a right trace");
            let context = format!("seed {seed} after {} records, span {span}: {found:?}", seen.len());
            assert_equal(&found, &expected, &report, &context);
            assert_eq!(found, window.metrics(), "{context}: asked again");
            compared += 1;
            carried += found.carried;
            broken += found.removed;
            phantoms += found.phantom_reads;
            violations += found.ryw.min(found.mr);
            late += found.late_reads;
        }
    }
    println!(
        "{compared} windows, {carried} carried, {broken} to remove, {phantoms} phantoms, {violations}, {late} late"
    );
    let counts = [compared, carried, broken, phantoms, violations, late];
    assert!(counts.iter().all(|&count| count > 500));
}

#[test]
fn an_atomic_store_is_never_blamed_however_little_is_held() {
    let (mut unexplained, mut shortened) = (0, 0);
    for seed in 0..2_000 {
        let mut random = Random::new(seed, 2);
        let span = 1 + random.below(60) as i64;
        let limits = Limits {
            memory_ns: random.below(100) as i64,
            most_operations: 2 + random.below(60) as usize,
            most_keys: 1 + random.below(3) as usize,
        };
        let mut window = Window::with_limits(span, limits);
        for record in stream(seed, 120, Store::Atomic) {
            window.add(&record).expect("a right record");
            let (operations, keys) = window.held();
            assert!(
                operations <= limits.most_operations && keys <= limits.most_keys,
                "seed {seed}"
            );
            if random.below(4) == 0 {
                let found = window.metrics();
                let blamed = (
                    found.removed,
                    found.gamma_max_ns,
                    found.stale_reads,
                    found.ryw,
                    found.mr,
                );
                assert_eq!(blamed, (0, 0, 0, 0, 0), "seed {seed}: {found:?}");
                unexplained += found.unexplained_reads;
                shortened += found.shortened_ns;
            }
        }
    }
    println!("{unexplained} reads unexplained, {shortened} ns missing");
    assert!(unexplained > 1_000 && shortened > 1_000);
}

fn window(span: i64, records: &[Record]) -> Window {
    let mut window = Window::new(span);
    for record in records {
        window.add(record).expect("a right record");
    }
    window
}

#[test]
fn nothing_seen_is_nothing_wrong() {
    let metrics = Window::new(0).metrics();
    assert_eq!((metrics.operations, metrics.proportion), (0, Fraction::new(0, 1)));
    assert!(metrics.atomic && metrics.sites.is_empty());
}

#[test]
fn a_value_overwritten_long_before_the_window_is_stale_and_no_phantom() {
    let mut records = vec![
        write(0, 0, 1, 0, 10),
        write(0, 0, 2, 20, 30),
        read(1, 0, Some(1), 1_000, 1_010),
    ];
    let found = window(100, &records).metrics();
    assert_eq!((found.operations, found.carried, found.keys), (3, 2, 1));
    assert_eq!(
        (found.stale_reads, found.max_staleness_ns, found.phantom_reads),
        (1, 970, 0)
    );
    assert_eq!((found.removed, found.proportion), (1, Fraction::new(1, 3)));
    assert_eq!(found.sites["s1"].stale_reads, 1);
    records[2] = read(1, 0, Some(2), 1_000, 1_010);
    assert!(window(100, &records).metrics().atomic);
    records[2] = read(1, 0, None, 1_000, 1_010);
    assert_eq!(window(100, &records).metrics().stale_reads, 1);
}

#[test]
fn a_value_is_explained_as_soon_as_its_write_comes_in() {
    let mut window = window(100, &[read(1, 0, Some(1), 20, 30)]);
    let before = window.metrics();
    assert_eq!((before.operations, before.unexplained_reads), (0, 1));
    window.add(&write(0, 0, 1, 10, 50)).expect("a right record");
    let after = window.metrics();
    assert_eq!((after.operations, after.unexplained_reads), (2, 0));
    assert!(after.atomic);
}

#[test]
fn what_is_forgotten_is_unexplained() {
    let forgetful = Limits {
        memory_ns: 100,
        ..Limits::for_span(100)
    };
    let mut window = Window::with_limits(100, forgetful);
    for record in [
        write(0, 0, 1, 0, 10),
        write(0, 0, 2, 20, 30),
        write(0, 1, 3, 40, 50),
    ] {
        window.add(&record).expect("a right record");
    }
    for time in 0..100 {
        window
            .add(&read(1, 0, Some(2), time * 10, time * 10))
            .expect("a right record");
    }
    // The last value of a key that is in use is kept, and so is that of any key for a while.
    assert!(window.metrics().atomic && window.metrics().unexplained_reads == 0);
    assert_eq!(window.held().1, 1, "the other key was not used");
    window
        .add(&read(2, 0, Some(1), 1_000, 1_010))
        .expect("a right record");
    window
        .add(&read(2, 1, Some(3), 1_020, 1_030))
        .expect("a right record");
    assert_eq!(window.metrics().unexplained_reads, 2);
}

#[test]
fn bad_records_are_refused_and_change_nothing() {
    let mut window = window(1_000, &[write(0, 0, 1, 0, 10), read(1, 0, Some(1), 20, 30)]);
    let before = window.metrics();
    let mut without_finish = read(2, 0, None, 40, 50);
    without_finish.finish_ns = None;
    for (bad, expected) in [
        (
            write(2, 0, 1, 40, 50),
            "record 0 and record 2: expected values that differ",
        ),
        (
            read(1, 0, Some(1), 25, 50),
            "record 1 and record 3: expected a client's operations one after the other",
        ),
        (
            read(2, 0, None, 50, 40),
            "record 4: expected an operation that is over after it began",
        ),
        (without_finish, "record 5: expected the time at which"),
        (
            record(2, Op::Write, 0, None, 40, 50, Status::Ok),
            "record 6: expected the value that was written",
        ),
        (
            record(2, Op::Delete, 0, None, 40, 50, Status::Ok),
            "record 7: expected a read or a write, found a delete",
        ),
        (
            record(2, Op::Snapshot, 0, None, 40, 50, Status::Ok),
            "record 8: expected a read or a write, found a snapshot",
        ),
    ] {
        let error: BadTrace = window.add(&bad).expect_err(expected);
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(window.metrics(), before);
    }
}

#[test]
fn the_ends_of_time_do_no_harm() {
    let (first, last) = (i64::MIN, i64::MAX);
    let limits = Limits {
        memory_ns: last,
        most_operations: 5,
        most_keys: 2,
    };
    for span in [first, 0, 1, 1_000, last] {
        for memory_ns in [first, 0, last] {
            let mut window = Window::with_limits(span, Limits { memory_ns, ..limits });
            for number in 0..20 {
                let times = [
                    (first, first),
                    (first, last),
                    (0, 0),
                    (last, last),
                    (last - 1, last),
                ];
                let (start, finish) = times[number as usize % 5];
                let status = [Status::Ok, Status::Unknown, Status::Fail][number as usize % 3];
                let write = record(number, Op::Write, number % 3, Some(number), start, finish, status);
                window.add(&write).expect("a right record");
                window
                    .add(&read(100 + number, number % 3, Some(number), start, finish))
                    .expect("a right record");
                let (operations, keys) = window.held();
                assert!(operations <= 5 && keys <= 2);
                window.metrics();
            }
        }
    }
}
