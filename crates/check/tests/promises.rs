//! Promises on random small traces, judged straight from the definitions: every pair of operations is looked at.
use std::collections::BTreeMap;
use turnbuckle_check::{
    Broken, History, HistoryBuilder, Kind, Operation, Order, Orders, Report, Requirement, Value,
    each_session_violation, each_stale_read,
    levels::{LevelJudge, Verdict},
    require, visibility,
};
use turnbuckle_core::Level;
use turnbuckle_workload::{Claim, Op, Random, Record, SnapshotRead, Status};

const TRACES: u64 = 20_000;

/// Some clients on two keys, timed by one recorder or two. Every write has a version, or none has; stamps need not follow time. Of some
/// writes the outcome is unknown: then only who reads it tells its version, or does not.
fn records(seed: u64) -> Vec<Record> {
    let mut random = Random::new(seed, 11);
    let (versions, recorders) = (random.below(3) > 0, 1 + random.below(2));
    let mut free = [0_i64; 3];
    let mut records: Vec<Record> = Vec::new();
    // Of each key: value and version. The first was there before, the second is never written.
    let unwritten = (Some("v99".to_owned()), Some("99.0@a".to_owned()));
    let mut known = [
        vec![(None, None), unwritten.clone()],
        vec![(None, None), unwritten],
    ];
    for number in 0..8 + random.below(8) {
        let client = random.below(3) as usize;
        let start = free[client] + random.below(5) as i64 * 1_000;
        let finish = start + random.below(6) as i64 * 1_000;
        free[client] = finish + 1_000;
        let at = random.below(2) as usize;
        let any = |of: &[(Option<String>, Option<String>)], random: &mut Random| {
            let place = random.below(of.len() as u64) as usize;
            // What nobody wrote is read now and then.
            let is_phantom = place == 1 && random.below(100) > 0;
            of[if is_phantom { of.len() - 1 } else { place }].clone()
        };
        let op = [Op::Write, Op::Read, Op::Read, Op::Snapshot][random.below(4) as usize];
        let level = match op {
            Op::Write => {
                ["eventual", "session", "monotonic-writes", "writes-follow-reads"][random.below(4) as usize]
            }
            _ => "eventual",
        };
        let staleness_us = (random.below(2) == 0).then(|| random.below(20));
        let mut record = Record {
            client: format!("c{client}"),
            site: ["a", "b"][client % 2].into(),
            op,
            key: ["x", "y"][at].into(),
            value: None,
            start_ns: start,
            finish_ns: Some(finish),
            status: Status::Ok,
            version: None,
            level: Some(level.into()),
            receipt: Some(Claim {
                asked: level.into(),
                given: level.into(),
                staleness_us,
                ..Claim::default()
            }),
            recorder: Some(format!("r{}", client as u64 % recorders)),
            pipelined: false,
            existed: false,
            reads: None,
        };
        match op {
            Op::Write => {
                let stamp = number.saturating_add(random.below(3)) * 10 + number;
                let version = versions.then(|| format!("{stamp}.0@a"));
                let value = Some(format!("v{number}"));
                let is_known = random.below(6) > 0;
                let told = version.clone().filter(|_| is_known || random.below(4) > 0);
                known[at].push((value.clone(), told));
                record.value = value.map(|value| value.as_str().into());
                match is_known {
                    true => record.version = version,
                    // Its client gives up and comes back as another.
                    false => {
                        record.client = format!("gone{number}");
                        (record.status, record.finish_ns, record.receipt) = (Status::Unknown, None, None);
                    }
                }
            }
            Op::Snapshot => {
                let read = |at: usize, random: &mut Random| {
                    let (value, version) = any(&known[at], random);
                    SnapshotRead {
                        key: ["x", "y"][at].into(),
                        value: value.map(|value| value.as_str().into()),
                        version: version.filter(|_| versions),
                    }
                };
                record.reads = Some(vec![read(0, &mut random), read(1, &mut random)]);
            }
            _ => {
                let (value, version) = any(&known[at], &mut random);
                (record.value, record.version) = (
                    value.map(|value| value.as_str().into()),
                    version.filter(|_| versions),
                );
            }
        }
        records.push(record);
    }
    records
}

fn history(records: &[Record]) -> History {
    let mut builder = HistoryBuilder::new();
    for record in records {
        builder.add(record).expect("a right record");
    }
    builder.finish().expect("a right trace")
}

/// The definitions, one pair of operations after the other.
struct Dumb<'a> {
    history: &'a History,
    /// By how much times must differ to be told apart.
    margin: i64,
}

impl Dumb<'_> {
    fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.history.operations.iter()
    }

    fn counts(&self, operation: &Operation) -> bool {
        let writer = self.history.writer_of(operation);
        operation.kind != Kind::Read
            || writer.map_or(operation.value == Value::INITIAL, |write| {
                operation.finish >= write.start
            })
    }

    fn stamp(&self, operation: &Operation) -> Option<u64> {
        self.history.keys[operation.key as usize]
            .version(operation.value)?
            .stamp()
    }

    fn has_stamps(&self, key: u32) -> bool {
        let is_answered =
            |write: &&Operation| write.key == key && write.kind != Kind::Read && write.finish < i64::MAX;
        let answered = || self.operations().filter(is_answered);
        answered().count() > 0 && answered().all(|write| self.stamp(write).is_some())
    }

    /// Whether what `read` returned is known older than `write`.
    fn is_older(&self, read: &Operation, write: &Operation) -> bool {
        if read.value == Value::INITIAL {
            return true;
        }
        if self.has_stamps(read.key) {
            // What nobody has seen has no place in that order.
            let stamps = self.stamp(read).zip(self.stamp(write));
            return stamps.is_some_and(|(read, write)| read < write);
        }
        let same =
            |other: &&Operation| (other.key, other.value) == (read.key, read.value) && self.counts(other);
        let effect = self
            .operations()
            .filter(same)
            .map(|operation| operation.finish)
            .min();
        effect.is_some_and(|effect| effect + self.margin < write.start)
    }

    fn is_before(&self, one: &Operation, other: &Operation) -> bool {
        one.client == other.client && one.record != other.record && one.start < other.start
    }

    fn sessions(&self, read: &Operation) -> Broken {
        let mut broken = Broken::default();
        for mine in self
            .operations()
            .filter(|mine| self.is_before(mine, read) && self.counts(mine))
        {
            let source = self.history.writer_of(mine);
            match (mine.kind, source) {
                (Kind::Read, Some(source)) => {
                    broken.mr |= mine.key == read.key && self.is_older(read, source);
                    if source.client != read.client {
                        self.others(read, source, &mut broken);
                    }
                }
                (Kind::Write, _) => broken.ryw |= mine.key == read.key && self.is_older(read, mine),
                _ => {}
            }
        }
        broken
    }

    /// What the client of `seen` had done on the key of `read` before.
    fn others(&self, read: &Operation, seen: &Operation, broken: &mut Broken) {
        let same_key = seen.key == read.key;
        for theirs in self
            .operations()
            .filter(|theirs| self.is_before(theirs, seen) && self.counts(theirs))
        {
            let Some(source) = self.history.writer_of(theirs).filter(|_| theirs.key == read.key) else {
                continue;
            };
            let is_broken = self.is_older(read, source) || same_key && source.value == read.value;
            let (across, within, promised) = match theirs.kind {
                Kind::Read => (
                    &mut broken.wfr,
                    &mut broken.wfr_within_key,
                    &mut broken.wfr_promised,
                ),
                _ => (&mut broken.mw, &mut broken.mw_within_key, &mut broken.mw_promised),
            };
            *across |= is_broken;
            *within |= is_broken && same_key;
            *promised |= is_broken && same_key && self.promises(seen, theirs.kind);
        }
    }

    /// Whether a write promises that it follows what its client has written, or read.
    fn promises(&self, write: &Operation, what: Kind) -> bool {
        let of = |operation: u32| std::ptr::eq(&self.history.operations[operation as usize], write);
        let mut promises = self.history.promises.iter();
        let promised = promises.find(|promise| promise.operations.clone().any(of));
        let level = promised
            .and_then(|promise| promise.level)
            .expect("each record has a level");
        matches!(
            (&*self.history.levels[level as usize], what),
            ("session", _)
                | ("writes-follow-reads", Kind::Read)
                | ("monotonic-writes", Kind::Write | Kind::UnknownWrite)
        )
    }

    /// The writes that a read missed.
    fn missed<'b>(&'b self, read: &'b Operation) -> impl Iterator<Item = &'b Operation> {
        let newer = |write: &&Operation| {
            write.kind != Kind::Read
                && write.key == read.key
                && write.finish < read.start
                && self.is_older(read, write)
        };
        self.operations().filter(newer)
    }

    fn recorder(&self, operation: &Operation) -> Option<u32> {
        self.history.recorder_of[operation.client as usize]
    }

    /// A bound on staleness; clocks are off by `skew` at most, if that is known.
    fn bound(&self, read: &Operation, bound: i64, skew: Option<i64>) -> &'static str {
        if read.kind != Kind::Read || !self.counts(read) {
            return "kept";
        }
        let one_clock = self.history.recorders.len() == 1;
        let is_false = self.missed(read).any(|write| {
            let certain = self.has_stamps(read.key) && self.recorder(read) == self.recorder(write);
            let margin = if certain || one_clock {
                Some(0)
            } else {
                skew.map(|skew| 2 * skew)
            };
            margin.is_some_and(|margin| read.start - write.finish > bound + margin)
        });
        match (is_false, one_clock || skew.is_some()) {
            (true, _) => "false",
            (false, true) => "kept",
            (false, false) => "unknown",
        }
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::NotContradicted => "kept",
        Verdict::NotAuditable(_) => "unknown",
        Verdict::False(_) => "false",
    }
}

#[test]
fn sessions_and_staleness_are_as_defined_whatever_orders_writes() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..TRACES {
        let history = history(&records(seed));
        let order = Order::of(&history);
        let dumb = Dumb {
            history: &history,
            margin: 0,
        };
        let mut found = vec![Broken::default(); history.operations.len()];
        each_session_violation(&history, &order, |place, broken| found[place] = broken);
        let mut stale = vec![None; history.operations.len()];
        each_stale_read(&history, &order, |place, ns| stale[place] = Some(ns));
        let (mut judged, mut fresh) = (0, 0);
        for (place, read) in history.operations.iter().enumerate() {
            if read.kind != Kind::Read || !dumb.counts(read) {
                assert_eq!((found[place], stale[place]), (Broken::default(), None));
                continue;
            }
            assert_eq!(
                found[place],
                dumb.sessions(read),
                "seed {seed}, operation {place}: {history:?}"
            );
            let missed = dumb.missed(read).map(|write| read.start - write.finish).max();
            assert_eq!(
                stale[place], missed,
                "seed {seed}, operation {place}: {history:?}"
            );
            let before = history.operations.iter().filter(|write| {
                write.kind != Kind::Read && write.key == read.key && write.finish < read.start
            });
            let last = before.clone().map(|write| write.finish).max();
            if last.is_some() {
                judged += 1;
                let mut last = before.filter(|write| Some(write.finish) == last);
                fresh += u64::from(!last.any(|write| dumb.is_older(read, write)));
            }
            let broken = found[place];
            *seen.entry(order.name()).or_default() += 1;
            *seen.entry("stale").or_default() += u64::from(missed.is_some());
            *seen.entry("broken").or_default() += u64::from(broken.ryw && broken.mr);
            *seen.entry("within the key").or_default() += u64::from(broken.mw_within_key);
            *seen.entry("across").or_default() += u64::from(broken.wfr && !broken.wfr_within_key);
        }
        let curve = visibility(&history, &order);
        let sums = curve.iter().fold((0, 0), |(reads, fresh), bucket| {
            (reads + bucket.reads, fresh + bucket.fresh)
        });
        assert_eq!(sums, (judged, fresh), "seed {seed}: {history:?}");
        assert!(curve.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
    }
    println!("{seen:?}");
    assert!(
        seen.len() == 7 && seen.values().all(|&count| count > 100),
        "{seen:?}"
    );
}

#[test]
fn receipts_and_levels_are_judged_as_defined_whatever_is_known_of_clocks() {
    let mut seen: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for seed in 0..TRACES / 8 {
        let records = records(seed);
        let history = history(&records);
        let one_clock = history.recorders.len() == 1;
        for skew in [None, Some(0), Some(1_500)] {
            let margin = if one_clock { 0 } else { 2 * skew.unwrap_or(0) };
            let dumb = Dumb {
                history: &history,
                margin,
            };
            let judge = LevelJudge::new(&history, skew);
            for (place, read) in history.operations.iter().enumerate() {
                for bound in [0, 3_000, 7_500] {
                    let (found, expected) =
                        (word(judge.staleness(place, bound)), dumb.bound(read, bound, skew));
                    assert_eq!(
                        found, expected,
                        "seed {seed}, operation {place}, {skew:?}: {history:?}"
                    );
                    *seen.entry(("staleness", expected)).or_default() += 1;
                }
            }
            let is_unknown = |read: &Operation| !one_clock && skew.is_none() && !dumb.has_stamps(read.key);
            let verdict = |level, judge: &dyn Fn(Broken) -> bool| {
                let mut verdicts = history.operations.iter().map(|read| {
                    let is_phantom = history.keys[read.key as usize].is_phantom(read.value);
                    let early = history
                        .writer_of(read)
                        .map_or(0, |write| write.start.saturating_sub(read.finish));
                    let is_early = history.writer_of(read).is_some_and(|write| {
                        let same = one_clock || dumb.recorder(read) == dumb.recorder(write);
                        early
                            > if same {
                                0
                            } else {
                                skew.map_or(i64::MAX, |skew| 2 * skew)
                            }
                    });
                    let counts = read.kind == Kind::Read && dumb.counts(read);
                    is_phantom || is_early || counts && !is_unknown(read) && judge(dumb.sessions(read))
                });
                (level, verdicts.any(|is_broken| is_broken))
            };
            for (level, is_broken) in [
                verdict(Level::Eventual, &|_| false),
                verdict(Level::ReadYourWrites, &|broken| broken.ryw),
                verdict(Level::MonotonicReads, &|broken| broken.mr),
                verdict(Level::MonotonicWrites, &|broken| broken.mw_within_key),
                verdict(Level::WritesFollowReads, &|broken| broken.wfr_within_key),
            ] {
                let found = require(&history, &judge, level);
                let found_broken = matches!(found, Requirement::Broken { .. });
                assert_eq!(
                    found_broken, is_broken,
                    "seed {seed}, {level}, {skew:?}: {found:?} of {history:?}"
                );
                let word = if is_broken { "false" } else { "not false" };
                *seen.entry(("level", word)).or_default() += 1;
            }
            let report = Report::judged(&history, &[0], &judge, &Orders::of(&history));
            let claimed = records.iter().filter(|record| record.receipt.is_some()).count() as u64;
            assert_eq!(report.audit.receipts.all(), claimed);
            let moments = report.over_time.iter().fold((0, 0), |(all, removed), moment| {
                (all + moment.operations, removed + moment.removed)
            });
            assert_eq!(moments, (report.counted_ops, report.removed_ops), "seed {seed}");
            let stale: u64 = report.per_site.values().map(|part| part.stale_reads).sum();
            assert_eq!(stale, report.stale_reads);
            let receipts: u64 = report.per_level.values().map(|part| part.receipts.all()).sum();
            assert_eq!(receipts, claimed);
        }
    }
    println!("{seen:?}");
    assert!(
        seen.len() == 5 && seen.values().all(|&count| count > 100),
        "{seen:?}"
    );
}

/// An operation of a client on `k`, with what is promised.
fn promised(client: &str, op: Op, value: &str, times: (i64, i64), level: &str) -> Record {
    Record {
        client: client.into(),
        site: "a".into(),
        op,
        key: "k".into(),
        value: Some(value.into()),
        start_ns: times.0,
        finish_ns: Some(times.1),
        status: Status::Ok,
        version: None,
        level: Some(level.into()),
        receipt: None,
        recorder: None,
        pipelined: false,
        existed: false,
        reads: None,
    }
}

fn report(records: &[Record]) -> Report {
    let history = history(records);
    Report::of(&history, &[])
}

#[test]
fn a_promise_of_one_copy_binds_those_operations_that_it_was_given_to() {
    let trace = |weak: &str| {
        [
            promised("w", Op::Write, "1", (0, 1), "linearizable"),
            promised("w", Op::Write, "2", (2, 3), "linearizable"),
            // A stale read.
            promised("r", Op::Read, "1", (4, 5), weak),
            promised("r", Op::Read, "2", (6, 7), "linearizable"),
        ]
    };
    assert!(!report(&trace("eventual")).has_broken_promises());
    assert!(report(&trace("atomic")).has_broken_promises());
    // A weak write may take effect after its answer, so nobody has to see it yet.
    let trace = |level: &str| {
        [
            promised("w", Op::Write, "1", (0, 1), "linearizable"),
            promised("w", Op::Write, "2", (2, 3), level),
            promised("r", Op::Read, "1", (4, 5), "linearizable"),
            promised("r", Op::Read, "2", (6, 7), "linearizable"),
        ]
    };
    assert!(!report(&trace("one")).has_broken_promises());
    assert!(report(&trace("linearizable")).has_broken_promises());
}

#[test]
fn a_downgrade_has_to_be_admitted() {
    let trace = |asked: &str, given: &str| {
        let claim = Claim {
            asked: asked.into(),
            given: given.into(),
            ..Claim::default()
        };
        let write = promised("w", Op::Write, "1", (0, 1), "linearizable");
        [Record {
            receipt: Some(claim),
            ..write
        }]
    };
    let audit = report(&trace("linearizable", "eventual")).audit;
    assert_eq!(
        (audit.weaker, audit.receipts.broken, audit.is_broken()),
        (1, 0, false)
    );
    let audit = report(&trace("eventual", "eventual")).audit;
    assert_eq!(
        (audit.weaker, audit.receipts.broken, audit.is_broken()),
        (0, 1, true)
    );
    assert_eq!(audit.broken[0].promise, "asked");
}

#[test]
fn a_receipt_with_anothers_version_is_false() {
    let write = |value: &str, version: &str, times| Record {
        version: Some(version.into()),
        receipt: Some(Claim {
            asked: "eventual".into(),
            given: "eventual".into(),
            ..Claim::default()
        }),
        ..promised("w", Op::Write, value, times, "eventual")
    };
    let report = report(&[write("1", "1.0@a", (0, 1)), write("2", "1.0@a", (2, 3))]);
    assert_eq!(
        (
            report.audit.receipts.broken,
            report.audit.receipts.not_contradicted
        ),
        (1, 1)
    );
    assert_eq!(
        (report.findings.mixed_versions, report.audit.broken[0].record),
        (1, 1)
    );
}

#[test]
fn an_order_that_somebody_looked_for_decides_about_causal() {
    let trace = history(&[
        promised("w", Op::Write, "1", (0, 1), "causal"),
        promised("w", Op::Write, "2", (2, 3), "causal"),
        promised("r", Op::Read, "1", (4, 5), "causal"),
        promised("r", Op::Read, "2", (6, 7), "causal"),
    ]);
    let mut judge = LevelJudge::new(&trace, None);
    assert!(matches!(
        require(&trace, &judge, Level::Causal),
        Requirement::NotAuditable(_)
    ));
    judge.learn(turnbuckle_core::PromisedOrder::Causal, vec![false; 4]);
    assert_eq!(require(&trace, &judge, Level::Causal), Requirement::Kept);
    judge.learn(
        turnbuckle_core::PromisedOrder::Causal,
        vec![false, false, true, false],
    );
    assert!(matches!(
        require(&trace, &judge, Level::Causal),
        Requirement::Broken { operations: 1, .. }
    ));
    // One copy explains all: so does every weaker order.
    let trace = history(&[
        promised("w", Op::Write, "1", (0, 1), "causal"),
        promised("r", Op::Read, "1", (2, 3), "causal"),
    ]);
    for level in [Level::Causal, Level::Sequential, Level::PerKeySequential] {
        assert_eq!(
            require(&trace, &LevelJudge::new(&trace, None), level),
            Requirement::Kept
        );
    }
}

/// A reader that goes back on a key breaks `per-key-sequential`, if versions show that it does.
#[test]
fn a_session_that_goes_back_on_a_key_breaks_its_order() {
    let operation = |client: &str, op, value: &str, times, level: &str| Record {
        version: Some(format!("{value}.0@a")),
        ..promised(client, op, value, times, level)
    };
    let trace = |second: &str, third: &str| {
        [
            operation("w", Op::Write, "1", (0, 1), "one"),
            operation("w", Op::Write, "2", (2, 3), "one"),
            operation("r", Op::Read, second, (4, 5), "one"),
            operation("r", Op::Read, third, (6, 7), "per-key-sequential"),
        ]
    };
    let broken = |trace: &[Record]| report(trace).audit.levels["per-key-sequential"].broken;
    assert_eq!(broken(&trace("1", "2")), 0);
    assert_eq!(broken(&trace("2", "2")), 0);
    assert_eq!(broken(&trace("2", "1")), 1);
    // Without versions it is not searched whether another order of writes explains it.
    let unknown = trace("2", "1").map(|record| Record {
        version: None,
        ..record
    });
    let audit = report(&unknown).audit.levels["per-key-sequential"];
    assert_eq!((audit.broken, audit.not_auditable), (0, 1));
}

/// The order that receipts claim: each read shows the newest version up to its cut, and sessions do not go back.
#[test]
fn a_read_that_is_not_where_its_receipt_says_breaks_sequential_consistency() {
    let operation = |client: &str, op, value: &str, times, as_of: Option<&str>| Record {
        version: Some(format!("{value}.0@a")),
        receipt: Some(Claim {
            asked: "sequential".into(),
            given: "sequential".into(),
            as_of: as_of.map(Into::into),
            ..Claim::default()
        }),
        ..promised(client, op, value, times, "sequential")
    };
    let write = |value: &str, times| operation("w", Op::Write, value, times, None);
    let read =
        |client: &str, value: &str, times, as_of| operation(client, Op::Read, value, times, Some(as_of));
    let broken = |reads: &[Record]| {
        let trace = [&[write("10", (0, 1)), write("20", (2, 3))], reads].concat();
        report(&trace).audit.levels["sequential"].broken
    };
    // Both are right, although the second is older in time.
    assert_eq!(
        broken(&[read("r", "20", (4, 5), "25.0"), read("s", "10", (6, 7), "15.0")]),
        0
    );
    assert_eq!(broken(&[read("r", "10", (4, 5), "25.0")]), 1, "it misses a write");
    assert_eq!(broken(&[read("r", "20", (4, 5), "15.0")]), 1, "it shows too much");
    assert_eq!(
        broken(&[read("r", "20", (4, 5), "25.0"), read("r", "10", (6, 7), "15.0")]),
        1,
        "it goes back"
    );
    assert_eq!(
        broken(&[read("w", "10", (4, 5), "15.0")]),
        1,
        "it is before its own write"
    );
    let after = [
        read("r", "20", (4, 5), "40.0"),
        operation("r", Op::Write, "30", (6, 7), None),
    ];
    assert_eq!(
        broken(&after),
        2,
        "it is stamped before what was read, which so misses it"
    );
}

#[test]
fn causality_is_held_against_those_who_were_all_promised_it() {
    let trace = |first: &str| {
        [
            promised("w", Op::Write, "1", (0, 1), first),
            promised("w", Op::Write, "2", (2, 3), "causal"),
            promised("r", Op::Read, "2", (4, 5), "causal"),
            promised("r", Op::Read, "1", (6, 7), "causal"),
        ]
    };
    let audit = report(&trace("causal")).audit;
    assert_eq!((audit.levels["causal"].broken, audit.broken[0].record), (1, 3));
    // A weaker operation beside may be to blame.
    let audit = report(&trace("eventual")).audit;
    let causal = audit.levels["causal"];
    assert_eq!((causal.broken, causal.not_auditable), (0, 1));
}

#[test]
fn the_ends_of_time_and_empty_traces_are_judged() {
    assert!(!report(&[]).has_broken_promises());
    let ends = [
        promised("w", Op::Write, "1", (i64::MIN, i64::MIN), "bounded(1us)"),
        promised("w", Op::Write, "2", (i64::MIN + 1, i64::MIN + 1), "linearizable"),
        promised(
            "r",
            Op::Read,
            "1",
            (i64::MAX, i64::MAX),
            "bounded(18446744073709551615us)",
        ),
        promised("s", Op::Read, "1", (i64::MAX, i64::MAX), "bounded(1us)"),
    ];
    let report = report(&ends);
    assert_eq!(report.max_staleness_ns, i64::MAX);
    assert_eq!(
        report.audit.levels["bounded(1us)"].broken, 1,
        "{:?}",
        report.audit
    );
    assert_eq!(
        report
            .over_time
            .iter()
            .map(|moment| moment.operations)
            .sum::<u64>(),
        4
    );
    assert_eq!(
        report.t_visibility.iter().map(|bucket| bucket.reads).sum::<u64>(),
        2
    );
}
