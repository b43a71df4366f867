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

impl<S: Session> World<S> {
    /// Lets a world that has come to rest take checkpoints, until no delete is remembered. If it takes too many, the judge is told. Returns
    /// the number of deletes that still waited for something other than checkpoints.
    pub(crate) fn forget_deletes(&mut self) -> u64 {
        let (stamped, end) = (self.stamped(), self.time() + PATIENCE);
        // For each node: the number of checkpoints that it had taken when all its deletes could be forgotten, and its number of deletes
        // then.
        let mut since: BTreeMap<NodeId, (u64, u64)> = BTreeMap::new();
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
                // Of the values that expire, it is not known how many have expired: at most all, and some if anything is due.
                let expired = here.iter().filter(|status| status.has_expired);
                let deletes = deletes + expired.map(|status| status.expiring_keys).sum::<u64>();
                waiting += deletes;
                let is_settled = here.iter().all(|status| status.settled > stamped);
                if deletes == 0 {
                    // The line of a value that expires is due several times. What is due now was not due all the time.
                    since.remove(&node);
                }
                if deletes == 0 || !is_settled {
                    continue;
                }
                let made = self.checkpoints(node);
                let &mut (first, had) = since.entry(node).or_insert((made, deletes));
                let took = made.saturating_sub(first);
                if took > FEW_CHECKPOINTS + had / DELETES_OF_ONE {
                    let name = self.node_name(node);
                    let words = format!(
                        "node {name} had {had} deletes and values that expire, no site needs those that are due any more, and {took} checkpoints later it still has {deletes}"
                    );
                    self.judge.report(Rule::Service, words);
                    return 0;
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
