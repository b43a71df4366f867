//! What must be true of twins (`twin.rs`): who reads them as of one moment finds them alike.
//!
//! A power loss, or a lost directory, may take a part of a transaction: peers send back what they hold, and a stream may have ended in the middle of a transaction. So once anything was lost, twins that
//! differ are not judged, and counted.
use super::{Excuse, Judge, Rule};
use crate::twin::{self, NAMES};
use crate::{OperationId, Record};
use bytes::Bytes;
use std::collections::BTreeMap;
use turnbuckle_core::{Answer, Key, Operation, Step};

impl Judge {
    /// Takes note of an operation on twins. Returns whether it is one.
    pub(super) fn asked_of_twins(&mut self, operation: &Operation) -> bool {
        let Operation::Transact { transaction, .. } = operation else {
            return false;
        };
        let is_one = transaction.keys().any(twin::is_one);
        if is_one {
            transaction.keys().for_each(|key| self.computes(key));
        }
        is_one
    }

    /// Judges the answer to an operation on twins. Returns whether it is one.
    pub(super) fn answered_of_twins(&mut self, id: OperationId, record: &Record) -> bool {
        let Some((_, (answer, _))) = &record.returned else {
            return false;
        };
        match (&record.operation, answer) {
            (Operation::Transact { transaction, .. }, answer) if transaction.keys().any(twin::is_one) => {
                if let Answer::Transacted(Some(answers)) = answer {
                    // What it reads before it writes is not alike.
                    let steps = transaction.steps.iter().zip(answers);
                    let reads = steps.filter_map(|(step, answer)| match (step, answer) {
                        (Step::Get(key), Answer::Value(value)) => Some((key, value)),
                        _ => None,
                    });
                    self.check_twins(id, reads.collect());
                }
                true
            }
            (Operation::ReadMany { keys, .. }, answer) if keys.iter().any(twin::is_one) => {
                let is_snapshot = self.promise_of(&record.operation).makes_snapshots();
                if let Answer::Values(values) = answer
                    && is_snapshot
                {
                    self.check_twins(id, keys.iter().zip(values).collect());
                }
                true
            }
            (Operation::Get { key, .. }, _) => twin::is_one(key),
            _ => false,
        }
    }

    fn check_twins(&mut self, id: OperationId, read: BTreeMap<&Key, &Option<Bytes>>) {
        let of_name = |name: &str| read.iter().find(|(key, _)| key.0.ends_with(name.as_bytes()));
        for [one, other] in NAMES {
            let (Some((key, one)), Some((twin, other))) = (of_name(one), of_name(other)) else {
                continue;
            };
            let differ = one != other;
            let excuse = Some(Excuse::PowerLoss).filter(|_| differ && !self.losses.is_empty());
            self.answers.count(excuse);
            if differ && excuse.is_none() {
                let words = format!(
                    "operation {}: a transaction is seen in part: {key} is {one:?}, and {twin} is {other:?}",
                    id.0
                );
                self.report(Rule::Transactions, words);
            }
        }
    }
}
