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
//! [[axis]]                            # any more; each of their values makes columns and figures of its own. A field of one may be
//!                                     # "$skew": the value of another axis
//! name = "site"
//! values = [{ label = "Oregon", x = 21.9, delay = "11ms" }]
//!
//! [[measure]]                         # a table and a figure each
//! name = "put"
//! what = "write mean"                 # of what (read, write, request, operation, many, many-apart, visibility, staleness, gamma) and which
//!                                     # number (mean, p25, p50, p75, p90, p95, p99, max, per-second, or cdf: a figure of its own);
//!                                     # or "inconsistent share" (of all operations) or "alone share" (of reads: one replica was enough)
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
use super::measure::{Counted, What};
use crate::protocols::{check_members, check_parameters};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::Path,
    str::FromStr,
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

/// A claim of the paper. See [`super::claim`].
pub struct Claim {
    pub words: String,
    /// The place of the measure.
    pub measure: usize,
    pub compare: Compare,
    /// The places of protocols. `to` is set if two numbers are compared.
    pub of: usize,
    pub to: Option<usize>,
    /// For each axis the place of the value at which the second number is. `None`: where the first one is.
    pub to_at: Vec<Option<usize>>,
    /// For each axis the place of the value that the claim is about. `None`: all values.
    pub at: Vec<Option<usize>>,
    pub paper: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
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
    Rise,
}

const COMPARES: [(&str, Compare); 8] = [
    ("value", Compare::Value),
    ("ratio", Compare::Ratio),
    ("difference", Compare::Difference),
    ("lower-by", Compare::LowerBy),
    ("spread", Compare::Spread),
    ("growth", Compare::Growth),
    ("step", Compare::Step),
    ("rise", Compare::Rise),
];

impl Compare {
    pub fn takes_two(self) -> bool {
        matches!(self, Compare::Ratio | Compare::Difference | Compare::LowerBy)
    }

    /// Whether it is about all values of x.
    pub fn is_along_x(self) -> bool {
        matches!(
            self,
            Compare::Spread | Compare::Growth | Compare::Step | Compare::Rise
        )
    }

    pub fn name(self) -> &'static str {
        let found = COMPARES.iter().find(|(_, compare)| *compare == self);
        found.map_or("", |(name, _)| name)
    }
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

impl FromStr for Compare {
    type Err = String;

    fn from_str(name: &str) -> Result<Compare, String> {
        let found = COMPARES.iter().find(|(known, _)| *known == name);
        let expected = || format!("expected one of {}", COMPARES.map(|(name, _)| name).join(", "));
        found.map(|&(_, compare)| compare).ok_or_else(expected)
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimTable {
    words: String,
    measure: Word<String>,
    compare: Word<Compare>,
    of: Word<String>,
    to: Option<Word<String>>,
    #[serde(default)]
    at: BTreeMap<Spanned<String>, Word<String>>,
    to_at: Option<BTreeMap<Spanned<String>, Word<String>>>,
    paper: Option<f64>,
    #[serde(rename = "least")]
    min: Option<f64>,
    #[serde(rename = "most")]
    max: Option<f64>,
    differs: Option<String>,
    beyond: Option<String>,
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
            let mut place = 0;
            axis.values.retain(|_| {
                place += 1;
                place == 1 || place == last + 1
            });
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
        let claims = self.claim.into_iter().map(|claim| experiment.check(claim));
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
fn place_of<'a>(given: &str, names: impl Iterator<Item = &'a str> + Clone) -> Result<usize, String> {
    names.clone().position(|name| name == given).ok_or_else(|| {
        let names: Vec<&str> = names.collect();
        format!("one of {}", names.join(", "))
    })
}

impl Experiment {
    fn check(&self, table: Spanned<ClaimTable>) -> Result<Claim, Misplaced> {
        let place = table.span();
        let claim = table.into_inner();
        let compare = *claim.compare;
        let protocol = |given: &Word<String>| {
            let names = self.protocols.iter().map(|protocol| protocol.name.as_str());
            place_of(given.text(), names).map_err(|expected| given.wrong(expected))
        };
        let measures = self.measures.iter().map(|measure| measure.name.as_str());
        let measure =
            place_of(claim.measure.text(), measures).map_err(|expected| claim.measure.wrong(expected))?;
        if self.measures[measure].what.is_distribution() {
            return Err(claim.measure.wrong("a measure that is a number"));
        }
        if claim.min.is_none() && claim.max.is_none() {
            return Err(Misplaced::missing(place, "least", "least, most or both"));
        }
        match (&claim.to, &claim.to_at) {
            (None, None) if compare.takes_two() => {
                let expected = format!(
                    "a second protocol, or to_at: {} compares two numbers",
                    compare.name()
                );
                return Err(Misplaced::missing(place, "to", expected));
            }
            (Some(to), _) if !compare.takes_two() => {
                return Err(to.wrong(format!("no second protocol: {} is about one", compare.name())));
            }
            (None, Some(_)) if !compare.takes_two() => {
                let expected = format!("none: {} is about one", compare.name());
                return Err(Misplaced::of_field(place, &["to_at"], "a second point", expected));
            }
            _ => {}
        }
        if claim.to.is_none() && claim.to_at.as_ref().is_some_and(BTreeMap::is_empty) {
            let expected = "another value of some axis: it would be compared with itself";
            return Err(Misplaced::of_field(place, &["to_at"], "nothing", expected));
        }
        let of = protocol(&claim.of)?;
        let to = claim.to.as_ref().map(protocol).transpose()?;
        let to_at = claim.to_at.as_ref().map(|at| self.check_at(compare, at));
        Ok(Claim {
            measure,
            compare,
            of,
            to: to.or(claim.to_at.as_ref().map(|_| of)),
            to_at: to_at.unwrap_or_else(|| Ok(vec![None; self.axes.len()]))?,
            at: self.check_at(compare, &claim.at)?,
            words: claim.words,
            paper: claim.paper,
            min: claim.min,
            max: claim.max,
            differs: claim.differs,
            beyond: claim.beyond,
        })
    }

    /// For each axis the place of the value that a claim is about.
    fn check_at(
        &self,
        compare: Compare,
        given: &BTreeMap<Spanned<String>, Word<String>>,
    ) -> Result<Vec<Option<usize>>, Misplaced> {
        let mut at = vec![None; self.axes.len()];
        for (axis, label) in given {
            let wrong = |expected| Misplaced::at(axis.span(), quote(axis.get_ref()), expected);
            let names = self.axes.iter().map(|axis| axis.name.as_str());
            let place = place_of(axis.get_ref(), names).map_err(wrong)?;
            if place == 0 && compare.is_along_x() {
                return Err(wrong(format!(
                    "another axis than x: {} is about all values of x",
                    compare.name()
                )));
            }
            let labels = self.axes[place].values.iter().map(|value| value.label.as_str());
            at[place] = Some(place_of(label.text(), labels).map_err(|expected| label.wrong(expected))?);
        }
        Ok(at)
    }
}
