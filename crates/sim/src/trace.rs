//! What clients saw, as a trace: the same records that the live benchmark writes, for the same checker.
use crate::{BEGINNING, Judge, OperationId, Record, World, number, twin};
use std::collections::BTreeSet;
use std::num::NonZeroU8;
use turnbuckle_core::{
    Answer, Key, Micros, Operation, Protocol, Receipt, Route, Session, SiteId, Topology, VersionId, Wanted,
};
use turnbuckle_workload as trace;
use turnbuckle_workload::{Claim, Octets, Op, SnapshotRead, Status, label};

impl<S: Session> World<S> {
    /// The trace of all operations that were not forgotten, in the order in which they were invoked. Times count from [`BEGINNING`]. A
    /// delete that found nothing is a read of nothing in the trace. A put whose condition did not hold is a read of what is there. If a put
    /// was told the value before it, that read is left out.
    ///
    /// A read of nothing that has seen a version that expired is a read of that version's value, also in a snapshot. It is left out if it is
    /// not known which version that was, or what was written with it.
    ///
    /// A read of siblings is a read of the newest of them. Left out are lists and counts of keys, which are about no single key, and reads of several keys at a level that does not make one
    /// snapshot of them. Also left out are puts whose condition did not hold if their client was not told the value that is there.
    ///
    /// Questions and answers of one moment are a nanosecond apart, in their order. If a read of nothing can have seen only one delete, the
    /// trace has that delete's version although the receipt does not name it. It also has the version of each value of a snapshot.
    pub fn trace(&self) -> impl Iterator<Item = trace::Record> {
        let topology = self.topology();
        self.history().filter_map(move |(id, record)| {
            let site = self.placement.site_of(record.node);
            if record.replaced_nothing() {
                return None;
            }
            let mut record = record.to_trace(id, topology, site, &self.judge)?;
            // There may have been a value beside a newer delete.
            record.existed &= !S::Protocol::DESCRIPTOR.keeps_siblings;
            Some(record)
        })
    }

    /// What power losses may have taken, with the names that the trace uses.
    pub(crate) fn lost(&self) -> Lost {
        let mut lost = Lost::default();
        for (key, version, is_delete) in self.judge.lost_versions() {
            let key = Octets(key.0.clone());
            match is_delete {
                true => lost.deleted.insert(key.clone()),
                false => lost.put.insert(key.clone()),
            };
            lost.versions
                .insert((key, version_name(version.base, self.topology())));
        }
        lost
    }
}

/// What power losses may have taken, with the names that the trace uses.
#[derive(Debug, Clone, Default)]
pub struct Lost {
    versions: BTreeSet<(Octets, String)>,
    /// The keys of lost deletes.
    deleted: BTreeSet<Octets>,
    /// The keys of lost values.
    put: BTreeSet<Octets>,
}

impl Lost {
    /// The record without what was lost; `None` if nothing is left. If a version is left out with all reads of it, a correct trace stays
    /// correct. A read of nothing that names no version may be one of a lost delete. What a delete took away may be a value that is left
    /// out.
    pub(crate) fn taken_from(&self, mut record: trace::Record) -> Option<trace::Record> {
        let is_lost = |key: &Octets, value: &Option<Octets>, version: &Option<String>| match version {
            Some(version) => self.versions.contains(&(key.clone(), version.clone())),
            None => value.is_none() && self.deleted.contains(key),
        };
        let is_write = matches!(record.op, Op::Write | Op::Delete);
        let is_vague = is_write && record.version.is_none();
        if !is_vague && is_lost(&record.key, &record.value, &record.version) {
            return None;
        }
        record.existed &= !self.put.contains(&record.key);
        if let Some(reads) = &mut record.reads {
            reads.retain(|read| !is_lost(&read.key, &read.value, &read.version));
        }
        Some(record)
    }

    /// Whether nothing may have been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }
}

fn version_name(version: VersionId, topology: &Topology) -> String {
    format!("{}@{}", version.at, topology.replica_name(version.replica))
}

impl Record {
    fn to_trace(
        &self,
        id: OperationId,
        topology: &Topology,
        site: SiteId,
        judge: &Judge,
    ) -> Option<trace::Record> {
        let status = match self.answer() {
            None => Status::Unknown,
            Some(Answer::Failed(failure)) if failure.is_definite() => Status::Fail,
            Some(Answer::Failed(_)) => Status::Unknown,
            Some(_) => Status::Ok,
        };
        // A change of an expiry is in no trace. A version that it wrote has there the name of the one that wrote the value.
        let is_left_out = |key: &Key| {
            judge.is_computed(key)
                || number::is_one(key)
                || twin::is_one(key)
                || self.operation.retimes().is_some()
        };
        if self.key().is_some_and(is_left_out) {
            return None;
        }
        let (op, key) = match &self.operation {
            Operation::Get { key, .. } | Operation::Siblings { key, .. } => (Op::Read, Some(key)),
            Operation::Put { key, value, .. } => {
                let op = match (value, self.answer()) {
                    // These wrote nothing: they only saw what is there.
                    (_, Some(Answer::Unmet(_))) => Op::Read,
                    (None, Some(Answer::Written { existed: false } | Answer::Replaced(None))) => Op::Read,
                    (Some(_), _) => Op::Write,
                    (None, _) => Op::Delete,
                };
                (op, Some(key))
            }
            Operation::ReadMany { .. } => (Op::Snapshot, None),
            Operation::Transact { .. }
            | Operation::Watch { .. }
            | Operation::Scan { .. }
            | Operation::Count
            | Operation::Wait { .. }
            | Operation::Publish { .. }
            | Operation::First(_) => {
                return None;
            }
        };
        let returned = self.returned.as_ref();
        let receipt = returned.and_then(|(_, (_, receipt))| receipt.as_deref());
        let is_snapshot = |receipt: &Receipt| receipt.given.promise().makes_snapshots();
        if op == Op::Snapshot && !receipt.is_some_and(is_snapshot) {
            return None;
        }
        let value = match (&self.operation, self.answer()) {
            (Operation::Put { key, .. }, Some(Answer::Unmet(unmet))) => {
                let version = receipt.and_then(Receipt::rank);
                let known = || judge.value_of(key, version?).cloned();
                let value = unmet.value.clone().or_else(known);
                if unmet.has_value && value.is_none() {
                    return None;
                }
                value.as_ref().map(octets)
            }
            (Operation::Put { value, .. }, _) => value.as_ref().map(octets),
            (_, Some(Answer::Value(value))) => value.as_ref().map(octets),
            (_, Some(Answer::Siblings(siblings))) => {
                let newest = siblings.newest().and_then(|(_, value)| value.as_ref());
                newest.map(octets)
            }
            _ => None,
        };
        let reads = match (&self.operation, self.answer()) {
            (Operation::ReadMany { keys, .. }, Some(Answer::Values(values))) => {
                let reads = (0..).zip(keys.iter().zip(values));
                let read = |(place, (key, value)): (u32, (&Key, &Option<bytes::Bytes>))| {
                    if judge.is_computed(key) || number::is_one(key) || twin::is_one(key) {
                        return None;
                    }
                    let version = match (value, returned) {
                        (Some(value), _) => judge.version_of(key, value),
                        (None, Some(&(at, _))) => judge.delete_seen(id, place, key, at),
                        (None, None) => None,
                    };
                    let value = match value {
                        Some(value) => Some(value),
                        None => judge.seen_behind_nothing(key, version)?,
                    };
                    Some(SnapshotRead {
                        key: Octets(key.0.clone()),
                        value: value.map(octets),
                        version: version.map(|version| version_name(version.base, topology)),
                    })
                };
                Some(reads.filter_map(read).collect())
            }
            _ => None,
        };
        let finished = returned.filter(|_| status != Status::Unknown);
        let start_ns = nanos(self.invoked, self.places.0);
        let named = receipt.and_then(Receipt::rank);
        let found = || judge.delete_seen(id, 0, key?, returned?.0);
        let is_nothing = value.is_none() && op == Op::Read;
        let version = named.or_else(|| found().filter(|_| is_nothing));
        // An expired version is what was read: it hides older ones.
        let value = match key.filter(|_| is_nothing && status == Status::Ok) {
            Some(key) => judge.seen_behind_nothing(key, version)?.map(octets),
            None => value,
        };
        Some(trace::Record {
            client: match self.session {
                0 => format!("c{}", self.client),
                session => format!("c{}.{session}", self.client),
            },
            site: topology.site_name(site).to_string(),
            op,
            key: key.map_or_else(|| Octets::from(""), |key| Octets(key.0.clone())),
            value,
            start_ns,
            finish_ns: finished.map(|&(at, _)| nanos(at, self.places.1).max(start_ns)),
            status,
            version: version.map(|version| version_name(version.base, topology)),
            level: self.wanted.as_ref().map(Wanted::to_string),
            receipt: receipt.map(|receipt| claim(receipt, topology)),
            recorder: None,
            pipelined: self.pipelined,
            existed: op == Op::Delete
                && matches!(
                    self.answer(),
                    Some(Answer::Written { existed: true } | Answer::Replaced(Some(_)))
                ),
            reads,
        })
    }
}

/// A value by its label, if it has one.
fn octets(value: &bytes::Bytes) -> Octets {
    match label(value) {
        Some(label) => Octets::from(label),
        None => Octets(value.clone()),
    }
}

/// A moment is a microsecond: it has room for a thousand places.
fn nanos(time: Micros, place: u32) -> i64 {
    let moment = i64::try_from(time.since(BEGINNING).0 * 1_000).unwrap_or(i64::MAX);
    moment.saturating_add(i64::from(place.min(999)))
}

fn claim(receipt: &Receipt, topology: &Topology) -> Claim {
    let site = topology.site_name(receipt.server.site);
    // One is what a claim without a number means.
    let beyond_one =
        |count: usize| NonZeroU8::new(u8::try_from(count).unwrap_or(u8::MAX)).filter(|count| count.get() > 1);
    Claim {
        asked: receipt.asked.to_string(),
        given: receipt.given.to_string(),
        site: Some(site.to_string()),
        server: Some(format!(
            "{site}/{}/{}",
            receipt.server.partition, receipt.server.member
        )),
        route: Some(
            match receipt.route {
                Route::Local => "local",
                Route::Forwarded => "forwarded",
            }
            .into(),
        ),
        waited_us: receipt.waited.0,
        staleness_us: receipt.staleness.map(|bound| bound.0),
        covers: beyond_one(receipt.covers()),
        copies: beyond_one(receipt.copies()),
        clock_bound_us: receipt.clock_bound.0,
        siblings: receipt.siblings,
        as_of: receipt.cut().map(|cut| cut.to_string()),
        until_us: receipt.until.map(|until| until.0),
        // The record names the version that wrote the value.
        base: None,
    }
}
