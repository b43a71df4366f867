//! A diagram as text: a column for each node.
use super::{Fate, Layout, Row, What, millis, printable};

/// The most characters of a line, unless there are very many nodes.
const WIDTH: usize = 110;
/// The width of the column of times.
const TIMES: usize = 12;
const MIN_COLUMN: usize = 16;
const MAX_COLUMN: usize = 49;

pub(super) fn draw(layout: &Layout) -> String {
    let column = (WIDTH - TIMES) / layout.names.len().max(1);
    let column = column.clamp(MIN_COLUMN, MAX_COLUMN);
    let mut lines = vec![line(
        "ms",
        layout.names.iter().map(|name| printable(name)),
        column,
    )];
    let mut before = None;
    for row in &layout.rows {
        let time = match before.replace(row.at) {
            Some(before) if before == row.at => String::new(),
            _ => millis(row.at),
        };
        let (head, words) = cell(layout, row);
        for (place, part) in wrap(&head, &words, column - 1).into_iter().enumerate() {
            let time = if place == 0 { time.as_str() } else { "" };
            let cells = (0..layout.names.len()).map(|node| match node == row.node {
                true => part.clone(),
                false => "│".to_string(),
            });
            lines.push(line(time, cells, column));
        }
    }
    lines.extend(layout.missing());
    lines.join("\n") + "\n"
}

fn line(time: &str, cells: impl Iterator<Item = String>, column: usize) -> String {
    let mut line = format!("{time:>10}  ");
    for cell in cells {
        line += &format!("{cell:<column$}");
    }
    line.trim_end().to_string()
}

/// The beginning of a row's text, which is never broken, and its words.
fn cell(layout: &Layout, row: &Row) -> (String, String) {
    match &row.what {
        What::Note(words) => ("│".into(), printable(words)),
        What::Sends { index, message, fate } => {
            let (number, to) = (layout.number(*index), layout.name(message.to));
            let words = printable(&message.words);
            let (end, words) = match fate {
                Fate::Arrives => ("▶", words),
                Fate::Later(at) => ("▶", format!("(at {}) {words}", millis(*at))),
                Fate::Lost => ("✕", format!("(lost) {words}")),
                Fate::Open => ("…", format!("(not there yet) {words}")),
            };
            (format!("●─({number})─{end} {to}:"), words)
        }
        What::Takes { index, message } => {
            let head = format!("●◀─({})─ {}", layout.number(*index), layout.name(message.from));
            let is_sent_here = layout.rows.first().is_some_and(|first| first.at <= message.sent);
            let words = if is_sent_here { "" } else { &message.words };
            (head, printable(words))
        }
    }
}

/// Breaks text between words. A word that is longer than a line is broken anywhere.
fn wrap(head: &str, words: &str, width: usize) -> Vec<String> {
    const INDENT: &str = "│   ";
    let mut lines = Vec::new();
    let mut line = head.to_string();
    for word in words.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        let used = line.chars().count();
        if used + 1 + rest.len() <= width {
            line.push(' ');
        } else {
            lines.push(std::mem::replace(&mut line, INDENT.to_string()));
        }
        while line.chars().count() + rest.len() > width {
            let fits = width.saturating_sub(line.chars().count()).max(1);
            let after = rest.split_off(fits.min(rest.len()));
            line.extend(std::mem::replace(&mut rest, after));
            if !rest.is_empty() {
                lines.push(std::mem::replace(&mut line, INDENT.to_string()));
            }
        }
        line.extend(rest);
    }
    lines.push(line);
    lines
}
