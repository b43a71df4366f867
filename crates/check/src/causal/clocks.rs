//! CC and CCv with one vector clock per write.
//!
//! A clock says how much of each session is in the past of a write, without itself. For each key and session there is a *run*: the
//! session's writes to the key in order. Let `r` have read `w`, and let `w'` be the last of a run in the clock of `r`.
//!
//! - If the clock of `w'` has `w`, then `r` has missed `w'`: CC is broken. An earlier write of the run cannot show
//!   more, because the later write has all of its past.
//! - Else `w'` must be older than `w` (CCv). The earlier ones are older than `w'`, so one edge per run is enough. For each `w` and
//!   session the greatest such `w'` is kept: a second vector per write. A cycle with session order and reads-from
//!   breaks CCv.
//!
//! # Writes of unknown outcome
//!
//! They are in no chain, so no clock counts them. But such a write is in the past of an operation exactly if one of its readers is. So it
//! *appears* in each session at the session's first read of it, and a run contains such appearances too. An appearance's clock is the join of
//! the write's clock and of the clocks before it in the run, so that again the last of a run has everything that the earlier ones have.
use super::{
    graph::{Graph, NONE},
    order::{Cycles, Scheduler},
};
use crate::Kind;
use std::collections::{HashMap, HashSet};

/// A write in a run.
#[derive(Clone, Copy)]
struct Entry {
    key: u32,
    session: u32,
    /// Where in the session it was written, or first read.
    position: u32,
    node: u32,
    /// The number of its visit: what causally precedes it has a lower number. From 1; 0 before the visit.
    rank: u32,
}

struct Run {
    session: u32,
    first: u32,
    end: u32,
}

pub(super) struct Clocks<'g, 'h> {
    graph: &'g Graph<'h>,
    /// All runs, one after the other.
    entries: Vec<Entry>,
    runs: Vec<Run>,
    /// The index of each key's first run, and at the end the number of runs.
    first_run: Vec<u32>,
    /// For each node that wrote, its row; [`NONE`] for others.
    rows: Vec<u32>,
    /// Rows of appearances, by reader and write.
    appearances: HashMap<(u32, u32), u32>,
    /// The appearances of each write of unknown outcome.
    appears: HashMap<u32, Vec<u32>>,
    /// A row for each entry, then one for each write of unknown outcome: how many operations of each session are in its
    /// past.
    clocks: Vec<u32>,
    /// For the same rows: the last entry, plus one, of each session that must be older; 0 if none.
    conflicts: Vec<u32>,
    /// For each session and run how much of the run was in the session's clock when that last read the key. Clocks
    /// only grow, so it is found again from there.
    known: Vec<u32>,
}

impl<'g, 'h> Clocks<'g, 'h> {
    /// `None` if there would be more numbers than `most`.
    pub fn new(graph: &'g Graph<'h>, max: usize) -> Option<Clocks<'g, 'h>> {
        let mut entries = entries(graph);
        // The write whose value a delete has deleted comes before the delete.
        let place = |entry: &Entry| (entry.key, entry.session, entry.position);
        entries.sort_unstable_by_key(|entry| (place(entry), !graph.is_unknown(entry.node), entry.node));
        // Of several reads of one write in one session, the first.
        let mut seen = HashSet::new();
        entries.retain(|entry| !graph.is_unknown(entry.node) || seen.insert((entry.session, entry.node)));
        let unknown = graph.len() - graph.chained();
        let numbers = (entries.len() + unknown).checked_mul(3 * graph.sessions())?;
        if numbers > max {
            return None;
        }
        let mut clocks = Clocks {
            graph,
            runs: Vec::new(),
            first_run: Vec::with_capacity(graph.history.keys.len() + 1),
            rows: vec![NONE; graph.len()],
            appearances: HashMap::new(),
            appears: HashMap::new(),
            clocks: vec![0; numbers / 3],
            conflicts: vec![0; numbers / 3],
            known: Vec::new(),
            entries,
        };
        clocks.index();
        clocks.known = vec![0; clocks.runs.len() * graph.sessions()];
        Some(clocks)
    }

    fn index(&mut self) {
        let unknown = self.graph.chained() as u32..self.graph.len() as u32;
        for (node, row) in unknown.zip(self.entries.len() as u32..) {
            self.rows[node as usize] = row;
        }
        for (place, entry) in self.entries.iter().enumerate() {
            let place = place as u32;
            if self.graph.is_unknown(entry.node) {
                let reader = self.graph.chain(entry.session as usize).start + entry.position;
                self.appearances.insert((reader, entry.node), place);
                self.appears.entry(entry.node).or_default().push(place);
            } else {
                self.rows[entry.node as usize] = place;
            }
            while self.first_run.len() <= entry.key as usize {
                self.first_run.push(self.runs.len() as u32);
            }
            let is_new_key = self.first_run[entry.key as usize] as usize == self.runs.len();
            match self.runs.last_mut() {
                Some(run) if !is_new_key && run.session == entry.session => run.end += 1,
                _ => self.runs.push(Run {
                    session: entry.session,
                    first: place,
                    end: place + 1,
                }),
            }
        }
        while self.first_run.len() <= self.graph.history.keys.len() {
            self.first_run.push(self.runs.len() as u32);
        }
    }

    fn row(&self, row: u32) -> &[u32] {
        let sessions = self.graph.sessions();
        &self.clocks[row as usize * sessions..][..sessions]
    }

    /// Visits all operations in causal order. Returns the places of the reads that missed a write which precedes them, and so break CC.
    pub fn run(&mut self, order: &[u32], cycles: &Cycles) -> Vec<u32> {
        let graph = self.graph;
        let sessions = graph.sessions();
        let mut now = vec![0; sessions * sessions];
        let mut unknown: Vec<_> = (0..sessions).map(|session| graph.unknown_of(session)).collect();
        let mut broken = Vec::new();
        for (&node, rank) in order
            .iter()
            .zip(1..)
            .filter(|&(&node, _)| !graph.is_unknown(node))
        {
            let session = graph.session(node);
            let clock = &mut now[session * sessions..][..sessions];
            for (_, source) in graph.sources(node).filter(|&(read, _)| !cycles.contains(read)) {
                join(clock, self.row(self.rows[source as usize]));
                if let Some((session, position)) = self.place(source) {
                    clock[session] = clock[session].max(position + 1);
                }
            }
            match self.rows[node as usize] {
                NONE => {
                    clock[session] += 1;
                    self.appear(node, rank);
                    self.read((session, node), clock, cycles, &mut broken);
                }
                row => {
                    self.appear(node, rank);
                    self.entries[row as usize].rank = rank;
                    self.clocks[row as usize * sessions..][..sessions].copy_from_slice(clock);
                    clock[session] += 1;
                }
            }
            let unknown = &mut unknown[session];
            // What comes before everything has an empty past.
            while unknown.start < unknown.end
                && graph.before(unknown.start).is_none_or(|before| before <= node)
            {
                if graph.before(unknown.start).is_some() {
                    let row = self.rows[unknown.start as usize] as usize;
                    self.clocks[row * sessions..][..sessions].copy_from_slice(clock);
                }
                unknown.start += 1;
            }
        }
        broken
    }

    fn read(&mut self, (session, node): (usize, u32), clock: &[u32], cycles: &Cycles, broken: &mut Vec<u32>) {
        for &read in self.graph.operations(node) {
            let source = self.graph.source(read);
            let operation = &self.graph.history.operations[read as usize];
            let is_phantom = source.is_none() && operation.value != crate::Value::INITIAL;
            if !is_phantom && !cycles.contains(read) && self.misses((session, operation.key), source, clock) {
                broken.push(read);
            }
        }
    }

    /// Gives writes their clocks that appear here.
    fn appear(&mut self, reader: u32, rank: u32) {
        if self.appearances.is_empty() {
            return;
        }
        let sessions = self.graph.sessions();
        for (_, source) in self.graph.sources(reader) {
            let Some(&row) = self.appearances.get(&(reader, source)) else {
                continue;
            };
            let mut clock = self.row(self.rows[source as usize]).to_vec();
            if row > 0 && self.is_in_run(row - 1, row) {
                join(&mut clock, self.row(row - 1));
            }
            self.clocks[row as usize * sessions..][..sessions].copy_from_slice(&clock);
            self.entries[row as usize].rank = rank;
        }
    }

    fn is_in_run(&self, one: u32, other: u32) -> bool {
        let (one, other) = (&self.entries[one as usize], &self.entries[other as usize]);
        (one.key, one.session) == (other.key, other.session)
    }

    /// Whether a session's read of a key, with this clock, has missed a write. Notes which writes must be older than its
    /// source.
    fn misses(&mut self, (session, key): (usize, u32), source: Option<u32>, clock: &[u32]) -> bool {
        let runs = self.first_run[key as usize]..self.first_run[key as usize + 1];
        let Some(source) = source else {
            let mut runs = self.runs[runs.start as usize..runs.end as usize].iter();
            return runs.any(|run| self.entries[run.first as usize].position < clock[run.session as usize]);
        };
        let place = self.place(source);
        // Most of what is known is older than the source; then its clock need not be looked at.
        let rank = place.map_or(0, |_| self.entries[self.rows[source as usize] as usize].rank);
        let mut misses = false;
        for run in runs {
            if let Some(last) = self.last(session, run, clock) {
                misses |= self.entries[last as usize].rank > rank && self.knows(last, source, place);
                self.conflict(last, source);
            }
        }
        misses
    }

    /// The last entry of a run that is in a session's clock.
    fn last(&mut self, session: usize, run: u32, clock: &[u32]) -> Option<u32> {
        let known = &mut self.known[session * self.runs.len() + run as usize];
        let run = &self.runs[run as usize];
        let max = clock[run.session as usize];
        let entries = &self.entries[run.first as usize..run.end as usize];
        let is_known = |entry: &&Entry| entry.position < max;
        *known += entries[*known as usize..].iter().take_while(is_known).count() as u32;
        (*known > 0).then(|| run.first + *known - 1)
    }

    /// The session and position of a write in a chain.
    fn place(&self, write: u32) -> Option<(usize, u32)> {
        (!self.graph.is_unknown(write)).then(|| (self.graph.session(write), self.graph.position(write)))
    }

    /// Whether a write is in the past of a row.
    fn knows(&self, row: u32, write: u32, place: Option<(usize, u32)>) -> bool {
        let clock = self.row(row);
        // A delete knows what it took away, and a clock does not count what appears with its own write.
        let own = self
            .entries
            .get(row as usize)
            .map(|entry| self.graph.sources(entry.node));
        if own.into_iter().flatten().any(|(_, source)| source == write) {
            return true;
        }
        if let Some((session, position)) = place {
            return clock[session] > position;
        }
        let appears = self.appears.get(&write).map_or(&[][..], Vec::as_slice);
        appears.iter().any(|&appearance| {
            let entry = &self.entries[appearance as usize];
            clock[entry.session as usize] > entry.position
        })
    }

    /// What is last in its run must be older than a source, or what is before it if it is the source itself.
    fn conflict(&mut self, last: u32, source: u32) {
        let mut last = last;
        if self.entries[last as usize].node == source {
            // What comes before a write in a chain is older anyway.
            if !self.graph.is_unknown(source) || last == 0 || !self.is_in_run(last - 1, last) {
                return;
            }
            last -= 1;
        }
        let entry = self.entries[last as usize];
        let row = self.rows[source as usize];
        if self.row(row)[entry.session as usize] > entry.position {
            return;
        }
        let noted = &mut self.conflicts[row as usize * self.graph.sessions() + entry.session as usize];
        *noted = (*noted).max(last + 1);
    }

    /// The writes that must be older than a write, apart from those that causally precede it.
    pub fn older(&self, node: u32) -> impl Iterator<Item = u32> {
        let sessions = self.graph.sessions();
        let noted = match self.rows[node as usize] {
            NONE => &[][..],
            row => &self.conflicts[row as usize * sessions..][..sessions],
        };
        let noted = noted.iter().filter(|&&entry| entry > 0);
        noted.map(|&entry| self.entries[entry as usize - 1].node)
    }

    /// Nodes on a cycle of causal order and conflicts.
    pub fn conflict_cycle(&self) -> Option<Vec<u32>> {
        if self.conflicts.iter().all(|&entry| entry == 0) {
            return None;
        }
        let graph = self.graph;
        let mut scheduler = Scheduler::new(graph);
        let needs = |node: u32, done: &[bool]| {
            let is_open = |node: &u32| !done[*node as usize];
            let before = graph.before(node).filter(is_open);
            before
                .or_else(|| graph.sources(node).map(|(_, source)| source).find(is_open))
                .or_else(|| self.older(node).find(is_open))
        };
        scheduler.run(needs);
        scheduler.stuck(needs)
    }
}

/// All writes where they were written, and those of unknown outcome wherever they were read.
fn entries(graph: &Graph) -> Vec<Entry> {
    let mut entries = Vec::new();
    for session in 0..graph.sessions() {
        for (position, node) in graph.chain(session).enumerate() {
            let mut add = |key, node| {
                entries.push(Entry {
                    key,
                    session: session as u32,
                    position: position as u32,
                    node,
                    rank: 0,
                });
            };
            if graph.first_of(node).kind == Kind::Write {
                add(graph.first_of(node).key, node);
            }
            for (_, source) in graph
                .sources(node)
                .filter(|&(_, source)| graph.is_unknown(source))
            {
                add(graph.first_of(source).key, source);
            }
        }
    }
    entries
}

fn join(clock: &mut [u32], other: &[u32]) {
    for (mine, &theirs) in clock.iter_mut().zip(other) {
        *mine = (*mine).max(theirs);
    }
}
