//! Space-time diagrams of a run: a vertical life line for each node, with time downward. A message is an arrow from where it was sent to
//! where it was taken in (Lamport 1978, figure 1, turned by 90 degrees).
//!
//! Everything is drawn from *rows*, in the order of true time: a message has one row where it is sent and one where it is taken in, a note
//! has one. Rows of the same time are ordered by cause: first arrivals, then notes, then sends.
//!
//! ```text
//!        ms  a                            b
//!   100.000  │ client 0: put x 1          │
//!   101.020  ●─(1)─▶ b: entries 1: x=1    │
//!   111.020  │                            ●◀─(1)─ a
//! ```
//!
//! # Limits
//!
//! - A log does not say that a message is lost. Messages between two nodes arrive in the order in which they were sent. So one that has not
//!   arrived is lost if a later one has. Otherwise it may still be under way.
//! - In an SVG, time is stretched where much happens and shortened where little does, and the height is limited.
use crate::{BEGINNING, Message, MessageLog};
use std::collections::BTreeMap;
use turnbuckle_core::Micros;
use turnbuckle_node::NodeId;

mod svg;
mod text;

/// A diagram of a log. Times are shown since [`BEGINNING`].
#[derive(Debug, Clone, Copy)]
pub struct Diagram<'a> {
    log: &'a MessageLog,
    names: &'a [String],
    from: Micros,
    until: Micros,
    max_rows: usize,
}

impl<'a> Diagram<'a> {
    /// A diagram of a whole log. `names` are the names of the nodes, by their numbers. A node without a name is not shown.
    pub fn new(log: &'a MessageLog, names: &'a [String]) -> Diagram<'a> {
        Diagram {
            log,
            names,
            from: Micros(0),
            until: Micros::MAX,
            max_rows: 400,
        }
    }

    /// Shows only what happens from one true time until another, both included.
    pub fn window(self, from: Micros, until: Micros) -> Diagram<'a> {
        Diagram { from, until, ..self }
    }

    /// Shows at most `max_rows` rows, the first ones. Without this call there are at most 400. The number of rows that are left out is
    /// shown.
    pub fn rows(self, max_rows: usize) -> Diagram<'a> {
        Diagram { max_rows, ..self }
    }

    /// The diagram as text, for a terminal.
    pub fn text(&self) -> String {
        text::draw(&self.lay_out())
    }

    /// The diagram as an SVG picture, for a page.
    pub fn svg(&self) -> String {
        svg::draw(self.lay_out())
    }

    fn lay_out(&self) -> Layout<'a> {
        let mut rows = self.messages();
        let notes = self
            .log
            .notes
            .iter()
            .map(|note| (note.node, note.at, &note.words));
        rows.extend(notes.filter_map(|(node, at, words)| self.row(node, at, What::Note(words))));
        rows.sort_by_key(|row| (row.at, row.what.place()));
        let left_out = rows.len().saturating_sub(self.max_rows);
        rows.truncate(self.max_rows);
        let mut numbers = BTreeMap::new();
        for row in &rows {
            if let What::Sends { index, .. } | What::Takes { index, .. } = row.what {
                let next = numbers.len() + 1;
                numbers.entry(index).or_insert(next);
            }
        }
        Layout {
            names: self.names,
            rows,
            numbers,
            left_out,
            unwritten: self.log.left_out,
        }
    }

    /// The row, if it is within what is shown.
    fn row(&self, node: NodeId, at: Micros, what: What<'a>) -> Option<Row<'a>> {
        let node = usize::from(node.0);
        let is_seen = self.from <= at && at <= self.until && node < self.names.len();
        is_seen.then_some(Row { at, node, what })
    }

    /// The rows of all messages. Those of one message follow each other.
    fn messages(&self) -> Vec<Row<'a>> {
        let mut last_arrived: BTreeMap<(u16, u16), usize> = BTreeMap::new();
        for (index, message) in self.log.messages.iter().enumerate() {
            if message.arrived.is_some() {
                last_arrived.insert((message.from.0, message.to.0), index);
            }
        }
        let mut rows = Vec::new();
        for (index, message) in self.log.messages.iter().enumerate() {
            let knows = |node: NodeId| usize::from(node.0) < self.names.len();
            if !knows(message.from) || !knows(message.to) {
                continue;
            }
            let overtaken = last_arrived.get(&(message.from.0, message.to.0));
            let fate = match message.arrived {
                Some(at) if at <= self.until => Fate::Arrives,
                Some(at) => Fate::Later(at),
                None if overtaken.is_some_and(|&last| last > index) => Fate::Lost,
                None => Fate::Open,
            };
            let sends = What::Sends { index, message, fate };
            rows.extend(self.row(message.from, message.sent, sends));
            if let Some(at) = message.arrived {
                rows.extend(self.row(message.to, at, What::Takes { index, message }));
            }
        }
        rows
    }
}

/// The content of a diagram, before it is drawn.
struct Layout<'a> {
    names: &'a [String],
    rows: Vec<Row<'a>>,
    /// The number by which each message is named in the diagram, by its index in the log.
    numbers: BTreeMap<usize, usize>,
    /// The number of rows that are left out because there are too many.
    left_out: usize,
    /// The number of events that the log itself has left out.
    unwritten: u64,
}

/// One thing that happens at one node.
struct Row<'a> {
    at: Micros,
    node: usize,
    what: What<'a>,
}

enum What<'a> {
    Sends {
        index: usize,
        message: &'a Message,
        fate: Fate,
    },
    Takes {
        index: usize,
        message: &'a Message,
    },
    Note(&'a str),
}

/// What happens to a message after it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Arrives,
    /// It arrives at this time, which is after what is shown.
    Later(Micros),
    Lost,
    /// It is lost, or still under way.
    Open,
}

impl What<'_> {
    /// The order of this row among the rows of the same time.
    fn place(&self) -> u8 {
        match self {
            What::Takes { message, .. } if Some(message.sent) == message.arrived => 3,
            What::Takes { .. } => 0,
            What::Note(_) => 1,
            What::Sends { .. } => 2,
        }
    }
}

impl Layout<'_> {
    fn number(&self, index: usize) -> usize {
        self.numbers.get(&index).copied().unwrap_or(0)
    }

    fn name(&self, node: NodeId) -> String {
        self.names
            .get(usize::from(node.0))
            .map_or(String::new(), |name| printable(name))
    }

    /// What the diagram leaves out, as lines of text.
    fn missing(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.left_out > 0 {
            lines.push(format!(
                "{} more rows are left out: a shorter window, or a later one, shows them",
                self.left_out
            ));
        }
        if self.unwritten > 0 {
            lines.push(format!(
                "{} more messages and notes were not recorded",
                self.unwritten
            ));
        }
        lines
    }
}

/// Milliseconds since the beginning.
fn millis(at: Micros) -> String {
    let us = at.since(BEGINNING).0;
    format!("{}.{:03}", us / 1_000, us % 1_000)
}

/// Replaces characters that would move a terminal's cursor, and characters that no XML may contain.
fn printable(text: &str) -> String {
    let is_none = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars()
        .map(|c| if is_none(c) { '\u{fffd}' } else { c })
        .collect()
}

#[cfg(test)]
mod tests;
