//! Witnesses: the shortest way from one operation to another.
//!
//! Consecutive steps within a session count as one. The search goes backward, from an operation to what precedes it, in order of
//! the number of steps, and stops as soon as it can. Several starting points are tried and the shortest result is
//! taken; so a witness is short, and small traces get the shortest there is, but a long one may hide a shorter.
use super::{clocks::Clocks, graph::Graph};
use crate::{Because, Edge, Kind, Witness};
use std::collections::{HashSet, VecDeque};

/// How many cycles are compared to find a short one.
const CYCLES: usize = 16;

/// One node precedes another.
pub(super) type Step = (u32, u32, Because);

/// A node that the search has visited.
struct Visit {
    node: u32,
    /// The step that leads on from here, and where it leads: a place among the visits.
    next: Option<(Because, usize)>,
}

impl Visit {
    fn is_in_session(&self) -> bool {
        matches!(self.next, Some((Because::Session, _)))
    }
}

/// The shortest path to `end`, of one step at least, from a node that is a `start`. `older` adds the conflicts that
/// precede a node.
pub(super) fn shortest(
    graph: &Graph,
    end: u32,
    older: impl Fn(u32, &mut Vec<u32>),
    start: impl Fn(u32) -> bool,
) -> Option<Vec<Step>> {
    let mut visits = vec![Visit {
        node: end,
        next: None,
    }];
    let (mut done, mut queue, mut conflicts) = (HashSet::new(), VecDeque::from([0]), Vec::new());
    while let Some(place) = queue.pop_front() {
        let (node, in_session) = (visits[place].node, visits[place].is_in_session());
        if place > 0 {
            if start(node) {
                return Some(steps(&visits, place));
            }
            if !done.insert((node, in_session)) {
                continue;
            }
        }
        let mut visit = |node, because, queue: &mut VecDeque<usize>| {
            // One more step in the same session is free.
            if in_session && because == Because::Session {
                queue.push_front(visits.len());
            } else {
                queue.push_back(visits.len());
            }
            visits.push(Visit {
                node,
                next: Some((because, place)),
            });
        };
        for (_, source) in graph.sources(node) {
            visit(source, Because::ReadsFrom, &mut queue);
        }
        conflicts.clear();
        older(node, &mut conflicts);
        for &write in &conflicts {
            visit(write, Because::Conflict, &mut queue);
        }
        if let Some(before) = graph.before(node) {
            visit(before, Because::Session, &mut queue);
        }
    }
    None
}

/// From a visit to the end, steps within a session joined.
fn steps(visits: &[Visit], mut place: usize) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    while let Some((because, next)) = visits[place].next {
        let (from, to) = (visits[place].node, visits[next].node);
        match steps.last_mut() {
            Some((_, end, Because::Session)) if because == Because::Session => *end = to,
            _ => steps.push((from, to, because)),
        }
        place = next;
    }
    steps
}

/// No conflicts.
pub(super) fn none(_: u32, _: &mut Vec<u32>) {}

/// A witness of one operation that no order explains.
pub(super) fn alone(place: usize) -> Witness {
    Witness {
        operations: vec![place],
        edges: Vec::new(),
    }
}

/// Collects steps, and names operations instead of nodes.
pub(super) struct Argument<'g, 'h> {
    graph: &'g Graph<'h>,
    witness: Witness,
}

impl<'g, 'h> Argument<'g, 'h> {
    pub fn new(graph: &'g Graph<'h>) -> Argument<'g, 'h> {
        Argument {
            graph,
            witness: Witness::default(),
        }
    }

    pub fn path(&mut self, steps: &[Step]) {
        for &(from, to, because) in steps {
            let entered = match because {
                Because::ReadsFrom => self.reader(to, from),
                _ => self.operation(to),
            };
            let left = self.operation(from);
            self.edge(left, entered, because);
        }
    }

    pub fn edge(&mut self, from: usize, to: usize, because: Because) {
        for operation in [from, to] {
            if !self.witness.operations.contains(&operation) {
                self.witness.operations.push(operation);
            }
        }
        let edge = Edge { from, to, because };
        if !self.witness.edges.contains(&edge) {
            self.witness.edges.push(edge);
        }
    }

    /// The node's operation; of a snapshot the read that was named already, or its first.
    pub fn operation(&self, node: u32) -> usize {
        let mut places = self.graph.operations(node).iter().map(|&place| place as usize);
        let named = places
            .clone()
            .find(|place| self.witness.operations.contains(place));
        named
            .or_else(|| places.next())
            .expect("a node is an operation or more")
    }

    /// The read in a node that has seen a write.
    fn reader(&self, node: u32, write: u32) -> usize {
        let mut sources = self.graph.sources(node);
        let read = sources.find(|&(_, source)| source == write);
        read.expect("somebody has read it").0 as usize
    }

    pub fn finish(self) -> Witness {
        self.witness
    }
}

/// A cycle in causal order, through one of these nodes.
pub(super) fn causal_cycle(graph: &Graph, nodes: &[u32]) -> Witness {
    let mut argument = Argument::new(graph);
    argument.path(&shortest_cycle(graph, nodes, none));
    argument.finish()
}

pub(super) fn shortest_cycle(graph: &Graph, nodes: &[u32], older: impl Fn(u32, &mut Vec<u32>)) -> Vec<Step> {
    let cycles = nodes.iter().take(CYCLES);
    let cycles = cycles.filter_map(|&node| shortest(graph, node, &older, |start| start == node));
    cycles
        .min_by_key(Vec::len)
        .expect("a node on a cycle leads back to itself")
}

/// A write that a read has missed: the source precedes it, and it precedes the read.
pub(super) fn overwritten(graph: &Graph, order: &[u32], reads: &[u32]) -> Witness {
    let witnesses = reads.iter().map(|&read| missed(graph, order, read));
    let shortest = witnesses.min_by_key(|witness| (witness.operations.len(), witness.edges.len()));
    shortest.expect("some read has missed a write")
}

fn missed(graph: &Graph, order: &[u32], read: u32) -> Witness {
    let (node, key) = (
        graph.node(read as usize),
        graph.history.operations[read as usize].key,
    );
    let source = graph.source(read);
    let after = source.map(|source| after(graph, order, source));
    let is_missed = |write: u32| {
        let operation = graph.first_of(write);
        operation.kind != Kind::Read
            && operation.key == key
            && after
                .as_ref()
                .is_none_or(|after| after[write as usize] && Some(write) != source)
    };
    let to_read = shortest(graph, node, none, is_missed).expect("a missed write precedes the read");
    let write = to_read[0].0;
    let mut argument = Argument::new(graph);
    if let Some(source) = source {
        let to_write = shortest(graph, write, none, |start| start == source);
        argument.path(&to_write.expect("the source precedes what was missed"));
    }
    argument.path(&to_read);
    if let Some(source) = source {
        argument.edge(argument.operation(source), read as usize, Because::ReadsFrom);
    }
    argument.edge(read as usize, argument.operation(write), Because::Overwritten);
    argument.finish()
}

/// For each node, whether another node precedes it or is the same.
fn after(graph: &Graph, order: &[u32], start: u32) -> Vec<bool> {
    let mut after = vec![false; graph.len()];
    after[start as usize] = true;
    for &node in order {
        let is_after = |node: u32| after[node as usize];
        if graph.before(node).is_some_and(is_after) || graph.sources(node).any(|(_, source)| is_after(source))
        {
            after[node as usize] = true;
        }
    }
    after
}

/// A cycle of causal order and conflicts through one of these nodes, and the reason of each conflict.
pub(super) fn conflict_cycle(graph: &Graph, order: &[u32], clocks: &Clocks, nodes: &[u32]) -> Witness {
    let older = |node: u32, writes: &mut Vec<u32>| writes.extend(clocks.older(node));
    let cycle = without_detours(graph, shortest_cycle(graph, nodes, older));
    let mut argument = Argument::new(graph);
    argument.path(&cycle);
    for &(older, newer, _) in cycle.iter().filter(|step| step.2 == Because::Conflict) {
        let after = after(graph, order, older);
        let has_read = |(read, source): (u32, u32)| source == newer && graph.is_read(read);
        let is_reader = |node: &&u32| after[**node as usize] && graph.sources(**node).any(has_read);
        let reader = *order
            .iter()
            .find(is_reader)
            .expect("a conflict is because of a read");
        argument.path(&[(newer, reader, Because::ReadsFrom)]);
        let known = shortest(graph, reader, none, |start| start == older);
        argument.path(&known.expect("the reader could have known the older write"));
    }
    argument.finish()
}

/// Only the last write of a session is noted as the older in a conflict. An earlier one would do as well.
fn without_detours(graph: &Graph, mut cycle: Vec<Step>) -> Vec<Step> {
    // The cycle has to begin where it does not cut a detour in two.
    if let Some(start) = cycle.iter().position(|step| step.2 == Because::Conflict) {
        cycle.rotate_left(start + 1);
    }
    let is_write = |node: u32, key: u32| {
        let operation = graph.first_of(node);
        operation.kind != Kind::Read && operation.key == key
    };
    let mut short: Vec<Step> = Vec::with_capacity(cycle.len());
    for step in cycle {
        match short.last_mut() {
            Some(last)
                if last.2 == Because::Session
                    && step.2 == Because::Conflict
                    && is_write(last.0, graph.first_of(step.1).key)
                    && last.0 != step.1 =>
            {
                *last = (last.0, step.1, Because::Conflict);
            }
            _ => short.push(step),
        }
    }
    short
}
