//! The report of an experiment: as tables, as figures, as JSON.
use super::{
    claim::{Claim, Held, Verdict},
    compare::Compare,
    file::{Experiment, Measure},
    results::Results,
};
use comfy_table::{CellAlignment, Table, presets::NOTHING};
use serde::Serialize;
use std::fmt::Write;
use turnbuckle_check::{Axis, Plot, Scale, Series, Shape};

/// An experiment that was run.
pub struct Report<'a> {
    experiment: &'a Experiment,
    results: &'a Results,
    verdicts: Vec<Verdict>,
}

/// A protocol, and the places of its values on all axes; that on x is 0.
struct Curve {
    name: String,
    protocol: usize,
    point: Vec<usize>,
}

#[derive(Serialize)]
pub struct Json<'a> {
    name: &'a str,
    title: &'a str,
    source: &'a str,
    x: &'a str,
    at: Vec<&'a str>,
    measures: Vec<JsonMeasure<'a>>,
    claims: Vec<JsonClaim<'a>>,
    violations: &'a [String],
    held: bool,
}

#[derive(Serialize)]
struct JsonMeasure<'a> {
    name: &'a str,
    label: &'a str,
    curves: Vec<JsonCurve>,
}

#[derive(Serialize)]
struct JsonCurve {
    name: String,
    values: Vec<Option<f64>>,
}

#[derive(Serialize)]
struct JsonClaim<'a> {
    words: &'a str,
    measure: &'a str,
    compare: &'static str,
    paper: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    found: Option<(f64, f64)>,
    /// `None`: the claim is neither held nor broken.
    held: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    /// Why our number is far from the paper's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    differs: Option<&'a str>,
}

impl<'a> Report<'a> {
    pub fn new(experiment: &'a Experiment, results: &'a Results) -> Report<'a> {
        let judge = |claim: &Claim| claim.judge(experiment, results);
        Report {
            experiment,
            results,
            verdicts: experiment.claims.iter().map(judge).collect(),
        }
    }

    /// How many claims did not hold, and how many runs went wrong.
    pub fn broken(&self) -> usize {
        let not_held = self.verdicts.iter().filter(|verdict| verdict.held == Held::No);
        not_held.count() + self.results.violations.len()
    }

    fn curves(&self) -> Vec<Curve> {
        let experiment = self.experiment;
        let points = experiment.points().into_iter().filter(|point| point[0] == 0);
        let curve = |point: Vec<usize>, protocol: usize| {
            let values = experiment.axes.iter().zip(&point).skip(1);
            let values = values.map(|(axis, &place)| format!("{} {}", axis.name, axis.values[place].label));
            // If all curves are of one protocol, the others' names say enough.
            let protocol_name = experiment.protocols[protocol].name.clone();
            let is_named = experiment.protocols.len() > 1 || experiment.axes.len() == 1;
            let words = is_named.then_some(protocol_name).into_iter().chain(values);
            let name = words.collect::<Vec<String>>().join(", ");
            Curve {
                name,
                protocol,
                point,
            }
        };
        let protocols = 0..experiment.protocols.len();
        points
            .flat_map(|point| protocols.clone().map(move |protocol| (point.clone(), protocol)))
            .map(|(point, protocol)| curve(point, protocol))
            .collect()
    }

    /// The number at a place of x.
    fn number(&self, measure: &Measure, curve: &Curve, place: usize) -> Option<f64> {
        let mut point = curve.point.clone();
        point[0] = place;
        let run = self.results.counted(curve.protocol, &point)?;
        self.experiment.number(measure, &point, run)
    }

    // ---- text -----------------------------------------------------------------------------------------------

    /// Tables, and a line for each claim.
    pub fn text(&self) -> String {
        let experiment = self.experiment;
        let mut text = format!(
            "{}: {}\n  {}\n\n{}",
            experiment.name,
            experiment.title,
            experiment.source,
            self.findings()
        );
        if !experiment.notes.is_empty() {
            write!(text, "\n\n{}", experiment.notes.trim_end()).expect("a String grows");
        }
        text
    }

    /// The results, without the parts that depend only on the experiment's file.
    pub fn findings(&self) -> String {
        let (experiment, mut text) = (self.experiment, String::new());
        let numbers = experiment
            .measures
            .iter()
            .filter(|measure| !measure.what.is_distribution());
        for measure in numbers {
            let table = self.table(measure);
            write!(text, "{}\n{table}\n\n", measure.label).expect("a String grows");
        }
        for (claim, verdict) in experiment.claims.iter().zip(&self.verdicts) {
            writeln!(text, "{}", line(claim, verdict)).expect("a String grows");
        }
        for violation in &self.results.violations {
            writeln!(text, "wrong: {violation}").expect("a String grows");
        }
        text.trim_end().to_string()
    }

    fn table(&self, measure: &Measure) -> Table {
        let x = &self.experiment.axes[0];
        let curves = self.curves();
        let mut table = Table::new();
        table.load_style(NOTHING);
        let names = curves.iter().map(|curve| curve.name.clone());
        table.set_header(std::iter::once(x.label.clone()).chain(names));
        for (place, value) in x.values.iter().enumerate() {
            let numbers = curves.iter().map(|curve| {
                let number = self.number(measure, curve, place);
                number.map_or("-".into(), short)
            });
            table.add_row(std::iter::once(value.label.clone()).chain(numbers));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    // ---- figures --------------------------------------------------------------------------------------------

    /// A figure for each measure and each value of the axes besides x; of distributions for each value of x as well. With the name of each.
    pub fn figures(&self) -> Vec<(String, Plot)> {
        let experiment = self.experiment;
        let mut figures = Vec::new();
        for measure in &experiment.measures {
            let is_distribution = measure.what.is_distribution();
            let points = experiment.points().into_iter();
            for point in points.filter(|point| is_distribution || point[0] == 0) {
                let told_apart = usize::from(!is_distribution);
                let values: Vec<String> = experiment.axes[told_apart..]
                    .iter()
                    .zip(&point[told_apart..])
                    .map(|(axis, &place)| format!("{} {}", axis.name, axis.values[place].label))
                    .collect();
                let plot = match is_distribution {
                    true => self.distributions(measure, &point, &values.join(", ")),
                    false => self.plot(measure, &point, &values.join(", ")),
                };
                let words = std::iter::once(measure.name.clone()).chain(values);
                figures.push((file_name(&words.collect::<Vec<String>>().join("-")), plot));
            }
        }
        figures
    }

    fn title(&self, measure: &Measure, at: &str) -> String {
        let gap = if at.is_empty() { "" } else { ", " };
        format!("{}: {}{gap}{at}", self.experiment.name, measure.label)
    }

    /// A curve for each protocol, along x.
    fn plot(&self, measure: &Measure, point: &[usize], at: &str) -> Plot {
        let x = &self.experiment.axes[0];
        let curves = self.curves().into_iter().filter(|curve| curve.point == point);
        let series = curves.map(|curve| {
            let points = x.values.iter().enumerate();
            let mut points: Vec<(f64, f64)> = points
                .filter_map(|(place, value)| Some((value.x, self.number(measure, &curve, place)?)))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let protocol = &self.experiment.protocols[curve.protocol];
            // Two points make no curve, and neither do numbers of names.
            let shape = if points.len() < 3 || x.has_names() {
                Shape::Points
            } else {
                Shape::Line
            };
            Series::new(protocol.name.clone(), shape, points)
        });
        Plot {
            title: self.title(measure, at),
            x: match x.has_names() {
                true => Axis::of_names(
                    &x.label,
                    x.values.iter().map(|value| value.label.clone()).collect(),
                ),
                false => Axis::new(x.label.clone(), Scale::Linear),
            },
            y: Axis::new(measure.label.clone(), measure.scale),
            series: series.collect(),
            note: self.experiment.note(),
            labels: Vec::new(),
        }
    }

    /// A distribution for each protocol.
    fn distributions(&self, measure: &Measure, point: &[usize], at: &str) -> Plot {
        let protocols = self.experiment.protocols.iter().enumerate();
        let series = protocols.map(|(number, protocol)| {
            let counted = self.results.counted(number, point);
            let points = counted.map_or(Vec::new(), |run| {
                self.experiment.distribution(measure, point, run)
            });
            Series::new(protocol.name.clone(), Shape::Steps, points)
        });
        Plot {
            title: self.title(measure, at),
            x: Axis::new(measure.label.clone(), measure.scale),
            y: Axis::new("share that took at most this time", Scale::Linear),
            series: series.collect(),
            note: self.experiment.note(),
            labels: Vec::new(),
        }
    }

    // ---- JSON -----------------------------------------------------------------------------------------------

    pub fn json(&self) -> Json<'_> {
        let experiment = self.experiment;
        let x = &experiment.axes[0];
        let numbers = experiment
            .measures
            .iter()
            .filter(|measure| !measure.what.is_distribution());
        let curve = |measure, curve: Curve| JsonCurve {
            values: (0..x.values.len())
                .map(|place| self.number(measure, &curve, place))
                .collect(),
            name: curve.name,
        };
        let measures = numbers.map(|measure| JsonMeasure {
            name: &measure.name,
            label: &measure.label,
            curves: self
                .curves()
                .into_iter()
                .map(|found| curve(measure, found))
                .collect(),
        });
        let claims = experiment.claims.iter().zip(&self.verdicts);
        Json {
            name: &experiment.name,
            title: &experiment.title,
            source: &experiment.source,
            x: &x.label,
            at: x.values.iter().map(|value| value.label.as_str()).collect(),
            measures: measures.collect(),
            claims: claims
                .map(|(claim, verdict)| self.json_claim(claim, verdict))
                .collect(),
            violations: &self.results.violations,
            held: self.broken() == 0,
        }
    }

    fn json_claim<'b>(&'b self, claim: &'b Claim, verdict: &'b Verdict) -> JsonClaim<'b> {
        JsonClaim {
            words: &claim.words,
            measure: &self.experiment.measures[claim.measure].name,
            compare: claim.compare.name(),
            paper: claim.paper,
            min: claim.min,
            max: claim.max,
            found: verdict.found,
            held: match verdict.held {
                Held::Yes => Some(true),
                Held::No => Some(false),
                Held::Unknown(_) => None,
            },
            why: match &verdict.held {
                Held::Unknown(why) => Some(why),
                _ => None,
            },
            differs: claim.differs.as_deref(),
        }
    }
}

/// One claim.
fn line(claim: &Claim, verdict: &Verdict) -> String {
    let mut line = match &verdict.held {
        Held::Yes => format!("held: {}", claim.words),
        Held::No => format!("not held: {}", claim.words),
        Held::Unknown(why) => format!("does not count: {} ({why})", claim.words),
    };
    let unit = if claim.compare == Compare::LowerBy {
        " %"
    } else {
        ""
    };
    let found = match verdict.found {
        None => "not measured".into(),
        Some((min, max)) if short(min) == short(max) => short(min) + unit,
        Some((min, max)) => format!("{} to {}{unit}", short(min), short(max)),
    };
    write!(line, "; {} here {found}", claim.compare.name()).expect("a String grows");
    if let Some(paper) = claim.paper {
        write!(line, ", in the paper {}{unit}", short(paper)).expect("a String grows");
    }
    let bounds = [("at least", claim.min), ("at most", claim.max)];
    let bounds: Vec<String> = bounds
        .iter()
        .filter_map(|(words, bound)| bound.map(|bound| format!("{words} {}{unit}", short(bound))))
        .collect();
    write!(line, "; expected {}", bounds.join(" and ")).expect("a String grows");
    if let Some(why) = &claim.differs {
        write!(line, "; our number differs because {why}").expect("a String grows");
    }
    line
}

/// A number with three or four significant digits; with fewer if it is below 0.001.
fn short(number: f64) -> String {
    match number.abs() {
        0.0 => "0".into(),
        size if size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 1.0 => format!("{number:.2}"),
        size if size >= 0.1 => format!("{number:.3}"),
        size if size >= 0.01 => format!("{number:.4}"),
        _ => format!("{number:.5}"),
    }
}

/// The text with only the characters that are safe in the name of a file.
fn file_name(words: &str) -> String {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    words.chars().map(safe).collect()
}
