//! What clients do with ledgers (`ledger.rs`): entries, with or without a condition, and reads.
use super::Clients;
use crate::ledger::{COUNT, IDS, LEDGERS, LIST, TWIN, item, key};
use turnbuckle_core::{Compute, Condition, Key, Operation, PutOptions, Step, Transaction};

fn computing(compute: Compute) -> PutOptions {
    PutOptions {
        computes: Some(compute),
        ..PutOptions::default()
    }
}

impl Clients {
    /// An operation on one of the ledgers of the client's keyspace.
    pub(super) fn on_ledger(&mut self, number: usize) -> Operation {
        let keyspace = self.all[number].keyspace;
        let ledger = self.random.below(LEDGERS);
        let key = |name| key(keyspace, ledger, name);
        match self.random.below(10) {
            0..=3 => {
                let list = key(LIST);
                let known = self.all[number].list.take_if(|(of, _)| *of == list);
                let condition = match known {
                    Some((_, version)) => Some(Condition::Version(version)),
                    None if self.random.percent(10) => Some(Condition::Absent),
                    None => None,
                };
                self.entry(
                    [list.clone(), key(TWIN), key(COUNT)],
                    condition.map(|condition| (list, condition)),
                )
            }
            4 => transact(Transaction {
                conditions: Vec::new(),
                steps: [LIST, COUNT, TWIN]
                    .into_iter()
                    .map(|name| Step::Get(key(name)))
                    .collect(),
            }),
            5..=6 => Operation::get(key(LIST)).at(self.load.read),
            7..=8 => Operation::put(key(IDS), None).with(computing(Compute::Add(1))),
            _ => Operation::get(key(IDS)).at(self.load.read),
        }
    }

    /// An entry. Its steps come in any order.
    fn entry(&mut self, keys: [Key; 3], condition: Option<(Key, Condition)>) -> Operation {
        self.written += 1;
        let item = item(self.written);
        let [list, twin, count] = keys;
        let step = |key, compute| Step::Put(key, None, Some(Box::new(computing(compute))));
        let mut steps = vec![
            step(list, Compute::Append(item.clone())),
            step(twin, Compute::Append(item)),
            step(count, Compute::Add(1)),
        ];
        let first = self.random.below(3) as usize;
        steps.swap(0, first);
        transact(Transaction {
            conditions: condition.into_iter().collect(),
            steps,
        })
    }
}

fn transact(transaction: Transaction) -> Operation {
    Operation::Transact {
        transaction: Box::new(transaction),
        level: None,
    }
}
