//! What clients do with twins (`twin.rs`).
use super::{Clients, Mixed};
use crate::twin::{GROUPS, NAMES, key};
use bytes::Bytes;
use turnbuckle_core::{Compute, Expiry, Micros, Operation, PutOptions, Retimes, Step, Transaction};

impl Clients {
    /// An operation on the twins of the client's keyspace.
    pub(super) fn on_twins(&mut self, mixed: Mixed, client: usize) -> Operation {
        let keyspace = self.all[client].keyspace;
        let group = self.random.below(GROUPS);
        let all = NAMES.as_flattened().iter().map(|name| key(keyspace, group, name));
        let [written, added] = NAMES.map(|names| names.map(|name| key(keyspace, group, name)));
        let steps = match self.random.below(10) {
            0..=2 => {
                let keys = all.collect();
                let level = None;
                return Operation::ReadMany { keys, level }.wanting(self.read_level(mixed));
            }
            3 => all.map(Step::Get).collect(),
            _ => {
                self.written += 1;
                let value = (!self.random.percent(15)).then(|| Bytes::from(format!("w{}", self.written)));
                let more = PutOptions {
                    computes: Some(Compute::Add(self.random.of(1..=9) as i64)),
                    ..PutOptions::default()
                };
                let write = written.map(|key| Step::Put(key, value.clone(), None));
                let add = added
                    .clone()
                    .map(|key| Step::Put(key, None, Some(Box::new(more.clone()))));
                let mut steps: Vec<Step> = write.into_iter().chain(add).collect();
                if self.random.percent(20) {
                    let late = PutOptions {
                        expiry: Some(Expiry::After(Micros::from_millis(3_600_000))),
                        retimes: Some(Retimes::Any),
                        ..PutOptions::default()
                    };
                    steps.extend(added.map(|key| Step::Put(key, None, Some(Box::new(late.clone())))));
                }
                let first = self.random.below(steps.len() as u64) as usize;
                steps.swap(0, first);
                if self.random.percent(30) {
                    steps.extend(all.map(Step::Get));
                }
                steps
            }
        };
        let transaction = Box::new(Transaction {
            conditions: Vec::new(),
            steps,
        });
        let level = self.load.write;
        Operation::Transact { transaction, level }
    }
}
