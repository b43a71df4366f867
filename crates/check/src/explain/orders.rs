//! Why no order explains the whole trace.
use super::{Case, Explanation, MAX_NAMED, writer};
use crate::{Because, Edge, History, Orders, Sequential, Verdict, Witness};

/// Why no order explains the whole trace.
pub(super) fn whole_orders(history: &History, orders: &Orders) -> Vec<Explanation> {
    let causal = &orders.causal;
    let mut all = Vec::new();
    if let Verdict::Broken(witness) = &causal.cc {
        all.push(not_causal(history, witness, causal.violations.unwrap_or(0)));
    } else {
        for (verdict, is_memory) in [(&causal.ccv, false), (&causal.cm, true)] {
            if let Verdict::Broken(witness) = verdict {
                all.push(not_explained(history, witness, is_memory));
            }
        }
    }
    if orders.sequential == Sequential::No(None) {
        let words = vec![
            "No order of all operations keeps the order of each session and explains every read. There is no short proof: the trace is \
             causally consistent in all three meanings, and every order was tried."
                .into(),
        ];
        let title = "this trace is not sequentially consistent";
        all.push(Explanation::new(title, words, Witness::default()));
    }
    all
}

const SO_NOT: &str = "So the trace is not sequentially consistent either.";

/// Weak causal consistency is broken: an overwritten read, a cycle, or a read of a value that no client wrote.
fn not_causal(history: &History, witness: &Witness, reads: u64) -> Explanation {
    let case = Case::as_argued(history, witness);
    let missed = witness
        .edges
        .iter()
        .find(|edge| edge.because == Because::Overwritten);
    let is_phantom = witness.operations.len() == 1 && missed.is_none();
    let why = match missed {
        Some(edge) => overwritten(&case, edge),
        None if is_phantom => "A client has read a value that no client wrote: see above. Nothing in the past of the read explains it.".into(),
        None => "Each of these operations comes before the next, because the same client did it before or because it wrote \
                 what the next read; and the last comes before the first. So a read returned a value whose write comes after the read."
            .into(),
    };
    let reads = match reads {
        1 => "1 read breaks causality".into(),
        _ => format!("{reads} reads break causality"),
    };
    let rest = format!("{reads}, over all keys. None of CC, CCv and CM holds. {SO_NOT}");
    let witness = if is_phantom {
        Witness::default()
    } else {
        witness.clone()
    };
    Explanation::new("causality is broken (CC)", vec![why, rest], witness)
}

/// A read, and the write that it should have known.
fn overwritten(case: &Case<'_>, edge: &Edge) -> String {
    let Edge {
        from: read,
        to: write,
        ..
    } = *edge;
    let (client, value, number) = (case.client(read), case.value(read), case.number(write));
    let older = match writer(case.history, read).filter(|source| case.places.contains(source)) {
        Some(source) => format!(
            "And the client of {number} could have known {}, so {value} had been replaced.",
            case.number(source)
        ),
        None => format!(
            "{read} returned the value from before every write.",
            read = case.number(read)
        ),
    };
    let is_with =
        |&&other: &&usize| other != read && case.operation(other).record == case.operation(read).record;
    let snapshot = case.places.iter().find(is_with).map(|&other| {
        format!(
            " {} and {} are one snapshot, so both have the same past.",
            case.number(other),
            case.number(read)
        )
    });
    let snapshot = snapshot.unwrap_or_default();
    format!(
        "{} {}. But {number} {}, and {client} could have known it: follow the steps below from {number} to {}. {older}{snapshot}",
        case.number(read),
        case.did(read),
        case.did(write),
        case.number(read),
    )
}

/// CCv or CM is broken, and CC is not.
fn not_explained(history: &History, witness: &Witness, is_memory: bool) -> Explanation {
    let case = Case::as_argued(history, witness);
    let conflicts = witness
        .edges
        .iter()
        .filter(|edge| edge.because == Because::Conflict);
    let mut words: Vec<String> = conflicts
        .take(MAX_NAMED)
        .map(|edge| {
            format!(
                "{} must be older than {}: a client that could have known {} read what {} wrote.",
                case.number(edge.from),
                case.number(edge.to),
                case.number(edge.from),
                case.number(edge.to)
            )
        })
        .collect();
    let nothing = witness
        .edges
        .iter()
        .find(|edge| edge.because == Because::Overwritten);
    words.push(match nothing {
        Some(edge) => format!(
            "So {} comes before {}, which nevertheless read nothing.",
            case.number(edge.to),
            case.number(edge.from)
        ),
        None => "Together with the order of each session, and with which read returned which write, this makes a cycle: follow the steps below."
            .into(),
    });
    let (title, means) = match is_memory {
        true => (
            "one client's reads fit no order of the writes in its past (CM)",
            "Each read alone can be explained, but not all reads of one client together.",
        ),
        false => (
            "clients have seen writes in orders that do not fit together (CCv)",
            "Each read alone can be explained. But a store that orders the writes of a key in the same way everywhere, such as one where \
             the last writer wins, does not show this.",
        ),
    };
    words.insert(0, means.into());
    words.push(SO_NOT.into());
    Explanation::new(title, words, witness.clone())
}
