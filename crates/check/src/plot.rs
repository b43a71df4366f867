//! Plots as SVG: two axes with units, some series, nothing else.
//!
//! ```
//! use turnbuckle_check::{Axis, Plot, Scale, Series, Shape};
//! let plot = Plot {
//!     title: "Reads".into(),
//!     x: Axis::new("time, s", Scale::Linear),
//!     y: Axis::new("reads", Scale::Linear),
//!     series: vec![Series::new("site a", Shape::Line, vec![(0.0, 1.0), (1.0, 3.0)])],
//! };
//! assert!(plot.svg().starts_with("<svg"));
//! ```
//!
//! Dark on white. Linear axes include zero and end at a round number; logarithmic ones end at powers of ten, and what is not
//! positive is left out, as are numbers that are not finite. All text is escaped. Points that fall on the same tenth of a pixel
//! are written once; else the size of the output is that of the data, so whoever makes a plot bounds that.
use crate::Svg;
use serde::Deserialize;
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 690.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 340.0;
const COLOURS: [&str; 6] = ["#1f4e79", "#b3541e", "#2e7d32", "#7b1fa2", "#616161", "#c2185b"];
/// About how many ticks an axis has.
const TICKS: f64 = 6.0;
/// Powers of ten beyond this are not told apart from it.
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
}

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What it measures, and in what unit.
    pub label: String,
    /// How numbers become lengths.
    pub scale: Scale,
}

impl Axis {
    /// From its parts.
    pub fn new(label: impl Into<String>, scale: Scale) -> Axis {
        Axis {
            label: label.into(),
            scale,
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
    /// For the legend.
    pub name: String,
    /// How they are drawn.
    pub shape: Shape,
    /// x and y, by rising x.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// From its parts.
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

/// The edges of so many bars of equal width that hold all numbers, the greatest too; none if there are none.
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
    /// Of a logarithmic one the powers of ten.
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

    fn pixel(&self, number: f64) -> Option<f64> {
        let share = (place(self.scale, number)? - self.from) / (self.to - self.from);
        Some(self.pixels.0 + share * (self.pixels.1 - self.pixels.0))
    }

    /// Where there is a tick, and what it says.
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

/// Where on its axis a number is; nowhere if that cannot be said.
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
    // Zero may have become a rest of something.
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
        let all = || self.series.iter().flat_map(|series| &series.points);
        let x = Range::of(self.x.scale, all().map(|point| point.0), (LEFT, RIGHT));
        let y = Range::of(self.y.scale, all().map(|point| point.1), (BOTTOM, TOP));
        let font = " font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\"";
        let mut svg = Svg::new(WIDTH, HEIGHT, font);
        svg.background();
        let middle = (LEFT + RIGHT) / 2.0;
        text(&mut svg, (middle, 24.0), "middle\" font-size=\"16", &self.title);
        text(&mut svg, (middle, HEIGHT - 14.0), "middle", &self.x.label);
        let turned = (TOP + BOTTOM) / 2.0;
        text(
            &mut svg,
            (0.0, 0.0),
            &format!("middle\" transform=\"translate(20 {turned}) rotate(-90)"),
            &self.y.label,
        );
        for (at, says) in x.ticks() {
            line(&mut svg, (at, BOTTOM), (at, BOTTOM + 5.0), "#222");
            text(&mut svg, (at, BOTTOM + 20.0), "middle", &says);
        }
        for (at, says) in y.ticks() {
            line(&mut svg, (LEFT, at), (RIGHT, at), "#ddd");
            text(&mut svg, (LEFT - 8.0, at + 4.0), "end", &says);
        }
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            draw(&mut svg, series, colour, &x, &y);
        }
        line(&mut svg, (LEFT, BOTTOM), (RIGHT, BOTTOM), "#222");
        line(&mut svg, (LEFT, TOP), (LEFT, BOTTOM), "#222");
        if all().next().is_none() {
            text(
                &mut svg,
                (middle, turned),
                "middle\" fill=\"#777",
                "nothing to show",
            );
        }
        if self.series.len() > 1 {
            self.legend(&mut svg);
        }
        svg.finish()
    }

    /// One line above the drawing: as many names as there is room for.
    fn legend(&self, svg: &mut Svg) {
        let mut at = LEFT;
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let next = at + 40.0 + 8.0 * series.name.chars().count() as f64;
            if next > RIGHT {
                return;
            }
            line(svg, (at, 44.0), (at + 18.0, 44.0), colour);
            text(svg, (at + 24.0, 48.0), "start", &series.name);
            at = next;
        }
    }
}

fn draw(svg: &mut Svg, series: &Series, colour: &str, x: &Range, y: &Range) {
    let pixels = series
        .points
        .iter()
        .filter_map(|&(at, height)| Some((x.pixel(at)?, y.pixel(height)?)));
    let mut path = String::new();
    let mut last: Option<(f64, f64)> = None;
    let mut go = |to: (f64, f64)| {
        let to = ((to.0 * 10.0).round() / 10.0, (to.1 * 10.0).round() / 10.0);
        if last != Some(to) {
            let command = if last.is_none() { 'M' } else { 'L' };
            write!(path, "{command}{} {}", to.0, to.1).expect("writing to a string does not fail");
            last = Some(to);
        }
    };
    let (mut before, mut first) = (None, true);
    for (at, height) in pixels {
        if series.shape == Shape::Bars && first {
            go((at, BOTTOM));
        }
        if let Some(before) = before.filter(|_| series.shape != Shape::Line) {
            go((at, before));
        }
        go((at, height));
        (before, first) = (Some(height), false);
    }
    let fill = match series.shape {
        Shape::Bars => format!("{colour}\" fill-opacity=\"0.35"),
        Shape::Line | Shape::Steps => "none".into(),
    };
    if !path.is_empty() {
        svg.put(&format!(
            "<path d=\"{path}\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        ));
    }
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
mod tests {
    use super::*;

    fn plot(scale: Scale, points: Vec<(f64, f64)>) -> String {
        let series = Series::new("<reads> & \"writes\"", Shape::Bars, points);
        let plot = Plot {
            title: "a < b".into(),
            x: Axis::new("time, s", scale),
            y: Axis::new("reads\u{1}", scale),
            series: vec![series.clone(), series],
        };
        plot.svg()
    }

    #[test]
    fn names_are_escaped() {
        let svg = plot(Scale::Linear, vec![(0.0, 1.0)]);
        assert!(svg.contains(">a &lt; b<"));
        assert!(svg.contains("&lt;reads&gt; &amp; &quot;writes&quot;"));
        assert!(svg.contains(">reads\u{fffd}<"));
    }

    #[test]
    fn ticks_are_round_numbers() {
        let says = |range: Range| {
            range
                .ticks()
                .into_iter()
                .map(|(_, says)| says)
                .collect::<Vec<String>>()
        };
        let linear = |max| says(Range::of(Scale::Linear, [max].into_iter(), (0.0, 1.0)));
        assert_eq!(
            linear(0.3),
            ["0.00", "0.05", "0.10", "0.15", "0.20", "0.25", "0.30"]
        );
        assert_eq!(linear(11.0), ["0", "2", "4", "6", "8", "10", "12"]);
        let log = Range::of(Scale::Log, [0.2, 300.0].into_iter(), (0.0, 1.0));
        assert_eq!(says(log), ["0.1", "1", "10", "100", "1000"]);
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let odd = [
            f64::NAN,
            f64::INFINITY,
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            -1.0,
            0.0,
        ];
        for scale in [Scale::Linear, Scale::Log] {
            for (at, height) in odd.iter().flat_map(|&at| odd.map(|height| (at, height))) {
                let svg = plot(scale, vec![(at, height), (1.0, 2.0)]);
                assert!(
                    !svg.contains("NaN") && !svg.contains("inf"),
                    "{at} {height}: {svg}"
                );
                assert!(svg.len() < 10_000, "{at} {height}");
            }
        }
        assert!(plot(Scale::Log, Vec::new()).contains("nothing to show"));
    }
}
