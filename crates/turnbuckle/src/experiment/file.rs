//! Experiments as TOML files.
//!
//! ```toml
//! title = "PUT latency against clock skew"
//! source = "dissertation, section 5.5.1, Figure 5.1"
//! notes = "What the simulator cannot show."     # default: nothing
//! protocols = ["gentlerain", "causalspartanx"]  # each a curve
//!
//! [x]                                 # from left to right
//! name = "skew"
//! label = "clock skew, ms"            # default: its name
//! values = ["0ms", "10ms"]            # numbers, times, or tables: see below
//!
//! [[axis]]                            # any more; each of their values makes columns and figures of its own
//! name = "site"
//! values = [{ label = "Oregon", x = 21.9, delay = "11ms" }]
//!
//! [[measure]]                         # a table and a figure each
//! name = "put"
//! what = "write mean"                 # of what (read, write, request, operation, many, many-apart, visibility) and which
//!                                     # number (mean, p25, p50, p90, p95, p99, per-second, or cdf: a figure of its own)
//! label = "PUT latency, ms"           # default: what
//! scale = "log"                       # default linear
//!
//! [[claim]]                           # what the paper says
//! words = "GentleRain's PUTs take 4 times as long"
//! measure = "put"
//! compare = "ratio"                   # see below
//! of = "gentlerain"
//! to = "causalspartanx"
//! at = { skew = "2ms" }               # values' labels; axes that are not named: at each of their values
//! paper = 4.0                         # the paper's number, if it gives one
//! least = 3.0                         # what counts as held: at least, at most, or both
//! most = 5.0
//! differs = "why"                     # ours is far from the paper's number, which is what is said of it: printed behind both
//! beyond = "why"                      # the simulator cannot show it: it is printed, and does not count
//!
//! [scenario]                          # a scenario as in scenarios/*.toml; "$skew" stands for the axis's value,
//! clock_offsets = ["0ms", "$skew"]    # "$site.delay" for a field of it
//! ```
//!
//! | compare | is |
//! |---|---|
//! | `value` | the number itself |
//! | `ratio` | that of `of`, divided by that of `to` |
//! | `difference` | that of `of`, less that of `to` |
//! | `lower-by` | by how many percent that of `of` is below that of `to` |
//! | `spread` | along the whole of x, the greatest divided by the least |
//! | `growth` | along the whole of x, the last divided by the first |
//! | `step` | along the whole of x, the least ratio of a number to the one before |
//!
//! A value's literal takes the place of `"$name"`, quotes and all, before the file is read again for each point: the lines of what is
//! wrong are right, its columns are those of the line with the values in it.
use super::measure::What;
use crate::protocols::{check_parameters, protocol_named};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Spanned, Value};
use turnbuckle_check::Scale;
use turnbuckle_core::Micros;
use turnbuckle_protocols::KnownProtocol;
use turnbuckle_sim::{Scenario, ScenarioTable};
use turnbuckle_workload::{BadFile, Misplaced};

/// An experiment.
pub struct Experiment {
    pub name: String,
    pub title: String,
    pub source: String,
    pub notes: String,
    pub protocols: Vec<Protocol>,
    /// The first is that from left to right.
    pub axes: Vec<Axis>,
    pub measures: Vec<Measure>,
    pub claims: Vec<Claim>,
    text: String,
}

pub struct Protocol {
    pub name: String,
    pub known: KnownProtocol,
}

pub struct Axis {
    pub name: String,
    pub label: String,
    pub values: Vec<AxisValue>,
}

pub struct AxisValue {
    pub label: String,
    /// Where it is drawn.
    pub x: f64,
    /// What stands for it in the scenario: the empty name for itself, else a field.
    literals: BTreeMap<String, String>,
}

pub struct Measure {
    pub name: String,
    pub what: What,
    pub label: String,
    pub scale: Scale,
}

/// Something that the paper says. See [`super::claim`].
pub struct Claim {
    pub words: String,
    /// The place of the measure.
    pub measure: usize,
    pub compare: Compare,
    /// The places of protocols. `to` is there where two are compared.
    pub of: usize,
    pub to: Option<usize>,
    /// For each axis the place of the value it is about; none: all.
    pub at: Vec<Option<usize>>,
    pub paper: Option<f64>,
    pub least: Option<f64>,
    pub most: Option<f64>,
    pub differs: Option<String>,
    pub beyond: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    Value,
    Ratio,
    Difference,
    LowerBy,
    Spread,
    Growth,
    Step,
}

const COMPARES: [(&str, Compare); 7] = [
    ("value", Compare::Value),
    ("ratio", Compare::Ratio),
    ("difference", Compare::Difference),
    ("lower-by", Compare::LowerBy),
    ("spread", Compare::Spread),
    ("growth", Compare::Growth),
    ("step", Compare::Step),
];

impl Compare {
    pub fn takes_two(self) -> bool {
        matches!(self, Compare::Ratio | Compare::Difference | Compare::LowerBy)
    }

    /// Whether it looks along the whole of x.
    pub fn is_along_x(self) -> bool {
        matches!(self, Compare::Spread | Compare::Growth | Compare::Step)
    }

    pub fn name(self) -> &'static str {
        let found = COMPARES.iter().find(|(_, compare)| *compare == self);
        found.map_or("", |(name, _)| name)
    }
}

// ---- the text -------------------------------------------------------------------------------------------------

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: String,
    #[serde(default)]
    notes: String,
    protocols: Spanned<Vec<Spanned<String>>>,
    x: AxisTable,
    #[serde(default)]
    axis: Vec<AxisTable>,
    measure: Spanned<Vec<MeasureTable>>,
    #[serde(default)]
    claim: Vec<ClaimTable>,
    /// Read once for each point, with its values in it.
    #[serde(rename = "scenario")]
    _scenario: toml::Table,
}

/// The same file, of which only the scenario counts.
#[derive(Deserialize)]
struct WithScenario {
    scenario: ScenarioTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AxisTable {
    name: Spanned<String>,
    label: Option<String>,
    values: Spanned<Vec<Spanned<Value>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasureTable {
    name: Spanned<String>,
    what: Spanned<String>,
    label: Option<String>,
    scale: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimTable {
    words: Spanned<String>,
    measure: Spanned<String>,
    compare: Spanned<String>,
    of: Spanned<String>,
    to: Option<Spanned<String>>,
    #[serde(default)]
    at: BTreeMap<Spanned<String>, Spanned<String>>,
    paper: Option<f64>,
    least: Option<f64>,
    most: Option<f64>,
    differs: Option<String>,
    beyond: Option<String>,
}

/// No more runs than somebody waits for.
const MOST_POINTS: usize = 1_000;
const MOST_MEASURES: usize = 20;

impl Experiment {
    /// Reads an experiment, and looks at the scenario of each of its points.
    ///
    /// # Errors
    /// What is wrong with the text, what was expected, and where.
    pub fn parse(name: &str, text: &str) -> Result<Experiment, BadFile> {
        let file: File = BadFile::parse(text)?;
        let misplaced = |(place, message): Misplaced| BadFile::at(text, place, &message);
        let experiment = file.check(name, text).map_err(misplaced)?;
        for point in experiment.points() {
            experiment.scenario(&point)?;
        }
        Ok(experiment)
    }

    /// All points of the axes, as the places of their values, x first. The last axis turns fastest.
    pub fn points(&self) -> Vec<Vec<usize>> {
        self.axes.iter().fold(vec![Vec::new()], |points, axis| {
            let with = |point: &Vec<usize>, place| point.iter().copied().chain([place]).collect();
            points
                .iter()
                .flat_map(|point| (0..axis.values.len()).map(move |place| with(point, place)))
                .collect()
        })
    }

    /// The scenario at a point.
    ///
    /// # Errors
    /// What is wrong with it, what was expected, and where.
    pub fn scenario(&self, point: &[usize]) -> Result<Scenario, BadFile> {
        let mut text = self.text.clone();
        for (axis, &place) in self.axes.iter().zip(point) {
            for (field, literal) in &axis.values[place].literals {
                text = text.replace(&placeholder(&axis.name, field), literal);
            }
        }
        let file: WithScenario =
            BadFile::parse(&text).map_err(|error| self.left_over(&text).unwrap_or(error))?;
        let misplaced = |(place, message): Misplaced| {
            let error = BadFile::at(&text, place, &message);
            self.left_over(&text).unwrap_or(error)
        };
        let scenario = file.scenario.check(&self.name).map_err(misplaced)?.scenario;
        let place = text.find("parameters").unwrap_or(0);
        check_parameters(&scenario.parameters).map_err(|why| misplaced((place..place + 1, why)))?;
        Ok(scenario)
    }

    /// What stands for the value of an axis that there is not.
    fn left_over(&self, text: &str) -> Option<BadFile> {
        let begin = text.find("\"$")?;
        let found: String = text[begin + 1..].chars().take_while(|&c| c != '"').collect();
        let known = self.axes.iter().flat_map(|axis| {
            let fields = axis.values.iter().flat_map(|value| value.literals.keys());
            fields.map(|field| placeholder(&axis.name, field))
        });
        let known: std::collections::BTreeSet<String> = known.collect();
        let known: Vec<String> = known.into_iter().collect();
        let message = format!(
            "{found}: no axis has it for each of its values; expected {}",
            known.join(", ")
        );
        Some(BadFile::at(text, begin..begin + 1, &message))
    }

    /// The same with the first and the last value of each axis alone.
    pub fn quick(mut self) -> Experiment {
        for (number, axis) in self.axes.iter_mut().enumerate() {
            let last = axis.values.len() - 1;
            let mut place = 0;
            axis.values.retain(|_| {
                place += 1;
                place == 1 || place == last + 1
            });
            for claim in &mut self.claims {
                claim.at[number] = claim.at[number].map(|place| match place {
                    0 => 0,
                    place if place == last => 1,
                    _ => usize::MAX,
                });
            }
        }
        self
    }
}

/// What stands for an axis's value in the scenario, or for a field of it.
fn placeholder(axis: &str, field: &str) -> String {
    match field {
        "" => format!("\"${axis}\""),
        field => format!("\"${axis}.{field}\""),
    }
}

impl File {
    fn check(self, name: &str, text: &str) -> Result<Experiment, Misplaced> {
        let protocols = protocols(&self.protocols)?;
        let mut axes = Vec::new();
        for table in std::iter::once(self.x).chain(self.axis) {
            let place = table.name.span();
            let axis = table.check()?;
            if axes.iter().any(|other: &Axis| other.name == axis.name) {
                return Err((place, format!("name: there is an axis '{}' already", axis.name)));
            }
            axes.push(axis);
        }
        let points = axes.iter().fold(protocols.len(), |points, axis: &Axis| {
            points.saturating_mul(axis.values.len())
        });
        if points > MOST_POINTS {
            let message = format!("protocols: {points} runs with all axes; expected at most {MOST_POINTS}");
            return Err((self.protocols.span(), message));
        }
        let count = self.measure.get_ref().len();
        if !(1..=MOST_MEASURES).contains(&count) {
            let message = format!("measure: {count}; expected 1 to {MOST_MEASURES}");
            return Err((self.measure.span(), message));
        }
        let measures = self.measure.into_inner().into_iter().map(MeasureTable::check);
        let mut experiment = Experiment {
            name: name.into(),
            title: self.title,
            source: self.source,
            notes: self.notes,
            protocols,
            axes,
            measures: measures.collect::<Result<_, _>>()?,
            claims: Vec::new(),
            text: text.into(),
        };
        for claim in self.claim {
            let claim = claim.check(&experiment)?;
            experiment.claims.push(claim);
        }
        Ok(experiment)
    }
}

fn protocols(names: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<Protocol>, Misplaced> {
    if names.get_ref().is_empty() {
        return Err((names.span(), "protocols: none; expected at least one".into()));
    }
    let named = |name: &Spanned<String>| match protocol_named(name.get_ref()) {
        Ok(known) => Ok(Protocol {
            name: name.get_ref().clone(),
            known,
        }),
        Err(error) => Err((name.span(), format!("protocols: {error}"))),
    };
    names.get_ref().iter().map(named).collect()
}

impl AxisTable {
    fn check(self) -> Result<Axis, Misplaced> {
        let (place, name) = (self.name.span(), self.name.into_inner());
        if !is_word(&name) {
            let message = format!("name: '{name}'; expected letters, digits, dashes and underscores");
            return Err((place, message));
        }
        if self.values.get_ref().is_empty() {
            let message = "values: none; expected at least one";
            return Err((self.values.span(), message.into()));
        }
        let values = self.values.into_inner().into_iter().map(axis_value);
        Ok(Axis {
            values: values.collect::<Result<_, _>>()?,
            label: self.label.unwrap_or_else(|| name.clone()),
            name,
        })
    }
}

/// What can stand behind a `$`.
fn is_word(name: &str) -> bool {
    let may = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.chars().all(may)
}

fn axis_value(value: Spanned<Value>) -> Result<AxisValue, Misplaced> {
    let place = value.span();
    let number = |value: &Value| match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        // A time, in milliseconds; a negative one, too.
        Value::String(text) => {
            let (sign, span) = text
                .strip_prefix('-')
                .map_or((1.0, text.as_str()), |span| (-1.0, span));
            span.parse().ok().map(|span: Micros| sign * span.0 as f64 / 1e3)
        }
        _ => None,
    };
    let expected = "values: expected numbers, times such as \"2ms\", or tables with label and x";
    match value.into_inner() {
        Value::Table(table) => {
            let label = table.get("label").and_then(Value::as_str).map(String::from);
            let x = table.get("x").and_then(number);
            let (Some(label), Some(x)) = (label, x) else {
                return Err((place, expected.into()));
            };
            let fields = table
                .iter()
                .map(|(field, value)| (field.clone(), value.to_string()));
            Ok(AxisValue {
                label,
                x,
                literals: fields.collect(),
            })
        }
        value => match number(&value) {
            Some(x) => Ok(AxisValue {
                label: value.as_str().map_or_else(|| value.to_string(), String::from),
                x,
                literals: BTreeMap::from([(String::new(), value.to_string())]),
            }),
            None => Err((place, expected.into())),
        },
    }
}

impl MeasureTable {
    fn check(self) -> Result<Measure, Misplaced> {
        if !is_word(self.name.get_ref()) {
            let message = "name: expected letters, digits, dashes and underscores";
            return Err((self.name.span(), message.into()));
        }
        let wrong = |error| {
            (
                self.what.span(),
                format!("what: '{}'; {error}", self.what.get_ref()),
            )
        };
        let what: What = self.what.get_ref().parse().map_err(wrong)?;
        let scale = match self
            .scale
            .as_ref()
            .map(|scale| (scale.get_ref().as_str(), scale.span()))
        {
            None | Some(("linear", _)) => Scale::Linear,
            Some(("log", _)) => Scale::Log,
            Some((other, place)) => {
                return Err((place, format!("scale: '{other}'; expected linear or log")));
            }
        };
        Ok(Measure {
            name: self.name.into_inner(),
            label: self.label.unwrap_or_else(|| what.to_string()),
            what,
            scale,
        })
    }
}

/// The place of a name among those that there are.
fn place_of<'a>(
    given: &Spanned<String>,
    field: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<usize, Misplaced> {
    let found = names.clone().position(|name| name == given.get_ref());
    found.ok_or_else(|| {
        let names: Vec<&str> = names.collect();
        let message = format!(
            "{field}: '{}'; expected one of {}",
            given.get_ref(),
            names.join(", ")
        );
        (given.span(), message)
    })
}

impl ClaimTable {
    fn check(self, experiment: &Experiment) -> Result<Claim, Misplaced> {
        let protocols = experiment.protocols.iter().map(|protocol| protocol.name.as_str());
        let measures = experiment.measures.iter().map(|measure| measure.name.as_str());
        let measure = place_of(&self.measure, "measure", measures)?;
        if experiment.measures[measure].what.is_distribution() {
            let message = format!(
                "measure: {} is no number; expected one that is",
                self.measure.get_ref()
            );
            return Err((self.measure.span(), message));
        }
        let compare = place_of(&self.compare, "compare", COMPARES.iter().map(|(name, _)| *name))?;
        let compare = COMPARES[compare].1;
        if self.least.is_none() && self.most.is_none() {
            return Err((
                self.words.span(),
                "words: expected least, most or both beside them".into(),
            ));
        }
        if compare.takes_two() != self.to.is_some() {
            let expected = if compare.takes_two() {
                "a protocol 'to'"
            } else {
                "no 'to'"
            };
            let message = format!("compare: {}; expected {expected} beside it", compare.name());
            return Err((self.compare.span(), message));
        }
        let mut at = vec![None; experiment.axes.len()];
        for (axis, label) in &self.at {
            let names = experiment.axes.iter().map(|axis| axis.name.as_str());
            let place = place_of(axis, "at", names)?;
            if place == 0 && compare.is_along_x() {
                let message = format!(
                    "at: {} looks along the whole of x; expected other axes",
                    compare.name()
                );
                return Err((axis.span(), message));
            }
            let labels = experiment.axes[place]
                .values
                .iter()
                .map(|value| value.label.as_str());
            at[place] = Some(place_of(label, "at", labels)?);
        }
        let to = self.to.as_ref().map(|to| place_of(to, "to", protocols.clone()));
        Ok(Claim {
            measure,
            compare,
            of: place_of(&self.of, "of", protocols)?,
            to: to.transpose()?,
            at,
            words: self.words.into_inner(),
            paper: self.paper,
            least: self.least,
            most: self.most,
            differs: self.differs,
            beyond: self.beyond,
        })
    }
}
