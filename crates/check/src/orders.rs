//! Whether some order explains the trace as a whole: causal and sequential consistency, decided once for all users.
//!
//! How the levels use it ([`Orders::teach`]):
//!
//! | level | an operation contradicts it if |
//! |---|---|
//! | `causal` | it is a read that breaks CC, "nothing is seen before what it depends on"; CCv and CM promise more |
//! | `sequential` | it is a read in the witness that there is no order; any read, if every order was tried and none fits |
//! | `partition-sequential`, and `per-key-sequential` without versions | never: a sequential order of everything shows that they hold; that they do not hold is not searched |
//!
//! Nothing is said about a trace in which one client was timed by several recorders: its session has no order.
use crate::{Causal, History, Kind, Sequential, Zones, causal, levels::LevelJudge, sequential};
use turnbuckle_core::PromisedOrder;

/// The most numbers that the search for a sequential order keeps: 4 MiB. That is enough for small traces only.
const SEQUENTIAL_NUMBERS: usize = 1 << 20;

/// Whether there are orders of the whole trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orders {
    /// Causal consistency in its three meanings.
    pub causal: Causal,
    /// Sequential consistency: one order of all operations.
    pub sequential: Sequential,
}

impl Orders {
    /// Searches the orders: see [`causal()`] and [`sequential()`].
    pub fn of(history: &History) -> Orders {
        Orders::within(history, SEQUENTIAL_NUMBERS)
    }

    /// The same. The search for a sequential order keeps at most `numbers` numbers of four bytes.
    pub fn within(history: &History, numbers: usize) -> Orders {
        let causal = causal(history);
        // A write of unknown outcome may count as a session of its own.
        let states = numbers / (history.clients.len() + unknown_writes(history)).max(1);
        Orders {
            sequential: sequential(history, &Zones::of(history), &causal, states),
            causal,
        }
    }

    /// Tells a judge of the same trace what was found.
    pub fn teach(&self, history: &History, judge: &mut LevelJudge<'_>) {
        if history.recorder_of.contains(&None) {
            return;
        }
        let marked = |places: &[usize]| {
            let mut contradicted = vec![false; history.operations.len()];
            places.iter().for_each(|&place| contradicted[place] = true);
            contradicted
        };
        if self.causal.cc.holds().is_some() {
            judge.learn(PromisedOrder::Causal, marked(&self.causal.reads));
        }
        match &self.sequential {
            Sequential::Undecided => {}
            Sequential::No(witness) => {
                let all = 0..history.operations.len();
                let shown = match witness {
                    Some(witness) => witness.operations.clone(),
                    None => all.collect(),
                };
                let reads = shown.into_iter().chain(self.causal.reads.iter().copied());
                let is_read = |&place: &usize| history.operations[place].kind == Kind::Read;
                let reads: Vec<usize> = reads.filter(is_read).collect();
                judge.learn(PromisedOrder::Sequential, marked(&reads));
            }
            Sequential::Yes => {
                for ordering in [
                    PromisedOrder::Sequential,
                    PromisedOrder::PerKeySequential,
                    PromisedOrder::PartitionSequential,
                ] {
                    judge.learn(ordering, marked(&[]));
                }
            }
        }
    }
}

fn unknown_writes(history: &History) -> usize {
    let operations = history.operations.iter();
    operations
        .filter(|operation| operation.kind == Kind::UnknownWrite)
        .count()
}
