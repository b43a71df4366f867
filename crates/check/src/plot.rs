//! Plots as SVG: two axes with units, some series, nothing else.
//!
//! ```
//! use turnbuckle_check::{Axis, Plot, Scale, Series, Shape};
//! let plot = Plot {
//!     title: "Reads".into(),
//!     x: Axis::new("time, s", Scale::Linear),
//!     y: Axis::new("reads", Scale::Linear),
//!     series: vec![Series::new("site a", Shape::Line, vec![(0.0, 1.0), (1.0, 3.0)])],
//!     note: String::new(),
//!     labels: Vec::new(),
//! };
//! assert!(plot.svg().starts_with("<svg"));
//! ```
//!
//! Dark on white. Linear axes include zero and end at a round number; logarithmic ones end at powers of ten, and what is not
//! positive is left out, as are numbers that are not finite. All text is escaped. Points that fall on the same tenth of a pixel
//! are written once; otherwise the size of the output is that of the data, so the caller must bound the data.
//!
//! If there are several series, each can be seen, also where they are equal: the later ones are thinner and have gaps, and each has
//! marks of its own shape and size.
use crate::Svg;
use look::{ALONE, LOOKS, Look, mark, stroke};
use serde::Deserialize;
use std::fmt::Write;

mod look;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 690.0;
/// The top of the drawing, below the title and one line more.
const TOP: f64 = 60.0;
/// How much further down it is for each line more.
const LINE: f64 = 18.0;
const BOTTOM: f64 = 340.0;
/// How much further down it is if there are labels.
const LABELS: f64 = 10.0;
/// About how many marks a line of many points has.
const MARKS: usize = 7;
/// A line of more points is not marked at each.
const MAX_MARKED_POINTS: usize = 40;
/// How wide a letter is, at most.
const LETTER: f64 = 8.0;
/// About how many ticks an axis has.
const TICKS: f64 = 6.0;
/// The greatest power of ten on an axis.
const LARGEST_POWER: f64 = 300.0;

/// A plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// What is drawn, in this order. If there are several, a legend names them.
    pub series: Vec<Series>,
    /// A line below the title; none if it is empty.
    pub note: String,
    /// Short labels over points of the drawing: x, y, and the text.
    pub labels: Vec<(f64, f64, String)>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What it measures, and in what unit.
    pub label: String,
    /// How numbers become lengths.
    pub scale: Scale,
    /// The names of the places 1, 2, .., from left to right, for an axis that has names and no numbers.
    pub names: Vec<String>,
}

impl Axis {
    /// Creates one from its parts.
    pub fn new(label: impl Into<String>, scale: Scale) -> Axis {
        Axis {
            label: label.into(),
            scale,
            names: Vec::new(),
        }
    }

    /// Creates one of the places 1, 2, .., which have names.
    pub fn of_names(label: impl Into<String>, names: Vec<String>) -> Axis {
        Axis {
            names,
            ..Axis::new(label, Scale::Linear)
        }
    }
}

/// How numbers become lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Equal differences are equal lengths.
    Linear,
    /// Equal ratios are equal lengths.
    Log,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// How they are drawn.
    pub shape: Shape,
    /// x and y, by rising x. Where y is no number, a line is broken.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// Creates one from its parts.
    pub fn new(name: impl Into<String>, shape: Shape, points: Vec<(f64, f64)>) -> Series {
        Series {
            name: name.into(),
            shape,
            points,
        }
    }
}

/// How points are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// From each to the next.
    Line,
    /// Each by itself: too few to say what is between them.
    Points,
    /// Each is valid until the next.
    Steps,
    /// The same, filled from the bottom: a histogram. The last point ends the last bar.
    Bars,
}

/// A unit of time for an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
}

impl Unit {
    /// The one in which a number of nanoseconds is short.
    pub(crate) fn of(nanoseconds: f64) -> Unit {
        match nanoseconds {
            _ if nanoseconds < 1e3 => Unit::Nanoseconds,
            _ if nanoseconds < 1e6 => Unit::Microseconds,
            _ if nanoseconds < 1e9 => Unit::Milliseconds,
            _ => Unit::Seconds,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "us",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
        }
    }

    pub(crate) fn nanoseconds(self) -> f64 {
        match self {
            Unit::Nanoseconds => 1.0,
            Unit::Microseconds => 1e3,
            Unit::Milliseconds => 1e6,
            Unit::Seconds => 1e9,
        }
    }
}

/// The edges of this number of bars of equal width that contain all numbers, the greatest too. Empty if there are no numbers.
pub(crate) fn steps(scale: Scale, sorted: &[f64], bars: usize) -> Vec<f64> {
    let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
        return Vec::new();
    };
    // A little more than the greatest, so that it is inside.
    let max = max * (1.0 + 1e-9);
    let edge = |place: usize| {
        let share = place as f64 / bars as f64;
        match scale {
            Scale::Linear => max * share,
            Scale::Log => min * (max / min).powf(share),
        }
    };
    let mut edges: Vec<f64> = (0..=bars).map(edge).collect();
    if let (Scale::Log, Some(first)) = (scale, edges.first_mut()) {
        *first = min;
    }
    edges
}

/// An axis with its ends, in whole ticks.
struct Range {
    scale: Scale,
    /// The powers of ten at the ends of a logarithmic axis.
    from: f64,
    to: f64,
    step: f64,
    pixels: (f64, f64),
}

impl Range {
    fn of(scale: Scale, numbers: impl Iterator<Item = f64>, pixels: (f64, f64)) -> Range {
        let numbers = numbers.filter_map(|number| place(scale, number));
        let (mut min, mut max) = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), number| {
            (min.min(number), max.max(number))
        });
        if min > max {
            (min, max) = (0.0, 1.0);
        }
        if scale == Scale::Linear {
            (min, max) = (min.min(0.0), max.max(0.0));
        }
        let mut step = round_step((max - min) / TICKS);
        if scale == Scale::Log {
            step = step.ceil().max(1.0);
        }
        let from = (min / step).floor() * step;
        let to = ((max / step).ceil() * step).max(from + step);
        Range {
            scale,
            from,
            to,
            step,
            pixels,
        }
    }

    /// An axis of this number of places: 1, 2, and so on.
    fn of_places(count: usize, pixels: (f64, f64)) -> Range {
        Range {
            scale: Scale::Linear,
            from: 0.5,
            to: count as f64 + 0.5,
            step: 1.0,
            pixels,
        }
    }

    fn pixel(&self, number: f64) -> Option<f64> {
        let share = (place(self.scale, number)? - self.from) / (self.to - self.from);
        Some(self.pixels.0 + share * (self.pixels.1 - self.pixels.0))
    }

    /// The places of the ticks, and their labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        let count = ((self.to - self.from) / self.step).round() as usize;
        let tick = |place: usize| {
            let at = self.from + place as f64 * self.step;
            let share = place as f64 / count as f64;
            let pixel = self.pixels.0 + share * (self.pixels.1 - self.pixels.0);
            let says = match self.scale {
                Scale::Linear => number(at, self.step),
                Scale::Log => power(at),
            };
            (pixel, says)
        };
        (0..=count).map(tick).collect()
    }
}

/// The place of a number on its axis. `None` if it has none.
fn place(scale: Scale, number: f64) -> Option<f64> {
    let place = match scale {
        Scale::Linear => number,
        Scale::Log if number > 0.0 => number.log10(),
        Scale::Log => return None,
    };
    place
        .is_finite()
        .then(|| place.clamp(-10_f64.powf(LARGEST_POWER), 10_f64.powf(LARGEST_POWER)))
}

/// The next of 1, 2, 5, 10, 20, ...
fn round_step(step: f64) -> f64 {
    if step <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(step.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    steps
        .into_iter()
        .find(|&round| round >= step * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

/// A tick of a linear axis with as many digits as its step has.
fn number(number: f64, step: f64) -> String {
    // Zero may have a rounding error.
    let number = if number.abs() < step / 2.0 { 0.0 } else { number };
    if !(1e-6..1e6).contains(&number.abs().max(step)) {
        return format!("{number:.3e}");
    }
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    format!("{number:.decimals$}")
}

/// A power of ten.
fn power(exponent: f64) -> String {
    match exponent.round() as i32 {
        exponent @ 0..=5 => format!("{}", 10_i32.pow(exponent as u32)),
        exponent @ -4..=-1 => format!("{:.*}", exponent.unsigned_abs() as usize, 10_f64.powi(exponent)),
        exponent => format!("1e{exponent}"),
    }
}

impl Plot {
    /// The plot as an SVG document.
    pub fn svg(&self) -> String {
        let legend = self.legend();
        let notes = usize::from(!self.note.is_empty());
        let lines = legend.iter().map(|entry| entry.line + 1).max().unwrap_or(0) + notes;
        // There is room for one, and none for labels at the top.
        let labels = if self.labels.is_empty() { 0.0 } else { LABELS };
        let down = LINE * lines.saturating_sub(1) as f64 + labels;
        let (top, bottom, height) = (TOP + down, BOTTOM + down, HEIGHT + down);
        let all = || self.series.iter().flat_map(|series| &series.points);
        let x = match self.x.names.len() {
            0 => Range::of(self.x.scale, all().map(|point| point.0), (LEFT, RIGHT)),
            count => Range::of_places(count, (LEFT, RIGHT)),
        };
        let y = Range::of(self.y.scale, all().map(|point| point.1), (bottom, top));
        let font = " font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\"";
        let mut svg = Svg::new(WIDTH, height, font);
        svg.background();
        let middle = (LEFT + RIGHT) / 2.0;
        text(&mut svg, (middle, 24.0), "middle\" font-size=\"16", &self.title);
        text(&mut svg, (middle, 44.0), "middle\" fill=\"#555", &self.note);
        text(&mut svg, (middle, height - 14.0), "middle", &self.x.label);
        let turned = (top + bottom) / 2.0;
        text(
            &mut svg,
            (0.0, 0.0),
            &format!("middle\" transform=\"translate(20 {turned}) rotate(-90)"),
            &self.y.label,
        );
        for (at, down, says) in self.ticks_of_x(&x) {
            line(&mut svg, (at, bottom), (at, bottom + 5.0), "#222");
            text(&mut svg, (at, bottom + 20.0 + down), "middle", &says);
        }
        for (at, says) in y.ticks() {
            line(&mut svg, (LEFT, at), (RIGHT, at), "#ddd");
            text(&mut svg, (LEFT - 8.0, at + 4.0), "end", &says);
        }
        line(&mut svg, (LEFT, bottom), (RIGHT, bottom), "#222");
        line(&mut svg, (LEFT, top), (LEFT, bottom), "#222");
        for place in 0..self.series.len() {
            self.draw(&mut svg, place, &x, &y);
        }
        for (at, over, says) in &self.labels {
            if let (Some(at), Some(over)) = (x.pixel(*at), y.pixel(*over)) {
                text(
                    &mut svg,
                    (at, over - 5.0),
                    "middle\" font-size=\"10\" fill=\"#555",
                    says,
                );
            }
        }
        if all().next().is_none() {
            text(
                &mut svg,
                (middle, turned),
                "middle\" fill=\"#777",
                "nothing to show",
            );
        }
        for entry in &legend {
            let at = (entry.x, 44.0 + LINE * (entry.line + notes) as f64);
            self.legend_entry(&mut svg, entry.series, at);
        }
        svg.finish()
    }

    /// Where the ticks of x are, how much lower than usual their labels are, and the labels. Names that have no room beside each other are on two lines.
    fn ticks_of_x(&self, x: &Range) -> Vec<(f64, f64, String)> {
        let names = &self.x.names;
        if names.is_empty() {
            return x.ticks().into_iter().map(|(at, says)| (at, 0.0, says)).collect();
        }
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let is_narrow = (longest + 1) as f64 * LETTER * names.len() as f64 > RIGHT - LEFT;
        let tick = |(place, name): (usize, &String)| {
            let down = if is_narrow && place % 2 == 1 { 13.0 } else { 0.0 };
            let at = x.pixel((place + 1) as f64).unwrap_or(LEFT);
            (at, down, name.clone())
        };
        names.iter().enumerate().map(tick).collect()
    }

    fn look(&self, series: usize) -> &'static Look {
        match self.series.len() {
            1 => &ALONE,
            _ => &LOOKS[series % LOOKS.len()],
        }
    }

    /// The places of the series' names, if there are several series: as many on a line as there is room for.
    fn legend(&self) -> Vec<LegendEntry> {
        let (mut x, mut line, mut entries) = (LEFT, 0, Vec::new());
        if self.series.len() < 2 {
            return entries;
        }
        for (place, series) in self.series.iter().enumerate() {
            let width = 60.0 + LETTER * series.name.chars().count() as f64;
            if x > LEFT && x + width > RIGHT {
                (x, line) = (LEFT, line + 1);
            }
            entries.push(LegendEntry {
                series: place,
                x,
                line,
            });
            x += width;
        }
        entries
    }

    /// A piece of the series' line with its mark, and its name.
    fn legend_entry(&self, svg: &mut Svg, series: usize, at: (f64, f64)) {
        let (look, series) = (self.look(series), &self.series[series]);
        let middle = (at.0 + 18.0, at.1 - 4.0);
        if series.shape != Shape::Points {
            let path = format!("M{:.1} {:.1}h36", at.0, middle.1);
            svg.put(&stroke(&path, look, "none"));
        }
        mark(svg, look, middle);
        text(svg, (at.0 + 42.0, at.1), "start", &series.name);
    }

    fn draw(&self, svg: &mut Svg, place: usize, x: &Range, y: &Range) {
        let (look, series) = (self.look(place), &self.series[place]);
        let points = series.points.iter();
        let pixels: Vec<Pixel> = points
            .map(|&(at, height)| Pixel {
                x: x.pixel(at),
                y: y.pixel(height),
                is_gap: height.is_nan(),
            })
            .collect();
        if series.shape != Shape::Points {
            let path = path(series.shape, &pixels, y.pixels.0);
            let fill = match series.shape {
                Shape::Bars => format!("{}\" fill-opacity=\"0.35", look.colour),
                _ => "none".into(),
            };
            if !path.is_empty() {
                svg.put(&stroke(&path, look, &fill));
            }
        }
        let is_told_apart = self.series.len() > 1 || matches!(series.shape, Shape::Line | Shape::Points);
        if series.shape == Shape::Bars || !is_told_apart {
            return;
        }
        let known: Vec<(f64, f64)> = pixels.iter().filter_map(|pixel| pixel.x.zip(pixel.y)).collect();
        let is_each = known.len() <= MAX_MARKED_POINTS && series.shape != Shape::Steps;
        let stride = if is_each {
            1
        } else {
            known.len().div_ceil(MARKS).max(1)
        };
        // So that the marks of different series are at different places.
        let first = stride * place / self.series.len();
        for &at in known.iter().skip(first).step_by(stride) {
            mark(svg, look, at);
        }
    }
}

/// The place of a series' name.
struct LegendEntry {
    series: usize,
    x: f64,
    /// The line, from 0.
    line: usize,
}

/// A point of a series in the drawing, as far as it has a place there.
struct Pixel {
    x: Option<f64>,
    y: Option<f64>,
    /// The line is broken here.
    is_gap: bool,
}

/// The line of a series, and its way up from the bottom if it is to be filled.
fn path(shape: Shape, pixels: &[Pixel], bottom: f64) -> String {
    let mut path = String::new();
    let mut last: Option<(f64, f64)> = None;
    let mut go = |to: (f64, f64), is_new: bool| {
        let to = ((to.0 * 10.0).round() / 10.0, (to.1 * 10.0).round() / 10.0);
        if is_new || last != Some(to) {
            let command = if is_new { 'M' } else { 'L' };
            write!(path, "{command}{} {}", to.0, to.1).expect("writing to a string does not fail");
            last = Some(to);
        }
    };
    // The height from which the line goes on.
    let mut before: Option<f64> = None;
    for pixel in pixels {
        let held = before.filter(|_| shape != Shape::Line);
        if let (Some(at), Some(held)) = (pixel.x, held)
            && (pixel.y.is_some() || pixel.is_gap)
        {
            go((at, held), false);
        }
        if let (Some(at), Some(height)) = (pixel.x, pixel.y) {
            if before.is_none() && shape == Shape::Bars {
                go((at, bottom), true);
            }
            go((at, height), before.is_none() && shape != Shape::Bars);
            before = Some(height);
        } else if pixel.is_gap {
            before = None;
        }
    }
    path
}

fn line(svg: &mut Svg, from: (f64, f64), to: (f64, f64), colour: &str) {
    svg.put(&format!(
        "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{colour}\"/>",
        from.0, from.1, to.0, to.1
    ));
}

/// `anchor` may bring further attributes, behind a quote.
fn text(svg: &mut Svg, at: (f64, f64), anchor: &str, says: &str) {
    let attributes = format!("x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\"", at.0, at.1);
    svg.text(&attributes, says);
}

#[cfg(test)]
mod tests;
