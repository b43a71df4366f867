//! The trace of a round, compared with what its answers promised: `turnbuckle-check` as a library.
//!
//! Levels, receipts and consistency must hold. Also, no value may be read that was never written. In a causal keyspace, no session
//! guarantee may be broken and no read may break causality.
//!
//! What is excused is removed before the trace is judged and written, so that `turnbuckle check` comes to the same result:
//!
//! - claims of freshness that were made while some clock was further off than its node believes;
//! - keys that were written at a node whose data directory was then taken away, at a time when that write could be lost.
use crate::{
    cluster::{Keyspace, node_of_server},
    notes::{Loss, WrongClock},
};
use bytes::Bytes;
use serde::Serialize;
use std::{
    collections::BTreeSet,
    fs::File,
    io,
    path::{Path, PathBuf},
};
use turnbuckle_check::{Findings, History, HistoryBuilder, Orders, Report, levels::LevelJudge};
use turnbuckle_workload::{Packing, Record, Status, TraceWriter};

/// The result of a trace.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Shows {
    /// The number of operations that were judged.
    pub operations: u64,
    /// The number of receipts that claim how fresh their answer is, and were judged.
    pub claims: u64,
    /// The number of claims that a wrong clock excuses.
    pub claims_excused: u64,
    /// The number of keys that are left out because a lost directory may have held what they show.
    pub keys_excused: u64,
    /// The number of keys of which a trace cannot tell what their reads have seen: deleted keys whose delete is not remembered.
    pub keys_not_auditable: u64,
    /// What is broken, as text.
    pub broken: Vec<String>,
}

/// Removes what is excused. Returns how much that was.
pub fn excuse(records: &mut Vec<Record>, losses: &[Loss], clocks: &[WrongClock]) -> Shows {
    let mut shows = Shows::default();
    let lost: BTreeSet<Bytes> = records
        .iter()
        .filter(|record| may_be_lost(record, losses))
        .map(|record| record.key.0.clone())
        .collect();
    shows.keys_excused = lost.len() as u64;
    records.retain_mut(|record| {
        if let Some(reads) = &mut record.reads {
            reads.retain(|read| !lost.contains(&read.key.0));
            return !reads.is_empty();
        }
        !lost.contains(&record.key.0)
    });
    for record in records {
        let finish_ns = record.finish_ns.unwrap_or(i64::MAX);
        let meets = |clock: &WrongClock| record.start_ns <= clock.to_ns && finish_ns >= clock.from_ns;
        let Some(claim) = record
            .receipt
            .as_mut()
            .filter(|claim| claim.staleness_us.is_some())
        else {
            continue;
        };
        match clocks.iter().any(meets) {
            true => {
                claim.staleness_us = None;
                shows.claims_excused += 1;
            }
            false => shows.claims += 1,
        }
    }
    shows
}

fn may_be_lost(record: &Record, losses: &[Loss]) -> bool {
    if !crate::is_write(record) || record.status == Status::Fail {
        return false;
    }
    let server = record.receipt.as_ref().and_then(|claim| claim.server.as_deref());
    let node = server.and_then(node_of_server);
    let finish_ns = record.finish_ns.unwrap_or(i64::MAX);
    losses.iter().any(|loss| {
        // If an operation was never answered, it is unknown which node has it.
        let here = node.is_none_or(|node| node == loss.node);
        here && finish_ns >= loss.from_ns && record.start_ns <= loss.to_ns
    })
}

/// Judges a trace from which everything excused was removed.
pub fn judge(records: &[Record], keyspace: &Keyspace, shows: &mut Shows) {
    let history = match history(records) {
        Ok(history) => history,
        Err(why) => {
            shows.broken.push(format!("the trace cannot be judged: {why}"));
            return;
        }
    };
    let orders = Orders::of(&history);
    let mut judge = LevelJudge::new(&history, None);
    orders.teach(&history, &mut judge);
    let report = Report::judged(&history, &[], &judge, &orders);
    shows.operations = report.counted_ops;
    shows.keys_not_auditable = report.not_auditable_keys.len() as u64;
    let mut broken = |count: u64, what: &str| {
        if count > 0 {
            shows.broken.push(format!("{count} {what}"));
        }
    };
    for (claim, verdicts) in &report.audit.claims {
        broken(verdicts.broken, &format!("receipts are false: {claim}"));
    }
    let Findings {
        mixed_versions,
        torn_snapshots,
        failed_writes_seen,
        ..
    } = report.findings;
    broken(mixed_versions, "versions and values that are not one to one");
    broken(torn_snapshots, "torn snapshots");
    broken(
        failed_writes_seen,
        "reads of writes that were reported as not done",
    );
    broken(report.phantom_reads, "reads of values that no client wrote");
    broken(
        report.future_reads,
        "reads of values that were written only later",
    );
    if keyspace.is_causal() {
        let sessions = report.session_violations;
        broken(sessions.ryw, "reads that do not show what their session wrote");
        broken(sessions.mr, "reads older than what their session had read");
        broken(sessions.mw, "reads that break monotonic writes");
        broken(sessions.wfr, "reads that break writes follow reads");
        broken(
            report.causal_violations.unwrap_or(0),
            "reads that break causality",
        );
    }
    if let Some(first) = report.audit.broken.first() {
        let record = &records[first.record as usize];
        shows.broken.push(format!(
            "the first broken promise is {} of line {}, by {} on {:?}: {}",
            first.promise,
            first.record + 1,
            record.client,
            record.key,
            first.why
        ));
    }
}

fn history(records: &[Record]) -> Result<History, String> {
    let mut builder = HistoryBuilder::new();
    for record in records {
        builder.add(record).map_err(|error| error.to_string())?;
    }
    builder.finish().map_err(|error| error.to_string())
}

/// Writes a trace, for `turnbuckle check`. It is packed if nothing is wrong with it.
///
/// # Errors
/// If it cannot be written.
pub fn write(
    records: &[Record],
    directory: &Path,
    round: u32,
    keyspace: &Keyspace,
    is_fine: bool,
) -> io::Result<PathBuf> {
    let ending = if is_fine { "jsonl.zst" } else { "jsonl" };
    let path = directory.join(format!("round-{round}-{}.{ending}", keyspace.name));
    let mut writer = TraceWriter::new(File::create(&path)?, Packing::of(&path))?;
    for record in records {
        writer.write(record)?;
    }
    writer.finish()?.sync_data()?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle_protocols::KnownProtocol;
    use turnbuckle_workload::{Claim, Octets, Op};

    const MS: i64 = 1_000_000;

    /// One operation on `x` at site a, which takes a millisecond.
    fn record(client: &str, op: Op, value: Option<&str>, version: &str, start_ms: i64) -> Record {
        Record {
            client: client.into(),
            site: "a".into(),
            op,
            key: Octets::from("x"),
            value: value.map(Octets::from),
            start_ns: start_ms * MS,
            finish_ns: Some((start_ms + 1) * MS),
            status: Status::Ok,
            version: Some(version.into()),
            level: None,
            receipt: Some(Claim {
                asked: "eventual".into(),
                given: "eventual".into(),
                server: Some("a/1/0".into()),
                staleness_us: Some(20_000),
                ..Claim::default()
            }),
            recorder: None,
            pipelined: false,
            existed: false,
            reads: None,
        }
    }

    /// A read claims to be no older than 20 ms, but misses what was written 98 ms before.
    fn stale() -> Vec<Record> {
        vec![
            record("c1", Op::Write, Some("old"), "1.0@a", 0),
            record("c1", Op::Write, Some("new"), "2.0@a", 1_000),
            record("c2", Op::Read, Some("old"), "1.0@a", 1_099),
        ]
    }

    fn judged(
        mut records: Vec<Record>,
        losses: &[Loss],
        clocks: &[WrongClock],
        protocol: KnownProtocol,
    ) -> Shows {
        let mut shows = excuse(&mut records, losses, clocks);
        judge(&records, &Keyspace::new(protocol, "fsync"), &mut shows);
        shows
    }

    #[test]
    fn a_false_receipt_is_broken_unless_a_clock_was_wrong() {
        let shows = judged(stale(), &[], &[], KnownProtocol::Eventual);
        assert!(
            shows.broken[0].contains("receipts are false: staleness"),
            "{shows:?}"
        );
        let clock = |from_ms, to_ms| WrongClock {
            from_ns: from_ms * MS,
            to_ns: to_ms * MS,
        };
        let during = judged(stale(), &[], &[clock(1_050, 1_200)], KnownProtocol::Eventual);
        assert_eq!((during.broken.len(), during.claims_excused), (0, 1));
        let before = judged(stale(), &[], &[clock(0, 900)], KnownProtocol::Eventual);
        assert_eq!((before.broken.is_empty(), before.claims_excused), (false, 1));
    }

    #[test]
    fn keys_that_a_lost_directory_may_have_held_are_left_out() {
        let loss = |node| Loss {
            node,
            from_ns: 990 * MS,
            to_ns: 1_010 * MS,
        };
        // Partition 1 of site a is on its second node.
        let shows = judged(stale(), &[loss(1)], &[], KnownProtocol::Eventual);
        assert_eq!((shows.broken.len(), shows.keys_excused), (0, 1));
        let shows = judged(stale(), &[loss(0)], &[], KnownProtocol::Eventual);
        assert_eq!((shows.broken.is_empty(), shows.keys_excused), (false, 0));
    }

    #[test]
    fn sessions_are_judged_where_they_are_promised() {
        let mut records = stale();
        records[2].client = "c1".into();
        records.iter_mut().for_each(|record| record.receipt = None);
        let found = |protocol| judged(records.clone(), &[], &[], protocol).broken;
        assert_eq!(found(KnownProtocol::Eventual), Vec::<String>::new());
        let broken = found(KnownProtocol::CausalSpartanX);
        assert!(
            broken
                .iter()
                .any(|what| what.contains("what their session wrote")),
            "{broken:?}"
        );
        assert!(
            broken.iter().any(|what| what.contains("break causality")),
            "{broken:?}"
        );
    }

    #[test]
    fn what_nobody_wrote_is_broken() {
        let mut records = stale();
        records[2].value = Some("damaged".into());
        records[2].version = Some("1.5@a".into());
        let broken = judged(records, &[], &[], KnownProtocol::Eventual).broken;
        assert!(
            broken.iter().any(|what| what.contains("that no client wrote")),
            "{broken:?}"
        );
    }
}
