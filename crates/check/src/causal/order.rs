//! An order that respects precedence, or a cycle.
//!
//! Sessions run side by side. A session that needs a node that is not done yet waits for the node, and is woken when it is done. If all
//! sessions wait, then following each to what it waits for leads into a cycle. O(n) steps, apart from looking for what a node needs.
use super::graph::{Graph, NONE};
use std::collections::{HashMap, HashSet};

pub(super) struct Scheduler<'g, 'h> {
    graph: &'g Graph<'h>,
    done: Vec<bool>,
    order: Vec<u32>,
    /// For each unit (a chain, or a write of unknown outcome), its next node, and where it ends.
    next: Vec<(u32, u32)>,
    ready: Vec<u32>,
    /// The units that wait for a node. A unit that no longer waits may still be in the list; waking it again does no harm.
    waiting: HashMap<u32, Vec<u32>>,
    /// All units before this one are done.
    through: usize,
}

impl<'g, 'h> Scheduler<'g, 'h> {
    pub fn new(graph: &'g Graph<'h>) -> Scheduler<'g, 'h> {
        let chains = (0..graph.sessions()).map(|session| graph.chain(session));
        let unknown = graph.chained() as u32..graph.len() as u32;
        let next: Vec<(u32, u32)> = chains
            .map(|chain| (chain.start, chain.end))
            .chain(unknown.map(|node| (node, node + 1)))
            .collect();
        Scheduler {
            graph,
            done: vec![false; graph.len()],
            order: Vec::with_capacity(graph.len()),
            ready: (0..next.len() as u32).rev().collect(),
            next,
            waiting: HashMap::new(),
            through: 0,
        }
    }

    /// Goes on until everything is done or waits. `needs` says which node has to be done before another and is not yet.
    pub fn run(&mut self, needs: impl Fn(u32, &[bool]) -> Option<u32>) {
        while let Some(unit) = self.ready.pop() {
            while self.next[unit as usize].0 < self.next[unit as usize].1 {
                let node = self.next[unit as usize].0;
                if let Some(needed) = needs(node, &self.done) {
                    self.waiting.entry(needed).or_default().push(unit);
                    break;
                }
                self.next[unit as usize].0 += 1;
                self.done[node as usize] = true;
                self.order.push(node);
                if let Some(woken) = self.waiting.remove(&node) {
                    self.ready.extend(woken);
                }
            }
        }
    }

    fn unit(&self, node: u32) -> usize {
        if self.graph.is_unknown(node) {
            self.graph.sessions() + node as usize - self.graph.chained()
        } else {
            self.graph.session(node)
        }
    }

    /// If not everything is done: nodes that wait for each other. Each needs a node that its successor's unit has not done yet.
    pub fn stuck(&mut self, needs: impl Fn(u32, &[bool]) -> Option<u32>) -> Option<Vec<u32>> {
        while self.through < self.next.len() && self.next[self.through].0 == self.next[self.through].1 {
            self.through += 1;
        }
        let mut node = self.next.get(self.through)?.0;
        let (mut path, mut seen) = (Vec::new(), HashMap::new());
        while !seen.contains_key(&node) {
            seen.insert(node, path.len());
            path.push(node);
            let needed = needs(node, &self.done).expect("what is not done waits for something");
            node = self.next[self.unit(needed)].0;
        }
        Some(path.split_off(seen[&node]))
    }

    /// Lets a unit try again whose next node needs less than it did.
    fn free(&mut self, node: u32) {
        self.ready.push(self.unit(node) as u32);
    }
}

/// Reads whose source comes after them.
#[derive(Default)]
pub(super) struct Cycles {
    /// Their places among the operations.
    reads: HashSet<u32>,
    /// The first cycle that was found.
    first: Option<Vec<u32>>,
}

impl Cycles {
    /// All such reads, in no order.
    pub fn reads(&self) -> impl Iterator<Item = u32> {
        self.reads.iter().copied()
    }

    pub fn contains(&self, read: u32) -> bool {
        !self.reads.is_empty() && self.reads.contains(&read)
    }

    /// Nodes on it, not all of them.
    pub fn first_cycle(&self) -> Option<&[u32]> {
        self.first.as_deref()
    }
}

/// All nodes in causal order. Where that has a cycle, one of its reads is skipped.
pub(super) fn causal(graph: &Graph) -> (Vec<u32>, Cycles) {
    let mut scheduler = Scheduler::new(graph);
    let mut cycles = Cycles::default();
    loop {
        let needs = |node: u32, done: &[bool]| needed(graph, &cycles, node, done).map(|(node, _)| node);
        scheduler.run(needs);
        let Some(cycle) = scheduler.stuck(needs) else {
            return (scheduler.order, cycles);
        };
        let mut reads = cycle.iter().filter_map(|&node| {
            let (_, read) = needed(graph, &cycles, node, &scheduler.done)?;
            (read != NONE).then_some((node, read))
        });
        let (node, read) = reads.next().expect("session order alone has no cycle");
        cycles.reads.insert(read);
        cycles.first.get_or_insert(cycle);
        scheduler.free(node);
    }
}

/// A node that must be done first, and the read that needs it, if it is needed by a read.
fn needed(graph: &Graph, cycles: &Cycles, node: u32, done: &[bool]) -> Option<(u32, u32)> {
    let is_open = |node: u32| !done[node as usize];
    if graph.is_unknown(node) {
        return graph
            .before(node)
            .filter(|&before| is_open(before))
            .map(|before| (before, NONE));
    }
    graph
        .sources(node)
        .find(|&(read, source)| is_open(source) && !cycles.contains(read))
        .map(|(read, source)| (source, read))
}
