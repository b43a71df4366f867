//! What clients saw, as a trace: the same records that the live benchmark writes, for the same checker.
use crate::{BEGINNING, Record, World};
use turnbuckle_core::{Answer, Key, Micros, Operation, Receipt, Route, Session, Topology, VersionId};
use turnbuckle_workload as trace;
use turnbuckle_workload::{Claim, Octets, Op, SnapshotRead, Status, label};

impl<S: Session> World<S> {
    /// The trace of all operations that were not forgotten, in the order in which they were invoked. Times count from
    /// [`BEGINNING`]. A delete that found nothing stands there as a read of nothing.
    ///
    /// Left out are lists and counts of keys, which are about no key, and reads of several keys at a level that does not
    /// make one snapshot of them.
    pub fn trace(&self) -> impl Iterator<Item = trace::Record> {
        let topology = self.topology();
        self.history()
            .filter_map(|record| record.to_trace(topology, self.placement.site_of(record.node)))
    }
}

impl Record {
    fn to_trace(&self, topology: &Topology, site: turnbuckle_core::SiteId) -> Option<trace::Record> {
        let status = match self.answer() {
            None => Status::Unknown,
            Some(Answer::Failed(failure)) if failure.is_definite() => Status::Fail,
            Some(Answer::Failed(_)) => Status::Unknown,
            Some(_) => Status::Ok,
        };
        let (op, key, level) = match &self.operation {
            Operation::Get { key, level } => (Op::Read, Some(key), *level),
            Operation::Put { key, value, level } => {
                let op = match (value, self.answer()) {
                    (Some(_), _) => Op::Write,
                    // It wrote nothing: all it did was to see that nothing is there.
                    (None, Some(Answer::Written { existed: false })) => Op::Read,
                    (None, _) => Op::Delete,
                };
                (op, Some(key), *level)
            }
            Operation::ReadMany { level, .. } => (Op::Snapshot, None, *level),
            Operation::Scan { .. } | Operation::Count => return None,
        };
        let returned = self.returned.as_ref();
        let receipt = returned.and_then(|(_, (_, receipt))| receipt.as_ref());
        let is_snapshot = |receipt: &Receipt| receipt.given > turnbuckle_core::Level::PerKeyCausal;
        if op == Op::Snapshot && !receipt.is_some_and(is_snapshot) {
            return None;
        }
        let value = match (&self.operation, self.answer()) {
            (Operation::Put { value, .. }, _) => value.as_ref().map(octets),
            (_, Some(Answer::Value(value))) => value.as_ref().map(octets),
            _ => None,
        };
        let reads = match (&self.operation, self.answer()) {
            (Operation::ReadMany { keys, .. }, Some(Answer::Values(values))) => {
                Some(keys.iter().zip(values).map(snapshot_read).collect())
            }
            _ => None,
        };
        let name = |version: VersionId| format!("{}@{}", version.at, topology.site_name(version.site));
        let finished = returned.filter(|_| status != Status::Unknown);
        Some(trace::Record {
            client: match self.session {
                0 => format!("c{}", self.client),
                session => format!("c{}.{session}", self.client),
            },
            site: topology.site_name(site).to_string(),
            op,
            key: key.map_or_else(|| Octets::from(""), |key| Octets(key.0.clone())),
            value,
            start_ns: nanos(self.invoked),
            finish_ns: finished.map(|&(at, _)| nanos(at)),
            status,
            version: receipt.and_then(|receipt| receipt.version).map(name),
            level: level.map(|level| level.to_string()),
            receipt: receipt.map(|receipt| claim(receipt, topology)),
            recorder: None,
            pipelined: false,
            reads,
        })
    }
}

fn snapshot_read((key, value): (&Key, &Option<bytes::Bytes>)) -> SnapshotRead {
    SnapshotRead {
        key: Octets(key.0.clone()),
        value: value.as_ref().map(octets),
        version: None,
    }
}

/// A value by its label, if it has one.
fn octets(value: &bytes::Bytes) -> Octets {
    match label(value) {
        Some(label) => Octets::from(label),
        None => Octets(value.clone()),
    }
}

fn nanos(time: Micros) -> i64 {
    i64::try_from(time.since(BEGINNING).0 * 1_000).unwrap_or(i64::MAX)
}

fn claim(receipt: &Receipt, topology: &Topology) -> Claim {
    let site = topology.site_name(receipt.server.site);
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
        clock_bound_us: receipt.clock_bound.0,
        siblings: receipt.siblings,
    }
}
