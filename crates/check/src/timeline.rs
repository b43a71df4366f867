//! Draws a few operations as text: which client did what, when, and what overlapped.
//!
//! ```text
//!   c1 (A)  ├─[1] write b─┤      ├─[2] write a─┤
//!   c2 (B)                                          ├─[3] read b─┤
//!           ┼─────────────┼──────┼─────────────┼────┼────────────┼
//!        ms 0             10     20            30   45           55
//! ```
//!
//! A row is a client; the same client has several where a write that was never answered goes on beside what came later. From
//! left to right is time. Each time at which something began or ended is one column, and equal times are the same column, so
//! that what overlaps and what does not can be seen exactly. Between them the width is shared in proportion to time as far as
//! labels leave room; where much more time passes per column than elsewhere the axis says `//`. An operation that took no time
//! at all is `●` with its label behind it, and one that was never answered ends in `..>`.
//!
//! Numbers in brackets are the order of the witness's argument. Below the drawing each operation is told in full, with exact
//! times, as is what leads from one to another.
//!
//! # Caveats
//!
//! At most [`MAX_DRAWN`] operations are drawn, fewer if the width is too small for them; the rest are only told, as are writes from before
//! the trace. No line has
//! more characters than the width. Names and values come from the trace and are not trusted: characters that could move a terminal's cursor, reverse its
//! direction or take two columns are escaped, and long texts are cut ([`readable`]).
use crate::{Because, Edge, History, Kind, Operation, Witness};
use std::collections::BTreeMap;

/// How many operations are drawn at most.
pub const MAX_DRAWN: usize = 12;
/// How many operations, and how many steps from one to another, are told at most.
const MAX_EXPLAINED: usize = 24;
/// The least width. A smaller one is raised to it.
const MIN_WIDTH: usize = 60;
/// The most columns to the left of the drawing.
const WIDEST_NAME: usize = 18;
/// The axis shows `//` at a step in which more than this many times the usual time passes per column.
const CUT: f64 = 4.0;
/// The weight of a step is at most this many times the median.
const HEAVIEST: f64 = 8.0;

/// A witness as text: the drawing, what each operation was, and what leads from one to another.
pub fn draw(history: &History, witness: &Witness, width: usize) -> String {
    let width = width.max(MIN_WIDTH);
    let clock = Clock::of(history, &witness.operations);
    let mut lines = Vec::new();
    let max = witness.operations.len().min(MAX_DRAWN);
    if let Some(drawing) = (1..=max)
        .rev()
        .find_map(|drawn| Drawing::of(history, &witness.operations[..drawn], &clock, width))
    {
        lines.extend(drawing.lines(&clock));
        lines.push(String::new());
    }
    for (place, &operation) in witness.operations.iter().take(MAX_EXPLAINED).enumerate() {
        let told = tell(history, &history.operations[operation], &clock);
        lines.extend(wrap(&format!("[{}] {told}", place + 1), width, "    "));
    }
    and_more(&mut lines, witness.operations.len(), "operations");
    let numbers: BTreeMap<usize, usize> = witness.operations.iter().copied().zip(1..).collect();
    for edge in witness.edges.iter().take(MAX_EXPLAINED) {
        lines.extend(wrap(&lead(history, &numbers, edge), width, "    "));
    }
    and_more(&mut lines, witness.edges.len(), "steps");
    let lines: Vec<String> = lines.iter().map(|line| cut(line.trim_end(), width)).collect();
    lines.join("\n")
}

fn and_more(lines: &mut Vec<String>, all: usize, what: &str) {
    if all > MAX_EXPLAINED {
        lines.push(format!("and {} more {what}", all - MAX_EXPLAINED));
    }
}

/// `c1 at A wrote b to x, from 0 to 10 ms (record 0)`.
fn tell(history: &History, operation: &Operation, clock: &Clock) -> String {
    let client = readable(history.clients[operation.client as usize].as_bytes(), 20);
    let site = site_of(history, operation).map_or(String::new(), |site| {
        format!(" at {}", readable(site.as_bytes(), 20))
    });
    let of_key = &history.keys[operation.key as usize];
    let version = of_key.version(operation.value).map_or(String::new(), |version| {
        let name = history.version_names.name(version);
        format!(", version {}", readable(name.as_bytes(), 32))
    });
    let did = format!("{}{version}", did(history, operation));
    if operation.is_from_before() {
        return format!("before the trace, a client {did} (no record)");
    }
    let start = clock.number(operation.start);
    let when = match operation.kind {
        Kind::UnknownWrite => format!("began at {start} {}, never answered", clock.unit()),
        _ if operation.start == operation.finish => format!("at {start} {}", clock.unit()),
        _ => format!("{start} to {}", clock.time(operation.finish)),
    };
    format!("{client}{site} {did}, {when} (record {})", operation.record)
}

/// `wrote b to x`.
pub(crate) fn did(history: &History, operation: &Operation) -> String {
    let (key, value) = (key_name(history, operation.key), value_name(history, operation));
    match operation.kind {
        Kind::Read => format!("read {value} from {key}"),
        _ if is_delete(history, operation) => format!("deleted {key}"),
        Kind::Write | Kind::UnknownWrite => format!("wrote {value} to {key}"),
    }
}

fn is_delete(history: &History, operation: &Operation) -> bool {
    operation.kind != Kind::Read && history.keys[operation.key as usize].is_tombstone(operation.value)
}

/// The site that it was sent to, if the trace names it.
fn site_of<'a>(history: &'a History, operation: &Operation) -> Option<&'a str> {
    let name = history.sites.get(usize::from(operation.site))?;
    Some(name.as_str()).filter(|name| !name.is_empty())
}

/// One step of the argument as a sentence.
fn lead(history: &History, numbers: &BTreeMap<usize, usize>, edge: &Edge) -> String {
    let name = |place: usize| match numbers.get(&place) {
        Some(number) => format!("[{number}]"),
        None if history.operations[place].is_from_before() => "a write from before the trace".into(),
        None => format!("record {}", history.operations[place].record),
    };
    let (from, to) = (name(edge.from), name(edge.to));
    match edge.because {
        Because::Session => {
            let client = history.operations[edge.from].client as usize;
            let client = readable(history.clients[client].as_bytes(), 20);
            format!("{from} before {to}: {client} did one after the other")
        }
        Because::ReadsFrom if history.operations[edge.to].kind != Kind::Read => {
            format!("{from} before {to}: it wrote what {to} deleted")
        }
        Because::ReadsFrom => format!("{from} before {to}: it wrote what {to} read"),
        Because::RealTime => format!("{from} before {to}: it was over before {to} began"),
        Because::Version => format!("{from} before {to}: its version is the older one"),
        Because::Conflict => {
            format!("{from} before {to}: a client that could have seen {from} read what {to} wrote")
        }
        Because::Overwritten => format!("{from} before {to}: it read what was there before {to} wrote"),
    }
}

/// Prints the times of a few operations, counted from the first of them, in one unit and with just enough digits.
#[derive(Debug, Clone)]
pub struct Clock {
    origin: i64,
    /// How many digits of nanoseconds a unit has: 0 for ns, 9 for s.
    digits: usize,
    decimals: usize,
}

impl Clock {
    /// For these operations.
    pub fn of(history: &History, operations: &[usize]) -> Clock {
        let times = times_of(history, operations);
        let origin = times.first().copied().unwrap_or(0);
        let span = i128::from(times.last().copied().unwrap_or(0)) - i128::from(origin);
        let digits = digits_for(span);
        let clock = |decimals| Clock {
            origin,
            digits,
            decimals,
        };
        let tells_apart = |clock: &Clock| {
            let near = |&time: &i64| clock.error(time) * 200 <= span;
            let differ = |pair: &[i64]| clock.number(pair[0]) != clock.number(pair[1]);
            times.iter().all(near) && times.windows(2).all(differ)
        };
        let fit = (0..digits).map(clock).find(tells_apart);
        fit.unwrap_or_else(|| clock(digits))
    }

    /// `12.5`
    pub fn number(&self, time: i64) -> String {
        decimal(self.since(time), self.digits, self.decimals)
    }

    /// `12.5 ms`
    pub fn time(&self, time: i64) -> String {
        format!("{} {}", self.number(time), self.unit())
    }

    /// `ms`
    pub fn unit(&self) -> &'static str {
        unit(self.digits)
    }

    fn since(&self, time: i64) -> i128 {
        i128::from(time) - i128::from(self.origin)
    }

    /// The rounding error of a number.
    fn error(&self, time: i64) -> i128 {
        let step = 10_i128.pow((self.digits - self.decimals) as u32);
        let rest = self.since(time).rem_euclid(step);
        rest.min(step - rest)
    }
}

/// When these operations began and were over, in order. A write from before the trace has no time.
fn times_of(history: &History, operations: &[usize]) -> Vec<i64> {
    let operations = operations.iter().map(|&place| &history.operations[place]);
    let operations = operations.filter(|operation| !operation.is_from_before());
    let times = operations.flat_map(|operation| std::iter::once(operation.start).chain(end(operation)));
    let mut times: Vec<i64> = times.collect();
    times.sort_unstable();
    times.dedup();
    times
}

/// A length of time, as `12.345 ms`.
pub fn span(nanoseconds: i128) -> String {
    let digits = digits_for(nanoseconds.abs());
    format!("{} {}", decimal(nanoseconds, digits, digits.min(3)), unit(digits))
}

fn digits_for(span: i128) -> usize {
    match span {
        ..10_000 => 0,
        10_000..1_000_000 => 3,
        1_000_000..10_000_000_000 => 6,
        _ => 9,
    }
}

fn unit(digits: usize) -> &'static str {
    match digits {
        0 => "ns",
        3 => "us",
        6 => "ms",
        _ => "s",
    }
}

/// Shifts the point by `digits` places and rounds to `decimals`, without trailing zeros.
fn decimal(number: i128, digits: usize, decimals: usize) -> String {
    let step = 10_i128.pow((digits - decimals) as u32);
    let rounded = (number.abs() + step / 2) / step;
    let one = 10_i128.pow(decimals as u32);
    let sign = if number < 0 && rounded > 0 { "-" } else { "" };
    let fraction = match decimals {
        0 => String::new(),
        _ => format!(".{:0decimals$}", rounded % one),
    };
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    format!("{sign}{}{fraction}", rounded / one)
}

/// Bytes from the trace, safe for a terminal, one column for each character, at most `most` of them. Letters of Latin, Greek and
/// Cyrillic stay; all else beyond ASCII is escaped. A text that could be mistaken for the checker's own words is in quotes.
pub fn readable(bytes: &[u8], max: usize) -> String {
    let mut text = String::new();
    // Only as many bytes are read as can be shown.
    for chunk in bytes[..bytes.len().min(4 * max + 4)].utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' | '"' => text.extend(['\\', letter]),
                ' '..='~' => text.push(letter),
                _ if letter.is_alphabetic() && letter < '\u{530}' => text.push(letter),
                _ => text.extend(letter.escape_default()),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if text.is_empty() || text.contains(' ') || text == NOTHING {
        text = format!("\"{text}\"");
    }
    cut(&text, max)
}

/// What a read of a key without a value returned.
const NOTHING: &str = "nothing";

/// The name of a key in explanations.
pub(crate) fn key_name(history: &History, key: u32) -> String {
    readable(&history.keys[key as usize].name, 32)
}

/// The name of a value in explanations.
pub(crate) fn value_name(history: &History, operation: &Operation) -> String {
    value_within(history, operation, 32)
}

fn value_within(history: &History, operation: &Operation, max: usize) -> String {
    let value = &history.keys[operation.key as usize].values[operation.value.index()];
    value
        .as_ref()
        .map_or_else(|| NOTHING.into(), |value| readable(value, max))
}

/// At most this number of characters; an ellipsis marks what is left out.
fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => {
            let kept = text.chars().take(max.saturating_sub(1));
            kept.chain(std::iter::once('…')).collect()
        }
    }
}

/// Breaks a text into lines between words; all but the first are indented.
pub(crate) fn wrap(text: &str, width: usize, indent: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("{indent}{word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// When an operation was over, if it ever was.
fn end(operation: &Operation) -> Option<i64> {
    (operation.kind != Kind::UnknownWrite).then_some(operation.finish)
}

/// An operation in the drawing.
struct Bar {
    /// The number of its row.
    lane: usize,
    label: String,
    /// Columns, once they are known; times, as places among the marks, before.
    start: usize,
    /// `None` if it goes on to the right.
    finish: Option<usize>,
}

impl Bar {
    fn is_point(&self) -> bool {
        self.finish == Some(self.start)
    }
}

/// The whole drawing, with all places computed.
struct Drawing {
    /// The text to the left of each row.
    names: Vec<String>,
    bars: Vec<Bar>,
    /// The times at which something began or ended, and their columns.
    marks: Vec<(i64, usize)>,
    /// The columns between which the axis is cut.
    cuts: Vec<(usize, usize)>,
    gutter: usize,
    width: usize,
}

/// The forms of labels, from long to short: the most characters of a value; `None` if only the number is shown.
const LABELS: [Option<usize>; 4] = [Some(24), Some(12), Some(5), None];

impl Drawing {
    /// `None` if they do not fit.
    fn of(history: &History, operations: &[usize], clock: &Clock, width: usize) -> Option<Drawing> {
        LABELS
            .iter()
            .find_map(|&label| Drawing::labelled(history, operations, clock, width, label))
    }

    fn labelled(
        history: &History,
        operations: &[usize],
        clock: &Clock,
        width: usize,
        label: Option<usize>,
    ) -> Option<Drawing> {
        let times = times_of(history, operations);
        let (names, mut bars) = rows(history, operations, &times, label);
        let gutter = names
            .iter()
            .map(|name| name.chars().count())
            .max()?
            .max(clock.unit().len())
            + 1;
        let columns = columns(&times, &bars, width - gutter)?;
        for bar in &mut bars {
            bar.start = columns[bar.start];
            bar.finish = bar.finish.map(|mark| columns[mark]);
        }
        Some(Drawing {
            names,
            bars,
            cuts: cuts(&times, &columns),
            marks: times.iter().copied().zip(columns).collect(),
            gutter,
            width,
        })
    }

    fn lines(&self, clock: &Clock) -> Vec<String> {
        let room = self.width - self.gutter;
        let line = |name: &str, cells: Vec<char>| {
            let drawn: String = cells.into_iter().collect();
            format!("{name:<gutter$}{drawn}", gutter = self.gutter)
                .trim_end()
                .to_owned()
        };
        let mut lines: Vec<String> = Vec::new();
        for (lane, name) in self.names.iter().enumerate() {
            let mut cells = vec![' '; room];
            for bar in self.bars.iter().filter(|bar| bar.lane == lane) {
                bar.draw(&mut cells);
            }
            lines.push(line(name, cells));
        }
        lines.push(line("", self.axis()));
        for (row, cells) in self.numbers(clock).into_iter().enumerate() {
            let name = if row == 0 { clock.unit() } else { "" };
            lines.push(line(name, cells));
        }
        lines
    }

    fn axis(&self) -> Vec<char> {
        let last = self.marks.last().map_or(0, |&(_, column)| column);
        let mut cells = vec!['─'; last + 1];
        for &(_, column) in &self.marks {
            cells[column] = '┼';
        }
        for (from, to) in &self.cuts {
            let middle = (from + to) / 2;
            cells[middle] = '/';
            cells[middle + 1] = '/';
        }
        cells
    }

    /// Times under their columns, in two rows; those without room are left out.
    fn numbers(&self, clock: &Clock) -> Vec<Vec<char>> {
        let room = self.width - self.gutter;
        let mut rows = vec![(vec![' '; room], 0); 2];
        for &(time, column) in &self.marks {
            let number: Vec<char> = clock.number(time).chars().collect();
            // Under its mark, or as near as the right margin allows.
            let at = column.min(room.saturating_sub(number.len()));
            if let Some((cells, free)) = rows.iter_mut().find(|(_, free)| *free <= at)
                && at + number.len() <= room
            {
                cells[at..at + number.len()].copy_from_slice(&number);
                *free = at + number.len() + 1;
            }
        }
        rows.retain(|&(_, free)| free > 0);
        rows.into_iter().map(|(cells, _)| cells).collect()
    }
}

impl Bar {
    fn draw(&self, cells: &mut [char]) {
        let label: Vec<char> = self.label.chars().collect();
        let finish = match self.finish {
            _ if self.is_point() => {
                cells[self.start] = '●';
                cells[self.start + 1..][..label.len()].copy_from_slice(&label);
                return;
            }
            Some(finish) => {
                cells[finish] = '┤';
                finish
            }
            None => {
                let end = cells.len();
                cells[end - 3..].copy_from_slice(&['.', '.', '>']);
                end - 3
            }
        };
        // Another one may end where this begins.
        cells[self.start] = if cells[self.start] == '┤' { '┼' } else { '├' };
        let inside = &mut cells[self.start + 1..finish];
        inside.fill('─');
        let before = (inside.len() - label.len()) / 2;
        inside[before..][..label.len()].copy_from_slice(&label);
    }
}

/// A row for each client, and further ones for what overlaps; the bars in the order in which they are to be drawn.
fn rows(
    history: &History,
    operations: &[usize],
    times: &[i64],
    label: Option<usize>,
) -> (Vec<String>, Vec<Bar>) {
    let mut clients: BTreeMap<u32, Vec<(usize, &Operation)>> = BTreeMap::new();
    for (place, &operation) in operations.iter().enumerate() {
        let operation = &history.operations[operation];
        if operation.is_from_before() {
            continue;
        }
        let of_client = clients.entry(operation.client).or_default();
        of_client.push((place + 1, operation));
    }
    let one_key = operations
        .iter()
        .all(|&place| history.operations[place].key == history.operations[operations[0]].key);
    let mark = |time: i64| times.partition_point(|&other| other < time);
    let (mut names, mut bars) = (Vec::new(), Vec::new());
    let mut clients: Vec<Vec<(usize, &Operation)>> = clients.into_values().collect();
    for of_client in &mut clients {
        of_client.sort_by_key(|(number, operation)| (operation.start, operation.finish, *number));
    }
    // The client that begins first is on top.
    clients.sort_by_key(|of_client| (of_client[0].1.start, of_client[0].1.client));
    for of_client in &clients {
        let first = names.len();
        names.push(row_name(history, of_client));
        // The bar that each lane ends with.
        let mut ends: Vec<Option<(usize, usize)>> = vec![None];
        for &(number, operation) in of_client {
            let (start, finish) = (mark(operation.start), end(operation).map(mark));
            // Two may share the column where one ends and the other begins, unless one of them has only that column.
            let fits = |end: &Option<(usize, usize)>| {
                end.is_none_or(|(began, ended)| {
                    ended < start || ended == start && began < ended && finish != Some(start)
                })
            };
            let lane = ends.iter().position(fits).unwrap_or_else(|| {
                ends.push(None);
                names.push(String::new());
                ends.len() - 1
            });
            ends[lane] = Some((start, finish.unwrap_or(usize::MAX)));
            bars.push(Bar {
                lane: first + lane,
                label: label_of(history, number, operation, one_key, label),
                start,
                finish,
            });
        }
    }
    (names, bars)
}

fn row_name(history: &History, operations: &[(usize, &Operation)]) -> String {
    let (_, first) = operations[0];
    let mut name = readable(history.clients[first.client as usize].as_bytes(), WIDEST_NAME - 6);
    let mut sites: Vec<&str> = Vec::new();
    for (_, operation) in operations {
        let site = site_of(history, operation);
        sites.extend(site.filter(|site| !sites.contains(site)));
    }
    if !sites.is_empty() {
        let sites: Vec<String> = sites.iter().map(|site| readable(site.as_bytes(), 8)).collect();
        name = format!("{name} ({})", sites.join(", "));
    }
    cut(&name, WIDEST_NAME) + " "
}

fn label_of(
    history: &History,
    number: usize,
    operation: &Operation,
    one_key: bool,
    max: Option<usize>,
) -> String {
    let Some(max) = max else {
        return format!("[{number}]");
    };
    let key = readable(&history.keys[operation.key as usize].name, max);
    let value = value_within(history, operation, max);
    let (did, is_told) = match operation.kind {
        Kind::Read => ("read", true),
        _ if is_delete(history, operation) => ("delete", false),
        Kind::Write | Kind::UnknownWrite => ("write", true),
    };
    match (one_key, is_told) {
        (true, true) => format!("[{number}] {did} {value}"),
        (false, true) => format!("[{number}] {did} {key}={value}"),
        (true, false) => format!("[{number}] {did}"),
        (false, false) => format!("[{number}] {did} {key}"),
    }
}

/// The column of each time, or nothing if the labels do not fit. Each is as far left as labels allow, and then what is left of
/// the width goes, one column after the other, to the step in which most time passes per column.
fn columns(times: &[i64], bars: &[Bar], room: usize) -> Option<Vec<usize>> {
    // Behind the last time there is room for labels that stand behind their operation.
    let margin = times.len();
    let mut needs: Vec<(usize, usize, usize)> = Vec::new();
    for (place, bar) in bars.iter().enumerate() {
        let label = bar.label.chars().count();
        let next = bars[place + 1..].iter().find(|next| next.lane == bar.lane);
        needs.push(match bar.finish {
            Some(_) if bar.is_point() => (bar.start, next.map_or(margin, |next| next.start), label + 2),
            Some(finish) => (bar.start, finish, label + 1),
            None => (bar.start, margin, label + 4),
        });
    }
    needs.sort_unstable_by_key(|&(_, to, _)| to);
    let mut columns = vec![0; margin + 1];
    let mut next = needs.iter().peekable();
    for place in 1..=margin {
        columns[place] = columns[place - 1] + 1;
        while let Some(&(from, _, columns_between)) = next.next_if(|&&(_, to, _)| to == place) {
            columns[place] = columns[place].max(columns[from] + columns_between);
        }
    }
    let spare = room.checked_sub(columns[margin])?;
    let mut steps: Vec<usize> = columns.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let weights = weights(times);
    for _ in 0..spare {
        let per_column = |&step: &usize| weights[step] / (steps[step] as f64 + 1.0);
        let Some(max) = (0..weights.len()).max_by(|a, b| per_column(a).total_cmp(&per_column(b))) else {
            break;
        };
        steps[max] += 1;
    }
    for place in 1..=margin {
        columns[place] = columns[place - 1] + steps[place - 1];
    }
    columns.truncate(margin);
    Some(columns)
}

/// The time of each step from one mark to the next, as it counts for its width.
fn weights(times: &[i64]) -> Vec<f64> {
    let lengths = lengths(times);
    let max = HEAVIEST * median(&lengths);
    lengths.into_iter().map(|length| length.min(max)).collect()
}

fn lengths(times: &[i64]) -> Vec<f64> {
    let length = |pair: &[i64]| (i128::from(pair[1]) - i128::from(pair[0])) as f64;
    times.windows(2).map(length).collect()
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Steps in which far more time passes per column than is usual.
fn cuts(times: &[i64], columns: &[usize]) -> Vec<(usize, usize)> {
    let steps = columns.windows(2).map(|pair| (pair[0], pair[1]));
    let paces: Vec<((usize, usize), f64)> = steps
        .zip(lengths(times))
        .map(|((from, to), length)| ((from, to), length / (to - from) as f64))
        .collect();
    let usual = median(&paces.iter().map(|&(_, pace)| pace).collect::<Vec<f64>>());
    paces
        .into_iter()
        .filter(|&((from, to), pace)| pace > CUT * usual && to - from >= 4)
        .map(|(step, _)| step)
        .collect()
}
