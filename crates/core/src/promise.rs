use crate::{Level, Micros};

/// What a level promises its client. This is the only place that defines it: the checker, the simulator's judge and the RESP door all use it. Promises
/// have no total order: `bounded(2s)` promises something that `causal` does not, and `causal` something that `bounded(2s)` does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Promise {
    /// Every value that is read was written; nothing more.
    RealValues,
    /// The session guarantees that are true here hold, within each key.
    Session {
        /// Read your writes.
        ryw: bool,
        /// Monotonic reads.
        mr: bool,
        /// Monotonic writes.
        mw: bool,
        /// Writes follow reads.
        wfr: bool,
    },
    /// It reflects every write that was acknowledged longer ago than this.
    Bounded(Micros),
    /// The answers are those of one copy of the data.
    OneCopy,
    /// Some order of the operations explains the answers.
    Order(PromisedOrder),
    /// How the operation is carried out. No client can observe it.
    Procedure,
}

/// An order of many operations. One operation alone does not show whether it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PromisedOrder {
    /// `causal`.
    Causal,
    /// `per-key-sequential`.
    PerKeySequential,
    /// `partition-sequential`.
    PartitionSequential,
    /// `sequential`.
    Sequential,
}

impl Level {
    /// What the level promises.
    pub fn promise(self) -> Promise {
        let session = |ryw, mr, mw, wfr| Promise::Session { ryw, mr, mw, wfr };
        match self {
            Level::Eventual => Promise::RealValues,
            Level::Session | Level::PerKeyCausal => session(true, true, true, true),
            Level::ReadYourWrites => session(true, false, false, false),
            Level::MonotonicReads => session(false, true, false, false),
            Level::MonotonicWrites => session(false, false, true, false),
            Level::WritesFollowReads => session(false, false, false, true),
            Level::Bounded(bound) => Promise::Bounded(bound),
            Level::Atomic | Level::Linearizable => Promise::OneCopy,
            Level::Causal => Promise::Order(PromisedOrder::Causal),
            Level::PerKeySequential => Promise::Order(PromisedOrder::PerKeySequential),
            Level::PartitionSequential => Promise::Order(PromisedOrder::PartitionSequential),
            Level::Sequential => Promise::Order(PromisedOrder::Sequential),
            Level::One
            | Level::Quorum
            | Level::All
            | Level::Replicas(_)
            | Level::Cpq(_)
            | Level::Delay(_) => Promise::Procedure,
        }
    }
}

impl Promise {
    /// Whether a client with this promise never sees a version without everything that it depends on, on any key. One copy of each key implies it:
    /// registers that are linearizable each are linearizable together.
    pub fn is_causal(self) -> bool {
        matches!(
            self,
            Promise::OneCopy | Promise::Order(PromisedOrder::Causal | PromisedOrder::Sequential)
        )
    }

    /// Whether it is promised that an order of all operations on the key, whatever their levels, keeps the order of each session and explains the answer.
    pub fn orders_keys(self) -> bool {
        matches!(
            self,
            Promise::Order(
                PromisedOrder::PerKeySequential
                    | PromisedOrder::PartitionSequential
                    | PromisedOrder::Sequential
            )
        )
    }

    /// Whether a read of several keys must show them as of one moment. If not, the keys may be read one by one.
    pub fn makes_snapshots(self) -> bool {
        matches!(
            self,
            Promise::Order(PromisedOrder::Causal | PromisedOrder::Sequential)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_that_come_late_in_a_list_promise_no_more_for_that() {
        for level in [
            Level::One,
            Level::Quorum,
            Level::Bounded(Micros(7)),
            Level::Delay(Micros(7)),
        ] {
            assert!(!level.promise().is_causal(), "{level}");
            assert!(!level.promise().makes_snapshots(), "{level}");
        }
        assert!(Level::Causal.promise().is_causal() && Level::Atomic.promise().is_causal());
        assert!(!Level::Linearizable.promise().makes_snapshots());
    }
}
