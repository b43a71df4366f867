//! How the series of a plot are told apart, also where they are equal.
use crate::Svg;

/// How series are told apart: the colour, the width of the line, its dashes and gaps, and the mark.
pub(super) const LOOKS: [Look; 6] = [
    Look::new("#1f4e79", 3.4, "", Mark::Circle),
    Look::new("#d9822b", 2.2, "9 5", Mark::Square),
    Look::new("#2e7d32", 2.0, "2 4", Mark::Triangle),
    Look::new("#7b1fa2", 1.8, "12 4 2 4", Mark::Diamond),
    Look::new("#616161", 1.6, "5 3", Mark::Cross),
    Look::new("#c2185b", 1.4, "2 2 6 2", Mark::Plus),
];
/// The look of a series that is alone.
pub(super) const ALONE: Look = Look::new("#1f4e79", 1.5, "", Mark::Circle);

/// How one of several series looks.
pub(super) struct Look {
    pub(super) colour: &'static str,
    pub(super) width: f64,
    pub(super) dashes: &'static str,
    mark: Mark,
}

impl Look {
    const fn new(colour: &'static str, width: f64, dashes: &'static str, mark: Mark) -> Look {
        Look {
            colour,
            width,
            dashes,
            mark,
        }
    }
}

/// The mark at a point. Marks differ in size and shape, so that of equal points all can be seen.
#[derive(Clone, Copy)]
pub(super) enum Mark {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    Plus,
}

impl Mark {
    /// Its lines, from the point on, and whether it is filled.
    fn path(self) -> (&'static str, bool) {
        match self {
            Mark::Circle => ("m-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0", false),
            Mark::Square => ("m-4.5 -4.5h9v9h-9z", false),
            Mark::Triangle => ("m0 -4l3.6 6.4h-7.2z", true),
            Mark::Diamond => ("m0 -7.5l7.5 7.5l-7.5 7.5l-7.5 -7.5z", false),
            Mark::Cross => ("m-3.5 -3.5l7 7m0 -7l-7 7", false),
            Mark::Plus => ("m-8 0h16m-8 -8v16", false),
        }
    }
}

/// A path as a series is drawn.
pub(super) fn stroke(path: &str, look: &Look, fill: &str) -> String {
    let dashes = match look.dashes {
        "" => String::new(),
        dashes => format!(" stroke-dasharray=\"{dashes}\""),
    };
    let (colour, width) = (look.colour, look.width);
    format!("<path d=\"{path}\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"{width}\"{dashes}/>")
}

pub(super) fn mark(svg: &mut Svg, look: &Look, at: (f64, f64)) {
    let (path, is_filled) = look.mark.path();
    let fill = if is_filled { look.colour } else { "none" };
    svg.put(&format!(
        "<path class=\"mark\" d=\"M{:.1} {:.1}{path}\" fill=\"{fill}\" stroke=\"{}\" stroke-width=\"1.6\"/>",
        at.0, at.1, look.colour
    ));
}
