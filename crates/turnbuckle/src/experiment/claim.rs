//! The claims of a paper, compared with what was measured.
use super::{
    file::{Claim, Compare, Experiment},
    results::Results,
};

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

impl Compare {
    fn two(self, of: f64, to: f64) -> f64 {
        match self {
            Compare::Ratio => of / to,
            Compare::LowerBy => 100.0 * (1.0 - of / to),
            _ => of - to,
        }
    }

    fn along(self, numbers: &[f64]) -> f64 {
        let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
        let min = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let max = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let steps = numbers.windows(2).map(|pair| pair[1] / pair[0]);
        if self == Compare::Step && !steps.clone().all(f64::is_finite) {
            return f64::NAN;
        }
        let rises = numbers.windows(2).map(|pair| pair[1] - pair[0]);
        match self {
            Compare::Rise => rises.fold(f64::NEG_INFINITY, f64::max),
            Compare::Spread => max / min,
            Compare::Growth => last / first,
            _ => steps.fold(f64::INFINITY, f64::min),
        }
    }
}
