//! A diagram as a picture: slanted arrows between vertical life lines.
use super::{Fate, Layout, Row, What, millis};
use std::collections::BTreeMap;
use turnbuckle_check::Svg;

/// All lengths are in pixels.
const TOP: u64 = 60;
const BOTTOM: u64 = 40;
const TIMES: u64 = 110;
const COLUMN: u64 = 300;
/// The distance between rows of the same time.
const ROW: u64 = 18;
const MAX_GAP: u64 = 90;

const STYLE: &str = "\
  text { font: 11px sans-serif; paint-order: stroke; stroke: white; stroke-width: 3px; }
  .name { font: bold 14px sans-serif; text-anchor: middle; }
  .time { fill: #666; text-anchor: end; }
  .note { fill: #06c; }
  .life { stroke: #999; stroke-width: 1.5; }
  .tick { stroke: #e4e4e4; }
  .message { stroke: #222; stroke-width: 1.2; }
  .cut { stroke-dasharray: 4 3; }
  .lost { stroke: #c00; stroke-width: 1.5; }
";

pub(super) fn draw(layout: &Layout) -> String {
    let heights = heights(&layout.rows);
    let end = heights.last().copied().unwrap_or(TOP) + BOTTOM;
    let missing = layout.missing();
    let width = TIMES + COLUMN * layout.names.len() as u64;
    let height = end + ROW * missing.len() as u64 + 10;
    let mut picture = Picture {
        layout,
        heights,
        end,
        svg: begin(width, height),
    };
    picture.times(width);
    picture.lives();
    picture.messages();
    picture.notes();
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
    svg.put(
        "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
         orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\"/></marker></defs>",
    );
    svg.background();
    svg
}

/// How far down each row is: a share of the height by its time, but neither too near to the row before nor too far from it.
fn heights(rows: &[Row]) -> Vec<u64> {
    let span = match (rows.first(), rows.last()) {
        (Some(first), Some(last)) => last.at.since(first.at).0.max(1),
        _ => 1,
    };
    let mut y = TOP;
    let mut before = None;
    let mut heights = Vec::with_capacity(rows.len());
    for row in rows {
        let gap = before.map_or(0, |before| row.at.since(before).0);
        let share = u128::from(gap) * rows.len() as u128 * u128::from(ROW) / u128::from(span);
        y += share.clamp(u128::from(ROW), u128::from(MAX_GAP)) as u64;
        before = Some(row.at);
        heights.push(y);
    }
    heights
}

struct Picture<'a> {
    layout: &'a Layout<'a>,
    heights: Vec<u64>,
    end: u64,
    svg: Svg,
}

/// A point of the picture.
type Point = (f64, f64);

impl Picture<'_> {
    /// The axis of time: a time is written wherever something happens.
    fn times(&mut self, width: u64) {
        let place = |y| format!("class=\"time\" x=\"90\" y=\"{y}\"");
        self.svg.text(&place(TOP - 20), "ms");
        let mut before = None;
        for (row, y) in self.layout.rows.iter().zip(self.heights.clone()) {
            if before.replace(row.at) == Some(row.at) {
                continue;
            }
            self.svg.put(&format!(
                "<line class=\"tick\" x1=\"96\" y1=\"{y}\" x2=\"{width}\" y2=\"{y}\"/>"
            ));
            self.svg.text(&place(y + 4), &millis(row.at));
        }
    }

    fn lives(&mut self) {
        let (top, end) = (TOP - 12, self.end);
        for (node, name) in self.layout.names.iter().enumerate() {
            let x = x_of(node);
            let place = format!("class=\"name\" x=\"{x}\" y=\"{}\"", top - 8);
            self.svg.text(&place, name);
            self.svg.put(&format!(
                "<line class=\"life\" x1=\"{x}\" y1=\"{top}\" x2=\"{x}\" y2=\"{end}\"/>"
            ));
        }
    }

    fn notes(&mut self) {
        for (row, y) in self.layout.rows.iter().zip(self.heights.clone()) {
            if let What::Note(words) = row.what {
                let x = x_of(row.node);
                self.svg
                    .put(&format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"#06c\"/>"));
                let (x, y) = (x + 8, y + 4);
                self.svg
                    .text(&format!("class=\"note\" x=\"{x}\" y=\"{y}\""), words);
            }
        }
    }

    fn messages(&mut self) {
        let mut taken = BTreeMap::new();
        let mut sent = BTreeMap::new();
        for (row, &y) in self.layout.rows.iter().zip(&self.heights) {
            match row.what {
                What::Takes { index, .. } => taken.insert(index, y),
                What::Sends { index, .. } => sent.insert(index, y),
                What::Note(_) => None,
            };
        }
        for (row, y) in self.layout.rows.iter().zip(self.heights.clone()) {
            match &row.what {
                What::Sends { index, message, fate } => {
                    let to = usize::from(message.to.0);
                    let from = point(row.node, y);
                    match (fate, taken.get(index)) {
                        (_, Some(&arrives)) => self.arrow(from, point(to, arrives), "message", true),
                        (Fate::Lost, None) => self.lost(from, to),
                        (Fate::Open, None) => {
                            let midway = midway(from, to);
                            self.arrow(from, midway, "message cut", false);
                        }
                        (_, None) => self.arrow(from, point(to, self.end), "message cut", false),
                    }
                    let ends = match (fate, taken.get(index)) {
                        (_, Some(&arrives)) => point(to, arrives),
                        (Fate::Lost | Fate::Open, None) => midway(from, to),
                        (_, None) => point(to, self.end),
                    };
                    self.label(from, ends, *index, &message.words);
                }
                // The message was sent before what is shown.
                What::Takes { index, message } if !sent.contains_key(index) => {
                    let from = point(usize::from(message.from.0), TOP - 12);
                    let here = point(row.node, y);
                    self.arrow(from, here, "message cut", true);
                    self.label(from, here, *index, &message.words);
                }
                What::Takes { .. } | What::Note(_) => {}
            }
        }
    }

    fn arrow(&mut self, (x1, y1): Point, (x2, y2): Point, class: &str, has_head: bool) {
        let head = if has_head {
            " marker-end=\"url(#head)\""
        } else {
            ""
        };
        self.svg.put(&format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"{head}/>"
        ));
    }

    /// A message that ends in a cross on its way.
    fn lost(&mut self, from: Point, to: usize) {
        let (x, y) = midway(from, to);
        self.arrow(from, (x, y), "message", false);
        self.arrow((x - 5.0, y - 5.0), (x + 5.0, y + 5.0), "lost", false);
        self.arrow((x - 5.0, y + 5.0), (x + 5.0, y - 5.0), "lost", false);
    }

    /// A text along an arrow, near its sender: so the texts of crossing messages are apart.
    fn label(&mut self, (x1, y1): Point, (x2, y2): Point, index: usize, words: &str) {
        let length = (x2 - x1).hypot(y2 - y1).max(1.0);
        let (right, down) = ((x2 - x1) / length, (y2 - y1) / length);
        let (x, y) = (x1 + 22.0 * right, y1 + 22.0 * down);
        // Never upside down.
        let (angle, anchor) = match right < 0.0 {
            true => ((-down).atan2(-right), "end"),
            false => (down.atan2(right), "start"),
        };
        let place = format!(
            "transform=\"translate({x:.1} {y:.1}) rotate({:.1})\" dy=\"-3\" text-anchor=\"{anchor}\"",
            angle.to_degrees()
        );
        let label = format!("({}) {words}", self.layout.number(index));
        self.svg.text(&place, &label);
    }
}

fn x_of(node: usize) -> u64 {
    TIMES + 20 + COLUMN * node as u64
}

fn point(node: usize, y: u64) -> Point {
    (x_of(node) as f64, y as f64)
}

/// The point where a message ends that will not arrive, or has not arrived yet.
fn midway((x, y): Point, to: usize) -> Point {
    let there = x_of(to) as f64;
    // At most as long as the text, which must fit along it.
    (x + (there - x).clamp(-200.0, 200.0), y + 14.0)
}
