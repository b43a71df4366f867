//! Dumb ways to the same answers, straight from the definitions, on random small traces: causal and sequential consistency.
//!
//! The definitions speak of orders, not of patterns or cycles: CC asks, for each read, for an order of its past in which it fits; CM, for
//! each session, for one order in which all of its reads fit; CCv for one order for all. They are tried one after the other.
mod common;

use common::{any_trace, with_taken_away};
use turnbuckle_check::{Causal, History, Kind, Value, Verdict, Witness, causal, causal_within};
use turnbuckle_workload::Random;

const TRACES: u64 = 100_000;

/// A trace as sets of operations, one bit each.
struct Sets<'a> {
    history: &'a History,
    sessions: Vec<Vec<usize>>,
    /// For each operation what causally precedes it; itself if there is a cycle.
    past: Vec<u32>,
}

impl<'a> Sets<'a> {
    fn of(history: &'a History) -> Sets<'a> {
        let sessions = history.sessions();
        let mut past = vec![0_u32; history.operations.len()];
        for session in &sessions {
            for (position, &place) in session.iter().enumerate() {
                for &before in &session[..position] {
                    let [first, second] = [before, place].map(|place| &history.operations[place]);
                    if first.kind != Kind::UnknownWrite && first.record != second.record {
                        past[place] |= 1 << before;
                    }
                }
            }
        }
        for (place, operation) in history.operations.iter().enumerate() {
            if operation.kind == Kind::Read
                && let Some(write) = history.keys[operation.key as usize].writers[operation.value.index()]
            {
                // What one read of a snapshot has seen, all have.
                let same =
                    (0..past.len()).filter(|&other| history.operations[other].record == operation.record);
                same.for_each(|other| past[other] |= 1 << write);
                past[place] |= 1 << write;
            }
        }
        for &(delete, put) in &history.taken_away {
            past[delete] |= 1 << put;
        }
        for _ in 0..past.len() {
            for place in 0..past.len() {
                let before = (0..past.len()).filter(|before| past[place] & 1 << before != 0);
                past[place] = before.fold(past[place], |all, before| all | past[before]);
            }
        }
        Sets {
            history,
            sessions,
            past,
        }
    }

    fn writes(&self) -> u32 {
        self.all(|place| self.history.operations[place].kind != Kind::Read)
    }

    fn all(&self, which: impl Fn(usize) -> bool) -> u32 {
        (0..self.past.len())
            .filter(|&place| which(place))
            .fold(0, |all, place| all | 1 << place)
    }

    fn is_sane(&self) -> bool {
        (0..self.past.len()).all(|place| self.past[place] & 1 << place == 0 && !self.is_phantom(place))
    }

    fn is_phantom(&self, place: usize) -> bool {
        let operation = &self.history.operations[place];
        operation.kind == Kind::Read && self.history.keys[operation.key as usize].is_phantom(operation.value)
    }

    /// Whether some order of these operations respects causal order and explains these reads.
    fn is_explained(&self, which: u32, done: u32, reads: u32, values: &mut Vec<Value>) -> bool {
        if done == which {
            return true;
        }
        (0..self.past.len()).any(|place| {
            let is_next = which & !done & 1 << place != 0 && self.past[place] & which & !done == 0;
            let operation = &self.history.operations[place];
            let key = operation.key as usize;
            let is_read = operation.kind == Kind::Read;
            if !is_next || is_read && reads & 1 << place != 0 && values[key] != operation.value {
                return false;
            }
            let before = values[key];
            if !is_read {
                values[key] = operation.value;
            }
            let is_explained = self.is_explained(which, done | 1 << place, reads, values);
            values[key] = before;
            is_explained
        })
    }

    fn explains(&self, which: u32, reads: u32) -> bool {
        self.is_explained(
            which,
            0,
            reads,
            &mut vec![Value::INITIAL; self.history.keys.len()],
        )
    }

    /// Reads that no order of their past explains.
    fn unexplained(&self) -> usize {
        let fits = |&place: &usize| {
            let read = &self.history.operations[place];
            let same_key = self.all(|other| self.history.operations[other].key == read.key);
            let which = self.past[place] & self.writes() & same_key | 1 << place;
            read.kind != Kind::Read || self.explains(which, 1 << place)
        };
        (0..self.past.len()).filter(|place| !fits(place)).count()
    }

    fn is_memory(&self) -> bool {
        self.sessions.iter().all(|session| {
            let reads = session
                .iter()
                .filter(|&&place| self.history.operations[place].kind == Kind::Read)
                .fold(0, |all, place| all | 1 << place);
            let past = session.iter().fold(0, |all, &place| all | self.past[place]);
            self.explains(past & self.writes() | reads, reads)
        })
    }

    /// Whether writes can be ordered once for all: each read has seen the last one in its past.
    fn is_convergent(&self, done: u32, hopeless: &mut Vec<bool>) -> bool {
        let writes = self.writes();
        if done == writes {
            return self.no_read_of_nothing_knows_a_write();
        }
        if hopeless[done as usize] {
            return false;
        }
        let found = (0..self.past.len()).any(|place| {
            let write = &self.history.operations[place];
            let is_next = writes & !done & 1 << place != 0 && self.past[place] & writes & !done == 0;
            // It becomes the last so far: nobody who knows it has seen an earlier one.
            let fits = |reader: usize| {
                let read = &self.history.operations[reader];
                let source = self.history.keys[read.key as usize].writers[read.value.index()];
                read.kind != Kind::Read
                    || read.key != write.key
                    || self.past[reader] & 1 << place == 0
                    || source.is_none_or(|source| done & 1 << source == 0)
            };
            is_next && (0..self.past.len()).all(fits) && self.is_convergent(done | 1 << place, hopeless)
        });
        hopeless[done as usize] = !found;
        found
    }

    fn no_read_of_nothing_knows_a_write(&self) -> bool {
        (0..self.past.len()).all(|place| {
            let read = &self.history.operations[place];
            let on_key = self.all(|other| self.history.operations[other].key == read.key);
            read.kind != Kind::Read
                || read.value != Value::INITIAL
                || self.past[place] & self.writes() & on_key == 0
        })
    }
}

/// Reads of one client that follow each other become snapshots, some of them.
fn with_snapshots(mut history: History, seed: u64) -> History {
    let mut random = Random::new(seed, 1);
    for session in history.sessions() {
        for pair in session.windows(2) {
            let [first, second] = [pair[0], pair[1]].map(|place| history.operations[place]);
            if first.kind == Kind::Read && second.kind == Kind::Read && random.below(2) == 0 {
                let second = &mut history.operations[pair[1]];
                (second.record, second.start, second.finish) = (first.record, first.start, first.finish);
            }
        }
    }
    history
}

/// A trace in a few words.
fn shown(history: &History) -> String {
    let shown = history.operations.iter().map(|operation| {
        format!(
            "{:?}{}:k{}={}",
            operation.kind,
            operation.client,
            operation.key,
            operation.value.index()
        )
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// The part of a trace that a witness names.
fn only(history: &History, witness: &Witness) -> History {
    let mut part = history.clone();
    let mut moved = vec![None; history.operations.len()];
    part.operations.clear();
    for (place, operation) in history.operations.iter().enumerate() {
        if witness.operations.contains(&place) {
            moved[place] = Some(part.operations.len());
            part.operations.push(*operation);
        }
    }
    for key in &mut part.keys {
        for writer in &mut key.writers {
            *writer = writer.and_then(|writer| moved[writer]);
        }
    }
    let taken_away = history.taken_away.iter();
    part.taken_away = taken_away
        .filter_map(|&(delete, put)| Some((moved[delete]?, moved[put]?)))
        .collect();
    part
}

fn witness(verdict: &Verdict) -> Option<&Witness> {
    match verdict {
        Verdict::Broken(witness) => Some(witness),
        Verdict::Holds | Verdict::Undecided => None,
    }
}

#[derive(Default, Debug)]
struct Counts {
    judged: u32,
    cc: u32,
    ccv: u32,
    cm: u32,
    cm_only: u32,
    ccv_only: u32,
    cc_only: u32,
    cycles: u32,
    max_witness_operations: usize,
}

fn compare(history: &History, counts: &mut Counts, about: &str) {
    let sets = Sets::of(history);
    let found: Causal = causal(history);
    let is_sane = sets.is_sane();
    let unexplained = sets.unexplained();
    let cc = is_sane && unexplained == 0;
    let ccv = cc && sets.is_convergent(0, &mut vec![false; 1 << history.operations.len()]);
    let cm = cc && sets.is_memory();
    let verdicts = [&found.cc, &found.ccv, &found.cm].map(Verdict::holds);
    assert_eq!(
        verdicts,
        [Some(cc), Some(ccv), Some(cm)],
        "{about}: {} {found:?}",
        shown(history)
    );
    let has_cycle = (0..sets.past.len()).any(|place| sets.past[place] & 1 << place != 0);
    let violations = found.violations.expect("decided");
    if has_cycle {
        assert!(violations > 0, "{about}: {}", shown(history));
    } else {
        // No order explains a phantom either.
        assert_eq!(violations, unexplained as u64, "{about}: {}", shown(history));
    }
    // What a witness names is wrong by itself.
    let parts =
        [&found.cc, &found.ccv, &found.cm].map(|verdict| witness(verdict).map(|it| only(history, it)));
    let again = parts.map(|part| part.map(|part| causal(&part)));
    let still = |again: &Option<Causal>, which: fn(&Causal) -> &Verdict| {
        again
            .as_ref()
            .is_none_or(|again| which(again).holds() == Some(false))
    };
    assert!(
        still(&again[0], |it| &it.cc) && still(&again[1], |it| &it.ccv) && still(&again[2], |it| &it.cm),
        "{about}: {found:?} {}",
        shown(history)
    );
    for witness in [&found.cc, &found.ccv, &found.cm].into_iter().filter_map(witness) {
        counts.max_witness_operations = counts.max_witness_operations.max(witness.operations.len());
    }
    counts.judged += 1;
    counts.cc += u32::from(cc);
    counts.ccv += u32::from(ccv);
    counts.cm += u32::from(cm);
    counts.cc_only += u32::from(cc && !ccv && !cm);
    counts.ccv_only += u32::from(ccv && !cm);
    counts.cm_only += u32::from(cm && !ccv);
    counts.cycles += u32::from(has_cycle);
}

#[test]
fn what_orders_explain_is_what_clocks_and_cycles_say() {
    let mut counts = Counts::default();
    for seed in 0..TRACES {
        if let Some(history) = any_trace(seed) {
            compare(&history, &mut counts, &format!("seed {seed}"));
        }
    }
    println!("{counts:?}");
    let Counts {
        cc_only,
        ccv_only,
        cm_only,
        cycles,
        ..
    } = counts;
    // A checker that took one of the three for another would not get through.
    assert!(
        [cc_only, ccv_only, cm_only, cycles]
            .iter()
            .all(|&count| count > 100),
        "{counts:?}"
    );
}

#[test]
fn a_snapshot_is_one_operation() {
    let (mut counts, mut worse) = (Counts::default(), 0);
    for seed in 0..TRACES / 4 {
        if let Some(history) = any_trace(seed) {
            let with_snapshots = with_snapshots(history.clone(), seed);
            compare(&with_snapshots, &mut counts, &format!("seed {seed}"));
            worse += u32::from(causal(&history).cc.holds() != causal(&with_snapshots).cc.holds());
        }
    }
    println!("{counts:?}, {worse} because of snapshots");
    assert!(worse > 100 && counts.cc > 1_000, "{counts:?}");
}

#[test]
fn a_delete_comes_after_what_it_took_away() {
    let (mut counts, mut worse, mut deletes) = (Counts::default(), 0, 0);
    for seed in 0..TRACES {
        if let Some(history) = any_trace(seed) {
            let with_deletes = with_taken_away(history.clone(), seed);
            compare(&with_deletes, &mut counts, &format!("seed {seed}"));
            let with_snapshots = with_snapshots(with_deletes.clone(), seed);
            compare(
                &with_snapshots,
                &mut counts,
                &format!("seed {seed} with snapshots"),
            );
            worse += u32::from(causal(&history).cc.holds() != causal(&with_deletes).cc.holds());
            deletes += with_deletes.taken_away.len();
        }
    }
    println!("{counts:?}, {deletes} deletes, {worse} worse because of them");
    assert!(worse > 100 && counts.cc > 1_000, "{counts:?}");
}

#[test]
fn what_would_take_too_long_is_not_decided() {
    let history = any_trace(2).expect("a replicated trace");
    let causal = causal_within(&history, 0);
    assert_eq!((causal.cc.holds(), causal.cm), (Some(true), Verdict::Undecided));
}
