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
//! values = ["0ms", "10ms"]            # numbers, times, or tables: see below. Tables whose x are 1, 2, .. have names, and no numbers, on the axis
//!
//! [[axis]]                            # any more; each of their values makes columns and figures of its own. A field of one may be
//!                                     # "$skew": the value of another axis
//! name = "site"
//! values = [{ label = "Oregon", x = 21.9, delay = "11ms" }]
//!
//! [[measure]]                         # a table and a figure each
//! name = "put"
//! what = "write mean"                 # of what (read, write, request, operation, many, many-apart, visibility, staleness, gamma) and which
//!                                     # number (mean, p25, p50, p75, p90, p95, p99, max, per-second, or cdf: a figure of its own);
//!                                     # or "inconsistent share" (of all operations), "alone share" (of reads: one replica was enough)
//!                                     # or "redirected share" (of reads: another replica was asked before)
//! site = "a"                          # only its reads or writes; "$site": of the site that the axis names; default: of all sites
//! label = "PUT latency, ms"           # default: what
//! scale = "log"                       # default linear
//!
//! [[claim]]                           # what the paper says
//! words = "GentleRain's PUTs take 4 times as long"
//! measure = "put"
//! compare = "ratio"                   # see below
//! of = "gentlerain"
//! to = "causalspartanx"               # default, if there is to_at: the same protocol
//! to_at = { skew = "0ms" }            # the other values of what it is compared with; default: the same
//! at = { skew = "2ms" }               # values' labels; axes that are not named: at each of their values
//! paper = 4.0                         # the paper's number, if it gives one
//! least = 3.0                         # what counts as held: at least, at most, or both
//! most = 5.0
//! differs = "why"                     # why our number is far from the paper's number: printed after both
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
//! | `spread` | over all values of x, the greatest divided by the least |
//! | `growth` | over all values of x, the last divided by the first |
//! | `step` | over all values of x, the least ratio of a number to the one before |
//! | `rise` | over all values of x, the most by which a number exceeds the one before; not above 0 if none does |
//!
//! A value's literal takes the place of `"$name"`, quotes and all, before the file is read again for each point: the lines of what is
//! wrong are right, its columns are those of the line with the values in it.
use super::{
    claim::{Claim, ClaimTable},
    measure::{Counted, What},
};
use crate::protocols::{check_members, check_parameters};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::Path,
};
use toml::{Spanned, Value};
use turnbuckle_check::Scale;
use turnbuckle_document::{Document, Misplaced, Name, Word, WrongFile, quote};
use turnbuckle_protocols::KnownProtocol;
use turnbuckle_sim::{Offset, Scenario, ScenarioTable};

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
    /// Only the ends of each axis are run, and each run is short.
    is_quick: bool,
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

impl Axis {
    /// Whether its values are names, and their places are only 1, 2, and so on.
    pub fn has_names(&self) -> bool {
        let mut values = self.values.iter().enumerate();
        let is_number = |label: &str| label.parse::<f64>().is_ok() || label.parse::<Offset>().is_ok();
        values.all(|(place, value)| value.x == (place + 1) as f64 && !is_number(&value.label))
    }
}

pub struct AxisValue {
    pub label: String,
    /// The place on the axis.
    pub x: f64,
    /// What replaces its placeholders in the scenario, by field. The empty name is the value itself.
    literals: BTreeMap<String, String>,
}

pub struct Measure {
    pub name: String,
    pub what: What,
    pub label: String,
    pub scale: Scale,
    /// The site whose operations it is about. `None`: all sites.
    site: Option<OneSite>,
}

/// One site of a scenario.
struct OneSite {
    named: SiteName,
    /// Its place in the file.
    place: Range<usize>,
}

enum SiteName {
    Itself(String),
    /// The label of the value on the axis at this place.
    OnAxis(usize),
}

impl Experiment {
    /// The number for a run at a point.
    pub fn number(&self, measure: &Measure, point: &[usize], run: &Counted) -> Option<f64> {
        measure.what.of(run, self.site(measure, point))
    }

    /// Latencies in milliseconds, and the share of all that were no longer.
    pub fn distribution(&self, measure: &Measure, point: &[usize], run: &Counted) -> Vec<(f64, f64)> {
        measure.what.distribution(run, self.site(measure, point))
    }

    fn site<'a>(&'a self, measure: &'a Measure, point: &[usize]) -> Option<&'a str> {
        Some(match &measure.site.as_ref()?.named {
            SiteName::Itself(name) => name,
            &SiteName::OnAxis(axis) => &self.axes[axis].values[point[axis]].label,
        })
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
    #[serde(default)]
    protocols: Vec<Word<KnownProtocol>>,
    x: AxisTable,
    #[serde(default)]
    axis: Vec<AxisTable>,
    #[serde(default)]
    measure: Vec<MeasureTable>,
    #[serde(default)]
    claim: Vec<Spanned<ClaimTable>>,
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
    name: Word<Name>,
    label: Option<String>,
    values: Spanned<Vec<Spanned<Value>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasureTable {
    name: Word<Name>,
    what: Word<What>,
    label: Option<String>,
    scale: Option<Scale>,
    site: Option<Word<String>>,
}

impl MeasureTable {
    fn check(self, axes: &[Axis]) -> Result<Measure, Misplaced> {
        if let Some(site) = self.site.as_ref().filter(|_| !self.what.has_sites()) {
            return Err(site.wrong("no site: there are numbers of one site for reads and writes only"));
        }
        let site = self.site.map(|site| {
            let named = match site.text().strip_prefix('$') {
                None => SiteName::Itself(site.text().into()),
                Some(name) => {
                    let place = place_of(name, axes.iter().map(|axis| axis.name.as_str()));
                    let wrong = |expected| site.wrong(format!("the name of a site, or $ and {expected}"));
                    SiteName::OnAxis(place.map_err(wrong)?)
                }
            };
            let place = site.place();
            Ok(OneSite { named, place })
        });
        Ok(Measure {
            name: self.name.text().into(),
            label: self.label.unwrap_or_else(|| self.what.to_string()),
            what: *self.what,
            scale: self.scale.unwrap_or(Scale::Linear),
            site: site.transpose()?,
        })
    }
}

/// The most runs of an experiment.
const MAX_POINTS: usize = 1_000;
const MAX_MEASURES: usize = 20;

impl Experiment {
    /// Reads an experiment, and looks at the scenario of each of its points.
    ///
    /// # Errors
    /// What is wrong with the text, what was expected, and where.
    pub fn parse(name: &str, text: &str) -> Result<Experiment, WrongFile> {
        let document = Document::parse(Path::new(name), text)?;
        let file: File = document.decode()?;
        let experiment = file.check(name, text).map_err(|wrong| document.report(wrong))?;
        for point in experiment.points() {
            let scenario = experiment.scenario(&point)?;
            let of_protocols = experiment.protocols.iter();
            let mut checked = of_protocols
                .map(|protocol| check_members(protocol.known, &scenario, &["scenario", "members"]))
                .chain([experiment.check_sites(&point, &scenario)]);
            if let Some(Err(wrong)) = checked.find(Result::is_err) {
                return Err(document.report(wrong));
            }
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

    /// Checks that the sites of measures are sites of the scenario at a point.
    fn check_sites(&self, point: &[usize], scenario: &Scenario) -> Result<(), Misplaced> {
        for measure in &self.measures {
            let strange = self.site(measure, point).filter(|&site| {
                let mut sites = scenario.world.sites.iter();
                !sites.any(|known| known == site)
            });
            if let (Some(strange), Some(site)) = (strange, &measure.site) {
                let expected = format!("a site of the scenario: {}", scenario.world.sites.join(", "));
                return Err(Misplaced::at(site.place.clone(), quote(strange), expected));
            }
        }
        Ok(())
    }

    /// The scenario at a point.
    ///
    /// # Errors
    /// What is wrong with it, what was expected, and where.
    pub fn scenario(&self, point: &[usize]) -> Result<Scenario, WrongFile> {
        let mut text = self.text.clone();
        // Once for each axis: what one puts there may name a value of another.
        for _ in &self.axes {
            for (axis, &place) in self.axes.iter().zip(point) {
                for (field, literal) in &axis.values[place].literals {
                    text = text.replace(&placeholder(&axis.name, field), literal);
                }
            }
        }
        let document = Document::parse(Path::new(&self.name), &text)?;
        let scenario = document
            .decode_tagged(ScenarioTable::FAULTS)
            .and_then(|file: WithScenario| {
                let scenario = file.scenario.check(&self.name).map(|file| file.scenario);
                let checked = scenario.and_then(|scenario| {
                    check_parameters(&scenario.parameters, &["scenario", "parameters"]).map(|()| scenario)
                });
                checked.map_err(|wrong| document.report(wrong))
            });
        scenario.map_err(|error| match self.left_over(&text) {
            Some(wrong) => document.report(wrong),
            None => error,
        })
    }

    /// A placeholder that no axis replaces. That of a measure's site is not replaced in the text.
    fn left_over(&self, text: &str) -> Option<Misplaced> {
        let is_site = |&begin: &usize| {
            let before = text[..begin].trim_end().strip_suffix('=').map(str::trim_end);
            before.is_some_and(|before| before.ends_with("\nsite"))
        };
        let mut found = text.match_indices("\"$").map(|(begin, _)| begin);
        let begin = found.find(|begin| !is_site(begin))?;
        let found: String = text[begin + 1..].chars().take_while(|&c| c != '"').collect();
        let known = self.axes.iter().flat_map(|axis| {
            let fields = axis.values.iter().flat_map(|value| value.literals.keys());
            fields.map(|field| placeholder(&axis.name, field))
        });
        let known: BTreeSet<String> = known.collect();
        let known: Vec<String> = known.into_iter().collect();
        let expected = format!("a name that each value of some axis has: {}", known.join(", "));
        Some(Misplaced::at(begin..begin + 1, found, expected))
    }

    /// A note for all figures. Empty if the runs are those that the file asks for.
    pub fn note(&self) -> String {
        match self.is_quick {
            true => {
                "--quick: only the first and the last value of each axis, and two seconds of each run".into()
            }
            false => String::new(),
        }
    }

    /// The same with the first and the last value of each axis alone.
    pub fn quick(mut self) -> Experiment {
        self.is_quick = true;
        for (number, axis) in self.axes.iter_mut().enumerate() {
            let last = axis.values.len() - 1;
            let has_names = axis.has_names();
            let mut place = 0;
            axis.values.retain(|_| {
                place += 1;
                place == 1 || place == last + 1
            });
            if has_names {
                // Names are numbered from 1. With a gap they would be taken for numbers.
                (1u32..)
                    .zip(&mut axis.values)
                    .for_each(|(place, value)| value.x = f64::from(place));
            }
            let of_ends = |place: usize| match place {
                0 => 0,
                place if place == last => 1,
                _ => usize::MAX,
            };
            for claim in &mut self.claims {
                claim.at[number] = claim.at[number].map(of_ends);
                claim.to_at[number] = claim.to_at[number].map(of_ends);
            }
        }
        self
    }
}

/// The placeholder of an axis's value in the scenario, or of a field of it.
fn placeholder(axis: &str, field: &str) -> String {
    match field {
        "" => format!("\"${axis}\""),
        field => format!("\"${axis}.{field}\""),
    }
}

impl File {
    fn check(self, name: &str, text: &str) -> Result<Experiment, Misplaced> {
        let wrong = |field, found, expected| Misplaced::of_field(0..0, &[field], found, expected);
        if self.protocols.is_empty() {
            return Err(wrong(
                "protocols",
                "nothing".into(),
                "at least one protocol".into(),
            ));
        }
        let mut axes: Vec<Axis> = Vec::new();
        for table in std::iter::once(self.x).chain(self.axis) {
            if axes.iter().any(|other| other.name == table.name.text()) {
                return Err(table.name.wrong("a name that no other axis has"));
            }
            axes.push(table.check()?);
        }
        let points = axes.iter().map(|axis| axis.values.len());
        let runs = points.fold(self.protocols.len(), usize::saturating_mul);
        if runs > MAX_POINTS {
            let expected = format!("at most {MAX_POINTS} runs");
            return Err(wrong("protocols", format!("{runs} runs with all axes"), expected));
        }
        if !(1..=MAX_MEASURES).contains(&self.measure.len()) {
            let found = format!("{} measures", self.measure.len());
            return Err(wrong("measure", found, format!("1 to {MAX_MEASURES}")));
        }
        let protocols = self.protocols.iter().map(|protocol| Protocol {
            name: protocol.text().into(),
            known: **protocol,
        });
        let measures = self.measure.into_iter().map(|measure| measure.check(&axes));
        let mut experiment = Experiment {
            name: name.into(),
            title: self.title,
            source: self.source,
            notes: self.notes,
            protocols: protocols.collect(),
            measures: measures.collect::<Result<_, _>>()?,
            axes,
            claims: Vec::new(),
            is_quick: false,
            text: text.into(),
        };
        let claims = self.claim.into_iter().map(|claim| {
            let place = claim.span();
            claim.into_inner().check(place, &experiment)
        });
        experiment.claims = claims.collect::<Result<_, _>>()?;
        Ok(experiment)
    }
}

impl AxisTable {
    fn check(self) -> Result<Axis, Misplaced> {
        if self.values.get_ref().is_empty() {
            return Err(Misplaced::at(self.values.span(), "nothing", "at least one value"));
        }
        let values = self.values.into_inner().into_iter().map(axis_value);
        Ok(Axis {
            values: values.collect::<Result<_, _>>()?,
            name: self.name.text().into(),
            label: self.label.unwrap_or_else(|| self.name.text().into()),
        })
    }
}

fn axis_value(value: Spanned<Value>) -> Result<AxisValue, Misplaced> {
    let number = |value: &Value| match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        // Times are in milliseconds.
        Value::String(text) => text.parse().ok().map(|Offset(us)| us as f64 / 1e3),
        _ => None,
    };
    let label = |value: &Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    let given = value.get_ref();
    let read = match given {
        Value::Table(table) => table.get("label").and_then(Value::as_str).and_then(|label| {
            let fields = table
                .iter()
                .map(|(field, value)| (field.clone(), value.to_string()));
            Some((label.into(), table.get("x").and_then(number)?, fields.collect()))
        }),
        _ => number(given).map(|x| {
            (
                label(given),
                x,
                BTreeMap::from([(String::new(), given.to_string())]),
            )
        }),
    };
    let (label, x, literals) = read.ok_or_else(|| {
        let expected = "a number, a time such as \"2ms\", or a table with label and x";
        Misplaced::at(value.span(), given.to_string(), expected)
    })?;
    Ok(AxisValue { label, x, literals })
}

/// The place of a name in a list of names.
pub fn place_of<'a>(given: &str, names: impl Iterator<Item = &'a str> + Clone) -> Result<usize, String> {
    names.clone().position(|name| name == given).ok_or_else(|| {
        let names: Vec<&str> = names.collect();
        format!("one of {}", names.join(", "))
    })
}
