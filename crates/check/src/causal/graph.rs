//! Sessions as chains of nodes.
//!
//! A node is an operation, or all reads of one snapshot. Nodes are numbered session by session, so that a node's position in its
//! session is a difference; writes of unknown outcome come behind all others, because they are in no chain.
//!
//! ```text
//!   session 0     session 1    unknown writes
//!   0  1  2  3    4  5  6      7  8
//!         '--------------------'          7 comes after 2, and before nothing but its readers
//! ```
use crate::{History, Kind, Operation};

/// No node.
pub(super) const NONE: u32 = u32::MAX;

pub(crate) struct Graph<'a> {
    pub history: &'a History,
    /// Places of operations, node by node.
    operations: Vec<u32>,
    /// For each node, where its operations begin; one more at the end.
    first: Vec<u32>,
    /// For each session, its first node; one more at the end.
    bases: Vec<u32>,
    /// For each node the node of the same client just before; [`NONE`] for a client's first.
    before: Vec<u32>,
    /// For each node the first write that it has seen, or [`NONE`]. Few nodes have seen more than one.
    source: Vec<u32>,
    /// For each node the key that it wrote, or [`NONE`] if it read.
    wrote: Vec<u32>,
    session: Vec<u32>,
    /// How many nodes are in chains; the others are writes of unknown outcome.
    chained: usize,
    /// For each session, its first write of unknown outcome; one more at the end.
    unknown_bases: Vec<u32>,
    /// For each operation its node.
    nodes: Vec<u32>,
}

impl<'a> Graph<'a> {
    /// `None` if there are more operations than can be numbered.
    pub fn of(history: &'a History) -> Option<Graph<'a>> {
        u32::try_from(history.operations.len())
            .ok()
            .filter(|&count| count < NONE / 2)?;
        let count = history.operations.len();
        let mut graph = Graph {
            history,
            operations: Vec::with_capacity(count),
            first: Vec::with_capacity(count + 1),
            bases: vec![0],
            before: Vec::with_capacity(count),
            source: Vec::new(),
            wrote: Vec::new(),
            session: Vec::with_capacity(count),
            chained: 0,
            unknown_bases: vec![0],
            nodes: vec![NONE; count],
        };
        // Each with the node before it.
        let mut unknown = Vec::new();
        for session in history.sessions() {
            graph.add_session(&session, &mut unknown);
        }
        graph.chained = graph.first.len();
        for (place, before) in unknown {
            graph.add_node(place, before);
        }
        graph.first.push(graph.operations.len() as u32);
        graph.look_up();
        Some(graph)
    }

    /// Puts data that is used together side by side.
    fn look_up(&mut self) {
        let nodes = 0..self.len() as u32;
        self.source = nodes
            .clone()
            .map(|node| {
                self.sources_of_all(node)
                    .next()
                    .map_or(NONE, |(_, source)| source)
            })
            .collect();
        let wrote = nodes.map(|node| match self.first_of(node).kind {
            Kind::Read => NONE,
            Kind::Write | Kind::UnknownWrite => self.first_of(node).key,
        });
        self.wrote = wrote.collect();
    }

    fn add_session(&mut self, session: &[usize], unknown: &mut Vec<(usize, u32)>) {
        let base = self.first.len();
        // The node's record, if more of its reads may come.
        let mut snapshot = None;
        for &place in session {
            let operation = &self.history.operations[place];
            match operation.kind {
                Kind::UnknownWrite => {
                    unknown.push((place, self.last_since(base)));
                }
                Kind::Read if snapshot == Some(operation.record) => self.add_operation(place),
                Kind::Read => {
                    snapshot = Some(operation.record);
                    self.add_node(place, self.last_since(base));
                }
                Kind::Write => {
                    snapshot = None;
                    self.add_node(place, self.last_since(base));
                }
            }
        }
        self.bases.push(self.first.len() as u32);
        self.unknown_bases.push(unknown.len() as u32);
    }

    /// The last node, unless that is of another session.
    fn last_since(&self, base: usize) -> u32 {
        if self.first.len() == base {
            NONE
        } else {
            self.first.len() as u32 - 1
        }
    }

    fn add_node(&mut self, place: usize, before: u32) {
        self.first.push(self.operations.len() as u32);
        self.before.push(before);
        self.session.push(self.history.operations[place].client);
        self.add_operation(place);
    }

    fn add_operation(&mut self, place: usize) {
        self.nodes[place] = self.first.len() as u32 - 1;
        self.operations.push(place as u32);
    }

    pub fn sessions(&self) -> usize {
        self.bases.len() - 1
    }

    pub fn len(&self) -> usize {
        self.first.len() - 1
    }

    /// How many nodes are in chains; the others are writes of unknown outcome.
    pub fn chained(&self) -> usize {
        self.chained
    }

    pub fn chain(&self, session: usize) -> std::ops::Range<u32> {
        self.bases[session]..self.bases[session + 1]
    }

    /// A session's writes of unknown outcome, in order.
    pub fn unknown_of(&self, session: usize) -> std::ops::Range<u32> {
        let chained = self.chained() as u32;
        chained + self.unknown_bases[session]..chained + self.unknown_bases[session + 1]
    }

    pub fn is_unknown(&self, node: u32) -> bool {
        node as usize >= self.chained()
    }

    /// Places of operations.
    pub fn operations(&self, node: u32) -> &[u32] {
        &self.operations[self.first[node as usize] as usize..self.first[node as usize + 1] as usize]
    }

    pub fn session(&self, node: u32) -> usize {
        self.session[node as usize] as usize
    }

    /// The session of a node in a chain.
    pub fn position(&self, node: u32) -> u32 {
        node - self.bases[self.session(node)]
    }

    pub fn first_of(&self, node: u32) -> &Operation {
        &self.history.operations[self.operations(node)[0] as usize]
    }

    pub fn node(&self, place: usize) -> u32 {
        self.nodes[place]
    }

    /// The node of the same client just before.
    pub fn before(&self, node: u32) -> Option<u32> {
        Some(self.before[node as usize]).filter(|&before| before != NONE)
    }

    /// The key that it wrote.
    pub fn wrote(&self, node: u32) -> Option<u32> {
        Some(self.wrote[node as usize]).filter(|&key| key != NONE)
    }

    /// The write that a read has seen, or a delete.
    pub fn source(&self, place: u32) -> Option<u32> {
        let write = self.history.seen_by(place as usize)?;
        Some(self.nodes[write])
    }

    /// Whether an operation reads. A delete that has seen a write does not.
    pub fn is_read(&self, place: u32) -> bool {
        self.history.operations[place as usize].kind == Kind::Read
    }

    /// The node's reads, or its delete, with what they have seen.
    pub fn sources(&self, node: u32) -> impl Iterator<Item = (u32, u32)> {
        let operations = self.operations(node);
        // Of several reads some may have seen nothing.
        let one = Some((operations[0], self.source[node as usize]));
        let one = one.filter(|&(_, source)| operations.len() == 1 && source != NONE);
        let all = (operations.len() > 1).then(|| self.sources_of_all(node));
        one.into_iter().chain(all.into_iter().flatten())
    }

    fn sources_of_all(&self, node: u32) -> impl Iterator<Item = (u32, u32)> {
        let sources = self.operations(node).iter();
        sources.filter_map(|&read| Some((read, self.source(read)?)))
    }
}
