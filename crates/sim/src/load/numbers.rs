//! What clients do with numbers (`number.rs`).
use super::{Clients, Mixed};
use crate::number::{ADDITIONS, Kind, WRITTEN, key, written};
use bytes::Bytes;
use turnbuckle_core::{Compute, Expiry, Key, Micros, Operation, PutOptions, Retimes};

/// The numbers of one kind in a keyspace.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Numbers {
    /// The one to which clients add now.
    current: u64,
    /// How much was done with it.
    additions: u32,
    written: u64,
    /// The number of values that were written to earlier ones.
    again: u64,
}

/// How far back clients go to numbers to which nobody adds any more.
const EARLIER: u64 = 12;

impl Clients {
    /// An operation on one of the numbers of the client's keyspace.
    pub(super) fn on_number(&mut self, mixed: Mixed, client: usize, now: Micros) -> Operation {
        let keyspace = self.all[client].keyspace;
        let kind = *self
            .random
            .pick(&[Kind::Added, Kind::Added, Kind::Reset, Kind::Expiring]);
        match self.random.below(10) {
            0..=4 => self.addition(keyspace, kind),
            5..=6 => {
                let key = self.number(keyspace, kind, true);
                Operation::get(key).wanting(self.read_level(mixed))
            }
            7 => {
                let keys = [Kind::Added, Kind::Reset, Kind::Expiring];
                Operation::ReadMany {
                    keys: keys.map(|kind| self.number(keyspace, kind, false)).to_vec(),
                    level: None,
                }
                .wanting(self.read_level(mixed))
            }
            _ => match kind {
                Kind::Added => Operation::get(self.number(keyspace, kind, true)).at(self.load.read),
                Kind::Reset => self.reset(keyspace),
                Kind::Expiring => self.expire(keyspace, now),
            },
        }
    }

    fn numbers(&mut self, keyspace: usize, kind: Kind) -> &mut Numbers {
        self.numbers.entry((keyspace, kind)).or_default()
    }

    /// The number that clients add to or, sometimes, the one before it.
    fn number(&mut self, keyspace: usize, kind: Kind, or_before: bool) -> Key {
        let before = u64::from(or_before && self.random.percent(30));
        let current = self.numbers(keyspace, kind).current;
        key(keyspace, kind, current.saturating_sub(before))
    }

    fn addition(&mut self, keyspace: usize, kind: Kind) -> Operation {
        let numbers = self.numbers(keyspace, kind);
        if numbers.additions == ADDITIONS {
            *numbers = Numbers {
                current: numbers.current + 1,
                again: numbers.again,
                ..Numbers::default()
            };
        }
        let more = 1_i64 << numbers.additions;
        numbers.additions += 1;
        let key = key(keyspace, kind, numbers.current);
        let compute = match self.random.percent(20) {
            true => Compute::AddDecimal(more.into()),
            false => Compute::Add(more),
        };
        let options = PutOptions {
            computes: Some(compute),
            ..PutOptions::default()
        };
        Operation::put(key, None).with(options).at(self.load.write)
    }

    /// One of the last numbers to which nobody adds any more. Some of them have been over for a while, and one site may have forgotten them before another one.
    fn earlier(&mut self, keyspace: usize, kind: Kind) -> Option<u64> {
        let current = self.numbers(keyspace, kind).current;
        let is_wanted = current > 0 && self.random.percent(60);
        is_wanted.then(|| current - self.random.of(1..=current.min(EARLIER)))
    }

    /// A value that tells itself from all others of the key. `None` if there are no more.
    fn written(&mut self, keyspace: usize, kind: Kind) -> Option<(Key, Bytes)> {
        let earlier = self.earlier(keyspace, kind);
        let numbers = self.numbers(keyspace, kind);
        let (number, value) = match earlier {
            Some(earlier) => {
                numbers.again += 1;
                (earlier, WRITTEN / 2 + numbers.again)
            }
            None => {
                numbers.written = (numbers.written + 1).min(WRITTEN / 2);
                (numbers.current, numbers.written)
            }
        };
        let is_new = value < WRITTEN && value != WRITTEN / 2;
        is_new.then(|| (key(keyspace, kind, number), written(value).into()))
    }

    /// A number that clients write or delete.
    fn number_to_reset(&mut self, keyspace: usize, kind: Kind) -> Key {
        match self.earlier(keyspace, kind) {
            Some(earlier) => key(keyspace, kind, earlier),
            None => self.number(keyspace, kind, false),
        }
    }

    fn reset(&mut self, keyspace: usize) -> Operation {
        let is_delete = self.random.percent(40);
        let new = self.written(keyspace, Kind::Reset).filter(|_| !is_delete);
        let operation = match new {
            Some((key, value)) => Operation::put(key, value),
            None => Operation::delete(self.number_to_reset(keyspace, Kind::Reset)),
        };
        operation.at(self.load.write)
    }

    /// Mostly soon, so that a run of two seconds sees it.
    fn expire(&mut self, keyspace: usize, now: Micros) -> Operation {
        let soon = Micros(self.random.of(1..=400_000));
        let expiry = match self.random.percent(50) {
            true => Expiry::After(soon),
            false => Expiry::At(now + soon),
        };
        let options = PutOptions {
            expiry: Some(expiry),
            ..PutOptions::default()
        };
        let new = self.written(keyspace, Kind::Expiring);
        let operation = match new.filter(|_| self.random.percent(40)) {
            Some((key, value)) => Operation::put(key, value).with(options),
            None => {
                let retimes = PutOptions {
                    retimes: Some(Retimes::Any),
                    expiry: options.expiry.filter(|_| self.random.percent(85)),
                    ..PutOptions::default()
                };
                Operation::delete(self.number_to_reset(keyspace, Kind::Expiring)).with(retimes)
            }
        };
        operation.at(self.load.write)
    }
}
