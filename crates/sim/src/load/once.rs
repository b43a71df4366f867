//! Pairs of keys that are written once.
//!
//! If a key was written only once, it is known what a delete of it has taken away. So a client that deletes the second key of a pair, and
//! was told that there was a value, must be shown the first key from then on: it was written before the second. This holds although the
//! client has read neither.
use super::Clients;
use crate::keyspaces::key_in;
use bytes::Bytes;
use std::collections::VecDeque;
use turnbuckle_core::{Key, Operation};

/// The number of pairs that are asked for, the newest ones: what was deleted long ago tells nothing new.
const MAX_PAIRS: usize = 6;

/// The number of times that a client looks for a pair in one request. The value that it deletes may not have arrived yet.
const LOOKS: usize = 8;

/// The pairs of a keyspace.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// The number of pairs that were begun.
    begun: u64,
    /// The newest pairs, and the client that wrote each.
    newest: VecDeque<(u64, usize)>,
}

fn names(keyspace: usize, pair: u64) -> (Key, Key) {
    let name = |which| key_in(keyspace, &format!("{which}{pair}"));
    (name("first"), name("second"))
}

impl Clients {
    /// Half of the time a new pair, otherwise one that another client has written.
    pub(super) fn once(&mut self, number: usize, request: &mut VecDeque<Operation>) {
        let keyspace = self.all[number].keyspace;
        let is_new = self.random.percent(50);
        let (read, write) = (self.load.read, self.load.write);
        let pairs = self.pairs.entry(keyspace).or_default();
        let of_others: Vec<u64> = pairs
            .newest
            .iter()
            .filter(|(_, writer)| *writer != number)
            .map(|&(pair, _)| pair)
            .collect();
        if !is_new && !of_others.is_empty() {
            let (first, second) = names(keyspace, *self.random.pick(&of_others));
            for _ in 0..LOOKS {
                request.extend([
                    Operation::delete(second.clone()).at(write),
                    Operation::Get {
                        key: first.clone(),
                        level: read,
                    },
                ]);
            }
            return;
        }
        let pair = pairs.begun;
        pairs.begun += 1;
        pairs.newest.push_back((pair, number));
        if pairs.newest.len() > MAX_PAIRS {
            pairs.newest.pop_front();
        }
        let (first, second) = names(keyspace, pair);
        for key in [first, second] {
            self.written += 1;
            let value = Bytes::from(format!("w{}", self.written));
            request.push_back(Operation::put(key, value).at(write));
        }
    }
}
