//! CM: for each session, whether the writes in its past can be ordered so that its own reads fit.
//!
//! *Happens before* for a session is causal order and: if a write `w'` happens before a read of the session that has seen `w`, on the
//! same key, then `w'` happens before `w`. One such step can lead to others, so it is computed as a fixed point. CM holds if no session's
//! happens-before has a cycle or puts a write before a read of nothing (Bouajjani and others, 2017).
//!
//! Two facts keep the work small. Of each node only the *reach* is needed: the least position in the session that it happens before; it
//! then happens before all later ones. And of each write only one conflict is needed. Let the session have read `w1`, `w2`, .. of a
//! key, sorted by when it read each for the last time, at `p1 < p2 < ..`. Each precedes the next, because it was known when the
//! next was read. So a write with reach `e` must precede the first `wi` with `e <= pi`, and the rest follows:
//!
//! ```text
//!   e(w') = min over what follows w' causally, and e(wi) for the first i with e(w') <= pi and wi != w'
//! ```
//!
//! Reaches only fall. A round visits all nodes against causal order; most traces need two or three rounds.
use super::{
    Verdict,
    graph::{Graph, NONE},
    order::Scheduler,
    paths::{Argument, Step, shortest, shortest_cycle},
};
use crate::{Because, Kind, Value, Witness};
use std::collections::{HashMap, HashSet};

/// Judges a trace that has CC, and visits at most this number of operations. `order` respects causal order.
pub(super) fn judge(graph: &Graph, order: &[u32], max: usize) -> Verdict {
    let mut steps = 0;
    let mut past = Past::new(graph, order);
    // The least work: two rounds and the search for a cycle.
    if (graph.len() * graph.sessions()).saturating_mul(3) > max {
        return Verdict::Undecided;
    }
    for session in 0..graph.sessions() {
        past.enter(session);
        loop {
            steps += graph.len();
            if steps > max {
                return Verdict::Undecided;
            }
            if !past.round() {
                break;
            }
        }
        steps += graph.len();
        if let Some(witness) = past.before_nothing().or_else(|| past.cycle()) {
            return Verdict::Broken(witness);
        }
    }
    Verdict::Holds
}

/// A write must precede another, because it is in the session's past at this position, where the session read the other.
#[derive(Clone, Copy)]
struct Conflict {
    older: u32,
    newer: u32,
    position: u32,
}

/// The past of a session.
struct Past<'g, 'h> {
    graph: &'g Graph<'h>,
    order: &'g [u32],
    session: usize,
    /// For each node the least position that it happens before, or that it has; [`NONE`] for what is not in the past.
    reach: Vec<u32>,
    /// For each write the write that it was last found to conflict with.
    newer: Vec<u32>,
    /// What the session has read: key, position of the last time, write. Sorted.
    seen: Vec<(u32, u32, u32)>,
    /// For each key its part of `seen`.
    seen_of: Vec<(u32, u32)>,
    /// For each key where the session last read nothing, plus one; 0 if never.
    nothing: Vec<u32>,
    /// The conflicts in the order in which they were found: each follows from causal order and earlier conflicts.
    conflicts: Vec<Conflict>,
}

impl<'g, 'h> Past<'g, 'h> {
    fn new(graph: &'g Graph<'h>, order: &'g [u32]) -> Past<'g, 'h> {
        Past {
            graph,
            order,
            session: 0,
            reach: Vec::new(),
            newer: Vec::new(),
            seen: Vec::new(),
            seen_of: Vec::new(),
            nothing: Vec::new(),
            conflicts: Vec::new(),
        }
    }

    fn enter(&mut self, session: usize) {
        let (graph, keys) = (self.graph, self.graph.history.keys.len());
        self.session = session;
        refill(&mut self.reach, NONE, graph.len());
        refill(&mut self.newer, NONE, graph.len());
        refill(&mut self.seen_of, (0, 0), keys);
        refill(&mut self.nothing, 0, keys);
        self.conflicts.clear();
        self.seen.clear();
        let mut known = HashSet::new();
        for (position, node) in graph.chain(session).enumerate().rev() {
            self.reach[node as usize] = position as u32;
            for (read, source) in graph.sources(node) {
                if graph.is_read(read) && known.insert(source) {
                    let key = graph.history.operations[read as usize].key;
                    self.seen.push((key, position as u32, source));
                }
            }
            for &read in graph.operations(node) {
                let operation = &graph.history.operations[read as usize];
                if operation.kind == Kind::Read && operation.value == Value::INITIAL {
                    let last = &mut self.nothing[operation.key as usize];
                    *last = (*last).max(position as u32 + 1);
                }
            }
        }
        self.seen.sort_unstable();
        for (place, &(key, _, _)) in self.seen.iter().enumerate() {
            let (first, end) = &mut self.seen_of[key as usize];
            if *end == 0 {
                *first = place as u32;
            }
            *end = place as u32 + 1;
        }
    }

    /// Visits the past once. Returns whether anything has changed.
    fn round(&mut self) -> bool {
        let mut has_changed = false;
        for place in (0..self.order.len()).rev() {
            let node = self.order[place];
            if self.reach[node as usize] == NONE {
                continue;
            }
            has_changed |= self.conflict(node);
            let reach = self.reach[node as usize];
            let sources = self.graph.sources(node).map(|(_, source)| source);
            for before in sources.chain(self.graph.before(node)) {
                let theirs = &mut self.reach[before as usize];
                // What is reached for the first time comes later in this round.
                has_changed |= *theirs > reach;
                *theirs = (*theirs).min(reach);
            }
        }
        has_changed
    }

    /// Finds what a write must precede. Returns whether its reach falls.
    fn conflict(&mut self, node: u32) -> bool {
        let Some(key) = self.graph.wrote(node) else {
            return false;
        };
        let (first, end) = self.seen_of[key as usize];
        let seen = &self.seen[first as usize..end as usize];
        let reach = self.reach[node as usize];
        let next = seen.partition_point(|&(_, position, _)| position < reach);
        let Some(&(_, position, newer)) = seen[next..].iter().find(|&&(_, _, write)| write != node) else {
            return false;
        };
        if self.newer[node as usize] != newer {
            self.newer[node as usize] = newer;
            self.conflicts.push(Conflict {
                older: node,
                newer,
                position,
            });
        }
        let theirs = self.reach[newer as usize];
        self.reach[node as usize] = reach.min(theirs);
        theirs < reach
    }

    /// A write that happens before a read of nothing.
    fn before_nothing(&self) -> Option<Witness> {
        let is_before = |node: u32| {
            let nothing = self.graph.wrote(node).map(|key| self.nothing[key as usize]);
            nothing.is_some_and(|nothing| self.reach[node as usize] < nothing)
        };
        let &write = self.order.iter().find(|&&node| is_before(node))?;
        let key = self.graph.first_of(write).key;
        let chain = self.graph.chain(self.session);
        let read = chain.start + self.nothing[key as usize] - 1;
        let newest = self.conflicts.len();
        let steps = self.path(read, newest, |node| node == write);
        let mut argument = Argument::new(self.graph);
        self.argue(&mut argument, steps);
        let is_nothing = |place: &&u32| {
            let operation = &self.graph.history.operations[**place as usize];
            operation.key == key && operation.value == Value::INITIAL
        };
        let mut reads = self.graph.operations(read).iter();
        let read = *reads.find(is_nothing).expect("nothing was read there") as usize;
        argument.edge(read, argument.operation(write), Because::Overwritten);
        Some(argument.finish())
    }

    /// A cycle of happens-before.
    fn cycle(&self) -> Option<Witness> {
        let graph = self.graph;
        // For each write its first conflict, and for each conflict the next of the same write.
        let (mut first, mut next) = (vec![NONE; graph.len()], vec![NONE; graph.len()]);
        for &node in self.order {
            let newer = self.newer[node as usize];
            if newer != NONE {
                next[node as usize] = first[newer as usize];
                first[newer as usize] = node;
            }
        }
        let (first, next) = (&first, &next);
        let older = |node: u32| {
            let listed = |node: u32| Some(node).filter(|&node| node != NONE);
            let following = move |&node: &u32| listed(next[node as usize]);
            std::iter::successors(listed(first[node as usize]), following)
        };
        let mut scheduler = Scheduler::new(graph);
        let needs = |node: u32, done: &[bool]| {
            let is_open = |node: &u32| !done[*node as usize];
            let before = graph.before(node).filter(is_open);
            before
                .or_else(|| graph.sources(node).map(|(_, source)| source).find(is_open))
                .or_else(|| older(node).find(is_open))
        };
        scheduler.run(needs);
        let nodes = scheduler.stuck(needs)?;
        let mut argument = Argument::new(graph);
        let steps = shortest_cycle(graph, &nodes, |node, writes| writes.extend(older(node)));
        self.argue(&mut argument, steps);
        Some(argument.finish())
    }

    /// The shortest path by causal order and the conflicts before one of them.
    fn path(&self, end: u32, conflict: usize, start: impl Fn(u32) -> bool) -> Vec<Step> {
        let mut older_of: HashMap<u32, Vec<u32>> = HashMap::new();
        for conflict in &self.conflicts[..conflict] {
            older_of.entry(conflict.newer).or_default().push(conflict.older);
        }
        let older = |node: u32, writes: &mut Vec<u32>| {
            writes.extend(older_of.get(&node).into_iter().flatten());
        };
        shortest(self.graph, end, older, start).expect("a conflict follows from earlier ones")
    }

    /// Adds steps, and for each conflict among them the reason, down to causal order.
    fn argue(&self, argument: &mut Argument, steps: Vec<Step>) {
        let (mut open, mut argued) = (vec![steps], HashSet::new());
        while let Some(steps) = open.pop() {
            argument.path(&steps);
            for (older, newer, because) in steps {
                if because != Because::Conflict || !argued.insert((older, newer)) {
                    continue;
                }
                let is_it = |conflict: &Conflict| (conflict.older, conflict.newer) == (older, newer);
                let place = self.conflicts.iter().position(is_it);
                let place = place.expect("it was found once");
                let read = self.graph.chain(self.session).start + self.conflicts[place].position;
                argument.path(&[(newer, read, Because::ReadsFrom)]);
                open.push(self.path(read, place, |node| node == older));
            }
        }
    }
}

fn refill<T: Clone>(all: &mut Vec<T>, value: T, count: usize) {
    all.clear();
    all.resize(count, value);
}
