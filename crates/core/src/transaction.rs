//! Transactions: operations on keys of one partition that take effect at one moment, or not at all.
//!
//! The conditions are tested, and the steps are carried out, at one place in the order of the partition's writes. No other operation comes between
//! two steps. If a condition does not hold, no step is carried out. `WATCH` gives a transaction its conditions, and `MULTI` its steps.
use crate::frame::{put_record, take_record};
use crate::put_options::{ConditionRecord, PutOptionsRecord};
use crate::{BadFrame, Condition, Failure, Hlc, Key, PutOptions, ReplicaSet, Topology, Wire};
use bytes::{Bytes, BytesMut};

/// Several operations on keys of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transaction {
    /// What must be true of keys when the transaction takes effect.
    pub conditions: Vec<(Key, Condition)>,
    /// What it does, in this order. Each step sees the effects of those before it.
    pub steps: Vec<Step>,
}

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Reads a key.
    Get(Key),
    /// Asks when the value of a key expires.
    Lifetime(Key),
    /// Writes or deletes a key: its new value, or `None` to delete it; and the put's options. If a condition of the put does not hold, or its value cannot
    /// be computed, this step has no effect, and the others have theirs.
    Put(Key, Option<Bytes>, Option<Box<PutOptions>>),
}

impl Step {
    /// The key.
    pub fn key(&self) -> &Key {
        match self {
            Step::Get(key) | Step::Lifetime(key) | Step::Put(key, ..) => key,
        }
    }
}

impl Transaction {
    /// The most conditions and steps together.
    pub const MAX: usize = 1_024;

    /// The keys that it reads, tests or writes. A key may come several times.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let tested = self.conditions.iter().map(|(key, _)| key);
        tested.chain(self.steps.iter().map(Step::key))
    }

    /// One of its keys; `None` if it has none.
    ///
    /// # Errors
    /// If it has too many keys, or if they are not all in one partition.
    pub fn key(&self, topology: &Topology) -> Result<Option<&Key>, Failure> {
        let partition_of = |key: &Key| topology.partition_of_slot(key.slot());
        let Some(key) = self.keys().next() else {
            return Ok(None);
        };
        let parts = self.keys().count();
        if parts > Transaction::MAX {
            let why = format!(
                "a transaction with {parts} conditions and steps; at most {} are possible",
                Transaction::MAX
            );
            return Err(Failure::Unsupported(why));
        }
        match self.keys().find(|other| partition_of(other) != partition_of(key)) {
            None => Ok(Some(key)),
            Some(other) => Err(Failure::Unsupported(format!(
                "the keys of a transaction must be in one partition, and {key} is in another one than {other}; keys with the same \
                 tag, such as {{cart}}:items and {{cart}}:total, are in one"
            ))),
        }
    }

    fn options(&self) -> impl Iterator<Item = &PutOptions> {
        self.steps.iter().filter_map(|step| match step {
            Step::Get(_) | Step::Lifetime(_) => None,
            Step::Put(_, _, options) => options.as_deref(),
        })
    }
}

impl Wire for Transaction {
    fn encode(&self, out: &mut BytesMut) {
        put_record(&TransactionRecord::from(self), out);
    }

    fn decode(frame: Bytes) -> Result<Transaction, BadFrame> {
        const WHAT: &str = "a transaction";
        let record: TransactionRecord = take_record(frame, WHAT)?;
        record.transaction().map_err(|found| BadFrame::new(WHAT, found))
    }

    fn newest(&self) -> Hlc {
        self.options().map(PutOptions::newest).max().unwrap_or(Hlc::ZERO)
    }

    fn replicas(&self) -> ReplicaSet {
        let sets = self.options().map(PutOptions::replicas);
        sets.fold(ReplicaSet::default(), ReplicaSet::union)
    }

    fn heap_bytes(&self) -> usize {
        self.conditions.len() * size_of::<(Key, Condition)>() + self.steps.len() * size_of::<Step>()
    }
}

/// The encoding of a [`Transaction`].
#[derive(Clone, PartialEq, prost::Message)]
struct TransactionRecord {
    #[prost(message, repeated, tag = "1")]
    conditions: Vec<ConditionOnKey>,
    #[prost(message, repeated, tag = "2")]
    steps: Vec<StepRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ConditionOnKey {
    #[prost(bytes = "bytes", tag = "4")]
    key: Bytes,
    #[prost(oneof = "ConditionRecord", tags = "1, 2, 3")]
    condition: Option<ConditionRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StepRecord {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bool, tag = "2")]
    is_write: bool,
    #[prost(bytes = "bytes", optional, tag = "3")]
    value: Option<Bytes>,
    #[prost(message, optional, tag = "4")]
    options: Option<PutOptionsRecord>,
    #[prost(bool, tag = "5")]
    asks_lifetime: bool,
}

impl From<&Transaction> for TransactionRecord {
    fn from(transaction: &Transaction) -> TransactionRecord {
        let condition = |(key, condition): &(Key, Condition)| ConditionOnKey {
            key: key.0.clone(),
            condition: Some(ConditionRecord::from(*condition)),
        };
        let step = |step: &Step| {
            let (value, options) = match step {
                Step::Get(_) | Step::Lifetime(_) => (None, None),
                Step::Put(_, value, options) => (value.clone(), options.as_deref()),
            };
            StepRecord {
                key: step.key().0.clone(),
                is_write: matches!(step, Step::Put(..)),
                value,
                options: options.map(PutOptionsRecord::from),
                asks_lifetime: matches!(step, Step::Lifetime(_)),
            }
        };
        TransactionRecord {
            conditions: transaction.conditions.iter().map(condition).collect(),
            steps: transaction.steps.iter().map(step).collect(),
        }
    }
}

impl TransactionRecord {
    /// The transaction.
    ///
    /// # Errors
    /// If it has too many steps, or if a condition or an option of one is none. The error is what was found.
    fn transaction(self) -> Result<Transaction, String> {
        let parts = self.conditions.len() + self.steps.len();
        if parts > Transaction::MAX {
            return Err(format!("a transaction of {parts} conditions and steps"));
        }
        let condition = |record: ConditionOnKey| {
            let condition = record.condition.ok_or("no condition on a key")?.condition()?;
            Ok((Key(record.key), condition))
        };
        let step = |record: StepRecord| {
            let key = Key(record.key);
            Ok(match record.is_write {
                false if record.asks_lifetime => Step::Lifetime(key),
                false => Step::Get(key),
                true => {
                    let options = record.options.map(PutOptionsRecord::options).transpose()?;
                    Step::Put(key, record.value, options.map(Box::new))
                }
            })
        };
        Ok(Transaction {
            conditions: self
                .conditions
                .into_iter()
                .map(condition)
                .collect::<Result<_, String>>()?,
            steps: self.steps.into_iter().map(step).collect::<Result<_, String>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compute, ReplicaId, Vector, VersionId};

    fn encoded(transaction: &Transaction) -> Bytes {
        let mut out = BytesMut::new();
        transaction.encode(&mut out);
        out.freeze()
    }

    #[test]
    fn transactions_come_back_as_they_were() {
        let key = |name: &str| Key::from(name);
        let id = VersionId {
            at: Hlc(7),
            replica: ReplicaId(1),
        };
        let options = PutOptions {
            computes: Some(Compute::Add(-1)),
            replaces: Some(Vector::of(id)),
            ..PutOptions::default()
        };
        let transaction = Transaction {
            conditions: vec![(key("a"), Condition::Absent), (key("b"), Condition::Version(id))],
            steps: vec![
                Step::Get(key("a")),
                Step::Lifetime(key("d")),
                Step::Put(key("b"), Some(Bytes::from_static(b"v")), None),
                Step::Put(key("c"), None, Some(Box::new(options))),
            ],
        };
        assert_eq!(
            Transaction::decode(encoded(&transaction)),
            Ok(transaction.clone())
        );
        assert_eq!(transaction.newest(), id.at);
        assert_eq!(transaction.replicas(), ReplicaSet::one(id.replica));
        let nothing = Transaction::default();
        assert_eq!(Transaction::decode(encoded(&nothing)), Ok(nothing));
    }

    #[test]
    fn a_transaction_with_too_many_steps_or_with_a_condition_that_is_none_is_refused() {
        let steps = vec![Step::Get(Key::from("a")); Transaction::MAX + 1];
        let long = Transaction {
            steps,
            ..Transaction::default()
        };
        assert!(Transaction::decode(encoded(&long)).is_err());
        let record = TransactionRecord {
            conditions: vec![ConditionOnKey::default()],
            steps: Vec::new(),
        };
        let mut out = BytesMut::new();
        put_record(&record, &mut out);
        assert!(Transaction::decode(out.freeze()).is_err());
    }
}
