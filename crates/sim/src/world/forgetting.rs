//! Checks that deletes are forgotten once no replica needs them.
//!
//! A delete that every site shows waits for two checkpoints: one writes it down, the next one forgets it. Many deletes take a few more.
//! Checkpoints count, not time: if a node forgets fewer deletes in each than clients can make meanwhile, it remembers more and more.
use crate::{Rule, World};
use std::collections::BTreeMap;
use turnbuckle_core::{Micros, Session};
use turnbuckle_node::{KeyspaceStatus, NodeId};

/// The number of checkpoints that is enough for few deletes.
const FEW_CHECKPOINTS: u64 = 4;

/// For each of this number of deletes there may be one more checkpoint.
const DELETES_OF_ONE: u64 = 16;

/// Deletes that are not settled by then may have reasons to wait. They are counted, and that breaks no rule.
const PATIENCE: Micros = Micros::from_millis(60_000);

const LOOK_EVERY: Micros = Micros::from_millis(20);

/// What is to be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Delete,
    Expired,
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Kind::Delete => "deletes",
            Kind::Expired => "values that expire, some of which have expired",
        }
    }
}

impl<S: Session> World<S> {
    /// Lets a world that has come to rest take checkpoints, until no delete is remembered. If it takes too many, the judge is told. Returns
    /// the number of deletes that still waited for something other than checkpoints.
    pub(crate) fn forget_deletes(&mut self) -> u64 {
        let (stamped, end) = (self.stamped(), self.time() + PATIENCE);
        // For each node, apart for deletes and for values that have expired: the number of checkpoints that it had taken when all of them could be
        // forgotten, and the most of both that it has had since then.
        let mut since: BTreeMap<(NodeId, Kind), (u64, u64)> = BTreeMap::new();
        loop {
            let mut waiting = 0;
            for node in self.nodes() {
                let statuses: Vec<KeyspaceStatus> = self.statuses(node);
                // A keyspace that another node lacks forgets nothing.
                let is_everywhere = |status: &&KeyspaceStatus| {
                    status
                        .streams
                        .iter()
                        .all(|stream| stream.state != super::rest::LEFT_OUT)
                };
                let here: Vec<&KeyspaceStatus> = statuses.iter().filter(is_everywhere).collect();
                let deletes: u64 = here.iter().map(|status| status.deleted_keys).sum();
                // Of the values that expire, it is not known how many have expired: at most all, and some if anything is due. The line of a value is due
                // several times. What is due now was not due all the time.
                let expired = here.iter().filter(|status| status.has_expired);
                let expired: u64 = expired.map(|status| status.expiring_keys).sum();
                let all = deletes + expired;
                waiting += all;
                let is_forgettable = here.iter().all(|status| status.forgettable > stamped);
                let made = self.checkpoints(node);
                for (kind, count) in [(Kind::Delete, deletes), (Kind::Expired, expired)] {
                    if count == 0 {
                        since.remove(&(node, kind));
                    }
                    if count == 0 || !is_forgettable {
                        continue;
                    }
                    let (first, most) = since.entry((node, kind)).or_insert((made, all));
                    *most = all.max(*most);
                    let (took, most) = (made.saturating_sub(*first), *most);
                    if took > FEW_CHECKPOINTS + most / DELETES_OF_ONE {
                        let name = self.node_name(node);
                        let words = format!(
                            "node {name} had {most} deletes and values that expire, no site needs those that are due any more, and {took} checkpoints later it still has {count} {}",
                            kind.words()
                        );
                        self.judge.report(Rule::Service, words);
                        return 0;
                    }
                }
            }
            if waiting == 0 || self.time() >= end {
                return waiting;
            }
            for node in self.nodes() {
                self.checkpoint(node);
            }
            self.advance(LOOK_EVERY);
        }
    }
}
