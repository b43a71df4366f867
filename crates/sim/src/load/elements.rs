//! What clients do with hashes and sets (`element.rs`).
use super::{Clients, Mixed};
use crate::element::{ELEMENTS, NUMBER, WILD, key, wild};
use bytes::Bytes;
use std::collections::VecDeque;
use turnbuckle_core::{Compute, Edit, Expiry, Key, Kind, Micros, Operation, PutOptions, Retimes};

/// The elements of a keyspace.
#[derive(Debug, Default)]
pub(super) struct Elements {
    added: u64,
    /// How often clients have added to the number of the hash that is open now.
    counted: u32,
    /// The elements that were added last.
    last: VecDeque<(Key, Kind, Bytes)>,
}

/// Removals are of the elements that were added last: so they meet them on their way.
const LAST: usize = 8;

fn put(key: Key, edit: Edit) -> Operation {
    Operation::put(key, None).with(PutOptions {
        computes: Some(Compute::Edit(Box::new(edit))),
        ..PutOptions::default()
    })
}

impl Clients {
    /// An operation on hashes and sets of the client's keyspace.
    pub(super) fn on_elements(&mut self, mixed: Mixed, client: usize, now: Micros) -> Operation {
        let keyspace = self.all[client].keyspace;
        let read = self.read_level(mixed);
        let kind = *self.random.pick(&[Kind::Hash, Kind::Hash, Kind::Set]);
        let of = self.elements.entry(keyspace).or_default();
        let current = key(keyspace, kind, of.added / ELEMENTS);
        let asked = match self.random.below(20) {
            0..=5 => {
                of.added += 1;
                if of.added.is_multiple_of(ELEMENTS) {
                    of.counted = 0;
                }
                let name = Bytes::from(format!("f{}", of.added));
                of.last.push_back((current.clone(), kind, name.clone()));
                if of.last.len() > LAST {
                    of.last.pop_front();
                }
                let value = Bytes::from(format!("v{}", of.added));
                let edit = match (kind, self.random.percent(80)) {
                    (Kind::Set, _) => Edit::Insert(vec![name]),
                    (Kind::Hash, true) => Edit::Set(vec![(name, value)]),
                    (Kind::Hash, false) => Edit::SetNew(name, value),
                };
                put(current, edit)
            }
            6..=9 if !of.last.is_empty() => {
                let one = self.random.below(of.last.len() as u64) as usize;
                let (key, kind, name) = of.last[one].clone();
                let of_same = of.last.iter().filter(|(other, ..)| *other == key);
                let names = match self.random.percent(25) {
                    true => of_same.map(|(_, _, name)| name.clone()).collect(),
                    false => vec![name],
                };
                put(key, Edit::Remove(kind, names))
            }
            10..=11 if of.counted < 52 => {
                of.counted += 1;
                let more = 1 << (of.counted - 1);
                let hash = key(keyspace, Kind::Hash, of.added / ELEMENTS);
                put(hash, Edit::Add(NUMBER, more))
            }
            10..=14 => {
                let back = self.random.below(2);
                let key = key(keyspace, kind, (of.added / ELEMENTS).saturating_sub(back));
                return Operation::get(key).wanting(read);
            }
            _ => return self.on_wild(keyspace, mixed, now),
        };
        asked.at(self.load.write)
    }

    fn on_wild(&mut self, keyspace: usize, mixed: Mixed, now: Micros) -> Operation {
        self.written += 1;
        let key = wild(keyspace, self.random.below(WILD));
        let name = Bytes::from(format!("s{}", self.random.below(4)));
        let value = Bytes::from(format!("w{}", self.written));
        let soon = Micros(self.random.of(1..=300_000));
        let computes = |computes| PutOptions {
            computes: Some(computes),
            ..PutOptions::default()
        };
        let operation = match self.random.below(16) {
            0..=3 => put(key, Edit::Set(vec![(name, value)])),
            4..=5 => put(key, Edit::Remove(Kind::Hash, vec![name])),
            6..=7 => put(key, Edit::Add(name, 1)),
            8 => put(key, Edit::Insert(vec![name])),
            9 => put(key, Edit::Remove(Kind::Set, vec![name])),
            10..=11 => Operation::delete(key),
            12 => Operation::put(key, value),
            13 => Operation::delete(key).with(computes(Compute::Add(1))),
            14 => Operation::delete(key).with(PutOptions {
                retimes: Some(Retimes::Any),
                expiry: match self.random.below(3) {
                    0 => None,
                    1 => Some(Expiry::After(soon)),
                    _ => Some(Expiry::At(now + soon)),
                },
                ..PutOptions::default()
            }),
            _ => return Operation::get(key).wanting(self.read_level(mixed)),
        };
        operation.at(self.load.write)
    }
}
