//! Sequential consistency: one order of all operations, of all keys, that keeps each session's and explains every read.
//!
//! Time plays no part apart from the order within a session. To decide it is NP-complete (Gibbons and Korach, 1997), so there are three
//! answers. Two are cheap: a trace that is atomic is sequentially consistent, and one that is not CC, CCv and CM is not.
//! For the rest orders are searched, as Wing and Gong (1993) do, with three things that make it short:
//!
//! - A read that fits is done at once; that never excludes an order.
//! - A value is overwritten only when all of its reads are done, because it will not return.
//! - So the position in each session determines everything: what was written, and what can be overwritten. If the search reaches a
//!   state again, it goes back.
//!
//! # Caveats
//!
//! - Sessions may touch: the next operation may begin in the very nanosecond in which the one before was over. Real time does not
//!   order such a pair, a session does; so a trace with one, even if atomic, is searched. The same goes for
//!   snapshots: atomicity looks at their reads one by one; and for deletes of which it is known which value they removed, which
//!   atomicity does not check.
//! - Memory is `units` numbers per state, where a unit is a session or a write of unknown outcome.
use crate::{
    Causal, History, Kind, Value, Witness, Zones,
    causal::{Graph, Verdict},
};
use std::collections::HashSet;

/// Whether one order explains a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sequential {
    /// One order explains it.
    Yes,
    /// No order explains it. The witness shows why, unless every order had to be tried.
    No(Option<Witness>),
    /// It would take too long to find out.
    Undecided,
}

impl Sequential {
    /// Yes or no, if that is known.
    pub fn holds(&self) -> Option<bool> {
        match self {
            Sequential::Yes => Some(true),
            Sequential::No(_) => Some(false),
            Sequential::Undecided => None,
        }
    }
}

/// Judges a trace, given what is known of it already. Visits at most this number of states.
pub fn sequential(history: &History, zones: &[Zones], causal: &Causal, states: usize) -> Sequential {
    for verdict in [&causal.cc, &causal.ccv, &causal.cm] {
        if let Verdict::Broken(witness) = verdict {
            return Sequential::No(Some(witness.clone()));
        }
    }
    let Some(graph) = Graph::of(history) else {
        return Sequential::Undecided;
    };
    let is_told_by_zones = history.taken_away.is_empty() && keeps_sessions(&graph);
    if zones.iter().all(Zones::is_atomic) && is_told_by_zones {
        return Sequential::Yes;
    }
    Search::new(&graph).run(states)
}

/// Whether time orders each session, so that an order that respects time respects them.
fn keeps_sessions(graph: &Graph) -> bool {
    (0..graph.len() as u32).all(|node| {
        let is_after = |before: u32| graph.first_of(before).finish < graph.first_of(node).start;
        graph.operations(node).len() == 1 && graph.before(node).is_none_or(is_after)
    })
}

struct Search<'g, 'h> {
    graph: &'g Graph<'h>,
    /// For each unit (a chain, or a write of unknown outcome) its next node, and where it ends.
    next: Vec<u32>,
    end: Vec<u32>,
    /// For each key the value that it has.
    values: Vec<Value>,
    /// For each key and value, how many of its reads are to be done.
    awaited: Vec<Vec<u32>>,
    /// The units that went on, and the value that the key had before, for going back.
    trail: Vec<(u32, Value)>,
}

/// A state of the search: the length of the trail that led to it, and the writes that are still to be tried, the next one last.
struct Branch {
    trail: usize,
    units: Vec<u32>,
}

impl<'g, 'h> Search<'g, 'h> {
    fn new(graph: &'g Graph<'h>) -> Search<'g, 'h> {
        let history = graph.history;
        let mut awaited: Vec<Vec<u32>> = history.keys.iter().map(|key| vec![0; key.values.len()]).collect();
        for read in history
            .operations
            .iter()
            .filter(|operation| operation.kind == Kind::Read)
        {
            awaited[read.key as usize][read.value.index()] += 1;
        }
        let chains = (0..graph.sessions()).map(|session| graph.chain(session));
        let unknown = graph.chained() as u32..graph.len() as u32;
        let units = chains.chain(unknown.map(|node| node..node + 1));
        let (next, end) = units.map(|unit| (unit.start, unit.end)).unzip();
        Search {
            graph,
            next,
            end,
            values: vec![Value::INITIAL; history.keys.len()],
            awaited,
            trail: Vec::new(),
        }
    }

    fn run(mut self, states: usize) -> Sequential {
        let mut seen: HashSet<Box<[u32]>> = HashSet::new();
        let mut branches: Vec<Branch> = Vec::new();
        loop {
            self.do_reads();
            if self.next == self.end {
                return Sequential::Yes;
            }
            if !seen.contains(self.next.as_slice()) {
                if seen.len() >= states {
                    return Sequential::Undecided;
                }
                seen.insert(self.next.clone().into());
                branches.push(Branch {
                    trail: self.trail.len(),
                    units: self.choices(),
                });
            }
            // Back to where something is left to be tried.
            let unit = loop {
                let Some(branch) = branches.last_mut() else {
                    return Sequential::No(None);
                };
                let (trail, unit) = (branch.trail, branch.units.pop());
                self.go_back(trail);
                match unit {
                    Some(unit) => break unit,
                    None => drop(branches.pop()),
                }
            };
            self.go_on(unit);
        }
    }

    /// Units that could write now. Those that began first are tried first: in most stores the order is close to that of time.
    fn choices(&self) -> Vec<u32> {
        let mut units: Vec<u32> = (0..self.next.len() as u32)
            .filter(|&unit| self.can_write(unit as usize))
            .collect();
        let start = |unit: u32| self.graph.first_of(self.next[unit as usize]).start;
        units.sort_by_key(|&unit| std::cmp::Reverse((start(unit), unit)));
        units
    }

    fn can_write(&self, unit: usize) -> bool {
        let node = self.next[unit];
        if node == self.end[unit] {
            return false;
        }
        let write = self.graph.first_of(node);
        let key = write.key as usize;
        let is_over = |before: u32| self.next[self.graph.session(before)] > before;
        let is_done = |source: u32| match self.graph.is_unknown(source) {
            true => self.next[self.graph.sessions() + source as usize - self.graph.chained()] > source,
            false => is_over(source),
        };
        let has_seen = self.graph.sources(node).all(|(_, source)| is_done(source));
        has_seen
            && write.kind != Kind::Read
            && self.awaited[key][self.values[key].index()] == 0
            && (!self.graph.is_unknown(node) || self.graph.before(node).is_none_or(is_over))
    }

    fn do_reads(&mut self) {
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for unit in 0..self.graph.sessions() {
                while self.can_read(unit) {
                    self.go_on(unit as u32);
                    goes_on = true;
                }
            }
        }
    }

    fn can_read(&self, unit: usize) -> bool {
        let node = self.next[unit];
        node < self.end[unit]
            && self.graph.operations(node).iter().all(|&place| {
                let operation = &self.graph.history.operations[place as usize];
                operation.kind == Kind::Read && self.values[operation.key as usize] == operation.value
            })
    }

    fn go_on(&mut self, unit: u32) {
        let node = self.next[unit as usize];
        let first = self.graph.first_of(node);
        let value = &mut self.values[first.key as usize];
        self.trail.push((unit, *value));
        if first.kind == Kind::Read {
            self.await_reads(node, false);
        } else {
            *value = first.value;
        }
        self.next[unit as usize] += 1;
    }

    fn go_back(&mut self, trail: usize) {
        while self.trail.len() > trail {
            let Some((unit, value)) = self.trail.pop() else {
                return;
            };
            self.next[unit as usize] -= 1;
            let node = self.next[unit as usize];
            let first = self.graph.first_of(node);
            if first.kind == Kind::Read {
                self.await_reads(node, true);
            } else {
                self.values[first.key as usize] = value;
            }
        }
    }

    fn await_reads(&mut self, node: u32, again: bool) {
        for &place in self.graph.operations(node) {
            let read = &self.graph.history.operations[place as usize];
            let awaited = &mut self.awaited[read.key as usize][read.value.index()];
            *awaited = if again { *awaited + 1 } else { *awaited - 1 };
        }
    }
}
