//! A diagram as a picture: slanted arrows between vertical life lines, and a legend.
//!
//! The picture is to be read on a screen, so its height is limited: rows that are too many are left out, and it says how many. Time is
//! not to scale. Rows of different nodes may be at one height, rows of one node are apart, and a long pause is shortened and marked.
//!
//! Words are horizontal and stand right of the life line where something happens, so that no two are at one place: rows of a node are
//! a line apart, and words are cut where the next life line begins. The whole text is a tooltip. Where a message is taken in, there
//! is only its number, on the side from which its arrow does not come.
use super::{Fate, Layout, Row, What, millis, printable};
use std::collections::BTreeMap;
use turnbuckle_check::Svg;

/// All lengths are in pixels. The life lines begin here, below the legend and the names.
const TOP: u64 = 140;
const BOTTOM: u64 = 24;
/// The last row is not further down than this.
const MAX_HEIGHT: u64 = 2_000;
const TIMES: u64 = 110;
const COLUMN: u64 = 320;
/// The distance between lines of text, and so between the rows of one node.
const ROW: u64 = 14;
/// The distance between rows of two nodes at different times, if no more time passes than usual.
const MIN_GAP: u64 = 3;
/// The same if much more time passes.
const MAX_GAP: u64 = 26;
/// How long the piece of an arrow is whose other end is not in the picture.
const PIECE: u64 = 30;
/// How many letters of a row's words are shown.
const MAX_LETTERS: usize = 42;

/// One for each sender, over and over.
const COLOURS: [&str; 6] = ["#1f4e79", "#b3541e", "#2e7d32", "#7b1fa2", "#555555", "#c2185b"];

/// The colour of what is no message.
const NOTES: &str = "#06c";

const STYLE: &str = "\
  text { font: 11px sans-serif; paint-order: stroke; stroke: white; stroke-width: 3px; }
  .name { font: bold 14px sans-serif; text-anchor: middle; }
  .time { fill: #666; text-anchor: end; }
  .taken { text-anchor: end; }
  .life { stroke: #bbb; stroke-width: 1.5; }
  .tick { stroke: #eee; }
  .message { stroke-width: 1.2; }
  .cut { stroke-dasharray: 4 3; }
  .lost { stroke: #c00; stroke-width: 1.5; }
";

pub(super) fn draw(mut layout: Layout) -> String {
    let places = places(&layout.rows, layout.names.len());
    layout.left_out += layout.rows.len() - places.len();
    layout.rows.truncate(places.len());
    let end = places.last().map_or(TOP, |place| place.y) + BOTTOM;
    let missing = layout.missing();
    let width = TIMES + COLUMN * layout.names.len().max(1) as u64;
    let height = end + ROW * missing.len() as u64 + 10;
    let (mut sent, mut taken) = (BTreeMap::new(), BTreeMap::new());
    for (row, place) in layout.rows.iter().zip(&places) {
        match row.what {
            What::Sends { index, .. } => drop(sent.insert(index, place.y)),
            What::Takes { index, .. } => drop(taken.insert(index, place.y)),
            What::Note(_) => {}
        }
    }
    let mut picture = Picture {
        layout: &layout,
        places,
        sent,
        taken,
        end,
        svg: begin(width, height),
    };
    picture.legend();
    picture.times(width);
    picture.lives();
    picture.messages();
    picture.words();
    for (place, text) in missing.iter().enumerate() {
        let y = end + ROW * (place as u64 + 1);
        picture.svg.text(&format!("x=\"20\" y=\"{y}\""), text);
    }
    picture.svg.finish()
}

fn begin(width: u64, height: u64) -> Svg {
    let mut svg = Svg::new(width, height, "");
    svg.put("<title>What the nodes said to each other</title>");
    svg.put(&format!("<style>\n{STYLE}</style>"));
    let heads = COLOURS.iter().enumerate().map(|(number, colour)| {
        format!(
            "<marker id=\"head{number}\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
             orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"{colour}\"/></marker>"
        )
    });
    svg.put(&format!("<defs>{}</defs>", heads.collect::<String>()));
    svg.background();
    svg
}

/// Where a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    y: u64,
    /// More time passes before it than the picture shows.
    is_after_pause: bool,
}

/// The places of the rows, from the first on, as far as there is room. Later rows are not higher up, and those of one node are a line
/// apart. Between them is more room where more time passes, up to a limit.
fn places(rows: &[Row], nodes: usize) -> Vec<Place> {
    let passes = rows.windows(2).map(|pair| pair[1].at.since(pair[0].at).0);
    let mut usual: Vec<u64> = passes.filter(|&time| time > 0).collect();
    usual.sort_unstable();
    let usual = usual.get(usual.len() / 2).copied().unwrap_or(1);
    let (mut y, mut before) = (TOP + ROW, None);
    let mut free = vec![0; nodes];
    let mut places = Vec::with_capacity(rows.len());
    for row in rows {
        let passed = before.map_or(0, |before| row.at.since(before).0);
        let share = u128::from(passed) * u128::from(MIN_GAP) / u128::from(usual);
        let gap = match passed {
            0 => 0,
            _ => share.clamp(u128::from(MIN_GAP), u128::from(MAX_GAP)) as u64,
        };
        y = (y + gap).max(free[row.node]);
        if y > MAX_HEIGHT {
            break;
        }
        free[row.node] = y + ROW;
        before = Some(row.at);
        places.push(Place {
            y,
            is_after_pause: share > u128::from(MAX_GAP),
        });
    }
    places
}

struct Picture<'a> {
    layout: &'a Layout<'a>,
    /// For each row.
    places: Vec<Place>,
    /// How far down messages are sent and taken in, by their indexes in the log.
    sent: BTreeMap<usize, u64>,
    taken: BTreeMap<usize, u64>,
    end: u64,
    svg: Svg,
}

/// A point of the picture.
type Point = (f64, f64);

impl<'a> Picture<'a> {
    fn rows(&self) -> impl Iterator<Item = (&'a Row<'a>, Place)> + use<'a> {
        self.layout.rows.iter().zip(self.places.clone())
    }

    fn legend(&mut self) {
        let line = |number: u64| 16 + ROW * number;
        let says = |picture: &mut Self, number: u64, says: &str| {
            let place = format!("class=\"key\" x=\"84\" y=\"{}\"", line(number) + 4);
            picture.svg.text(&place, says);
        };
        let sample = |number: u64| ((20.0, line(number) as f64), (72.0, line(number) as f64));
        self.dot(46, line(0));
        says(self, 0, "a client's request or its answer, or an event at a node");
        let (from, to) = sample(1);
        self.arrow(from, to, "message", 0, true);
        says(
            self,
            1,
            "a message, in its sender's colour; its number (1) is also where it arrives",
        );
        let (from, to) = sample(2);
        self.arrow(from, to, "message cut", 0, true);
        says(self, 2, "a message whose other end is outside the picture");
        let (from, to) = sample(3);
        self.arrow(from, to, "message", 0, false);
        self.cross(to);
        says(self, 3, "a message that is lost");
        let (from, to) = sample(4);
        self.arrow(from, to, "message cut", 0, false);
        says(self, 4, "a message that is lost or still under way");
        let place = format!("class=\"time\" x=\"60\" y=\"{}\"", line(5) + 4);
        self.svg.text(&place, "≈");
        says(
            self,
            5,
            "a pause that is drawn shorter: time runs down, not to scale",
        );
    }

    /// The axis of time: times are written where there is room.
    fn times(&mut self, width: u64) {
        let place = |y| format!("class=\"time\" x=\"90\" y=\"{y}\"");
        self.svg.text(&place(TOP - 16), "ms");
        let (mut before, mut free, mut last) = (None, 0, TOP);
        for (row, Place { y, is_after_pause }) in self.rows() {
            if before.replace(row.at) == Some(row.at) {
                continue;
            }
            // Between the last time that is written and this one.
            if is_after_pause && y >= free + ROW {
                self.svg.text(&place(u64::midpoint(last, y) + 4), "≈");
            }
            if y >= free {
                self.svg.put(&format!(
                    "<line class=\"tick\" x1=\"96\" y1=\"{y}\" x2=\"{width}\" y2=\"{y}\"/>"
                ));
                self.svg.text(&place(y + 4), &millis(row.at));
                free = y + ROW;
            }
            last = y;
        }
    }

    fn lives(&mut self) {
        let (top, end) = (TOP - 6, self.end);
        for (node, name) in self.layout.names.iter().enumerate() {
            let (x, colour) = (x_of(node), colour(node));
            let place = format!("class=\"name\" fill=\"{colour}\" x=\"{x}\" y=\"{}\"", top - 8);
            self.svg.text(&place, name);
            self.svg.put(&format!(
                "<line class=\"life\" x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{end}\"/>"
            ));
        }
    }

    fn dot(&mut self, x: u64, y: u64) {
        self.svg.put(&format!(
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{NOTES}\"/>"
        ));
    }

    /// What is sent and arrives within the picture is an arrow from row to row; of the rest there is a piece beside its row.
    fn messages(&mut self) {
        for (row, Place { y, .. }) in self.rows() {
            let here = point(row.node, y);
            match &row.what {
                What::Sends { index, message, fate } => {
                    let to = usize::from(message.to.0);
                    let arrives = self.taken.get(index).copied();
                    let ends = arrives.map_or_else(|| beside(here, to), |arrives| point(to, arrives));
                    let class = match (arrives, fate) {
                        (Some(_), _) | (None, Fate::Lost) => "message",
                        (None, _) => "message cut",
                    };
                    let has_head = arrives.is_some() || matches!(fate, Fate::Arrives | Fate::Later(_));
                    self.arrow(here, ends, class, row.node, has_head);
                    if arrives.is_none() && *fate == Fate::Lost {
                        self.cross(ends);
                    }
                }
                What::Takes { index, message } if !self.sent.contains_key(index) => {
                    let sender = usize::from(message.from.0);
                    self.arrow(beside(here, sender), here, "message cut", sender, true);
                }
                What::Takes { .. } | What::Note(_) => {}
            }
        }
    }

    /// What happens in each row, over the arrows.
    fn words(&mut self) {
        for (row, Place { y, .. }) in self.rows() {
            match &row.what {
                What::Note(words) => {
                    self.dot(x_of(row.node), y);
                    self.label((row.node, y), None, NOTES, &printable(words));
                }
                What::Sends { index, message, fate } => {
                    let (number, to) = (self.layout.number(*index), self.layout.name(message.to));
                    let lost = if *fate == Fate::Lost { ", lost" } else { "" };
                    let words = format!("({number}) to {to}{lost}: {}", printable(&message.words));
                    let piece = (!self.taken.contains_key(index)).then_some(usize::from(message.to.0));
                    self.label((row.node, y), piece, colour(row.node), &words);
                }
                What::Takes { index, message } => {
                    let (number, sender) = (self.layout.number(*index), usize::from(message.from.0));
                    let (colour, number) = (colour(sender), format!("({number})"));
                    if !self.sent.contains_key(index) {
                        let from = self.layout.name(message.from);
                        let words = format!("{number} from {from}: {}", printable(&message.words));
                        self.label((row.node, y), Some(sender), colour, &words);
                    } else if sender < row.node {
                        self.label((row.node, y), None, colour, &number);
                    } else {
                        let (x, y) = (x_of(row.node) - 6, y + 4);
                        let place = format!("class=\"taken\" fill=\"{colour}\" x=\"{x}\" y=\"{y}\"");
                        self.svg.text(&place, &number);
                    }
                }
            }
        }
    }

    /// Words right of a life line, as far as there is room. They make way for the piece of an arrow to or from that node.
    fn label(&mut self, (node, y): (usize, u64), piece: Option<usize>, colour: &str, words: &str) {
        let (x, letters) = match piece {
            Some(other) if other > node => (x_of(node) + PIECE + 6, MAX_LETTERS - 4),
            _ => (x_of(node) + 8, MAX_LETTERS),
        };
        let place = format!("class=\"label\" fill=\"{colour}\" x=\"{x}\" y=\"{}\"", y + 4);
        self.svg
            .text_with_title(&place, &shortened(words, letters), words);
    }

    fn arrow(&mut self, (x1, y1): Point, (x2, y2): Point, class: &str, sender: usize, has_head: bool) {
        let head = match has_head {
            true => format!(" marker-end=\"url(#head{})\"", sender % COLOURS.len()),
            false => String::new(),
        };
        let colour = colour(sender);
        self.svg.put(&format!(
            "<line class=\"{class}\" stroke=\"{colour}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"{head}/>"
        ));
    }

    /// Where a message is lost.
    fn cross(&mut self, (x, y): Point) {
        self.svg.put(&format!(
            "<path class=\"lost\" d=\"M{:.1} {:.1}l8 8m0 -8l-8 8\"/>",
            x - 4.0,
            y - 4.0
        ));
    }
}

/// As many letters as there is room for. What only fills a value up is left out first.
fn shortened(words: &str, max: usize) -> String {
    let mut short = String::new();
    let mut dots = 0;
    for letter in words.chars() {
        dots = if letter == '.' { dots + 1 } else { 0 };
        match dots {
            0..3 => short.push(letter),
            3 => short.replace_range(short.len() - 2.., "…"),
            _ => {}
        }
    }
    // The words may have been cut already.
    let short = short.replace("……", "…");
    match short.char_indices().nth(max) {
        None => short,
        Some(_) => short.chars().take(max - 1).chain(['…']).collect(),
    }
}

fn colour(node: usize) -> &'static str {
    COLOURS[node % COLOURS.len()]
}

fn x_of(node: usize) -> u64 {
    TIMES + 20 + COLUMN * node as u64
}

fn point(node: usize, y: u64) -> Point {
    (x_of(node) as f64, y as f64)
}

/// The end of a piece of an arrow, on the side of the other node.
fn beside((x, y): Point, other: usize) -> Point {
    let (there, piece) = (x_of(other) as f64, PIECE as f64);
    (x + (there - x).clamp(-piece, piece), y)
}

#[cfg(test)]
mod tests;
