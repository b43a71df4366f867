//! Causal consistency: whether causal precedence can explain what was read.
//!
//! An operation *causally precedes* another (`co`) if the same client did it before, if it wrote the value that the other read, or that the other, a
//! delete, deleted ([`crate::History::taken_away`]), or through a chain of such steps. Time plays no part apart from the order within a session. The three usual meanings of "causally
//! consistent", with their names from Bouajjani, Enea, Guerraoui and Hamza (On verifying causal consistency, 2017), and what each
//! forbids:
//!
//! | | a trace has it if |
//! |---|---|
//! | CC, weak causal consistency | `co` has no cycle; no read returned a phantom; no read missed a write that precedes it: no `w co w' co r`, all on one key, where `r` read `w`; no `w' co r` where `r` read nothing |
//! | CCv, causal convergence | CC; and `co` with the *conflicts* has no cycle: if `r` read `w` and `w' co r`, then `w'` is the older of the two |
//! | CM, causal memory | CC; and each session alone can order the writes in its past so that all of its own reads fit |
//!
//! A store in which the last writer wins promises CCv. A store that may never converge can promise CM. Neither follows from
//! the other. Both follow from sequential consistency.
//!
//! # How
//!
//! Each session is a chain, so the past of an operation is one number per session: a vector clock. All operations are visited
//! in an order that respects `co`. For a read and each session, only the session's *last* write to the key within the read's clock
//! matters: if an earlier one overwrote the source, so did the last. That makes CC and CCv O(n · sessions), with
//! memory for three clocks per write at most; see [`clocks`]. CM is a fixed point for each session, O(n) per round; see [`memory`].
//!
//! # Caveats
//!
//! - A write of unknown outcome comes after what its client did before, and before nothing that its client did later, so it is no part
//!   of a chain. It is found through the operations that read it.
//! - The reads of one snapshot (equal client and record) are *one* operation here: everything that the snapshot has read is in its past, in whatever
//!   order the reads are listed. So an old `x` beside a `y` whose write knew a newer `x` is found.
//! - A read counts at most once in [`Causal::violations`]. If `co` has cycles, one read of each cycle is counted and then
//!   skipped, until no cycle is left. Another choice of reads could give another number, but never zero.
//! - Work and memory are bounded by [`MAX_CLOCK_ENTRIES`] and [`MAX_STEPS`]. Beyond them the answer is
//!   [`Verdict::Undecided`].

mod clocks;
mod graph;
mod memory;
mod order;
mod paths;

use crate::{History, Kind, Witness};
pub(crate) use graph::Graph;

/// The most numbers in all vector clocks of a trace: 1 GiB.
const MAX_CLOCK_ENTRIES: usize = 1 << 28;

/// The most operations visited for CM, in all rounds of all sessions together: about ten seconds.
const MAX_STEPS: usize = 1 << 28;

/// How many reads are tried to find a short witness.
const EXAMPLES: usize = 4;

/// Whether a trace has a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It has the property.
    Holds,
    /// It does not have the property, and these operations show it.
    Broken(Witness),
    /// It would take too long, or too much memory, to find out.
    Undecided,
}

impl Verdict {
    /// Yes or no, if that is known.
    pub fn holds(&self) -> Option<bool> {
        match self {
            Verdict::Holds => Some(true),
            Verdict::Broken(_) => Some(false),
            Verdict::Undecided => None,
        }
    }
}

/// The verdicts on the three meanings of causal consistency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Causal {
    /// Weak causal consistency.
    pub cc: Verdict,
    /// Causal convergence.
    pub ccv: Verdict,
    /// Causal memory.
    pub cm: Verdict,
    /// The number of reads that break CC: 0 exactly if CC holds. `None` if that was not decided.
    pub violations: Option<u64>,
    /// The reads that break CC: places in [`History::operations`], rising.
    pub reads: Vec<usize>,
}

/// Judges a trace. O(n · sessions) for CC and CCv; several times that for CM, which is undecided for the largest traces.
pub fn causal(history: &History) -> Causal {
    causal_within(history, MAX_STEPS)
}

/// The same, with another bound on the operations visited for CM, all rounds of all sessions together.
pub fn causal_within(history: &History, steps: usize) -> Causal {
    let undecided = Causal {
        cc: Verdict::Undecided,
        ccv: Verdict::Undecided,
        cm: Verdict::Undecided,
        violations: None,
        reads: Vec::new(),
    };
    let Some(graph) = Graph::of(history) else {
        return undecided;
    };
    let (order, cycles) = order::causal(&graph);
    let Some(mut clocks) = clocks::Clocks::new(&graph, MAX_CLOCK_ENTRIES) else {
        return undecided;
    };
    let broken = clocks.run(&order, &cycles);
    let phantoms = phantoms(history);
    let others = cycles.reads().chain(broken.iter().copied());
    let others = others.map(|place| place as usize);
    let mut reads: Vec<usize> = phantoms.iter().copied().chain(others).collect();
    reads.sort_unstable();
    if !reads.is_empty() {
        let witness = if let Some(&phantom) = phantoms.first() {
            paths::alone(phantom)
        } else if let Some(cycle) = cycles.first_cycle() {
            paths::causal_cycle(&graph, cycle)
        } else {
            paths::overwritten(&graph, &order, &broken[..broken.len().min(EXAMPLES)])
        };
        return Causal {
            cc: Verdict::Broken(witness.clone()),
            ccv: Verdict::Broken(witness.clone()),
            cm: Verdict::Broken(witness),
            violations: Some(reads.len() as u64),
            reads,
        };
    }
    let ccv = match clocks.conflict_cycle() {
        None => Verdict::Holds,
        Some(cycle) => Verdict::Broken(paths::conflict_cycle(&graph, &order, &clocks, &cycle)),
    };
    drop(clocks);
    Causal {
        cc: Verdict::Holds,
        ccv,
        cm: memory::judge(&graph, &order, steps),
        violations: Some(0),
        reads,
    }
}

/// The reads of values that no client wrote.
fn phantoms(history: &History) -> Vec<usize> {
    let is_phantom = |place: &usize| {
        let operation = &history.operations[*place];
        operation.kind == Kind::Read && history.keys[operation.key as usize].is_phantom(operation.value)
    };
    (0..history.operations.len()).filter(is_phantom).collect()
}
