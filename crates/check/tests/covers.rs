//! Receipts that cover only writes that enough replicas had stored, on random small traces and on planted ones. The random ones are judged straight
//! from the definition: every pair of operations is looked at.
mod common;

use std::{collections::BTreeMap, num::NonZeroU8};
use turnbuckle_check::{
    Audit, History, HistoryBuilder, Kind, Operation, Orders, Value, explain_keys,
    levels::{LevelJudge, Verdict},
};
use turnbuckle_core::{Level, Micros};
use turnbuckle_workload::{Claim, Octets, Op, Random, Record, SnapshotRead, Status};

const TRACES: u64 = 20_000;

/// What a trace has.
#[derive(Clone, Copy)]
struct Sort {
    /// Whether records name versions. Only then are there deletes.
    versions: bool,
    /// How many recorders timed it.
    recorders: u64,
}

/// The value and the version of what the plain trace calls `text`. If there are versions, some values are tombstones, and stamps need not follow time.
fn dressed(text: &Octets, sort: Sort) -> (Option<Octets>, Option<String>) {
    let number: u64 = std::str::from_utf8(&text.0[1..])
        .expect("a value is UTF-8")
        .parse()
        .expect("a value is v and a number");
    let stamp = (number * 7 + 3) % 11 + 1;
    let version = sort.versions.then(|| format!("{stamp}.{number}@a"));
    let is_tombstone = sort.versions && number % 4 == 3;
    (Some(text.clone()).filter(|_| !is_tombstone), version)
}

/// The plain traces of the other oracles, with what they lack: versions, deletes, snapshots, recorders and receipts. In a third of them every receipt
/// covers every write.
fn records(seed: u64) -> Vec<Record> {
    let mut random = Random::new(seed, 21);
    let sort = Sort {
        versions: random.below(2) == 0,
        recorders: 1 + random.below(2),
    };
    let most = 1 + random.below(3);
    let mut records = common::records(seed);
    for record in &mut records {
        record.start_ns *= 1_000;
        record.finish_ns = record.finish_ns.map(|finish| finish * 1_000);
        let client = u64::from(record.client.as_bytes()[1]);
        record.recorder = Some(format!("r{}", client % sort.recorders));
        let value = record.value.as_ref().map(|text| dressed(text, sort));
        let (value, version) = value.unwrap_or_default();
        match record.op {
            Op::Read if random.below(4) == 0 => {
                let read = SnapshotRead {
                    key: std::mem::replace(&mut record.key, "".into()),
                    value,
                    version,
                };
                (record.op, record.value, record.reads) = (Op::Snapshot, None, Some(vec![read]));
            }
            Op::Write if value.is_none() => {
                (record.op, record.value, record.version) = (Op::Delete, None, version)
            }
            _ => (record.value, record.version) = (value, version),
        }
        if record.status == Status::Unknown {
            record.version = None;
        }
        let number = |random: &mut Random| NonZeroU8::new(random.below(1 + most) as u8);
        let claim = Claim {
            asked: "eventual".into(),
            given: ["eventual", "bounded(4us)"][random.below(2) as usize].into(),
            staleness_us: (random.below(3) > 0).then(|| random.below(20)),
            covers: number(&mut random),
            copies: number(&mut random),
            ..Claim::default()
        };
        record.receipt = (random.below(8) > 0).then_some(claim);
    }
    records
}

fn history(records: &[Record]) -> Option<History> {
    let mut builder = HistoryBuilder::new();
    for record in records {
        builder.add(record).expect("a right record");
    }
    builder.finish().ok()
}

/// The definition, one pair of operations after the other.
struct Dumb<'a> {
    history: &'a History,
    records: &'a [Record],
    judge: &'a LevelJudge<'a>,
    /// How far clocks may be off, in nanoseconds. `None` if that is not known.
    skew: Option<i64>,
}

impl Dumb<'_> {
    fn receipt(&self, operation: &Operation) -> Option<&Claim> {
        self.records[operation.record as usize].receipt.as_ref()
    }

    fn covers(&self, read: &Operation) -> u8 {
        let covers = self.receipt(read).and_then(|claim| claim.covers);
        covers.map_or(1, NonZeroU8::get)
    }

    fn copies(&self, write: &Operation) -> u8 {
        let is_known = self.records[write.record as usize].status == Status::Ok;
        let copies = self.receipt(write).and_then(|claim| claim.copies);
        copies.filter(|_| is_known).map_or(1, NonZeroU8::get)
    }

    /// A read that returned what had been written before it was over.
    fn counts(&self, read: &Operation) -> bool {
        let writer = self.history.writer_of(read);
        read.kind == Kind::Read
            && writer.map_or(read.value == Value::INITIAL, |write| read.finish >= write.start)
    }

    fn recorder(&self, operation: &Operation) -> Option<u32> {
        self.history.recorder_of[operation.client as usize]
    }

    /// Whether a read missed a write that at least `covers` replicas had stored, and that was over `bound` nanoseconds before the read began.
    fn bound(&self, read: &Operation, covers: u8, bound: i64) -> &'static str {
        let (order, one_clock) = (self.judge.order(), self.history.recorders.len() == 1);
        let is_missed = |write: &&Operation| {
            let is_certain = order.is_by_versions(read.key) && self.recorder(read) == self.recorder(write);
            let margin = match is_certain || one_clock {
                true => Some(0),
                false => self.skew.map(|skew| 2 * skew),
            };
            write.kind == Kind::Write
                && write.key == read.key
                && order.effect(read) < order.begin(write)
                && self.copies(write) >= covers
                && margin.is_some_and(|margin| {
                    write.finish < read.start && read.start - write.finish > bound + margin
                })
        };
        if !self.counts(read) {
            return "kept";
        }
        match self.history.operations.iter().find(is_missed) {
            Some(_) => "false",
            None if one_clock || self.skew.is_some() => "kept",
            None => "unknown",
        }
    }

    /// The verdict on the claim `staleness` of each record that has one.
    fn claims(&self) -> BTreeMap<u64, &'static str> {
        let mut claims = BTreeMap::new();
        for read in &self.history.operations {
            let staleness = self.receipt(read).and_then(|claim| claim.staleness_us);
            let is_phantom = self.history.keys[read.key as usize].is_phantom(read.value);
            if let Some(staleness) = staleness {
                let verdict = match read.kind == Kind::Read && !is_phantom {
                    true => self.bound(read, self.covers(read), staleness as i64 * 1_000),
                    false => "unknown",
                };
                claims.insert(read.record, verdict);
            }
        }
        claims
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
fn claims_and_bounds_are_judged_against_the_writes_that_they_cover() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    let mut saw = |what, is_so: bool| *seen.entry(what).or_default() += u64::from(is_so);
    for seed in 0..TRACES {
        let records = records(seed);
        let Some(history) = history(&records) else {
            continue;
        };
        for skew in [None, Some(0), Some(1_500)] {
            let judge = LevelJudge::new(&history, skew);
            let dumb = Dumb {
                history: &history,
                records: &records,
                judge: &judge,
                skew,
            };
            let places: Vec<usize> = (0..history.recorded()).collect();
            let by_level = judge.level(Level::Bounded(Micros(4)), &places);
            for (place, read) in history.operations.iter().enumerate() {
                let covers = dumb.covers(read);
                for bound in [0, 4_000, 7_500] {
                    let expected = dumb.bound(read, covers, bound);
                    let found = word(judge.staleness(place, bound));
                    assert_eq!(
                        found, expected,
                        "seed {seed}, operation {place}, {skew:?}: {history:?}"
                    );
                    if bound == 4_000 && dumb.counts(read) {
                        let found = word(by_level[place]);
                        assert_eq!(
                            found, expected,
                            "seed {seed}, operation {place}, {skew:?}: {history:?}"
                        );
                    }
                    saw("covered writes missed", covers > 1 && expected == "false");
                    let all = dumb.bound(read, 1, bound);
                    saw("other writes missed", expected != "false" && all == "false");
                }
            }
            let (audit, _) = Audit::of(&history, &judge);
            let expected = dumb.claims();
            let of = |wanted| expected.values().filter(|&&verdict| verdict == wanted).count() as u64;
            let found = audit.claims.get("staleness").copied().unwrap_or_default();
            assert_eq!(
                (found.broken, found.not_contradicted),
                (of("false"), of("kept")),
                "seed {seed}, {skew:?}: {history:?}"
            );
            saw("claims kept", found.not_contradicted > 0);
            let broken = audit.broken.iter().filter(|broken| broken.promise == "staleness");
            for broken in broken {
                assert_eq!(
                    expected[&broken.record], "false",
                    "seed {seed}, {skew:?}: {history:?}"
                );
            }
        }
    }
    println!("{seen:?}");
    assert!(
        seen.len() == 3 && seen.values().all(|&count| count > 1_000),
        "{seen:?}"
    );
}

#[test]
fn an_explanation_shows_a_write_that_the_receipt_covers() {
    let mut explained = 0;
    for seed in 0..TRACES / 4 {
        let records = records(seed);
        let Some(history) = history(&records) else {
            continue;
        };
        let judge = LevelJudge::new(&history, None);
        let (audit, _) = Audit::of(&history, &judge);
        let dumb = Dumb {
            history: &history,
            records: &records,
            judge: &judge,
            skew: None,
        };
        let Some(broken) = audit.broken.iter().find(|broken| broken.promise == "staleness") else {
            continue;
        };
        let explanations = explain_keys(&history, &Orders::of(&history), &audit, usize::MAX);
        let about = format!("Record {}: {}.", broken.record, broken.why);
        let is_it = |words: &str, title: &str| words == about && title == "a receipt is false (staleness)";
        let explanation = explanations
            .iter()
            .find(|explanation| is_it(&explanation.words[0], &explanation.title));
        let explanation = explanation.expect("the first false claim is explained");
        let shown = || {
            explanation
                .witness
                .operations
                .iter()
                .map(|&place| &history.operations[place])
        };
        let read = shown()
            .find(|read| read.record == broken.record)
            .expect("the read is shown");
        let covers = dumb.covers(read);
        let is_missed = |write: &Operation| {
            write.kind == Kind::Write
                && dumb.copies(write) >= covers
                && judge.order().effect(read) < judge.order().begin(write)
        };
        assert!(
            shown().any(is_missed),
            "seed {seed}: {explanation:?} of {history:?}"
        );
        let says = format!("at least {covers} replicas");
        let is_said = explanation.words.iter().any(|words| words.contains(&says));
        assert_eq!(is_said, covers > 1, "seed {seed}: {explanation:?}");
        explained += u64::from(covers > 1);
    }
    println!("{explained} explained");
    assert!(explained > 40, "{explained}");
}

/// A write of `1`, a write of `2` with `copies` in its receipt, and a read of `1` with `covers` in its receipt. The read begins 5 us after the write of `2` was
/// over, and its receipt claims a staleness of 2 us.
fn stale_read(copies: Option<u8>, covers: Option<u8>) -> [Record; 3] {
    let record = |client: &str, op, value: &str, version: &str, start_us: i64, claim| Record {
        client: client.into(),
        site: "a".into(),
        op,
        key: "k".into(),
        value: Some(value.into()),
        start_ns: start_us * 1_000,
        finish_ns: Some((start_us + 1) * 1_000),
        status: Status::Ok,
        version: Some(version.into()),
        level: None,
        receipt: Some(Claim {
            asked: "bounded(2us)".into(),
            given: "bounded(2us)".into(),
            ..claim
        }),
        recorder: None,
        pipelined: false,
        existed: false,
        reads: None,
    };
    let stored = |copies: Option<u8>| Claim {
        copies: copies.and_then(NonZeroU8::new),
        ..Claim::default()
    };
    let claimed = Claim {
        staleness_us: Some(2),
        covers: covers.and_then(NonZeroU8::new),
        // How many replicas answered a read says nothing about writes.
        copies: NonZeroU8::new(3),
        ..Claim::default()
    };
    [
        record("w", Op::Write, "1", "1.0@a", 0, stored(Some(3))),
        record("w", Op::Write, "2", "2.0@a", 10, stored(copies)),
        record("r", Op::Read, "1", "1.0@a", 16, claimed),
    ]
}

/// Whether the claim of the read and its bound are false.
fn is_false(records: &[Record]) -> bool {
    let history = history(records).expect("a right trace");
    let judge = LevelJudge::new(&history, None);
    let (audit, _) = Audit::of(&history, &judge);
    let (claim, bound) = (
        audit.claims["staleness"].broken,
        audit.levels["bounded(2us)"].broken,
    );
    assert_eq!(claim, bound, "{audit:?}");
    claim > 0
}

#[test]
fn a_read_may_miss_a_write_that_its_receipt_does_not_cover() {
    assert!(!is_false(&stale_read(Some(1), Some(2))));
    assert!(!is_false(&stale_read(Some(2), Some(3))));
    // A write whose receipt does not say how many replicas had stored it.
    assert!(!is_false(&stale_read(None, Some(2))));
    // One that has no receipt.
    let mut records = stale_read(Some(3), Some(2));
    records[1].receipt = None;
    assert!(!is_false(&records));
    // One that was never answered.
    let mut records = stale_read(Some(3), Some(2));
    (records[1].status, records[1].finish_ns) = (Status::Unknown, None);
    records[1].client = "gone".into();
    assert!(!is_false(&records));
}

#[test]
fn a_read_may_not_miss_a_write_that_its_receipt_covers() {
    assert!(is_false(&stale_read(Some(2), Some(2))));
    assert!(is_false(&stale_read(Some(3), Some(2))));
    // Without a number, and with 1, it covers every write.
    for covers in [None, Some(1)] {
        for copies in [None, Some(1), Some(2)] {
            assert!(is_false(&stale_read(copies, covers)), "{copies:?} {covers:?}");
        }
    }
}

#[test]
fn each_receipt_is_judged_by_what_it_covers() {
    let mut records = stale_read(Some(2), Some(2)).to_vec();
    let mut other = records[2].clone();
    other.client = "s".into();
    other.receipt.as_mut().expect("it has one").covers = NonZeroU8::new(3);
    records.push(other);
    let history = history(&records).expect("a right trace");
    let (audit, _) = Audit::of(&history, &LevelJudge::new(&history, None));
    let staleness = audit.claims["staleness"];
    assert_eq!((staleness.broken, staleness.not_contradicted), (1, 1));
    let broken: Vec<u64> = audit.broken.iter().map(|broken| broken.record).collect();
    assert_eq!(broken, [2, 2]);
}

#[test]
fn of_two_deletes_that_may_have_written_one_tombstone_neither_says_how_many_replicas_had_it() {
    let deletes = |second_site: &str| {
        let mut records = stale_read(Some(3), Some(2)).to_vec();
        (records[1].op, records[1].value) = (Op::Delete, None);
        let mut other = records[1].clone();
        (other.client, other.site) = ("d".into(), second_site.into());
        records.push(other);
        records
    };
    // Site a has stamped it: the other delete found no value.
    assert!(is_false(&deletes("b")));
    assert!(!is_false(&deletes("a")));
}
