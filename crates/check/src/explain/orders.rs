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
            "No order of all operations keeps each session's own and explains every read. There is no short argument: the \
             trace is causally consistent in all three meanings, and all orders were tried in vain."
                .into(),
        ];
        let title = "this trace is not sequentially consistent";
        all.push(Explanation::new(title, words, Witness::default()));
    }
    all
}

const SO_NOT: &str = "So the trace is not sequentially consistent either.";

/// Weak causal consistency is broken: an overwritten read, a circle, or a read of what nobody wrote.
fn not_causal(history: &History, witness: &Witness, reads: u64) -> Explanation {
    let case = Case::as_argued(history, witness);
    let missed = witness
        .edges
        .iter()
        .find(|edge| edge.because == Because::Overwritten);
    let is_phantom = witness.operations.len() == 1 && missed.is_none();
    let why = match missed {
        Some(edge) => overwritten(&case, edge),
        None if is_phantom => "Somebody has read what nobody wrote: see above. Nothing that could have been known explains it.".into(),
        None => "Each of these operations comes before the next, because the same client did it before or because it wrote \
                 what the next read; and the last comes before the first. Somebody has read what was yet to be done."
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
            "And {number} was done in knowledge of {}, so {value} had been replaced.",
            case.number(source)
        ),
        None => format!(
            "What {read} returned was there before every write.",
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
                "{} must be older than {}: somebody who could have known {} read what {} wrote.",
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
            "So {} comes before {}, which read nothing all the same.",
            case.number(edge.to),
            case.number(edge.from)
        ),
        None => "Together with what the same client did before, and with who read whose writes, that goes in a circle: follow \
                 the steps below."
            .into(),
    });
    let (title, means) = match is_memory {
        true => (
            "one client's reads fit no order of what it could have known (CM)",
            "Each read alone can be explained, but not all reads of one client together.",
        ),
        false => (
            "clients have seen writes in orders that do not fit together (CCv)",
            "Each read alone can be explained. But a store in which one order of the writes wins everywhere, as where the last \
             writer wins, does not show this.",
        ),
    };
    words.insert(0, means.into());
    words.push(SO_NOT.into());
    Explanation::new(title, words, witness.clone())
}
