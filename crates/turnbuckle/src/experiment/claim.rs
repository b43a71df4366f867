//! The claims of a paper, compared with what was measured.
use super::{
    compare::Compare,
    file::{Experiment, place_of},
    results::Results,
};
use serde::Deserialize;
use std::{collections::BTreeMap, ops::Range};
use toml::Spanned;
use turnbuckle_document::{Misplaced, Word, quote};

/// A claim of the paper.
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

/// The verdict on a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What was found: the least and the greatest of all the points that the claim is about.
    pub found: Option<(f64, f64)>,
    pub held: Held,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    Yes,
    No,
    /// It is neither held nor broken, and why.
    Unknown(String),
}

impl Claim {
    /// Whether it held.
    pub fn judge(&self, experiment: &Experiment, results: &Results) -> Verdict {
        if self.at.contains(&Some(usize::MAX)) || self.to_at.contains(&Some(usize::MAX)) {
            let why = "--quick leaves its point out".into();
            return Verdict {
                found: None,
                held: Held::Unknown(why),
            };
        }
        // What cannot be compared, such as nothing with nothing, does not hold.
        let found = self.numbers(experiment, results);
        let found = found.filter(|found| found.iter().all(|number| number.is_finite()));
        let ends = |found: Vec<f64>| {
            let min = found.iter().copied().reduce(f64::min)?;
            Some((min, found.iter().copied().reduce(f64::max)?))
        };
        let found = found.and_then(ends);
        let is_in = |number: f64| {
            self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max)
        };
        let held = match (found, &self.beyond) {
            (_, Some(why)) => Held::Unknown(why.clone()),
            (Some((min, max)), None) if is_in(min) && is_in(max) => Held::Yes,
            _ => Held::No,
        };
        Verdict { found, held }
    }

    /// The numbers at all points it is about. None if something was not measured.
    fn numbers(&self, experiment: &Experiment, results: &Results) -> Option<Vec<f64>> {
        let number = |protocol, point: &[usize]| {
            let run = results.counted(protocol, point)?;
            experiment.number(&experiment.measures[self.measure], point, run)
        };
        let is_meant = |point: &Vec<usize>| {
            let mut places = self.at.iter().zip(point);
            // Those along x begin at its first value.
            let is_first = !self.compare.is_along_x() || point[0] == 0;
            is_first && places.all(|(at, place)| at.is_none_or(|at| at == *place))
        };
        let along_x = |point: &[usize]| -> Option<Vec<f64>> {
            let mut point = point.to_vec();
            let places = 0..experiment.axes[0].values.len();
            let at = |place| {
                point[0] = place;
                number(self.of, &point)
            };
            places.map(at).collect()
        };
        let points = experiment.points();
        let compared = points.iter().filter(|point| is_meant(point)).map(|point| {
            if self.compare.is_along_x() {
                return along_x(point).map(|numbers| self.compare.along(&numbers));
            }
            let of = number(self.of, point)?;
            let Some(to) = self.to else { return Some(of) };
            let places = self.to_at.iter().zip(point);
            let other: Vec<usize> = places.map(|(at, &place)| at.unwrap_or(place)).collect();
            Some(self.compare.two(of, number(to, &other)?))
        });
        compared.collect()
    }
}

// ---- the text -------------------------------------------------------------------------------------------------

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimTable {
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

impl ClaimTable {
    /// The claim, if the experiment has what it names. `place` is that of its table in the file.
    pub fn check(self, place: Range<usize>, experiment: &Experiment) -> Result<Claim, Misplaced> {
        let claim = self;
        let compare = *claim.compare;
        let protocol = |given: &Word<String>| {
            let names = experiment.protocols.iter().map(|protocol| protocol.name.as_str());
            place_of(given.text(), names).map_err(|expected| given.wrong(expected))
        };
        let measures = experiment.measures.iter().map(|measure| measure.name.as_str());
        let measure =
            place_of(claim.measure.text(), measures).map_err(|expected| claim.measure.wrong(expected))?;
        if experiment.measures[measure].what.is_distribution() {
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
        let to_at = claim.to_at.as_ref().map(|at| check_at(experiment, compare, at));
        Ok(Claim {
            measure,
            compare,
            of,
            to: to.or(claim.to_at.as_ref().map(|_| of)),
            to_at: to_at.unwrap_or_else(|| Ok(vec![None; experiment.axes.len()]))?,
            at: check_at(experiment, compare, &claim.at)?,
            words: claim.words,
            paper: claim.paper,
            min: claim.min,
            max: claim.max,
            differs: claim.differs,
            beyond: claim.beyond,
        })
    }
}

/// For each axis the place of the value that a claim is about.
fn check_at(
    experiment: &Experiment,
    compare: Compare,
    given: &BTreeMap<Spanned<String>, Word<String>>,
) -> Result<Vec<Option<usize>>, Misplaced> {
    let mut at = vec![None; experiment.axes.len()];
    for (axis, label) in given {
        let wrong = |expected| Misplaced::at(axis.span(), quote(axis.get_ref()), expected);
        let names = experiment.axes.iter().map(|axis| axis.name.as_str());
        let place = place_of(axis.get_ref(), names).map_err(wrong)?;
        if place == 0 && compare.is_along_x() {
            return Err(wrong(format!(
                "another axis than x: {} is about all values of x",
                compare.name()
            )));
        }
        let labels = experiment.axes[place]
            .values
            .iter()
            .map(|value| value.label.as_str());
        at[place] = Some(place_of(label.text(), labels).map_err(|expected| label.wrong(expected))?);
    }
    Ok(at)
}
